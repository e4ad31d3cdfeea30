"""Parquet files: each row is a dict of fields, positions are row numbers from 0.

Row groups are read column by column in small steps and a few rows at a time, so that a row group of any size takes little memory. The
reading continues in the next batch of the file in this process; after a kill whole row groups are skipped, and the first rows of one.

Imported when a connector reads Parquet: pyarrow takes 0.25 s and 40 MiB that an agent of log files does without.
"""

from __future__ import annotations

import bisect
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from copycat_agent.errors import CopycatError, DamageError
from copycat_agent.formats.draft import Parsed
from copycat_agent.formats.model import FileFormat, Frame, FrameOptions, RecordFile
from copycat_agent.formats.records.parquet_values import instants, rows_of, values
from copycat_agent.formats.records.schemas import arrow_columns
from copycat_agent.model import Schema

PACKED_BYTES = 64 * 2**20
"""A packed file is unpacked into memory, because its end is needed first; a larger one is refused."""
RUN_BYTES = 2**20
"""Rows of about this many bytes are read at a time."""
RUN_ROWS = 1024
"""The most rows read at a time, whatever the file says of their size: repeated values are stored once, and count as nothing there."""
REPEATED_BYTES = 64 * 2**20
"""The most memory that repeated values, which may be large, may take in the rows that are read at a time."""
ROW_BYTES = 64 * 2**20
"""The most bytes of a row, on average over its row group."""
VALUES_MAX = 2**21
"""The most values of the rows that are read at a time, and of a row, on average over its row group: nulls in a list take no bytes there."""
COLUMN_BYTES = 2**16
"""How many bytes of a column are read at a time."""
_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_LEAST_BYTES = 12


