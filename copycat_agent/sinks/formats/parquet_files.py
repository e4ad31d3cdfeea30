"""Parquet files: rows become Arrow arrays, which take a fifth of the memory of Python's objects, and those become row groups.

A file is open from its first row group on. Row groups have 32 MiB of Arrow's memory, or less when many files are written at once. Column
statistics and page checksums are on. Imported only when a definition writes Parquet: pyarrow takes 0.25 s and 40 MiB.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from copycat_agent.sinks.files_options import Compression
from copycat_agent.sinks.formats.column_types import FittedColumn, Types, check_spelling, fitted
from copycat_agent.sinks.formats.stored_types import StoredColumns
from copycat_agent.sinks.formats.table_files import TableFile, TableFormat
from copycat_agent.sql_types import SqlType

ROW_GROUP_BYTES = 32 * 2**20
_ARRAY_BYTES = 600
"""Memory of an array beside its values."""
_BATCHES_MAX = 32
"""Number of batches beyond which small ones are combined."""
_SMALL_BYTES = 2**16

_PLAIN = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def arrow_type(type_: SqlType) -> pa.DataType:
    """Returns the Arrow type for a `known` type."""
    if type_.word in _PLAIN:
        return _PLAIN[type_.word]
    if type_.word == "decimal":
        return pa.decimal128(*type_.numbers)
    inner = [arrow_type(part) for _, part in type_.parts]
    if type_.word == "array":
        return pa.list_(inner[0])
    if type_.word == "map":
        return pa.map_(*inner)
    return pa.struct([pa.field(name, part) for (name, _), part in zip(type_.parts, inner, strict=True)])


def _has_map(type_: SqlType) -> bool:
    return type_.word == "map" or any(_has_map(part) for _, part in type_.parts)


def _with_pairs(value: Any, type_: SqlType) -> Any:  # noqa: ANN401 - any value
    """Returns the value with maps as Arrow takes them: lists of pairs."""
    if value is None or not _has_map(type_):
        return value
    if type_.word == "array":
        return [_with_pairs(item, type_.parts[0][1]) for item in value]
    if type_.word == "struct":
        return {name: _with_pairs(value.get(name), part) for name, part in type_.parts}
    (_, key_type), (_, item_type) = type_.parts
    pairs = value.items() if isinstance(value, dict) else ((entry["key"], entry["value"]) for entry in value)
    return [(_with_pairs(key, key_type), _with_pairs(item, item_type)) for key, item in pairs]


class ParquetTable(TableFormat):
    """Makes Parquet files."""

    extension = "parquet"

    def __init__(self, compression: Compression) -> None:
        self._compression = compression

    def fit(self, type_: SqlType, values: Sequence[Any], *, grows: bool) -> FittedColumn:
        return fitted(type_, values, grows=grows)

    def check(self, types: Types) -> None:
        check_spelling(StoredColumns(types).types.items())

    def begin(self, path: Path, types: Types) -> TableFile:
        return _ParquetFile(path, types, self._compression)


class _ParquetFile(TableFile):
    def __init__(self, path: Path, types: Types, compression: Compression) -> None:
        self._stored = StoredColumns(types)
        self._schema = pa.schema([pa.field(name, arrow_type(type_)) for name, type_ in self._stored.types.items()])
        self._path = path
        self._compression = compression
        self._batches: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None

    def pack(self, columns: Mapping[str, Sequence[Any]], rows: int) -> None:
        found = zip(self._stored.columns(columns, rows), self._stored.types.values(), self._schema, strict=True)
        arrays = [_array(values, type_, field.type) for values, type_, field in found]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        if len(self._batches) > _BATCHES_MAX and self.held_bytes < _BATCHES_MAX * _SMALL_BYTES:
            self._batches = pa.Table.from_batches(self._batches).combine_chunks().to_batches()
        self.held_bytes = sum(batch.nbytes for batch in self._batches) + len(self._batches) * len(self._schema) * _ARRAY_BYTES
        if self.held_bytes >= ROW_GROUP_BYTES:
            self.spill()

    def spill(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._opened().write_table(table, row_group_size=table.num_rows)
            self._batches, self.held_bytes = [], 0

    def _opened(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._file, self.is_open = self._path.open("xb"), True
            self._writer = pq.ParquetWriter(
                self._file, self._schema, compression=self._compression, write_statistics=True, write_page_checksum=True
            )
        return self._writer

    def finish(self) -> int:
        self.spill()
        writer, file = self._opened(), self._file
        assert file is not None
        writer.close()
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        file.close()
        self.is_open = False
        return size

    def abandon(self) -> None:
        self._batches = []
        if self._writer is not None and self._file is not None:
            self._writer.is_open = False  # otherwise it would write the file's footer when it is garbage-collected
            with contextlib.suppress(OSError):  # a full disk takes no buffered bytes
                self._file.close()
            self._writer = None


def _array(values: Sequence[Any], type_: SqlType, arrow: pa.DataType) -> pa.Array:
    if _has_map(type_):
        values = [_with_pairs(value, type_) for value in values]
    found = pa.array(values, arrow)
    assert isinstance(found, pa.Array), "of 2 GiB there would be several"
    return found
