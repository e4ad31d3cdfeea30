"""The task's part of sources on the contract: turns what `read` yields into frames of a batch. `source_kind` adds the driver's part.

A batch counts records. This module remembers the source's position after each record, and puts the one after the last settled record into
the result's offset.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, NamedTuple, cast

from copycat_agent.errors import CopycatError, FatalError, SentInPartError
from copycat_agent.formats import Frame, Parsed, RecordFormat
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.logs import Log
from copycat_agent.model import Fingerprint, Loss, LossReason, Schema, Split, SplitResult, Stretch
from copycat_agent.options import DeliveryOptions
from copycat_agent.registry import FAULT, described
from copycat_agent.sources.base import Offsets, Source, SourceKind
from copycat_agent.sources.contract import AuthorSource, LostRecords, PolledOptions, Position, Probed, Record, RunsAs, as_text
from copycat_agent.sources.contract_partitions import RecordPartitions
from copycat_agent.sources.contract_source import ContractSource
from copycat_agent.sources.contract_threads import Pair, ReadRun, ReadThreads, weight
from copycat_agent.sources.files.reading.stream import Stream
from copycat_agent.templates.metadata import RecordOrigin

ENTRIES_MAX = 20
"""Most entries that one stretch makes in the ledger of losses; the last one sums up the rest."""


class SourceFraming:
    """The framing of such a source (`SourceKind.framing`): the source itself, and how its records count. Built once per definition."""

    counts_records = True
    finds_end = True
    makes_fields = True
    makes_envelopes = False
    on_too_long: Literal["dlq"] = "dlq"

    def __init__(self, source: Any, noun: str) -> None:  # noqa: ANN401 - an `AuthorSource`, or one whose `read` gives other records
        """`noun` names the source in error messages."""
        self.source = source
        self.noun = noun
        self.threads = ReadThreads()


class IndivisibleRun(Parsed):
    """Records that are sent together: no budget cuts them."""

    __slots__ = ()

    def fitting(self, records: int, size_bytes: int) -> int:
        """Returns their number, whatever is left of the budget."""
        del records, size_bytes
        return len(self.values)


class _Positions:
    """The positions after the records read so far. They are kept run by run, without a copy."""

    def __init__(self) -> None:
        self._runs: list[Sequence[Position]] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Position:
        run = bisect_right(self._ends, index)
        return self._runs[run][index - (self._ends[run - 1] if run else 0)]

    def add(self, run: Sequence[Position]) -> None:
        """Appends the positions after the next records."""
        if run:
            self._ends.append(len(self) + len(run))
            self._runs.append(run)

    def cut(self, length: int) -> None:
        """Keeps the first `length` positions."""
        while len(self) > length:
            end, run = self._ends.pop(), self._runs.pop()
            if length > len(self):
                self.add(run[: len(run) - (end - length)])


class RecordStream(RecordOrigin):
    """A `stream.Stream` whose frame positions are record numbers, counted from the split's offset."""

    origin = -1
    waits = False
    is_whole = True
    knows_positions = True
    """Only the stream that read a record knows the position after it: a new stream of the same split must read first."""

    def __init__(self, split: Split, records: SourceFraming) -> None:
        assert split.stretch is not None, "a split of such a source says what to read"
        self._partition = split.partition
        self.offset = split.offset
        self._stretch: Stretch = split.stretch
        self._base = split.offset.position
        self._source: Any = records.source
        self._noun = records.noun
        self._threads = records.threads
        self._positions = _Positions()
        self._lost: list[tuple[int, LostRecords, Position]] = []
        """Lost records: how many records of the stretch come before, the marker, and the position after it."""
        self._total: int | None = None
        self._all: IndivisibleRun | None = None

    def is_what_was_read(self) -> bool:
        """Returns True: only the source could tell."""
        return True

    def read(self, position: int, size: int) -> bytes:
        """Returns b"": there are no bytes."""
        del position, size
        return b""

    def tail(self, position: int) -> bytes:
        """Returns b"": there are no bytes to hash."""
        del position
        return b""

    def frames(self, framing: SourceFraming, start: int, end: int, **how: Any) -> Iterator[Frame]:  # noqa: ANN401 - ignored here
        """Yields frames from `start` on. Called again from an earlier record if something has to be sent again."""
        del framing, end, how
        if self._stretch.whole:
            whole = self._all = self._all or self._read_all()
            if whole.total:
                yield whole if start == self._base else whole.cut(start - self._base)[1]
            return
        self._total = None
        begun = start - self._base
        pairs = self._pairs(begun)
        self._positions.cut(begun)
        self._lost = [one for one in self._lost if one[0] < begun]
        for run in self._runs(pairs):
            values = self._take(run)
            if not values:
                continue
            next_start = start + len(values)
            yield Parsed(values, range(start, next_start + 1), max(len(values), run.size_bytes), schema=self._schema())
            start = next_start
        self._total = len(self._positions)

    def _take(self, run: ReadRun) -> Sequence[Any]:
        """Returns the records of a run. Notes their positions, and `LostRecords`."""
        values = [record for record, _ in run]
        kinds = set(map(type, values))
        if kinds == {ArrowRows} and len(run) == 1:
            self._positions.add(run[0][1])
            return cast("ArrowRows", values[0])
        if not kinds & {LostRecords, ArrowRows}:
            self._positions.add([position for _, position in run])
            return values
        values = []
        for record, position in one_by_one(run):
            if type(record) is LostRecords:
                self._lost.append((len(self._positions), record, position))
            else:
                values.append(record)
                self._positions.add([position])
        return values

    def _read_all(self) -> IndivisibleRun:
        """Reads the whole stretch. Raises FatalError if it exceeds `Stretch.most_bytes`."""
        stretch, parts, size_bytes = self._stretch, list[Sequence[Any]](), 0
        self._positions, self._lost = _Positions(), []
        for run in self._runs(self._pairs(0)):
            parts.append(self._take(run))
            size_bytes += run.size_bytes
            if 0 < stretch.most_bytes < size_bytes:
                raise FatalError(*too_large(stretch))
        rows = [one for one in parts if isinstance(one, ArrowRows)]
        values: Sequence[Any] = (ArrowRows.joined(rows) if rows and len(rows) == len(parts) else None) or list(chain.from_iterable(parts))
        self._total = len(values)
        places = range(self._base, self._base + len(values) + 1)
        return IndivisibleRun(values, places, max(len(values), size_bytes), schema=self._schema())

    def _pairs(self, begun: int) -> Iterator[Pair]:
        """Returns the records after the first `begun` of the stretch, whose positions are known."""
        source: AuthorSource = self._source
        return source.read(self._stretch._replace(start=self._positions[begun - 1]) if begun else self._stretch)

    def _schema(self) -> Schema | None:
        """Returns the schema of the records; None if the source knows none."""
        return None

    def _runs(self, pairs: Iterator[Pair]) -> Iterator[ReadRun]:
        return self._threads.runs(self._fenced(pairs), self._stretch.name, self._weigh, whole=self._stretch.whole)

    def _weigh(self, record: Record) -> int:
        """Returns about how many bytes it has. Called by the reading thread before it reads the next one."""
        return weight(record)

    def _fenced(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        """Turns an unexpected exception of the source into a FatalError with its place in the code; its text may contain data."""
        words = ""
        try:
            yield from pairs
        except (CopycatError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - third-party code may raise anything
            words = f"{self._noun}: {described(error)}"
        if words:
            raise FatalError(words, FAULT)

    def bounds(self, limit: int) -> tuple[int, bool]:
        """Returns `limit`: everything to read exists."""
        return limit, True

    def is_exhausted(self, limit: int) -> bool:
        """Returns True: a stretch is read to its end."""
        del limit
        return True

    def is_still(self, position: int) -> bool:
        """Raises SentInPartError if a stretch that must be sent whole would be settled in part."""
        if self._stretch.whole and self._base < position != self._base + (self._total or 0):
            sent, total = position - self._base, self._total or 0
            words = f"{self._stretch.name}: {sent:,} of {total:,} records were sent before the batch had to end, and they go together"
            raise SentInPartError(words, "they are asked for anew; a stretch of fewer records takes less time")
        return True

    def was_still(self, position: int) -> bool:
        del position
        return True

    def complete(self, result: SplitResult) -> SplitResult:
        """Adds the source's position after the settled records to the result."""
        settled = result.offset.position - self._base
        finished = not result.changed and settled == self._total  # not `at_end`: a budget may have ended at the stretch's end
        if not (settled or finished):
            return result
        last = self._positions[settled - 1] if settled else None
        if finished and self._lost and self._lost[-1][0] == settled:
            last = self._lost[-1][2]
        position = self._source.apply(self._stretch, last, finished=finished)
        offset = replace(result.offset, cursor=as_text(position), path=self._stretch.name, mtime_ns=time.time_ns())
        return replace(result, offset=offset, losses=(*result.losses, *self._losses(len(self._positions) + 1 if finished else settled)))

    def _losses(self, before: int, since: int = 0) -> Iterator[Loss]:
        """Yields what was lost from record number `since` of the stretch on, before `before`; `ENTRIES_MAX` entries at most."""
        lost = [one[:2] for one in self._lost if since <= one[0] < before]
        if others := lost[ENTRIES_MAX:]:
            index, last = lost[ENTRIES_MAX - 1]
            records = last.records + sum(one.records for _, one in others)
            lost[ENTRIES_MAX - 1 :] = [(index, last._replace(why=f"{last.why}; and others", records=records))]
        for index, one in lost:
            at, reason, at_ms = self._base + index, "damaged" if one.damaged else "destroyed", int(time.time() * 1000)
            yield Loss(self._partition, self._stretch.name, at, at, 0, one.records, cast("LossReason", reason), one.why, at_ms)

    def settled(self, position: int) -> None:
        """Does nothing: positions are kept for `complete`."""

    def fingerprint(self, position: int, tail: bytes) -> Fingerprint:
        """Returns an empty fingerprint: there are no bytes to compare."""
        del position, tail
        return Fingerprint()

    def close(self) -> None:
        pass


def one_by_one(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yields each record with its position, also the rows of `ArrowRows`."""
    for record, position in pairs:
        if isinstance(record, ArrowRows):
            yield from zip(record, position, strict=True)
        else:
            yield record, position


def too_large(stretch: Stretch) -> tuple[str, str]:
    """Returns message and hint for a stretch that must be sent whole and exceeds a batch."""
    words = f"{stretch.name}: what lies between two positions is more than delivery.max_batch_bytes ({stretch.most_bytes:,} bytes)"
    return (
        words,
        "raise delivery.max_batch_bytes; a table with a primary key, and a reader that limits itself or is replayable, goes in parts",
    )


def source_kind(
    options: type[PolledOptions],
    source: Callable[[Any], AuthorSource],
    *,
    probe: Callable[[Any, RunsAs], Iterable[Probed]] | None = None,
    sample: str = "",
    only_here: str = "",
) -> SourceKind:
    """Returns an entry of `SOURCES`. `source` is a class or function that takes the options; `options` must define their own `type`.

    `probe`, `sample` and `only_here` are those of `SourceKind`.
    """
    kind = kind_of(options, source, SourceHalves(RecordPartitions, SourceFraming, RecordStream))
    return replace(kind, probe=probe, sample=sample, only_here=only_here)


class SourceHalves(NamedTuple):
    """The classes of a source: the kind of its partitions for the driver, its framing, and its stream in a task."""

    partitions: type[RecordPartitions]
    records: type[SourceFraming]
    stream: Callable[[Split, Any], RecordStream]


def kind_of(options: type[PolledOptions], source: Callable[[Any], Any], halves: SourceHalves) -> SourceKind:
    """Returns an entry of `SOURCES` without the fields that are for people."""

    def make(connector: str, chosen: PolledOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> Source:
        made = source(chosen)
        return ContractSource(connector, chosen, delivery, offsets, log, made, halves.partitions(made, delivery.max_batch_bytes))

    def framing(chosen: PolledOptions, *, raw: bool) -> RecordFormat:
        del raw  # there are no bytes of a file
        return cast("RecordFormat", halves.records(source(chosen), f"source {chosen.type}"))

    def opened(split: Split, framed: SourceFraming) -> Stream:
        return cast("Stream", halves.stream(split, framed))

    return SourceKind(options, make, opened, framing)
