"""The rules of csv: its options, their contradictions, and the definition of a row, character by character."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from copycat_agent.formats.lines import LineOptions
from copycat_agent.formats.model import OptionProblem
from copycat_agent.formats.records.byte_records import SKIP_FOOTER
from copycat_agent.formats.records.field_types import TypedOptions, TypeWord, field_types
from copycat_agent.formats.text import encoding_problem
from copycat_agent.model import Column
from copycat_agent.options import BeforeValidator, ByteSize, Field, Options

_ONE = "is one character"


def _spelt_out(text: object) -> object:
    """Returns a tab also for a backslash and a t, which is what YAML makes of it in single quotes."""
    return "\t" if text == "\\t" else text


class RowLineOptions(Options):
    """What a line of a table is."""

    delimiter: str = Field(
        "\n",
        min_length=1,
        max_length=64,
        description='What ends a line, in the encoding of the file. With the default "\\n" a CR before it belongs to it.',
    )
    max_bytes: ByteSize = Field(
        2**20, ge=1, le=2**30, description="Longest record as it stands in the file, with all its lines, the last delimiter not counted."
    )
    on_too_long: Literal["dlq", "drop"] = Field(
        "dlq",
        description="dlq: a line over the limit is a bad record, as `errors` says, its first max_bytes as raw bytes. drop: counted and "
        "passed.",
    )

    def as_lines(self) -> LineOptions:
        """Returns the same options for `LineFrames`."""
        return LineOptions(delimiter=self.delimiter, max_bytes=self.max_bytes, on_too_long=self.on_too_long)


class CsvOptions(TypedOptions):
    """Tables as text: CSV, TSV and their relatives."""

    type: Literal["csv"] = Field("csv", description="Each row is a record, its columns are fields.")
    header: bool = Field(True, description="The first row names the columns. false: `columns` does, or they are c1, c2 and so on.")
    columns: tuple[str, ...] = Field(
        (),
        description="Names of the columns. With header: true, names a file's header must have, in any order; a file with others is bad.",
    )
    delimiter: Annotated[str, BeforeValidator(_spelt_out)] = Field(
        ",",
        min_length=1,
        max_length=16,
        description='Stands between two columns: one character such as ";", "\\t" for a tab, or more of them.',
    )
    quote: str = Field(
        '"', description='Character around values that hold a delimiter, a quote or an end of line. "none": there are no quotes.'
    )
    doublequote: bool = Field(True, description="A quote within quotes is written twice.")
    escape: str | None = Field(None, description="Character that takes the meaning from the one behind it, such as a backslash.")
    multiline: bool = Field(
        True, description="Quoted values may hold ends of lines. false: a quote that its line does not close makes a bad record."
    )
    comment: str | None = Field(None, min_length=1, max_length=16, description="Lines that begin with this are passed over.")
    skip_lines: int = Field(0, ge=0, le=100_000, description="Lines at the beginning of a file, before its header, that are passed over.")
    skip_footer: int = SKIP_FOOTER
    encoding: str = Field("utf-8", min_length=1, max_length=64, description="A codec of Python, or auto: what the byte order mark says.")
    null: str | tuple[str, ...] = Field("", description="Text, or texts, of a value that is not there. [] for none.")
    null_quoted: bool = Field(False, description="true: also within quotes. false: a quoted one is text, in columns of texts.")
    trim: bool = Field(False, description="Blanks around values, and around their quotes, are taken off.")
    types: dict[str, TypeWord] = Field(
        {},
        description="Types of columns: string (all others), int, bigint, double, decimal, decimal(10,2), bool, bool:YES/NO, date, time, "
        "timestamp, json, binary, binary:hex; date, time and timestamp with a format as in timestamp:%d.%m.%Y %H:%M, or timestamp:unix, "
        "unix_ms, unix_us.",
    )
    too_few: Literal["null", "error"] = Field(
        "null", description="A row with fewer columns than the header. null: those missing are null. error: a bad record."
    )
    too_many: Literal["error", "drop", "keep"] = Field(
        "error",
        description="A row with more columns. error: a bad record. drop: the others go. keep: they are fields named by number, as c11.",
    )
    line: RowLineOptions = Field(RowLineOptions(), description="What a line is.")

    @property
    def nulls(self) -> tuple[str, ...]:
        """Returns the texts of `null`."""
        return (self.null,) if isinstance(self.null, str) else self.null

    @property
    def quote_sign(self) -> str:
        """Returns the quote character, "" without one."""
        return "" if self.quote == "none" else self.quote


def problems(options: CsvOptions) -> Iterator[OptionProblem]:
    """Yields problems of options that are each valid by themselves."""
    if problem := encoding_problem(options.encoding, options.line.delimiter):
        yield OptionProblem(("encoding",), *problem)
    if len(options.quote) != 1 and options.quote != "none":
        yield OptionProblem(("quote",), _ONE, 'such as "\'", or none')
    if options.escape is not None and len(options.escape) != 1:
        yield OptionProblem(("escape",), _ONE, "such as a backslash; leave it out when there is none")
    yield from _clashes(options)
    if len(set(options.columns)) < len(options.columns) or "" in options.columns:
        yield OptionProblem(("columns",), "each column needs a name of its own", "give them different names")
    if options.columns:
        for name in options.types.keys() - set(options.columns):
            yield OptionProblem(("types", name), "no column has this name", "see `columns`")


def _clashes(options: CsvOptions) -> Iterator[OptionProblem]:
    """Yields problems of characters with two meanings."""
    signs = {"quote": options.quote_sign, "escape": options.escape or "", "line.delimiter": options.line.delimiter}
    for name, sign in signs.items():
        if sign and (sign in options.delimiter or options.delimiter in sign):
            yield OptionProblem(("delimiter",), f"it and `{name}` have a character in common", "each needs a sign of its own")
    if options.delimiter.strip("\r\n") != options.delimiter:
        yield OptionProblem(("delimiter",), "an end of line cannot stand between columns", "such as a comma, a semicolon or a tab")
    if options.escape is not None and options.escape == options.quote_sign:
        yield OptionProblem(("escape",), "it is the quote too", "leave it out: `doublequote` is what you mean")
    for name, sign in (("quote", options.quote_sign), ("escape", options.escape or "")):
        if sign and (sign in "\r\n\0" or sign in options.line.delimiter):
            yield OptionProblem((name,), "an end of line cannot be this sign", "such as '\"' or a backslash")
    if options.comment and options.quote_sign and options.comment.startswith(options.quote_sign):
        yield OptionProblem(("comment",), "quoted values begin like this", "write another beginning of comments")


def declared(options: CsvOptions) -> tuple[Column, ...] | None:
    """Returns the columns of every file, if the options name them and there cannot be more."""
    if not options.columns or options.too_many == "keep":
        return None
    types = field_types(options.types, options.type_settings())
    return tuple(Column(name, types[name].sql if name in types else "string") for name in options.columns)


class CsvCharacters(NamedTuple):
    """The special characters of one file. `delimiter` is one character here; `quote` and `escape` are "" if there are none.

    `newline` is the separator of lines; `strips_cr`: a CR at a line's end belongs to it.
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
        """Returns the pattern that ends plain text within quotes."""
        return _any_of(self.quote, self.escape)

    @property
    def stops(self) -> re.Pattern[str]:
        """Returns the pattern that ends plain text outside quotes."""
        return _any_of(self.delimiter, self.escape)


