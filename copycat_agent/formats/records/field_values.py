"""Reads numbers, booleans, JSON and bytes from text: exactly, or with a ValueError that never holds the text.

The fast functions for many texts accept nothing that the slow ones refuse: what Python's own functions accept beyond plain numbers
(underscores, digits of other scripts, NaN and the like by name) is excluded by checking the characters of all texts at once.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, DecimalException
from typing import Any, NoReturn

Read = Callable[[str], Any]
ReadAll = Callable[[list[str]], list[Any]]

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NUMBER_SIGNS = frozenset("0123456789+-.eE")
_WHOLE_SIGNS = frozenset("0123456789+-")
_POINT_SIGNS = _WHOLE_SIGNS | {"."}
_NO_NUMBERS = {
    "nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf,
    "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf,
}  # fmt: skip
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_MOST_DIGITS = 38
MOST_EXPONENT = 4000
"""A number of a greater exponent is refused, unless its text has as many digits: written without one, it could take gigabytes."""
_EXPONENT = "a number with an exponent that nothing holds"
_TRUE = ("true", "t", "yes", "y", "on", "1")
_FALSE = ("false", "f", "no", "n", "off", "0")


def whole(text: str) -> int:
    """Reads a whole number of any size."""
    text = text.strip()
    if not _WHOLE.fullmatch(text):
        _refuse("not a whole number")
    try:
        return int(text)
    except ValueError:
        _refuse("a whole number with more digits than can be read")


def all_whole(texts: list[str]) -> list[int]:
    """Applies `whole` to each of many texts."""
    _only(_WHOLE_SIGNS, texts)
    return list(map(int, texts))


def bigint(text: str) -> int:
    """Reads a signed whole number of 64 bits."""
    number = whole(text)
    if not _LEAST <= number <= _GREATEST:
        _refuse("a whole number that 64 bits do not hold")
    return number


def all_bigint(texts: list[str]) -> list[int]:
    """Applies `bigint` to each of many texts."""
    numbers = all_whole(texts)
    if numbers and not (min(numbers) >= _LEAST and max(numbers) <= _GREATEST):
        raise ValueError
    return numbers


def _double(text: str) -> float:
    text = text.strip()
    if (known := _NO_NUMBERS.get(text.lower())) is not None:
        return known
    if not _NUMBER.fullmatch(text):
        _refuse("not a number")
    number = float(text)
    if math.isinf(number):
        _refuse("a number too large for a double")
    return number


def _all_double(texts: list[str]) -> list[float]:
    _only(_NUMBER_SIGNS, texts)
    numbers = list(map(float, texts))
    if math.inf in numbers or -math.inf in numbers:
        raise ValueError
    return numbers


def doubles(argument: str) -> tuple[str, Read, ReadAll]:
    """Returns the type of 64-bit floating point numbers; NaN and infinities by their names."""
    if argument:
        _refuse("nothing can stand behind this type")
    return "double", _double, _all_double


def decimals(argument: str) -> tuple[str, Read, ReadAll]:
    """Returns the type of decimals, with all digits; with `precision,scale`, it refuses numbers that do not fit."""
    if not argument:
        return "decimal(38,18)", _decimal, _all_decimal
    match = re.fullmatch(r"\s*([0-9]{1,2})\s*(?:,\s*([0-9]{1,2})\s*)?", argument)
    precision, scale = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    if not (1 <= precision <= _MOST_DIGITS and scale <= precision):
        _refuse("write decimal(digits,scale) with at most 38 digits, such as decimal(10,2)")
    whole_limit = Decimal((0, (1,), precision - scale))

    def fitting(number: Decimal) -> Decimal:
        if number.copy_abs() >= whole_limit:
            _refuse(f"a number with more than {precision - scale} digits before the point")
        if _scale(number) > scale:
            _refuse(f"a number with more than {scale} digits behind the point")
        return number

    too_fine = re.compile(rf"\.[0-9]{{{scale + 1}}}|[eE]")

    def all_fitting(texts: list[str]) -> list[Decimal]:
        numbers = _all_decimal(texts)
        if too_fine.search("\n".join(texts)) or (numbers and not (min(numbers) > -whole_limit and max(numbers) < whole_limit)):
            return list(map(fitting, numbers))
        return numbers

    return f"decimal({precision},{scale})", lambda text: fitting(_decimal(text)), all_fitting


def _decimal(text: str) -> Decimal:
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        _refuse("not a decimal number")
    return exact_number(text)


def exact_number(text: str) -> Decimal:
    """Reads a decimal number, of which only the exponent may be wrong. Raises ValueError."""
    try:
        number = Decimal(text)
    except DecimalException:
        _refuse(_EXPONENT)
    if abs(number.adjusted()) > max(MOST_EXPONENT, len(text)):
        _refuse(_EXPONENT)
    return number


def _all_decimal(texts: list[str]) -> list[Decimal]:
    _only(_POINT_SIGNS, texts)
    return list(map(Decimal, texts))


def _scale(number: Decimal) -> int:
    """Returns how many digits after the point are needed: one for 1.10."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "a finite number"
    needed = -exponent
    for digit in reversed(digits):
        if digit or needed <= 0:
            return needed
        needed -= 1
    return 0


