"""Real products that follow a log and hand its lines on to files, for as long as a block lasts."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.rig.waiting import wait_until


class Peer:
    """A process of a product; what it hands on it appends to files in the directory `out`. Its own words are in `log` beside that."""

    def __init__(self, command: Sequence[str | Path], out: Path) -> None:
        self._out = out
        self._said = out.with_name("log")
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)

    @property
    def lines(self) -> list[bytes]:
        """The whole lines that it has handed on."""
        return [line for path in sorted(self._out.iterdir()) for line in path.read_bytes().split(b"\n")[:-1]]

    def await_lines(self, count: int) -> None:
        """Wait until it has handed so many on."""

        def arrived() -> bool:
            assert self._process.poll() is None, self._said.read_text(errors="replace")[-2000:]
            return len(self.lines) >= count

        wait_until(arrived, 120.0, lambda: f"{count} lines handed on: {self._said.read_text(errors='replace')[-2000:]}")

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send the signal, and wait for the end."""
        self._process.send_signal(number)
        self._process.wait(60)

    def kill_when(self, condition: Callable[[], bool]) -> None:
        """Kill it at a moment in which something holds: it stands still while that is asked."""

        def holds() -> bool:
            self._process.send_signal(signal.SIGSTOP)
            if condition():
                return True
            self._process.send_signal(signal.SIGCONT)
            return False

        wait_until(holds, 60.0, "the moment to kill it")
        self.end(signal.SIGKILL)


@contextmanager
def following(command: Sequence[str | Path], out: Path) -> Iterator[Peer]:
    """A product that follows a log until the block ends."""
    out.mkdir(parents=True)
    peer = Peer(command, out)
    try:
        yield peer
    finally:
        peer.end(signal.SIGKILL)
