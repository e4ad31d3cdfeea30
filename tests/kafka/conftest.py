"""What these tests work with: records in topics, and a connector that reads them."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from copycat_agent.extending import Envelope, LostRecords, Passed, PolledOptions
from copycat_agent.options import KafkaOptions
from copycat_agent.sources import SOURCES
from copycat_agent.sources.kafka.kafka_source import KafkaSource
from tests.rig.kafka import Consumed, consume, create_topic, unique_topic
from tests.rig.shipping import Shipping, running_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.extending import Stretch
    from copycat_agent.sources.kafka.kafka_options import KafkaSourceOptions

SECONDS = 90.0
"""For what arrives. The machine may be busy."""
DISCOVER_SECONDS = 0.1


class Enveloped(NamedTuple):
    """A record that was read."""

    value: Any
    envelope: Envelope


class Sent(NamedTuple):
    """A record to be put into a topic. `timestamp_ms` 0: now."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    partition: int = 0


def numbered(first: int, count: int, partition: int = 0) -> list[Sent]:
    """Records with numbers, all else about them told by the number."""
    return [
        Sent(b"value %d" % one, b"key %d" % (one % 7), (("n", b"%d" % one),), 1_700_000_000_000 + one, partition)
        for one in range(first, first + count)
    ]


def send(bootstrap: str, topic: str, records: Iterable[Sent], **settings: str) -> None:
    """Put records into a topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "5", "message.max.bytes": "10000000", **settings})
    _produce(producer, topic, records)
    assert producer.flush(SECONDS) == 0


class Writer:
    """A producer of transactions on some topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": unique_topic("tx"), "transaction.timeout.ms": 600_000}
        )
        self._producer.init_transactions(SECONDS)

    def begin(self, records: Iterable[Sent]) -> None:
        """Send them in a new transaction, which stays open."""
        self._producer.begin_transaction()
        self.add(records)

    def add(self, records: Iterable[Sent]) -> None:
        """Send them in the open transaction."""
        _produce(self._producer, self._topic, records)
        assert self._producer.flush(SECONDS) == 0

    def commit(self, records: Iterable[Sent] | None = None) -> None:
        """End the open transaction, or one of these records."""
        if records is not None:
            self.begin(records)
        self._producer.commit_transaction(SECONDS)

    def abort(self, records: Iterable[Sent] | None = None) -> None:
        """As `commit`."""
        if records is not None:
            self.begin(records)
        self._producer.abort_transaction(SECONDS)


def _produce(producer: Producer, topic: str, records: Iterable[Sent]) -> None:
    for one in records:
        headers: Any = list(one.headers)
        while True:
            try:
                producer.produce(topic, one.value, one.key, one.partition, timestamp=one.timestamp_ms, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)


