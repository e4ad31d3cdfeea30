"""Avro files: each record of each block is a dict of fields, positions are record numbers from 0; and how their schemas are read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Context, Decimal, Inexact
from io import BytesIO
from typing import Any, NamedTuple, Unpack

import fastavro
from fastavro import _read_py as slow
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException

from copycat_agent.errors import CopycatError
from copycat_agent.formats.draft import Parsed, Unparsed
from copycat_agent.formats.lines import BLOCK_BYTES
from copycat_agent.formats.model import FileFormat, Frame, FrameOptions, RecordFile
from copycat_agent.formats.records.avro_blocks import CODECS, Block, BlockMarks, Header, blocks, damaged, header_of, payload
from copycat_agent.formats.records.field_values import MOST_EXPONENT
from copycat_agent.formats.records.schemas import AvroType, avro_columns, clocks, day, moments
from copycat_agent.model import Schema

_OURS = "copycat-"
_EXACT = Context(prec=999_999, traps=[Inexact])
_DIRECT_BYTES = 2**12
_UUID_BYTES = 16
RUN_RECORDS = 8192
"""The most records that are decoded before any of them is sent."""
SIZELESS_RECORDS = 2**20
"""The most records of a block of records that take no bytes."""
CAREFUL_BYTES = 2**20
"""Bytes of lists beyond which their values are counted while they are read."""
VALUES_MAX = 2**21
"""The most numbers, texts and lists in one record, if they are counted: each may take 200 bytes of memory, and only one of the file."""
FREE_MAX = 2**14
"""The most nulls and records in one record that take no bytes, so that no data bounds them."""
_PLACES_MAX = 64


class AvroReadOptions(NamedTuple):
    """How to read records. `fields`: the values are records, else the value is put into a field `value`.

    `has_lists`: one record may hold many more values than a record has fields. `has_size`: each record takes at least a byte.
    """

    parsed: Any
    decode: Callable[..., Any]
    schema: Schema
    fields: bool
    has_lists: bool
    has_size: bool


class BadAvroSchemaError(Exception):
    """The schema is invalid, or cannot be read within bounds. Its text says why."""


def reading_of(written: str) -> AvroReadOptions:
    """Returns how to read records of a schema from a header. Raises BadAvroSchemaError."""
    try:
        return _reading_of(written)
    except BadAvroSchemaError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever fastavro raises for JSON that is no schema
        raise BadAvroSchemaError(f"its schema is no Avro schema ({type(error).__name__})") from None


def _reading_of(written: str) -> AvroReadOptions:
    named: dict[str, Any] = {}
    bare = _without_defaults(json.loads(written))
    plain = fastavro.parse_schema(bare, named_schemas=named)
    walk = _SchemaWalk(named)
    smallest = walk.smallest(plain)
    if walk.is_unbounded:
        raise BadAvroSchemaError("an array's items take no bytes in it, so nothing bounds their number")
    counting = _SchemaWalk(named, free=1)
    counting.smallest(plain)
    if any(counting.sizes[name] - size > FREE_MAX for name, size in walk.sizes.items()):
        raise BadAvroSchemaError(f"a record would hold more than {FREE_MAX} nulls and records that take no bytes in it")
    parsed = fastavro.parse_schema(_ours(bare))
    is_record = isinstance(plain, dict) and plain["type"] in ("record", "error")
    decode = slow.schemaless_reader if walk.is_recursive else fastavro.schemaless_reader
    schema = Schema(avro_columns(plain, named, _is_read), _valid(written, bare))
    return AvroReadOptions(parsed, decode, schema, is_record, walk.has_lists, smallest > 0)


class _SchemaWalk:
    """Computes the fewest bytes of a value, and whether a type contains itself. `free` is what a null and the frame of a record count.

    `sizes` are those of records, by name. Each is walked once: types that name others twice would double the work at each level.
    """

    def __init__(self, named: dict[str, Any], free: int = 0) -> None:
        self._named = named
        self._free = free
        self._within: list[str] = []
        self.sizes: dict[str, int] = {}
        self.is_recursive = self.is_unbounded = self.has_lists = False

    def smallest(self, schema: AvroType) -> int:
        if isinstance(schema, list):
            return 1 + min((self.smallest(branch) for branch in schema), default=0)
        if isinstance(schema, str):
            return self._named_size(schema) if schema in self._named else int(schema != "null") or self._free  # an enum has its index
        type_ = schema["type"]
        if type_ in ("record", "error"):
            return self._named_size(schema["name"])
        if type_ in ("array", "map"):
            self.has_lists = True
            self.is_unbounded |= self.smallest(schema["items" if type_ == "array" else "values"]) == 0 and type_ == "array"
            return 1
        return int(schema["size"]) if type_ == "fixed" else self.smallest(type_)

    def _named_size(self, name: str) -> int:
        schema = self._named[name]
        if schema["type"] not in ("record", "error"):
            return self.smallest(schema)
        if name in self._within:
            self.is_recursive = True
            return 1  # through a union or a list, else no such value is finite
        if name not in self.sizes:
            self._within.append(name)
            self.sizes[name] = self._free + sum([self.smallest(field["type"]) for field in schema["fields"]])
            self._within.pop()
        return self.sizes[name]


def _valid(written: str, bare: AvroType) -> str:
    """Returns the schema, or the one without defaults if one of them is invalid: other readers and registries refuse that."""
    try:
        fastavro.parse_schema(json.loads(written))
    except SchemaParseException:
        return json.dumps(bare)
    return written


def _without_defaults(schema: AvroType) -> AvroType:
    """Returns the schema without defaults, which do not matter here: programs write invalid ones, such as null for a string."""
    if isinstance(schema, list):
        return [_without_defaults(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    inner = ("type", "items", "values")
    left = {name: _without_defaults(value) if name in inner else value for name, value in schema.items() if name != "default"}
    if isinstance(schema.get("fields"), list):
        left["fields"] = [_without_defaults(field) for field in schema["fields"]]
    return left


def _ours(schema: AvroType) -> AvroType:
    """Returns the schema with the supported logical types under our own names, and without all others."""
    if isinstance(schema, list):
        return [_ours(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {
        name: _ours(value) if name in ("type", "items", "values") else value for name, value in schema.items() if name != "logicalType"
    }
    if isinstance(schema.get("fields"), list):
        changed["fields"] = [_ours(field) for field in schema["fields"]]
    if "logicalType" in schema and _is_read(schema):
        changed["logicalType"] = _OURS + schema["logicalType"]
    return changed


def _is_read(schema: dict[str, Any]) -> bool:
    """Returns whether its logical type is supported and valid for its type; others count as their underlying type, as Avro demands."""
    type_, logical = schema.get("type"), schema["logicalType"]
    if not (isinstance(type_, str) and isinstance(logical, str) and f"{type_}-{_OURS}{logical}" in _READERS):
        return False
    if logical == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        return isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= min(precision, MOST_EXPONENT) and precision > 0
    return logical != "uuid" or type_ == "string" or schema.get("size") == _UUID_BYTES


def _decimal(data: bytes, schema: dict[str, Any], _: object = None) -> Decimal:
    return _whole(data, signed=True).scaleb(-schema.get("scale", 0), _EXACT)


def _whole(data: bytes, *, signed: bool) -> Decimal:
    """Returns a whole number. Raises Inexact for one of a million digits.

    Long ones are put together from halves: Python's own conversion takes the square of the length, and stops all threads.
    """
    if len(data) <= _DIRECT_BYTES:
        return Decimal(int.from_bytes(data, "big", signed=signed))
    half = len(data) // 2
    power = _EXACT.power(2, 8 * half)
    return _EXACT.fma(_whole(data[:-half], signed=signed), power, _whole(data[-half:], signed=False))


def _reader(convert: Callable[[int], Any]) -> Callable[..., Any]:
    return lambda data, *_: convert(data)


_UNITS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_READERS: dict[str, Callable[..., Any]] = {
    f"bytes-{_OURS}decimal": _decimal,
    f"fixed-{_OURS}decimal": _decimal,
    f"int-{_OURS}date": _reader(day),
    f"int-{_OURS}time-millis": _reader(clocks(10**3)),
    f"long-{_OURS}time-micros": _reader(clocks(10**6)),
    f"string-{_OURS}uuid": lambda data, *_: data,
    f"fixed-{_OURS}uuid": lambda data, *_: str(uuid.UUID(bytes=data)),
    **{f"long-{_OURS}timestamp-{unit}": _reader(moments(size, utc=True)) for unit, size in _UNITS.items()},
    **{f"long-{_OURS}local-timestamp-{unit}": _reader(moments(size, utc=False)) for unit, size in _UNITS.items()},
}
LOGICAL_READERS.update(_READERS)


@dataclass(slots=True)
class _KeptBlock:
    """The state of a file that is kept between two batches. `places`: where records of block `block` begin, as (record, unpacked byte)."""

    header: Header
    reading: AvroReadOptions
    marks: BlockMarks
    block: int = -1
    places: list[tuple[int, int]] = field(default_factory=list)

    def note(self, block: Block, record: int, byte: int) -> None:
        if self.block != block.record:
            self.block, self.places = block.record, []
        self.places = [*self.places[1 - _PLACES_MAX :], (record, byte)]

    def place(self, block: Block, start: int) -> tuple[int, int]:
        known = self.places if self.block == block.record else []
        return next((place for place in reversed(known) if place[0] <= start), (block.record, 0))


class _BoundedRecord(BytesIO):
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


class AvroFormat(FileFormat):
    """Each record of each block is a record."""

    counts_records = True
    finds_end = True

    def __init__(self, max_block_bytes: int) -> None:
        self._max_bytes = max_block_bytes

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        kept = self._kept(file)
        if kept is None or start >= end:
            return
        for block in blocks(file, kept.header, kept.marks, start, self._max_bytes):
            if block.record >= end:
                return
            yield from self._runs(file, kept, block, start, end, how.get("block_bytes") or BLOCK_BYTES)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Cuts at blocks. Damage is left to the readers."""
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

    def _kept(self, file: RecordFile) -> _KeptBlock | None:
        kept: _KeptBlock | None = file.memo.get("avro")
        if kept is not None:
            return kept
        header = header_of(file)
        if header is None:
            return None
        if header.codec not in CODECS:
            raise damaged(f"its codec is none of {', '.join(CODECS)}", 4, 0)
        try:
            reading = reading_of(header.schema)
        except BadAvroSchemaError as error:
            raise damaged(str(error), 4, 0) from None
        kept = file.memo["avro"] = _KeptBlock(header, reading, BlockMarks(header.first))
        return kept

    def _runs(self, file: RecordFile, kept: _KeptBlock, block: Block, start: int, end: int, run_bytes: int) -> Iterator[Parsed]:
        """Yields the block's records from `start` up to `end`, a few at a time."""
        data = payload(file, kept.header, block, self._max_bytes)
        reading, last = kept.reading, block.record + block.total
        if block.total > (len(data) if reading.has_size else SIZELESS_RECORDS):
            raise damaged(f"a block of {len(data)} bytes says that it holds {block.total} records", block.start, block.record)
        number, byte = kept.place(block, start)
        stream = _BoundedRecord(data) if reading.has_lists and len(data) > CAREFUL_BYTES else BytesIO(data)
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


