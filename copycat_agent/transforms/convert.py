"""`convert` changes types of fields. Missing and null fields stay so; all that can be are converted before a bad one is reported.

Texts are read as formats read them (`field_type`). Other values first become what they mean, then the type, exactly; a conversion with a
loss is refused, except for digits of a `double`, which is the nearest one. Error messages never hold the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NoReturn

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.formats.records.field_types import TypeSettings, TypeWord, ZoneName, field_type
from copycat_agent.options import Field
from copycat_agent.templates import scalar_text
from copycat_agent.transforms.base import Columns, Steady, Step, StepOptions, Transform, TransformKind, known
from copycat_agent.transforms.paths import FieldName, changing, type_at, with_type

Cast = Callable[[Any], Any]
"""Converts a value that is not null. Raises ValueError; other errors are bugs."""

_LEAST, _GREATEST = -(2**63), 2**63 - 1
FAST_DIGITS = 18
"""This many digits always fit into 64 bits."""
_DIGITS_OF = {"unix": 6, "unix_ms": 3, "unix_us": 0}
"""Decimal digits from the unit to microseconds."""
_FAR = 10**18
_MOST_DIGITS = 4000
"""Python converts no whole numbers of more than 4300 digits to text."""


def caster(word: str, settings: TypeSettings | None = None) -> Cast:
    """Returns the cast to the type that `word` names; see `field_type`, whose ValueErrors it raises."""
    kind = field_type(word, settings)
    name = word.partition(":")[0].partition("(")[0].strip()
    make = _MAKERS.get(name)
    return make(kind.read, word) if make else lambda value: _read_text(value, kind.read, word)


def _whole(read: Cast, word: str) -> Cast:
    is_big = word == "bigint"

    def whole(value: object) -> int:
        if type(value) is str:
            if len(value) <= FAST_DIGITS and value.isdecimal() and value.isascii():
                return int(value)
            return read(value)  # type: ignore[no-any-return]
        number = _as_whole(value)
        if is_big and not _LEAST <= number <= _GREATEST:
            _refuse("a whole number that 64 bits do not hold")
        return number

    return whole


def _as_whole(value: object) -> int:
    if isinstance(value, int):  # true is 1
        return int(value)
    if not isinstance(value, float | Decimal) or not _is_finite(value):
        _refuse(f"{_kind(value)}, not a whole number")
    if isinstance(value, Decimal) and value.adjusted() > _MOST_DIGITS:
        _refuse("a whole number with more digits than can be read")
    if value != (number := int(value)):
        _refuse("a number with a fraction")
    return number


def _is_finite(value: float | Decimal) -> bool:
    return value.is_finite() if isinstance(value, Decimal) else isinstance(value, int) or math.isfinite(value)


def _double(read: Cast, _: str) -> Cast:
    def double(value: object) -> float:
        if isinstance(value, str):
            return read(value)  # type: ignore[no-any-return]
        if isinstance(value, int | float | Decimal):
            try:
                number = float(value)
            except (OverflowError, ValueError):
                _refuse("a number too large for a double")
            if math.isinf(number) and _is_finite(value):
                _refuse("a number too large for a double")
            return number
        _refuse(f"{_kind(value)}, not a number")

    return double


def _decimal(read: Cast, _: str) -> Cast:
    def decimal(value: object) -> Decimal:
        if isinstance(value, str):
            return read(value)  # type: ignore[no-any-return]
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            _refuse(f"{_kind(value)}, not a decimal number")
        return read(_number_text(value))  # type: ignore[no-any-return]

    return decimal


def _boolean(read: Cast, _: str) -> Cast:
    def boolean(value: object) -> bool:
        if isinstance(value, str):
            return read(value)  # type: ignore[no-any-return]
        if isinstance(value, bool):
            return value
        if not isinstance(value, int | float | Decimal):
            _refuse(f"{_kind(value)}, not true or false")
        if not _is_finite(value) or value not in (0, 1):
            _refuse("a number other than 0 and 1")
        return bool(value)

    return boolean


def _string(_read: Cast, _word: str) -> Cast:
    def string(value: object) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            return _utf8(value)
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return _number_text(value)
        text = scalar_text(value)
        if text is None:
            _refuse(f"{_kind(value)}, not one value")
        return text

    return string


def _date(read: Cast, _: str) -> Cast:
    def day(value: object) -> date:
        if isinstance(value, datetime):
            _refuse("a timestamp, of which a date would keep only a part")
        return value if isinstance(value, date) else _read_text(value, read, "a date")

    return day


def _own(kind: type, words: str) -> Callable[[Cast, str], Cast]:
    """Returns the cast to a type whose own values stay as they are; of other values it takes texts."""
    return lambda read, _: lambda value: value if isinstance(value, kind) else _read_text(value, read, words)


def _timestamp(read: Cast, word: str) -> Cast:
    unit = word.partition(":")[2]
    digits = _DIGITS_OF.get(unit)

    def timestamp(value: object) -> Any:  # noqa: ANN401 - what the type makes
        if isinstance(value, datetime):  # one without a zone is read like its text
            return value if value.tzinfo is not None or unit else read(value.isoformat())
        if digits is not None and isinstance(value, float | Decimal):
            return read(_count_text(value, digits))
        return _read_text(value, read, "a timestamp")

    return timestamp


def _count_text(value: float | Decimal, digits: int) -> str:
    """Returns a count since 1970 as text. A float means the nearest microsecond: 1732165200.123 is no exact binary number."""
    if not (_is_finite(value) and -_FAR < value < _FAR):
        _refuse("a time outside of the years 1 to 9999")
    return f"{value:f}" if isinstance(value, Decimal) else f"{value:.{digits}f}"


def _json(read: Cast, _: str) -> Cast:
    return lambda value: read(_utf8(value) if isinstance(value, bytes) else value) if isinstance(value, str | bytes) else value


def _read_text(value: object, read: Cast, wanted: str) -> Any:  # noqa: ANN401 - what the type makes
    """Reads texts, and whole numbers as they are written: 20261121 may be a date."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        _refuse(f"{_kind(value)}, not {wanted}")
    return read(value if isinstance(value, str) else _number_text(value))


