"""The offsets topic in memory: lanes are opened on it by the protocol itself, and a scripted executor's batches are committed to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copycat_agent.errors import CopycatError, FencedError, RetriableError
from copycat_agent.model import Counts, Head, LaneOutcome, LanePlan, OffsetsPartition, Position, SourceOffset, SplitResult
from copycat_agent.transactions.entries import FoundEntries, head_entry, position_entry, read, transactional_id
from copycat_agent.transactions.protocol import Entry
from tests.unit.worker.doubles import Results, settled

if TYPE_CHECKING:
    from copycat_agent.model import Batch, SourcePartition
    from copycat_agent.options import Definition


class Handle:
    """A producer."""

    def __init__(self, transactional_id: str) -> None:
        self.id = transactional_id
        self.sent: list[Entry] = []


class FakeKafka:
    """`delivery.exactly_once.attempts.KafkaAccess`, for all connectors. `away`: what every step raises."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.cluster = "cluster"
        self.partitions = 4
        """Of the offsets topic."""
        self.shown: int | None = None
        """So many entries are shown of those that there are: its leader is cut off from the others. None: all."""
        self.away: CopycatError | None = None
        self.openings = 0
        """Worlds that were made."""
        self.fenced: list[str] = []
        self.at_step: Callable[[str], None] = lambda _: None
        self._owners: dict[str, Handle] = {}
        self._whole = threading.RLock()  # a commit is all there or not at all, also where several connectors open their lanes
        self._failing: bool | None = None

    def fail_commit(self, *, after: bool) -> None:
        """For `at_step`: the commit that is asked for raises, `after` it was made, or is not made."""
        self._failing = after

    def world(self, _definition: Definition, _stopping: Callable[[], bool]) -> FakeKafka:
        self.openings += 1
        return self

    def ensure_topic(self, _topic: str, /) -> int:
        self._step("ensure_topic")
        return self.partitions

    def cluster_id(self) -> str:
        self._step("cluster_id")
        return self.cluster

    def prepare(self, transactional_id: str) -> Handle:
        self._owners[transactional_id] = handle = Handle(transactional_id)
        self.fenced.append(transactional_id)
        return handle

    def ready(self, _handle: Handle) -> None:
        self._step("ready")

    def begin(self, _handle: Handle) -> None:
        self._step("begin")

    def send(self, handle: Handle, _place: OffsetsPartition, entries: Sequence[Entry]) -> None:
        handle.sent += entries

    def flush(self, _handle: Handle) -> None:
        """Nothing is on its way."""

    def commit(self, handle: Handle) -> None:
        self._step("commit")
        with self._whole:
            if self._owners[handle.id] is not handle:
                raise FencedError("somebody else has it")
            failing, self._failing = self._failing, None
            if failing is not False:
                self.append(handle.sent)
        if failing is not None:
            raise RetriableError("no answer to the commit", "see the broker")

    def end(self, place: OffsetsPartition) -> int:
        assert 0 <= place.partition < self.partitions, "the client refuses to ask for it"
        return len(self.log[: self.shown])

    def replay(self, _place: OffsetsPartition, since: int, end: int) -> list[Entry]:
        self._step("replay")
        return self.log[: self.shown][since:end]

    def close(self, handle: Any = None, /) -> None:
        pass

    def append(self, entries: Sequence[Entry]) -> int:
        """Committed entries; returns where the last stands."""
        with self._whole:
            self.log += [one._replace(offset=len(self.log) + index) for index, one in enumerate(entries)]
            return len(self.log) - 1

    def positions(self, agent: str) -> dict[str, SourceOffset | None]:
        """What the topic says of each file of connector app, by path."""
        return {one.offset.path: one.offset for one in self.found(agent, "app").positions if isinstance(one.offset, SourceOffset)}

    def found(self, agent: str, name: str) -> FoundEntries:
        """What the topic has under the id of the connector with this name, and of nobody where the id has another name by now."""
        found = read(self.log, agent, read(self.log, agent, name).id, name)
        return found if found.name == name else FoundEntries({}, [])

    def take(self, batch: Batch, results: Results | None = None) -> Head:
        """Commit a batch as its task would. FencedError when the lane is not where it was planned."""
        plan = lane_plan(batch)
        results = results or tuple(settled(split) for split in batch.splits)
        key = head_entry(plan.lane, Head()).key
        latest = [one for one in self.log if one.key == key][-1:]
        head = read(latest, plan.lane.agent, plan.lane.key).heads.get(plan.lane.number, Head())
        if head[:2] != plan.head[:2]:
            raise FencedError("not where it was planned")
        self._owners.pop(transactional_id(plan.lane, plan.head.seq), None)
        now = Head(plan.head.seq + 1, plan.head.nonce)
        told: list[tuple[SourcePartition, SourceOffset | None]] = [(one.split.partition, one.offset) for one in results]
        made = {one.split.partition: (one.counts, one.losses) for one in results}
        positions = [
            Position(partition, plan.lane.number, now.seq, offset, *made.get(partition, (Counts(), ())), now.nonce)
            for partition, offset in (*told, *plan.driver_rows)
        ]
        entries = [position_entry(plan.lane.agent, plan.lane.key, one) for one in positions]
        return now._replace(offset=self.append([*entries, head_entry(plan.lane, now)]))

    def _step(self, name: str) -> None:
        self.at_step(name)
        if self.away is not None:
            raise self.away

    # Answers for a `ScriptedExecutor`.

    def commits(self, batch: Batch) -> Results:
        """Everything is read and committed."""
        results = tuple(settled(split) for split in batch.splits)
        return with_outcome(results, LaneOutcome("committed", self.take(batch, results)))

    def commits_and_is_gone(self, batch: Batch) -> Results:
        """Everything is committed, and nobody is told."""
        self.take(batch)
        return gone(batch)


def lane_plan(batch: Batch) -> LanePlan:
    """What the batch is told of its lane."""
    assert isinstance(batch.delivery, LanePlan)
    return batch.delivery


def gone(batch: Batch) -> Results:
    """The process that had the batch has ended; nothing was committed by then."""
    return tuple(SplitResult(split, split.offset, error=RetriableError("its process ended")) for split in batch.splits)


def undone(batch: Batch) -> Results:
    """The transaction is given up."""
    return with_outcome(gone(batch), LaneOutcome("undone", lane_plan(batch).head, "the broker is away"))


def with_outcome(results: Results, outcome: LaneOutcome) -> Results:
    """Results that say what became of the transaction."""
    return replace(results[0], outcome=outcome), *results[1:]
