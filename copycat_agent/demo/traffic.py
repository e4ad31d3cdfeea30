"""Made-up logs that grow at a steady rate and are rotated by rename, as logrotate does without copytruncate."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from pathlib import Path
from typing import BinaryIO, Self

from copycat_agent.demo.lines import APP, WEB, make_lines

_TICK_SECONDS = 0.05


class Log:
    """One log: a file that grows, and its rotated generations `.1`, `.2`, ... (the highest is the oldest); all of them stay."""

    def __init__(self, path: Path, seed: int) -> None:
        self.name = path.stem
        self.path = path
        self.written = 0
        """Lines completely written, numbered from 0."""
        self.rotations = 0
        self.digest = hashlib.blake2b()
        """Over all lines in order."""
        self._dice = random.Random(seed)  # noqa: S311 - makes lines, protects nothing
        self._file: BinaryIO = path.open("ab", buffering=0)

    def write(self, count: int) -> None:
        """Append `count` lines, in pieces that do not end where lines end, as buffered writers do."""
        block = b"".join(make_lines(self.name, self.written, count, self._dice))
        half = len(block) // 2
        for piece in (block[:half], block[half:]):
            left = memoryview(piece)
            while left:
                left = left[self._file.write(left) or 0 :]
        self.digest.update(block)
        self.written += count

    def rotate(self) -> None:
        """Rename every generation one up, the current file last, and go on in a new one."""
        for number in range(self.rotations, 0, -1):
            self.path.with_name(f"{self.path.name}.{number}").rename(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self._file.close()
        self._file = self.path.open("ab", buffering=0)
        self.rotations += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Traffic:
    """A thread that writes all logs. `start`, then `stop`; the numbers may be read at any time."""

    def __init__(self, directory: Path, lines_per_second: int, rotate_seconds: float) -> None:
        """Makes `web/` and `app/` below `directory`, with their logs still empty."""
        self.error: OSError | None = None
        """Why it ended early: a full disk, say."""
        self._rate = lines_per_second
        self._rotate_seconds = rotate_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-traffic", daemon=True)
        paths = [directory / "web" / f"{name}.log" for name in WEB] + [directory / "app" / f"{name}.log" for name in APP]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.logs = tuple(Log(path, seed) for seed, path in enumerate(paths))

    @property
    def written(self) -> int:
        """Lines written so far, over all logs."""
        return sum(log.written for log in self.logs)

    @property
    def rotations(self) -> int:
        """Rotations so far, over all logs."""
        return sum(log.rotations for log in self.logs)

    def start(self) -> None:
        """Begin to write. Called once."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more; returns when the last line is complete. Safe to call twice, and without `start`."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        for log in self.logs:
            log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._write_until_stopped()
        except OSError as error:
            self.error = error

    def _write_until_stopped(self) -> None:
        began = time.monotonic()
        next_rotation = began + self._rotate_seconds
        turn = 0
        while not self._stop.wait(_TICK_SECONDS):
            due = int((time.monotonic() - began) * self._rate) - self.written
            for log in self.logs:
                log.write(max(0, due) // len(self.logs))
            if time.monotonic() >= next_rotation:
                next_rotation += self._rotate_seconds
                self.logs[turn % len(self.logs)].rotate()
                turn += 1
