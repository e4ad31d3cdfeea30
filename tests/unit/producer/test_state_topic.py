"""State in Kafka: one process writes it at a time, all or nothing, and what became of a write that failed is found out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import FencedError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import state_topic
from copycat_agent.producer.state_topic import StateTopic
from tests.rig.kafka import unique_topic
from tests.rig.proxy import END_TXN, PRODUCE
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker
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


@pytest.mark.parametrize("request_kind", [PRODUCE, END_TXN])
def test_a_write_without_an_answer_is_written_or_not_and_the_next_one_knows(
    proxied_broker: ProxiedBroker, state: Callable[..., StateTopic], monkeypatch: pytest.MonkeyPatch, request_kind: int
) -> None:
    monkeypatch.setattr(state_topic, "ANSWER_SECONDS", 3.0)
    first = state(proxied_broker.bootstrap)
    first.take()
    first.publish({b"a": b"1", b"gone": b"1"}, never)
    proxied_broker.proxy.drop_response(request_kind, close=False)
    with pytest.raises(RetriableError):
        first.publish({b"a": b"2"}, never)
    proxied_broker.proxy.reset()
    asked = sum(proxied_broker.proxy.requests.values())
    with pytest.raises(RetriableError):
        first.publish({b"a": b"2"}, never)
    assert sum(proxied_broker.proxy.requests.values()) == asked, "it is refused at once, for a while"
    wanted = {b"a": b"1", b"c": b"3"}  # the caller has undone what it wanted to write, and writes another thing

    def is_written() -> bool:
        try:
            first.publish({b"c": b"3"}, lambda: wanted)
        except RetriableError:
            return False
        return True

    wait_until(is_written, 30, "Kafka answers again")
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
