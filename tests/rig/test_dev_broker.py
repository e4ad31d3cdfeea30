"""The broker is real, comes back with its data, and goes when it should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Producer

from copycat_agent import dev_broker
from copycat_agent.dev_broker import DevBroker
from copycat_agent.errors import FatalError
from tests.rig.agent import is_alive
from tests.rig.kafka import create_topic, delete_topic, unique_topic, values
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OWNER = """
import pathlib, sys, time, threading
from copycat_agent import dev_broker
dev_broker._JVM_OPTIONS = sys.argv[2:]
broker = dev_broker.DevBroker(pathlib.Path(sys.argv[1]))
thread = threading.Thread(target=broker.start)
thread.start(); thread.join()
time.sleep(1)
print(broker.pid, flush=True)
time.sleep(600)
"""


def _send(broker: DevBroker, topic: str, *sent: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "error_cb": lambda _: None, "log_level": 0})
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def shared_own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevBroker]:
    """Looks for what is too old at once, and again and again."""
    eager = {"log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "100", "log.segment.delete.delay.ms": "0"}
    with DevBroker(tmp_path_factory.mktemp("own"), properties=eager, auto_create_topics=False) as broker:
        yield broker


@pytest.mark.timeout(300)  # two starts of a JVM
def test_what_was_acknowledged_survives_pause_stop_and_kill_on_the_same_port(shared_own_broker: DevBroker) -> None:
    own_broker = shared_own_broker
    address = own_broker.bootstrap
    topic = create_topic(address, unique_topic())
    _send(own_broker, topic, b"1")
    own_broker.pause()
    assert not _answers(own_broker, topic)
    own_broker.resume()
    _send(own_broker, topic, b"2")
    own_broker.pause()
    own_broker.stop()
    assert own_broker.pid is None
    assert "shut down completed" in own_broker.log_path.read_text("utf-8"), "also a paused one is stopped cleanly"
    assert own_broker.start() == address
    _send(own_broker, topic, b"3")
    own_broker.kill()
    assert own_broker.pid is None
    assert own_broker.start() == address
    assert values(address, topic) == [b"1", b"2", b"3"]


def _answers(broker: DevBroker, topic: str) -> bool:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 500, "log_level": 0, "error_cb": lambda _: None})
    outcomes: list[bool] = []
    producer.produce(topic, b"in vain", on_delivery=lambda error, _: outcomes.append(error is None))
    producer.flush(5)
    return outcomes == [True]


def test_listens_on_loopback_only(broker: DevBroker) -> None:
    listening = [c.laddr.ip for c in psutil.Process(broker.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert len(listening) == 3
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def test_a_compacted_topic_can_be_made_and_deleted(broker: DevBroker) -> None:
    topic = create_topic(broker.bootstrap, unique_topic(), config={"cleanup.policy": "compact"})
    delete_topic(broker.bootstrap, topic)


def test_records_with_old_event_times_are_kept(shared_own_broker: DevBroker) -> None:
    bootstrap = shared_own_broker.bootstrap
    topic = create_topic(bootstrap, unique_topic())
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"old", timestamp=1_000)
    assert producer.flush(60) == 0
    time.sleep(1)  # ten checks
    assert values(bootstrap, topic) == [b"old"]


@pytest.mark.timeout(300)
def test_dies_with_its_owner_but_not_with_the_thread_that_started_it(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path), *dev_broker._JVM_OPTIONS], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        broker = psutil.Process(int(owner.stdout.readline()))
        assert broker.name() == "java"
        os.kill(owner.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(broker), 60, "the broker outlived its owner")


def test_a_taken_port_is_said_before_anything_starts(broker: DevBroker, tmp_path: Path) -> None:
    with pytest.raises(FatalError, match=r"taken by another process; choose another port"):
        DevBroker(tmp_path / "second", broker.port).start()
    assert not (tmp_path / "second").exists()


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    broker = DevBroker(tmp_path, properties={"log.retention.ms": "soon"})
    with pytest.raises(FatalError, match=r"soon.*read .*broker\.log"):
        broker.start()
    assert broker.pid is None
