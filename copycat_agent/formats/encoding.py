"""Encodings: which of Python's codecs the text of files can be in, and what is known of their bytes."""

from __future__ import annotations

import codecs
from functools import lru_cache

BY_MARK = {"auto": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
"""Names that leave the choice to the mark, and what holds without one."""
UNITS = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
AS_IT_STANDS = frozenset({"utf-8", "ascii"})
"""Codecs whose bytes are taken for UTF-8 as they are."""
_SURROGATES = range(0xD800, 0xE000)
_NO_TEXT = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Codecs of Python that are made for other things than files."""


def encoding_problem(name: str, delimiter: str) -> tuple[str, str] | None:
    """Returns why files cannot be read in the encoding `name` with this `delimiter`, and a hint; None when they can."""
    try:
        codec = canonical(name)
    except ValueError as error:
        return str(error), "such as utf-8, auto (by byte order mark), utf-16, latin-1, cp1252 or shift_jis"
    codec = BY_MARK.get(codec, codec)
    try:
        encoded = delimiter.encode(codec)
    except UnicodeError:
        return f"the delimiter does not exist in {codec}", "write a line.delimiter that this encoding has"
    if codec not in UNITS and encoded[0] in _inner_bytes(codec):
        return f"the delimiter can be a part of other characters in {codec}", 'keep line.delimiter "\\n"'
    return None


def split_problem(name: str) -> tuple[str, str] | None:
    """Returns why `on_too_long: split` cannot be had in the encoding `name`, and a hint; None when it can."""
    if not canonical(name).startswith(("iso2022", "hz", "utf-7")):
        return None
    words = f"text in {name} cannot be read from its middle on, so it cannot go in parts"
    return words, "set on_too_long to truncate, dlq or drop, where it is split"


def canonical(name: str) -> str:
    """Python's own name of the codec; `auto` as it is. Raises ValueError."""
    if name == "auto":
        return name
    try:
        codec = codecs.lookup(name).name.replace("_", "-")
        "\n".encode(codec)  # a codec between bytes and bytes, or text and text, is refused here
    except (LookupError, ValueError):
        codec = ""
    if not codec or codec in _NO_TEXT:
        msg = "is no text encoding that Python knows"
        raise ValueError(msg)
    return "utf-8" if codec == "utf-8-sig" else codec


def extends_ascii(codec: str) -> bool:
    """False for codecs that make other characters of ASCII bytes too, as EBCDIC, and ISO 2022 behind an escape."""
    ascii_bytes = bytes(range(128))
    return not codec.startswith(("iso2022", "hz")) and ascii_bytes.decode(codec, "replace").encode("utf-8", "replace") == ascii_bytes


@lru_cache(maxsize=16)
def _inner_bytes(codec: str) -> frozenset[int]:
    """Bytes that stand in a character behind its first one."""
    if codec in AS_IT_STANDS:
        return frozenset(range(0x80, 0xC0))
    found: set[int] = set()
    for point in range(0x10000):
        with_tail = b"" if point in _SURROGATES else chr(point).encode(codec, "ignore")
        found.update(with_tail[1:])
    return frozenset(found)
