"""`fixed_width`: columns are at fixed positions of each line, or of each record of `record_bytes`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Unpack

from copycat_agent.formats.draft import Parsed, Unparsed
from copycat_agent.formats.lines import LineFrames
from copycat_agent.formats.model import FileFormat, FormatKind, Frame, FrameOptions, Gap, OptionProblem, RecordFile
from copycat_agent.formats.records.byte_records import SKIP_FOOTER, FileEdges, header_gap, line_starts
from copycat_agent.formats.records.columns import ColumnRules, Columns, Value
from copycat_agent.formats.records.csv_options import RowLineOptions
from copycat_agent.formats.records.field_types import TypedOptions, TypeWord, field_types
from copycat_agent.formats.records.row_runs import BLOCK_BYTES, PendingLines, RowRun, of_lines
from copycat_agent.formats.text import TAIL_BYTES, Layout, encoding_problem
from copycat_agent.options import Field, Options

_BLANKS = " \t\0"
_STEP_BYTES = 2**20
_FILE_ENDS = b"\r\n\x1a"
_LOOK_BYTES = 2**10


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
    skip_footer: int = SKIP_FOOTER
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
        """Returns the texts of `null`."""
        return (self.null,) if isinstance(self.null, str) else self.null


class _FieldPlace(NamedTuple):
    start: int
    end: int


class Cutter:
    """Cuts lines, or records of fixed length, into the texts of their columns. Stateless."""

    def __init__(self, options: FixedWidthOptions) -> None:
        self._options = options
        self._places: list[_FieldPlace] = []
        end = 0
        for column in options.columns:
            start = end if column.start is None else column.start - 1
            end = start + column.width
            self._places.append(_FieldPlace(start, end))
        self.width = max(place.end for place in self._places)
        types = field_types({column.name: column.type for column in options.columns}, options.type_settings())
        rules = ColumnRules(types, options.nulls, trim=False, too_few="null", too_many="error")
        self.columns = Columns([column.name for column in options.columns], rules)

    def records(self, records: list[bytes], codec: str) -> list[Value]:
        """Returns a record of each line."""
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
        """Returns what is wrong with a record of this length."""
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


class ByteWidths(FileFormat):
    """Each `record_bytes` bytes are a record."""

    def __init__(self, options: FixedWidthOptions) -> None:
        assert options.record_bytes is not None, "see `_build`"
        self._size = options.record_bytes
        self._skipped = options.skip_lines * self._size
        self._codec = "utf-8" if options.encoding == "auto" else options.encoding
        self._cutter = Cutter(options)

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        """Yields records; an incomplete one at the end of the file is a bad record."""
        final, block_bytes, position = how.get("final", True), how.get("block_bytes"), start
        for position in self._passed(file, start, min(end, self._skipped), final=final):
            begin = max(start, position - TAIL_BYTES)
            yield Gap(start, position, file(begin, position - begin), "header")
            start = position
        count = max(1, (BLOCK_BYTES if block_bytes is None else block_bytes) // self._size)
        while self._skipped <= position < end:
            data = file(position, min(end - position, count * self._size))
            whole = len(data) - len(data) % self._size
            if whole:
                yield self._run(data[:whole], position)
                position += whole
            if len(data) > whole or not data:
                yield from self._rest(data[whole:], position) if final else ()
                return

    def _passed(self, file: RecordFile, position: int, end: int, *, final: bool) -> Iterator[int]:
        """Yields how far what is skipped has been passed, in steps."""
        while position < end:
            data = file(position, min(end - position, _STEP_BYTES))
            if not data or (len(data) < min(end - position, _STEP_BYTES) and not final):
                return
            position += len(data)
            yield position

    def _rest(self, rest: bytes, position: int) -> Iterator[Frame]:
        """Yields the rest at the end of the file: a bad record, or a gap for an end-of-file mark that editors write."""
        if rest and not rest.strip(_FILE_ENDS):
            yield Gap(position, position + len(rest), rest[-TAIL_BYTES:], "header")
        elif rest:
            bad = Unparsed(f"the file ends after {len(rest)} of {self._size} bytes of a record", "see record_bytes")
            yield Parsed([bad], [position, position + len(rest)], len(rest), [rest], rest[-TAIL_BYTES:], self._cutter.columns.schema)

    def _run(self, data: bytes, position: int) -> Parsed:
        raw = [data[place : place + self._size] for place in range(0, len(data), self._size)]
        places = list(range(position, position + len(data) + 1, self._size))
        return Parsed(self._cutter.records(raw, self._codec), places, len(data), raw, data[-TAIL_BYTES:], self._cutter.columns.schema)

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> dict[str, Any] | Unparsed:
        """Returns one record from the bytes in a dead letter; the options name its columns."""
        del columns
        return self._cutter.records([raw], self._codec)[0]

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        places = (file.size * part // parts // self._size * self._size for part in range(1, parts))
        return tuple(dict.fromkeys(place for place in places if self._skipped < place < file.size))


class _FixedWidthTable:
    """A `LineTable`."""

    def __init__(self, cutter: Cutter, layout: Layout) -> None:
        self.lines = PendingLines(layout, 0)
        self.schema = cutter.columns.schema
        self._cutter = cutter

    def take(self, *, final: bool) -> RowRun:
        """Returns a record for each line that is not empty."""
        del final
        lines = self.lines
        cr = "\r".encode(lines.codec) if lines.delimiter == "\n".encode(lines.codec) else b""
        raw = [line.removesuffix(cr) for line in lines.raw] if cr else lines.raw
        kept = [index for index, line in enumerate(raw) if line]
        values = self._cutter.records([raw[index] for index in kept], lines.codec)
        return RowRun(values, [(index, index + 1) for index in kept], len(raw))


class LineWidths(FileFormat):
    """Each line is a record."""

    def __init__(self, options: FixedWidthOptions) -> None:
        """Raises what `LineFrames` raises: see `problems`."""
        self.on_too_long = options.line.on_too_long
        self._options = options
        self._lines = LineFrames(options.line.as_lines(), BLOCK_BYTES, encoding=options.encoding, raw=True)
        self._edges = FileEdges(self._lines, options.skip_lines, options.skip_footer)
        self._cutter = Cutter(options)

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        final = how.setdefault("final", True)
        begin = self._begin(file, end, final=final)
        if begin is None:
            return
        if start < begin:
            yield header_gap(file, start, min(begin, end))
            start = begin
        if start < end:
            how["footer"] = self._edges.footer(file, end)
            lines = self._lines.frames(file, start, end, **how)
            yield from of_lines(_FixedWidthTable(self._cutter, self._lines.layout(file, start)), lines, start, final=final)

    def _begin(self, file: RecordFile, end: int, *, final: bool) -> int | None:
        """Returns where the first record can begin: after the byte order mark and `skip_lines`. None when more has to be known first."""
        begin = self._edges.begin(file, end, final=final)
        return begin or (None if begin is None else len(self._lines.layout(file, 0).mark))

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> dict[str, Any] | Unparsed:
        """Returns one record from the bytes in a dead letter; the options name its columns."""
        del columns
        table = _FixedWidthTable(self._cutter, self._lines.layout(lambda *_: b"", 0))
        table.lines.put(raw)
        values = table.take(final=True).values
        return values[0] if len(values) == 1 else Unparsed("it is not one line", "drop it in a file of its own")

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Cuts where lines begin that are not empty."""
        begin = self._begin(file, file.size, final=True) or 0
        layout = self._lines.layout(file, 0)
        empty = {b"", "\r".encode(layout.codec)}
        found = []
        for cut in line_starts(self._lines, file, parts):
            place = cut
            while (line := file(place, _LOOK_BYTES)) and (size := layout.find(line, place)) >= 0 and line[:size] in empty:
                place += size + len(layout.delimiter)
            if begin < place:
                found.append(place)
        return self._edges.inner(file, dict.fromkeys(found))


def _build(options: FixedWidthOptions) -> LineWidths | ByteWidths:
    return LineWidths(options) if options.record_bytes is None else ByteWidths(options)


def problems(options: FixedWidthOptions) -> Iterator[OptionProblem]:
    """Yields problems of options that are each valid by themselves."""
    if problem := encoding_problem(options.encoding, options.line.delimiter):
        yield OptionProblem(("encoding",), *problem)
        return
    names = [column.name for column in options.columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield OptionProblem(("columns", index, "name"), "another column has this name", "give them different names")
    size = options.record_bytes
    if size is not None and options.skip_footer:
        yield OptionProblem(("skip_footer",), "it counts lines, and record_bytes says that there are none", "leave one of them out")
    if size is not None and options.unit == "bytes" and Cutter(options).width > size:
        yield OptionProblem(("record_bytes",), f"its columns end at byte {Cutter(options).width}", "correct `columns` or record_bytes")


FIXED_WIDTH = FormatKind(FixedWidthOptions, _build, problems, lambda options: Cutter(options).columns.schema.columns)
