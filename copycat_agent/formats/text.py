"""What a file's text looks like as bytes, how lines become values, and a run of lines that was read at once.

Lines are found in bytes and decoded afterwards. Of the encodings of Unicode with units of two or four bytes, a delimiter counts
only where a unit begins, counted from byte 0 of the file.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from copycat_agent.formats.draft import Draft
from copycat_agent.formats.encoding import AS_IT_STANDS, BY_MARK, UNITS, canonical, extends_ascii

TAIL_BYTES = 256
"""Bytes before a position that its fingerprint covers."""
_MARKS = (
    ("utf-8", codecs.BOM_UTF8),
    ("utf-32-le", codecs.BOM_UTF32_LE),  # before UTF-16, whose mark it begins with
    ("utf-32-be", codecs.BOM_UTF32_BE),
    ("utf-16-le", codecs.BOM_UTF16_LE),
    ("utf-16-be", codecs.BOM_UTF16_BE),
)
MARK_BYTES = 4
"""Bytes at the beginning of a file that tell everything about its mark."""
CHARACTER_BYTES = 8
"""No character has more."""
_GOES_ON = range(0x80, 0xC0)
_LEADS = ((2, range(0xC2, 0xE0)), (3, range(0xE0, 0xF0)), (4, range(0xF0, 0xF5)))
"""The bytes of UTF-8 that are not a character's first, and those that are the first of two, three or four."""

Reader = Callable[[int, int], bytes]
"""`read(position, size)`: up to `size` bytes from `position`; fewer only at the end of the file. Raises OSError."""


class Text(NamedTuple):
    """Makes a record's value of a stretch between delimiters.

    `cr` is taken off its end where it stands there. `codec`: it is decoded with that and encoded as UTF-8, what cannot be
    decoded replaced by U+FFFD; "" leaves its bytes as they are.
    """

    cr: bytes = b""
    codec: str = ""

    def value(self, stretch: bytes) -> bytes:
        """The value of one stretch, or of a group of lines with delimiters in it."""
        return self.decoded(stretch.removesuffix(self.cr) if self.cr else stretch)

    def values(self, stretches: list[bytes], *, skip_empty: bool) -> list[bytes]:
        """The values of some stretches, without those of empty lines where they are skipped."""
        values, cr = stretches, self.cr
        if cr:
            size = -len(cr)
            values = [line[:size] if line.endswith(cr) else line for line in stretches]
        if skip_empty:
            values = [line for line in values if line]
        return list(map(self.decoded, values)) if self.codec else values

    def decoded(self, text: bytes) -> bytes:
        """UTF-8 of some bytes, all of them."""
        return text.decode(self.codec, "replace").encode("utf-8", "replace") if self.codec else text


class Layout(NamedTuple):
    """Describes what one file's text looks like as bytes.

    `unit`: delimiters begin at multiples of this. `mark` is what stands at byte 0 before the text, b"" for nothing; `is_raw`
    makes it part of the first record. `codec` is Python's name, also where nothing is decoded. `text` makes values of lines.
    `extends_ascii`: bytes below 128 are ASCII whatever stands around them. `may_have_holes`: no NUL is a part of a delimiter.
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
        """Returns where the first delimiter in `block[begin:]` begins, -1 without one. `block` stands at byte `position` of the file."""
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
        """`block.split(delimiter, most)`, delimiters of this encoding only."""
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
        """The last byte up to `position` where a unit begins."""
        return position - position % self.unit

    def up(self, position: int) -> int:
        """The first byte from `position` on where a unit begins."""
        return position + -position % self.unit

    def head(self, line: bytes, size: int) -> tuple[bytes, bytes]:
        """The first `size` bytes of a longer `line`, cut at a character's end, and the value that they make."""
        head = line[: self._fitting(line, size)]
        return head, self.text.decoded(head)

    def cut(self, line: bytes, begin: int, size: int) -> int:
        """Where to cut a `line` of which more than `size` bytes stand from `begin` on: at a character's end, behind at least one."""
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
    """`size`, or the bytes before the UTF-8 character that goes on there."""
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
        """The layout of a file that is read from behind byte 0; None where its first bytes have to be read, see `of`."""

    def of(self, read: Reader, position: int) -> Layout:
        """The layout of a file that is read from byte `position`. Reads its first bytes where they matter."""
        if position and self.behind_start is not None:
            return self.behind_start
        head = read(0, MARK_BYTES)
        for codec, mark in _MARKS:
            if head.startswith(mark) and self._allows(codec):
                return self._layout(codec, mark)
        return self._plain

    def _allows(self, codec: str) -> bool:
        return self._name == "auto" or codec.startswith(self._name)

    def _layout(self, codec: str, mark: bytes) -> Layout:
        return _layout(codec, mark, self._delimiter, is_raw=self._is_raw)


