"""`fixed_width`: columns stand at the same places of each line, or of each so many bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.encoding import Layout, encoding_problem
from copycat_agent.formats.lines import LineFrames
from copycat_agent.formats.model import Frame, Gap, LongLine, Parsed, RecordFile, SkippedRest
from copycat_agent.formats.parts import Part
from copycat_agent.formats.records.base import FormatKind, OptionProblem
from copycat_agent.formats.records.lines import line_starts
from copycat_agent.formats.records.tables.fixed_bytes import ByteWidths
from copycat_agent.formats.records.tables.fixed_cutter import Cutter, FixedWidthOptions
from copycat_agent.formats.records.tables.lines import Lines
from copycat_agent.formats.records.tables.runs import BLOCK_BYTES, Batch, header_gap, of_lines

_KEY = "fixed_width"
_LOOK_BYTES = 2**10


class _Table:
    """See `LineTable`."""

    def __init__(self, cutter: Cutter, layout: Layout) -> None:
        self.lines = Lines(layout, 0)
        self.schema = cutter.columns.schema
        self._cutter = cutter

    def take(self, *, final: bool) -> Batch:
        """See `LineTable.take`: each line that is not empty is a record."""
        del final
        lines = self.lines
        cr = "\r".encode(lines.codec) if lines.delimiter == "\n".encode(lines.codec) else b""
        raw = [line.removesuffix(cr) for line in lines.raw] if cr else lines.raw
        kept = [index for index, line in enumerate(raw) if line]
        values = self._cutter.records([raw[index] for index in kept], lines.codec)
        return Batch(values, [(index, index + 1) for index in kept], len(raw))


class LineWidths:
    """Each line is a record. See `RecordFormat`."""

    counts_records = False
    finds_end = False
    makes_fields = True

    def __init__(self, options: FixedWidthOptions) -> None:
        """Raises what `LineFrames` raises: see `problems`."""
        self.on_too_long: Literal["dlq", "truncate", "drop"] = options.line.on_too_long
        self._options = options
        self._lines = LineFrames(options.line.as_lines(), BLOCK_BYTES, encoding=options.encoding, raw=True)
        self._cutter = Cutter(options)

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
        begin = self._begin(file, end, final=final)
        if begin is None:
            return
        if start < begin:
            yield header_gap(file, start, min(begin, end))
            start = begin
        if start < end:
            lines = self._lines.frames(file, start, end, skipping=skipping, final=final, block_bytes=block_bytes)
            yield from of_lines(_Table(self._cutter, self._lines.layout(file, start)), lines, start, final=final)

    def _begin(self, file: RecordFile, end: int, *, final: bool) -> int | None:
        """Where the first record can stand: behind the byte order mark and `skip_lines`. None when more has to be known first."""
        if _KEY not in file.memo or file.memo[_KEY][0] != self._options:
            found = self._behind_skipped(file, file.size if file.size >= 0 else end, final=final)
            if found is None:
                return None
            file.memo[_KEY] = self._options, found
        return int(file.memo[_KEY][1])

    def _behind_skipped(self, file: RecordFile, end: int, *, final: bool) -> int | None:
        to_skip, place = self._options.skip_lines, 0
        mark = len(self._lines.layout(file, 0).mark)
        if not to_skip:
            return mark
        for frame in self._lines.frames(file, 0, end, final=final, block_bytes=_LOOK_BYTES):
            place = frame.end
            if isinstance(frame, LongLine | SkippedRest):
                to_skip -= frame.complete
            elif not isinstance(frame, Gap | Parsed | Part):
                if frame.total >= to_skip:
                    return min(frame.start + frame.weight(to_skip), frame.end)
                to_skip -= frame.total
            if not to_skip:
                return place
        return place if final else None

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> dict[str, Any] | Unparsed:
        """One record by its bytes, as a dead letter has them; the options name its columns."""
        del columns
        table = _Table(self._cutter, self._lines.layout(lambda *_: b"", 0))
        table.lines.put(raw)
        values = table.take(final=True).values
        return values[0] if len(values) == 1 else Unparsed("it is not one line", "drop it in a file of its own")

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`: where lines begin that are not empty."""
        begin = self._begin(file, file.size, final=True) or 0
        layout = self._lines.layout(file, 0)
        empty = {b"", "\r".encode(layout.codec)}
        found = []
        for cut in line_starts(self._lines, file, parts):
            place = cut
            while (line := file(place, _LOOK_BYTES)) and (size := layout.find(line, place)) >= 0 and line[:size] in empty:
                place += size + len(layout.delimiter)
            if begin < place < file.size:
                found.append(place)
        return tuple(dict.fromkeys(found))


def _build(options: FixedWidthOptions) -> LineWidths | ByteWidths:
    return LineWidths(options) if options.record_bytes is None else ByteWidths(options)


def problems(options: FixedWidthOptions) -> Iterator[OptionProblem]:
    """See `FormatKind.problems`."""
    if problem := encoding_problem(options.encoding, options.line.delimiter):
        yield OptionProblem(("encoding",), *problem)
        return
    names = [column.name for column in options.columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield OptionProblem(("columns", index, "name"), "another column has this name", "give them different names")
    size = options.record_bytes
    if size is not None and options.unit == "bytes" and Cutter(options).width > size:
        yield OptionProblem(("record_bytes",), f"its columns end at byte {Cutter(options).width}", "correct `columns` or record_bytes")


FIXED_WIDTH = FormatKind(FixedWidthOptions, _build, problems, lambda options: Cutter(options).columns.schema.columns)
