"""An Avro schema as this host reads it: what fastavro needs to know, and what it has to be kept from.

Logical types go under names of our own to readers of our own: fastavro's round decimals to their precision, and end the whole file
at a time that Python cannot hold. A type that contains itself is read by fastavro's Python half: its C half has no bound on how deep
it goes, and a few bytes of such data end the process. Door to fastavro, with `avro_reading`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, NamedTuple

import fastavro
from fastavro import _read_py as slow
from fastavro.read import LOGICAL_READERS

from copycat_agent.formats.records.moments import clocks, day, moments
from copycat_agent.formats.records.schemas import AvroType, avro_columns
from copycat_agent.model import Schema

_OURS = "copycat-"
_EXACT = Context(prec=999_999)
_UUID_BYTES = 16


class Reading(NamedTuple):
    """How records are read. `fields`: they are records, else the value is put into a field `value`.

    `has_lists`: one record may hold many more values than a record has fields. `has_size`: each record takes at least a byte.
    """

    parsed: Any
    decode: Callable[..., Any]
    schema: Schema
    fields: bool
    has_lists: bool
    has_size: bool


class BadSchemaError(Exception):
    """The schema is none, or one that cannot be read within bounds. Its text says why."""


def reading_of(written: str) -> Reading:
    """How to read records of a schema, as it is written in a header. Raises BadSchemaError."""
    try:
        return _reading_of(written)
    except BadSchemaError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever fastavro raises for JSON that is no schema
        raise BadSchemaError(f"its schema is no Avro schema ({type(error).__name__})") from None


def _reading_of(written: str) -> Reading:
    named: dict[str, Any] = {}
    plain = fastavro.parse_schema(json.loads(written), named_schemas=named)
    walk = _Walk(named)
    smallest = walk.smallest(plain)
    if walk.is_unbounded:
        msg = "an array's items take no bytes in it, so nothing bounds their number"
        raise BadSchemaError(msg)
    parsed = fastavro.parse_schema(_ours(json.loads(written)))
    is_record = isinstance(plain, dict) and plain["type"] in ("record", "error")
    decode = slow.schemaless_reader if walk.is_recursive else fastavro.schemaless_reader
    schema = Schema(avro_columns(plain, named, _is_read), written)
    return Reading(parsed, decode, schema, is_record, walk.has_lists, smallest > 0)


class _Walk:
    """What the fewest bytes of a value are, and whether a type contains itself."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._within: list[str] = []
        self.is_recursive = self.is_unbounded = self.has_lists = False

    def smallest(self, schema: AvroType) -> int:
        if isinstance(schema, list):
            return 1 + min((self.smallest(branch) for branch in schema), default=0)
        if isinstance(schema, str):
            return self._named_size(schema) if schema in self._named else int(schema != "null")  # text has its length, an enum its index
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
        self._within.append(name)
        size = sum([self.smallest(field["type"]) for field in schema["fields"]])
        self._within.pop()
        return size


def _ours(schema: AvroType) -> AvroType:
    """The schema with the logical types that we read under our names, and without those that nobody reads."""
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
    """Whether its logical type is one that we read and belongs on its type; all others are what lies beneath them, as Avro has it."""
    type_, logical = schema.get("type"), schema["logicalType"]
    if not (isinstance(type_, str) and isinstance(logical, str) and f"{type_}-{_OURS}{logical}" in _READERS):
        return False
    if logical == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        return isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0
    return logical != "uuid" or type_ == "string" or schema.get("size") == _UUID_BYTES


def _decimal(data: bytes, schema: dict[str, Any], _: object = None) -> Decimal:
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-schema.get("scale", 0), _EXACT)


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
