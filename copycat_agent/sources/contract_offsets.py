"""`OffsetSource`, the task's half: a stream of records in envelopes, whose positions are Kafka's offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from copycat_agent.formats import Frame, Parsed
from copycat_agent.sources.contract import Enveloped, LostRecords, OffsetSource, Passed, Probed, RunsAs, as_text
from copycat_agent.sources.contract_partitions import OffsetPartitions
from copycat_agent.sources.contract_stream import Records, RecordStream, SourceHalves, kind_of
from copycat_agent.sources.contract_threads import weight

if TYPE_CHECKING:
    from copycat_agent.model import Split, SplitResult
    from copycat_agent.sources.base import SourceKind
    from copycat_agent.sources.contract import PolledOptions
    from copycat_agent.sources.contract_threads import ReadRun
    from copycat_agent.templates.metadata import TopicPlace
    from copycat_agent.templates.record_like import RecordLike


class OffsetRecords(Records):
    """`Records` of an `OffsetSource`."""

    makes_envelopes = True


class OffsetStream(RecordStream):
    """A stream whose positions are the source's offsets. An offset without a record belongs to the record before it."""

    def __init__(self, split: Split, records: OffsetRecords) -> None:
        super().__init__(split, records)
        self._behind: int | None = None
        """The offset behind the last record, once the stretch was read to its end or to `_passed`; None before."""
        self._passed: int | None = None
        """The offset of a `Passed`, where reading ended before the stretch does."""

    def place(self) -> TopicPlace:
        source: OffsetSource = self._source
        return source.place(self._stretch)

    def offset_of(self, record: RecordLike) -> int:
        """Returns the record's own offset. Its `start` may be lower: it is where the record before it ends, ahead of a gap."""
        return record.end - 1

    def frames(self, framing: Records, start: int, end: int, **how: Any) -> Iterator[Frame]:  # noqa: ANN401 - ignored here
        """Yields frames from `start` on. Called again from the end of a record if something has to be sent again."""
        del framing, end, how
        self._behind = self._passed = None
        self._lost = [one for one in self._lost if one[0] < start - self._base]
        for run in self._runs(self._source.read(self._stretch._replace(start=start))):
            records, places = self._sorted(run, start)
            yield from self._parsed(records, places, run.size_bytes)
            start = places[-1]
        self._behind = start

    def _sorted(self, run: ReadRun, start: int) -> tuple[Sequence[Enveloped], Sequence[int]]:
        """Returns a run's records, and the offsets at which each begins and the last one ends. Notes `LostRecords` and `Passed`."""
        found, ends = zip(*run, strict=True)
        if not {LostRecords, Passed} & set(map(type, found)):
            return found, (start, *ends)
        records, places = list[Enveloped](), [start]
        for record, behind in cast("list[tuple[Any, int]]", run):
            if isinstance(record, LostRecords):
                self._lost.append((places[-1] - self._base, record, behind))
            elif isinstance(record, Passed):
                self._passed = behind
            else:
                records.append(record)
                places.append(behind)
        return records, places

    def _parsed(self, records: Sequence[Enveloped], places: Sequence[int], size_bytes: int) -> Iterator[Parsed]:
        """Yields runs of records that share a schema."""
        if not records:
            return
        values, envelopes, schemas, raw = zip(*records, strict=True)
        begin = 0
        for schema, alike in [(None, schemas)] if schemas.count(None) == len(schemas) else groupby(schemas):
            end = begin + sum(1 for _ in alike)
            weighed, each = max(end - begin, size_bytes * (end - begin) // len(records)), slice(begin, end)
            raw_each = None if raw[each].count(None) == end - begin else raw[each]
            yield Parsed(values[each], places[begin : end + 1], weighed, raw_each, schema=schema, envelopes=envelopes[each])
            begin = end

    def _weigh(self, record: Any) -> int:  # noqa: ANN401 - `Enveloped` or a marker, not a `Record`
        if type(record) is not Enveloped:
            return 0
        value, (key, headers, _), _, raw = record
        size_bytes = len(raw) if raw is not None else len(value) if type(value) is bytes else weight(cast("dict[str, Any]", value))
        if key:
            size_bytes += len(key)
        return size_bytes + sum(len(name) + len(content or b"") for name, content in headers) if headers else size_bytes

    def reached(self, position: int) -> int:
        """Returns the offset that is settled with `position`: behind the last record, that is the end of the stretch or `_passed`."""
        if position != self._behind:
            return position
        return self._stretch.end if self._passed is None else self._passed

    def complete(self, result: SplitResult) -> SplitResult:
        settled = result.offset.position
        is_all = not result.changed and settled == self._behind
        if settled == self._base and not is_all:
            return result
        reached = self.reached(settled)
        position = self._source.apply(self._stretch, reached, finished=is_all and self._passed is None)
        offset = replace(result.offset, position=reached, cursor=as_text(position), path=self._stretch.name, mtime_ns=time.time_ns())
        return replace(result, offset=offset, losses=(*result.losses, *self._losses(reached - self._base)))


def offset_source_kind(
    options: type[PolledOptions],
    source: Callable[[Any], OffsetSource],
    *,
    probe: Callable[[Any, RunsAs], Iterable[Probed]] | None = None,
    sample: str = "",
) -> SourceKind:
    """Returns an entry of `SOURCES` for an `OffsetSource`; parameters as of `source_kind`."""
    return replace(kind_of(options, source, SourceHalves(OffsetPartitions, OffsetRecords, OffsetStream)), probe=probe, sample=sample)
