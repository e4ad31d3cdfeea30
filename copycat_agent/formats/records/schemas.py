"""Types of Avro and Arrow in Spark SQL's spelling, and dates and times from the counts in binary formats.

Values that Python's own types cannot hold exactly become ISO 8601 text, never rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from copycat_agent.model import Column
from copycat_agent.sql_types import struct_of

if TYPE_CHECKING:
    import pyarrow as pa

_DAY = 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICRO = 10**6
_MARCH_TO_DECEMBER = 10
AvroType = str | list[Any] | dict[str, Any]
"""An Avro schema, as in JSON."""

ANY = "variant"
"""The type of values of more than one type, or of a type that contains itself."""

LETTERS_MAX = 2**18
"""The most letters of names in the types of one schema: a schema of 2 kB that names its types twice has more than memory holds."""
_DIGITS = 38

_AVRO = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "fixed": "binary",
    "enum": "string",
}
_AVRO_LOGICAL = {
    "date": "date",
    "time-millis": "time(3)",
    "time-micros": "time(6)",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "timestamp-nanos": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "local-timestamp-nanos": "timestamp_ntz",
    "uuid": "string",
}
_WIDER = ({"int", "bigint"}, "bigint"), ({"float", "double"}, "double")

_ARROW = {
    "null": "void",
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "halffloat": "float",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "string_view": "string",
    "date32[day]": "date",
    "date64[ms]": "date",
    "time32[s]": "time(0)",
    "time32[ms]": "time(3)",
    "time64[us]": "time(6)",
    "time64[ns]": "time(6)",
}


def moments(per_second: int, *, utc: bool) -> Callable[[int], datetime | str]:
    """Returns a function from a count of parts of a second since 1970 to a datetime; `utc` gives it a zone, else it has none.

    The result is text if a datetime cannot hold it: digits after the microsecond, years before 1 or after 9999.
    """
    epoch = datetime(1970, 1, 1, tzinfo=UTC if utc else None)
    zone = "+00:00" if utc else ""

    def of(count: int) -> datetime | str:
        micros, finer = divmod(count * _MICRO, per_second)
        if not finer:
            try:
                return epoch + timedelta(microseconds=micros)
            except OverflowError:
                pass
        days, rest = divmod(count, _DAY * per_second)
        return f"{_day_text(days)}T{_clock_text(rest, per_second)}{zone}"

    return of


def day(days: int) -> date | str:
    """Returns the date this many days after 1970-01-01; text for years before 1 or after 9999."""
    ordinal = _EPOCH_DAY + days
    return date.fromordinal(ordinal) if 1 <= ordinal <= date.max.toordinal() else _day_text(days)


def clocks(per_second: int) -> Callable[[int], time | str]:
    """Returns a function from a count of parts of a second since midnight to the time of day.

    The result is text if a time cannot hold it: digits after the microsecond, more than a day.
    """

    def of(count: int) -> time | str:
        micros, finer = divmod(count * _MICRO, per_second)
        if finer or not 0 <= micros < _DAY * _MICRO:
            return _clock_text(count, per_second)
        seconds, micros = divmod(micros, _MICRO)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)

    return of


def _clock_text(count: int, per_second: int) -> str:
    seconds, part = divmod(count, per_second)
    digits = len(str(per_second)) - 1
    fraction = f".{part:0{digits}d}" if part else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def _day_text(days: int) -> str:
    """Returns the proleptic Gregorian date. Howard Hinnant's `civil_from_days`: eras of 400 years that begin on March 1."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    is_next_year = shifted >= _MARCH_TO_DECEMBER
    month = shifted - 9 if is_next_year else shifted + 3
    year = year_of_era + era * 400 + is_next_year
    text = f"{year:04d}" if 0 <= year <= date.max.year else f"{year:+05d}"
    return f"{text}-{month:02d}-{day_of_year - (153 * shifted + 2) // 5 + 1:02d}"


