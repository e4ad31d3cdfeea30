"""`csv`: tables as text. Lines are found first, rows in them, then values in rows: a bad row does not affect the rows after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Unpack

from copycat_agent.errors import DamageError
from copycat_agent.formats.draft import Chunk, Unparsed
from copycat_agent.formats.lines import LineFrames
from copycat_agent.formats.model import FileFormat, FormatKind, Frame, FrameOptions, Gap, LongLine, RecordFile, SkippedRest
from copycat_agent.formats.records.byte_records import FileEdges, header_gap, line_starts
from copycat_agent.formats.records.columns import ColumnRules, Columns, numbered
from copycat_agent.formats.records.csv_options import CsvOptions, declared, problems
from copycat_agent.formats.records.csv_rows import CsvRows, RowReader
from copycat_agent.formats.records.field_types import field_types
from copycat_agent.formats.records.row_runs import BLOCK_BYTES, PendingLines, RowRun, of_lines
from copycat_agent.formats.text import Layout

_REPLACED = "\ufffd"
_BLOCK_BYTES = 2**10
"""Bytes read at first: this much of a packed file can be read again without unpacking it again."""
_MOST_BYTES = 2**20
"""The most bytes read to find a row that determines the number of columns."""
_KEY = "csv"
_LOOK_BYTES = 2**12


class CsvTable:
    """A `LineTable`. Used once. Its lines are those of an incomplete row, and the latest ones."""

    def __init__(self, rows: RowReader, columns: Columns, layout: Layout) -> None:
        self.lines = PendingLines(layout, 0)
        self.schema = columns.schema
        self._rows = rows
        self._columns = columns
        self._looked_at = 0  # lines of a row that only a quote ends, without a quote so far

    def take(self, *, final: bool) -> RowRun:
        lines = self.lines
        if self._looked_at and not final and not self._may_end():
            self._looked_at = len(lines.raw)
            return RowRun([], None, 0)
        texts, undecoded = lines.texts()
        rows = self._rows.rows(texts, lines.places, delimiter_bytes=len(lines.delimiter), final=final)
        used = len(texts) if rows.open_line is None else rows.open_line
        self._looked_at = len(texts) - used if rows.in_quotes else 0
        bad = {index: self._columns.refused(found.field, found.why) for index, found in rows.bad.items()}
        for index in self._undecoded(rows, undecoded):
            bad[index] = self._not_text(rows.values[index])
        return RowRun(self._columns.records(rows.values, rows.exact, bad, may_hold_null=rows.may_hold_null), rows.spans, used)

    def _may_end(self) -> bool:
        """Returns whether the row that only a quote ends may have ended, or has become too long."""
        return self._rows.is_over(self.lines.end - self.lines.start) or self._rows.may_close(
            self.lines.raw[self._looked_at :], self.lines.codec
        )

    def _undecoded(self, rows: CsvRows, lines: set[int]) -> list[int]:
        """Returns the rows on lines with invalid bytes."""
        if not lines:
            return []
        spans = rows.spans or [(index, index + 1) for index in range(len(rows.values))]
        return [index for index, (first, after) in enumerate(spans) if not lines.isdisjoint(range(first, after))]

    def _not_text(self, values: list[str | None]) -> Unparsed:
        place = next((index for index, text in enumerate(values) if text is not None and _REPLACED in text), 0)
        return self._columns.refused(place, f"bytes that are not {self.lines.codec}")


class CsvHead(NamedTuple):
    """`end`: where the header ends. `columns` None: the file ends before anything names them."""

    end: int
    columns: Columns | None


class HeadReader:
    """Finds the heads of files. Stateless: results are kept in the file's memo."""

    def __init__(self, options: CsvOptions, rules: ColumnRules, lines: LineFrames, rows: RowReader, edges: FileEdges) -> None:
        self._options = options
        self._edges = edges
        self._rules = rules
        self._lines = lines
        self._rows = rows

    def head(self, file: RecordFile, end: int, *, final: bool) -> CsvHead | None:
        """Returns the head of the file; None when more of it has to be known first. Raises DamageError for an invalid header."""
        known: CsvHead | None = file.memo.get(_KEY)
        if known is not None:
            return known
        found = self._read(file, end, final=final)
        if found is not None and found.columns is not None:
            file.memo[_KEY] = found
        return found

    def _read(self, file: RecordFile, end: int, *, final: bool) -> CsvHead | None:
        end = file.size if file.size >= 0 else end  # a range is shorter than its file
        footer = self._edges.footer(file, end)
        frames = self._lines.frames(file, 0, end, final=final, block_bytes=_BLOCK_BYTES, footer=footer)
        place = 0
        for reached, lines, is_last in self._behind_skipped(frames, file, final=final):
            place = reached
            rows = self._first_row(lines, final=is_last)
            if any(rows.values) or (rows.values and (self._options.header or is_last or lines.end - lines.start > _MOST_BYTES)):
                return self._head_of(lines, rows)
        return CsvHead(place, None) if final else None

    def _behind_skipped(self, frames: Iterator[Frame], file: RecordFile, *, final: bool) -> Iterator[tuple[int, PendingLines, bool]]:
        """Yields growing runs of the lines after `skip_lines`, where they end, and whether nothing joins them and what follows."""
        to_skip = self._options.skip_lines
        lines = PendingLines(self._lines.layout(file, 0), 0)
        for frame in frames:
            if isinstance(frame, Chunk):
                lines.add(frame)
                skipped = min(to_skip, len(lines.raw))
                to_skip -= skipped
                lines.drop(skipped)
                yield lines.end, lines, frame.partial
                continue
            if lines.raw:
                yield lines.end, lines, True
            if isinstance(frame, LongLine) and not to_skip:
                self._refuse(frame.start, "its header is longer than line.max_bytes")
            to_skip -= isinstance(frame, LongLine | SkippedRest) and frame.complete
            lines.skip_to(frame.end)
            assert isinstance(frame, Gap | LongLine | SkippedRest), "what is no line"
            yield frame.end, lines, False
        if lines.raw and final:
            yield lines.end, lines, True

    def _first_row(self, lines: PendingLines, *, final: bool) -> CsvRows:
        """Returns rows from the first on that is not a comment or empty line; those are dropped."""
        texts, undecoded = lines.texts()
        passed = 0
        while passed < len(texts) and (self._rows.is_blank(texts[passed]) or self._rows.is_comment(texts[passed])):
            passed += 1
        lines.drop(passed)
        if passed == len(texts):
            return CsvRows()
        rows = self._rows.rows(texts[passed:], lines.places, delimiter_bytes=len(lines.delimiter), final=final)
        _, after = rows.spans[0] if rows.values and rows.spans else (0, 1)
        if self._options.header and rows.values and any(passed + line in undecoded for line in range(after)):
            self._refuse(lines.start, f"its header is not {lines.codec}")
        return rows

    def _head_of(self, lines: PendingLines, rows: CsvRows) -> CsvHead | None:
        options = self._options
        if not options.header:
            width = next((len(values) for values in rows.values if values), 1)
            return CsvHead(lines.start, Columns(options.columns or [numbered(index) for index in range(width)], self._rules))
        if 0 in rows.bad:
            bad = rows.bad[0]
            self._refuse(lines.start, f"its header cannot be read, column {bad.field + 1}: {bad.why}")
        names = [(name or "").strip() for name in rows.values[0]]
        self._compare(names, lines.start)
        after = rows.spans[0][1] if rows.spans else 1
        return CsvHead(lines.places[after], Columns(names, self._rules))

    def _compare(self, names: list[str], place: int) -> None:
        wanted = self._options.columns
        if not wanted or sorted(wanted) == sorted(names):
            return
        lacking = [name for name in wanted if name not in names]
        foreign = len([name for name in names if name not in wanted])
        words = [f"lacks {', '.join(map(repr, lacking))}" if lacking else "", f"has {foreign} others" if foreign else ""]
        said = " and ".join(filter(None, words)) or "names one of them twice"
        self._refuse(place, f"its header is not that of `columns`: it {said}")

    def _refuse(self, place: int, why: str) -> None:
        raise DamageError(f"{why}, at byte {place}", "correct the file, or the format's options")


