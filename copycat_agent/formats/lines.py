"""Finds lines, on bytes, in bounded memory whatever the input.

Every step reads from the start of a line, so the only state between steps is the position, and "inside an over-long line".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, Unpack

from copycat_agent.formats.draft import Chunk
from copycat_agent.formats.holes import HOLE_BYTES, INNER_HOLE_BYTES, OPEN_BYTES, Holes
from copycat_agent.formats.model import Frame, FrameOptions, Gap, LongLine, OnTooLong, RecordCut, RecordPart
from copycat_agent.formats.over_limit import FrameLimits, LongLines
from copycat_agent.formats.text import CHARACTER_BYTES, MARK_BYTES, TAIL_BYTES, Encoding, Layout, Reader, Text
from copycat_agent.options import ByteSize, Duration, Field, Options

BLOCK_BYTES = 2**20
"""Bytes per read: larger ones gained nothing, smaller ones cost calls."""
_GAP_BYTES = 16 * 2**20
"""Bytes of a hole that are skipped at a time."""
_BEHIND_GAP_BYTES = 4096
"""Bytes that are read first after a hole: there may be many holes, and each begins a new read."""


class TextLineOptions(Options):
    """Options of a line in a file that is complete."""

    delimiter: str = Field(
        "\n",
        min_length=1,
        max_length=64,
        description='What ends a line, in the encoding of the file. With the default "\\n" a CR before it belongs to it.',
    )
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Longest line as it stands in the file, delimiter not counted.")
    on_too_long: OnTooLong = Field(
        "dlq",
        description="dlq: a bad record, as `errors` says, its first max_bytes as raw bytes. truncate: sent cut at the end of a character, "
        "with the header copycat.truncated. split: all of it is sent, in numbered parts, with the headers copycat.part. drop: counted and "
        "passed. With `multiline`, what is written there goes first.",
    )
    skip_empty: bool = Field(False, description="true skips empty lines.")


class LineOptions(TextLineOptions):
    """Options of a line in a file that grows."""

    flush_partial_after: Literal["never"] | Duration = Field(
        "never",
        description="A last line without its delimiter is sent once the file has been quiet for so long; what is written behind it later "
        "is another record. never: it waits, however long.",
    )


class LineFrames:
    """Frames lines of files in one encoding. Stateless: one object serves any number of files and threads."""

    def __init__(self, options: TextLineOptions, block_bytes: int = BLOCK_BYTES, *, encoding: str = "utf-8", raw: bool = False) -> None:
        """`raw`: values are the file's bytes, including its byte order mark; else they are UTF-8.

        Raises ValueError for an unknown encoding, UnicodeError for one without the delimiter: see `encoding_problem`.
        """
        self.on_too_long = options.on_too_long
        self._encoding = Encoding(encoding, options.delimiter, is_raw=raw)
        self._limits = FrameLimits(options.max_bytes, block_bytes, options.skip_empty, self.on_too_long == "split")

    def frames(self, read: Reader, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        """Finds lines, as `Frames.frames` says. Every line is complete by itself, so `flush` changes nothing."""
        layout = (self._encoding.behind_start if start else None) or self._encoding.of(read, start)
        framing = Framing(layout, self._limits, read, end, final=how.get("final", False), little=how.get("block_bytes"))
        held = RecordCut.parse(how.get("cut", ""), start) if self._limits.splits else None
        frames = framing.frames(start, skipping=how.get("skipping", False) and held is None, cut=held)
        footer = how.get("footer", 0)
        return without_footer(frames, footer, final=how.get("final", False)) if footer else frames

    def layout(self, read: Reader, position: int) -> Layout:
        """Returns the layout of a file that is read from byte `position`."""
        return self._encoding.of(read, position)

    def is_line_start(self, read: Reader, position: int) -> bool:
        """Returns whether a record can begin at byte `position`: at the beginning of the file, after a delimiter or after a hole."""
        layout = self._encoding.of(read, 0)
        if position in (0, len(layout.mark)):
            return True
        size = len(layout.delimiter)
        if position % layout.unit:
            return False
        return (position >= size and read(position - size, size) == layout.delimiter) or Holes(layout, read).is_behind(position)


def without_footer(frames: Iterator[Frame], lines: int, *, final: bool) -> Iterator[Frame]:
    """Yields the frames without the last `lines` lines: those become gaps if the file is `final`, else they wait for what follows.

    A line over the limit is not part of a footer, nor is anything before it: so what waits is bounded.
    """
    held: deque[Chunk | Gap] = deque()
    waiting = 0
    for frame in frames:
        if not isinstance(frame, Chunk | Gap):
            yield from held
            held.clear()
            waiting = 0
            yield frame
            continue
        held.append(frame)
        waiting += frame.total if isinstance(frame, Chunk) else 0
        while held and waiting > lines:
            first = held.popleft()
            if isinstance(first, Chunk):
                if first.total > waiting - lines:
                    first, kept = first.cut(waiting - lines)
                    held.appendleft(kept)
                waiting -= first.total
            yield first
    if final:
        yield from (Gap(one.start, one.end, one.tail, "header") if isinstance(one, Chunk) else one for one in held)


class Framing:
    """One pass over a range of one file. Reads blocks; for a line longer than its block it reads on until it is whole or too long."""

    def __init__(self, layout: Layout, limits: FrameLimits, read: Reader, end: int, *, final: bool, little: int | None) -> None:
        """`little`: bytes to read at a time, a longer line comes alone; None for the usual `block_bytes`."""
        self._layout = layout
        self._max_bytes = limits.max_bytes
        self._skip_empty = limits.skip_empty
        self._limits = limits
        self._read = read
        self._end = end
        self._final = final
        self._little = little is not None
        self._size = self._usual = max(little or limits.block_bytes, len(layout.delimiter))
        self._limit = limits.max_bytes + len(layout.delimiter) + len(layout.text.cr)
        self._longest = self._limit + CHARACTER_BYTES + layout.unit + (INNER_HOLE_BYTES if layout.may_have_holes else 0)
        self._overlap = len(layout.delimiter) - 1  # bytes at the end of a block that may begin a delimiter

    def frames(self, start: int, *, skipping: bool, cut: RecordCut | None = None) -> Iterator[Frame]:
        """Yields the frames from byte `start` on; `skipping` and `cut` are as in `Frames.frames`."""
        position = start
        while position < self._end:
            if skipping:
                rest = self._long_lines.skip(position)
                if rest.end > position:
                    yield rest
                if not rest.complete:
                    return
                position, skipping = rest.end, False
                continue
            begun = position
            for frame in self._next(position) if cut is None else self._long_lines.parts(position, cut):
                yield frame
                position = frame.end
                skipping = isinstance(frame, LongLine) and not frame.complete
                cut = frame.cut if isinstance(frame, RecordPart) else None
            if position == begun:
                return

    def _next(self, position: int) -> Iterator[Frame]:
        """Yields the frames of one read: none if it holds no complete line."""
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
        elif (passed := self._holes.passable(block, position)) + self._overlap >= self._limit:
            yield from self._long_lines.frames(block, position, position + passed, block[:passed][-TAIL_BYTES:], complete=False)
        elif self._final and block and position + len(block) >= self._end:
            yield from self._partial(block, position)

    def _marked(self, mark: bytes) -> Iterator[Gap]:
        """Yields the byte order mark, once it is certain which one it is."""
        if len(mark) <= self._end and (self._final or len(self._read(0, MARK_BYTES)) == MARK_BYTES):
            yield Gap(0, len(mark), mark, "bom")

    def _lines_at(self, position: int) -> tuple[bytes, int | None, list[bytes]]:
        """Returns a block, where the first hole in it begins, and its pieces up to there."""
        size = self._size
        self._size = min(2 * size, self._usual)
        wanted = min(max(size, self._longest), self._end - position)
        first = min(wanted, size)
        block = self._read(position, first)
        hole = self._first_hole(block, position)
        raw = self._layout.split(block if hole is None else block[:hole], position)
        if hole is None and len(raw) == 1 and len(block) == first < wanted:
            block = self._read(position, wanted)
            hole = self._first_hole(block, position)
            raw = self._layout.split(block if hole is None else block[:hole], position, 1 if self._little else -1)
        return block, hole, raw

    def _first_hole(self, block: bytes, position: int) -> int | None:
        """Returns where the first hole in `block` begins, None without one."""
        if not block.startswith(b"\0") and b"\0" not in block[::HOLE_BYTES]:  # a hole elsewhere is at least this long
            return None
        return self._holes.first(block, position)

    @cached_property
    def _holes(self) -> Holes:
        return Holes(self._layout, self._read)

    @cached_property
    def _long_lines(self) -> LongLines:
        most_bytes = max(self._usual, self._longest)
        return LongLines(self._layout, self._limits, self._holes, self._read, self._end, final=self._final, most_bytes=most_bytes)

    def _up_to_hole(self, line: bytes, position: int) -> Iterator[Chunk | LongLine | RecordPart | Gap]:
        """Yields the line that a hole ends, or the hole if nothing comes before it."""
        if not line:
            yield from self._gap(position)
        elif self._holes.is_certain(position + len(line), final=self._final):
            yield from self._partial(line, position)
        elif len(line) + self._overlap >= self._limit:
            yield from self._long_lines.frames(line, position, position + len(line), line[-TAIL_BYTES:], complete=False)

    def _gap(self, position: int) -> Iterator[Gap]:
        """Yields the hole at `position`, in pieces; nothing as long as it waits."""
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

    def _lines(self, block: bytes, raw: list[bytes], position: int, size: int) -> Iterator[Chunk | LongLine | RecordPart]:
        """Yields the lines of `block`, which fill its first `size` bytes, cut where one is too long."""
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
                yield from self._long_lines.frames(line, position + place, position + after, tail, complete=True)
                begin, first = after, index + 1
            place = after
        if first < len(raw):
            yield self._chunk(block, raw[first:], position, begin, place)

    def _chunk(self, block: bytes, raw: list[bytes], position: int, begin: int, end: int) -> Chunk:
        """Returns the lines `raw`, which are bytes `begin` to `end` of `block`."""
        tail = block[max(begin, end - TAIL_BYTES) : end]
        text = self._layout.text
        is_text = not text.codec or (self._layout.extends_ascii and block.isascii())
        is_plain = is_text and not self._skip_empty and (not text.cr or text.cr not in block)
        values = raw if is_plain else text.values(raw, skip_empty=self._skip_empty)
        return Chunk(raw, values, position + begin, position + end, self._layout.delimiter, text, self._skip_empty, tail)

    def _too_long(self, line: bytes) -> bool:
        size, cr = len(line), self._layout.text.cr
        return size > self._max_bytes + len(cr) or (size > self._max_bytes and not (cr and line.endswith(cr)))

    def _partial(self, block: bytes, position: int) -> Iterator[Chunk | LongLine | RecordPart]:
        """Yields a line without a delimiter: nobody will finish it, or a hole follows."""
        tail, end = block[-TAIL_BYTES:], position + len(block)
        if self._too_long(block):
            yield from self._long_lines.unfinished(block, position, tail)
            return
        text = Text(codec=self._layout.text.codec)
        raw = [block]
        values = raw if not text.codec else text.values(raw, skip_empty=False)
        yield Chunk(raw, values, position, end, b"", text, False, tail, partial=True)
