"""`w3c`: extended log files, as IIS, CloudFront and others write them.

Lines that begin with # are not records. `#Fields:` names the columns of the lines after it, until the next one names others. So if reading
begins in the middle, after a kill, the lines before are searched for the names that apply there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, Unpack
from urllib.parse import unquote

from copycat_agent.errors import DamageError
from copycat_agent.formats.draft import Chunk, Unparsed
from copycat_agent.formats.lines import LineFrames
from copycat_agent.formats.model import FileFormat, FormatKind, Frame, FrameOptions, Gap, OptionProblem, RecordFile
from copycat_agent.formats.records.byte_records import header_gap
from copycat_agent.formats.records.columns import ColumnRules, Columns, Value
from copycat_agent.formats.records.csv_options import RowLineOptions
from copycat_agent.formats.records.field_types import TypedOptions, TypeWord, field_types
from copycat_agent.formats.records.row_runs import BLOCK_BYTES, PendingLines, RowRun, of_lines
from copycat_agent.formats.text import Layout, encoding_problem
from copycat_agent.model import Schema
from copycat_agent.options import Field

_FIELDS = re.compile(r"#fields:(.*)", re.IGNORECASE | re.DOTALL)
_VALUE = re.compile(r'"((?:[^"]|"")*)"(?=[ ]|$)|([^ ]+)')
"""A value in quotes, in which a quote is written twice; or one without quotes."""
_UNNAMED = Unparsed("no #Fields line before it names its columns", "correct the file")


class W3cOptions(TypedOptions):
    """W3C extended log files."""

    type: Literal["w3c"] = Field("w3c", description="Each line is a record, its columns are named by the #Fields line before it.")
    unescape: Literal["none", "percent", "plus"] = Field(
        "none",
        description="percent: %20 in a value is a blank, and so on, as CloudFront writes them. plus: a + in columns with a header, such as "
        "cs(User-Agent), is a blank, as IIS writes it.",
    )
    encoding: str = Field("utf-8", min_length=1, max_length=64, description="A codec of Python, or auto: what the byte order mark says.")
    types: dict[str, TypeWord] = Field({}, description="Types of columns, as `types` of csv: {sc-status: int, date: date}.")
    line: RowLineOptions = Field(RowLineOptions(), description="What a line is.")


_MOST_CHANGES = 10_000
"""Each is kept while its file is read."""


@dataclass(slots=True)
class _NamedColumns:
    """The columns found up to byte `scanned` of a file: where lines with other columns begin, and their names, in order."""

    scanned: int = 0
    found: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def at(self, position: int) -> tuple[str, ...]:
        """Returns the names for a line at this position; () for none."""
        return next((names for place, names in reversed(self.found) if place <= position), ())

    def add(self, position: int, names: tuple[str, ...]) -> None:
        """Sets the names from this position on. Raises DamageError when they change too often to be kept."""
        if position > self.scanned and names != self.at(position):
            if len(self.found) == _MOST_CHANGES:
                raise DamageError(f"#Fields names other columns for more than {_MOST_CHANGES} times, at byte {position}")
            self.found.append((position, names))


def _values(line: str) -> list[str | None]:
    """Returns the values of a line, separated by tabs if it has any, else by blanks. An unquoted `-` is null."""
    if "\t" in line:
        return [None if text in ("-", "") else text for text in line.split("\t")]
    if '"' not in line:
        return [None if text == "-" else text for text in line.split()]
    return [match[1].replace('""', '"') if match[2] is None else None if match[2] == "-" else match[2] for match in _VALUE.finditer(line)]


class _W3cTable:
    """A `LineTable`."""

    def __init__(self, rules: ColumnRules, unescape: str, layout: Layout, names: Sequence[str]) -> None:
        self.lines = PendingLines(layout, 0)
        self._rules = rules
        self._unescape = unescape
        self.name(names)

    def name(self, names: Sequence[str]) -> None:
        """Sets the columns of the next lines."""
        self._columns = Columns(names, self._rules) if names else None
        self._with_header = [index for index, name in enumerate(names) if "(" in name]

    @property
    def schema(self) -> Schema:
        """Returns the schema of the next lines."""
        return self._columns.schema if self._columns else Schema(())

    def take(self, *, final: bool) -> RowRun:
        """Returns a record for each line that is not blank."""
        del final
        texts, undecoded = self.lines.texts()
        kept = [index for index, text in enumerate(texts) if text.strip()]
        spans = [(index, index + 1) for index in kept]
        if self._columns is None:
            return RowRun([_UNNAMED for _ in kept], spans, len(texts))
        rows = [self._unescaped(_values(texts[index].removesuffix("\r"))) for index in kept]
        codec = self.lines.codec
        bad = {place: Unparsed(f"bytes that are not {codec}", "see encoding") for place, index in enumerate(kept) if index in undecoded}
        values: list[Value] = self._columns.records(rows, range(len(rows)), bad, may_hold_null=True)
        return RowRun(values, spans, len(texts))

    def _unescaped(self, row: list[str | None]) -> list[str | None]:
        if self._unescape == "percent":
            return [unquote(text) if text and "%" in text else text for text in row]
        if self._unescape == "plus":
            for index in self._with_header:
                if index < len(row) and (text := row[index]):
                    row[index] = text.replace("+", " ")
        return row


class W3cFormat(FileFormat):
    """Each line that is not a directive is a record."""

    def __init__(self, options: W3cOptions) -> None:
        """Raises what `LineFrames` raises: see `problems`."""
        self.on_too_long = options.line.on_too_long
        self._options = options
        self._rules = ColumnRules(field_types(options.types, options.type_settings()), (), trim=False, too_few="error", too_many="error")
        self._lines = LineFrames(options.line.as_lines(), BLOCK_BYTES, encoding=options.encoding, raw=True)

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        final = how.setdefault("final", True)
        layout = self._lines.layout(file, 0)
        if start < len(layout.mark):
            yield header_gap(file, start, len(layout.mark))
            start = len(layout.mark)
        named = self._named(file, layout, start)
        table = self._table_of(layout, named.at(start))
        lines = self._lines.frames(file, start, end, **how)
        yield from of_lines(table, self._without_directives(lines, layout, named, table), start, final=final)

    def _named(self, file: RecordFile, layout: Layout, start: int) -> _NamedColumns:
        """Returns the file's columns, scanned up to `start` at least."""
        named: _NamedColumns | None = file.memo.get("w3c")
        if named is None:
            named = file.memo["w3c"] = _NamedColumns()
        if named.scanned < start:
            lines = self._lines.frames(file, len(layout.mark), start, final=True)
            for _ in self._without_directives(lines, layout, named, None):
                pass
            named.scanned = start
        return named

    def _without_directives(
        self, frames: Iterator[Frame], layout: Layout, named: _NamedColumns, table: _W3cTable | None
    ) -> Iterator[Frame]:
        """Yields the frames, directives as gaps. A directive that names columns sets those of `table`."""
        sign = "#".encode(layout.codec)
        for frame in frames:
            for piece in _runs(frame, sign) if isinstance(frame, Chunk) else (frame,):
                if not (isinstance(piece, Chunk) and piece.raw[0].startswith(sign)):
                    yield piece
                    continue
                yield Gap(piece.start, piece.end, piece.tail, "header")
                for line in piece.raw:
                    if match := _FIELDS.match(line.decode(layout.codec, "replace")):
                        named.add(piece.end, tuple(match[1].split()))
                        if table is not None:
                            table.name(match[1].split())
            named.scanned = max(named.scanned, frame.end)

    def _table_of(self, layout: Layout, names: Sequence[str]) -> _W3cTable:
        return _W3cTable(self._rules, self._options.unescape, layout, names)

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> dict[str, Any] | Unparsed:
        """Returns one record from the bytes in a dead letter; `columns` are the names of its file, () if they are not known."""
        table = self._table_of(self._lines.layout(lambda *_: b"", 0), columns)
        table.lines.put(raw)
        values = table.take(final=True).values
        return values[0] if len(values) == 1 else Unparsed("it is not one line", "drop it in a file of its own, with its #Fields line")


def _runs(chunk: Chunk, sign: bytes) -> Iterator[Chunk]:
    """Yields the chunk, cut at every change between directives and other lines."""
    kinds = [line.startswith(sign) for line in chunk.raw]
    sizes = [sum(1 for _ in alike) for _, alike in groupby(kinds)] if any(kinds) else [len(kinds)]
    for size in sizes[:-1]:
        first, chunk = chunk.cut(size)
        yield first
    yield chunk


def problems(options: W3cOptions) -> Iterator[OptionProblem]:
    """Yields problems of options that are each valid by themselves."""
    if problem := encoding_problem(options.encoding, options.line.delimiter):
        yield OptionProblem(("encoding",), *problem)


W3C = FormatKind(W3cOptions, W3cFormat, problems)