def _record(stream: BytesIO, reading: AvroReadOptions) -> dict[str, Any] | Unparsed:
    """Returns the next record. Raises whatever fastavro raises for damaged bytes."""
    if isinstance(stream, _BoundedRecord):
        stream.left = VALUES_MAX
    begin = stream.tell()
    try:
        value = reading.decode(stream, reading.parsed, None)
    except UnicodeDecodeError:
        stream.seek(begin)
        reading.decode(stream, reading.parsed, None, handle_unicode_errors="replace")
        return Unparsed("a string is not UTF-8", "write it as bytes, or correct what writes these files")
    return value if reading.fields else {"value": value}


def read_alone(data: bytes, reading: AvroReadOptions) -> dict[str, Any] | Unparsed:
    """Returns the single record in some bytes, which must contain nothing else."""
    stream = _BoundedRecord(data) if reading.has_lists and len(data) > CAREFUL_BYTES else BytesIO(data)
    try:
        value = _record(stream, reading)
    except Exception as error:  # noqa: BLE001 - as above
        return Unparsed(_why(error), "is it of the schema that its id says?")
    return value if stream.tell() == len(data) else Unparsed("its bytes go on behind the record", "is it of the schema that its id says?")


def _why(error: Exception) -> str:
    if isinstance(error, _TooManyError):
        return f"a record holds more than {VALUES_MAX} values"
    if isinstance(error, _UnfilledError):
        return "the records of a block do not fill it"
    return "a record nests too deep" if isinstance(error, RecursionError) else "a record cannot be decoded"
