"""Records over the limits, end to end: a long stack trace stops nothing, and a kill within a huge record costs no part of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from copycat_agent.failpoints import VARIABLE
from tests.faults.scene import Scene
from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.kafka import Consumed

pytestmark = pytest.mark.timeout(300)

FRAMES = 1024
TRACE = "2026-11-23 ERROR x failed\njava.lang.StackOverflowError\n" + "\tat com.example.App.recurse(App.java:42)\n" * FRAMES
LINES = 60_000


def header(record: Consumed, name: str) -> str:
    return (dict(record.headers).get(name) or b"").decode()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_stack_trace_of_a_thousand_frames_arrives_with_default_settings(scene: Scene, guarantee: str) -> None:
    scene.agent.undefine(scene.name)
    scene.name, topic, log = f"trace-{guarantee.replace('_', '-')}", create_topic(scene.bootstrap, unique_topic()), scene.logs / "trace"
    log.write_text(f"2026-11-23 INFO before\n{TRACE}2026-11-23 INFO after\n2026-11-23 INFO last\n")
    source = {"type": "log_file", "include": [str(log)], "multiline": {"preset": "java"}}
    scene.agent.define(scene.name, {"source": source, "record": {"topic": topic}, "delivery": {"guarantee": guarantee}})
    records = consume(scene.bootstrap, topic, "read_committed", until=6, deadline=90)
    first, *parts, after, last = [(record.value or b"").decode() for record in records]
    assert (first, after, last) == ("2026-11-23 INFO before", "2026-11-23 INFO after", "2026-11-23 INFO last")
    assert "".join(parts) == TRACE[:-1]
    assert [header(record, "copycat.part") for record in records] == ["", "1", "2", "3", "", ""]
    assert [header(record, "copycat.parts") for record in records] == ["", "", "", "3", "", ""]
    scene.settle()
    assert (scene.state, scene.status["counts"]["read"], scene.status["counts"]["too_long"]) == ("running", 6, 1)


@pytest.mark.long
def test_a_kill_within_a_huge_record_leaves_each_part_there_once_and_numbered_without_a_gap(tmp_path: Path, broker: DevBroker) -> None:
    text = "request-7 begins\n" + "".join(f" {number:07} {'x' * 90}\n" for number in range(LINES))
    scene = Scene(
        tmp_path, broker.bootstrap,
        source={"multiline": {"preset": "indented"}},
        transforms=[{"regex": r"(?s)^(?P<id>\S+) (?P<text>.*)"}],
        record={"key": "{id}"},
        delivery={"guarantee": "exactly_once", "max_batch_bytes": "256KiB"},
        limits={"bytes_per_second": "2MiB"},
    )  # fmt: skip
    with scene:
        (scene.logs / "app.log").write_text(text + "request-8 is short\n")
        for goal, failpoint in ((5, "committed:3:kill"), (30, ""), (60, "positions-sent:2:kill"), (80, "")):
            scene.agent.start(env={VARIABLE: failpoint})
            consume(broker.bootstrap, scene.topic, "read_committed", until=goal, deadline=120)
            scene.agent.kill()
        scene.agent.start(env={VARIABLE: ""})
        parts = -(-(LINES + 1) // 500)
        records = consume(broker.bootstrap, scene.topic, "read_committed", until=parts + 1, deadline=120)
        wait_until(lambda: scene.state == "running", 60, "the connector")
        scene.settle()
        assert len(consume(broker.bootstrap, scene.topic, "read_committed")) == len(records) == parts + 1
    *pieces, short = records
    assert [header(record, "copycat.part") for record in pieces] == [str(number) for number in range(1, parts + 1)]
    assert header(pieces[-1], "copycat.parts") == str(parts)
    assert {record.key for record in pieces} == {b"request-7"}
    assert "".join(json.loads(record.value or b"")["text"] for record in pieces) == text.removeprefix("request-7 ")[:-1]
    assert json.loads(short.value or b"") == {"id": "request-8", "text": "is short"}
