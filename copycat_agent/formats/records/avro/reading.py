"""Avro files: each record of each block is a dict of fields, positions are record numbers from 0.

Imported when a connector reads Avro: fastavro takes 50 ms and some MiB that an agent of log files does without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Literal

from copycat_agent.errors import CopycatError
from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.lines import BLOCK_BYTES
from copycat_agent.formats.model import Frame, Parsed, RecordFile
from copycat_agent.formats.records.avro.blocks import CODECS, Block, Header, Marks, blocks, damaged, header_of, payload
from copycat_agent.formats.records.avro.schema import BadSchemaError, Reading, reading_of

RUN_RECORDS = 8192
"""Records that are decoded before any of them is sent."""
SIZELESS_RECORDS = 2**20
"""A block of records that take no bytes has no more of them."""
CAREFUL_BYTES = 2**20
"""Bytes of lists beyond which the values in them are counted while they are read."""
VALUES_MAX = 2**21
"""Numbers, texts and lists in one record, where they are counted: each may take 200 bytes of memory, and a single one of the file."""
_PLACES_MAX = 64


@dataclass(slots=True)
class _Kept:
    """What is kept of a file between two batches. `places`: where records of block `block` begin, as (record, unpacked byte)."""

    header: Header
    reading: Reading
    marks: Marks
    block: int = -1
    places: list[tuple[int, int]] = field(default_factory=list)

    def note(self, block: Block, record: int, byte: int) -> None:
        if self.block != block.record:
            self.block, self.places = block.record, []
        self.places = [*self.places[1 - _PLACES_MAX :], (record, byte)]

    def place(self, block: Block, start: int) -> tuple[int, int]:
        known = self.places if self.block == block.record else []
        return next((place for place in reversed(known) if place[0] <= start), (block.record, 0))


class _Counted(BytesIO):
    """Ends a record that holds more values than `VALUES_MAX`."""

    left = VALUES_MAX

    def read(self, size: int | None = -1, /) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise _TooManyError
        return super().read(size)


class _TooManyError(Exception):
    pass


class _UnfilledError(Exception):
    pass


class AvroFormat:
    """See `RecordFormat`."""

    counts_records = True
    finds_end = True
    makes_fields = True
    on_too_long: Literal["dlq", "truncate", "drop"] = "dlq"

    def __init__(self, max_block_bytes: int) -> None:
        self._max_bytes = max_block_bytes

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
        del skipping, final, flush
        kept = self._kept(file)
        if kept is None or start >= end:
            return
        for block in blocks(file, kept.header, kept.marks, start, self._max_bytes):
            if block.record >= end:
                return
            yield from self._runs(file, kept, block, start, end, block_bytes or BLOCK_BYTES)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`: at blocks. Damage is left to those who read."""
        found: list[int] = []
        try:
            kept = self._kept(file)
            if kept is None:
                return ()
            for block in blocks(file, kept.header, kept.marks, 0, self._max_bytes):
                if len(found) < parts - 1 and block.record and block.start >= file.size * (len(found) + 1) // parts:
                    found.append(block.record)
        except CopycatError:
            return ()
        return tuple(found)

    def _kept(self, file: RecordFile) -> _Kept | None:
        kept: _Kept | None = file.memo.get("avro")
        if kept is not None:
            return kept
        header = header_of(file)
        if header is None:
            return None
        if header.codec not in CODECS:
            raise damaged(f"its codec is none of {', '.join(CODECS)}", 4, 0)
        try:
            reading = reading_of(header.schema)
        except BadSchemaError as error:
            raise damaged(str(error), 4, 0) from None
        kept = file.memo["avro"] = _Kept(header, reading, Marks(header.first))
        return kept

    def _runs(self, file: RecordFile, kept: _Kept, block: Block, start: int, end: int, run_bytes: int) -> Iterator[Parsed]:
        """The block's records from `start` up to `end`, a few at a time."""
        data = payload(file, kept.header, block, self._max_bytes)
        reading, last = kept.reading, block.record + block.total
        if block.total > (len(data) if reading.has_size else SIZELESS_RECORDS):
            raise damaged(f"a block of {len(data)} bytes says that it holds {block.total} records", block.start, block.record)
        number, byte = kept.place(block, start)
        stream = _Counted(data) if reading.has_lists and len(data) > CAREFUL_BYTES else BytesIO(data)
        stream.seek(byte)
        while number < min(last, end):
            values: list[dict[str, Any] | Unparsed] = []
            error = None
            kept.note(block, number, begun := stream.tell())
            while number < min(last, end) and len(values) < RUN_RECORDS and stream.tell() - begun < run_bytes:
                try:
                    value = _record(stream, reading)
                except Exception as found:  # noqa: BLE001 - damaged bytes make fastavro raise anything
                    error = found
                    break
                number += 1
                if number > start:
                    values.append(value)
            if number == last and error is None and stream.tell() != len(data):
                error, number, values = _UnfilledError(), number - 1, values[:-1]
            if values:
                size_bytes = max(len(values), stream.tell() - begun)
                yield Parsed(values, range(number - len(values), number + 1), size_bytes, schema=reading.schema)
            if error is not None:
                raise damaged(_why(error), block.start, number) from None


def _record(stream: BytesIO, reading: Reading) -> dict[str, Any] | Unparsed:
    """The next record. Raises whatever damaged bytes make fastavro raise."""
    if isinstance(stream, _Counted):
        stream.left = VALUES_MAX
    begin = stream.tell()
    try:
        value = reading.decode(stream, reading.parsed, None)
    except UnicodeDecodeError:
        stream.seek(begin)
        reading.decode(stream, reading.parsed, None, handle_unicode_errors="replace")
        return Unparsed("a string is not UTF-8", "write it as bytes, or correct what writes these files")
    return value if reading.fields else {"value": value}


def _why(error: Exception) -> str:
    if isinstance(error, _TooManyError):
        return f"a record holds more than {VALUES_MAX} values"
    if isinstance(error, _UnfilledError):
        return "the records of a block do not fill it"
    return "a record nests too deep" if isinstance(error, RecursionError) else "a record cannot be decoded"
