"""Runs of records that are made of lines, the same ones however the lines come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from copycat_agent.formats.model import TAIL_BYTES, Chunk, Frame, Gap, Parsed, RecordFile
from copycat_agent.formats.records.fields.columns import Value
from copycat_agent.formats.records.tables.lines import Lines
from copycat_agent.model import Schema

BLOCK_BYTES = 2**16
"""Bytes per read: of a larger block the values do not stay in the processor's cache until they are sent, which costs twice the time."""


class Batch(NamedTuple):
    """Records found in some lines. Record i stands on lines `spans[i]`, the first and the one behind the last; None: on line i.

    `used`: so many of the lines are done with.
    """

    values: list[Value]
    spans: list[tuple[int, int]] | None
    used: int


class LineTable(Protocol):
    """Makes records of lines."""

    @property
    def lines(self) -> Lines:
        """Lines that are no records yet."""

    @property
    def schema(self) -> Schema:
        """Of its records."""

    def take(self, *, final: bool) -> Batch:
        """The records of `lines`; with `final`, nothing more can join the last of them."""


def of_lines(table: LineTable, frames: Iterator[Frame], start: int, *, final: bool) -> Iterator[Frame]:
    """The records in what `LineFrames` yields from `start` on.

    A record covers what is passed over behind it. So the last one is held back until it is known where the next one begins.
    """
    runs = _Runs(table, start)
    for frame in frames:
        if isinstance(frame, Chunk):
            table.lines.add(frame)
            yield from runs.found(final=frame.partial)
            continue
        yield from runs.all()  # nothing joins a record over what is no line
        yield frame
        runs.begin(frame.end)
    if final:
        yield from runs.all()


class _Held(NamedTuple):
    """The last record, whose end is not known yet."""

    value: Value
    start: int
    raw: bytes


class _Runs:
    """`_start` is where what was not yielded yet begins, `_tail` the last bytes before the lines that are no records yet."""

    def __init__(self, table: LineTable, start: int) -> None:
        self._table = table
        self._held: _Held | None = None
        self.begin(start)

    def begin(self, position: int) -> None:
        """What stood before `position` has been yielded."""
        self._start, self._tail = position, b""
        self._table.lines.skip_to(position)

    def all(self) -> Iterator[Parsed | Gap]:
        """All records, and what is passed over behind the last."""
        lines = self._table.lines
        if lines.raw:
            yield from self.found(final=True)
        end = lines.end
        if self._held is not None:
            yield self._run([self._held.value], [self._held.start, end], [self._held.raw], self._tail)
        elif end > self._start:
            yield self._gap(end, self._tail)
        self._held, self._start = None, end

    def found(self, *, final: bool) -> Iterator[Parsed | Gap]:
        """All records but the last. What stands before the first is a gap."""
        lines = self._table.lines
        values, spans, used = self._table.take(final=final)
        if values:
            last = len(values) - 1 if spans is None else spans[-1][0]
            starts = lines.places[: len(values)] if spans is None else [lines.places[first] for first, _ in spans]
            raw = lines.raw[: len(values)] if spans is None else [lines.record(*span) for span in spans]
            if self._held is not None:
                values, starts, raw = [self._held.value, *values], [self._held.start, *starts], [self._held.raw, *raw]
            elif starts[0] > self._start:
                yield self._gap(starts[0], self._before(spans[0][0] if spans is not None else 0))
            self._held = _Held(values.pop(), starts[-1], raw.pop())
            self._start = starts[-1]
            if values:
                yield self._run(values, starts, raw, self._before(last))
        self._tail = self._before(used)
        lines.drop(used)

    def _before(self, line: int) -> bytes:
        """The last bytes before a line."""
        return (self._tail + self._table.lines.tail(line))[-TAIL_BYTES:]

    def _run(self, values: list[Value], places: list[int], raw: list[bytes], tail: bytes) -> Parsed:
        size = places[-1] - places[0]
        return Parsed(values, places, size, raw, tail[-size:], self._table.schema)

    def _gap(self, end: int, tail: bytes) -> Gap:
        return Gap(self._start, end, tail[-(end - self._start) :], "header")


def header_gap(file: RecordFile, start: int, end: int) -> Gap:
    """What is before the first record."""
    begin = max(start, end - TAIL_BYTES)
    return Gap(start, end, file(begin, end - begin), "header")
