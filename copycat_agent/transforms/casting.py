"""From a value of any kind to one of a type: exactly, or ValueError in words that never hold the value.

Texts are read as formats read them (`formats.records.fields.types`). Everything else first becomes what it means, then the type; what
would be lost on the way is refused, but for digits of a `double`, which is the nearest one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NoReturn

from copycat_agent.formats.records.fields.types import TypeSettings, field_type
from copycat_agent.templates import scalar_text

Cast = Callable[[Any], Any]
"""From a value that is not null. Raises ValueError; other errors are bugs."""

_LEAST, _GREATEST = -(2**63), 2**63 - 1
FAST_DIGITS = 18
"""So many always fit into 64 bits."""
_DIGITS_OF = {"unix": 6, "unix_ms": 3, "unix_us": 0}
"""Digits of what they count that are microseconds."""
_FAR = 10**18
_MOST_DIGITS = 4000
"""Python makes no text of whole numbers with more than 4300."""


def caster(word: str, settings: TypeSettings | None = None) -> Cast:
    """What makes values of the type that `word` names; see `field_type`, whose ValueErrors it raises."""
    kind = field_type(word, settings)
    name = word.partition(":")[0].partition("(")[0].strip()
    make = _MAKERS.get(name, _by_text)
    return make(kind.read, word)


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


def _double(read: Cast, word: str) -> Cast:
    del word

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


def _decimal(read: Cast, word: str) -> Cast:
    del word

    def decimal(value: object) -> Decimal:
        if isinstance(value, str):
            return read(value)  # type: ignore[no-any-return]
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            _refuse(f"{_kind(value)}, not a decimal number")
        return read(_number_text(value))  # type: ignore[no-any-return]

    return decimal


def _boolean(read: Cast, word: str) -> Cast:
    del word

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


def _string(read: Cast, word: str) -> Cast:
    del read, word

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


def _date(read: Cast, word: str) -> Cast:
    del word

    def day(value: object) -> date:
        if isinstance(value, datetime):
            _refuse("a timestamp, of which a date would keep only a part")
        return value if isinstance(value, date) else _read_text(value, read, "a date")

    return day


def _time(read: Cast, word: str) -> Cast:
    del word
    return lambda value: value if isinstance(value, time) else _read_text(value, read, "a time")


def _timestamp(read: Cast, word: str) -> Cast:
    unit = word.partition(":")[2]
    digits = _DIGITS_OF.get(unit)

    def timestamp(value: object) -> Any:  # noqa: ANN401 - what the type makes
        if isinstance(value, datetime):  # one without a zone: as its text would be read
            return value if value.tzinfo is not None or unit else read(value.isoformat())
        if digits is not None and isinstance(value, float | Decimal):
            return read(_count_text(value, digits))
        return _read_text(value, read, "a timestamp")

    return timestamp


def _count_text(value: float | Decimal, digits: int) -> str:
    """A count since 1970. A float means the microsecond next to it: 1732165200.123 is no exact binary number."""
    if not (_is_finite(value) and -_FAR < value < _FAR):
        _refuse("a time outside of the years 1 to 9999")
    return f"{value:f}" if isinstance(value, Decimal) else f"{value:.{digits}f}"


def _json(read: Cast, word: str) -> Cast:
    del word
    return lambda value: read(_utf8(value) if isinstance(value, bytes) else value) if isinstance(value, str | bytes) else value


def _binary(read: Cast, word: str) -> Cast:
    del word
    return lambda value: value if isinstance(value, bytes) else _read_text(value, read, "bytes")


def _by_text(read: Cast, word: str) -> Cast:
    return lambda value: _read_text(value, read, word)


def _read_text(value: object, read: Cast, wanted: str) -> Any:  # noqa: ANN401 - what the type makes
    """Texts, and whole numbers as they are written: 20261121 may be a date."""
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
    """What a value is, in words."""
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
    "time": _time,
    "timestamp": _timestamp,
    "json": _json,
    "binary": _binary,
}
"""For each word of `field_type`; one that is not here takes texts only."""
