"""`csv`: tables as text. Lines are found first, rows in them, then values in rows: a bad row costs itself and nothing behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.lines import LineFrames
from copycat_agent.formats.model import Frame, RecordFile
from copycat_agent.formats.records.base import FormatKind
from copycat_agent.formats.records.fields.columns import Columns, Rules
from copycat_agent.formats.records.fields.types import field_types
from copycat_agent.formats.records.lines import line_starts
from copycat_agent.formats.records.tables.csv_header import HeadReader
from copycat_agent.formats.records.tables.csv_options import CsvOptions, declared, problems
from copycat_agent.formats.records.tables.csv_rows import RowReader
from copycat_agent.formats.records.tables.csv_table import Table
from copycat_agent.formats.records.tables.runs import BLOCK_BYTES, header_gap, of_lines

_LOOK_BYTES = 2**12


class CsvFormat:
    """See `RecordFormat`."""

    counts_records = False
    finds_end = False
    makes_fields = True

    def __init__(self, options: CsvOptions) -> None:
        """Raises what `LineFrames` raises: see `problems`."""
        self.on_too_long: Literal["dlq", "truncate", "drop"] = options.line.on_too_long
        types = field_types(options.types, options.type_settings())
        self._rules = Rules(types, options.nulls, options.trim, options.too_few, options.too_many)
        self._columns = options.columns
        self._lines = LineFrames(options.line.as_lines(), encoding=options.encoding)
        self._body_lines = LineFrames(options.line.as_lines(), BLOCK_BYTES, encoding=options.encoding, raw=True)  # they are decoded here
        self._rows = RowReader(options)
        self._heads = HeadReader(options, self._rules, self._lines, self._rows)

    def frames(
        self,
        file: RecordFile,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = True,
        flush: bool = False,
        block_bytes: int | None = None,
    ) -> Iterator[Frame]:
        """See `RecordFormat.frames`."""
        del flush
        head = self._heads.head(file, end, final=final)
        if head is None:
            return
        if start < head.end:
            yield header_gap(file, start, min(head.end, end))
            start = head.end
        if head.columns is None or start >= end:
            return
        lines = self._body_lines.frames(file, start, end, skipping=skipping, final=final, block_bytes=block_bytes)
        table = Table(self._rows, head.columns, self._lines.layout(file, start))
        yield from of_lines(table, lines, start, final=final)

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> dict[str, Any] | Unparsed:
        """One record by its bytes, as a dead letter has them; `columns` are the names of its file's, () where they are not known."""
        names = columns or self._columns
        if not names:
            return Unparsed("it names no columns: those were in its file's header", "drop the record in a file of its own, with a header")
        table = Table(self._rows, Columns(names, self._rules), self._lines.layout(lambda *_: b"", 0))
        table.lines.put(raw)
        values = table.take(final=True).values
        return values[0] if len(values) == 1 else Unparsed("it is not one row", "drop it in a file of its own, with a header")

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`: only where no value can hold the end of a line."""
        head = None if self._rows.spans_lines else self._heads.head(file, file.size, final=True)
        if head is None or head.columns is None:
            return ()
        found = (self._row_start(file, cut) for cut in line_starts(self._lines, file, parts))
        return tuple(dict.fromkeys(cut for cut in found if head.end < cut < file.size))

    def _row_start(self, file: RecordFile, position: int) -> int:
        """Where the first row at or behind a line's beginning stands: what is passed over belongs to the row before it."""
        layout = self._lines.layout(file, 0)
        while line := file(position, _LOOK_BYTES):
            place = layout.find(line, position)
            text = line[: place if place >= 0 else None].decode(layout.codec, "replace")
            if place < 0 or not (self._rows.is_blank(text) or self._rows.is_comment(text)):
                break
            position += place + len(layout.delimiter)
        return position


CSV = FormatKind(CsvOptions, CsvFormat, problems, declared)
