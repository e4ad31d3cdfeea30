"""Makes runs of records from a table's lines, the same ones however the lines are chunked, with their positions in the file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple, Protocol

from copycat_agent.formats.draft import Chunk, Parsed
from copycat_agent.formats.model import Frame, Gap
from copycat_agent.formats.records.columns import Value
from copycat_agent.formats.text import AS_IT_STANDS, TAIL_BYTES, Layout
from copycat_agent.model import Schema

_DECODES_TO_NO_TEXT = "utf-7"
"""Its decoder makes lone surrogates, which other encodings cannot hold."""
BLOCK_BYTES = 2**16
"""Frames are runs of some hundred records. Frames of 1 MiB of parsed rows cost twice the CPU of these: values leave the cache."""
"""Bytes per read: the values of a larger block leave the processor's cache before they are sent, which costs twice the time."""


class PendingLines:
    """Consecutive lines of a file that are not records yet. `places`: where each begins, and where the last one ends."""

    def __init__(self, layout: Layout, start: int) -> None:
        self.codec = "utf-8" if layout.codec in AS_IT_STANDS else layout.codec
        self.delimiter = layout.delimiter
        self.raw: list[bytes] = []
        self.places: list[int] = [start]

    @property
    def start(self) -> int:
        """Returns where the first line begins."""
        return self.places[0]

    @property
    def end(self) -> int:
        """Returns where the last line ends."""
        return self.places[-1]

    def add(self, chunk: Chunk) -> None:
        """Adds the lines of the next chunk."""
        assert chunk.start == self.end, "lines follow each other"
        size = len(self.delimiter)
        sizes = map(len, chunk.raw) if not size else [len(line) + size for line in chunk.raw]
        places = list(accumulate(sizes, initial=chunk.start))
        places[-1] = chunk.end  # a partial line has no delimiter
        self.raw += chunk.raw
        self.places[-1:] = places

    def put(self, record: bytes) -> None:
        """Replaces all lines by those of one record, without the last delimiter."""
        self.raw = record.split(self.delimiter)
        self.places = list(accumulate((len(line) + len(self.delimiter) for line in self.raw), initial=0))

    def drop(self, count: int) -> None:
        """Removes the first lines."""
        del self.raw[:count]
        del self.places[:count]

    def skip_to(self, position: int) -> None:
        """Removes all lines; the next ones begin at `position`."""
        self.raw, self.places = [], [position]

    def texts(self) -> tuple[list[str], set[int]]:
        """Returns the decoded lines, and the indexes of those with invalid bytes, which U+FFFD replaces."""
        try:
            return self._decoded(), set()
        except UnicodeError:
            return self._one_by_one()

    def _decoded(self) -> list[str]:
        """Returns all lines decoded. Raises UnicodeError."""
        if self.codec == _DECODES_TO_NO_TEXT:
            return self._checked()
        if self.codec == "utf-8" and self.delimiter == b"\n" and self.raw:  # at once: a third of the time
            return b"\n".join(self.raw).decode().split("\n")
        return [line.decode(self.codec) for line in self.raw]

    def _checked(self) -> list[str]:
        texts = [line.decode(self.codec) for line in self.raw]
        "".join(texts).encode()
        return texts

    def _one_by_one(self) -> tuple[list[str], set[int]]:
        texts: list[str] = []
        bad: set[int] = set()
        for index, line in enumerate(self.raw):
            try:
                text = line.decode(self.codec)
                text.encode()
            except UnicodeError:
                text = line.decode(self.codec, "replace").encode("utf-8", "replace").decode()
                bad.add(index)
            texts.append(text)
        return texts, bad

    def record(self, first: int, after: int) -> bytes:
        """Returns the bytes of lines `first` up to, not including, `after`, without the last delimiter."""
        return self.raw[first] if after == first + 1 else self.delimiter.join(self.raw[first:after])

    def tail(self, after: int) -> bytes:
        """Returns the last bytes before line `after`, as many as a fingerprint covers."""
        first = after
        while first and self.places[after] - self.places[first] < TAIL_BYTES:
            first -= 1
        text = self.delimiter.join([*self.raw[first:after], b""])
        return text[: self.places[after] - self.places[first]][-TAIL_BYTES:]


class RowRun(NamedTuple):
    """Records found in some lines. Record i is on lines `spans[i]`, the first and the one after the last; None: on line i.

    `used` is how many of the lines are done.
    """

    values: list[Value]
    spans: list[tuple[int, int]] | None
    used: int


class LineTable(Protocol):
    """Makes records of lines."""

    @property
    def lines(self) -> PendingLines:
        """Returns the lines that are not records yet."""

    @property
    def schema(self) -> Schema:
        """Returns the schema of its records."""

    def take(self, *, final: bool) -> RowRun:
        """Returns the records of `lines`; with `final`, nothing more can join the last of them."""


def of_lines(table: LineTable, frames: Iterator[Frame], start: int, *, final: bool) -> Iterator[Frame]:
    """Yields the records in what `LineFrames` yields from `start` on; one that is incomplete at the end only if that is `final`.

    A record includes what is skipped after it. So the last one is held back until the next one begins, or the frames end.
    """
    runs = _Runs(table, start)
    for frame in frames:
        if isinstance(frame, Chunk):
            table.lines.add(frame)
            yield from runs.found(final=frame.partial)
            continue
        yield from runs.all(final=True)  # a record never continues over what is not a line
        yield frame
        runs.begin(frame.end)
    yield from runs.all(final=final)


class _HeldRecord(NamedTuple):
    """The last record, whose end is not known yet."""

    value: Value
    start: int
    raw: bytes


class _Runs:
    """`_start` is the beginning of what was not yielded yet, `_tail` the last bytes before the lines that are not records yet."""

    def __init__(self, table: LineTable, start: int) -> None:
        self._table = table
        self._held: _HeldRecord | None = None
        self.begin(start)

    def begin(self, position: int) -> None:
        """Starts at `position`; everything before it has been yielded."""
        self._start, self._tail = position, b""
        self._table.lines.skip_to(position)

    def all(self, *, final: bool) -> Iterator[Parsed | Gap]:
        """Yields all records, and what is skipped after the last; unless `final`, an incomplete one is left."""
        lines = self._table.lines
        if final and lines.raw:
            yield from self.found(final=True)
        end = lines.start
        if self._held is not None:
            yield self._run([self._held.value], [self._held.start, end], [self._held.raw], self._tail)
        elif end > self._start:
            yield self._gap(end, self._tail)
        self._held, self._start = None, end

    def found(self, *, final: bool) -> Iterator[Parsed | Gap]:
        """Yields all records but the last. Anything before the first becomes a gap."""
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
            self._held = _HeldRecord(values.pop(), starts[-1], raw.pop())
            self._start = starts[-1]
            if values:
                yield self._run(values, starts, raw, self._before(last))
        self._tail = self._before(used)
        lines.drop(used)

    def _before(self, line: int) -> bytes:
        """Returns the last bytes before a line."""
        return (self._tail + self._table.lines.tail(line))[-TAIL_BYTES:]

    def _run(self, values: list[Value], places: list[int], raw: list[bytes], tail: bytes) -> Parsed:
        size = places[-1] - places[0]
        return Parsed(values, places, size, raw, tail[-size:], self._table.schema)

    def _gap(self, end: int, tail: bytes) -> Gap:
        return Gap(self._start, end, tail[-(end - self._start) :], "header")
