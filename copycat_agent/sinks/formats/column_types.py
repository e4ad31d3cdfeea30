"""Determines the type of a column from its values, and whether further values fit it. Types are those of Spark SQL.

A column that a schema declares keeps its type, and accepts what the avro converter accepts for it: RFC 3339 text for a time, say. A
column without a declared type *grows*: its first value that is not null determines the type. Later values may turn a `bigint` into a
`double` or `decimal`, and add digits after the point to a decimal, fields to an object, and a type to the items of a list that was empty.
Everything else does not fit. Nothing is rounded, except to the nearest `float`.

Fitted values are as pyarrow and the Avro writers take them for their type: times may be counts of microseconds or days.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Context, Decimal
from itertools import chain
from types import NoneType
from typing import Any, NamedTuple

from copycat_agent.converters.avro_numbers import unscaled
from copycat_agent.converters.base import UnfitValueError, wanted
from copycat_agent.converters.plain import dump
from copycat_agent.converters.schema_forms import clock_micros_of, days_of, local_micros_of, micros_of
from copycat_agent.errors import DataError
from copycat_agent.sql_types import SqlType

VOID = SqlType("void")
"""The type of columns that are null so far."""
STRING = SqlType("string")
ROW = SqlType("struct")
"""The type of objects without fields so far."""
Types = Mapping[str, SqlType]
"""The types of columns, by their names."""

LEAVES_MAX = 2000
"""Most columns of rows, the fields of objects included: objects with names made from data would add ever more."""
_DEPTH_MAX = 40
_DIGITS = 38
_EXACT_DOUBLE = 2**53
_FLOAT_END = 3.4028235677973366e38
"""From this number on, the nearest float is an infinity."""
_WHOLE = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
_MICROS_DIGITS = 6
_MILLI = 1000
_PRECISE = Context(prec=_DIGITS)
_SLOT_BYTES = 8
_OBJECT_BYTES: dict[type, int] = {int: 32, float: 24, str: 57, bytes: 40, Decimal: 104, datetime: 48, date: 32, time: 40}
_DICT_BYTES, _LIST_BYTES = 232, 72


class FittedColumn(NamedTuple):
    """The type that a column has now, its values for that type, and about how much memory they take."""

    type: SqlType
    values: Sequence[Any]
    size_bytes: int


class _ColumnValues(NamedTuple):
    """The values of a column; `present` are those that are not null, `kinds` their types."""

    values: Sequence[Any]
    present: Sequence[Any]
    kinds: set[type]
    grows: bool
    depth: int

    def replaced(self, present: Iterable[Any]) -> Sequence[Any]:
        """Returns the values, with those that are not null replaced by the items of `present`."""
        if len(self.present) == len(self.values):
            return list(present)
        others = iter(present)
        return [None if value is None else next(others) for value in self.values]

    def mapped(self, convert: Callable[[Any], Any]) -> Sequence[Any]:
        return self.replaced(map(convert, self.present))

    def only(self, what: str, *kinds: type) -> None:
        """Raises UnfitValueError for a value of another type."""
        if not self.kinds.issubset(kinds):
            raise wanted(what, next(value for value in self.present if type(value) not in kinds))

    def within(self, values: Sequence[Any], type_: SqlType) -> FittedColumn:
        return fitted(type_, values, grows=self.grows, depth=self.depth + 1)


def fitted(type_: SqlType, values: Sequence[Any], *, grows: bool, depth: int = 0) -> FittedColumn:
    """Returns type and values of a column that has `type_` so far, with these values. Raises UnfitValueError if one does not fit."""
    if depth > _DEPTH_MAX:
        raise UnfitValueError(f"objects and lists are nested deeper than {_DEPTH_MAX}")
    kinds = set(map(type, values))
    slots = _SLOT_BYTES * len(values)
    present = values
    if kinds <= {NoneType}:
        return FittedColumn(type_, values, slots)
    if NoneType in kinds:
        kinds.discard(NoneType)
        present = [value for value in values if value is not None]
    if grows:
        type_ = _grown(type_, present, kinds)
    rule = _RULES.get(type_.word, _json_text)
    found = rule(type_, _ColumnValues(values, present, kinds, grows, depth))
    return FittedColumn(found.type, found.values, found.size_bytes + slots)


def _grown(type_: SqlType, present: Sequence[Any], kinds: set[type]) -> SqlType:
    if type_.word == "void":
        first = type(present[0])
        if first is datetime:
            return SqlType("timestamp" if present[0].tzinfo else "timestamp_ntz")
        if first not in _FIRST:
            raise wanted("a value that JSON or a schema can have", present[0])
        type_ = _FIRST[first]
    if type_.word == "bigint":
        type_ = SqlType("double") if float in kinds else SqlType("decimal", (_DIGITS, 0)) if Decimal in kinds else type_
    return type_


_FIRST = {
    bool: SqlType("boolean"), int: SqlType("bigint"), float: SqlType("double"), str: STRING, bytes: SqlType("binary"),
    date: SqlType("date"), time: SqlType("time", (6,)), Decimal: SqlType("decimal", (_DIGITS, 0)), dict: ROW,
    list: SqlType("array", (), (("", VOID),)), tuple: SqlType("array", (), (("", VOID),)),
}  # fmt: skip


def _null(_: SqlType, column: _ColumnValues) -> FittedColumn:
    raise wanted("null", column.present[0])


def _boolean(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    column.only("true or false", bool)
    return FittedColumn(type_, column.values, 0)


def _whole(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    column.only("a whole number", int)
    end = _WHOLE[type_.word]
    if min(column.present) < -end or max(column.present) >= end:
        raise UnfitValueError(f"the number is beyond the {end.bit_length()} bits of {type_.word}")
    return FittedColumn(type_, column.values, _OBJECT_BYTES[int] * len(column.present))


def _double(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    column.only("a number", float, int)
    values = column.values
    if int in column.kinds:
        if any(type(value) is int and not -_EXACT_DOUBLE <= value <= _EXACT_DOUBLE for value in column.present):
            raise UnfitValueError("the number has more digits than double holds")
        values = column.mapped(float)
    return FittedColumn(type_, values, _OBJECT_BYTES[float] * len(column.present))


def _float(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    found = _double(type_, column)
    if any(_FLOAT_END <= abs(value) < float("inf") for value in column.present):
        raise UnfitValueError("the number is beyond what float holds")
    return found


def _decimal(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    precision, scale = (*type_.numbers, 0)[:2] if type_.numbers else (10, 0)
    if column.grows:
        column.only("a decimal number", Decimal, int)
        if any(type(value) is int and not -_WHOLE["bigint"] <= value < _WHOLE["bigint"] for value in column.present):
            raise UnfitValueError("the number is beyond the 64 bits of bigint")  # as where no decimal came before it
        scale = max(scale, *(_scale(value) for value in column.present)) if Decimal in column.kinds else scale
    whole = (unscaled(value, precision, scale) for value in column.present)
    values = column.replaced(Decimal(number).scaleb(-scale, _PRECISE) for number in whole)
    return FittedColumn(SqlType("decimal", (precision, scale)), values, _OBJECT_BYTES[Decimal] * len(column.present))


def _scale(value: Decimal | int) -> int:
    """Returns the digits after the point, trailing zeros included unless those are too many."""
    if isinstance(value, int) or not value.is_finite():
        return 0
    exponent = value.as_tuple().exponent
    if -exponent > _DIGITS:  # type: ignore[operator] # of a finite number
        exponent = value.normalize(_PRECISE).as_tuple().exponent
    return min(max(0, -exponent), _DIGITS)  # type: ignore[operator]


def _string(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    column.only("text", str)
    return FittedColumn(type_, column.values, text_bytes(column.present))


def text_bytes(texts: Sequence[str]) -> int:
    """Returns about how much memory texts take. Raises UnfitValueError for text that UTF-8 cannot encode."""
    text = "".join(texts)
    size = len(text)
    if not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise UnfitValueError("the text holds half of a character, which UTF-8 cannot") from None
    return size + _OBJECT_BYTES[str] * len(texts)


def _binary(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    column.only("bytes", bytes)
    return FittedColumn(type_, column.values, sum(map(len, column.present)) + _OBJECT_BYTES[bytes] * len(column.present))


def _date(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    values = column.values
    if column.kinds != {date}:
        values = column.mapped(_read(days_of, column.grows, "a date", date))
    return FittedColumn(type_, values, _OBJECT_BYTES[date] * len(column.present))


def _time(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    digits = type_.numbers[0] if type_.numbers else _MICROS_DIGITS

    def clock(value: object) -> time:
        count = clock_micros_of(value)
        if digits < _MICROS_DIGITS and count % _MILLI:
            raise UnfitValueError("the time has digits behind the millisecond")
        return value if isinstance(value, time) else time.fromisoformat(value)  # type: ignore[arg-type]

    read = _read(clock, column.grows, "a time of day", time)
    return FittedColumn(type_, column.mapped(read), _OBJECT_BYTES[time] * len(column.present))


def _timestamp(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    values, is_utc = column.values, type_.word == "timestamp"
    if column.kinds != {datetime} or any((value.tzinfo is not None) is not is_utc for value in column.present):
        values = column.mapped(_read(_exact(micros_of if is_utc else local_micros_of), column.grows, "a time", datetime))
    return FittedColumn(type_, values, _OBJECT_BYTES[datetime] * len(column.present))


def _exact(count: Callable[[object], int]) -> Callable[[object], int]:
    def micros(value: object) -> int:
        if isinstance(value, str) and (finer := value.partition(".")[2][_MICROS_DIGITS:]) and finer[:1].isdigit() and finer.strip("0Z"):
            raise UnfitValueError("the time has digits behind the microsecond")
        return count(value)

    return micros


def _read(count: Callable[[Any], Any], grows: bool, what: str, kind_: type) -> Callable[[Any], Any]:  # noqa: FBT001
    """Returns `count`, for a growing column limited to values of `kind_`: text is a time only where a schema says so."""

    def read(value: object) -> Any:  # noqa: ANN401 - a count or a time
        if grows and type(value) is not kind_:
            raise wanted(what, value)
        return count(value)

    return read


def _json_text(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    """Fits values of any type as JSON text: Spark has `variant` for them, other readers have nothing."""
    try:
        values = column.mapped(lambda value: dump(value).decode())
    except DataError as error:
        raise UnfitValueError(error.message) from None
    return FittedColumn(type_, values, text_bytes([value for value in values if value is not None]))


def _array(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    column.only("a list", list, tuple)
    flat = list(chain.from_iterable(column.present))
    try:
        found = column.within(flat, type_.parts[0][1])
    except UnfitValueError as unfit:
        raise unfit.within("[]") from None
    values = column.values
    if found.values is not flat:
        parts = iter(found.values)
        values = column.mapped(lambda one: [next(parts) for _ in one])
    return FittedColumn(SqlType("array", (), (("", found.type),)), values, found.size_bytes + _LIST_BYTES * len(column.present))


def _map(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    """Fits maps: a dict, or a list of {key, value} for keys that are not text, as the readers here return them."""
    (_, key_type), (_, value_type) = type_.parts
    is_dict = key_type.word == "string"
    if is_dict:
        column.only("an object", dict)
        maps = [list(one.items()) for one in column.present]
    else:
        column.only("a list of key and value", list)
        maps = [[_entry(entry) for entry in one] for one in column.present]
    pairs = list(chain.from_iterable(maps))
    keys, inner = column.within([key for key, _ in pairs], key_type), column.within([value for _, value in pairs], value_type)
    if None in keys.values:
        raise wanted("a key", None)
    each = zip(keys.values, inner.values, strict=True)
    made = [[next(each) for _ in one] for one in maps]
    values = column.replaced(
        [dict(one) for one in made] if is_dict else [[{"key": key, "value": value} for key, value in one] for one in made]
    )
    return FittedColumn(type_, values, keys.size_bytes + inner.size_bytes + _DICT_BYTES * len(maps))


def _entry(entry: object) -> tuple[Any, Any]:
    if not isinstance(entry, dict) or entry.keys() != {"key", "value"}:
        raise wanted("a key and a value", entry)
    return entry["key"], entry["value"]


def _struct(type_: SqlType, column: _ColumnValues) -> FittedColumn:
    column.only("an object", dict)
    columns = transposed(dict(type_.parts), column.present, grows=column.grows)
    parts, size, changed = [], 0, False
    for name, (part, values) in columns.items():
        try:
            found = column.within(values, part)
        except UnfitValueError as unfit:
            raise unfit.within(name) from None
        parts.append((name, found.type))
        size += found.size_bytes
        if found.values is not values:
            changed, columns[name] = True, (part, found.values)
    rows = column.values
    if changed:
        names = list(columns)
        rows = column.replaced(dict(zip(names, row, strict=True)) for row in zip(*(values for _, values in columns.values()), strict=True))
    return FittedColumn(SqlType("struct", (), tuple(parts)), rows, size + _DICT_BYTES * len(column.present))


def transposed(types: Types, rows: Sequence[dict[str, Any]], *, grows: bool) -> dict[str, tuple[SqlType, Sequence[Any]]]:
    """Returns the types and values of columns, new ones last. Raises UnfitValueError for new ones unless the columns grow."""
    names = list(types)
    if set(map(len, rows)) == {len(names)}:
        with contextlib.suppress(KeyError):
            return {name: (type_, [row[name] for row in rows]) for name, type_ in types.items()}
    extra = [name for name in dict.fromkeys(chain.from_iterable(rows)) if name not in types]
    if extra and not grows:
        raise UnfitValueError("the schema has no such field").within(str(extra[0]))
    if extra and len(names) + len(extra) > LEAVES_MAX:
        raise too_many_columns()
    for name in extra:
        _check_name(name)
    return {name: (types.get(name, VOID), [row.get(name) for row in rows]) for name in [*names, *extra]}


class SpellingClashError(UnfitValueError):
    """A field's name differs only in case from another one of its level: Spark reads no such table, unless it is told to mind case."""


