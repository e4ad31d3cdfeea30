"""The helpers that read topics tell the whole truth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.rig.kafka import consume, values

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.kafka import Consumed


def test_reading_an_empty_topic_returns_at_once(broker: DevBroker, topic: str) -> None:
    assert consume(broker.bootstrap, topic) == []


def test_reads_every_partition_from_the_beginning_with_all_fields(broker: DevBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(30):
        producer.produce(topic, b"%d" % number, b"k", partition=number % 3, timestamp=1_000 + number, headers={"h": b"x"})
    producer.produce(topic, None, b"k", partition=0)
    producer.flush(60)
    records = consume(broker.bootstrap, topic)
    assert {(r.partition, r.value) for r in records} == {(n % 3, b"%d" % n) for n in range(30)} | {(0, None)}
    assert [r.offset for r in records if r.partition == 1] == list(range(10))
    first = next(r for r in records if r.value == b"4")
    assert (first.key, first.headers, first.timestamp_ms) == (b"k", (("h", b"x"),), 1_004)


def test_read_committed_hides_aborted_and_open_transactions(broker: DevBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for value, is_kept in ((b"kept", True), (b"aborted", False)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(60)
        producer.commit_transaction(60) if is_kept else producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(60)
    assert values(broker.bootstrap, topic) == [b"kept", b"aborted", b"open"]
    assert [r.value for r in consume(broker.bootstrap, topic, "read_committed")] == [b"kept"]
    producer.abort_transaction(60)


def test_what_does_not_arrive_is_an_assertion_with_what_was_seen(broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over once the one record has been seen, however long that takes."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"one")
    producer.flush(60)
    assert values(broker.bootstrap, topic, count=1) == [b"one"]
    passed = [0.0]

    def two_are_there(seen: list[Consumed]) -> bool:
        passed[0] += 100.0 * len(seen)
        return len(seen) >= 2

    monkeypatch.setattr("tests.rig.kafka.time", SimpleNamespace(monotonic=lambda: passed[0]))
    with pytest.raises(AssertionError, match=r"saw 1 records, wanted .*two_are_there.*value=b'one'"):
        consume(broker.bootstrap, topic, until=two_are_there)


def test_a_topic_that_is_missing_is_an_assertion_and_is_not_created(broker: DevBroker) -> None:
    for _ in range(2):
        with pytest.raises(AssertionError, match="UNKNOWN_TOPIC"):
            consume(broker.bootstrap, "missing")