@lru_cache(maxsize=64)
def _layout(codec: str, mark: bytes, delimiter: str, *, is_raw: bool) -> Layout:
    decode = "" if is_raw or codec in AS_IT_STANDS else codec
    text = Text("\r".encode(codec) if delimiter == "\n" else b"", decode)
    return Layout(codec, UNITS.get(codec, 1), mark, delimiter.encode(codec), text, is_raw, extends_ascii(codec), "\0" not in delimiter)


class Chunk(NamedTuple):
    """A run of complete records, read at once.

    `raw` are the stretches between delimiters as they stand in the file; `values` are the records that `text` makes of them,
    where empty lines are skipped without those. `raw` and `values` are the same list when nothing differs. `tail` are the last
    bytes before `end`, for the fingerprint. `partial`: one stretch that no delimiter ends.
    """

    raw: list[bytes]
    values: list[bytes]
    start: int
    end: int
    delimiter: bytes
    text: Text
    skip_empty: bool
    tail: bytes
    partial: bool = False

    @property
    def size_bytes(self) -> int:
        """The number of bytes it covers."""
        return self.end - self.start

    @property
    def total(self) -> int:
        """The number of stretches it is made of."""
        return len(self.raw)

    def weight(self, index: int) -> int:
        """Returns how many bytes its first `index` stretches cover."""
        return sum(map(len, self.raw[:index])) + index * len(self.delimiter)

    def rows(self, first: int = 1) -> Iterator[Draft]:
        """A draft of each record; skipped empty lines are left out. The first stretch is the `first`-th record of its file."""
        position = self.start
        for number, raw in enumerate(self.raw, first):
            end = min(position + len(raw) + len(self.delimiter), self.end)
            if not self._is_skipped(raw):
                draft = Draft(self.text.value(raw), position, end, number)
                draft.partial = self.partial
                yield draft
            position = end

    def fitting(self, records: int, size_bytes: int) -> int:
        """Returns how many stretches hold no more than so many records and bytes; at least one, however long."""
        if records >= len(self.values) and size_bytes >= self.end - self.start:
            return len(self.raw)
        taken = place = 0
        for index, raw in enumerate(self.raw):
            place += len(raw) + len(self.delimiter)
            taken += not self._is_skipped(raw)
            if index and (place > size_bytes or taken > records):
                return index
        return len(self.raw)

    def before(self, position: int) -> int:
        """Returns how many stretches begin before byte `position`."""
        place = self.start
        for index, raw in enumerate(self.raw):
            if place >= position:
                return index
            place += len(raw) + len(self.delimiter)
        return len(self.raw)

    def cut(self, index: int) -> tuple[Chunk, Chunk]:
        """The first `index` stretches and the others, each a chunk. Neither may be empty."""
        assert 0 < index < len(self.raw), "half of a chunk is a chunk"
        first, others = self.raw[:index], self.raw[index:]
        middle = self.start + self.weight(index)
        tail = self.tail[-(self.end - middle) :]
        return (
            self._replace(raw=first, values=self._values(first), end=middle, tail=self.tail_before(index)),
            self._replace(raw=others, values=self._values(others), start=middle, tail=tail),
        )

    def _values(self, raw: list[bytes]) -> list[bytes]:
        """The records of some of the stretches."""
        return raw if self.values is self.raw else self.text.values(raw, skip_empty=self.skip_empty)

    def _is_skipped(self, stretch: bytes) -> bool:
        return self.skip_empty and stretch in (b"", self.text.cr)

    def tail_before(self, index: int) -> bytes:
        """Up to `TAIL_BYTES` of the chunk's bytes before its `index`-th stretch."""
        stretches = self.raw[max(0, index - TAIL_BYTES) : index]
        return b"".join(stretch + self.delimiter for stretch in stretches)[-TAIL_BYTES:]
