"""One pass over a stretch of one file: its lines, those that are too long, and what is no line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from copycat_agent.formats.encoding import CHARACTER_BYTES, MARK_BYTES, Layout
from copycat_agent.formats.holes import INNER_HOLE_BYTES, OPEN_BYTES, Holes
from copycat_agent.formats.model import TAIL_BYTES, Chunk, Cut, Frame, Gap, LongLine, Part, Reader, SkippedRest, Text, part_bytes

_GAP_BYTES = 16 * 2**20
"""Of a hole, passed at a time."""
_BEHIND_GAP_BYTES = 4096
"""Read behind a hole at first: where there is one there may be many, and each begins a new read."""


class FrameLimits(NamedTuple):
    """What a line may be, and how much is read at a time, in bytes. `splits`: a longer line goes in parts."""

    max_bytes: int
    block_bytes: int
    skip_empty: bool
    splits: bool = False


class Framing:
    """Used once. Reads blocks; of a line that goes on behind its block, whatever makes it whole or too long."""

    def __init__(self, layout: Layout, limits: FrameLimits, read: Reader, end: int, *, final: bool, little: int | None) -> None:
        """`little`: bytes to read at a time, a longer line comes alone; None for the usual `block_bytes`."""
        self._layout = layout
        self._max_bytes = limits.max_bytes
        self._skip_empty = limits.skip_empty
        self._splits = limits.splits
        self._part_bytes = part_bytes(limits.max_bytes)
        self._read = read
        self._end = end
        self._final = final
        self._little = little is not None
        self._size = self._usual = max(little or limits.block_bytes, len(layout.delimiter))
        self._skip_bytes = max(limits.block_bytes, 2 * INNER_HOLE_BYTES, 2 * len(layout.delimiter))
        self._holes = Holes(layout, read)
        self._limit = limits.max_bytes + len(layout.delimiter) + len(layout.text.cr)
        self._longest = self._limit + CHARACTER_BYTES + layout.unit + (INNER_HOLE_BYTES if self._holes.exist else 0)
        self._overlap = len(layout.delimiter) - 1  # bytes at the end of a block that may begin a delimiter

    def frames(self, start: int, *, skipping: bool, cut: Cut | None = None) -> Iterator[Frame]:
        """See `Frames.frames`."""
        position = start
        while position < self._end:
            if skipping:
                rest = self._skip(position)
                if rest.end > position:
                    yield rest
                if not rest.complete:
                    return
                position, skipping = rest.end, False
                continue
            begun = position
            for frame in self._next(position) if cut is None else self._parts(position, cut):
                yield frame
                position = frame.end
                skipping = isinstance(frame, LongLine) and not frame.complete
                cut = frame.cut if isinstance(frame, Part) else None
            if position == begun:
                return

    def _next(self, position: int) -> Iterator[Frame]:
        """What one read yields: nothing when it holds no complete line."""
        mark = self._layout.mark
        if mark and not position and not self._layout.is_raw:
            yield from self._marked(mark)
            return
        block, hole, raw = self._lines_at(position)
        size = len(block) if hole is None else hole
        rest = raw.pop()
        if raw:
            yield from self._lines(block, raw, position, size - len(rest))
        elif hole is not None:
            yield from self._up_to_hole(block[:hole], position)
        elif (passed := self._passable(block, position)) + self._overlap >= self._limit:
            yield from self._long(block, position, position + passed, block[:passed][-TAIL_BYTES:], complete=False)
        elif self._final and block and position + len(block) >= self._end:
            yield from self._partial(block, position)

    def _marked(self, mark: bytes) -> Iterator[Gap]:
        """The byte order mark, once it is certain which one it is."""
        if len(mark) <= self._end and (self._final or len(self._read(0, MARK_BYTES)) == MARK_BYTES):
            yield Gap(0, len(mark), mark, "bom")

    def _lines_at(self, position: int) -> tuple[bytes, int | None, list[bytes]]:
        """A block, where the first hole in it begins, and its pieces up to there."""
        size = self._size
        self._size = min(2 * size, self._usual)
        wanted = min(max(size, self._longest), self._end - position)
        first = min(wanted, size)
        block = self._read(position, first)
        hole = self._holes.first(block, position)
        raw = self._layout.split(block if hole is None else block[:hole], position)
        if hole is None and len(raw) == 1 and len(block) == first < wanted:
            block = self._read(position, wanted)
            hole = self._holes.first(block, position)
            raw = self._layout.split(block if hole is None else block[:hole], position, 1 if self._little else -1)
        return block, hole, raw

    def _up_to_hole(self, line: bytes, position: int) -> Iterator[Chunk | LongLine | Part | Gap]:
        """What a hole ends, or where nothing is before it, the hole."""
        if not line:
            yield from self._gap(position)
        elif self._holes.is_certain(position + len(line), final=self._final):
            yield from self._partial(line, position)
        elif len(line) + self._overlap >= self._limit:
            yield from self._long(line, position, position + len(line), line[-TAIL_BYTES:], complete=False)

    def _gap(self, position: int) -> Iterator[Gap]:
        """The hole at `position`, in pieces; nothing as long as it waits."""
        self._size = min(_BEHIND_GAP_BYTES, self._usual)
        while True:
            end, what = self._holes.run(position, min(_GAP_BYTES, self._end - position))
            is_cut = what == "more" and end < self._end
            if not (what == "text" or end - position >= OPEN_BYTES or self._holes.is_certain(position, final=self._final)):
                return
            if not (self._final and end >= self._end):
                end = self._layout.down(end)
            if end > position:
                yield Gap(position, end, bytes(min(TAIL_BYTES, end - position)), "hole")
            if not is_cut:
                return
            position = end

    def _lines(self, block: bytes, raw: list[bytes], position: int, size: int) -> Iterator[Chunk | LongLine | Part]:
        """The lines of `block`, which fill its first `size` bytes, cut where one is too long."""
        if size <= self._max_bytes or len(max(raw, key=len)) <= self._max_bytes:
            yield self._chunk(block, raw, position, 0, size)
            return
        begin = place = first = 0
        for index, line in enumerate(raw):
            after = place + len(line) + len(self._layout.delimiter)
            if self._too_long(line):
                if index > first:
                    yield self._chunk(block, raw[first:index], position, begin, place)
                tail = block[max(place, after - TAIL_BYTES) : after]
                yield from self._long(line, position + place, position + after, tail, complete=True)
                begin, first = after, index + 1
            place = after
        if first < len(raw):
            yield self._chunk(block, raw[first:], position, begin, place)

    def _chunk(self, block: bytes, raw: list[bytes], position: int, begin: int, end: int) -> Chunk:
        """The lines `raw`, which are bytes `begin` to `end` of `block`."""
        tail = block[max(begin, end - TAIL_BYTES) : end]
        text = self._layout.text
        is_text = not text.codec or (self._layout.extends_ascii and block.isascii())
        is_plain = is_text and not self._skip_empty and (not text.cr or text.cr not in block)
        values = raw if is_plain else text.values(raw, skip_empty=self._skip_empty)
        return Chunk(raw, values, position + begin, position + end, self._layout.delimiter, text, self._skip_empty, tail)

    def _too_long(self, line: bytes) -> bool:
        size, cr = len(line), self._layout.text.cr
        return size > self._max_bytes + len(cr) or (size > self._max_bytes and not (cr and line.endswith(cr)))

    def _long(self, line: bytes, start: int, end: int, tail: bytes, *, complete: bool) -> Iterator[LongLine | Part]:
        """A line over the limit: its beginning alone, or in parts, all of them when it is `complete`."""
        if not self._splits:
            head, value = self._layout.head(line, self._max_bytes)
            yield LongLine(head, start, end, complete, tail, None if value is head else value)
        elif complete:
            yield from self._pieces(line, start, end, None)
        else:
            yield from self._parts(start, None)

    def _parts(self, position: int, cut: Cut | None) -> Iterator[Part]:
        """Parts of a line over the limit from `position` on, as many as one read shows; nothing where its end has to come first."""
        block = self._read(position, min(max(self._usual, self._longest), self._end - position))
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
            yield from self._pieces(block[: self._passable(block, position)], position, None, cut)

    def _pieces(self, text: bytes, start: int, end: int | None, cut: Cut | None, *, partial: bool = False) -> Iterator[Part]:
        """`text`, which stands at byte `start`, cut to the limit.

        The line ends with it, and its delimiter at byte `end`; it may go on for `end` None. `partial`: no delimiter ends it.
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

    def _part(self, raw: bytes, start: int, end: int, cut: Cut | None, delimiter: bytes, *, partial: bool) -> Part:
        text, first = self._layout.text, (cut.start, cut.end) if cut else (start, end)
        number = cut.parts + 1 if cut else 1
        value = text.value(raw) if delimiter else text.decoded(raw)
        tail = (raw[-TAIL_BYTES:] + delimiter)[-TAIL_BYTES:]
        return Part(raw, value, start, end, number, first, text.codec, Cut(number, *first), tail, partial)

    def _partial(self, block: bytes, position: int) -> Iterator[Chunk | LongLine | Part]:
        """A line that nothing ends: nobody will finish it, or a hole follows."""
        tail, end = block[-TAIL_BYTES:], position + len(block)
        if self._too_long(block):
            if self._splits:
                yield from self._pieces(block, position, end, None, partial=True)
            else:
                yield from self._long(block, position, end, tail, complete=True)
            return
        text = Text(codec=self._layout.text.codec)
        raw = [block]
        values = raw if not text.codec else text.values(raw, skip_empty=False)
        yield Chunk(raw, values, position, end, b"", text, False, tail, partial=True)

    def _passable(self, block: bytes, position: int) -> int:
        """How many bytes of a block without delimiters and holes can be no part of one that goes on behind it."""
        whole = self._layout.down(position + max(0, len(block) - self._overlap)) - position
        return self._holes.sure(block[:whole], position)

    def _skip(self, start: int) -> SkippedRest:
        """Pass what is left of an over-long line, in bounded steps.

        What may be half a delimiter, or the beginning of a hole, is left, unless nobody adds to it.
        """
        if self._holes.is_behind(start, TAIL_BYTES):  # no line is passed up to the middle, or the end, of a run: see `_passable`
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
                passed = self._passable(block, position)
            if passed <= 0:
                break
            tail = (tail + block[:passed])[-TAIL_BYTES:]
            position += passed
        return SkippedRest(start, position, False, tail)
