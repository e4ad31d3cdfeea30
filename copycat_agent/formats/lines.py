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

    def __init__(self, options: LineOptions) -> None:
        self.on_too_long = options.on_too_long
        self._delimiter = options.delimiter.encode()
        self._max_bytes = options.max_bytes
        self._skip_empty = options.skip_empty
        self._strip_cr = options.delimiter == "\n"
        self._limit = self._max_bytes + len(self._delimiter) + (1 if self._strip_cr else 0)

    def frames(self, read: Reader, start: int, end: int, *, skipping: bool = False, final: bool = False) -> Iterator[Frame]:
        """Frames from byte `start`, none of them reaching beyond byte `end`.

        `skipping`: `start` lies inside an over-long line. `final`: what stands before `end` without a delimiter is a record.
        Ends when no complete line is left. Raises OSError from `read`.
        """
        position = start
        while position < end or skipping:
            frame = self._skip(read, position, end) if skipping else self._next(read, position, end, final=final)
            if frame is None or frame.end == position:
                return
            yield frame
            position = frame.end
            skipping = not isinstance(frame, Chunk) and not frame.complete
            if skipping and isinstance(frame, SkippedRest):
                return

    def _next(self, read: Reader, position: int, end: int, *, final: bool) -> Chunk | LongLine | None:
        wanted = max(BLOCK_BYTES, self._limit)
        first = min(wanted, BLOCK_BYTES, end - position)
        block = read(position, first)
        cut = block.rfind(self._delimiter)
        if cut < 0 and len(block) == first and first < min(wanted, end - position):
            block = read(position, min(wanted, end - position))
            cut = block.rfind(self._delimiter)
        if cut >= 0:
            return self._cut(block, position, cut)
        if len(block) >= self._limit:
            return LongLine(block[: self._max_bytes], position, position + len(block) - self._overlap(), False, self._tail(block))
        if final and block and position + len(block) >= end:
            return self._partial(block, position)
        return None

    def _cut(self, block: bytes, position: int, cut: int) -> Chunk | LongLine:
        """The complete lines of `block`, up to the first that is too long."""
        raw = block[:cut].split(self._delimiter)
        end = position + cut + len(self._delimiter)
        if cut > self._max_bytes:
            index = next((i for i, line in enumerate(raw) if self._too_long(line)), None)
            if index == 0:
                size = len(raw[0]) + len(self._delimiter)
                return LongLine(raw[0][: self._max_bytes], position, position + size, True, block[:size][-TAIL_BYTES:])
            if index is not None:
                raw = raw[:index]
                end = position + sum(map(len, raw)) + len(raw) * len(self._delimiter)
        tail = block[max(0, end - position - TAIL_BYTES) : end - position]
        return Chunk(raw, self._values(raw, block), position, end, self._delimiter, self._strip_cr, self._skip_empty, tail)

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

    def _skip(self, read: Reader, start: int, end: int) -> SkippedRest:
        """Pass what is left of an over-long line, in bounded steps."""
        position, tail = start, b""
        while position < end:
            block = read(position, min(BLOCK_BYTES, end - position))
            cut = block.find(self._delimiter)
            if cut >= 0:
                size = cut + len(self._delimiter)
                return SkippedRest(start, position + size, True, (tail + block[:size])[-TAIL_BYTES:])
            passed = len(block) - self._overlap()
            if passed <= 0:
                break
            tail = (tail + block[:passed])[-TAIL_BYTES:]
            position += passed
        return SkippedRest(start, position, False, tail)

    def _overlap(self) -> int:
        """Bytes at the end of a block that may be the beginning of a delimiter."""
        return len(self._delimiter) - 1

    def _tail(self, block: bytes) -> bytes:
        return block[: len(block) - self._overlap()][-TAIL_BYTES:]
