"""The records of one CSV file, from its lines."""

from __future__ import annotations

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.encoding import Layout
from copycat_agent.formats.records.fields.columns import Columns
from copycat_agent.formats.records.tables.csv_rows import RowReader, Rows
from copycat_agent.formats.records.tables.lines import Lines
from copycat_agent.formats.records.tables.runs import Batch

_REPLACED = "\ufffd"


class Table:
    """See `LineTable`. Used once. Its lines are those of a row that is not complete, and what came last."""

    def __init__(self, rows: RowReader, columns: Columns, layout: Layout) -> None:
        self.lines = Lines(layout, 0)
        self.schema = columns.schema
        self._rows = rows
        self._columns = columns
        self._looked_at = 0  # lines of a row that only a quote ends, in which there is none

    def take(self, *, final: bool) -> Batch:
        """See `LineTable.take`."""
        lines = self.lines
        if self._looked_at and not final and not self._may_end():
            self._looked_at = len(lines.raw)
            return Batch([], None, 0)
        texts, undecoded = lines.texts()
        rows = self._rows.rows(texts, lines.places, delimiter_bytes=len(lines.delimiter), final=final)
        used = len(texts) if rows.open_line is None else rows.open_line
        self._looked_at = len(texts) - used if rows.in_quotes else 0
        bad = {index: self._columns.refused(found.field, found.why) for index, found in rows.bad.items()}
        for index in self._undecoded(rows, undecoded):
            bad[index] = self._not_text(rows.values[index])
        return Batch(self._columns.records(rows.values, rows.exact, bad, may_hold_null=rows.may_hold_null), rows.spans, used)

    def _may_end(self) -> bool:
        """Whether the row that only a quote ends can have done so, or has become too long."""
        return self._rows.is_over(self.lines.end - self.lines.start) or self._rows.may_close(
            self.lines.raw[self._looked_at :], self.lines.codec
        )

    def _undecoded(self, rows: Rows, lines: set[int]) -> list[int]:
        """Rows on lines with bytes that are no text."""
        if not lines:
            return []
        spans = rows.spans or [(index, index + 1) for index in range(len(rows.values))]
        return [index for index, (first, after) in enumerate(spans) if not lines.isdisjoint(range(first, after))]

    def _not_text(self, values: list[str | None]) -> Unparsed:
        place = next((index for index, text in enumerate(values) if text is not None and _REPLACED in text), 0)
        return self._columns.refused(place, f"bytes that are not {self.lines.codec}")
