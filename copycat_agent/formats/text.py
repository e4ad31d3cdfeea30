"""A file's text as bytes: possible encodings, where lines end, and how lines become values.

Lines are found in bytes and decoded afterwards. In the encodings of Unicode with units of two or four bytes, a delimiter counts only where
a unit begins, counted from byte 0 of the file.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

TAIL_BYTES = 256
"""How many bytes before a position its fingerprint covers."""
BY_MARK = {"auto": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
"""Names that leave the choice to the mark, and the codec without one."""
UNITS = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
AS_IT_STANDS = frozenset({"utf-8", "ascii"})
"""Codecs whose bytes are taken for UTF-8 unchanged."""
_SURROGATES = range(0xD800, 0xE000)
_NO_TEXT = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Codecs of Python that are not made for files."""
_MARKS = (
    ("utf-8", codecs.BOM_UTF8),
    ("utf-32-le", codecs.BOM_UTF32_LE),  # before UTF-16, whose mark it begins with
    ("utf-32-be", codecs.BOM_UTF32_BE),
    ("utf-16-le", codecs.BOM_UTF16_LE),
    ("utf-16-be", codecs.BOM_UTF16_BE),
)
MARK_BYTES = 4
"""How many bytes at the beginning of a file determine its mark."""
CHARACTER_BYTES = 8
"""No character has more bytes."""
_GOES_ON = range(0x80, 0xC0)
_LEADS = ((2, range(0xC2, 0xE0)), (3, range(0xE0, 0xF0)), (4, range(0xF0, 0xF5)))
"""The bytes of UTF-8 that continue a character, and those that begin one of two, three or four bytes."""

Reader = Callable[[int, int], bytes]
"""`read(position, size)` returns up to `size` bytes from `position`; fewer only at the end of the file. Raises OSError."""


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
    """Returns why `on_too_long: split` is impossible in the encoding `name`, and a hint; None when it is possible."""
    if not canonical(name).startswith(("iso2022", "hz", "utf-7")):
        return None
    words = f"text in {name} cannot be read from its middle on, so it cannot go in parts"
    return words, "set on_too_long to truncate, dlq or drop, where it is split"


def canonical(name: str) -> str:
    """Returns Python's own name of the codec; `auto` unchanged. Raises ValueError."""
    if name == "auto":
        return name
    try:
        codec = codecs.lookup(name).name.replace("_", "-")
        "\n".encode(codec)  # a codec between bytes and bytes, or text and text, is refused here
    except (LookupError, ValueError):
        codec = ""
    if not codec or codec in _NO_TEXT:
        raise ValueError("is no text encoding that Python knows")
    return "utf-8" if codec == "utf-8-sig" else codec


def extends_ascii(codec: str) -> bool:
    """Returns False for codecs that use ASCII bytes for other characters too, as EBCDIC, and ISO 2022 after an escape."""
    ascii_bytes = bytes(range(128))
    return not codec.startswith(("iso2022", "hz")) and ascii_bytes.decode(codec, "replace").encode("utf-8", "replace") == ascii_bytes


@lru_cache(maxsize=16)
def _inner_bytes(codec: str) -> frozenset[int]:
    """Returns the bytes that can occur in a character after its first one."""
    if codec in AS_IT_STANDS:
        return frozenset(range(0x80, 0xC0))
    found: set[int] = set()
    for point in range(0x10000):
        with_tail = b"" if point in _SURROGATES else chr(point).encode(codec, "ignore")
        found.update(with_tail[1:])
    return frozenset(found)


class Text(NamedTuple):
    """Makes a record's value of the bytes between delimiters.

    `cr` is removed from their end. `codec`: they are decoded with it and encoded as UTF-8, with U+FFFD for what cannot be decoded; ""
    leaves them unchanged. `join` makes one record of a value that has several lines; None: it stays unchanged.
    """

    cr: bytes = b""
    codec: str = ""
    join: Callable[[bytes], bytes] | None = None

    def value(self, stretch: bytes) -> bytes:
        """Returns the value of one line, or of a group of lines with delimiters in it."""
        value = self.decoded(stretch.removesuffix(self.cr) if self.cr else stretch)
        return value if self.join is None else self.join(value)

    def values(self, stretches: list[bytes], *, skip_empty: bool) -> list[bytes]:
        """Returns the values of some lines, without those of empty lines if they are skipped."""
        values, cr = stretches, self.cr
        if cr:
            size = -len(cr)
            values = [line[:size] if line.endswith(cr) else line for line in stretches]
        if skip_empty:
            values = [line for line in values if line]
        values = list(map(self.decoded, values)) if self.codec else values
        return values if self.join is None else list(map(self.join, values))

    def decoded(self, text: bytes) -> bytes:
        """Returns bytes as UTF-8, all of them."""
        return text.decode(self.codec, "replace").encode("utf-8", "replace") if self.codec else text


