"""Makes rows of the table `records`, which a query reads: Arrow types, and conversions for values of other types."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

from copycat_agent.errors import DataError
from copycat_agent.formats.records.field_values import MOST_EXPONENT
from copycat_agent.sql_types import element_of, map_of, struct_fields
from copycat_agent.templates import scalar_text
from copycat_agent.transforms.base import Columns

RECORD = "__copycat_record"
"""The column with the number of a row's record. Internal: a query cannot see it."""
FAILED = "__copycat_failed"
"""The column that says where a query fails for a record: a column's name, or WHERE; null if it does not. Optional."""

Read = Callable[[Any], Any]
"""Converts a value that is not null to the type. Raises ValueError with the kind of the value, without the value."""

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

_NOTHING = frozenset({type(None)})
_AT_ONCE: dict[str, frozenset[type]] = {
    "string": frozenset({str, type(None)}),
    "bigint": frozenset({int, type(None)}),
    "int": frozenset({int, type(None)}),
    "double": frozenset({float, int, type(None)}),
    "boolean": frozenset({bool, type(None)}),
}
"""Values that Arrow converts correctly, a whole column at once. It would also take 1 for a time, true for 1, and a text for a list."""


class Table:
    """Makes Arrow batches of records. Stateless."""

    def __init__(self, columns: Columns) -> None:
        self._columns = [(column.name, column.type, arrow_type(column.type)) for column in columns]
        self.schema = pa.schema([*((name, kind) for name, _, kind in self._columns), (RECORD, pa.int64())])

    def batch(self, rows: Sequence[dict[str, Any]], records: Sequence[int]) -> tuple[pa.RecordBatch, dict[int, DataError]]:
        """Returns the rows with their records' numbers; and why others are left out, by record: the table cannot hold them."""
        bad: dict[int, DataError] = {}
        arrays = []
        for name, spelt, kind in self._columns:
            values = _column(rows, name)
            array = None
            if _is_plain(values, spelt):
                with contextlib.suppress(pa.ArrowException, ValueError, OverflowError):
                    array = pa.array(values, kind)
            arrays.append(_one_by_one(name, spelt, values, records, bad) if array is None else array)
        batch = pa.RecordBatch.from_arrays([*arrays, pa.array(records, pa.int64())], schema=self.schema)
        if bad:
            batch = batch.filter(pa.array([record not in bad for record in records]))
        return batch, bad


def _column(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """Returns a field of each row, None if it is missing."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def _is_plain(values: list[Any], spelt: str) -> bool:
    """Returns whether Arrow converts these values correctly. Lists of plain values count; deeper values are converted one by one."""
    if spelt.startswith("array<"):
        lists = [value for value in values if value is not None]
        return set(map(type, lists)) <= {list} and set(map(type, chain.from_iterable(lists))) <= _AT_ONCE.get(spelt[6:-1], _NOTHING)
    return set(map(type, values)) <= _AT_ONCE.get(spelt, _NOTHING)


def _one_by_one(name: str, type_: str, values: list[Any], records: Sequence[int], bad: dict[int, DataError]) -> pa.Array:
    read: Read = reader(type_)
    made: list[Any] = []
    for value, record in zip(values, records, strict=True):
        try:
            made.append(None if value is None else read(value))
        except ValueError as error:
            made.append(None)
            bad.setdefault(record, column_error(name, type_, error))
    return pa.array(made, arrow_type(type_))


def arrow_type(type_: str) -> pa.DataType:
    """Returns the Arrow type for a spelling of `transforms.sql.plain_type`."""
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
    """Returns the conversion to this type, if it is lossless: a text is not a number, but any value has a text."""
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
    return _text(_json(value)) if text is None else text


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _whole(bound: int) -> Read:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _refuse(value)
        if not -bound <= value < bound:
            raise ValueError("is a number beyond it")
        return value

    return read


def _real(bound: float) -> Read:
    """Returns the conversion to a type in which finite numbers from `bound` on would become infinite."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise _refuse(value)
        try:
            found = float(value)
        except OverflowError:  # of an int
            found = math.inf
        if abs(found) >= bound and not (math.isinf(found) and found == value):
            raise ValueError("is a number beyond it")
        return found

    return read


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
            if abs(found.adjusted()) > MOST_EXPONENT:  # a thousand times as much ends the process
                raise ValueError  # noqa: TRY301 - as below
            pa.scalar(found, kind)
        except (pa.ArrowException, InvalidOperation, ValueError):
            raise ValueError("is a number with more digits than it holds") from None
        return found

    return read


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _refuse(value)
    return value


def _moment(value: object) -> datetime:
    """Reads a time with its zone; one without is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("is a text that is no RFC 3339 time") from None
    if not isinstance(value, datetime):
        raise _refuse(value)
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("is a time beyond it") from None


def _day(value: object) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise ValueError("is a text that is no date") from None
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
    "float": _real(2.0**128 - 2.0**103),
    "double": _real(math.inf),
    "date": _day,
    "timestamp": _moment,
    "timestamp_ntz": lambda value: _moment(value).replace(tzinfo=None),
    "binary": _bytes,
}


def column_error(name: str, type_: str, error: ValueError) -> DataError:
    """Returns the error for a record that the table cannot hold."""
    return DataError(f"field {name!r} {error}, and the query's table has it as {type_}", "correct sql.schema, or convert the field before")
