"""The beginning of a table: lines that are passed over, the header, and where the first record can stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from copycat_agent.errors import DamageError
from copycat_agent.formats.lines import LineFrames
from copycat_agent.formats.model import Chunk, Frame, Gap, LongLine, RecordFile, SkippedRest
from copycat_agent.formats.records.fields.columns import Columns, Rules, numbered
from copycat_agent.formats.records.tables.csv_options import CsvOptions
from copycat_agent.formats.records.tables.csv_rows import RowReader, Rows
from copycat_agent.formats.records.tables.lines import Lines

_BLOCK_BYTES = 2**10
"""Read at first: so much of a packed file can be had again without unpacking it again."""
_MOST_BYTES = 2**20
"""Looked at for a row that says how many columns there are."""
_KEY = "csv"


class Head(NamedTuple):
    """`end`: where the header ends. `columns` None: the file ends before anything names them."""

    end: int
    columns: Columns | None


class HeadReader:
    """Finds heads of files. Stateless: what it found stays in the file's memo."""

    def __init__(self, options: CsvOptions, rules: Rules, lines: LineFrames, rows: RowReader) -> None:
        self._options = options
        self._rules = rules
        self._lines = lines
        self._rows = rows

    def head(self, file: RecordFile, end: int, *, final: bool) -> Head | None:
        """The head of the file; None when more of it has to be known first. Raises DamageError for a header that is none."""
        known = file.memo.get(_KEY)
        if known is not None and known[0] == self._options:
            head: Head = known[1]
            return head
        found = self._read(file, end, final=final)
        if found is not None and found.columns is not None:
            file.memo[_KEY] = (self._options, found)
        return found

    def _read(self, file: RecordFile, end: int, *, final: bool) -> Head | None:
        end = file.size if file.size >= 0 else end  # a range is shorter than its file
        frames = self._lines.frames(file, 0, end, final=final, block_bytes=_BLOCK_BYTES)
        place = 0
        for reached, lines, is_last in self._behind_skipped(frames, file, final=final):
            place = reached
            rows = self._first_row(lines, final=is_last)
            if any(rows.values) or (rows.values and (self._options.header or is_last or lines.end - lines.start > _MOST_BYTES)):
                return self._head_of(lines, rows)
        return Head(place, None) if final else None

    def _behind_skipped(self, frames: Iterator[Frame], file: RecordFile, *, final: bool) -> Iterator[tuple[int, Lines, bool]]:
        """Growing runs of the lines behind `skip_lines`, with where they end, and whether nothing joins them and what comes behind."""
        to_skip = self._options.skip_lines
        lines = Lines(self._lines.layout(file, 0), 0)
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

    def _first_row(self, lines: Lines, *, final: bool) -> Rows:
        """Rows from the first on that is none of comments and empty lines; those are forgotten."""
        texts, undecoded = lines.texts()
        passed = 0
        while passed < len(texts) and (self._rows.is_blank(texts[passed]) or self._rows.is_comment(texts[passed])):
            passed += 1
        lines.drop(passed)
        if passed == len(texts):
            return Rows()
        rows = self._rows.rows(texts[passed:], lines.places, delimiter_bytes=len(lines.delimiter), final=final)
        _, after = rows.spans[0] if rows.values and rows.spans else (0, 1)
        if self._options.header and rows.values and any(passed + line in undecoded for line in range(after)):
            self._refuse(lines.start, f"its header is not {lines.codec}")
        return rows

    def _head_of(self, lines: Lines, rows: Rows) -> Head | None:
        options = self._options
        if not options.header:
            width = next((len(values) for values in rows.values if values), 1)
            return Head(lines.start, Columns(options.columns or [numbered(index) for index in range(width)], self._rules))
        if 0 in rows.bad:
            bad = rows.bad[0]
            self._refuse(lines.start, f"its header cannot be read, column {bad.field + 1}: {bad.why}")
        names = [(name or "").strip() for name in rows.values[0]]
        self._compare(names, lines.start)
        after = rows.spans[0][1] if rows.spans else 1
        return Head(lines.places[after], Columns(names, self._rules))

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
