"""`binary`: a file is a record, or each piece of a fixed size is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from copycat_agent.formats.lines import BLOCK_BYTES
from copycat_agent.formats.model import TAIL_BYTES, Frame, LongLine, Parsed, RecordFile
from copycat_agent.formats.records.base import FormatKind, FormatOptions, one_line
from copycat_agent.options import ByteSize, Field


class BinaryOptions(FormatOptions):
    """Bytes of any kind."""

    type: Literal["binary"] = Field("binary", description="The whole file is a record, or each chunk of it.")
    chunk: ByteSize | None = Field(
        None, ge=1, le=2**30, description="Bytes of a record; the last one of a file may be shorter. Absent: the whole file is one."
    )
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Largest file, without chunk.")
    on_too_long: Literal["dlq", "truncate", "drop"] = Field(
        "dlq",
        description="dlq: a larger file is a bad record, as `errors` says, its first max_bytes as raw bytes. truncate: those are sent, "
        "with the header copycat.truncated. drop: counted and passed.",
    )


class BinaryFormat:
    """See `RecordFormat`."""

    counts_records = False
    finds_end = True
    makes_fields = False

    def __init__(self, options: BinaryOptions) -> None:
        self._chunk = options.chunk
        self._max_bytes = options.max_bytes
        self.on_too_long: Literal["dlq", "truncate", "drop"] = options.on_too_long

    def frames(
        self,
        file: RecordFile,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = True,
        flush: bool = False,
        block_bytes: int | None = None,
    ) -> Iterator[Frame]:
        """See `RecordFormat.frames`."""
        del skipping, flush
        if self._chunk is not None:
            return _chunks(file, self._chunk, start, end, max(self._chunk, block_bytes or BLOCK_BYTES), final=final)
        return self._whole(file, start, end) if final else iter(())

    def _whole(self, file: RecordFile, start: int, end: int) -> Iterator[Frame]:
        """All from `start` on, of which no more is kept than may be sent."""
        head = file(start, min(self._max_bytes, end - start))
        position, tail = start + len(head), head[-TAIL_BYTES:]
        while position < end and (block := file(position, min(BLOCK_BYTES, end - position))):
            position, tail = position + len(block), (tail + block)[-TAIL_BYTES:]
        if position > start + len(head):
            yield LongLine(head, start, position, True, tail)
        elif head:
            yield Parsed([head], [start, position], len(head), [head], tail)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`."""
        if self._chunk is None:
            return ()
        found = {file.size * part // parts // self._chunk * self._chunk for part in range(1, parts)}
        return tuple(sorted(found - {0}))


def _chunks(file: RecordFile, size: int, start: int, end: int, block_bytes: int, *, final: bool) -> Iterator[Parsed]:
    """Runs of records of `size` bytes; what is left at the end is one where the file is `final`."""
    position, wanted = start, block_bytes // size * size
    while position < end:
        block = file(position, min(wanted, end - position))
        is_last = len(block) < wanted
        if is_last and not final:
            block = block[: len(block) // size * size]
        if not block:
            return
        values = [block[place : place + size] for place in range(0, len(block), size)]
        places = [*range(position, position + len(block), size), position + len(block)]
        yield Parsed(values, places, len(block), values, block[-TAIL_BYTES:])
        position += len(block)
        if is_last:
            return


BINARY = FormatKind(BinaryOptions, BinaryFormat, columns=one_line)
