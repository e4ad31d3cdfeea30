"""The 64-bit XXH3 hash without a seed, for 1 to 32 bytes. Fluent Bit keeps it for the bytes before an offset."""

from __future__ import annotations

BYTES_MAX = 32
_MASK = 2**64 - 1
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
)
"""The beginning of the specification's secret."""
_PRIME_1, _PRIME_2, _PRIME_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_PRIME_MX1, _PRIME_MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25


def xxh3(data: bytes) -> int:
    """Returns the hash of 1 to `BYTES_MAX` bytes."""
    size = len(data)
    if size > 16:  # noqa: PLR2004 - the four cases of the specification
        first = _folded(_word(data, 0) ^ _word(_SECRET, 0), _word(data, 8) ^ _word(_SECRET, 8))
        last = _folded(_word(data, size - 16) ^ _word(_SECRET, 16), _word(data, size - 8) ^ _word(_SECRET, 24))
        return _avalanche(size * _PRIME_1 + first + last)
    if size > 8:  # noqa: PLR2004
        low = _word(data, 0) ^ _word(_SECRET, 24) ^ _word(_SECRET, 32)
        high = _word(data, size - 8) ^ _word(_SECRET, 40) ^ _word(_SECRET, 48)
        return _avalanche(size + int.from_bytes(low.to_bytes(8, "little"), "big") + high + _folded(low, high))
    return _of_few(data, size) if size > 3 else _of_very_few(data, size)  # noqa: PLR2004


def _of_few(data: bytes, size: int) -> int:
    """Returns the hash of 4 to 8 bytes."""
    found = int.from_bytes(data[-4:], "little") + (int.from_bytes(data[:4], "little") << 32)
    found ^= _word(_SECRET, 8) ^ _word(_SECRET, 16)
    found ^= _turned(found, 49) ^ _turned(found, 24)
    found = found * _PRIME_MX2 & _MASK
    found = (found ^ (found >> 35) + size) * _PRIME_MX2 & _MASK
    return found ^ found >> 28


def _of_very_few(data: bytes, size: int) -> int:
    """Returns the hash of 1 to 3 bytes."""
    found = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
    found ^= (_word(_SECRET, 0) ^ _word(_SECRET, 4)) & 0xFFFFFFFF
    found = (found ^ found >> 33) * _PRIME_2 & _MASK
    found = (found ^ found >> 29) * _PRIME_3 & _MASK
    return found ^ found >> 32


def _avalanche(value: int) -> int:
    found = value & _MASK
    found = (found ^ found >> 37) * _PRIME_MX1 & _MASK
    return found ^ found >> 32


def _folded(one: int, other: int) -> int:
    product = one * other
    return (product & _MASK) ^ product >> 64


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")
