"""A log that is rotated while a real product follows it, and what the agent and the product have sent of it together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class RotatingLog:
    """A log of numbered lines; `written` is all that it has ever held, `files` the lines of each file by its inode."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written: list[bytes] = []
        self.files: list[tuple[int, list[bytes]]] = []
        self._rotations = 0

    def write(self, count: int) -> None:
        """Begin a new file with so many lines."""
        self.path.touch(exist_ok=False)
        self.files.append((self.path.stat().st_ino, []))
        self.append(count)

    def append(self, count: int) -> None:
        """So many further lines."""
        begin = len(self.written)
        part = [b"line %06d of a log" % number for number in range(begin, begin + count)]
        with self.path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in part))
        self.written += part
        self.files[-1][1].extend(part)

    def rotate(self) -> None:
        """Rename it to `.1`, and older ones by one further."""
        for older in range(self._rotations, 0, -1):
            self.path.with_name(f"{self.path.name}.{older}").rename(self.path.with_name(f"{self.path.name}.{older + 1}"))
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self._rotations += 1

    def kill_in_the_middle(self, await_lines: Callable[[int], None], kill: Callable[[], None], *, count: int = 300) -> None:
        """Six files: three are sent, the product is killed in the fourth, and two more are written without it."""
        for number in range(6):
            if number:
                self.rotate()
            self.write(count // 2)
            if number == 3:
                await_lines(3 * count + count // 6)
                kill()
            self.append(count - count // 2)
            if number < 3:
                await_lines((number + 1) * count)


def assert_nothing_lost(log: RotatingLog, handed_on: list[bytes], read: list[bytes]) -> list[bytes]:
    """Every line was sent by one of the two, and none twice by the agent. Returns those that both sent."""
    assert set(handed_on) | set(read) == set(log.written)
    assert len(set(read)) == len(read)
    return [line for line in read if line in set(handed_on)]
