"""The proxy breaks exactly what it is told to break."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.rig.kafka import consume, create_topic, unique_topic, values
from tests.rig.proxy import END_TXN, PRODUCE, Proxy
from tests.rig.requests import FENCED, is_abort, is_commit, mentions
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import ProxiedBroker

_WRITE_TXN_MARKERS = 27


@pytest.fixture
def topic(proxied_broker: ProxiedBroker) -> str:
    """A topic on the broker behind the proxy."""
    return create_topic(proxied_broker.bootstrap, unique_topic())


class _Sender:
    """A producer that remembers what became of each value."""

    def __init__(self, bootstrap: str, **settings: str) -> None:
        config = {"bootstrap.servers": bootstrap, "linger.ms": 0, "reconnect.backoff.max.ms": 200} | {
            key.replace("_", "."): value for key, value in settings.items()
        }
        self.outcomes: dict[bytes, KafkaError | None] = {}
        self._producer = Producer({**config, "error_cb": lambda _: None, "log_level": "0"})

    def send(self, topic: str, value: bytes, seconds: float = 60) -> bool:
        """Whether it was acknowledged in time."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            self.outcomes[message.value() or b""] = error

        self._producer.produce(topic, value, on_delivery=delivered)
        self._producer.flush(seconds)
        return self.outcomes.get(value, "nothing yet") is None

    def flush(self) -> int:
        return self._producer.flush(60)


def test_clients_stay_behind_the_proxy(proxied_broker: ProxiedBroker, topic: str) -> None:
    assert _Sender(proxied_broker.bootstrap).send(topic, b"a")
    assert proxied_broker.proxy.requests[PRODUCE] == 1
    assert values(proxied_broker.bootstrap, topic) == [b"a"]


def test_pause_holds_everything_and_forward_lets_it_go(proxied_broker: ProxiedBroker, topic: str) -> None:
    sender = _Sender(proxied_broker.bootstrap)
    assert sender.send(topic, b"a")
    proxied_broker.proxy.pause()
    assert not sender.send(topic, b"b", seconds=0.5)
    proxied_broker.proxy.forward()
    assert sender.flush() == 0
    assert values(proxied_broker.bootstrap, topic) == [b"a", b"b"]


def test_cut_closes_and_refuses_until_forward(proxied_broker: ProxiedBroker, topic: str) -> None:
    sender = _Sender(proxied_broker.bootstrap)
    assert sender.send(topic, b"a")
    proxied_broker.proxy.cut()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxied_broker.proxy.port), timeout=1)
    assert not sender.send(topic, b"b", seconds=0.5)
    proxied_broker.proxy.forward()
    assert sender.flush() == 0
    assert values(proxied_broker.bootstrap, topic) == [b"a", b"b"]


def test_blackhole_accepts_and_never_answers(proxied_broker: ProxiedBroker, topic: str) -> None:
    proxied_broker.proxy.blackhole()
    socket.create_connection(("127.0.0.1", proxied_broker.proxy.port), timeout=1).close()
    assert not _Sender(proxied_broker.bootstrap, message_timeout_ms="1000").send(topic, b"lost", seconds=3)
    proxied_broker.proxy.reset()
    assert values(proxied_broker.bootstrap, topic) == []


def test_a_lost_answer_makes_a_plain_producer_repeat_itself(proxied_broker: ProxiedBroker, topic: str) -> None:
    sender = _Sender(proxied_broker.bootstrap)
    proxied_broker.proxy.drop_response(PRODUCE, nth=2)
    assert sender.send(topic, b"a")
    assert proxied_broker.proxy.dropped == 0
    assert sender.send(topic, b"b")
    wait_until(lambda: proxied_broker.proxy.dropped == 1, 60, "the answer was not lost")
    assert values(proxied_broker.bootstrap, topic) == [b"a", b"b", b"b"]


def test_a_lost_answer_does_not_make_an_idempotent_producer_repeat_itself(proxied_broker: ProxiedBroker, topic: str) -> None:
    sender = _Sender(proxied_broker.bootstrap, enable_idempotence="true")
    proxied_broker.proxy.drop_response(PRODUCE)
    assert sender.send(topic, b"a")
    assert proxied_broker.proxy.dropped == 1
    assert values(proxied_broker.bootstrap, topic) == [b"a"]


