"""Column types, as definitions write them: they read values from text without loss, and have a type of Spark SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.model import FormatOptions
from copycat_agent.formats.records import field_values
from copycat_agent.formats.records.field_times import dates, times, timestamps
from copycat_agent.options import BeforeValidator, Field

__all__ = ["TYPE_WORDS", "FieldType", "TypeSettings", "TypeWord", "TypedOptions", "ZoneName", "field_type", "field_types"]

Read = Callable[[str], Any]
ReadAll = Callable[[list[str]], list[Any]]
Value = dict[str, Any] | bytes | Unparsed
"""Fields; bytes of a record without fields; or a bad record."""


class FieldType(NamedTuple):
    """Reads the texts of one column.

    `sql` is Spark's name of the resulting type. `read` raises ValueError that says why, in words without the text. `read_all` is fast for
    many texts; its ValueError has no meaning, one of them need not even be bad: call `read` for each of them then.
    """

    word: str
    sql: str
    read: Read
    read_all: ReadAll

    def read_each(self, texts: list[str]) -> list[Any]:
        """Returns the values of `texts`; a ValueError in place of each that is bad."""
        try:
            return self.read_all(texts)
        except (ValueError, ArithmeticError):
            return [self._value(text) for text in texts]

    def _value(self, text: str) -> Any:  # noqa: ANN401 - what a type makes
        try:
            return self.read(text)
        except ValueError as error:
            return error


class TypeSettings(NamedTuple):
    """Settings for all columns of a file. `zone`: of times without one of their own, "" leaves them without."""

    zone: str = ""
    decimal_point: str = "."


_Make = Callable[[str, TypeSettings], tuple[str, Read, ReadAll]]
"""From the argument after the word, "" for none, to (Spark's name, read, read_all). Raises ValueError for an invalid argument."""


def field_type(word: str, settings: TypeSettings | None = None) -> FieldType:
    """Returns the type that `word` names. Raises ValueError that says what is wrong with it."""
    name, argument = _parts(word)
    make = TYPE_WORDS.get(name)
    if make is None:
        msg = f"no type has this name; there are {', '.join(TYPE_WORDS)}"
        raise ValueError(msg + (f": here it is {_OF_OTHERS[name.lower()]}" if name.lower() in _OF_OTHERS else ""))
    return FieldType(word, *make(argument, settings or TypeSettings()))


def field_types(words: Mapping[str, str], settings: TypeSettings) -> dict[str, FieldType]:
    """Returns the types of columns by name; strings, which need no reading, are left out."""
    return {name: field_type(word, settings) for name, word in words.items() if word != "string"}


def _parts(word: str) -> tuple[str, str]:
    """Splits `decimal(10,2)` into (decimal, 10,2), and `timestamp:%H:%M` into (timestamp, %H:%M)."""
    if word.endswith(")") and "(" in word.partition(":")[0]:
        name, _, argument = word[:-1].partition("(")
        return name.strip(), argument
    name, _, argument = word.partition(":")
    return name.strip(), argument


def _plain(sql: str, read: Read, read_all: ReadAll) -> _Make:
    """Returns the maker of a type without an argument."""

    def make(argument: str, settings: TypeSettings) -> tuple[str, Read, ReadAll]:
        del settings
        if argument:
            raise ValueError("nothing can stand behind this type")
        return sql, read, read_all

    return make


def _pointed(make: Callable[[str], tuple[str, Read, ReadAll]]) -> _Make:
    """Returns the maker of a type of numbers whose texts may have another decimal point."""

    def with_point(argument: str, settings: TypeSettings) -> tuple[str, Read, ReadAll]:
        sql, read, read_all = make(argument)
        if settings.decimal_point == ".":
            return sql, read, read_all
        return sql, field_values.with_comma(read), field_values.all_with_comma(read_all)

    return with_point


def _zoned(make: Callable[[str, str], tuple[str, Read, ReadAll]]) -> _Make:
    return lambda argument, settings: make(argument, settings.zone)


TYPE_WORDS: dict[str, _Make] = {
    "string": _plain("string", str, list),
    "int": _plain("bigint", field_values.whole, field_values.all_whole),
    "bigint": _plain("bigint", field_values.bigint, field_values.all_bigint),
    "float": _pointed(field_values.doubles),
    "double": _pointed(field_values.doubles),
    "decimal": _pointed(field_values.decimals),
    "bool": lambda argument, _: field_values.booleans(argument),
    "date": lambda argument, _: dates(argument),
    "time": lambda argument, _: times(argument),
    "timestamp": _zoned(timestamps),
    "json": _plain("variant", field_values.json_value, field_values.all_json),
    "binary": lambda argument, _: field_values.binaries(argument),
}
"""The makers of types by word. A new type is a line here."""
_OF_OTHERS = {
    **{word: word for word in TYPE_WORDS},
    **dict.fromkeys(("integer", "int8", "int16", "int32", "uint", "smallint", "number"), "int"),
    **dict.fromkeys(("long", "int64"), "bigint"),
    **dict.fromkeys(("float32", "float64", "real"), "double"),
    "boolean": "bool",
    **dict.fromkeys(("str", "text", "varchar", "keyword"), "string"),
    **dict.fromkeys(("datetime", "timestamptz"), "timestamp"),
    "bytes": "binary",
    **dict.fromkeys(("object", "map", "struct"), "json"),
}
"""Names in other programs, for a hint."""


@lru_cache(maxsize=64)
def _checked(word: str) -> str:
    field_type(word)
    return word


def _type_word(word: object) -> object:
    return _checked(word) if isinstance(word, str) else word


def _zone_name(name: object) -> object:
    """Checks that Python finds the time zone."""
    if isinstance(name, str):
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("no time zone has this name; write one such as UTC or Europe/Berlin") from None
    return name


TypeWord = Annotated[str, BeforeValidator(_type_word)]
"""The type of a column, see `field_type`."""
ZoneName = Annotated[str, BeforeValidator(_zone_name)]
"""A time zone by its name."""


class TypedOptions(FormatOptions):
    """Base of the options of formats with columns or fields of text."""

    timestamp_zone: ZoneName | None = Field(
        None, description="Time zone of timestamps that do not say theirs, such as UTC or Europe/Berlin. Absent: they stay without one."
    )
    decimal_point: str = Field(".", pattern="^[.,]$", description='"," for numbers such as 3,50.')

    def type_settings(self) -> TypeSettings:
        """Returns these options as settings of types."""
        return TypeSettings(self.timestamp_zone or "", self.decimal_point)


class TreeOptions(TypedOptions):
    """Base of the options of formats with nested fields."""

    types: dict[str, TypeWord] = Field(
        {}, description="Types of fields, by name: {price: decimal, paid.at: timestamp}. Dots lead into objects, and through lists."
    )


class Typing:
    """Reads the fields that have a type. Missing and null fields stay so."""

    def __init__(self, options: TreeOptions) -> None:
        settings = options.type_settings()
        self._types = [(name, name.split("."), field_type(word, settings).read) for name, word in options.types.items()]

    @property
    def changes(self) -> bool:
        """Returns whether any field has a type."""
        return bool(self._types)

    def read(self, values: Sequence[Value]) -> Sequence[Value]:
        """Returns the records with these types, changed in place; an `Unparsed` instead of a record with an invalid value."""
        return [self._one(value) if isinstance(value, dict) else value for value in values] if self._types else values

    def _one(self, fields: dict[str, Any]) -> Value:
        for name, keys, read in self._types:
            try:
                _convert(fields, keys, read)
            except ValueError as error:
                return Unparsed(f"field {name!r}: {error}", "see format.types")
            except RecursionError:
                return Unparsed(f"field {name!r}: lists that are nested too deeply", "see format.types")
        return fields


def _convert(fields: object, keys: list[str], read: Callable[[str], Any]) -> None:
    """Reads the values at the end of `keys`, everywhere in `fields`. Raises ValueError without the data."""
    first, *rest = keys
    if isinstance(fields, list):
        for item in fields:
            _convert(item, keys, read)
    elif isinstance(fields, dict) and fields.get(first) is not None:
        value = fields[first]
        if rest:
            _convert(value, rest, read)
        else:
            fields[first] = [_read(item, read) for item in value] if isinstance(value, list) else _read(value, read)


def _read(value: object, read: Callable[[str], Any]) -> Any:  # noqa: ANN401 - what the type makes
    if value is None:
        return None
    if isinstance(value, bool):
        return read("true" if value else "false")
    if isinstance(value, str | int | float | Decimal):
        return read(str(value))
    raise ValueError("neither a text, a number nor a boolean")
