"""What a producer says about itself: read right, asked for seldom, and never piling up."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.dev_broker import free_port
from copycat_agent.model import BrokerView, ClientView, TaskId
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import ProducerPool, TaskProducer, producer_pool, settings, task_producer
from copycat_agent.producer.client import ClientStatistics, client_view
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.dev_broker import DevBroker

TASK = TaskId("app", 0)
NO_TIME = {"avg": 0, "cnt": 0}


def never() -> bool:
    return False


def said(*brokers: dict[str, Any], topics: dict[str, Any] | None = None) -> str:
    """Statistics as the library writes them, with what is read of them; topics come last."""
    defaults = {"nodeid": 1, "source": "learned", "state": "UP", "connects": 1, "disconnects": 0, "txretries": 0, "rtt": NO_TIME}
    described = {broker["name"]: {**defaults, **broker} for broker in brokers}
    return json.dumps({"name": "x", "msg_cnt": 3, "msg_size": 400, "brokers": described}).removesuffix("}") + (
        f', "topics":{json.dumps(topics or {})}, "txmsgs":1}}'
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics every 10 ms."""
    monkeypatch.setitem(settings.OURS, "statistics.interval.ms", "10")


@pytest.fixture
def producers() -> Iterator[ProducerPool]:
    producers = ProducerPool(look_seconds=0.02)
    yield producers
    producers.close()


def test_brokers_queue_and_round_trip_are_read() -> None:
    text = said(
        {"name": "k1:9092/1", "rtt": {"avg": 1500, "cnt": 4}, "txretries": 2},
        {"name": "k2:9092/2", "nodeid": 2, "state": "DOWN"},
        {"name": "boot:9092/bootstrap", "nodeid": -1, "source": "configured"},
        {"name": "TxnCoordinator", "nodeid": -1, "source": "logical"},
    )
    view = client_view(text, 7.0)
    assert view is not None
    assert view.brokers == (BrokerView("k1:9092", "UP", 1.5), BrokerView("k2:9092", "DOWN", None))
    assert (view.at, view.queue_records, view.queue_bytes, view.retries) == (7.0, 3, 400, 2)
    assert pickle.loads(pickle.dumps(view)) == view


def test_before_the_cluster_is_known_its_address_stands_for_it() -> None:
    view = client_view(said({"name": "boot:9092/bootstrap", "nodeid": -1, "source": "configured", "state": "DOWN"}), 0.0)
    assert view is not None
    assert view.brokers == (BrokerView("boot:9092", "DOWN", None),)


def test_a_broker_that_nothing_was_asked_of_is_not_called_down() -> None:
    other = {"name": "k2:9092/2", "nodeid": 2, "state": "INIT", "connects": 0}
    view = client_view(said({"name": "k1:9092/1"}, other), 0.0)
    assert view is not None
    assert view.brokers == (BrokerView("k1:9092", "UP", None),)


def test_topics_are_not_even_parsed() -> None:
    text = said({"name": "k1:9092/1"})
    assert client_view(text.replace('"topics":{}', '"topics":{broken'), 0.0) == client_view(text, 0.0)


def test_statistics_without_topics_are_read_too() -> None:
    text = said({"name": "k1:9092/1"}).replace('"topics"', '"others"')
    view = client_view(text, 0.0)
    assert view is not None
    assert view.queue_records == 3


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"brokers": {"k": {}}}', '{"brokers": []}'])
def test_statistics_of_another_form_are_none_and_never_an_error(text: str) -> None:
    assert client_view(text, 0.0) is None


def retries(statistics: ClientStatistics, number: int | None = None) -> int | None:
    """How many retries are told, after the client has said so many in all."""
    if number is not None:
        statistics.hear(said({"name": "k1:9092/1", "txretries": number}))
    view = statistics.take()
    return None if view is None else view.retries


