"""`csv` parses the columns of one row, by the rules of the format csv; a plain row is only split."""

from __future__ import annotations

import csv
from typing import Annotated, Any, Literal, NoReturn

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.columns import ColumnRules, numbered
from copycat_agent.formats.records.columns import Columns as RowColumns
from copycat_agent.formats.records.csv_options import ESCAPES_NOTHING, UNCLOSED, CsvHit, CsvOptions, RowScanner, UnfinishedRow, problems
from copycat_agent.formats.records.csv_rows import RowReader
from copycat_agent.formats.records.field_types import TypeSettings, TypeWord, ZoneName, field_types
from copycat_agent.model import Column
from copycat_agent.options import BeforeValidator, Field
from copycat_agent.transforms.base import Columns, Steady, StepOptions, TransformKind
from copycat_agent.transforms.parsing import ParseOptions, parse_step, parsed_columns

_TAB = "\\t"
_REMEMBERED = 64
_MOST_REMEMBERED = 1024
"""The most columns of a row whose names are remembered. Names take hundreds of bytes each, and a line decides how many there are."""


class CsvParse(ParseOptions):
    """How the row is written. What is not said here is as in the format csv."""

    columns: tuple[str, ...] = Field((), description="Names of the columns. Without them they are c1, c2 and so on.")
    delimiter: Annotated[str, BeforeValidator(lambda text: "\t" if text == _TAB else text)] = Field(
        ",",
        min_length=1,
        max_length=16,
        description='Stands between two columns: one character such as ";", "\\t" for a tab, or more of them.',
    )
    quote: str = Field('"', description='Character around values that hold a delimiter or a quote. "none": there are no quotes.')
    doublequote: bool = Field(True, description="A quote within quotes is written twice.")
    escape: str | None = Field(None, min_length=1, max_length=1, description="Character that takes the meaning from the one behind it.")
    null: str | tuple[str, ...] = Field("", description="Text, or texts, of a value that is not there. [] for none.")
    null_quoted: bool = Field(False, description="true: also within quotes. false: a quoted one is text, in columns of texts.")
    trim: bool = Field(False, description="Blanks around values, and around their quotes, are taken off.")
    types: dict[str, TypeWord] = Field({}, description="Types of columns, as in convert: {qty: int, price: decimal}. All others are texts.")
    timestamp_zone: ZoneName | None = Field(None, description="Time zone of timestamps that do not say theirs.")
    decimal_point: str = Field(".", pattern="^[.,]$", description='"," for numbers such as 3,50.')
    too_few: Literal["null", "error"] = Field(
        "null", description="A row with fewer columns. null: those missing are null. error: a bad record."
    )
    too_many: Literal["error", "drop", "keep"] = Field(
        "error",
        description="A row with more columns. error: a bad record. drop: the others go. keep: they are fields named by number, as c11.",
    )

    @property
    def nulls(self) -> tuple[str, ...]:
        """Returns the texts of `null`."""
        return (self.null,) if isinstance(self.null, str) else self.null

    @property
    def settings(self) -> TypeSettings:
        """Returns these options as settings of types."""
        return TypeSettings(self.timestamp_zone or "", self.decimal_point)

    def model_post_init(self, context: object) -> None:
        """Raises ValueError for options that contradict each other; pydantic reports it with its place."""
        super().model_post_init(context)
        if self.types.keys() - set(self.columns) and self.columns:
            raise ValueError("types names a column that is not in columns")
        for problem in problems(self.as_format()):
            raise ValueError(f"{'.'.join(map(str, problem.place))}: {problem.why}; {problem.hint}")

    def as_format(self) -> CsvOptions:
        """Returns the same options for the format csv."""
        return CsvOptions(
            header=False, columns=self.columns, delimiter=self.delimiter, quote=self.quote, doublequote=self.doublequote,
            escape=self.escape, null=self.null, null_quoted=self.null_quoted, trim=self.trim, too_few=self.too_few, too_many=self.too_many,
        )  # fmt: skip


class CsvStepOptions(StepOptions):
    """Parses a row of a table."""

    csv: CsvParse = Field(description="Parses one row of a table; its columns become fields.")


