"""Where the lines of a file begin, and which is the first that was written at a given time or later.

The search bisects byte positions without reading the whole file. A look takes in all lines of a block, and the search goes on behind
it only when all of them are older than wanted: a few lines out of order do no harm, and where the search errs it begins too early.
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


FAR_BYTES = 2**20
"""So far a look goes on for a line that says when it was written: stack traces are shorter."""
_TEXT_BYTES = 16 * 2**10
"""A JSON object longer than this is not looked into."""
_LONG_BYTES = 16 * 2**20
"""The end of a line is looked for no further: rather it is read."""
_ROUNDING_SECONDS = 1e-6
_FIRST_LINES = 60
"""A file that says nothing about time in so many lines does not say it."""
_LITTLE_BYTES = 2 * 2**10
"""The last lines of most files are no longer."""


class Dated(NamedTuple):
    """A line that begins at byte `start` and says that it was written at `at`, epoch seconds."""

    start: int
    at: float


class Wanted(NamedTuple):
    """Where to begin. `line` is the first that is young enough, None when none is.

    `position` is its beginning, or where else it is safe to begin: 0 where the lines are in no order, -1 for "at the end".
    """

    position: int
    line: Dated | None


def find(size: int, lines: LineStarts, since: float, changed: float) -> Wanted | None:
    """Where lines at or after `since` begin in the first `size` bytes of a file that was `changed` last then (both epoch seconds).

    None when its first lines do not say when they were written. Raises what reading them raises.
    """
    head = min(size, FAR_BYTES)
    texts = (lines.text(line.data[:_TEXT_BYTES]) for line in islice(lines.lines(0, head), _FIRST_LINES))
    clock = recognise(texts, changed)
    if clock is None:
        return None

    def dated(position: int, end: int) -> Iterator[Dated]:
        for line in lines.lines(max(0, position), end):
            at = clock.read(lines.text(line.data[:_TEXT_BYTES]))
            if at is not None:
                yield Dated(line.start, at)

    return _Search(lines, dated, size, since - _ROUNDING_SECONDS).run(changed)


class _Search:
    def __init__(self, lines: LineStarts, dated: Callable[[int, int], Iterator[Dated]], size: int, since: float) -> None:
        self._lines, self._dated, self._size, self._since = lines, dated, size, since

    def run(self, changed: float) -> Wanted:
        """Returns where to begin in a file that was `changed` last then, epoch seconds."""
        first = next(self._dated(0, min(self._size, FAR_BYTES)), None)
        if first is None or first.at >= self._since:
            return Wanted(0, first)
        last = self._last()
        if last is not None and last.at < self._since and changed < self._since:
            return Wanted(-1, None)
        if last is not None and last.at < first.at:
            return Wanted(0, None)
        return self._bisect(first.start)

    def _last(self) -> Dated | None:
        for look_back in (_LITTLE_BYTES, BLOCK_BYTES, FAR_BYTES):
            last = None
            for last in self._dated(self._size - look_back, self._size):  # noqa: B007 - the last one is wanted
                pass
            if last is not None:
                return last
        return None

    def _bisect(self, older: int) -> Wanted:
        """`older`: a line that begins here is too old. Beyond `top` every line is known, the first young one among them is `found`."""
        top, found, is_known = self._size, None, True
        while top - older > BLOCK_BYTES:
            middle = (older + top) // 2
            block = self._look(middle, top)
            if block is None:  # nobody knows how old they are, so they may be wanted
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
            return Wanted(self._behind(older), None)
        return self._earlier(found)

    def _behind(self, older: int) -> int:
        """Where the line ends that begins at `older`, -1 when it is the last one. Of one that does not end for long, its beginning."""
        end = min(self._size, older + _LONG_BYTES)
        found = next((line.start for line in self._lines.lines(older + 1, end)), None)
        if found is None:
            return -1 if end == self._size else older
        return found

    def _look(self, position: int, top: int) -> list[Dated] | None:
        """The dated lines of the first block from `position` on that has any; empty when none begins before `top`, None when they may."""
        for begin in range(position, min(top, position + FAR_BYTES), BLOCK_BYTES):
            found = list(self._dated(begin, min(top, begin + BLOCK_BYTES)))
            if found:
                return found
        return [] if top <= position + FAR_BYTES else None

    def _earlier(self, found: Dated | None) -> Wanted:
        """Programs with several threads write lines a little out of order: a young one may stand before the first that was found."""
        position = found.start if found else self._size
        for _ in range(FAR_BYTES // BLOCK_BYTES):
            before = next((line for line in self._dated(position - BLOCK_BYTES, position) if line.at >= self._since), None)
            if before is None:
                break
            found, position = before, before.start
        return Wanted(position if found else -1, found)
