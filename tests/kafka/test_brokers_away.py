"""Brokers that go away and come back: read on, in a mirror and without one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.dev_broker import DevBroker
from copycat_agent.errors import RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import partition_reading
from copycat_agent.producer.group_positions import GroupPositions
from tests.kafka.conftest import Reading, numbered, options, send, whole
from tests.kafka.test_mirror import ODD
from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.conftest import Mirror

pytestmark = pytest.mark.timeout(300)
slow_ones = pytest.mark.parametrize("guarantee", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
"""Starts of brokers take most of the time."""


@pytest.fixture(scope="module")
def stopped_now_and_then(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevBroker]:
    """A second broker for the tests of this file."""
    with DevBroker(tmp_path_factory.mktemp("away"), auto_create_topics=False) as broker:
        yield broker


@pytest.fixture
def away(stopped_now_and_then: DevBroker) -> DevBroker:
    """It, running at the beginning of each test, which may stop it."""
    if stopped_now_and_then.pid is None:
        stopped_now_and_then.start()
    return stopped_now_and_then


@slow_ones
def test_another_cluster_is_copied(guarantee: str, shipping: Mirror, away: DevBroker) -> None:
    topic = create_topic(away.bootstrap, unique_topic("far"), 3)
    sent = [*ODD, *numbered(0, 300, 1)]
    send(away.bootstrap, topic, sent)
    shipping.mirror(guarantee, source={"topics": [topic], "kafka": {"bootstrap_servers": [away.bootstrap]}})
    assert len(shipping.arrived(len(sent))) == len(sent)
    assert whole(shipping.arrived()) == whole(consume(away.bootstrap, topic))
    away.stop()
    wait_until(lambda: away.bootstrap in shipping.status.reason, 60, lambda: f"{shipping.status}")
    assert shipping.status.state == "retrying"
    away.start()
    send(away.bootstrap, topic, numbered(300, 10))
    assert len(shipping.arrived(len(sent) + 10)) == len(sent) + 10
    away.stop()
    begun = time.monotonic()
    shipping.stop(90)
    assert time.monotonic() - begun < 45, "it does not wait for a broker that is gone"


@slow_ones
def test_the_broker_is_restarted_in_the_middle(guarantee: str, shipping: Mirror, away: DevBroker) -> None:
    """One that is read and written."""
    shipping.bootstrap = away.bootstrap
    create_topic(away.bootstrap, shipping.topic, 3)
    shipping.make()
    shipping.send([one for number in range(3) for one in numbered(number * 3000, 3000, number)])
    shipping.mirror(guarantee, delivery={"max_batch_bytes": "64KiB"})
    assert len(shipping.arrived(200)) >= 200
    away.stop()
    wait_until(lambda: shipping.status.state == "retrying", 60, lambda: f"{shipping.status}")
    away.start()
    wait_until(lambda: len(shipping.arrived()) >= 9000, 90, lambda: f"{shipping.status}")
    shipping.stop()
    found, original = whole(shipping.arrived()), whole(shipping.original())
    assert guarantee == "at_least_once" or found == original
    assert _once(found) == _once(original), "in their order, but for what comes again"


def _once(partitions: dict[int, list[Any]]) -> dict[int, list[Any]]:
    return {number: list(dict.fromkeys(records)) for number, records in partitions.items()}


def test_a_broker_that_goes_away_and_comes_back_is_read_on(away: DevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reading, "STALL_SECONDS", 2.0)
    topic = create_topic(away.bootstrap, unique_topic())
    send(away.bootstrap, topic, numbered(0, 5))
    reading = Reading(options(away.bootstrap, topic))
    (stretch,) = reading.look()
    group = GroupPositions(KafkaOptions(bootstrap_servers=(away.bootstrap,)), "of it")
    wait_until(lambda: _committed(group, {(topic, 0): 1}), message="a coordinator")
    away.stop()
    with pytest.raises(RetriableError, match="saving positions of group of it"):
        group.commit({(topic, 0): 2}, 1)
    begun = time.monotonic()
    group.close()
    assert time.monotonic() - begun < 30, "nobody waits for a broker that is gone"
    with pytest.raises(RetriableError, match=f"{topic}/0: nothing came for 2 s"):
        list(reading.source.read(stretch))
    away.start()
    monkeypatch.setattr(partition_reading, "STALL_SECONDS", 60.0)
    runs: list[Any] = [run for run, _ in reading.source.read(stretch)]
    assert [value for run in runs for value in run.values] == [one.value for one in numbered(0, 5)]
    wait_until(lambda: _committed(group, {(topic, 0): 3}), message="the coordinator loads its group")
    group.close()


def _committed(group: GroupPositions, positions: dict[tuple[str, int], int]) -> bool:
    """Whether the broker took them. One that has just started refuses for a moment, and the next look of a source commits again."""
    try:
        group.commit(positions, 30)
    except RetriableError:
        return False
    return True
