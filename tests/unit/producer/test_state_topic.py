"""State in Kafka: one process writes it at a time, all or nothing, and what became of a write that failed is found out."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from copycat_agent.errors import BlockedError, DataError, FencedError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import state_topic
from copycat_agent.producer.state_topic import StateTopic
from copycat_agent.producer.transactional import KafkaSteps
from tests.rig.kafka import unique_topic
from tests.rig.proxy import END_TXN, PRODUCE
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.model import OffsetsPartition
    from copycat_agent.transactions.protocol import Entry
    from tests.conftest import ProxiedBroker


@pytest.fixture
def state() -> Iterator[Callable[..., StateTopic]]:
    """`state(bootstrap)`: one of the processes of this test's agent."""
    agent_id, made = unique_topic("agent"), []

    def make(bootstrap: str) -> StateTopic:
        made.append(StateTopic(KafkaOptions(bootstrap_servers=(bootstrap,)), agent_id))
        made[-1].ensure()
        return made[-1]

    yield make
    for one in made:
        one.close()


def never() -> dict[bytes, bytes]:
    pytest.fail("nothing is in doubt")


def test_the_next_process_has_the_latest_value_of_each_key(broker: DevBroker, state: Callable[..., StateTopic]) -> None:
    first = state(broker.bootstrap)
    assert first.take() == {}
    first.publish({b"a": b"1", b"b": b"1"}, never)
    first.publish({b"a": b"2", b"b": None, b"c": b"x" * 900_000}, never)
    assert state(broker.bootstrap).take() == {b"a": b"2", b"c": b"x" * 900_000}


def test_who_was_followed_by_another_process_writes_nothing_any_more(broker: DevBroker, state: Callable[..., StateTopic]) -> None:
    first, second = state(broker.bootstrap), state(broker.bootstrap)
    first.take()
    first.publish({b"a": b"1"}, never)
    second.take()
    for _ in range(2):
        with pytest.raises(FencedError):
            first.publish({b"a": b"2"}, lambda: {b"a": b"2"})
    second.publish({b"b": b"1"}, never)
    assert state(broker.bootstrap).take() == {b"a": b"1", b"b": b"1"}


class Forgetting(Producer):
    """A producer whose next commit Kafka refuses, as it does after `transactional.id.expiration.ms` without one (tried with a second)."""

    has_forgotten = False

    def commit_transaction(self, *seconds: float) -> None:
        if Forgetting.has_forgotten:
            Forgetting.has_forgotten = False
            raise KafkaException(KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING))
        super().commit_transaction(*seconds)


