"""One task's producer, against a real broker and against nobody."""

from __future__ import annotations

import gc
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError

from copycat_agent.dev_broker import DevBroker, free_port
from copycat_agent.errors import BlockedError, DataError, RetriableError
from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions, TopicOptions
from copycat_agent.producer import ProducerPool, RefusedRecordError, TaskProducer
from copycat_agent.producer.task_memory import MOST_BYTES, TopicMetadata
from tests.rig.kafka import unique_topic, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka.admin import AdminClient


TASK = TaskId("app", 0)


def never() -> bool:
    return False


def kafka(bootstrap: str, **client: str) -> KafkaOptions:
    return KafkaOptions(bootstrap_servers=(bootstrap,), client=client)


@pytest.fixture
def make_producer(broker: DevBroker) -> Iterator[Callable[..., TaskProducer]]:
    """`make_producer(**client)` gives a producer on the shared broker that has begun a batch."""
    made: list[TaskProducer] = []

    def make(bootstrap: str = broker.bootstrap, **client: str) -> TaskProducer:
        producer = TaskProducer(kafka(bootstrap, **client), "test")
        producer.begin(never)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        if hasattr(producer, "topics"):
            producer.close()


def fail(producer: TaskProducer, *codes: int) -> None:
    """As if records had been reported with these codes."""
    for code in codes:
        producer.on_delivery(KafkaError(code), None)


def test_what_is_flushed_is_in_the_topic_in_order(make_producer: Callable[..., TaskProducer], broker: DevBroker, topic: str) -> None:
    producer = make_producer()
    producer.send(topic, [b"a", b"b"], ())
    producer.send_each([(topic, b"c", b"key"), (topic, None, None, -1, None, None, 0, [("h", b"1")])])
    producer.flush()
    assert values(broker.bootstrap, topic) == [b"a", b"b", b"c", None]
    assert not producer.broken


def test_a_full_queue_blocks_and_drops_nothing(make_producer: Callable[..., TaskProducer], broker: DevBroker, topic: str) -> None:
    producer = make_producer(**{"queue.buffering.max.messages": "10"})
    sent = [b"%d" % number for number in range(500)]
    producer.send(topic, sent, ())
    producer.flush()
    assert values(broker.bootstrap, topic) == sent


@pytest.mark.parametrize("tail", [(), (b"key", -1, None, None, 0, None)])
def test_a_record_too_large_for_the_client_is_refused_with_the_number_of_those_before_it(
    make_producer: Callable[..., TaskProducer], broker: DevBroker, topic: str, tail: tuple[object, ...]
) -> None:
    producer = make_producer(**{"message.max.bytes": "1000", "batch.size": "1000", "queue.buffering.max.messages": "2"})
    with pytest.raises(RefusedRecordError) as caught:
        producer.send(topic, [b"a", b"b", b"c", b"d", b"x" * 2000, b"e"], tail)
    assert caught.value.sent == 4
    assert "size" in caught.value.message.lower()
    assert not producer.broken
    producer.flush()
    assert values(broker.bootstrap, topic) == [b"a", b"b", b"c", b"d"]


def test_a_stop_request_lets_a_full_queue_drain(make_producer: Callable[..., TaskProducer], broker: DevBroker, topic: str) -> None:
    producer = make_producer(**{"queue.buffering.max.messages": "10"})
    producer.begin(lambda: True)
    sent = [b"%d" % number for number in range(200)]
    producer.send(topic, sent, ())
    producer.flush()
    assert values(broker.bootstrap, topic) == sent


def test_records_that_are_refused_are_a_data_error_and_the_producer_goes_on(make_producer: Callable[..., TaskProducer], topic: str) -> None:
    producer = make_producer()
    producer.send(topic, [b"a"], ())
    fail(producer, KafkaError.MSG_SIZE_TOO_LARGE)
    with pytest.raises(DataError):
        producer.flush()
    assert not producer.broken
    producer.send(topic, [b"b"], ())
    producer.flush()


@pytest.mark.parametrize("codes", [
    (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._MSG_TIMED_OUT), (KafkaError._MSG_TIMED_OUT, KafkaError.MSG_SIZE_TOO_LARGE),
])  # fmt: skip
def test_trouble_of_the_cluster_is_never_taken_for_a_records_own(
    make_producer: Callable[..., TaskProducer], codes: tuple[int, ...]
) -> None:
    producer = make_producer()
    fail(producer, *codes)
    with pytest.raises(RetriableError):
        producer.flush()
    assert producer.broken