def with_comma(read: Read) -> Read:
    """Wraps `read` for numbers with a comma as decimal point."""

    def read_comma(text: str) -> Any:  # noqa: ANN401 - what a type makes
        if "." in text:
            _refuse('a number with a point, where decimal_point is ","')
        return read(text.replace(",", "."))

    return read_comma


def all_with_comma(read_all: ReadAll) -> ReadAll:
    """Wraps `read_all` as `with_comma` does `read`."""

    def read_commas(texts: list[str]) -> list[Any]:
        if "." in "".join(texts):
            raise ValueError
        return read_all([text.replace(",", ".") for text in texts])

    return read_commas


def booleans(argument: str) -> tuple[str, Read, ReadAll]:
    """Returns the type of booleans, in any case. `argument`: other words for them, as in `ja,j/nein,n`."""
    yes: tuple[str, ...] = _TRUE
    no: tuple[str, ...] = _FALSE
    if argument:
        sides = [tuple(word.strip().casefold() for word in side.split(",")) for side in argument.split("/")]
        if len(sides) != len(("true", "false")) or not all(word for side in sides for word in side) or set(sides[0]) & set(sides[1]):
            _refuse("write the words for true and false as in bool:yes,y/no,n")
        yes, no = sides
    words = dict.fromkeys(yes, True) | dict.fromkeys(no, False)

    def boolean(text: str) -> bool:
        found = words.get(text.strip().casefold())
        if found is None:
            _refuse("not one of the words for true and false")
        return found

    def all_booleans(texts: list[str]) -> list[bool]:
        known = {text: boolean(text) for text in set(texts)}
        return [known[text] for text in texts]

    return "boolean", boolean, all_booleans


def json_value(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Reads a JSON value; numbers that are not whole become decimals and keep their digits."""
    try:
        return json.loads(text, parse_float=_decimal, parse_constant=_no_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        _refuse("not JSON, or JSON with a name twice in an object")


def all_json(texts: list[str]) -> list[Any]:
    """Applies `json_value` to each of many texts."""
    return list(map(json_value, texts))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _no_constant(_: str) -> NoReturn:
    raise ValueError


def binaries(argument: str) -> tuple[str, Read, ReadAll]:
    """Returns the type of bytes, written as base64, or as `hex`."""
    if argument not in ("", "base64", "hex"):
        _refuse("write binary, binary:base64 or binary:hex")
    read = _from_hex if argument == "hex" else _from_base64
    return "binary", read, lambda texts: list(map(read, texts))


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        _refuse("not base64")


def _from_hex(text: str) -> bytes:
    try:
        return binascii.unhexlify(text.strip())
    except (binascii.Error, ValueError):
        _refuse("not bytes in hexadecimal digits")


def _only(signs: frozenset[str], texts: list[str]) -> None:
    """Raises ValueError when there is any other character in the texts."""
    if not signs.issuperset("".join(texts)):
        raise ValueError


def _refuse(why: str) -> NoReturn:
    raise ValueError(why) from None
