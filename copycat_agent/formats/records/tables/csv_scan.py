"""One row of a table, character by character: what CSV means here. The fast ways have to find the same.

- A value that begins with the quote ends at the next quote that is not doubled (or escaped); nothing but a delimiter or the end of
  the line may follow. A quote within any other value is text.
- Within quotes, and behind the escape character, an end of line is text, and the row goes on in the next line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple


class Signs(NamedTuple):
    """The signs of one file. `delimiter` is one character here; `quote` and `escape` are "" where there are none.

    `newline` is what stands between lines, `strips_cr` whether a CR at a line's end belongs to it.
    """

    delimiter: str
    quote: str
    escape: str
    doublequote: bool
    multiline: bool
    trim: bool
    newline: str
    strips_cr: bool

    @property
    def closing(self) -> re.Pattern[str]:
        """What ends a stretch of text within quotes."""
        return _any_of(self.quote, self.escape)

    @property
    def stops(self) -> re.Pattern[str]:
        """What ends a stretch of text outside."""
        return _any_of(self.delimiter, self.escape)


@lru_cache(maxsize=64)
def _any_of(*signs: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(sign) for sign in signs if sign) or "(?!)")


class CsvHit(NamedTuple):
    """A row. `quoted`: which of its values stood in quotes. `after`: the index of the line behind it."""

    fields: list[str]
    quoted: list[bool]
    after: int


class Bad(NamedTuple):
    """A row that is none. `field`: the column, from 0, where that shows."""

    field: int
    why: str


class Open(NamedTuple):
    """The row goes on behind the last line. `in_quotes`: only a quote ends it."""

    field: int
    in_quotes: bool


_BLANKS = " \t"
UNCLOSED = "a quote that is opened is not closed"
_BEHIND = "something other than a delimiter follows the closing quote"
_BARE_CR = "a carriage return stands in it, not in quotes"
ESCAPES_NOTHING = "the escape character stands at the end of the row"


class Scan:
    """Reads the row that begins on line `first` of `lines`; used once."""

    def __init__(self, signs: Signs, lines: Sequence[str], first: int, limit: int) -> None:
        """`limit`: lines from that index on are not looked at. Lines have no delimiters, but their CR."""
        self._signs = signs
        self._lines = lines
        self._limit = limit
        self._index = first
        self._place = 0
        self._text = lines[first]
        self._fields: list[str] = []
        self._quoted: list[bool] = []
        self._closing = signs.closing
        self._stops = signs.stops

    def row(self) -> CsvHit | Bad | Open:
        """What begins here."""
        while True:
            outcome = self._field()
            if outcome is not None:
                return outcome
            if self._place >= self._end():
                return CsvHit(self._fields, self._quoted, self._index + 1)
            self._place += 1  # the delimiter

    def _end(self) -> int:
        """Where the text of this line ends."""
        size = len(self._text)
        return size - 1 if self._signs.strips_cr and size > self._place and self._text[-1] == "\r" else size

    def _field(self) -> Bad | Open | None:
        begin = self._place
        if self._signs.trim:
            self._pass_blanks()
        if self._signs.quote and self._text.startswith(self._signs.quote, self._place):
            return self._in_quotes()
        self._place = begin
        return self._plain()

    def _pass_blanks(self) -> None:
        while self._place < len(self._text) and self._text[self._place] in _BLANKS and self._text[self._place] != self._signs.delimiter:
            self._place += 1

    def _in_quotes(self) -> Bad | Open | None:
        signs, parts = self._signs, []
        self._place += 1
        while True:
            stop = self._closing.search(self._text, self._place)
            if stop is None:
                parts += [self._text[self._place :], signs.newline]
                if not self._next_line():
                    return Open(len(self._fields), in_quotes=True)
                continue
            parts.append(self._text[self._place : stop.start()])
            self._place = stop.end()
            if stop[0] == signs.escape:
                if not self._escaped(parts):
                    return Open(len(self._fields), in_quotes=True)
            elif signs.doublequote and self._text.startswith(signs.quote, self._place):
                parts.append(signs.quote)
                self._place += 1
            else:
                return self._closed("".join(parts))

    def _closed(self, value: str) -> Bad | None:
        if self._signs.trim:
            self._pass_blanks()
        if self._place < self._end() and self._text[self._place] != self._signs.delimiter:
            return Bad(len(self._fields), _BEHIND)
        self._add(value, quoted=True)
        return None

    def _plain(self) -> Bad | Open | None:
        parts: list[str] = []
        while True:
            end = self._end()
            stop = self._stops.search(self._text, self._place, max(self._place, end))
            parts.append(self._text[self._place : stop.start() if stop else max(self._place, end)])
            self._place = stop.start() if stop else max(self._place, end)
            if stop is None or stop[0] == self._signs.delimiter:
                break
            self._place += 1
            if not self._escaped(parts):
                return Open(len(self._fields), in_quotes=False)
        value = "".join(parts)
        if self._signs.strips_cr and "\r" in value and not self._signs.escape:
            return Bad(len(self._fields), _BARE_CR)
        self._add(value, quoted=False)
        return None

    def _escaped(self, parts: list[str]) -> bool:
        """Take what stands behind an escape character; False when that is in a line which is not there."""
        if self._place < len(self._text):
            if self._place == len(self._text) - 1 and self._text[-1] == "\r" and self._signs.strips_cr:
                parts.append("\r")
                self._place += 1  # the CR of an escaped CRLF
                parts.append(self._signs.newline)
                return self._next_line()
            parts.append(self._text[self._place])
            self._place += 1
            return True
        parts.append(self._signs.newline)
        return self._next_line()

    def _next_line(self) -> bool:
        if not self._signs.multiline or self._index + 1 >= self._limit:
            return False
        self._index += 1
        self._text, self._place = self._lines[self._index], 0
        return True

    def _add(self, value: str, *, quoted: bool) -> None:
        self._fields.append(value.strip(_BLANKS) if self._signs.trim else value)
        self._quoted.append(quoted)
