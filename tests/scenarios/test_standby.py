"""Two agents with one agent_id: one runs, the other takes over with all that the first had saved, whatever became of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from copycat_agent.producer.state_topic import topic_of
from tests.rig.agent import AgentProcess
from tests.rig.kafka import consume, create_topic, unique_topic, wait_for_markers
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker

LINES = 1_000


class Two:
    """Both agents, a directory that both see, and a connector of each guarantee."""

    def __init__(self, make_agent: Callable[..., AgentProcess], bootstrap: str, shared: Path) -> None:
        self.bootstrap, self.shared, self.written = bootstrap, shared, 0
        self.agent_id = unique_topic("pair").replace(".", "-")
        self.topics = {guarantee: unique_topic(guarantee) for guarantee in ("at_least_once", "exactly_once")}
        shared.mkdir()
        self.agents = [make_agent(bootstrap, name) for name in ("one", "two")]
        for agent in self.agents:
            (agent.root / "agent.yaml").write_text(f"agent_id: {self.agent_id}\nkafka: {{create_topics: {{partitions: 1}}}}\n")
            for guarantee, topic in self.topics.items():
                source = {"type": "objects", "uri": shared.as_uri(), "min_age": "0s", "poll_interval": "200ms", "format": {"type": "lines"}}
                delivery = {"guarantee": guarantee, "positions": "kafka", "max_batch_bytes": "64KiB"}
                agent.define(guarantee.replace("_", "-"), {"source": source, "record": {"topic": topic}, "delivery": delivery})
            agent.define("here", {"source": {"type": "log_file", "include": ["/tmp/*.none"]}, "record": {"topic": "here"}})
            agent.define("idle", {"source": {**source, "pattern": "*.none"}, "record": {"topic": "idle"}})

    def write(self) -> None:
        """One more object."""
        lines = "".join(f"{number}\n" for number in range(self.written, self.written + LINES))
        self.written += LINES
        beside = self.shared.parent / "beside"
        beside.write_text(lines)
        beside.rename(self.shared / f"{self.written:08}.txt")

    def arrived(self, guarantee: str) -> Counter[bytes | None]:
        return Counter(record.value for record in consume(self.bootstrap, self.topics[guarantee], "read_committed"))

    def wait(self, least: int) -> None:
        """Until so many lines are there, with both guarantees."""
        for guarantee, topic in self.topics.items():
            consume(self.bootstrap, topic, "read_committed", least, 180)
            wait_until(lambda guarantee=guarantee: len(self.arrived(guarantee)) >= least, 180)  # type: ignore[misc]

    def check(self) -> None:
        """All are there, none lost; none twice with exactly_once."""
        self.wait(self.written)
        wait_for_markers(self.bootstrap, self.topics["exactly_once"])
        wanted = {b"%d" % number for number in range(self.written)}
        assert self.arrived("at_least_once").keys() == wanted
        assert self.arrived("exactly_once") == Counter(wanted)

    def states(self, agent: AgentProcess) -> dict[str, str]:
        """Those of its connectors, by name."""
        return {connector["name"]: connector["state"].lower() for connector in self.said(agent, "status")["connectors"]}

    def is_paused(self, agent: AgentProcess, name: str) -> bool:
        """Records of the others may arrive before this one has looked around."""
        return self.states(agent)[name] == "paused"

    def said(self, agent: AgentProcess, *command: str) -> Any:
        """What a command about a running agent prints, as JSON."""
        call = [sys.executable, "-m", "copycat_agent", *command, "--state-dir", str(agent.state_dir), "--format", "json"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def two(make_agent: Callable[..., AgentProcess], broker: DevBroker, tmp_path: Path) -> Two:
    return Two(make_agent, broker.bootstrap, tmp_path / "shared")


def stop_still(agent: AgentProcess) -> None:
    agent.signal(signal.SIGSTOP)


END = {"killed": AgentProcess.kill, "stopped": stop_still, "asked to end": AgentProcess.stop}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ways", [["stopped"], pytest.param(["killed", "stopped", "asked to end"], marks=pytest.mark.long)])
def test_another_agent_takes_over_from_one_that_was_killed_stopped_or_asked_to_end(two: Two, ways: list[str]) -> None:
    """One that stands still is the hardest of them: it wakes up, and was not told."""
    leading, other = two.agents
    leading.start()
    two.write()
    two.wait(1)
    other.start()
    assert two.said(leading, "ctl", "pause", "idle") is not None
    assert other.wait(180) == 1, "without --standby it ends while another one leads"
    assert "--standby" in other.log
    for way in ways:
        stood_by = other.log.count("stands by")
        other.start("--standby")
        wait_until(lambda: other.log.count("stands by") > stood_by, 180, lambda: other.log)  # noqa: B023 - called at once
        two.write()
        END[way](leading)
        two.write()
        two.check()
        leading, other = other, leading
        if way == ways[0]:
            wait_until(partial(two.is_paused, leading, "idle"), 180, "idle is paused")
            states = two.states(leading)
            assert leading.log.count("warning[path_on_cluster]") == len(two.topics) + 1, "each definition is told of once"
            assert "here" not in states, "what only one host can read is not run where another one may take over"
        if way == "stopped":
            other.signal(signal.SIGCONT)
            assert other.wait(180) == 75
            assert "taken over" in other.log
            assert "connector failed" not in other.log, "of what it is refused the agent says why"
    leading.stop()
    for agent in (leading, *([other] if ways[-1] == "asked to end" else ())):
        assert agent.log.rindex("leads no more") < agent.log.rindex("agent stopped"), "nobody waits for its JVM"
    with pytest.raises(AssertionError, match=two.agent_id):
        two.said(leading, "offsets", "show", "at-least-once")


def test_an_agent_that_is_asked_to_stop_before_it_has_its_state_ends_well(
    make_agent: Callable[..., AgentProcess], broker: DevBroker
) -> None:
    agent, agent_id = make_agent(broker.bootstrap), unique_topic("pair").replace(".", "-")
    topic = create_topic(broker.bootstrap, topic_of(agent_id), config={"cleanup.policy": "compact"})
    holder = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "transaction.timeout.ms": 600_000})
    holder.init_transactions(60)
    holder.begin_transaction()
    holder.produce(topic, b"value", b"key")
    assert holder.flush(60) == 0
    (agent.root / "agent.yaml").write_text(f"agent_id: {agent_id}\n")
    agent.define("app", {"source": {"type": "log_file", "include": ["/tmp/*.none"]}, "record": {"topic": "app"}})
    agent.start()
    wait_until(lambda: "leads from now on" in agent.log, 180, lambda: agent.log)
    agent.signal(signal.SIGTERM)
    assert agent.wait(180) == 0, agent.log
    holder.abort_transaction(60)
