"""Lines: where they begin and end, on bytes, in bounded memory whatever the input.

Every step reads from the start of a line, so there is no state between steps but the position, and "inside an over-long line".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from copycat_agent.formats.model import TAIL_BYTES, Chunk, Frame, LongLine, Reader, SkippedRest
from copycat_agent.options import ByteSize, Field, Options

BLOCK_BYTES = 2**20
"""Bytes per read: larger ones gained nothing, smaller ones cost calls."""


class LineOptions(Options):
    """What a line is."""

    delimiter: str = Field(
        "\n", min_length=1, max_length=64, description='What ends a line. With the default "\\n" a CR before it belongs to it.'
    )
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Longest line, delimiter not counted.")
    on_too_long: Literal["dlq", "truncate", "drop"] = Field(
        "dlq",
        description="dlq: a bad record, as `errors` says, its first max_bytes as raw bytes. truncate: sent cut, with the header "
        "copycat.truncated. drop: counted and passed.",
    )
    skip_empty: bool = Field(False, description="true passes empty lines over.")


class LineFrames:
    """Frames lines of one file. Stateless: one object serves any number of files and threads."""

    def __init__(self, options: LineOptions, block_bytes: int = BLOCK_BYTES) -> None:
        self.on_too_long = options.on_too_long
        self._delimiter = options.delimiter.encode()
        self._max_bytes = options.max_bytes
        self._skip_empty = options.skip_empty
        self._strip_cr = options.delimiter == "\n"
        self._limit = self._max_bytes + len(self._delimiter) + (1 if self._strip_cr else 0)
        self._overlap = len(self._delimiter) - 1  # bytes at the end of a block that may begin a delimiter
        self._block_bytes = max(block_bytes, len(self._delimiter))

    def frames(
        self,
        read: Reader,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = False,
        flush: bool = False,
        block_bytes: int | None = None,
    ) -> Iterator[Frame]:
        """See `Frames.frames`. Every line is complete by itself, so `flush` changes nothing."""
        del flush
        block_bytes = None if block_bytes is None else max(block_bytes, len(self._delimiter))
        position = start
        while position < end:
            if skipping:
                rest = self._skip(read, position, end, final=final)
                if rest.end > position:
                    yield rest
                if not rest.complete:
                    return
                position, skipping = rest.end, False
                continue
            begun = position
            for frame in self._next(read, position, end, block_bytes, final=final):
                yield frame
                position = frame.end
                skipping = isinstance(frame, LongLine) and not frame.complete
            if position == begun:
                return

    def _next(self, read: Reader, position: int, end: int, little: int | None, *, final: bool) -> Iterator[Chunk | LongLine]:
        """What one read yields: nothing when it holds no complete line. `little`: bytes to read, None for the usual block."""
        size = little or self._block_bytes
        wanted = min(max(size, self._limit), end - position)
        first = min(wanted, size)
        block = read(position, first)
        raw = block.split(self._delimiter)
        if len(raw) == 1 and len(block) == first < wanted:
            block = read(position, wanted)
            raw = block.split(self._delimiter, 1 if little else -1)
        rest = raw.pop()
        if raw:
            yield from self._lines(block, raw, position, len(block) - len(rest))
        elif len(block) >= self._limit:
            passed = len(block) - self._overlap
            yield LongLine(block[: self._max_bytes], position, position + passed, False, block[:passed][-TAIL_BYTES:])
        elif final and block and position + len(block) >= end:
            yield self._partial(block, position)

    def _lines(self, block: bytes, raw: list[bytes], position: int, size: int) -> Iterator[Chunk | LongLine]:
        """The lines of `block`, which fill its first `size` bytes, cut where one is too long."""
        if size <= self._max_bytes or len(max(raw, key=len)) <= self._max_bytes:
            yield self._chunk(block, raw, position, 0, size)
            return
        begin = place = first = 0
        for index, line in enumerate(raw):
            after = place + len(line) + len(self._delimiter)
            if self._too_long(line):
                if index > first:
                    yield self._chunk(block, raw[first:index], position, begin, place)
                tail = block[max(place, after - TAIL_BYTES) : after]
                yield LongLine(line[: self._max_bytes], position + place, position + after, True, tail)
                begin, first = after, index + 1
            place = after
        if first < len(raw):
            yield self._chunk(block, raw[first:], position, begin, place)

    def _chunk(self, block: bytes, raw: list[bytes], position: int, begin: int, end: int) -> Chunk:
        """The lines `raw`, which are bytes `begin` to `end` of `block`."""
        tail = block[max(begin, end - TAIL_BYTES) : end]
        values = self._values(raw, block)
        return Chunk(raw, values, position + begin, position + end, self._delimiter, self._strip_cr, self._skip_empty, tail)

    def _too_long(self, line: bytes) -> bool:
        size = len(line)
        return size > self._max_bytes + 1 or (size > self._max_bytes and not (self._strip_cr and line.endswith(b"\r")))

    def _values(self, raw: list[bytes], block: bytes) -> list[bytes]:
        values = raw
        if self._strip_cr and b"\r" in block:
            values = [line[:-1] if line.endswith(b"\r") else line for line in raw]
        if self._skip_empty:
            values = [line for line in values if line]
        return values

    def _partial(self, block: bytes, position: int) -> Chunk | LongLine:
        if self._too_long(block):
            return LongLine(block[: self._max_bytes], position, position + len(block), True, block[-TAIL_BYTES:])
        return Chunk([block], [block], position, position + len(block), b"", False, False, block[-TAIL_BYTES:], partial=True)

    def _skip(self, read: Reader, start: int, end: int, *, final: bool) -> SkippedRest:
        """Pass what is left of an over-long line, in bounded steps. What may be half a delimiter is left, unless nobody adds to it."""
        position, tail = start, b""
        while position < end:
            block = read(position, min(self._block_bytes, end - position))
            cut = block.find(self._delimiter)
            if cut >= 0:
                size = cut + len(self._delimiter)
                return SkippedRest(start, position + size, True, (tail + block[:size])[-TAIL_BYTES:])
            is_last = final and position + len(block) >= end
            passed = len(block) - (0 if is_last else self._overlap)
            if passed <= 0:
                break
            tail = (tail + block[:passed])[-TAIL_BYTES:]
            position += passed
        return SkippedRest(start, position, False, tail)
