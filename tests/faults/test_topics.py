"""The topic changes under the agent, or refuses a record: the whole path, from the command to what `copycat` shows afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions

from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import ProxiedBroker
    from tests.faults.scene import Scene

pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""
QUICK = {"client": {"topic.metadata.refresh.interval.ms": 500, "compression.type": "none"}}
BIG = b"x" * 5000


def test_timestamps_that_the_topic_refuses_are_the_clocks_fault_and_block(scene: Scene, proxied_broker: ProxiedBroker) -> None:
    """Stands for a host whose clock is an hour ahead, or a topic that takes nothing so old: no record is given up for it."""
    topic = create_topic(scene.bootstrap, unique_topic(), config={"message.timestamp.before.max.ms": "1"})
    log = scene.logs / "stamped"
    log.write_bytes(b"".join(b"%d\n" % number for number in range(10)))
    definition = {
        "source": {"type": "log_file", "include": [str(log)]}, "record": {"topic": topic},
        "errors": {"tolerance": "all", "retry_max_delay": "1s"},
    }  # fmt: skip
    proxied_broker.proxy.delay(0.05)  # so that every record is older than the topic takes
    scene.agent.define("stamped", definition)
    blocked = wait_until(lambda: [one for one in scene.events() if one.get("connector") == "stamped" and "retry_s" in one], 60)
    proxied_broker.proxy.forward()
    assert "set the clock of this host right" in blocked[0]["hint"]
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    entry = ConfigEntry("message.timestamp.before.max.ms", "100000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    arrived = consume(scene.bootstrap, topic, until=10, deadline=60)
    assert len({record.value for record in arrived}) == 10
    assert scene.ask("/v1/connectors/stamped")["losses"] == {}
    scene.agent.undefine("stamped")


def test_a_topic_that_gets_more_partitions_keeps_every_file_in_order(scene: Scene) -> None:
    """One broker has one leader for everything; a change of leaders cannot be had here."""
    writers = [scene.writer(f"file-{number}.log") for number in range(12)]
    for writer in writers:
        writer.write(50)
    scene.define(kafka=QUICK, record={"key": "{@file.name}"})
    scene.wait_arrived()
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})  # a name: a client that is collected ends its calls
    admin.create_partitions([NewPartitions(scene.topic, 4)])[scene.topic].result(30)

    scene.partitions = 4

    def spread() -> int:
        for writer in writers:
            writer.write(10)
        scene.wait_arrived()
        return len({record.partition for record in consume(scene.bootstrap, scene.topic)}) - 1

    wait_until(spread, 60, "the new partitions are used")
    verdict = scene.verdict()
    assert verdict, verdict


def test_a_record_over_the_brokers_limit_is_dead_lettered_and_shown_and_the_rest_flows(scene: Scene) -> None:
    small = create_topic(scene.bootstrap, unique_topic(), config={"max.message.bytes": "3000"})
    letters = create_topic(scene.bootstrap, unique_topic())
    log = scene.logs / "refused"
    log.write_bytes(b"before\n" + BIG + b"\nafter\n")
    definition = {
        "source": {"type": "log_file", "include": [str(log)]}, "record": {"topic": small}, "kafka": QUICK,
        "errors": {"tolerance": "all", "dlq": {"topic": letters}},
    }  # fmt: skip
    scene.agent.define("refused", definition)
    (letter,) = consume(scene.bootstrap, letters, until=1, deadline=60)
    assert letter.value == BIG
    headers = {name: (value or b"").decode() for name, value in letter.headers}
    assert {name: headers[name] for name in ("copycat.file", "copycat.offset", "copycat.length", "copycat.stage")} == {
        "copycat.file": str(log), "copycat.offset": "7", "copycat.length": "5001", "copycat.stage": "send",
    }  # fmt: skip

    def account() -> tuple[str, int, int]:
        status = scene.ask("/v1/connectors/refused")
        return status["state"], status["counts"]["dead_lettered"], status["counts"]["acknowledged"]

    wait_until(lambda: account() == ("running", 1, 2), 60, lambda: f"it is not counted: {account()}")
    assert [record.value for record in consume(scene.bootstrap, small)][-2:] == [b"before", b"after"]
    assert scene.ask("/v1/connectors/refused")["losses"] == {}
    shown = subprocess.run(
        [sys.executable, "-m", "copycat_agent", "dlq", "show", str(scene.agent.connectors_dir), "refused", "--format", "json",
         "--bootstrap-servers", scene.bootstrap],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "5001" in json.dumps(json.loads(shown.stdout)) or str(log) in shown.stdout
