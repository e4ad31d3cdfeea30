"""Records over the limit: of a line only its beginning is sent, or all of it in parts; a group of lines is sent in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from copycat_agent.formats.grouping import GroupState
from copycat_agent.formats.holes import INNER_HOLE_BYTES, Holes
from copycat_agent.formats.model import LongLine, RecordCut, RecordPart, SkippedRest, part_bytes
from copycat_agent.formats.text import CHARACTER_BYTES, TAIL_BYTES, Layout, Reader


class FrameLimits(NamedTuple):
    """How long a line may be, and how much is read at a time, in bytes. `splits`: a longer line is sent in parts."""

    max_bytes: int
    block_bytes: int
    skip_empty: bool
    splits: bool = False


class LongLines:
    """Frames the lines over the limit in a range of one file that ends at byte `end`. `final`: nothing will be added to it."""

    def __init__(self, layout: Layout, limits: FrameLimits, holes: Holes, read: Reader, end: int, *, final: bool, most_bytes: int) -> None:
        """`most_bytes` is the most to read at a time."""
        self._layout = layout
        self._max_bytes = limits.max_bytes
        self._splits = limits.splits
        self._part_bytes = part_bytes(limits.max_bytes)
        self._holes = holes
        self._read = read
        self._end = end
        self._final = final
        self._most_bytes = most_bytes
        self._skip_bytes = max(limits.block_bytes, 2 * INNER_HOLE_BYTES, 2 * len(layout.delimiter))

    def frames(self, line: bytes, start: int, end: int, tail: bytes, *, complete: bool) -> Iterator[LongLine | RecordPart]:
        """Frames a line over the limit: its beginning alone, or its parts, all of them when it is `complete`."""
        if not self._splits:
            head, value = self._layout.head(line, self._max_bytes)
            yield LongLine(head, start, end, complete, tail, None if value is head else value)
        elif complete:
            yield from self._pieces(line, start, end, None)
        else:
            yield from self.parts(start, None)

    def unfinished(self, line: bytes, start: int, tail: bytes) -> Iterator[LongLine | RecordPart]:
        """Frames a line without a delimiter: it will not be finished, or a hole follows."""
        if self._splits:
            yield from self._pieces(line, start, start + len(line), None, partial=True)
        else:
            yield from self.frames(line, start, start + len(line), tail, complete=True)

    def parts(self, position: int, cut: RecordCut | None) -> Iterator[RecordPart]:
        """Yields parts of a line over the limit from `position` on, as many as one read gives; none if its end has to be known first."""
        block = self._read(position, min(self._most_bytes, self._end - position))
        place, hole = self._layout.find(block, position), self._holes.first_inner(block, position)
        if hole is not None and not 0 <= place < hole:
            if self._holes.is_certain(position + hole, final=self._final):
                yield from self._pieces(block[:hole], position, position + hole, cut, partial=True)
            else:
                yield from self._pieces(block[:hole], position, None, cut)
        elif place >= 0:
            yield from self._pieces(block[:place], position, position + place + len(self._layout.delimiter), cut)
        elif self._final and block and position + len(block) >= self._end:
            yield from self._pieces(block, position, position + len(block), cut, partial=True)
        else:
            yield from self._pieces(block[: self._holes.passable(block, position)], position, None, cut)

    def _pieces(self, text: bytes, start: int, end: int | None, cut: RecordCut | None, *, partial: bool = False) -> Iterator[RecordPart]:
        """Yields `text`, which begins at byte `start`, in parts within the limit.

        The line ends with it, and its delimiter at byte `end`; with `end` None it may continue. `partial`: no delimiter ends it.
        """
        cr, place, size = len(self._layout.text.cr), 0, len(text)
        whole = size - cr * text.endswith(self._layout.text.cr) if end is not None else size - cr - CHARACTER_BYTES
        while whole - place > self._part_bytes:
            after = self._layout.cut(text, place, self._part_bytes)
            if after == size and end is not None:
                break
            part = self._part(text[place:after], start + place, start + after, cut, b"", partial=False)
            cut, place = part.cut, after
            yield part
        if end is not None:
            delimiter = b"" if partial else self._layout.delimiter
            yield self._part(text[place:], start + place, end, cut, delimiter, partial=partial)._replace(cut=None)

    def _part(self, raw: bytes, start: int, end: int, cut: RecordCut | None, delimiter: bytes, *, partial: bool) -> RecordPart:
        text, first = self._layout.text, (cut.start, cut.end) if cut else (start, end)
        number = cut.parts + 1 if cut else 1
        value = text.value(raw) if delimiter else text.decoded(raw)
        tail = (raw[-TAIL_BYTES:] + delimiter)[-TAIL_BYTES:]
        return RecordPart(raw, value, start, end, number, first, text.codec, RecordCut(number, *first), tail, partial)

    def skip(self, start: int) -> SkippedRest:
        """Skips the rest of an over-long line, in bounded steps.

        Leaves bytes that may begin a delimiter or a hole, unless the file is final.
        """
        if self._holes.is_behind(start, TAIL_BYTES):  # no line is skipped up to the middle, or the end, of a run: see `Holes.passable`
            return SkippedRest(start, start, True, b"")
        position, tail, layout = start, b"", self._layout
        while position < self._end:
            block = self._read(position, min(self._skip_bytes, self._end - position))
            cut, hole = layout.find(block, position), self._holes.first_inner(block, position)
            if hole is not None and not 0 <= cut < hole:
                is_over = self._holes.is_certain(position + hole, final=self._final)
                return SkippedRest(start, position + hole, is_over, (tail + block[:hole])[-TAIL_BYTES:])
            if cut >= 0:
                size = cut + len(layout.delimiter)
                return SkippedRest(start, position + size, True, (tail + block[:size])[-TAIL_BYTES:])
            passed = len(block)
            if not (self._final and position + len(block) >= self._end):
                passed = self._holes.passable(block, position)
            if passed <= 0:
                break
            tail = (tail + block[:passed])[-TAIL_BYTES:]
            position += passed
        return SkippedRest(start, position, False, tail)


class GroupParts:
    """The parts of one group of lines over the limits.

    `lines` are those of the part that begins at byte `position`; all parts before it are made.

    A line that is too long by itself comes in pieces. Each piece is the last of its part: the next piece, or line, begins another.
    """

    def __init__(self, layout: Layout, max_lines: int, max_bytes: int, position: int, cut: RecordCut | None) -> None:
        """`cut` describes the part before `position`; None at the beginning of the group."""
        self._layout = layout
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._cut = cut
        self._size = -len(layout.delimiter)
        self.position = position
        self.lines: list[bytes] = []

    def takes(self, line: bytes) -> bool:
        """Returns whether the part has room for this line. It always has room for the first one."""
        size, cr = self._size + len(self._layout.delimiter) + len(line), self._layout.text.cr
        fits = size <= self._max_bytes or size - len(cr) * line.endswith(cr) <= self._max_bytes
        return not self.lines or (fits and len(self.lines) < self._max_lines)

    def add(self, line: bytes) -> None:
        """Adds a line, or a piece of one, to the part."""
        self.lines.append(line)
        self._size += len(self._layout.delimiter) + len(line)

    def full(self, state: GroupState, *, in_line: bool = False) -> RecordPart:
        """Returns the part: more of the group follows. `state`: the rule's state after its last line. `in_line`: it ends within that."""
        delimiter = b"" if in_line else self._layout.delimiter
        raw = self._layout.delimiter.join(self.lines) + delimiter
        part = self._part(raw, self._layout.text.decoded(raw), self.position + len(raw), raw[-TAIL_BYTES:], partial=False)
        cut = self._cut = RecordCut(part.number, *part.first, in_line, state.table, state.stream, state.unfinished)
        self.position, self.lines, self._size = part.end, [], -len(self._layout.delimiter)
        return part._replace(cut=cut)

    def last(self, *, partial: bool) -> RecordPart:
        """Returns the last part of the group. `partial`: no delimiter ends its last line."""
        raw, text = self._layout.delimiter.join(self.lines), self._layout.text
        delimiter = b"" if partial else self._layout.delimiter
        value = text.decoded(raw) if partial else text.value(raw)
        tail = (raw[-TAIL_BYTES:] + delimiter)[-TAIL_BYTES:]
        return self._part(raw, value, self.position + len(raw) + len(delimiter), tail, partial=partial)

    def _part(self, raw: bytes, value: bytes, end: int, tail: bytes, *, partial: bool) -> RecordPart:
        cut = self._cut
        first, number = ((cut.start, cut.end), cut.parts + 1) if cut else ((self.position, end), 1)
        return RecordPart(raw, value, self.position, end, number, first, self._layout.text.codec, None, tail, partial)