def test_failures_of_an_earlier_batch_are_not_this_ones(make_producer: Callable[..., TaskProducer]) -> None:
    producer = make_producer()
    fail(producer, KafkaError.MSG_SIZE_TOO_LARGE)
    producer.begin(never)
    producer.flush()


def test_a_refused_record_counts_until_it_was_told(make_producer: Callable[..., TaskProducer], topic: str) -> None:
    producer = make_producer()
    fail(producer, KafkaError.INVALID_RECORD)
    producer.send(topic, [b"after"], ())
    with pytest.raises(DataError):
        producer.flush()
    producer.flush()


def test_without_a_broker_flushing_ends_retriable_and_the_producer_is_broken(make_producer: Callable[..., TaskProducer]) -> None:
    producer = make_producer(f"127.0.0.1:{free_port()}", **{"message.timeout.ms": "5000"})
    producer.send("t", [b"a"], ())
    with pytest.raises(RetriableError, match="Connection refused"):
        producer.flush()
    assert producer.broken


@pytest.mark.parametrize("values_sent", [1, 50])
def test_a_stop_request_cuts_the_wait_for_a_broker(
    make_producer: Callable[..., TaskProducer], monkeypatch: pytest.MonkeyPatch, values_sent: int
) -> None:
    monkeypatch.setattr("copycat_agent.producer.task_memory.SETTLE_SECONDS", 0.3)
    producer = make_producer(f"127.0.0.1:{free_port()}", **{"message.timeout.ms": "300000", "queue.buffering.max.messages": "10"})
    producer.begin(lambda: True)

    def send_and_flush() -> None:
        producer.send("t", [b"a"] * values_sent, ())
        producer.flush()

    with pytest.raises(RetriableError):
        send_and_flush()
    assert producer.broken


def test_a_missing_topic_blocks_and_is_asked_for_again(make_producer: Callable[..., TaskProducer]) -> None:
    producer = make_producer()
    for _ in range(2):
        with pytest.raises(BlockedError, match="does not exist"):
            producer.topics.partitions(unique_topic())
    assert not producer.broken


def test_the_number_of_partitions_is_known(make_producer: Callable[..., TaskProducer], make_topic: Callable[..., str]) -> None:
    assert make_producer().topics.partitions(make_topic(5)) == 5


def test_a_missing_topic_is_created_where_asked(broker: DevBroker) -> None:
    options = KafkaOptions(bootstrap_servers=(broker.bootstrap,), create_topics=TopicOptions(partitions=4, replication_factor=1))
    producer = TaskProducer(options, "test")
    producer.begin(never)
    assert producer.topics.partitions(unique_topic()) == 4
    producer.close()


def test_topics_are_made_as_asked_where_the_broker_would_make_them_too(
    tmp_path_factory: pytest.TempPathFactory, make_producer: Callable[..., TaskProducer]
) -> None:
    with DevBroker(tmp_path_factory.mktemp("eager"), auto_create_topics=True) as eager:
        wanted = KafkaOptions(bootstrap_servers=(eager.bootstrap,), create_topics=TopicOptions(partitions=2, replication_factor=1))
        producer = TaskProducer(wanted, "test")
        producer.begin(never)
        new, there = unique_topic(), unique_topic()
        assert producer.topics.partitions(new) == 2
        assert make_producer(eager.bootstrap).topics.partitions(there) == 1, "this broker makes topics by itself"
        assert producer.topics.partitions(there) == 1, "what is there stays as it is"
        producer.close()


def test_without_an_answer_no_topic_is_made_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def metadata(_self: TopicMetadata, _topic: str, _begin: float) -> tuple[int, None]:
        pytest.fail("a broker may make the topic when it is asked so")

    monkeypatch.setattr(TopicMetadata, "metadata", metadata)
    address = f"127.0.0.1:{free_port()}"
    producer = TaskProducer(KafkaOptions(bootstrap_servers=(address,), create_topics=TopicOptions(partitions=2)), "test")
    producer.begin(lambda: True)
    with pytest.raises(RetriableError, match="stopped before"):
        producer.topics.partitions(unique_topic())
    producer.close()


