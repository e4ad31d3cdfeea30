"""Avro object container files: a header with the schema, then blocks of records, each compressed by itself.

Records that came with an Avro schema are written with that schema, unchanged, unless they have a field that it lacks. Bytes beside a schema
are a record in the schema's encoding. All others are rows with columns, see `table_files`, and the schema is made from those. Names that
Avro does not allow do not fit. Values are written by the avro converter; fastavro parses the schemas. Imported with the first such file.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cramjam

from copycat_agent.converters import avro_numbers
from copycat_agent.converters.avro_form import avro_of
from copycat_agent.converters.avro_writing import AvroType, Compiler, parsed
from copycat_agent.converters.base import BadSchemaError, UnfitValueError
from copycat_agent.errors import DataError
from copycat_agent.model import Column, Schema
from copycat_agent.sinks.files_options import Compression
from copycat_agent.sinks.formats.column_types import FittedColumn, Types, fitted
from copycat_agent.sinks.formats.local_files import DirectoryFiles, GrowingFile, NewPath, WrittenFile
from copycat_agent.sinks.formats.stored_types import StoredColumns, spelt
from copycat_agent.sinks.formats.table_files import VALUE, TableFile, TableFiles, TableFormat
from copycat_agent.sinks.formats.text_files import SPILL_BYTES, null_value
from copycat_agent.sql_types import SqlType

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

EXTENSION = "avro"
BLOCK_BYTES = 2**18
"""Size of a block, before it is compressed."""
_HINT = "make the record fit in transforms, or write format jsonl, which takes any fields"
_SYNC_BYTES = 16
_ROW_NAME = "row"


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(4, "big")


_CODECS: dict[Compression, tuple[str, Callable[[bytes], bytes]]] = {
    "none": ("null", lambda data: data),
    "gzip": ("deflate", _deflated),
    "zstd": ("zstandard", zstd.compress),
    "snappy": ("snappy", _snappy),
}
"""Avro's name of a compression, and the function that compresses a block."""