class CsvFormat(FileFormat):
    """Each row is a record."""

    def __init__(self, options: CsvOptions) -> None:
        """Raises what `LineFrames` raises: see `problems`."""
        self.on_too_long = options.line.on_too_long
        types = field_types(options.types, options.type_settings())
        self._rules = ColumnRules(types, options.nulls, options.trim, options.too_few, options.too_many)
        self._columns = options.columns
        self._lines = LineFrames(options.line.as_lines(), encoding=options.encoding)
        self._body_lines = LineFrames(options.line.as_lines(), BLOCK_BYTES, encoding=options.encoding, raw=True)  # they are decoded here
        self._rows = RowReader(options)
        self._edges = FileEdges(self._lines, options.skip_lines, options.skip_footer)
        self._heads = HeadReader(options, self._rules, self._lines, self._rows, self._edges)

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        final = how.setdefault("final", True)
        head = self._heads.head(file, end, final=final)
        if head is None:
            return
        if start < head.end:
            yield header_gap(file, start, min(head.end, end))
            start = head.end
        if head.columns is None or start >= end:
            return
        how["footer"] = self._edges.footer(file, end)
        lines = self._body_lines.frames(file, start, end, **how)
        table = CsvTable(self._rows, head.columns, self._lines.layout(file, start))
        yield from of_lines(table, lines, start, final=final)

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> dict[str, Any] | Unparsed:
        """Returns one record from the bytes in a dead letter; `columns` are the names of its file, () if they are not known."""
        names = columns or self._columns
        if not names:
            return Unparsed("it names no columns: those were in its file's header", "drop the record in a file of its own, with a header")
        table = CsvTable(self._rows, Columns(names, self._rules), self._lines.layout(lambda *_: b"", 0))
        table.lines.put(raw)
        values = table.take(final=True).values
        return values[0] if len(values) == 1 else Unparsed("it is not one row", "drop it in a file of its own, with a header")

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Cuts only if no value can hold the end of a line."""
        head = None if self._rows.spans_lines else self._heads.head(file, file.size, final=True)
        if head is None or head.columns is None:
            return ()
        found = (self._row_start(file, cut) for cut in line_starts(self._lines, file, parts))
        return self._edges.inner(file, dict.fromkeys(cut for cut in found if head.end < cut))

    def _row_start(self, file: RecordFile, position: int) -> int:
        """Returns where the first row at or after a line's beginning is: what is skipped belongs to the row before it."""
        layout = self._lines.layout(file, 0)
        while line := file(position, _LOOK_BYTES):
            place = layout.find(line, position)
            text = line[: place if place >= 0 else None].decode(layout.codec, "replace")
            if place < 0 or not (self._rows.is_blank(text) or self._rows.is_comment(text)):
                break
            position += place + len(layout.delimiter)
        return position


CSV = FormatKind(CsvOptions, CsvFormat, problems, declared)
