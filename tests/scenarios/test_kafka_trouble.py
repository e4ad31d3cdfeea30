"""J. Kafka is slow, gone, restarted, lossy or not ready: nothing is lost, nothing else is held up, and it says why."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from copycat_agent.dev_broker import free_port
from copycat_agent.producer.task_memory import SETTLE_SECONDS
from copycat_agent.worker.worker import STOP_SECONDS
from tests.rig.kafka import create_topic, delete_topic, unique_topic, values
from tests.rig.proxy import PRODUCE
from tests.rig.shipping import origin
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.conftest import ProxiedBroker
    from tests.rig.ledger import Ledger
    from tests.rig.shipping import Shipping

IMPATIENT = {"client": {"message.timeout.ms": 8000, "reconnect.backoff.max.ms": 200}}
"""So that what takes half a minute by default shows in seconds, and a busy machine sends in time all the same."""


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def wait_state(shipping: Shipping, *states: str) -> str:
    """Wait for one of these states; returns its reason."""
    wait_until(lambda: shipping.status.state in states, 60, lambda: f"{states}: {shipping.status}")
    return shipping.status.reason


def test_an_outage_with_rotations_and_a_restart_loses_nothing(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, ledger: Ledger, logs_dir: Path
) -> None:
    bootstrap, proxy = proxied_broker.bootstrap, proxied_broker.proxy
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    writer = ledger.writer(logs_dir / "app")
    writer.write(100)
    shipping.start(kafka=IMPATIENT)
    shipping.records(until=100)
    proxy.cut()
    for number in range(3):
        writer.write(2000)
        wait_until(lambda: shipping.status.lag.bytes > 0, message="the agent sees it")
        (logs_dir / "app").rename(logs_dir / f"app.{number}")
        writer.reopen()
        if number == 1:
            wait_state(shipping, "retrying")
            shipping.stop(2)
            shipping.start(kafka=IMPATIENT)
    writer.write(2000)
    wait_state(shipping, "retrying")
    proxy.forward()
    shipping.records(until=ledger.all_arrived(), deadline=60)
    verdict = ledger.verify(shipping.records())
    assert (verdict.lost, verdict.phantom, verdict.corrupt) == (0, 0, 0)
    wait_state(shipping, "running")


@pytest.mark.parametrize("bounces", [["kill"], pytest.param(["kill", "stop"], marks=pytest.mark.long)])
def test_a_broker_that_comes_and_goes_loses_nothing_and_each_file_stays_in_one_partition_and_in_order(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, ledger: Ledger, logs_dir: Path, bounces: list[str]
) -> None:
    bootstrap, broker = proxied_broker.bootstrap, proxied_broker.broker
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic(), 3))
    writers = [ledger.writer(logs_dir / f"file-{number}") for number in range(12)]
    shipping.start(record={"key": "{@file.path}"}, kafka=IMPATIENT)

    def write() -> None:
        for writer in writers:
            writer.write(100)

    write()
    shipping.records(until=ledger.all_arrived())
    for bounce in bounces:
        write()
        {"kill": broker.kill, "stop": broker.stop}[bounce]()
        write()
        broker.start()
        write()
        shipping.records(until=ledger.all_arrived(), deadline=60)
    records = shipping.records()
    assert ledger.verify(records).is_complete
    partitions = defaultdict(set)
    for record in records:
        partitions[origin(record)[0]].add(record.partition)
    assert {len(numbers) for numbers in partitions.values()} == {1}
    assert len(set.union(*partitions.values())) > 1


def test_a_lost_answer_makes_no_second_copy(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, ledger: Ledger, logs_dir: Path
) -> None:
    bootstrap, proxy = proxied_broker.bootstrap, proxied_broker.proxy
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    writer = ledger.writer(logs_dir / "app")
    writer.write(1)
    shipping.start()
    shipping.records(until=1)
    proxy.drop_response(PRODUCE)
    writer.write(50)
    wait_until(lambda: proxy.dropped == 1, message="the answer is lost")
    shipping.records(until=ledger.all_arrived(), deadline=60)
    shipping.wait_caught_up()
    shipping.stop()
    assert ledger.verify(shipping.records())


def test_a_full_queue_pauses_reading_and_files_are_still_discovered(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, ledger: Ledger, logs_dir: Path
) -> None:
    bootstrap, proxy = proxied_broker.bootstrap, proxied_broker.proxy
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    writer = ledger.writer(logs_dir / "app")
    writer.write(1)
    shipping.start(kafka={"client": {"queue.buffering.max.messages": 100}})
    shipping.records(until=1)
    proxy.pause()
    writer.write_block(3000)
    wait_until(lambda: shipping.status.lag.bytes > 0, message="the agent sees it")
    known = shipping.status.lag.known_files
    ledger.writer(logs_dir / "late").write(10)
    wait_until(lambda: shipping.status.lag.known_files > known, message=lambda: f"the new file shows: {shipping.status}")
    proxy.forward()
    shipping.records(until=ledger.all_arrived(), deadline=60)
    shipping.stop()
    assert ledger.verify(shipping.records())


def test_a_stop_without_a_broker_ends_in_time_and_the_next_start_sends_the_rest(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, ledger: Ledger, logs_dir: Path
) -> None:
    bootstrap, proxy = proxied_broker.bootstrap, proxied_broker.proxy
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    writer = ledger.writer(logs_dir / "app")
    writer.write(1)
    shipping.start(kafka={"client": {"message.timeout.ms": 300_000}})
    shipping.records(until=1)
    proxy.blackhole()
    writer.write(100)
    wait_until(lambda: shipping.status.lag.bytes > 0, message="the agent sees it")
    stopper = threading.Thread(target=shipping.stop, args=(3,))
    stopper.start()
    stopper.join(50)  # less than any time-out towards Kafka
    assert not stopper.is_alive()
    proxy.reset()
    shipping.start()
    shipping.records(until=ledger.all_arrived(), deadline=60)
    assert ledger.verify(shipping.records()).is_complete


def test_a_stop_that_may_settle_ends_before_its_deadline_without_a_broker(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, logs_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap, proxy = proxied_broker.bootstrap, proxied_broker.proxy
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    append(logs_dir / "app", b"first\n")
    shipping.start()
    shipping.records(until=1)
    proxy.blackhole()
    append(logs_dir / "app", b"second\n")
    wait_until(lambda: shipping.status.lag.bytes > 0, message="the agent sees it")
    shipping.stop()
    assert "it will be sent again" not in caplog.text, "the task gives up by itself"
    assert SETTLE_SECONDS < STOP_SECONDS, "and before the agent's deadline"


def test_a_missing_topic_blocks_with_its_name_until_it_is_created(
    make_shipping: Callable[..., Shipping], broker: DevBroker, logs_dir: Path
) -> None:
    shipping = make_shipping(topic=unique_topic())
    append(logs_dir / "app", b"a\n")
    shipping.start(errors={"retry_max_delay": "1s"})
    reason = wait_state(shipping, "blocked")
    assert shipping.topic in reason
    assert "does not exist" in reason
    create_topic(broker.bootstrap, shipping.topic)
    assert shipping.lines(until=1) == ["a"]
    wait_state(shipping, "running")


def test_a_topic_deleted_under_way_blocks_and_nothing_is_lost(shipping: Shipping, broker: DevBroker, logs_dir: Path) -> None:
    append(logs_dir / "app", b"a\n")
    shipping.start(kafka=IMPATIENT | {"client": {**IMPATIENT["client"], "topic.metadata.propagation.max.ms": 500}})
    shipping.records(until=1)
    wait_until(lambda: shipping.status.counts.acknowledged == 1, message=lambda: f"{shipping.status}")
    delete_topic(broker.bootstrap, shipping.topic)

    def is_in_trouble() -> bool:
        append(logs_dir / "app", b"b\n")  # the broker says that the topic is gone before it takes nothing for it any more
        return shipping.status.state in {"blocked", "retrying"}

    wait_until(is_in_trouble, message=lambda: f"{shipping.status}")
    create_topic(broker.bootstrap, shipping.topic)
    assert shipping.lines(until=1, deadline=60)[0] == "b"


def test_create_topics_makes_a_missing_topic_as_asked(make_shipping: Callable[..., Shipping], broker: DevBroker, logs_dir: Path) -> None:
    shipping = make_shipping(topic=unique_topic())
    append(logs_dir / "app", b"a\n")
    shipping.start(kafka={"create_topics": {"partitions": 3, "replication_factor": 1, "config": {"retention.ms": 123_456_789}}})
    assert shipping.lines(until=1) == ["a"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.list_topics(shipping.topic, timeout=60).topics[shipping.topic].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, shipping.topic)
    assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "123456789"


def test_a_topic_that_takes_nothing_holds_its_own_connector_only(
    make_shipping: Callable[..., Shipping], broker: DevBroker, ledger: Ledger, logs_dir: Path
) -> None:
    closed, open_ = make_shipping("closed", topic=unique_topic()), make_shipping("open")
    writer = ledger.writer(logs_dir / "app")
    writer.write(300)
    closed.start(errors={"retry_max_delay": "1s"})
    open_.start()
    open_.records(until=300)
    wait_state(closed, "blocked")
    writer.write(300)
    open_.records(until=600)
    assert {offset.position for offset in closed.offsets.values()} <= {0}
    create_topic(broker.bootstrap, closed.topic)
    for one in (closed, open_):
        one.records(until=600)
        one.wait_caught_up()
        assert ledger.verify(one.records())


def test_a_missing_topic_of_one_file_does_not_hold_up_the_other_files_of_its_connector(
    make_shipping: Callable[..., Shipping], broker: DevBroker, logs_dir: Path
) -> None:
    prefix = unique_topic()
    shipping = make_shipping(topic=prefix + ".{@file.name}")
    present = create_topic(broker.bootstrap, f"{prefix}.present")
    append(logs_dir / "missing", b"m\n")
    append(logs_dir / "present", b"present\n")
    shipping.start(delivery={"tasks_max": 1})
    assert values(broker.bootstrap, present, 1) == [b"present"]
    assert f"{prefix}.missing" in wait_state(shipping, "blocked")
    append(logs_dir / "present", b"more\n")
    assert values(broker.bootstrap, present, 2) == [b"present", b"more"]
    assert shipping.status.state == "blocked"
    create_topic(broker.bootstrap, f"{prefix}.missing")
    assert values(broker.bootstrap, f"{prefix}.missing", 1) == [b"m"]
    wait_state(shipping, "running")


def test_what_went_before_a_record_with_a_missing_topic_is_not_sent_again_at_every_try(
    make_shipping: Callable[..., Shipping], broker: DevBroker, make_topic: Callable[..., str], logs_dir: Path
) -> None:
    shipping, dlq = make_shipping(), unique_topic()
    append(logs_dir / "app", b"good\n" + b"x" * 20 + b"\nlast\n")
    shipping.start(
        source={"line": {"max_bytes": "10B"}},
        errors={"tolerance": "all", "dlq": {"topic": dlq}, "retry_max_delay": "200ms"},
    )
    wait_until(lambda: shipping.status.retries >= 2, message="it tries again")
    create_topic(broker.bootstrap, dlq)
    shipping.records(until=2)
    shipping.stop()
    assert shipping.lines() == ["good", "last"]
    assert values(broker.bootstrap, dlq) == [b"x" * 10]


def test_connectors_that_wait_for_a_dead_broker_hold_up_nobody(
    make_shipping: Callable[..., Shipping], ledger: Ledger, logs_dir: Path
) -> None:
    stuck = [make_shipping(f"stuck-{number}", bootstrap=f"127.0.0.1:{free_port()}", topic="t") for number in range(4)]
    ledger.writer(logs_dir / "app").write(10)
    for one in stuck:
        one.start()
    flowing = make_shipping("flowing").start()
    assert ledger.verify(flowing.records(until=10))
    for one in stuck:
        reason = wait_state(one, "retrying")
        assert one.bootstrap in reason
        assert "Connection refused" in reason