class Layout(NamedTuple):
    """Describes one file's text as bytes.

    `unit`: delimiters begin at multiples of this. `mark` is the byte order mark before the text, b"" for none; `is_raw` makes it part of
    the first record. `codec` is Python's name, also if nothing is decoded. `text` makes values of lines. `extends_ascii`: bytes below 128
    are ASCII whatever surrounds them. `may_have_holes`: no NUL is part of a delimiter.
    """

    codec: str
    unit: int
    mark: bytes
    delimiter: bytes
    text: Text
    is_raw: bool
    extends_ascii: bool
    may_have_holes: bool

    def find(self, block: bytes, position: int, begin: int = 0) -> int:
        """Returns where the first delimiter in `block[begin:]` begins, -1 without one. `block` is at byte `position` of the file."""
        place = block.find(self.delimiter, begin)
        while place >= 0 and (position + place) % self.unit:
            place = block.find(self.delimiter, place + 1)
        return place

    def rfind(self, block: bytes, position: int) -> int:
        """Returns where the last delimiter in `block` begins, -1 without one."""
        place = block.rfind(self.delimiter)
        while place >= 0 and (position + place) % self.unit:
            place = block.rfind(self.delimiter, 0, place + len(self.delimiter) - 1)
        return place

    def split(self, block: bytes, position: int, most: int = -1) -> list[bytes]:
        """Returns `block.split(delimiter, most)`, by delimiters of this encoding only."""
        if self.unit == 1:
            return block.split(self.delimiter, most)
        pieces: list[bytes] = []
        begin = 0
        while most < 0 or len(pieces) < most:
            place = self.find(block, position, begin)
            if place < 0:
                break
            pieces.append(block[begin:place])
            begin = place + len(self.delimiter)
        return [*pieces, block[begin:]]

    def down(self, position: int) -> int:
        """Returns the last byte up to `position` at which a unit begins."""
        return position - position % self.unit

    def up(self, position: int) -> int:
        """Returns the first byte from `position` on at which a unit begins."""
        return position + -position % self.unit

    def head(self, line: bytes, size: int) -> tuple[bytes, bytes]:
        """Returns the first `size` bytes of a longer `line`, cut at a character's end, and their value."""
        head = line[: self._fitting(line, size)]
        return head, self.text.decoded(head)

    def cut(self, line: bytes, begin: int, size: int) -> int:
        """Returns where to cut a `line` with more than `size` bytes from `begin` on: at a character's end, after at least one."""
        piece = line[begin : begin + size + CHARACTER_BYTES + 1]
        for most in range(size, len(piece)):
            if fits := self._fitting(piece, most):
                return begin + fits
        return begin + len(piece)

    def _fitting(self, line: bytes, size: int) -> int:
        """Returns how many of the first `size` bytes of a longer line are whole characters."""
        if self.codec in AS_IT_STANDS:
            return _character_end(line, size)
        head = line[: self.down(size)]
        decoder = codecs.getincrementaldecoder(self.codec)("replace")
        decoder.decode(head)
        return len(head) - len(decoder.getstate()[0])


def _character_end(line: bytes, size: int) -> int:
    """Returns `size`, or the number of bytes before the UTF-8 character that continues there."""
    for place in range(size, max(-1, size - 4), -1):
        if line[place] not in _GOES_ON:
            length = next((length for length, leads in _LEADS if line[place] in leads), 1)
            return place if place + length > size else size
    return size


class Encoding:
    """`source.encoding` and `line.delimiter`: the layout of each file. Raises ValueError for what `encoding_problem` names."""

    def __init__(self, name: str, delimiter: str, *, is_raw: bool) -> None:
        self._name = canonical(name)
        self._delimiter = delimiter
        self._is_raw = is_raw
        without_mark = BY_MARK.get(self._name, self._name)
        self._asks_mark = self._name in BY_MARK
        self._plain = self._layout(without_mark, b"")
        self.behind_start = None if self._asks_mark else self._plain
        """The layout of a file that is read from after byte 0; None if its first bytes have to be read, see `of`."""

    def of(self, read: Reader, position: int) -> Layout:
        """Returns the layout of a file that is read from byte `position`. Reads its first bytes if they matter."""
        if position and self.behind_start is not None:
            return self.behind_start
        head = read(0, MARK_BYTES)
        for codec, mark in _MARKS:
            if head.startswith(mark) and (self._name == "auto" or codec.startswith(self._name)):
                return self._layout(codec, mark)
        return self._plain

    def _layout(self, codec: str, mark: bytes) -> Layout:
        return _layout(codec, mark, self._delimiter, is_raw=self._is_raw)


@lru_cache(maxsize=64)
def _layout(codec: str, mark: bytes, delimiter: str, *, is_raw: bool) -> Layout:
    decode = "" if is_raw or codec in AS_IT_STANDS else codec
    text = Text("\r".encode(codec) if delimiter == "\n" else b"", decode)
    return Layout(codec, UNITS.get(codec, 1), mark, delimiter.encode(codec), text, is_raw, extends_ascii(codec), "\0" not in delimiter)
