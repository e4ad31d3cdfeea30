"""Writes numbers and texts in Avro's binary form: each function returns the bytes of a value, or raises `UnfitValueError`."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from decimal import Decimal

from copycat_agent.converters.base import UnfitValueError, kind, wanted

Write = Callable[[object], bytes]

_SMALL = 8192
_INT, _LONG = 2**31, 2**63
_EXACT_DOUBLE, _EXACT_FLOAT = 2**53, 2**24
_DIGITS_MAX = 4000
"""The most digits of a decimal. Python does not read numbers of many more."""
_DOUBLE, _FLOAT, _READ_FLOAT = struct.Struct("<d").pack, struct.Struct("<f").pack, struct.Struct("<f").unpack


def varint(number: int) -> bytes:
    """Writes zigzag, seven bits to a byte, the lowest first. Any signed number of 64 bits."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:  # noqa: PLR2004 - seven bits
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


SMALL = [varint(number) for number in range(_SMALL)]
"""The bytes of small numbers, such as lengths and most values."""


def size(number: int) -> bytes:
    """Writes a length, or an index of a union."""
    return SMALL[number] if number < _SMALL else varint(number)


def string(value: object) -> bytes:
    """Writes UTF-8 after its length."""
    if type(value) is not str and not isinstance(value, str):
        raise wanted("text", value)
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise UnfitValueError("the text holds half of a character, which UTF-8 cannot") from None
    length = len(data)
    return (SMALL[length] if length < _SMALL else varint(length)) + data


def binary(value: object) -> bytes:
    """Writes bytes after their length."""
    if not isinstance(value, bytes):
        raise UnfitValueError(f"bytes are needed, not {kind(value)}")
    return size(len(value)) + value


def integer(value: object) -> bytes:
    """Writes a whole number of 32 bits."""
    if type(value) is not int:
        raise wanted("a whole number", value)
    if 0 <= value < _SMALL:
        return SMALL[value]
    if not -_INT <= value < _INT:
        raise UnfitValueError("the number is beyond the 32 bits of int; the schema's type could be long")
    return varint(value)


def long(value: object) -> bytes:
    """Writes a whole number of 64 bits."""
    if type(value) is not int:
        raise wanted("a whole number", value)
    if 0 <= value < _SMALL:
        return SMALL[value]
    if not -_LONG <= value < _LONG:
        raise UnfitValueError("the number is beyond the 64 bits of long")
    return varint(value)


def double(value: object) -> bytes:
    """Writes 64 bits; whole numbers if they are exact in it."""
    if type(value) is int and -_EXACT_DOUBLE <= value <= _EXACT_DOUBLE:
        return _DOUBLE(value)
    if type(value) is not float and not isinstance(value, float):
        raise UnfitValueError("the number has more digits than double holds") if type(value) is int else wanted("a number", value)
    return _DOUBLE(value)


def single(value: object) -> bytes:
    """Writes 32 bits: the nearest number; whole numbers if they are exact in it."""
    if type(value) is not int and not isinstance(value, float):
        raise wanted("a number", value)
    if type(value) is int and not -_EXACT_FLOAT <= value <= _EXACT_FLOAT:
        raise UnfitValueError("the number has more digits than float holds; the schema's type could be double")
    try:
        return _FLOAT(value)
    except (OverflowError, struct.error):
        raise UnfitValueError("the number is beyond what float holds; the schema's type could be double") from None


def exact_single(value: object) -> bytes:
    """Writes 32 bits that are exactly the number."""
    data = single(value)
    if value == value and _READ_FLOAT(data)[0] != value:  # noqa: PLR0124 - NaN
        raise UnfitValueError("the number has more digits than float holds")
    return data


def boolean(value: object) -> bytes:
    """Writes one byte."""
    if value is True:
        return b"\1"
    if value is False:
        return b"\0"
    raise wanted("true or false", value)


def null(value: object) -> bytes:
    """Writes nothing."""
    if value is not None:
        raise wanted("null", value)
    return b""


def unscaled(value: object, precision: int, scale: int) -> int:
    """Returns a decimal times ten to the power of its scale, exactly. Raises UnfitValueError. A float counts as its shortest text."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int | float):
        raise wanted("a number", value)
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise UnfitValueError("the number is not finite")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    kept, shift = len(digits), exponent + scale
    while shift < 0 and kept and digits[kept - 1] == 0:
        kept, shift = kept - 1, shift + 1
    digits = digits[:kept]
    if not any(digits):
        return 0
    if shift < 0:
        raise UnfitValueError(f"the number has more than {scale} digits behind the point")
    if len(digits) + shift > precision:
        raise UnfitValueError(f"the number has more than {precision - scale} digits before the point")
    if len(digits) + shift > _DIGITS_MAX:
        raise UnfitValueError(f"the number has more than {_DIGITS_MAX} digits")
    found: int = int("".join(map(str, digits))) * 10**shift
    return -found if sign else found


def decimal_bytes(precision: int, scale: int) -> Write:
    """Returns the writer of decimals as bytes: as few as hold the number."""

    def write(value: object) -> bytes:
        number = unscaled(value, precision, scale)
        length = (number.bit_length() + 8) // 8 if number >= 0 else ((-number - 1).bit_length() + 8) // 8
        return size(length) + number.to_bytes(length, "big", signed=True)

    return write


def decimal_fixed(precision: int, scale: int, length: int) -> Write:
    """Returns the writer of decimals of this length."""

    def write(value: object) -> bytes:
        try:
            return unscaled(value, precision, scale).to_bytes(length, "big", signed=True)
        except OverflowError:
            raise UnfitValueError(f"the number does not fit into {length} bytes") from None

    return write


def fixed(length: int) -> Write:
    """Returns the writer of bytes of exactly this length."""

    def write(value: object) -> bytes:
        if not isinstance(value, bytes) or len(value) != length:
            found = f"{len(value)}" if isinstance(value, bytes) else kind(value)
            raise UnfitValueError(f"{length} bytes are needed, not {found}")
        return value

    return write


def uuid_text(value: object) -> bytes:
    """Writes a UUID as text."""
    return string(str(_uuid(value)))


def uuid_fixed(value: object) -> bytes:
    """Writes a UUID as its 16 bytes."""
    return _uuid(value).bytes


def _uuid(value: object) -> uuid.UUID:
    if isinstance(value, uuid.UUID):
        return value
    if not isinstance(value, str):
        raise wanted("a UUID", value)
    try:
        return uuid.UUID(value)
    except ValueError:
        raise UnfitValueError("a UUID is needed, the text is none") from None


def enum(symbols: tuple[str, ...]) -> Write:
    """Returns the writer of an enum: the index of a symbol."""
    written = {symbol: size(index) for index, symbol in enumerate(symbols)}

    def write(value: object) -> bytes:
        try:
            return written[value]  # type: ignore[index]
        except (KeyError, TypeError):
            if not isinstance(value, str):
                raise wanted("one of the words of an enum", value) from None
            raise UnfitValueError("the text is none of the enum's words") from None

    return write


def counted(count: Callable[[object], int], write: Write) -> Write:
    """Returns the writer of dates and times: `count` makes a number of them; whole numbers are already such counts."""
    return lambda value: write(value if type(value) is int else count(value))
