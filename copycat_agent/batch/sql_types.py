"""Values of records as a table's columns hold them: Arrow types, and the way to them for what is not of its type yet."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from copycat_agent.errors import DataError
from copycat_agent.templates import scalar_text
from copycat_agent.transforms.columns import element_of
from copycat_agent.transforms.sql import map_of, struct_fields

Read = Callable[[Any], Any]
"""A value that is not null, as the type holds it. Raises ValueError, with what the value is, without the value."""

_PLAIN: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_NAMES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", dict: "an object", list: "a list", bytes: "bytes"}


def arrow_type(type_: str) -> pa.DataType:
    """The Arrow type of one spelt as `transforms.sql_types.plain_type` does."""
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if type_.startswith("decimal("):
        precision, scale = type_[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if element := element_of(type_):
        return pa.list_(arrow_type(element))
    if pair := map_of(type_):
        return pa.map_(arrow_type(pair[0]), arrow_type(pair[1]))
    return pa.struct([(name, arrow_type(kind)) for name, kind in struct_fields(type_) or []])


def reader(type_: str) -> Read:
    """What makes a value of this type, where that loses nothing: numbers are no texts, but any value has a text."""
    if type_ in _READERS:
        return _READERS[type_]
    if type_ in _BITS:
        return _whole(2 ** _BITS[type_])
    if type_.startswith("decimal("):
        return _decimal(arrow_type(type_))
    if element := element_of(type_):
        return _each(reader(element))
    if pair := map_of(type_):
        return _pairs(reader(pair[0]), reader(pair[1]))
    return _named([(name, reader(kind)) for name, kind in struct_fields(type_) or []])


def _or_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _refuse(value: object) -> ValueError:
    kind = next((words for known, words in _NAMES.items() if isinstance(value, known)), f"of type {type(value).__name__}")
    return ValueError(f"is {kind}")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # lone surrogates, which no column holds
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    text = scalar_text(value)
    return json.dumps(value, ensure_ascii=False, default=str) if text is None else text


def _whole(bound: int) -> Read:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _refuse(value)
        if not -bound <= value < bound:
            msg = "is a number beyond it"
            raise ValueError(msg)
        return value

    return read


def _double(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _refuse(value)
    try:
        return float(value)
    except OverflowError:
        msg = "is a number beyond it"
        raise ValueError(msg) from None


def _decimal(kind: pa.DataType) -> Read:
    def read(value: object) -> Decimal:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float | Decimal)
            or (isinstance(value, float) and not math.isfinite(value))
        ):
            raise _refuse(value)
        try:
            found = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
            pa.scalar(found, kind)
        except (pa.ArrowException, InvalidOperation, ValueError):
            msg = "is a number with more digits than it holds"
            raise ValueError(msg) from None
        return found

    return read


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _refuse(value)
    return value


def _moment(value: object) -> datetime:
    """With its zone; a time without one is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            msg = "is a text that is no RFC 3339 time"
            raise ValueError(msg) from None
    if not isinstance(value, datetime):
        raise _refuse(value)
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        msg = "is a time beyond it"
        raise ValueError(msg) from None


def _day(value: object) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            msg = "is a text that is no date"
            raise ValueError(msg) from None
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _refuse(value)
    return value


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    raise _refuse(value)


def _each(read: Read) -> Read:
    inner = _or_null(read)

    def read_list(value: object) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _refuse(value)
        return [inner(one) for one in value]

    return read_list


def _pairs(key: Read, content: Read) -> Read:
    inner = _or_null(content)

    def read_map(value: object) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise _refuse(value)
        return [(key(name), inner(one)) for name, one in value.items()]

    return read_map


def _named(fields: list[tuple[str, Read]]) -> Read:
    readers = [(name, _or_null(read)) for name, read in fields]

    def read_struct(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _refuse(value)
        return {name: read(value.get(name)) for name, read in readers}

    return read_struct


_READERS: dict[str, Read] = {
    "string": _text,
    "boolean": _boolean,
    "float": _double,
    "double": _double,
    "date": _day,
    "timestamp": _moment,
    "timestamp_ntz": lambda value: _moment(value).replace(tzinfo=None),
    "binary": _bytes,
}


def column_error(name: str, type_: str, error: ValueError) -> DataError:
    """A record that the table cannot hold."""
    return DataError(f"field {name!r} {error}, and the query's table has it as {type_}", "correct sql.schema, or convert the field before")