def test_what_a_shared_client_sent_again_is_told_to_the_task_that_sent_it() -> None:
    statistics = ClientStatistics()
    assert retries(statistics, 5) == 5
    statistics.reassign()
    assert retries(statistics) is None, "nothing new was said"
    assert retries(statistics, 8) == 0, "nobody knows whose the last three are"
    assert retries(statistics, 10) == 2


def test_of_what_a_shared_client_said_to_nobody_the_next_task_hears_of_brokers_only() -> None:
    statistics = ClientStatistics()
    statistics.hear(said({"name": "k1:9092/1", "state": "DOWN", "txretries": 7}))
    statistics.reassign()
    view = statistics.take()
    assert view is not None
    assert view.brokers == (BrokerView("k1:9092", "DOWN", None),)
    assert (view.queue_records, view.queue_bytes, view.retries) == (0, 0, 0)


def test_a_producer_that_another_connector_takes_is_handed_over() -> None:
    producers, options = ProducerPool(), KafkaOptions(bootstrap_servers=("127.0.0.1:1",))
    one, other = TaskId("one", 0), TaskId("other", 0)
    producer = producers.take(one, options)
    producer.on_statistics(said({"name": "k1:9092/1", "txretries": 7}))
    producers.give_back(one, options, producer)
    assert producers.take(other, options) is producer
    view = producer.take_view()
    assert view is not None
    assert (view.queue_records, view.retries) == (0, 0)
    producers.give_back(other, options, producer)
    producers.close()


def test_a_producer_in_use_has_word_of_its_broker_once(broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.OURS, "statistics.interval.ms", "200")  # long enough for a send in each window
    producer = TaskProducer(KafkaOptions(bootstrap_servers=(broker.bootstrap,)), "test")
    try:
        producer.begin(never)
        producer.send(topic, [b"a"], ())
        producer.flush()

        def view() -> ClientView | None:
            producer.send(topic, [b"b"], ())
            producer.flush()
            found = producer.take_view()
            return found if found and any(one.rtt_ms is not None for one in found.brokers) else None

        found = wait_until(view, 60)
        assert found is not None
        assert [(one.name, one.state) for one in found.brokers] == [(broker.address, "UP")]
        assert producer.take_view() is None
    finally:
        producer.close()


@pytest.mark.usefixtures("quick")
def test_a_producer_without_a_broker_says_that_it_is_down() -> None:
    address = f"127.0.0.1:{free_port()}"
    producer = TaskProducer(KafkaOptions(bootstrap_servers=(address,)), "test")
    producer.begin(never)

    def view() -> bool:
        producer.poll_idle()
        found = producer.take_view()
        return found is not None and [one.name for one in found.brokers] == [address] and found.brokers[0].state != "UP"

    wait_until(view, 60)
    producer.close()


@pytest.mark.usefixtures("quick")
def test_statistics_of_idle_producers_are_taken_in_as_they_come(
    broker: DevBroker, producers: ProducerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(task_producer.TaskProducer, "on_statistics", lambda _, text: heard.append(text))
    options = KafkaOptions(bootstrap_servers=(broker.bootstrap,))
    producer = producers.take(TASK, options)
    producers.give_back(TASK, options, producer)
    wait_until(lambda: len(heard) > 20, 60, "nobody polls an idle producer")


def test_a_producer_that_is_idle_for_long_is_closed(broker: DevBroker, producers: ProducerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_pool, "IDLE_SECONDS", 0.1)
    options = KafkaOptions(bootstrap_servers=(broker.bootstrap,))
    producer = producers.take(TASK, options)
    producers.give_back(TASK, options, producer)
    wait_until(lambda: producer.broken, 60, "it is still open")
    assert producers.take(TASK, options) is not producer


def test_a_producer_in_use_is_left_alone(broker: DevBroker, producers: ProducerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_pool, "IDLE_SECONDS", 0.0)
    options = KafkaOptions(bootstrap_servers=(broker.bootstrap,))
    producer = producers.take(TASK, options)
    producers.poll_idle()
    assert not producer.broken
    producers.give_back(TASK, options, producer)
