"""The load of a kill loop of source `journald`: a journal that grows and is rotated, with numbered lines as its messages."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from tests.rig.background import Background
from tests.rig.journals import JournalWriter
from tests.rig.ledger import make_line

if TYPE_CHECKING:
    from pathlib import Path

CONNECTOR = "journal"
_TICK_SECONDS = 0.05
_ROTATE_SECONDS = (10.0, 30.0)
_PAYLOAD = b"abcdefghijklmnopqrstuvwxyz =.,:"


class JournalLoad(Background):
    """As `both.Load`, with `per_second` lines in all. A directory that an earlier run has left is gone on with."""

    has_spool, has_planner = False, True

    def __init__(self, root: Path, run: str, per_second: int) -> None:
        super().__init__("load")
        self.journal = root / "journal"
        self.rotations = 0
        self._run_name = run
        self._per_second = per_second
        self._dice = random.Random()
        self._writer = JournalWriter(self.journal, first=self._count())
        self._writing = threading.Lock()
        self._is_paused = False

    def counts(self) -> dict[str, int]:
        """The lines that were given to the journal."""
        if self._error:
            raise self._error
        return {CONNECTOR: self._writer.written}

    @property
    def written_bytes(self) -> int:
        """Bytes of all journals."""
        return sum(path.stat().st_size for path in self.journal.glob("*.journal"))

    def is_cleaned_up(self) -> bool:
        """Whether nothing is left that the agent should have moved or deleted."""
        return True

    def pause(self) -> None:
        """Write nothing until `resume`."""
        with self._writing:
            self._is_paused = True

    def resume(self) -> None:
        """Go on."""
        self._is_paused = False

    def _close(self) -> None:
        self._writer.close()

    def _work(self) -> None:
        owed, rotate_at = 0.0, time.monotonic() + self._dice.uniform(*_ROTATE_SECONDS)
        while not self._stop.wait(_TICK_SECONDS):
            with self._writing:
                if self._is_paused:
                    continue
                owed += self._per_second * _TICK_SECONDS
                self._write(int(owed))
                owed %= 1
                if time.monotonic() > rotate_at:
                    self._writer.rotate()
                    self.rotations += 1
                    rotate_at = time.monotonic() + self._dice.uniform(*_ROTATE_SECONDS)

    def _write(self, count: int) -> None:
        first = self._writer.written
        self._writer.begin({"MESSAGE": self._line(number), "PRIORITY": "6"} for number in range(first, first + count))

    def _line(self, number: int) -> str:
        payload = bytes(self._dice.choices(_PAYLOAD, k=self._dice.randint(10, 120)))
        return make_line(self._run_name, CONNECTOR, number, payload).decode().removesuffix("\n")

    def _count(self) -> int:
        if not self.journal.is_dir():
            return 0
        command = ["journalctl", f"--directory={self.journal}", "--output=cat", "--quiet"]
        return subprocess.run(command, check=True, capture_output=True, timeout=300).stdout.count(b"\n")


def journal_definition(load: JournalLoad, topic: str, guarantee: str) -> dict[str, object]:
    """The connector."""
    return {
        "source": {"type": "journald", "directory": str(load.journal), "poll_interval": "200ms"},
        "record": {"topic": topic, "key": CONNECTOR, "value": "{MESSAGE}"},
        "delivery": {"max_batch_bytes": "256KiB", "guarantee": guarantee},
    }
