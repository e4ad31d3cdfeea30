"""The latest lines of this process's log, in memory: for a report, also where nobody keeps what the process writes."""

from __future__ import annotations

from collections import deque

LINES_MAX = 2000
BYTES_MAX = 512 * 1024
"""In characters: lines are nearly all ASCII."""


class Recent:
    """The last `LINES_MAX` lines, of at most `BYTES_MAX` characters together. Not thread-safe: the handler's lock is held."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0

    def add(self, line: str) -> None:
        """Keep this line, and let go of the oldest ones that there is no room for."""
        self._lines.append(line)
        self._size += len(line)
        while len(self._lines) > LINES_MAX or self._size > BYTES_MAX:
            self._size -= len(self._lines.popleft())

    def lines(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(self._lines)
