"""Names for files whose own name is taken: `orders-1.csv.gz` beside `orders.csv.gz`. Nothing is ever overwritten."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

NAME_BYTES = 255
"""The longest name that file systems take."""
_ONE_BY_ONE = 8
"""So many numbers are tried one after the other, then larger steps are taken."""
_MOST = 2**40
_PACKED = r"(?:\.(?:gz|zst|zstd|bz2|xz|lz4|sz|snappy|lzma|Z))"
_SUFFIX = re.compile(rf"(?<=[^.])(?:\.[A-Za-z][A-Za-z0-9_]{{0,15}})?{_PACKED}\Z|(?<=[^.])\.[A-Za-z][A-Za-z0-9_]{{0,15}}\Z")


def numbered(name: str, number: int, most_bytes: int = NAME_BYTES) -> str:
    """`name` with a number before its suffixes; 0 is the name itself. A stem that is too long loses its end."""
    found = _SUFFIX.search(name)
    stem, suffix = (name[: found.start()], found[0]) if found else (name, "")
    tail = (f"-{number}" if number else "") + suffix
    room = most_bytes - len(os.fsencode(tail))
    return _cut(stem, room) + tail if room > 0 else _cut(name, most_bytes - len(f"-{number}")) + f"-{number}"


def _cut(text: str, most_bytes: int) -> str:
    """The beginning that fits; no character is cut in two."""
    raw = os.fsencode(text)
    if len(raw) <= most_bytes:
        return text
    while most_bytes and raw[most_bytes] & 0xC0 == 0x80:  # noqa: PLR2004 - inside a UTF-8 character
        most_bytes -= 1
    return os.fsdecode(raw[:most_bytes])


def is_numbered(name: str, candidate: str, most_bytes: int = NAME_BYTES) -> bool:
    """Whether `candidate` is `name` or one of its numbered forms."""
    found = re.search(r"-(\d{1,13})(?=\D*\Z)", candidate)
    return candidate == numbered(name, 0, most_bytes) or (found is not None and candidate == numbered(name, int(found[1]), most_bytes))


def first_free(name: str, taken: Callable[[str], bool], most_bytes: int = NAME_BYTES) -> str:
    """The name with the least number that is not taken; after the first few, one that is free where the number before is taken.

    A hundred thousand files of one name would otherwise be asked for one by one, for each that comes.
    """

    def is_taken(number: int) -> bool:
        return taken(numbered(name, number, most_bytes))

    for number in range(_ONE_BY_ONE):
        if not is_taken(number):
            return numbered(name, number, most_bytes)
    low, high = _ONE_BY_ONE - 1, _ONE_BY_ONE * 2
    while is_taken(high) and high < _MOST:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_taken(middle) else (low, middle)
    return numbered(name, high, most_bytes)
