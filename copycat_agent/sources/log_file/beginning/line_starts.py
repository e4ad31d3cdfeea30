"""Where lines of a file begin, seen from anywhere in it: behind a delimiter, and at byte 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from copycat_agent.formats import Reader
from copycat_agent.formats.encoding import Layout

BLOCK_BYTES = 64 * 2**10
"""Bytes per read."""


class Line(NamedTuple):
    """A line that begins at byte `start`; `data` are its first bytes, all of it when it is not very long."""

    start: int
    data: bytes


class LineStarts:
    """The lines of one file, which is laid out like this."""

    def __init__(self, read: Reader, layout: Layout) -> None:
        self._read = read
        self._layout = layout
        self._size = len(layout.delimiter)

    def lines(self, position: int, end: int) -> Iterator[Line]:
        """Those that begin at `position` or later, and before `end`. Raises what `read` raises.

        Data reaches to the end of the line, delimiter included, or for at least `BLOCK_BYTES`, or to the end of the file.
        """
        begun, first = position <= 0, position
        position = 0 if begun else self._layout.down(max(0, position - self._size))
        while position < end:
            block = self._read(position, BLOCK_BYTES)
            starts = ([0] if begun else []) + self._behind_delimiters(block, position)
            is_all = len(block) < BLOCK_BYTES
            begun = not is_all and starts[-1:] > [0]  # the last one is read from its own beginning
            last = starts.pop() if begun else len(block)
            for start, after in zip(starts, [*starts[1:], last], strict=False):
                if position + start >= end:
                    return
                if position + start >= first:
                    yield Line(position + start, block[start:after])
            if is_all:
                return
            position = position + last if begun else self._layout.down(position + len(block) - self._size + 1)

    def last_end(self, size: int, look_back: int) -> int | None:
        """Behind the last delimiter among the first `size` bytes; None when none lies in the last `look_back` of them. May raise."""
        least, end = max(0, size - look_back), size
        while end > least:
            begin = self._layout.down(max(least, end - BLOCK_BYTES))
            cut = self._layout.rfind(self._read(begin, end - begin), begin)
            if cut >= 0:
                return begin + cut + self._size
            end = begin + self._size - 1 if begin > least else 0
        return None

    def last_possible(self, size: int) -> int:
        """Where among the first `size` bytes a delimiter may begin that is not all there."""
        return self._layout.down(max(0, size - self._size + 1))

    def is_start(self, position: int) -> bool:
        """Whether a line begins at byte `position`, as far as the bytes before it say. Raises what `read` raises."""
        before = position - self._size
        if position <= len(self._layout.mark):
            return position in {0, len(self._layout.mark)}
        return before >= 0 and self._layout.find(self._read(before, self._size), before) == 0

    def text(self, data: bytes) -> str:
        """A line, or its first bytes, as far as it can be decoded."""
        return data.decode(self._layout.codec, "replace").removeprefix("\ufeff")

    def _behind_delimiters(self, block: bytes, position: int) -> list[int]:
        found, at = [], self._layout.find(block, position)
        while at >= 0:
            found.append(at + self._size)
            at = self._layout.find(block, position, at + self._size)
        return found
