"""Lanes for tests of `run_batch`: plans for a lane of a test's own, and what the topics say afterwards."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copycat_agent.model import Head, LaneId, LanePlan, OffsetsPartition, SourceOffset
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.transactions import entries
from copycat_agent.transactions.opening import LaneGroup, LaneSnapshot, OpeningPlan, open_lanes
from copycat_agent.transactions.protocol import Entry, perform
from tests.rig.kafka import Consumed, consume, wait_for_markers
from tests.unit.batch.rig import batch_of

if TYPE_CHECKING:
    from copycat_agent.model import Batch, LaneOutcome, SourcePartition, Split, SplitResult
    from copycat_agent.options import Definition


class OneLane:
    """A lane as its driver knows it, in an offsets topic of its own: makes batches, and takes in what became of them."""

    def __init__(self, bootstrap: str, place: OffsetsPartition) -> None:
        self.bootstrap = bootstrap
        self.place = place
        self.id = LaneId(f"agent-{uuid.uuid4().hex}", "app", 0)
        self.head = Head()
        self.open()

    def open(self) -> LaneSnapshot:
        """Fence, read, check and claim, as the driver does."""
        steps = KafkaSteps(KafkaOptions(bootstrap_servers=(self.bootstrap,)), "driver")
        known = {0: self.head} if self.head.seq else {}
        truth = perform(open_lanes(OpeningPlan(self.id.agent, LaneGroup("app", self.place, known), (0,), "n", frozenset("n"))), steps)
        steps.close()
        self.head = truth.heads[0]
        return truth

    def batch(
        self, connector: Definition, *splits: Split, also: dict[SourcePartition, SourceOffset | None] | None = None, **most: Any
    ) -> Batch:
        """A batch that is planned now."""
        return replace(batch_of(connector, *splits, **most), delivery=LanePlan(self.id, self.head, self.place, tuple((also or {}).items())))

    def heard(self, results: tuple[SplitResult, ...]) -> LaneOutcome:
        """What became of it; the lane goes on from there."""
        assert [one for one in results if one.outcome] == [results[0]]
        outcome = results[0].outcome
        assert outcome is not None
        if outcome.state == "committed":
            assert outcome.head.seq == self.head.seq + 1
        else:
            assert outcome.head == self.head
        if outcome.state not in ("committed", "idle"):
            assert all((one.offset, one.counts.read, one.losses) == (one.split.offset, 0, ()) for one in results)
        self.head = outcome.head
        return outcome

    def found(self) -> entries.FoundEntries:
        """What the offsets topic says, to readers of what is committed."""
        told = seen(self.bootstrap, self.place.topic)
        return entries.read((Entry(one.key or b"", one.value, one.offset) for one in told), self.id.agent, "app")


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """The values that readers of what is committed see."""
    return [one.value for one in seen(bootstrap, topic)]


def seen(bootstrap: str, topic: str) -> list[Consumed]:
    """The records that readers of what is committed see, once every transaction there is at its end."""
    wait_for_markers(bootstrap, topic)
    return consume(bootstrap, topic, isolation="read_committed")