def delete_records(bootstrap: str, topic: str, before: int, partition: int = 0) -> None:
    """Let the partition begin there, as retention does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (answer,) = admin.delete_records([TopicPartition(topic, partition, before)]).values()
    answer.result(SECONDS)


def of(*topics: str, **more: Any) -> dict[str, Any]:
    """A source section."""
    return {"type": "kafka", "topics": list(topics), "poll_interval": "100ms", "discover_interval": "500ms", **more}


def whole(found: Iterable[Consumed]) -> dict[int, list[Any]]:
    """All there is to say of records but their offsets, for each partition in its order."""
    partitions: dict[int, list[Any]] = {}
    for one in found:
        partitions.setdefault(one.partition, []).append((one.value, one.key, one.headers, one.timestamp_ms))
    return partitions


def options(bootstrap: str, *topics: str, **more: Any) -> KafkaSourceOptions:
    """Options as a definition would give them."""
    model: Any = SOURCES["kafka"].options
    chosen = {"discover_interval": DISCOVER_SECONDS, **more}
    made: KafkaSourceOptions = model.model_validate({
        "type": "kafka", "topics": topics, "kafka": KafkaOptions(bootstrap_servers=(bootstrap,)), **chosen,
    })  # fmt: skip
    made.__pydantic_private__ = {**(made.__pydantic_private__ or {}), "_cluster": made.kafka}
    return made


class Reading:
    """The source without an agent: what looks find is read, and where that ends is saved."""

    def __init__(self, chosen: PolledOptions) -> None:
        self.source = KafkaSource(chosen)  # type: ignore[arg-type]
        self.positions: dict[str, Any] = {}
        self.lost: list[LostRecords] = []
        self.troubles: dict[str, str] = {}

    def look(self, *, to_the_end: bool = False) -> list[Stretch]:
        """What is to be read next."""
        time.sleep(DISCOVER_SECONDS)
        for _ in range(2):
            found = list(self.source.look(self.positions, to_the_end=to_the_end))
            partitions: list[Any] = [one for one in found if hasattr(one, "key")]
            self.troubles = {one.name: one.why for one in found if not hasattr(one, "key")}
            for one in partitions:
                self.positions.setdefault(one.key, one.start)
        stretches = [self.source.plan(one, self.positions[one.key]) for one in partitions]
        return [one for one in stretches if one is not None]

    def read(self, most: int | None = None, *, to_the_end: bool = False) -> list[tuple[Any, int]]:
        """Records and the offsets behind them, all or the first `most` of each stretch; what was lost is in `lost`."""
        found: list[tuple[Any, int]] = []
        for stretch in self.look(to_the_end=to_the_end):
            last: int | None = None
            count, passed = 0, False
            reading: Any = self.source.read(stretch)
            with contextlib.closing(reading):
                for run, position in reading:
                    last = position
                    if isinstance(run, LostRecords):
                        self.lost.append(run)
                    elif isinstance(run, Passed):
                        passed = True
                    else:
                        some = slice(None if most is None else most - count)
                        found += zip(map(Enveloped, run.values[some], run.envelopes[some]), run.ends[some], strict=True)
                        count += len(run.values[some])
                        last = run.ends[some][-1]
                    if count == most:
                        break
            self.positions[stretch.key] = self.source.apply(stretch, last, finished=not passed and (most is None or count < most))
        return found

    def values(self, most: int | None = None) -> list[Any]:
        """Only their values."""
        return [one.value for one, _ in self.read(most)]

    def records(self) -> list[Sent]:
        """As they were sent, but for their partitions."""
        return [_as_sent(one) for one, _ in self.read()]

    def offset(self, key: str | None = None) -> int:
        """Where a partition is, the only one where none is named."""
        (position,) = [one for name, one in self.positions.items() if key is None or name == key]
        return int(position["offset"])


def _as_sent(one: Enveloped) -> Sent:
    assert one.value is None or isinstance(one.value, bytes)
    return Sent(one.value, one.envelope.key, one.envelope.headers, one.envelope.timestamp_ms or 0)


@pytest.fixture
def shipping(tmp_path: Path, broker: DevBroker, make_topic: Callable[..., str]) -> Iterator[Mirror]:
    """A connector of the real worker on a real broker, whose batches run in this process; not started."""
    with running_here(Mirror, tmp_path, "app", broker.bootstrap, make_topic(3)) as shipping:
        yield shipping


class Mirror(Shipping):
    """A connector that copies a topic of three partitions into another one."""

    origin = ""

    def make(self, partitions: int = 3, **config: str) -> str:
        """The topic to be copied."""
        self.origin = create_topic(
            self.bootstrap, unique_topic("from"), partitions, {one.replace("_", "."): of for one, of in config.items()}
        )
        return self.origin

    def mirror(self, guarantee: str = "at_least_once", *, source: dict[str, Any] | None = None, **sections: Any) -> Mirror:
        """Start to copy `origin`."""
        record = {"partition": "source", "origin_headers": False, **sections.pop("record", {})}
        delivery = {"guarantee": guarantee, **sections.pop("delivery", {})}
        self.start(source={**of(self.origin), **(source or {})}, record=record, delivery=delivery, deadline=60, **sections)
        return self

    def send(self, records: Iterable[Sent]) -> None:
        """Put records into `origin`."""
        send(self.bootstrap, self.origin, records)

    def arrived(self, count: int | None = None) -> list[Consumed]:
        """What readers of committed records see in the target."""
        try:
            return consume(self.bootstrap, self.topic, "read_committed", count, SECONDS)
        except AssertionError as error:
            error.add_note(f"the connector: {self.status if self._worker else 'not running'}")
            raise

    def original(self) -> list[Consumed]:
        """What they see in `origin`."""
        return consume(self.bootstrap, self.origin, "read_committed", None, SECONDS)

    def is_same(self, count: int) -> bool:
        """Whether the target holds what `origin` does, record for record, once so many are there."""
        return whole(self.arrived(count)) == whole(self.original())
