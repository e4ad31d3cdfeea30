"""Makes rows of a table's lines: by Python's csv module if that finds what `RowScanner` finds, else by `RowScanner`."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from copycat_agent.formats.records.csv_options import (
    ESCAPES_NOTHING,
    UNCLOSED,
    BadRow,
    CsvCharacters,
    CsvHit,
    CsvOptions,
    RowScanner,
    UnfinishedRow,
)

csv.field_size_limit(2**31 - 1)  # rows are bounded by `line.max_bytes`

_STAND_IN = "\ud800"
"""Replaces delimiters of several characters: no text that could be decoded holds it."""
_TOO_LONG = "a quote that is opened is not closed within line.max_bytes"

Values = list[str | None]


@dataclass(slots=True)
class CsvRows:
    """The rows of some lines, in order. Row i is on lines `spans[i]`, the first and the one after the last; None: on line i.

    `bad` are unreadable rows, by their index; their values are []. `exact` are the indexes of rows in which None is a null; in the others a
    null is still a text. `open_line` is where an incomplete row begins, None without one. `may_hold_null`: whether rows that are not
    `exact` can have nulls.
    """

    values: list[Values] = field(default_factory=list)
    spans: list[tuple[int, int]] | None = None
    bad: dict[int, BadRow] = field(default_factory=dict)
    exact: set[int] = field(default_factory=set)
    open_line: int | None = None
    in_quotes: bool = False
    may_hold_null: bool = True


class CsvText(NamedTuple):
    """Lines without their delimiters, all of them joined by newlines, and where in the file each begins and the last one ends.

    `most_bytes` is the most bytes of a row with its last delimiter.
    """

    lines: list[str]
    joined: str
    places: Sequence[int]
    most_bytes: int
    final: bool

    def has(self, sign: str) -> bool:
        """Returns whether the text has this sign, if there is one."""
        return bool(sign) and sign in self.joined

    def replace(self, old: str, new: str) -> CsvText:
        """Returns the text with another delimiter."""
        return self._replace(lines=[line.replace(old, new) for line in self.lines], joined=self.joined.replace(old, new))


class RowReader:
    """Finds rows in the lines of files with the same options. Stateless."""

    def __init__(self, options: CsvOptions) -> None:
        self._trim = options.trim
        self._comment = options.comment or ""
        self._delimiter = options.delimiter
        self._max_bytes = options.line.max_bytes
        newline = options.line.delimiter
        self.signs = CsvCharacters(
            options.delimiter if len(options.delimiter) == 1 else _STAND_IN, options.quote_sign, options.escape or "",
            options.doublequote, options.multiline, options.trim, newline, newline == "\n",
        )  # fmt: skip
        self._nulls = frozenset(options.nulls)
        self._null_quoted = options.null_quoted
        quote = options.quote_sign
        is_told_apart = quote and not options.null_quoted
        self._quoted_nulls = tuple(quote + null.replace(quote, 2 * quote) + quote for null in options.nulls) if is_told_apart else ()

    @property
    def spans_lines(self) -> bool:
        """Returns whether a row can have more than one line."""
        return self.signs.multiline and bool(self.signs.quote or self.signs.escape)

    def may_close(self, lines: list[bytes], codec: str) -> bool:
        """Returns whether a row that is open within quotes can end on these lines."""
        return bool(self.signs.escape) or any(self.signs.quote in line.decode(codec, "replace") for line in lines)

    def is_over(self, size_bytes: int) -> bool:
        """Returns whether a row has become too long."""
        return size_bytes > self._max_bytes

    def rows(self, lines: list[str], places: Sequence[int], *, delimiter_bytes: int = 1, final: bool) -> CsvRows:
        """Returns the rows of `lines`, texts without delimiters. `places`: where each begins, in bytes, and where the last one ends.

        `final`: nothing follows them.
        """
        text = CsvText(lines, "\n".join(lines), places, self._max_bytes + delimiter_bytes, final)
        if len(self._delimiter) == 1:
            return self._rows(text)
        rows = self._rows(text.replace(self._delimiter, _STAND_IN))
        if self.signs.quote or self.signs.escape:
            _put_back(rows, self._delimiter)
        return rows

    def is_blank(self, line: str) -> bool:
        """Returns whether a line at which a row could begin is blank."""
        if line in ("", "\r"):
            return True
        return self._trim and not self._delimiter.isspace() and not line.strip(" \t\r")

    def is_comment(self, line: str) -> bool:
        """Returns whether a line at which a row could begin is a comment."""
        return bool(self._comment) and line.startswith(self._comment)

    def _rows(self, text: CsvText) -> CsvRows:
        rows = None
        if self._is_plain(text):
            rows = self._quoted(text) if text.has(self.signs.quote) else self._unquoted(text)
        if rows is None:
            return self._exact(text)
        rows.may_hold_null = self._may_hold_null(text)
        return rows

    def _is_plain(self, text: CsvText) -> bool:
        """Returns whether csv finds what `RowScanner` finds, unless it finds an error."""
        signs, joined = self.signs, text.joined
        has_cr = "\r" in joined
        if text.has(signs.quote) and not signs.doublequote:
            return False  # csv takes text after a closing quote as part of the value then
        if text.has(signs.escape) or (has_cr and "\r\r" in joined):
            return False
        if not signs.strips_cr and (has_cr or joined.count("\n") >= len(text.lines)):
            return False
        if text.has(self._comment) and (joined.startswith(self._comment) or "\n" + self._comment in joined):
            return False
        if signs.trim and text.has(signs.quote):
            quote = signs.quote
            return not any(pair in joined for pair in (f" {quote}", f"{quote} ", f"\t{quote}", f"{quote}\t"))
        return True

    def _unquoted(self, text: CsvText) -> CsvRows | None:
        """Reads each line as a row; None if csv might read them differently."""
        lines = text.lines
        if "\r" in text.joined:
            lines = [line.removesuffix("\r") for line in lines]
            if "\r" in "".join(lines):
                return None
        reader = csv.reader(lines, delimiter=self.signs.delimiter, quoting=csv.QUOTE_NONE)
        return self._without_blanks(text.lines, list(reader))

    def _quoted(self, text: CsvText) -> CsvRows | None:
        try:
            values = list(csv.reader(text.lines, **self._dialect()))
        except csv.Error:
            values = []
        if len(values) == len(text.lines):  # no row took more than its own line
            rows = self._without_blanks(text.lines, values)
            return self._told_apart(rows, text) if self._holds_quoted_null(text.joined) else rows
        return self._spanning(text) if self.signs.strips_cr and self.spans_lines else None

    def _dialect(self) -> dict[str, Any]:
        signs = self.signs
        return {"delimiter": signs.delimiter, "quotechar": signs.quote, "doublequote": signs.doublequote, "strict": True}

    def _without_blanks(self, lines: list[str], values: list[Any]) -> CsvRows:
        if all(values) and not (self._trim and any(map(self.is_blank, lines))):
            return CsvRows(values)
        kept = [index for index, line in enumerate(lines) if not self.is_blank(line)]
        return CsvRows([values[index] for index in kept], [(index, index + 1) for index in kept])

    def _holds_quoted_null(self, text: str) -> bool:
        return any(null in text for null in self._quoted_nulls)

    def _told_apart(self, rows: CsvRows, text: CsvText) -> CsvRows:
        """Returns the rows; those that may hold a null within quotes become exact."""
        lines = text.lines
        for index in range(len(rows.values)):
            first, _ = rows.spans[index] if rows.spans else (index, 0)
            if self._holds_quoted_null(lines[first]):
                self._tell_apart(rows, index, lines, first, first + 1)
        return rows

    def _tell_apart(self, rows: CsvRows, index: int, lines: list[str], first: int, after: int) -> None:
        quote, values = self.signs.quote, rows.values[index]
        line = lines[first].removesuffix("\r") if self.signs.strips_cr else lines[first]
        rows.exact.add(index)
        if line.count(quote) == 2 * len(values) and line == f"{quote}{f'{quote}{self.signs.delimiter}{quote}'.join(values)}{quote}":  # type: ignore[arg-type]
            return  # all of them are quoted
        found = RowScanner(self.signs, lines, first, after).row()
        if isinstance(found, CsvHit):
            rows.values[index] = self._with_nulls(found)
        else:  # csv has read it, so this is not known to happen
            rows.values[index], rows.bad[index] = [], found if isinstance(found, BadRow) else BadRow(found.field, UNCLOSED)

    def _with_nulls(self, found: CsvHit) -> Values:
        nulls = self._nulls
        if self._null_quoted:
            return [None if text in nulls else text for text in found.fields]
        return [None if text in nulls and not quoted else text for text, quoted in zip(found.fields, found.quoted, strict=True)]

    def _may_hold_null(self, text: CsvText) -> bool:
        if any(null and null in text.joined for null in self._nulls) or (self._nulls and self._trim):
            return True
        if "" not in self._nulls:
            return False
        delimiter, quote = self.signs.delimiter, self.signs.quote
        if text.has(quote) or ("\r" in text.joined and f"{delimiter}\r" in text.joined):
            return True
        return 2 * delimiter in delimiter.join(("", *text.lines, ""))  # one search instead of one for each place

    def _spanning(self, text: CsvText) -> CsvRows:
        """Reads rows of one or more lines."""
        rows, begin = CsvRows(spans=[]), 0
        holds_null = self._holds_quoted_null(text.joined)
        while begin < len(text.lines):
            for first, after, values in self._parsed(text.lines, begin):
                begin = after
                if values is None or (after > first + 1 and text.places[after] - text.places[first] > text.most_bytes):
                    following = self._one(rows, text, first)
                    if following is None:
                        return rows
                    begin = following
                    break
                if values and not self.is_blank(text.lines[first]):
                    _add(rows, values, first, after)
                    if holds_null and any(map(self._holds_quoted_null, text.lines[first:after])):
                        self._tell_apart(rows, len(rows.values) - 1, text.lines, first, after)
        return rows

    def _parsed(self, lines: list[str], begin: int) -> Iterator[tuple[int, int, list[Any] | None]]:
        """Yields rows from line `begin` on, up to the first that csv refuses: None."""
        reader = csv.reader((lines[index] + "\n" for index in range(begin, len(lines))), **self._dialect())
        first = begin
        try:
            for values in reader:
                after = begin + reader.line_num
                yield first, after, values
                first = after
        except csv.Error:
            yield first, first, None

    def _exact(self, text: CsvText) -> CsvRows:
        """Reads all rows, one by one."""
        rows, index = CsvRows(spans=[]), 0
        while index < len(text.lines):
            line = text.lines[index]
            if self.is_blank(line) or self.is_comment(line):
                index += 1
                continue
            following = self._one(rows, text, index)
            if following is None:
                break
            index = following
        return rows

    def _one(self, rows: CsvRows, text: CsvText, first: int) -> int | None:
        """Reads the row that begins on line `first`. Returns the line after it, None when it is not complete yet."""
        places = text.places
        limit = max(first + 1, bisect_right(places, places[first] + text.most_bytes) - 1)
        found = RowScanner(self.signs, text.lines, first, limit).row()
        if isinstance(found, CsvHit):
            rows.exact.add(len(rows.values))
            _add(rows, self._with_nulls(found), first, found.after)
            return found.after
        if isinstance(found, UnfinishedRow):
            is_cut = limit < len(text.lines) and self.signs.multiline
            if self.signs.multiline and not is_cut and not text.final:
                rows.open_line, rows.in_quotes = first, found.in_quotes
                return None
            why = ESCAPES_NOTHING if not found.in_quotes else _TOO_LONG if is_cut else UNCLOSED
            found = BadRow(found.field, why)
        rows.bad[len(rows.values)] = found
        _add(rows, [], first, first + 1)
        return first + 1


def _add(rows: CsvRows, values: Values, first: int, after: int) -> None:
    assert rows.spans is not None, "rows are added one by one"
    rows.values.append(values)
    rows.spans.append((first, after))


def _put_back(rows: CsvRows, delimiter: str) -> None:
    """Restores the delimiters that are text."""
    for index, values in enumerate(rows.values):
        if any(text is not None and _STAND_IN in text for text in values):
            rows.values[index] = [text if text is None else text.replace(_STAND_IN, delimiter) for text in values]
