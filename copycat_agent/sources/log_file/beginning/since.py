"""Finds where the lines of a file begin, and the first line that was written at a given time or later.

The search bisects byte positions without reading the whole file. A probe takes in all lines of a block, and the search continues after it
only if all of them are older than wanted: a few lines out of order do no harm, and a wrong result begins too early, never too late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from copycat_agent.formats import Reader
from copycat_agent.formats.text import Layout
from copycat_agent.formats.timestamps import recognise

BLOCK_BYTES = 64 * 2**10
"""Bytes per read."""


class LineStart(NamedTuple):
    """A line that begins at byte `start`; `data` are its first bytes, all of it unless it is very long."""

    start: int
    data: bytes


class LineStarts:
    """The lines of one file with the given layout."""

    def __init__(self, read: Reader, layout: Layout) -> None:
        self._read = read
        self._layout = layout
        self._size = len(layout.delimiter)

    def lines(self, position: int, end: int) -> Iterator[LineStart]:
        """Yields the lines that begin at `position` or later, and before `end`. Raises what `read` raises.

        Data reaches to the end of the line, delimiter included, or for at least `BLOCK_BYTES`, or to the end of the file.
        """
        begun, first = position <= 0, position
        position = 0 if begun else self._layout.down(max(0, position - self._size))
        while position < end:
            block = self._read(position, BLOCK_BYTES)
            starts = ([0] if begun else []) + self._behind_delimiters(block, position)
            is_all = len(block) < BLOCK_BYTES
            begun = not is_all and starts[-1:] > [0]  # the last one is read again from its own beginning
            last = starts.pop() if begun else len(block)
            for start, after in zip(starts, [*starts[1:], last], strict=False):
                if position + start >= end:
                    return
                if position + start >= first:
                    yield LineStart(position + start, block[start:after])
            if is_all:
                return
            position = position + last if begun else self._layout.down(position + len(block) - self._size + 1)

    def last_end(self, size: int, look_back: int) -> int | None:
        """Returns the end of the last delimiter in the first `size` bytes; None if the last `look_back` of them have none. May raise."""
        least, end = max(0, size - look_back), size
        while end > least:
            begin = self._layout.down(max(least, end - BLOCK_BYTES))
            cut = self._layout.rfind(self._read(begin, end - begin), begin)
            if cut >= 0:
                return begin + cut + self._size
            end = begin + self._size - 1 if begin > least else 0
        return None

    def last_possible(self, size: int) -> int:
        """Returns where in the first `size` bytes an incomplete delimiter may begin."""
        return self._layout.down(max(0, size - self._size + 1))

    def is_start(self, position: int) -> bool:
        """Returns whether a line begins at byte `position`, judging by the bytes before it. Raises what `read` raises."""
        before = position - self._size
        if position <= len(self._layout.mark):
            return position in {0, len(self._layout.mark)}
        return before >= 0 and self._layout.find(self._read(before, self._size), before) == 0

    def text(self, data: bytes) -> str:
        """Returns a line, or its first bytes, as text; invalid bytes are replaced."""
        return data.decode(self._layout.codec, "replace").removeprefix("\ufeff")

    def _behind_delimiters(self, block: bytes, position: int) -> list[int]:
        found, at = [], self._layout.find(block, position)
        while at >= 0:
            found.append(at + self._size)
            at = self._layout.find(block, position, at + self._size)
        return found


FAR_BYTES = 2**20
"""How far a search goes on for a line with a time: stack traces are shorter."""
_TEXT_BYTES = 16 * 2**10
"""Lines longer than this are cut before their time is looked for."""
_LONG_BYTES = 16 * 2**20
"""How far the end of a line is searched for; a longer line is read instead."""
_ROUNDING_SECONDS = 1e-6
_FIRST_LINES = 60
"""A file with no times in its first lines, as many as this, has none."""
_LITTLE_BYTES = 2 * 2**10
"""The last lines of most files are not longer."""


class DatedLine(NamedTuple):
    """A line that begins at byte `start` and has the time `at`, epoch seconds."""

    start: int
    at: float


class SinceResult(NamedTuple):
    """Where to begin. `line` is the first line at or after the wanted time; None if there is none.

    `position` is its beginning, or another safe beginning: 0 if the lines are not ordered, -1 for "at the end".
    """

    position: int
    line: DatedLine | None


def find(size: int, lines: LineStarts, since: float, changed: float) -> SinceResult | None:
    """Finds where lines at or after `since` begin in the first `size` bytes of a file last `changed` then (both epoch seconds).

    Returns None if its first lines have no times. Raises what reading them raises.
    """
    head = min(size, FAR_BYTES)
    texts = (lines.text(line.data[:_TEXT_BYTES]) for line in islice(lines.lines(0, head), _FIRST_LINES))
    clock = recognise(texts, changed)
    if clock is None:
        return None

    def dated(position: int, end: int) -> Iterator[DatedLine]:
        for line in lines.lines(max(0, position), end):
            at = clock.read(lines.text(line.data[:_TEXT_BYTES]))
            if at is not None:
                yield DatedLine(line.start, at)

    return _Search(lines, dated, size, since - _ROUNDING_SECONDS).run(changed)


class _Search:
    def __init__(self, lines: LineStarts, dated: Callable[[int, int], Iterator[DatedLine]], size: int, since: float) -> None:
        self._lines, self._dated, self._size, self._since = lines, dated, size, since

    def run(self, changed: float) -> SinceResult:
        """Returns where to begin in a file that was last changed at `changed`, epoch seconds."""
        first = next(self._dated(0, min(self._size, FAR_BYTES)), None)
        if first is None or first.at >= self._since:
            return SinceResult(0, first)
        last = self._last()
        if last is not None and last.at < self._since and changed < self._since:
            return SinceResult(-1, None)
        if last is not None and last.at < first.at:
            return SinceResult(0, None)
        return self._bisect(first.start)

    def _last(self) -> DatedLine | None:
        for look_back in (_LITTLE_BYTES, BLOCK_BYTES, FAR_BYTES):
            last = None
            for last in self._dated(self._size - look_back, self._size):  # noqa: B007 - the last one is wanted
                pass
            if last is not None:
                return last
        return None

    def _bisect(self, older: int) -> SinceResult:
        """Bisects from `older`, the start of a line that is too old. Lines after `top` are known; `found` is their first young one."""
        top, found, is_known = self._size, None, True
        while top - older > BLOCK_BYTES:
            middle = (older + top) // 2
            block = self._look(middle, top)
            if block is None:  # their age is not known, so they may be wanted
                top, found, is_known = middle, None, False
                continue
            young = next((index for index, line in enumerate(block) if line.at >= self._since), len(block))
            if young < len(block):
                found, is_known, top = block[young], True, block[young].start if young else middle
            elif not block:
                top = middle
            if young:
                older = block[young - 1].start
        for line in self._dated(older, top):
            if line.at >= self._since:
                return self._earlier(line)
            older = line.start
        if not is_known:
            return SinceResult(self._behind(older), None)
        return self._earlier(found)

    def _behind(self, older: int) -> int:
        """Returns the end of the line that begins at `older`, -1 if it is the last one; its beginning if it is extremely long."""
        end = min(self._size, older + _LONG_BYTES)
        found = next((line.start for line in self._lines.lines(older + 1, end)), None)
        if found is None:
            return -1 if end == self._size else older
        return found

    def _look(self, position: int, top: int) -> list[DatedLine] | None:
        """Returns the dated lines of the next block with any; empty if none begins before `top`, None if that is not known."""
        for begin in range(position, min(top, position + FAR_BYTES), BLOCK_BYTES):
            found = list(self._dated(begin, min(top, begin + BLOCK_BYTES)))
            if found:
                return found
        return [] if top <= position + FAR_BYTES else None

    def _earlier(self, found: DatedLine | None) -> SinceResult:
        """Searches backwards for a young line: programs with several threads write lines a little out of order."""
        position = found.start if found else self._size
        for _ in range(FAR_BYTES // BLOCK_BYTES):
            before = next((line for line in self._dated(position - BLOCK_BYTES, position) if line.at >= self._since), None)
            if before is None:
                break
            found, position = before, before.start
        return SinceResult(position if found else -1, found)