def test_who_is_forgotten_by_kafka_writes_on_unless_another_process_leads(
    broker: DevBroker, state: Callable[..., StateTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_topic, "Producer", Forgetting)
    first, second = state(broker.bootstrap), state(broker.bootstrap)
    first.take()
    first.publish({b"a": b"1"}, never)
    monkeypatch.setattr(Forgetting, "has_forgotten", True)
    first.publish({b"a": b"2"}, lambda: {b"a": b"2"})
    assert second.take() == {b"a": b"2"}
    monkeypatch.setattr(Forgetting, "has_forgotten", True)
    with pytest.raises(FencedError):
        first.publish({b"a": b"3"}, lambda: {b"a": b"3"})
    assert state(broker.bootstrap).take() == {b"a": b"2"}


def configure(bootstrap: str, topic: str, **values: str) -> None:
    entries = [ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_wrong_clock_of_this_host_is_waited_for(proxied_broker: ProxiedBroker, state: Callable[..., StateTopic]) -> None:
    first = state(proxied_broker.bootstrap)
    first.take()
    configure(proxied_broker.bootstrap, first.place.topic, message_timestamp_before_max_ms="0")
    proxied_broker.proxy.delay(0.05)  # so that what is written is older than the topic takes
    with pytest.raises(BlockedError, match="timestamp"):
        first.publish({b"a": b"1"}, never)
    proxied_broker.proxy.forward()
    configure(proxied_broker.bootstrap, first.place.topic, message_timestamp_before_max_ms="100000000")
    wait_until(lambda: is_published(first, {b"a": b"2"}, {b"a": b"2"}), 60)
    assert state(proxied_broker.bootstrap).take() == {b"a": b"2"}


def test_an_entry_that_the_topic_refuses_is_told_and_others_are_written_after_it(
    broker: DevBroker, state: Callable[..., StateTopic]
) -> None:
    first = state(broker.bootstrap)
    first.take()
    configure(broker.bootstrap, first.place.topic, max_message_bytes="2000")
    with pytest.raises(DataError, match="large"):
        first.publish({b"a": random.Random(1).randbytes(4000)}, never)
    wait_until(lambda: is_published(first, {b"b": b"1"}, {b"b": b"1"}), 60)
    assert state(broker.bootstrap).take() == {b"b": b"1"}


def is_published(topic: StateTopic, changes: dict[bytes, bytes], wanted: dict[bytes, bytes]) -> bool:
    try:
        topic.publish(changes, lambda: wanted)
    except RetriableError:
        return False
    return True


@pytest.mark.parametrize("request_kind", [PRODUCE, END_TXN])
def test_a_write_without_an_answer_is_written_or_not_and_the_next_one_knows(
    proxied_broker: ProxiedBroker, state: Callable[..., StateTopic], monkeypatch: pytest.MonkeyPatch, request_kind: int
) -> None:
    first = state(proxied_broker.bootstrap)
    first.take()
    first.publish({b"a": b"1", b"gone": b"1"}, never)
    proxied_broker.proxy.drop_response(request_kind, close=False)
    begun = time.monotonic()
    with monkeypatch.context() as impatient:
        impatient.setattr(state_topic, "ANSWER_SECONDS", 3.0)
        with pytest.raises(RetriableError):
            first.publish({b"a": b"2"}, never)
    proxied_broker.proxy.reset()
    with monkeypatch.context() as clock:
        clock.setattr(state_topic, "time", SimpleNamespace(monotonic=lambda: begun))  # the while is not over
        with pytest.raises(RetriableError):  # it is refused at once, for a while: Kafka is not asked what is there
            first.publish({b"a": b"2"}, never)
    wanted = {b"a": b"1", b"c": b"3"}  # the caller has undone what it wanted to write, and writes another thing

    wait_until(lambda: is_published(first, {b"c": b"3"}, wanted), 60, "Kafka answers again")
    assert state(proxied_broker.bootstrap).take() == wanted


def test_who_is_in_doubt_keeps_nobody_out_who_has_taken_over(broker: DevBroker, state: Callable[..., StateTopic]) -> None:
    first, second = state(broker.bootstrap), state(broker.bootstrap)
    first.take()
    first.doubt()
    second.take()
    with pytest.raises(FencedError):
        first.publish({b"a": b"1"}, lambda: {b"a": b"1"})
    second.publish({b"b": b"1"}, never)
    assert state(broker.bootstrap).take() == {b"b": b"1"}


class Reads:
    """Reads of all topics: what each found, what the next ones find instead, and what is done once before the next one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[list[Entry]] = []
        self.outdated: list[list[Entry]] = []
        self.before: list[Callable[[], object]] = []
        ask, ask_end = KafkaSteps.replay, KafkaSteps.end

        def end(steps: KafkaSteps, place: OffsetsPartition, *, decided: bool = False) -> int:
            if self.before:
                self.before.pop()()
            return ask_end(steps, place, decided=decided)

        def replay(steps: KafkaSteps, place: OffsetsPartition, since: int, end: int) -> list[Entry]:
            if self.outdated:
                return self.outdated.pop()
            self.found.append(ask(steps, place, since, end))
            return self.found[-1]

        monkeypatch.setattr(KafkaSteps, "end", end)
        monkeypatch.setattr(KafkaSteps, "replay", replay)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def test_who_takes_over_does_not_go_on_from_an_older_state_of_a_broker_that_is_cut_off(
    broker: DevBroker, state: Callable[..., StateTopic], reads: Reads
) -> None:
    first, second = state(broker.bootstrap), state(broker.bootstrap)
    first.take()
    first.publish({b"a": b"1"}, never)
    reads.outdated = [reads.found[0]]
    with pytest.raises(RetriableError, match="older state"):
        second.take()
    assert second.take() == {b"a": b"1"}
    second.publish({b"a": b"2"}, never)
    assert state(broker.bootstrap).take() == {b"a": b"2"}


def test_who_is_followed_while_taking_over_keeps_nobody_out(broker: DevBroker, state: Callable[..., StateTopic], reads: Reads) -> None:
    first, second = state(broker.bootstrap), state(broker.bootstrap)
    reads.before = [second.take]
    with pytest.raises(FencedError):
        first.take()
    second.publish({b"a": b"1"}, never)
    assert state(broker.bootstrap).take() == {b"a": b"1"}


def test_who_is_in_doubt_writes_nothing_by_an_older_state(broker: DevBroker, state: Callable[..., StateTopic], reads: Reads) -> None:
    first, second = state(broker.bootstrap), state(broker.bootstrap)
    first.take()
    for _ in range(2):
        first.doubt()
        first.publish({b"a": b"1"}, lambda: {b"a": b"1"})
    outdated = reads.found[-1]
    first.doubt()
    second.take()
    second.publish({b"b": b"1"}, never)
    reads.outdated = [outdated] * 2
    with pytest.raises(RetriableError, match="older state"):
        first.publish({b"c": b"1"}, lambda: {b"a": b"1", b"c": b"1"})
    wait_until(lambda: is_refused(first), 60)
    assert state(broker.bootstrap).take() == {b"a": b"1", b"b": b"1"}


def is_refused(topic: StateTopic) -> bool:
    try:
        topic.publish({b"c": b"1"}, lambda: {b"a": b"1", b"c": b"1"})
    except FencedError:
        return True
    except RetriableError:
        return False
    pytest.fail("another process has taken over")