def test_what_the_broker_tells_itself_does_not_pass_the_proxy(proxied_broker: ProxiedBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": proxied_broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    producer.commit_transaction(60)
    assert [record.value for record in consume(proxied_broker.bootstrap, topic, "read_committed", until=1)] == [b"a"]
    assert proxied_broker.proxy.requests[END_TXN] == 1
    assert proxied_broker.proxy.requests[_WRITE_TXN_MARKERS] == 0


def test_the_broker_comes_back_behind_a_cut(proxied_broker: ProxiedBroker, topic: str) -> None:
    proxied_broker.proxy.cut()
    proxied_broker.broker.restart()
    proxied_broker.proxy.forward()
    assert _Sender(proxied_broker.bootstrap).send(topic, b"a")


def test_delay_holds_each_answer(proxied_broker: ProxiedBroker, topic: str) -> None:
    sender = _Sender(proxied_broker.bootstrap)
    assert sender.send(topic, b"a")
    proxied_broker.proxy.delay(0.3)
    started = time.monotonic()
    assert sender.send(topic, b"b")
    assert time.monotonic() - started >= 0.6


def _transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000, "log_level": 0})
    producer.init_transactions(60)
    return producer


def _transaction(producer: Producer, topic: str, value: bytes) -> None:
    """Begin, and have `value` acknowledged."""
    producer.begin_transaction()
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def _committed(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in consume(bootstrap, topic, "read_committed")]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_late_copy_of_end_txn_ends_the_next_transaction_of_the_same_producer(
    proxied_broker: ProxiedBroker, topic: str, commits: bool
) -> None:
    """The canary of the rule that no producer takes two transactions: this is what it is for."""
    caught = proxied_broker.proxy.catch(END_TXN, wanted=is_commit if commits else is_abort)
    producer = _transactional(proxied_broker.bootstrap, topic)
    _transaction(producer, topic, b"first")
    producer.commit_transaction(60) if commits else producer.abort_transaction(60)
    caught.wait()
    _transaction(producer, topic, b"second, not asked to end")
    assert caught.send_again() == 0
    first = [b"first"] if commits else []
    wanted = [*first, b"second, not asked to end"] if commits else first
    assert wait_until(lambda: _committed(proxied_broker.bootstrap, topic) == wanted or None, 60, "the late copy did nothing")


def test_a_late_copy_of_end_txn_is_fenced_by_a_new_producer(proxied_broker: ProxiedBroker, topic: str) -> None:
    caught = proxied_broker.proxy.catch(END_TXN)
    _first = _transactional(proxied_broker.bootstrap, topic)
    _transaction(_first, topic, b"first")
    _first.commit_transaction(60)
    second = _transactional(proxied_broker.bootstrap, topic)
    _transaction(second, topic, b"second")
    assert caught.send_again() in FENCED
    second.abort_transaction(60)
    assert _committed(proxied_broker.bootstrap, topic) == [b"first"]


def test_a_request_that_is_looked_out_for_is_told_before_the_broker_has_it(proxied_broker: ProxiedBroker, topic: str) -> None:
    stopped: list[bool] = []

    def stop() -> None:
        proxied_broker.broker.pause()
        stopped.append(True)

    other = create_topic(proxied_broker.bootstrap, unique_topic())
    caught = proxied_broker.proxy.catch(PRODUCE, nth=2, wanted=mentions(topic), call=stop)
    sender = _Sender(proxied_broker.bootstrap)
    assert sender.send(other, b"of no interest")
    assert sender.send(topic, b"a")
    assert not stopped
    assert not sender.send(topic, b"b", seconds=0.5)
    caught.wait()
    assert stopped
    proxied_broker.broker.resume()
    assert sender.flush() == 0
    assert values(proxied_broker.bootstrap, topic) == [b"a", b"b"]


def test_a_reset_is_seen_as_one(proxied_broker: ProxiedBroker) -> None:
    with socket.create_connection(("127.0.0.1", proxied_broker.proxy.port), timeout=60) as client:
        wait_until(lambda: proxied_broker.proxy.connections, 60, "the connection is not there")
        proxied_broker.proxy.disconnect(reset=True)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_broker_whose_queue_of_connections_is_full_holds_up_no_reset() -> None:
    """As one that stood still for long: the kernel asks again for a connection after ever longer waits."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        host, port = listener.getsockname()
        proxy = stack.enter_context(Proxy(f"{host}:{port}"))
        queued = stack.enter_context(socket.create_connection((host, port), 60))
        client = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), 60))
        wait_until(lambda: proxy._opening, 60, "the proxy is not in the queue")
        proxy.reset()
        client.settimeout(60)
        with contextlib.suppress(ConnectionError):
            assert client.recv(1) == b""
        assert queued.fileno() > 0