class _Row:
    """Reads rows. Stateless, except that it caches columns without names."""

    def __init__(self, options: CsvParse) -> None:
        """Raises ValueError for an unknown type."""
        self._names = options.columns
        self._rules = ColumnRules(
            field_types(options.types, options.settings), options.nulls, options.trim, options.too_few, options.too_many
        )
        self._delimiter = options.delimiter
        self._signs = RowReader(options.as_format()).signs
        self._nulls = frozenset(options.nulls)
        self._null_quoted = options.null_quoted
        quote = self._signs.quote
        self._special = tuple(sign for sign in (quote, options.escape, "\r", "\n") if sign)
        self._quoted_nulls = () if options.null_quoted or not quote else tuple(f"{quote}{null}{quote}" for null in options.nulls)
        self._only_empty = options.nulls == ("",)
        self._reads_quotes = bool(quote) and options.doublequote and not options.escape and len(options.delimiter) == 1 and not options.trim
        self._by_names: dict[int, RowColumns] = {}
        self._columns = RowColumns(options.columns, self._rules) if options.columns else None
        self._typed = (
            []
            if self._columns is None
            else [(name, self._rules.types[name].read) for name in self._columns.names if name in self._rules.types]
        )

    def parse(self, text: str) -> dict[str, Any]:
        """Returns the fields of one row. Raises DataError for an invalid row."""
        columns, is_exact = self._columns, False
        if not any(map(text.__contains__, self._special)):
            values: list[Any] = text.split(self._delimiter)
            if columns is not None and len(values) == len(columns.names) and not self._rules.trim:
                fields = self._plain(values, columns.names)
                if fields is not None:
                    return fields
        elif self._reads_quotes and (found := self._by_csv(text)) is not None:
            values, is_exact = found
            if columns is not None and len(values) == len(columns.names):
                fields = self._plain(values, columns.names, is_exact=is_exact)
                if fields is not None:
                    return fields
        else:
            return self._exactly(text)
        if not text.strip():
            _refuse("there is nothing in it")
        return self._fields(values, is_exact=is_exact)

    def _plain(self, values: list[Any], names: list[str], *, is_exact: bool = False) -> dict[str, Any] | None:
        """Returns the fields of a regular row, None for others. `is_exact`: texts outside typed columns are not compared with nulls."""
        nulls = self._nulls
        if not is_exact and nulls and not nulls.isdisjoint(values):
            values = [None if value in nulls else value for value in values]
        fields = dict(zip(names, values))  # noqa: B905 - they are equally many
        try:
            for name, read in self._typed:
                value = fields[name]
                fields[name] = None if value is None or value in nulls else read(value)
        except ValueError:
            return None
        return fields

    def _by_csv(self, text: str) -> tuple[list[Any], bool] | None:
        """Reads a row with quotes by Python's csv, and returns whether all nulls are known. None if `RowScanner` might differ."""
        if "\r" in text or "\n" in text:
            return None
        is_exact = any(map(text.__contains__, self._quoted_nulls))
        if is_exact and not self._has_no_nulls(text):
            return None
        try:
            rows = list(csv.reader((text,), delimiter=self._delimiter, quotechar=self._signs.quote, strict=True))
        except csv.Error:
            return None
        return (rows[0], is_exact) if len(rows) == 1 else None

    def _has_no_nulls(self, text: str) -> bool:
        """Returns whether the empty text is the only null, and never appears outside quotes."""
        between = self._delimiter
        return self._only_empty and not (2 * between in text or text.startswith(between) or text.endswith(between))

    def _exactly(self, text: str) -> dict[str, Any]:
        if self._signs.delimiter != self._delimiter:
            text = text.replace(self._delimiter, self._signs.delimiter)
        lines = text.split("\n")
        while len(lines) > 1 and lines[-1] in ("", "\r"):
            lines.pop()
        if not text.strip():
            _refuse("there is nothing in it")
        found = RowScanner(self._signs, lines, 0, len(lines)).row()
        if isinstance(found, UnfinishedRow):
            _refuse(f"column {found.field + 1}: {UNCLOSED if found.in_quotes else ESCAPES_NOTHING}")
        if not isinstance(found, CsvHit):
            _refuse(f"column {found.field + 1}: {found.why}")
        if found.after < len(lines):
            _refuse("a second row follows")
        texts = [each.replace(self._signs.delimiter, self._delimiter) for each in found.fields]
        quoted = [False] * len(texts) if self._null_quoted else found.quoted
        nulls = self._nulls
        return self._fields(
            [None if each in nulls and not is_text else each for each, is_text in zip(texts, quoted, strict=True)], is_exact=True
        )

    def _fields(self, values: list[Any], *, is_exact: bool) -> dict[str, Any]:
        columns = self._columns or self._numbered(len(values))
        (fields,) = columns.records([values], (0,) if is_exact else (), {}, may_hold_null=True)
        if isinstance(fields, Unparsed):
            _refuse(fields.why)
        return fields

    def _numbered(self, count: int) -> RowColumns:
        """Returns columns named by number."""
        found = self._by_names.get(count)
        if found is None:
            found = RowColumns([numbered(index) for index in range(count)], self._rules)
            if count <= _MOST_REMEMBERED and len(self._by_names) < _REMEMBERED:
                self._by_names[count] = found
        return found


def _refuse(why: str) -> NoReturn:
    raise DataError(f"not a row: {why}", "correct the options of csv, or set on_error")


def _columns(options: CsvStepOptions, before: Columns | None) -> Columns | None:
    parse = options.csv
    if not parse.columns or parse.too_many == "keep":
        return None
    types = field_types(parse.types, parse.settings)
    return parsed_columns(parse, tuple(Column(name, types[name].sql if name in types else "string") for name in parse.columns), before)


CSV = TransformKind(CsvStepOptions, lambda options: Steady(parse_step(options.csv, _Row(options.csv).parse)), _columns)