def check_spelling(columns: Iterable[tuple[str, SqlType]]) -> None:
    """Raises SpellingClashError for columns, or fields within one, whose names differ only in case."""
    names: set[str] = set()
    for name, type_ in columns:
        if name.lower() in names:
            raise SpellingClashError("another field's name differs only in case, so Spark could not read the file").within(name)
        names.add(name.lower())
        try:
            _check_spelling_within(type_)
        except SpellingClashError as clash:
            raise clash.within(name) from None


def _check_spelling_within(type_: SqlType) -> None:
    if type_.word == "struct":
        check_spelling(type_.parts)
    else:
        for _, part in type_.parts:
            _check_spelling_within(part)


def too_many_columns() -> UnfitValueError:
    """Returns the error for rows with more columns than `LEAVES_MAX`."""
    return UnfitValueError(f"the records would have more than {LEAVES_MAX} columns")


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise wanted("a text for a field's name", name)
    text_bytes([name])


_RULES: dict[str, Callable[[SqlType, _ColumnValues], FittedColumn]] = {
    "void": _null, "boolean": _boolean, "tinyint": _whole, "smallint": _whole, "int": _whole, "bigint": _whole, "float": _float,
    "double": _double, "decimal": _decimal, "string": _string, "binary": _binary, "date": _date, "time": _time, "timestamp": _timestamp,
    "timestamp_ntz": _timestamp, "array": _array, "map": _map, "struct": _struct,
}  # fmt: skip

WORDS = _RULES.keys()
"""The names of all types that files have. Values of other types are stored as JSON text."""
