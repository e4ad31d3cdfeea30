"""Parses the Journal Export Format (https://systemd.io/JOURNAL_EXPORT_FORMATS) from a stream of bytes, in bounded memory.

An entry is lines `FIELD=text` and ends with an empty line. A value that is not printable text is written as `FIELD`, a newline, its size as
eight bytes, little-endian, its bytes, and a newline.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

CURSOR = "__CURSOR"
_QUICK_BYTES = 2**20
"""An entry without an empty line within this size is parsed field by field."""
_NAME_MOST = 80
"""Most characters of a field's name in a message; the journal's own names have up to 64."""
_NEWLINE = ord("\n")

Fields = dict[str, Any]
"""Values are texts, bytes that are not UTF-8, or lists of them if a field occurs several times."""


class LargeEntry(NamedTuple):
    """An entry above the size limit. `field` is the one that exceeded it; `cursor` is "" if none was found before that."""

    size_bytes: int
    field: str
    cursor: str


class ExportReader:
    """Iterates over the complete entries in a stream of chunks. `is_torn` becomes true if the stream ends within an entry."""

    def __init__(self, chunks: Iterator[bytes], most_bytes: int) -> None:
        self.is_torn = False
        self._chunks = chunks
        self._most_bytes = most_bytes
        self._buffer = b""
        self._at = 0

    def peek(self) -> None:
        """Waits for the beginning of the first entry, or the end."""
        self._is_more()

    def __iter__(self) -> Iterator[Fields | LargeEntry]:
        """Yields each entry once."""
        try:
            while self._is_more():
                yield from self._quick_ones()
                if self._is_more() and not self._waits():
                    yield self._by_field()
        except EOFError:
            self.is_torn = True

    def _is_more(self) -> bool:
        """Returns whether another entry begins. Skips empty lines before it."""
        try:
            while True:
                while self._at < len(self._buffer):
                    if self._buffer[self._at] != _NEWLINE:
                        return True
                    self._at += 1
                self._read_on()
        except EOFError:
            return False

    def _read_on(self) -> None:
        """Appends another chunk to what is left. Raises EOFError at the end."""
        chunk = next(self._chunks, b"")
        if not chunk:
            raise EOFError
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0

    def _quick_ones(self) -> Iterator[Fields]:
        """Yields entries of the buffer as long as they have text fields only, each once, as most do."""
        buffer, at, most_bytes = self._buffer, self._at, self._most_bytes
        while 0 <= (end := buffer.find(b"\n\n", at)) <= at + most_bytes:
            try:
                lines = buffer[at:end].decode().split("\n")
                fields = dict(map(str.split, lines, repeat("="), repeat(1)))
            except ValueError:  # no UTF-8, or a line without "=", which a binary value follows
                return
            if len(fields) != len(lines):
                return
            self._at = at = end + 2
            yield fields

    def _waits(self) -> bool:
        """Reads another chunk if the end of the next entry may come with it. Returns whether it has read one."""
        if self._buffer.find(b"\n\n", self._at) >= 0 or len(self._buffer) - self._at > min(_QUICK_BYTES, self._most_bytes):
            return False
        self._read_on()
        return True

    def _by_field(self) -> Fields | LargeEntry:
        fields: Fields = {}
        size_bytes, large = 0, ""
        while True:
            line, length = self._line()
            if not length:
                break
            size_bytes += length
            name, is_text, value = line.partition(b"=")
            if not is_text:
                length = int.from_bytes(self._take(8), "little")
                size_bytes += length
                value = self._take(length, keep=size_bytes <= self._most_bytes)
                self._take(1)
            field = name.decode("utf-8", "backslashreplace")
            if size_bytes > self._most_bytes:
                large = large or field[:_NAME_MOST]
            else:
                _put(fields, field, value)
        return LargeEntry(size_bytes, large, str(fields.get(CURSOR, ""))) if large else fields

    def _line(self) -> tuple[bytes, int]:
        """Returns the next line, cut at the size limit, and its full size in bytes without the newline."""
        parts: list[bytes] = []
        size_bytes = 0
        while True:
            end = self._buffer.find(b"\n", self._at)
            piece = self._buffer[self._at : len(self._buffer) if end < 0 else end]
            parts.append(piece[: max(0, self._most_bytes - size_bytes)])
            size_bytes += len(piece)
            self._at += len(piece)
            if end >= 0:
                self._at += 1
                return b"".join(parts), size_bytes
            self._read_on()

    def _take(self, count: int, *, keep: bool = True) -> bytes:
        """Consumes `count` bytes. Returns them, or b"" without `keep`."""
        parts: list[bytes] = []
        while True:
            piece = self._buffer[self._at : self._at + count]
            if keep:
                parts.append(piece)
            self._at += len(piece)
            count -= len(piece)
            if not count:
                return b"".join(parts)
            self._read_on()


def _put(fields: Fields, name: str, data: bytes) -> None:
    try:
        value: str | bytes = data.decode()
    except UnicodeDecodeError:
        value = data
    if name not in fields:
        fields[name] = value
    elif isinstance(fields[name], list):
        fields[name].append(value)
    else:
        fields[name] = [fields[name], value]
