"""Options of format `fixed_width`, and what cuts a record into its columns."""

from __future__ import annotations

from typing import Literal, NamedTuple

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.fields.columns import Columns, Rules, Value
from copycat_agent.formats.records.fields.types import TypedOptions, TypeWord, field_types
from copycat_agent.formats.records.tables.csv_options import RowLineOptions
from copycat_agent.options import Field, Options

_BLANKS = " \t\0"


class ColumnOptions(Options):
    """One column."""

    name: str = Field(min_length=1, description="Name of the field.")
    start: int | None = Field(None, ge=1, description="Where it begins; 1 is the first. Absent: behind the column before it.")
    width: int = Field(ge=1, le=2**24, description="How long it is.")
    type: TypeWord = Field("string", description="Its type, as in `types` of csv.")


class FixedWidthOptions(TypedOptions):
    """Records whose columns have fixed places."""

    type: Literal["fixed_width"] = Field("fixed_width", description="Columns at fixed places of each line.")
    columns: tuple[ColumnOptions, ...] = Field(
        min_length=1, description="The columns: name, start, width, type. What is in none of them is passed over."
    )
    unit: Literal["characters", "bytes"] = Field("characters", description="What `start` and `width` count, of the file's encoding.")
    record_bytes: int | None = Field(
        None, ge=1, le=2**24, description="Length of each record where nothing ends one. Absent: each line is a record."
    )
    skip_lines: int = Field(
        0, ge=0, le=100_000, description="Lines, or records of record_bytes, at the beginning of a file that are passed over."
    )
    encoding: str = Field("utf-8", min_length=1, max_length=64, description="A codec of Python, or auto: what the byte order mark says.")
    trim: bool = Field(True, description="Blanks (and NUL) around values are taken off.")
    null: str | tuple[str, ...] = Field("", description="Text, or texts, of a value that is not there. [] for none.")
    too_short: Literal["null", "error"] = Field(
        "null", description="A line that ends before or in a column. null: what is missing is null, or shorter. error: a bad record."
    )
    too_long: Literal["error", "drop"] = Field(
        "error", description="A line with more than blanks behind its last column. error: a bad record. drop: that goes."
    )
    line: RowLineOptions = Field(RowLineOptions(), description="What a line is.")

    @property
    def nulls(self) -> tuple[str, ...]:
        """The texts of `null`."""
        return (self.null,) if isinstance(self.null, str) else self.null


class _Place(NamedTuple):
    start: int
    end: int


class Cutter:
    """Cuts lines, or records of a length, into the texts of their columns. Stateless."""

    def __init__(self, options: FixedWidthOptions) -> None:
        self._options = options
        self._places: list[_Place] = []
        end = 0
        for column in options.columns:
            start = end if column.start is None else column.start - 1
            end = start + column.width
            self._places.append(_Place(start, end))
        self.width = max(place.end for place in self._places)
        types = field_types({column.name: column.type for column in options.columns}, options.type_settings())
        rules = Rules(types, options.nulls, trim=False, too_few="null", too_many="error")
        self.columns = Columns([column.name for column in options.columns], rules)

    def records(self, records: list[bytes], codec: str) -> list[Value]:
        """A record of each line."""
        bad: dict[int, Unparsed] = {}
        rows: list[list[str | None]] = []
        for index, record in enumerate(records):
            row = self._in_bytes(record, codec) if self._options.unit == "bytes" else self._in_characters(record, codec)
            if isinstance(row, Unparsed):
                bad[index], row = row, []
            rows.append(row)
        return self.columns.records(rows, (), bad, may_hold_null=True)

    def _in_characters(self, record: bytes, codec: str) -> list[str | None] | Unparsed:
        try:
            text = record.decode(codec)
        except UnicodeDecodeError as error:
            return self.columns.refused(self._column_at(len(record[: error.start].decode(codec, "replace"))), f"bytes that are not {codec}")
        found = self._length(len(text), text[self.width :])
        return found or [self._cleaned(text[start:end]) if start < len(text) else None for start, end in self._places]

    def _in_bytes(self, record: bytes, codec: str) -> list[str | None] | Unparsed:
        found = self._length(len(record), record[self.width :].decode(codec, "replace"))
        if found is not None:
            return found
        row: list[str | None] = []
        for index, (start, end) in enumerate(self._places):
            try:
                row.append(self._cleaned(record[start:end].decode(codec)) if start < len(record) else None)
            except UnicodeDecodeError:
                return self.columns.refused(index, f"bytes that are not {codec}")
        return row

    def _length(self, size: int, beyond: str) -> Unparsed | None:
        """What is wrong with a record of this length."""
        options = self._options
        if size < self.width and options.too_short == "error":
            return Unparsed(f"{size} {options.unit}, its columns need {self.width}", "correct the file, or set too_short: null")
        if options.too_long == "error" and options.record_bytes is None and beyond.strip(_BLANKS):
            return Unparsed(f"{size} {options.unit}, its columns end at {self.width}", "correct `columns`, or set too_long: drop")
        return None

    def _cleaned(self, text: str) -> str:
        return text.strip(_BLANKS) if self._options.trim else text

    def _column_at(self, position: int) -> int:
        return next((index for index, place in enumerate(self._places) if place.start <= position < place.end), 0)