class _RowWindow(io.RawIOBase):
    """The file of the present batch, for pyarrow, which keeps the object between batches. Errors of reading are raised unchanged."""

    def __init__(self, file: RecordFile, size: int) -> None:
        self.file = file
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self._at)
        data = self.file(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data


@dataclass(slots=True)
class _Reading:
    """The reading of one file. `held` are the rows that were read last, from row `first` on; `batches` yields the next ones."""

    window: _RowWindow | None
    reader: pq.ParquetFile
    names: list[str]
    schema: Schema
    starts: list[int]
    """First row of each row group, and the number of rows."""
    first: int = 0
    held: list[dict[str, Any]] = field(default_factory=list)
    weight: int = 0
    batches: Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]] | None = None
    old: tuple[str, ...] = ()
    """Columns of type INT96, which `finer` reads once more, see `parquet_values.instants`."""
    finer: pq.ParquetFile | None = None

    @property
    def rows(self) -> int:
        return self.starts[-1]

    def go_to(self, start: int) -> None:
        """Makes row `start` one of the held rows, or the next one. Uses the rows that were read last if it is among them."""
        if self.batches is not None and self.first <= start <= self.first + len(self.held):
            return
        group = bisect.bisect_right(self.starts, start, 0, len(self.starts) - 1) - 1
        self.first, self.held, self.batches = self.starts[group], [], self._from(group)

    def _from(self, group: int) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        for index in range(group, len(self.starts) - 1):
            count = self.starts[index + 1] - self.starts[index]
            columns = self._columns(index)
            values = sum([column.num_values for column in columns])
            if values > VALUES_MAX * count or sum([column.total_uncompressed_size for column in columns]) > ROW_BYTES * count:
                raise _damaged(f"a row has more than {VALUES_MAX} values or {ROW_BYTES} bytes", None, self.first)
            size = max(1, self.reader.metadata.row_group(index).total_byte_size)
            least = min(RUN_BYTES * count // size, VALUES_MAX * count // max(1, values), REPEATED_BYTES // _heaviest(columns))
            rows = max(1, min(RUN_ROWS, least))
            batches = self.reader.iter_batches(rows, [index], self.names, use_threads=False)
            if self.finer is None:
                yield from zip(batches, itertools.repeat(None), strict=False)
            else:
                yield from zip(batches, self.finer.iter_batches(rows, [index], list(self.old), use_threads=False), strict=True)

    def _columns(self, group: int) -> list[pq.ColumnChunkMetaData]:
        """Returns what the file says of the columns of a row group that are read."""
        row_group = self.reader.metadata.row_group(group)
        columns = [row_group.column(index) for index in range(row_group.num_columns)]
        begins = tuple(f"{name}." for name in self.names)
        return [column for column in columns if f"{column.path_in_schema}.".startswith(begins)]

    def advance(self, start: int) -> bool:
        """Holds the next rows instead, those with row `start` or later ones. Returns False at the end. Raises whatever pyarrow raises."""
        assert self.batches is not None
        self.first, self.held = self.first + len(self.held), []
        while (found := next(self.batches, None)) is not None and self.first + found[0].num_rows <= start:
            self.first += found[0].num_rows
        if found is None:
            return False
        batch, finer = found
        columns = [self._values(name, batch, finer) for name in self.names]
        self.held = rows_of(self.names, columns, batch.num_rows)
        self.weight = max(batch.num_rows, batch.nbytes)
        return True

    def _values(self, name: str, batch: pa.RecordBatch, finer: pa.RecordBatch | None) -> list[Any]:
        return instants(batch.column(name), finer.column(name)) if finer is not None and name in self.old else values(batch.column(name))


def _heaviest(columns: list[pq.ColumnChunkMetaData]) -> int:
    """Returns the most that a single value, stored once and repeated, may take: writers omit the extremes of values over 4 KiB."""
    return max(
        (
            column.total_uncompressed_size
            for column in columns
            if column.physical_type == "BYTE_ARRAY"
            and column.has_dictionary_page
            and not (column.statistics and column.statistics.has_min_max)
        ),
        default=1,
    )


class ParquetFormat(FileFormat):
    """Each row is a record."""

    counts_records = True
    finds_end = True

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        """Ignores `block_bytes`: it reads only a few rows at a time anyway."""
        del how
        reading = self._reading(file)
        if reading is None:
            return
        end = min(end, reading.rows)
        if start < end:
            reading.go_to(start)
        while start < end:
            until = min(end, reading.first + len(reading.held))
            if start < until:
                yield _parsed(reading, start, until)
                start = until
            elif not self._advance(file, reading, start):
                break
        file.memo.pop("parquet", None)  # it may hold all of a packed file

    def _advance(self, file: RecordFile, reading: _Reading, start: int) -> bool:
        try:
            more = reading.advance(start)
        except CopycatError:
            reading.batches = None
            raise
        except Exception as error:  # noqa: BLE001 - damaged bytes make pyarrow raise anything
            del file.memo["parquet"]
            raise _damaged("its rows cannot be read from there on", error, reading.first) from None
        if not more and reading.first < reading.rows:
            del file.memo["parquet"]
            raise _damaged(f"it has fewer rows than the {reading.rows} it says", None, reading.first)
        return more

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Cuts at row groups. Damage is left to the readers."""
        try:
            reading = self._reading(file)
        except CopycatError:
            return ()
        if reading is None:
            return ()
        wanted = [reading.rows * part // parts for part in range(1, parts)]
        found = {reading.starts[bisect.bisect_left(reading.starts, row)] for row in wanted}
        del file.memo["parquet"]
        return tuple(sorted(found - {0, reading.rows}))

    def _reading(self, file: RecordFile) -> _Reading | None:
        """Returns the reading of this file that an earlier batch began, or a new one; None for an empty file."""
        reading: _Reading | None = file.memo.get("parquet")
        if reading is None:
            try:
                reading = self._begin(file)
            except CopycatError:
                raise
            except Exception as error:  # noqa: BLE001 - damaged bytes make pyarrow raise anything
                raise _damaged("its description of itself cannot be read", error, 0) from None
            if reading is None:
                return None
            file.memo["parquet"] = reading
        if reading.window is not None:
            reading.window.file = file
        return reading

    def _begin(self, file: RecordFile) -> _Reading | None:
        window, source = _source(file)
        if source is None:
            return None
        reader = _reader(source, "us")
        schema = reader.schema_arrow
        names = list(self._columns) or schema.names
        for name in names:
            if schema.names.count(name) != 1:
                why = "has more than one column" if name in schema.names else "has no column"
                raise DamageError(f"parquet: it {why} {name!r} (record 1)", "correct format.columns, or what writes these files")
        columns = arrow_columns(pa.schema([schema.field(name) for name in names]))
        counts = (reader.metadata.row_group(index).num_rows for index in range(reader.num_row_groups))
        starts = list(itertools.accumulate(counts, initial=0))
        if starts != sorted(starts):
            raise _damaged("its row groups are damaged", None, 0)
        old = _old_columns(reader, names)
        finer = _reader(source, "ns") if old else None
        return _Reading(window, reader, names, Schema(columns), starts, old=old, finer=finer)


def _reader(source: pa.NativeFile, int96: Literal["us", "ns"]) -> pq.ParquetFile:
    return pq.ParquetFile(
        source, pre_buffer=False, buffer_size=COLUMN_BYTES, page_checksum_verification=True, coerce_int96_timestamp_unit=int96
    )


def _old_columns(reader: pq.ParquetFile, names: list[str]) -> tuple[str, ...]:
    """Returns the columns of type INT96, except those within lists and structs, which are read to the microsecond."""
    leaves = [reader.schema.column(index) for index in range(len(reader.schema))]
    return tuple(leaf.path for leaf in leaves if leaf.physical_type == "INT96" and leaf.path in names)


def _source(file: RecordFile) -> tuple[_RowWindow | None, Any]:
    """Returns what pyarrow reads: the file by position, or all of a packed one. (None, None) for an empty file."""
    window, data = None, b""
    size = file.size
    if size < 0:
        data = file(0, PACKED_BYTES + 1)
        if len(data) > PACKED_BYTES:
            what = f"parquet: packed, it holds more than {PACKED_BYTES // 2**20} MiB (record 1)"
            raise DamageError(what, "unpack it before it is dropped: Parquet is read from its end, which nothing can do with a packed file")
        size, head, tail = len(data), data[:4], data[-4:]
    else:
        head, tail = file(0, 4), file(max(0, size - 4), 4)
        window = _RowWindow(file, size)
    if not size:
        return None, None
    if _ENCRYPTED in (head, tail):
        raise DamageError("parquet: it is encrypted (record 1)", "decrypt it before it is dropped: keys for it cannot be given here")
    if head != _MAGIC:
        raise _damaged("it does not begin as a Parquet file does", None, 0)
    if size < _LEAST_BYTES or tail != _MAGIC:
        raise _damaged(f"it ends in the middle, at byte {size}", None, 0)
    return window, pa.BufferReader(data) if window is None else pa.PythonFile(window, mode="r")


def _parsed(reading: _Reading, start: int, end: int) -> Parsed:
    rows = reading.held[start - reading.first : end - reading.first]
    weight = reading.weight * len(rows) // len(reading.held)
    return Parsed(rows, range(start, end + 1), max(len(rows), weight), schema=reading.schema)


def _damaged(what: str, error: Exception | None, record: int) -> DamageError:
    why = "" if error is None else f": {str(error).partition(chr(10))[0][:200] or type(error).__name__}"
    return DamageError(f"parquet: {what}{why} (record {record + 1})", "replace the file with a whole one")