def test_a_refused_login_of_the_client_for_topics_is_told_at_once_and_tried_anew() -> None:
    address = f"127.0.0.1:{free_port()}"
    options = KafkaOptions(bootstrap_servers=(address,), create_topics=TopicOptions(partitions=2))
    producer = TaskProducer(options, "test")
    producer.begin(never)
    admin, clients = producer.topics.admin, []

    def refused(client: AdminClient) -> Future[None]:
        assert admin.trouble is None, "what was refused before is not held against it"
        clients.append(client)
        admin.on_client_error(KafkaError(KafkaError._AUTHENTICATION))
        return Future()

    for _ in range(2):
        with pytest.raises(BlockedError, match="no broker answers"):
            admin.ask(refused, 60)
    assert clients[0] is not clients[1]
    producer.close()


def test_a_topic_that_may_not_be_created_as_asked_says_why(broker: DevBroker) -> None:
    options = KafkaOptions(bootstrap_servers=(broker.bootstrap,), create_topics=TopicOptions(replication_factor=3))
    producer = TaskProducer(options, "test")
    producer.begin(never)
    with pytest.raises(BlockedError, match="creating topic"):
        producer.topics.partitions(unique_topic())
    producer.close()


def test_a_closed_producer_is_freed_at_once(broker: DevBroker, topic: str) -> None:
    gc.disable()  # a ring would wait for the collector, with its threads and connections
    try:
        producer = TaskProducer(kafka(broker.bootstrap), "test")
        producer.send(topic, [b"a"], ())
        gone = weakref.ref(producer)
        producer.close()
        del producer
        assert gone() is None
    finally:
        gc.enable()


def test_closing_does_not_wait_for_a_broker(make_producer: Callable[..., TaskProducer]) -> None:
    producer = make_producer(f"127.0.0.1:{free_port()}")
    producer.send("t", [b"a"] * 1000, ())
    begin = time.monotonic()
    producer.close()
    assert time.monotonic() - begin < 25  # its messages would be waited for 30 s


def test_a_task_gets_its_producer_again_until_its_configuration_changes_or_it_breaks(broker: DevBroker) -> None:
    producers = ProducerPool()
    options, other = kafka(broker.bootstrap), kafka(broker.bootstrap, **{"linger.ms": "1"})
    first = producers.take(TASK, options)
    producers.give_back(TASK, options, first)
    assert producers.take(TASK, options) is first
    producers.give_back(TASK, options, first)
    second = producers.take(TASK, other)
    assert second is not first
    second.broken = True
    producers.give_back(TASK, other, second)
    third = producers.take(TASK, other)
    assert third is not second
    producers.give_back(TASK, other, third)
    producers.close()


def test_tasks_do_not_share_a_producer(broker: DevBroker) -> None:
    producers, options = ProducerPool(), kafka(broker.bootstrap)
    one, two = producers.take(TASK, options), producers.take(TaskId("app", 1), options)
    assert one is not two
    producers.give_back(TASK, options, one)
    producers.give_back(TaskId("app", 1), options, two)
    producers.close()


def test_closing_closes_every_producer_that_is_free(broker: DevBroker) -> None:
    producers, options = ProducerPool(), kafka(broker.bootstrap)
    one, two = producers.take(TASK, options), producers.take(TASK, options)
    producers.give_back(TASK, options, one)
    producers.give_back(TASK, options, two)
    assert (one.broken, two.broken) == (False, False)
    producers.close()
    assert (one.broken, two.broken) == (True, True)


def test_what_a_task_learnt_of_its_line_outlives_a_producer_and_not_its_configuration(broker: DevBroker) -> None:
    producers = ProducerPool()
    options, other = kafka(broker.bootstrap), kafka(broker.bootstrap, **{"linger.ms": "1"})
    first = producers.take(TASK, options)
    fail(first, KafkaError._MSG_TIMED_OUT)
    with pytest.raises(RetriableError):
        first.flush()
    producers.give_back(TASK, options, first)
    second = producers.take(TASK, options)
    assert second.run_bytes < MOST_BYTES
    producers.give_back(TASK, options, second)
    third = producers.take(TASK, other)
    assert third.run_bytes == MOST_BYTES
    producers.give_back(TASK, other, third)
    producers.close()


def test_nothing_is_learnt_of_a_line_from_a_run_that_was_given_up(
    make_producer: Callable[..., TaskProducer], make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, topic = make_producer(), make_topic(1)
    producer.begin(lambda: False)
    producer.send(topic, [b"a"], ())
    real = time.monotonic
    monkeypatch.setattr("copycat_agent.producer.task_producer.time.monotonic", lambda: real() + 3600)
    producer.begin(lambda: False)
    producer.send(topic, [b"a"], ())
    producer.weigh(MOST_BYTES)
    producer.flush()
    assert producer.run_bytes == MOST_BYTES