def avro_columns(schema: AvroType, named: Mapping[str, Any], is_read: Callable[[dict[str, Any]], bool]) -> tuple[Column, ...]:
    """Returns the columns of a parsed Avro schema: its fields, or one named `value` if it is not a record.

    `named` are its named types by full name; `is_read` returns whether a logical type is understood, else its underlying type counts.
    Columns of records that would have more than `LETTERS_MAX` letters of names, with those before them, are `ANY`.
    """
    types = _AvroTypes(named, is_read)
    if isinstance(schema, dict) and schema["type"] in ("record", "error"):
        return tuple(types.column(field["name"], field["type"]) for field in schema["fields"])
    return (types.column("value", schema),)


class _TooLongError(Exception):
    pass


class _AvroTypes:
    def __init__(self, named: Mapping[str, Any], is_read: Callable[[dict[str, Any]], bool]) -> None:
        self._named = named
        self._is_read = is_read
        self._within: list[str] = []
        self._letters = 0

    def column(self, name: str, schema: AvroType) -> Column:
        nullable = schema == "null" or (isinstance(schema, list) and "null" in schema)
        try:
            return Column(name, self.of(schema), nullable)
        except _TooLongError:
            self._within.clear()
            return Column(name, ANY, nullable)

    def of(self, schema: AvroType) -> str:  # noqa: PLR0911 - a table of kinds
        if isinstance(schema, list):
            return self._union({self.of(branch) for branch in schema if branch != "null"})
        if isinstance(schema, str):
            return _AVRO[schema] if schema in _AVRO else self._once(schema)
        type_ = schema["type"]
        if isinstance(type_, dict | list):
            return self.of(type_)
        if "logicalType" in schema and self._is_read(schema):
            return self._logical(schema)
        if type_ == "array":
            return f"array<{self.of(schema['items'])}>"
        if type_ == "map":
            return f"map<string, {self.of(schema['values'])}>"
        if type_ in ("record", "error"):
            return self._once(schema["name"])
        return _AVRO[type_] if type_ in _AVRO else self._once(type_)

    def _once(self, name: str) -> str:
        """Returns a named type; `ANY` inside itself, which Spark cannot express."""
        schema = self._named[name]
        if schema["type"] not in ("record", "error"):
            return self.of(schema)
        if name in self._within:
            return ANY
        self._letters += sum(len(field["name"]) + 1 for field in schema["fields"])
        if self._letters > LETTERS_MAX:
            raise _TooLongError
        self._within.append(name)
        fields = struct_of((field["name"], self.of(field["type"])) for field in schema["fields"])
        self._within.pop()
        return fields

    @staticmethod
    def _union(types: set[str]) -> str:
        if not types:
            return "void"
        for several, wide in _WIDER:
            if types == several:
                return wide
        return types.pop() if len(types) == 1 else ANY

    @staticmethod
    def _logical(schema: dict[str, Any]) -> str:
        logical = schema["logicalType"]
        return decimal(schema["precision"], schema.get("scale", 0)) if logical == "decimal" else _AVRO_LOGICAL[logical]


def decimal(precision: int, scale: int) -> str:
    """Returns Spark's decimal type, which has a limited number of digits; `ANY` for larger ones."""
    return f"decimal({precision},{scale})" if 0 < precision <= _DIGITS and 0 <= scale <= precision else ANY


def arrow_columns(schema: pa.Schema) -> tuple[Column, ...]:
    """Returns the columns of an Arrow schema."""
    return tuple(Column(field.name, arrow_type(field.type), field.nullable) for field in schema)


def arrow_type(type_: pa.DataType) -> str:  # noqa: PLR0911 - a table of kinds
    """Returns one Arrow type."""
    kind = type_.__class__.__name__
    if hasattr(type_, "storage_type"):
        return "string" if type_.extension_name == "arrow.uuid" else arrow_type(type_.storage_type)
    if kind == "DictionaryType":
        return arrow_type(type_.value_type)
    if kind.startswith("Decimal"):
        return decimal(type_.precision, type_.scale)
    if kind == "TimestampType":
        return "timestamp" if type_.tz else "timestamp_ntz"
    if kind == "DurationType":
        return "bigint"
    if kind == "StructType":
        return struct_of((type_.field(index).name, arrow_type(type_.field(index).type)) for index in range(type_.num_fields))
    if kind == "MapType":
        return f"map<{arrow_type(type_.key_type)}, {arrow_type(type_.item_type)}>"
    if "List" in kind:
        return f"array<{arrow_type(type_.value_type)}>"
    return _ARROW.get(str(type_), "binary")
