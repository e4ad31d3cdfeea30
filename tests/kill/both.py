"""The load of a kill loop: logs that grow and are rotated, files that are dropped, and rows of data sources, all of them numbered lines."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from pathlib import Path
from typing import Self

from tests.rig.ledger import Ledger, LedgerWriter

ROWS = ("rows", "replayed")
"""Tables of data sources, each a file that only grows. Of the second one ranges may be sent in several batches."""
LOGS = ("app0.log", "app1.log", "app2.log", "app3.log")
_TICK_SECONDS = 0.05
_ROTATE_SECONDS = (8.0, 16.0)
_DROP_LINES = (20, 200)
_MOST_WAITING = 100
"""So many dropped files may wait in the directory; then none is dropped."""
_LATE_LINES = 3
"""Lines that still go to a file that was renamed, as a daemon writes them before it is told."""
_LOGROTATE = """{paths} {{
    rotate 100000
    create
    dateext
    dateformat -%Y%m%d-%H%M%S
}}
"""


class Load:
    """A thread that writes until `stop`. `per_second` lines in all, a third in dropped files, and with `rows` a third as rows.

    A directory that an earlier run has left is gone on with: what it holds is counted first.
    """

    has_spool = has_planner = True
    """Whether files are moved; whether there are processes beside the agent's own in which sources plan or read."""

    def __init__(self, root: Path, run: str, per_second: int, *, rows: bool = False) -> None:
        self.logs, self.drops, self.done, self.failed, self.rows = (root / name for name in ("logs", "in", "done", "failed", "rows"))
        for directory in (self.logs, self.drops, self.done, self.failed, self.rows):
            directory.mkdir(parents=True, exist_ok=True)
        self.rotations = 0
        self._root = root
        self._dice = random.Random()
        self._ledger = Ledger(run=run)
        self._per_second = per_second
        self._dropped = self._count_dropped()
        self._writers = [self._ledger.writer(self.logs / name, written=self._count_lines(name)) for name in LOGS]
        self._row_writers = [self._ledger.writer(self.rows / name, written=_lines_of(self.rows / name)) for name in ROWS] if rows else []
        self._log_owed = self._drop_owed = self._row_owed = 0.0
        self._rotate_at = time.monotonic() + self._dice.uniform(*_ROTATE_SECONDS)
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._go = threading.Event()
        self._go.set()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._error: BaseException | None = None
        self._config = root / "logrotate.conf"

    def counts(self) -> dict[str, int]:
        """File -> lines of it whose write() returned; of dropped files, those that were renamed to their place."""
        if self._error:
            raise self._error
        return self._ledger.counts() | self._dropped.copy()

    @property
    def written_bytes(self) -> int:
        """Bytes in all files there are."""
        return sum(path.stat().st_size for where in (self.logs, self.drops, self.done, self.failed) for path in where.glob("*.log*"))

    def is_cleaned_up(self) -> bool:
        """Whether nothing is left that the agent should have moved or deleted."""
        return not any(self.drops.iterdir())

    def pause(self) -> None:
        """Write nothing until `resume`."""
        self._go.clear()
        with self._writing:
            return

    def resume(self) -> None:
        """Go on."""
        self._go.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._go.set()
        self._thread.join()
        self._ledger.close()
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            now = time.monotonic()
            while not self._stop.wait(_TICK_SECONDS):
                if not self._go.is_set():
                    self._go.wait()
                    now = time.monotonic()
                elapsed, now = time.monotonic() - now, time.monotonic()
                with self._writing:
                    if self._go.is_set() and not self._stop.is_set():
                        self._write(elapsed)
        except BaseException as error:  # noqa: BLE001 - raised where it is seen
            self._error = error

    def _write(self, elapsed: float) -> None:
        """What is due after so many seconds more."""
        logs = (1 if self._row_writers else 2) / 3
        self._log_owed = self._write_logs(self._log_owed + elapsed * self._per_second * logs)
        if self._row_writers:
            self._row_owed = self._write_rows(self._row_owed + elapsed * self._per_second / 3)
        self._drop_owed = self._drop(self._drop_owed + elapsed * self._per_second / 3)
        if time.monotonic() > self._rotate_at:
            self._rotate(self._dice.choice(self._writers))
            self._rotate_at = time.monotonic() + self._dice.uniform(*_ROTATE_SECONDS)

    def _write_logs(self, owed: float) -> float:
        count = min(int(owed), 1000)
        writer = self._dice.choice(self._writers)
        if self._dice.random() < 0.2:
            writer.write(count)
        elif count:
            writer.write_block(count)
        return owed - count

    def _write_rows(self, owed: float) -> float:
        count = min(int(owed), 1000)
        if count:
            self._dice.choice(self._row_writers).write_block(count)
        return owed - count

    def _drop(self, owed: float) -> float:
        """A whole file, when so many lines are owed."""
        count = self._dice.randint(*_DROP_LINES)
        if owed < count or sum(1 for _ in self.drops.iterdir()) > _MOST_WAITING:
            return min(owed, float(_DROP_LINES[1]))
        name = f"drop-{len(self._dropped):06d}.log"
        temporary = self._root / "being-written"
        temporary.unlink(missing_ok=True)
        with LedgerWriter(temporary, self._ledger.run, name, self._dice) as writer:
            writer.write_block(count)
        temporary.rename(self.drops / name)
        self._dropped[name] = count
        return owed - count

    def _rotate(self, writer: LedgerWriter) -> None:
        """By logrotate, or by a plain rename."""
        if self._dice.random() < 0.5:
            self._config.write_text(_LOGROTATE.format(paths=writer.path))
            self._config.chmod(0o600)
            command = ["logrotate", "-f", "-s", str(self._root / "logrotate.state"), str(self._config)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        else:
            writer.path.rename(writer.path.with_name(f"{writer.path.name}-{time.strftime('%Y%m%d-%H%M%S')}"))
        writer.write(_LATE_LINES)
        writer.reopen()
        self.rotations += 1

    def _count_lines(self, name: str) -> int:
        return sum(map(_lines_of, self.logs.glob(f"{name}*")))

    def _count_dropped(self) -> dict[str, int]:
        return {path.name: _lines_of(path) for where in (self.drops, self.done, self.failed) for path in where.glob("drop-*.log")}


def source_of(file: str) -> str:
    """Which connector the lines of a file belong to."""
    if "/" in file:
        return file.partition("/")[0]
    return file if file in (*ROWS, "journal") else "drops" if file.startswith("drop-") else "logs"


def _lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def row_definitions(load: Load, topics: dict[str, str], guarantee: str) -> dict[str, dict[str, object]]:
    """Name -> connector: the data sources."""
    return {
        name: {
            "source": {
                "type": "datasource",
                "class": "benchmarks.kill_loop_rows:LedgerRows",
                "options": {"path": str(load.rows / name)},
                "replayable": name == "replayed",
                "poll_interval": "200ms",
            },
            "record": {"topic": topics[name], "key": name, "value": "{line}"},
            "delivery": {"max_batch_bytes": "256KiB", "guarantee": guarantee},
        }
        for name in ROWS
    }


def definitions(load: Load, topics: dict[str, str], guarantee: str) -> dict[str, dict[str, object]]:
    """Name -> connector: one for each source of files."""
    delivery = {"tasks_max": 2, "max_batch_bytes": "256KiB", "guarantee": guarantee}
    return {
        "logs": {
            "source": {"type": "log_file", "include": [f"{load.logs}/*.log*"], "scan_interval": "500ms"},
            "record": {"topic": topics["logs"], "partition": "file"},
            "delivery": delivery,
        },
        "drops": {
            "source": {
                "type": "spool_dir",
                "dir": str(load.drops),
                "pattern": "drop-*.log",
                "ready": {"min_age": "0s"},
                "scan_interval": "500ms",
                "cleanup": {"policy": "move", "to": str(load.done), "failed_to": str(load.failed)},
            },
            "record": {"topic": topics["drops"], "partition": "file"},
            "delivery": delivery,
        },
    }
