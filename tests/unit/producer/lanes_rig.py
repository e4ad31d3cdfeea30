"""What the tests of a lane's steps share: steps on a broker, and the offsets topic of each test."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.model import LaneId, OffsetsPartition
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.lane_producer import LaneProducer
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.transactions.protocol import Entry
from tests.rig.kafka import create_topic, unique_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def never() -> bool:
    """No stop is asked for."""
    return False


class World(NamedTuple):
    """Steps, a topic for records and a place for entries. Every test has its own lane."""

    steps: KafkaSteps
    topic: str
    place: OffsetsPartition
    lane: LaneId

    @property
    def bootstrap(self) -> str:
        """The cluster's address."""
        return self.steps.options.bootstrap_servers[0]

    def id(self, seq: int = 0) -> str:
        """A transactional id of the lane."""
        return f"copycat.{self.lane.agent}.{self.lane.key}.0.{seq % 2}"

    def begun(self, seq: int = 0, stopping: Callable[[], bool] = never) -> LaneProducer:
        """A producer whose transaction is open."""
        handle = self.steps.prepare(self.id(seq))
        self.steps.ready(handle)
        self.steps.begin(handle)
        handle.begin(stopping)
        return handle

    def entries(self, value: bytes) -> list[Entry]:
        """A head, so to speak."""
        return [Entry(b"head", value)]

    def read(self) -> Sequence[Entry]:
        """All committed entries of the place."""
        return self.steps.replay(self.place, 0, self.steps.end(self.place))

    def seqs(self) -> list[bytes | None]:
        """The values of those."""
        return [entry.value for entry in self.read()]


@contextlib.contextmanager
def world(bootstrap: str, place: OffsetsPartition | None = None, topic: str = "", **client: str) -> Iterator[World]:
    """A world on this broker, with topics of its own unless they are named."""
    steps = KafkaSteps(KafkaOptions(bootstrap_servers=(bootstrap,), client=client), "test")
    try:
        place = place or OffsetsPartition(create_topic(bootstrap, unique_topic("offsets"), 2), 1)
        yield World(steps, topic or create_topic(bootstrap, unique_topic()), place, LaneId(unique_topic("u"), "app", 0))
    finally:
        steps.close()
