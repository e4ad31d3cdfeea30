"""`OffsetSource`, the task's part: a stream of records in envelopes, whose positions are Kafka's offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, cast

from copycat_agent.formats import Frame, Parsed
from copycat_agent.model import Loss, Split, SplitResult
from copycat_agent.sources.base import SourceKind
from copycat_agent.sources.contract import EnvelopedRun, LostRecords, OffsetSource, Passed, PolledOptions, Probed, RunsAs, as_text
from copycat_agent.sources.contract_partitions import OffsetPartitions
from copycat_agent.sources.contract_stream import RecordStream, SourceFraming, SourceHalves, kind_of
from copycat_agent.templates.metadata import TopicPlace
from copycat_agent.templates.record_like import RecordLike


class OffsetRecords(SourceFraming):
    """`SourceFraming` of an `OffsetSource`."""

    makes_envelopes = True


class OffsetStream(RecordStream):
    """A stream whose positions are the source's offsets. An offset without a record belongs to the record before it."""

    def __init__(self, split: Split, records: OffsetRecords) -> None:
        super().__init__(split, records)
        self._behind: int | None = None
        """The offset after the last record, once the stretch was read to its end or to `_passed`; None before that."""
        self._passed: int | None = None
        """The offset of a `Passed`, where reading ended before the stretch does."""

    def place(self) -> TopicPlace:
        source: OffsetSource = self._source
        return source.place(self._stretch)

    def verify(self) -> None:
        """Raises FatalError if the records that were read are of another partition than the position."""
        source: OffsetSource = self._source
        source.verify(self._stretch)

    def offset_of(self, record: RecordLike) -> int:
        """Returns the record's own offset. Its `start` may be lower: it is where the record before it ends, ahead of a gap."""
        return record.end - 1

    def frames(self, framing: SourceFraming, start: int, end: int, **how: Any) -> Iterator[Frame]:  # noqa: ANN401 - ignored here
        """Yields frames from `start` on. Called again from the end of a record if something has to be sent again."""
        del framing, end, how
        self._behind = self._passed = None
        self._lost = [one for one in self._lost if one[0] < start - self._base]
        for run in self._runs(self._source.read(self._stretch._replace(start=start))):
            for found, behind in cast("list[tuple[Any, int]]", run):
                if isinstance(found, LostRecords):
                    self._lost.append((start - self._base, found, behind))
                elif isinstance(found, Passed):
                    self._passed = behind
                else:
                    yield from _parsed(found, (start, *found.ends))
                    start = behind
        self._behind = start

    def _weigh(self, record: Any) -> int:  # noqa: ANN401 - as above
        return record.size_bytes if type(record) is EnvelopedRun else 0

    def reached(self, position: int) -> int:
        """Returns the offset that is settled with `position`: after the last record, that is the end of the stretch or `_passed`."""
        if position != self._behind:
            return position
        return self._stretch.end if self._passed is None else self._passed

    def lost_between(self, start: int, end: int) -> Iterator[Loss]:
        """Yields what was lost at offsets from `start` on, before `end`."""
        return self._losses(end - self._base, start - self._base)

    def complete(self, result: SplitResult) -> SplitResult:
        settled = result.offset.position
        is_all = not result.changed and settled == self._behind
        if settled == self._base and not is_all:
            return result
        reached = self.reached(settled)
        position = self._source.apply(self._stretch, reached, finished=is_all and self._passed is None)
        offset = replace(result.offset, position=reached, cursor=as_text(position), path=self._stretch.name, mtime_ns=time.time_ns())
        return replace(result, offset=offset, losses=(*result.losses, *self._losses(reached - self._base)))


def _parsed(run: EnvelopedRun, places: Sequence[int]) -> Iterator[Parsed]:
    """Yields the records of a run, as one frame per sequence with the same schema. `places`: where each begins and the last ends."""
    total, begin = len(run.values), 0
    for schema, count in [(None, total)] if run.schemas is None else [(key, len(list(alike))) for key, alike in groupby(run.schemas)]:
        each = slice(begin, begin + count)
        weight = max(count, run.size_bytes * count // total)
        raw = None if run.raw is None else cast("Sequence[bytes]", run.raw[each])
        yield Parsed(run.values[each], places[begin : begin + count + 1], weight, raw, schema=schema, envelopes=run.envelopes[each])
        begin += count


def offset_source_kind(
    options: type[PolledOptions],
    source: Callable[[Any], OffsetSource],
    *,
    probe: Callable[[Any, RunsAs], Iterable[Probed]] | None = None,
    sample: str = "",
) -> SourceKind:
    """Returns an entry of `SOURCES` for an `OffsetSource`; the parameters are those of `source_kind`."""
    return replace(kind_of(options, source, SourceHalves(OffsetPartitions, OffsetRecords, OffsetStream)), probe=probe, sample=sample)