@lru_cache(maxsize=64)
def _any_of(*signs: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(sign) for sign in signs if sign) or "(?!)")


class CsvHit(NamedTuple):
    """A row. `quoted`: which of its values were in quotes. `after`: the index of the line after it."""

    fields: list[str]
    quoted: list[bool]
    after: int


class BadRow(NamedTuple):
    """An invalid row. `field` is the column, from 0, with the error."""

    field: int
    why: str


class UnfinishedRow(NamedTuple):
    """The row continues after the last line. `in_quotes`: only a quote ends it."""

    field: int
    in_quotes: bool


_BLANKS = " \t"
UNCLOSED = "a quote that is opened is not closed"
_BEHIND = "something other than a delimiter follows the closing quote"
_BARE_CR = "a carriage return stands in it, not in quotes"
ESCAPES_NOTHING = "the escape character stands at the end of the row"


class RowScanner:
    """Reads the row that begins on line `first` of `lines`, character by character: this defines csv here. Used once.

    A value that begins with the quote ends at the next quote that is not doubled (or escaped); only a delimiter or the end of the line may
    follow. A quote within any other value is text. Within quotes, and after the escape character, an end of line is text, and the row
    continues in the next line. Faster readers have to find the same.
    """

    def __init__(self, signs: CsvCharacters, lines: Sequence[str], first: int, limit: int) -> None:
        """`limit`: lines from that index on are not read. Lines have no delimiters, but may have a CR."""
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

    def row(self) -> CsvHit | BadRow | UnfinishedRow:
        """Returns the row that begins here."""
        while True:
            outcome = self._field()
            if outcome is not None:
                return outcome
            if self._place >= self._end():
                return CsvHit(self._fields, self._quoted, self._index + 1)
            self._place += 1  # the delimiter

    def _end(self) -> int:
        """Returns where the text of this line ends."""
        size = len(self._text)
        return size - 1 if self._signs.strips_cr and size > self._place and self._text[-1] == "\r" else size

    def _field(self) -> BadRow | UnfinishedRow | None:
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

    def _in_quotes(self) -> BadRow | UnfinishedRow | None:
        signs, parts = self._signs, []
        self._place += 1
        while True:
            stop = self._closing.search(self._text, self._place)
            if stop is None:
                parts += [self._text[self._place :], signs.newline]
                if not self._next_line():
                    return UnfinishedRow(len(self._fields), in_quotes=True)
                continue
            parts.append(self._text[self._place : stop.start()])
            self._place = stop.end()
            if stop[0] == signs.escape:
                if not self._escaped(parts):
                    return UnfinishedRow(len(self._fields), in_quotes=True)
            elif signs.doublequote and self._text.startswith(signs.quote, self._place):
                parts.append(signs.quote)
                self._place += 1
            else:
                return self._closed("".join(parts))

    def _closed(self, value: str) -> BadRow | None:
        if self._signs.trim:
            self._pass_blanks()
        if self._place < self._end() and self._text[self._place] != self._signs.delimiter:
            return BadRow(len(self._fields), _BEHIND)
        self._add(value, quoted=True)
        return None

    def _plain(self) -> BadRow | UnfinishedRow | None:
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
                return UnfinishedRow(len(self._fields), in_quotes=False)
        value = "".join(parts)
        if self._signs.strips_cr and "\r" in value and not self._signs.escape:
            return BadRow(len(self._fields), _BARE_CR)
        self._add(value, quoted=False)
        return None

    def _escaped(self, parts: list[str]) -> bool:
        """Takes what follows an escape character. Returns False when that is in a line that is not there."""
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
