"""`python -m benchmarks.soak_writer CONFIG`: the process that writes all logs of a soak, in steps of 10 ms, until SIGTERM.

On standard output, at the end: a JSON object, name -> lines whose write() returned. Requests are files `NAME.VERB` in the
control directory, removed when done: `reopen` (go on in a new file at the same path), `pause`, `resume`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from tests.rig.ledger import make_line

_STEP_SECONDS = 0.01
_NOTICE_STEPS = 5
_MOST_LINES = 5000
"""Lines of one step: what is owed after a pause is written in several."""
_POOL = random.Random(7).randbytes(48 * 1024).hex().encode()


def line_of(run: str, name: str, number: int) -> bytes:
    """Line `number` of the log `name`: always the same, 60 to 160 bytes."""
    start = number * 7919 % 90_000
    return make_line(run, name, number, _POOL[start : start + 30 + number * 31 % 100])


class _Log:
    """One log. Unless it is `whole`, writes end in the middle of a line: the rest comes with the next step."""

    def __init__(self, run: str, name: str, path: Path, *, notices: bool, whole: bool) -> None:
        self.name = name
        self.written = 0
        self._run = run
        self._path = path
        self._notices = notices
        self._whole = whole
        self._rest = b""
        self._steps = 0
        self._paused = False
        self._fd = self._open()

    def step(self, due: int) -> None:
        """Have written `due` lines in all, more or less."""
        if self._paused:
            return
        self._steps += 1
        if self._notices and self._steps % _NOTICE_STEPS == 0 and self._has_moved():
            self.do("reopen")
        last = min(due, self.written + _MOST_LINES)
        if last <= self.written:
            return
        lines = [line_of(self._run, self.name, number) for number in range(self.written, last)]
        block = self._rest + b"".join(lines)
        kept = 0 if self._whole else self._steps * 13 % len(lines[-1])
        self._rest = block[len(block) - kept :]
        self._write(block[: len(block) - kept])
        self.written = last

    def do(self, verb: str) -> None:
        """What a request asks for."""
        self.finish()
        if verb == "reopen":
            os.close(self._fd)
            self._fd = self._open()
        self._paused = verb == "pause"

    def finish(self) -> None:
        """End the line that is begun."""
        self._write(self._rest)
        self._rest = b""

    def _write(self, block: bytes) -> None:
        while block:
            block = block[os.write(self._fd, block) :]

    def _has_moved(self) -> bool:
        try:
            return self._path.stat().st_ino != os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False  # between rename and create: there is nothing to go on in yet

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def main() -> None:
    """Write until SIGTERM."""
    config = json.loads(Path(sys.argv[1]).read_text())
    control = Path(config["control"])
    logs = {
        one["name"]: _Log(config["run"], one["name"], Path(one["path"]), notices=one["notices"], whole=one["whole"])
        for one in config["logs"]
    }
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
    begin = time.monotonic()
    step = 0
    while not ends:
        step += 1
        time.sleep(max(0.0, begin + step * _STEP_SECONDS - time.monotonic()))
        for request in os.listdir(control):  # noqa: PTH208 - a hundred times a second
            name, _, verb = request.rpartition(".")
            logs[name].do(verb)
            (control / request).unlink()
        due = int((time.monotonic() - begin) * config["rate"] / len(logs))
        for log in logs.values():
            log.step(due)
    for log in logs.values():
        log.finish()
    print(json.dumps({name: log.written for name, log in logs.items()}), flush=True)


if __name__ == "__main__":
    main()
