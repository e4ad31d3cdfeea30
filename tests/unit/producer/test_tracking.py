"""A tracked producer: where each record came to lie is known once it is flushed, on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import ProducerPool, TaskProducer
from tests.rig.kafka import consume

if TYPE_CHECKING:
    from confluent_kafka import Message

    from copycat_agent.dev_broker import DevBroker


def test_every_record_is_told_to_whom_it_was_attributed_when_it_was_sent(broker: DevBroker, topic: str) -> None:
    producer = TaskProducer(KafkaOptions(bootstrap_servers=(broker.bootstrap,)), "test", tracked=True)
    producer.begin(lambda: False)
    first: list[tuple[str, int, int]] = []
    second: list[tuple[str, int, int]] = []
    producer.attribute(lambda *place: first.append(place))
    producer.send(topic, [b"a", b"b"], ())
    producer.send(topic, [b"c"], (b"key", -1, None, None, 0, [("h", b"1")]))
    producer.attribute(lambda *place: second.append(place))
    producer.send_each([(topic, b"d", None, -1, None, None, 7, None), (topic, b"e")])
    producer.flush()
    arrived = {one.value: (topic, one.partition, one.offset) for one in consume(broker.bootstrap, topic)}
    assert sorted(first) == sorted(arrived[value] for value in (b"a", b"b", b"c"))
    assert sorted(second) == sorted(arrived[value] for value in (b"d", b"e"))
    producer.close()


def test_a_producer_that_is_not_tracked_is_not_used_for_a_batch_that_is() -> None:
    producers, task, kafka = ProducerPool(), TaskId("app", 0), KafkaOptions(bootstrap_servers=("127.0.0.1:1",))
    plain = producers.take(task, kafka)
    producers.give_back(task, kafka, plain)
    tracked = producers.take(task, kafka, tracked=True)
    assert tracked is not plain
    assert tracked.tracked
    producers.give_back(task, kafka, tracked)
    producers.close()


def test_a_record_whose_place_kafka_does_not_say_is_acknowledged_without_one() -> None:
    """As one that was sent twice, because the answer to the first request was lost."""

    class Twice:
        def topic(self) -> str:
            return "t"

        def partition(self) -> int:
            return 0

        def offset(self) -> None:
            return None

    producer = TaskProducer(KafkaOptions(bootstrap_servers=("127.0.0.1:1",)), "test", tracked=True)
    places: list[tuple[str, int, int]] = []
    producer.attribute(lambda *place: places.append(place))
    assert producer.report is not None
    producer.report(None, cast("Message", Twice()))
    producer.close()
    assert not places