class _ObjectContainer:
    """One file: payloads of records are collected into blocks, which are written once they have `SPILL_BYTES`."""

    def __init__(self, path: Path, schema: AvroType, compression: Compression) -> None:
        codec, self._pack = _CODECS[compression]
        self._sync = os.urandom(_SYNC_BYTES)
        text = json.dumps(schema, separators=(",", ":"))
        about = (
            avro_numbers.string("avro.schema") + avro_numbers.string(text) + avro_numbers.string("avro.codec") + avro_numbers.string(codec)
        )
        self._blocks = [b"Obj\x01" + avro_numbers.size(2) + about + b"\0" + self._sync]
        self._payloads: list[bytes] = []
        self._payload_bytes = self._block_bytes = 0
        self.file = GrowingFile(path)

    @property
    def held_bytes(self) -> int:
        return self._payload_bytes + self._block_bytes

    def add(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            self._payloads.append(payload)
            self._payload_bytes += len(payload)
            if self._payload_bytes >= BLOCK_BYTES:
                self._end_block()
        if self._block_bytes >= SPILL_BYTES:
            self.write(is_last=False)

    def _end_block(self) -> None:
        if self._payloads:
            data = self._pack(b"".join(self._payloads))
            self._blocks.append(avro_numbers.size(len(self._payloads)) + avro_numbers.size(len(data)) + data + self._sync)
            self._block_bytes += len(self._blocks[-1])
            self.file.records += len(self._payloads)
            self._payloads, self._payload_bytes = [], 0

    def write(self, *, is_last: bool) -> None:
        self._end_block()
        self.file.append(b"".join(self._blocks), 0, is_last=is_last)
        self._blocks, self._block_bytes = [], 0


class AvroTable(TableFormat):
    """Makes files whose schema is made from columns."""

    extension = EXTENSION

    def __init__(self, compression: Compression) -> None:
        self._compression = compression

    def fit(self, type_: SqlType, values: Sequence[Any], *, grows: bool) -> FittedColumn:
        return fitted(type_, values, grows=grows)

    def check(self, types: Types) -> None:
        try:
            _schema_of(StoredColumns(types).types)
        except BadSchemaError as error:
            raise UnfitValueError(str(error)) from None

    def begin(self, path: Path, types: Types) -> TableFile:
        return _TableOfAvro(path, types, self._compression)


def _schema_of(types: Types) -> AvroType:
    return avro_of(tuple(Column(name, spelt(type_)) for name, type_ in types.items()), _ROW_NAME)


class _TableOfAvro(TableFile):
    def __init__(self, path: Path, types: Types, compression: Compression) -> None:
        self._stored = StoredColumns(types)
        schema = _schema_of(self._stored.types)
        named: dict[str, Any] = {}
        self._write = Compiler(named, drops=True).top(parsed(schema, named))
        self._container = _ObjectContainer(path, schema, compression)

    def pack(self, columns: Mapping[str, Sequence[Any]], rows: int) -> None:
        names = list(self._stored.types)
        values = zip(*self._stored.columns(columns, rows), strict=True)
        self._container.add([self._write(dict(zip(names, row, strict=True))) for row in values])
        self.held_bytes = self._container.held_bytes

    def spill(self) -> None:
        self._container.write(is_last=False)
        self.held_bytes = 0

    def finish(self) -> int:
        self._container.write(is_last=True)
        return self._container.file.size_bytes

    def abandon(self) -> None:
        pass  # nothing is open


class _GivenSchema(NamedTuple):
    """A schema that came with records. `fields`: None if it is no record; then it describes the field `value`.

    `write` is None if only values that are encoded already can be written with it, as with an invalid default.
    """

    schema: AvroType
    write: Callable[[Any], bytes] | None
    fields: frozenset[str] | None

    def payload(self, value: Any) -> bytes:  # noqa: ANN401 - any value
        """Returns the encoded value. Raises UnfitValueError."""
        if isinstance(value, bytes):
            return value
        if self.write is None:
            raise UnfitValueError("its schema cannot be written with")
        if self.fields is not None:
            return self.write(value)
        if isinstance(value, dict) and value.keys() == {VALUE}:
            value = value[VALUE]
        return self.write(value)

    def lacks(self, value: object) -> bool:
        """Returns whether a record has fields that the schema lacks, or none can be written with it."""
        return self.write is None or (isinstance(value, dict) and not value.keys() <= (self.fields or {VALUE}))


def _given(schema: Schema | None) -> _GivenSchema | None:
    if schema is None or not schema.avro:
        return None
    try:
        written: AvroType = json.loads(schema.avro)
    except (ValueError, RecursionError):
        return None  # the schema's columns are known even so
    named: dict[str, Any] = {}
    try:
        plain = parsed(written, named)
        write = Compiler(named, drops=False).top(plain)
    except BadSchemaError:
        return _GivenSchema(written, None, None)
    is_record = isinstance(plain, dict) and plain["type"] in ("record", "error")
    return _GivenSchema(written, write, frozenset(field["name"] for field in plain["fields"]) if is_record else None)  # type: ignore[call-overload, index]


class AvroFiles(DirectoryFiles):
    """One file of records that fit the schema they came with, and files of rows for the others."""

    def __init__(self, compression: Compression, directory: str, schema: Schema | None, new_path: NewPath) -> None:
        self._compression = compression
        self._directory = directory
        self._new_path = new_path
        self._given = _given(schema)
        self._table = TableFiles(AvroTable(compression), directory, schema, new_path)
        self._container: _ObjectContainer | None = None

    def take(self, values: Sequence[Any]) -> int:
        done = 0
        while done < len(values):
            done += self._take_given(values[done:]) if self._given else 0
            if self._given is None or (done < len(values) and self._given.lacks(values[done])):
                some = values[done:] if self._given is None else values[done : done + 1]
                taken = self._table.take(some)
                done += taken
                if taken < len(some):
                    break
            else:
                break
        self.held_bytes = self._table.held_bytes + (self._container.held_bytes if self._container else 0)
        return done

    def _take_given(self, values: Sequence[Any]) -> int:
        """Takes values up to the first that does not fit the given schema. Returns their number."""
        assert self._given is not None
        payloads: list[bytes] = []
        with contextlib.suppress(UnfitValueError):  # `payloads` has those before it
            payloads.extend(map(self._given.payload, values))
        if payloads:
            if self._container is None:
                self._container = _ObjectContainer(self._new_path(), self._given.schema, self._compression)
            self._container.add(payloads)
        return len(payloads)

    def why(self, value: Any) -> DataError:  # noqa: ANN401 - any value
        if self._given is None or self._given.lacks(value):
            return self._table.why(value)
        if value is None:
            return null_value()
        try:
            self._given.payload(value)
        except UnfitValueError as unfit:
            return unfit.as_data_error(_HINT)
        raise AssertionError("it fits")

    def spill(self) -> None:
        if self._container is not None:
            self._container.write(is_last=False)
        if self._table.held_bytes:
            self._table.spill()
        self.held_bytes = self._table.held_bytes

    def roll(self) -> None:
        pass  # none is open

    def finish(self) -> list[WrittenFile]:
        found = self._table.finish()
        if self._container is not None:
            self._container.write(is_last=True)
            found = [self._container.file.finished(self._directory, EXTENSION), *found]
        return found

    def abandon(self) -> None:
        self._table.abandon()
        self._container = None
