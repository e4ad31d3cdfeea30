"""Options of format `csv`, and what they cannot mean together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from copycat_agent.formats.encoding import encoding_problem
from copycat_agent.formats.lines import LineOptions
from copycat_agent.formats.records.base import OptionProblem
from copycat_agent.formats.records.fields.types import TypedOptions, TypeWord, field_types
from copycat_agent.model import Column
from copycat_agent.options import BeforeValidator, ByteSize, Field, Options

_ONE = "is one character"


def _spelt_out(text: object) -> object:
    """A tab is a tab also in single quotes, where YAML leaves the backslash."""
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
        """The same for what finds lines."""
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
        """The texts of `null`."""
        return (self.null,) if isinstance(self.null, str) else self.null

    @property
    def quote_sign(self) -> str:
        """The quote, "" where there is none."""
        return "" if self.quote == "none" else self.quote


def problems(options: CsvOptions) -> Iterator[OptionProblem]:
    """See `FormatKind.problems`."""
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
    """One sign with two meanings."""
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
    """The columns of every file, where the options name them and none can come on top."""
    if not options.columns or options.too_many == "keep":
        return None
    types = field_types(options.types, options.type_settings())
    return tuple(Column(name, types[name].sql if name in types else "string") for name in options.columns)