def _number_text(value: float | Decimal) -> str:
    if isinstance(value, int) and value.bit_length() > 3 * _MOST_DIGITS:
        _refuse("a number with more digits than can be written")
    return str(value)


def _utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        _refuse("bytes that are not UTF-8")


def _kind(value: object) -> str:
    """Returns the kind of a value, in words."""
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "a boolean"), (int, "a number"), (float, "a number"), (Decimal, "a number"), (str, "a text"), (bytes, "bytes"),
        (datetime, "a timestamp"), (date, "a date"), (time, "a time"), (dict, "an object"), (list, "a list"), (tuple, "a list"),
    )  # fmt: skip
    return next((words for kind, words in kinds if isinstance(value, kind)), "something else")


def _refuse(why: str) -> NoReturn:
    raise ValueError(why) from None


_MAKERS: dict[str, Callable[[Cast, str], Cast]] = {
    "string": _string,
    "int": _whole,
    "bigint": _whole,
    "float": _double,
    "double": _double,
    "decimal": _decimal,
    "bool": _boolean,
    "date": _date,
    "time": _own(time, "a time"),
    "timestamp": _timestamp,
    "json": _json,
    "binary": _own(bytes, "bytes"),
}
"""The cast for each word of `field_type`; a type that is not listed takes only texts."""


_HINT = "correct the type in convert, say with `null` which texts stand for nothing, or set on_error"


class ConvertOptions(StepOptions):
    """Fields of other types."""

    convert: dict[FieldName, TypeWord] = Field(
        min_length=1,
        description="Types of fields, by their names: {status: int, user.age: int}. Types are those of csv: string, int, bigint, double "
        "(or float), decimal, decimal(10,2), bool, bool:YES/NO, date, time, timestamp, json, binary; date, time and timestamp with a "
        "format as in timestamp:%d.%m.%Y %H:%M, or timestamp:unix. A missing field stays missing, null stays null.",
    )
    null: str | tuple[str, ...] = Field((), description='Text, or texts, that become null, such as "-". None by default.')
    timestamp_zone: ZoneName | None = Field(
        None, description="Time zone of timestamps that do not say theirs, such as UTC or Europe/Berlin. Absent: they stay without one."
    )
    decimal_point: str = Field(".", pattern="^[.,]$", description='"," for texts such as 3,50.')

    @property
    def settings(self) -> TypeSettings:
        """Returns these options as settings of types."""
        return TypeSettings(self.timestamp_zone or "", self.decimal_point)


def _build(options: ConvertOptions) -> Transform:
    nulls = frozenset((options.null,) if isinstance(options.null, str) else options.null)
    casts = {name: _with_nulls(caster(word, options.settings), nulls) for name, word in options.convert.items()}
    if any("." in name for name in casts):
        return Steady(changing({name: _named(name, cast) for name, cast in casts.items()}))
    whole = frozenset(name for name, word in options.convert.items() if word in ("int", "bigint") and not any(map(str.isdecimal, nulls)))
    return Steady(_flat(casts, whole))


def _with_nulls(cast: Cast, nulls: frozenset[str]) -> Cast:
    if not nulls:
        return cast

    def cast_or_null(value: object) -> Any:  # noqa: ANN401 - what a type makes
        return None if isinstance(value, str) and value in nulls else cast(value)

    return cast_or_null


def _flat(casts: dict[str, Cast], whole: frozenset[str]) -> Step:
    """Returns the step for top-level fields. `whole` are those that become whole numbers; it reads their digits itself, for speed."""
    items = [(name, cast, name in whole) for name, cast in casts.items()]

    def convert(draft: Draft) -> bool:
        fields = draft.value
        if type(fields) is not dict:
            fields = draft.fields()
        bad = None
        for name, cast, is_whole in items:
            value = fields.get(name)
            if is_whole and type(value) is str and len(value) <= FAST_DIGITS and value.isdecimal() and value.isascii():
                fields[name] = int(value)
            elif value is not None:
                try:
                    fields[name] = cast(value)
                except ValueError as error:
                    bad = bad or _bad(name, error)
        if bad is not None:
            raise bad
        return True

    return convert


def _named(name: str, cast: Cast) -> Cast:
    """Returns the cast of one field, whose errors name the field."""

    def named(value: object) -> Any:  # noqa: ANN401 - what a type makes
        try:
            return cast(value)
        except ValueError as error:
            raise _bad(name, error) from None

    return named


def _bad(name: str, error: ValueError) -> DataError:
    return DataError(f"field {name!r}: {error}", _HINT)


def _columns(options: ConvertOptions, before: Columns) -> Columns:
    for name, word in options.convert.items():
        if type_at(before, name) is not None:
            before = with_type(before, name, field_type(word, options.settings).sql)
    return before


CONVERT = TransformKind(ConvertOptions, _build, known(_columns))
