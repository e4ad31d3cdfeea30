"""Files in HDFS, whose NameNode is killed beside the agent."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sinks.file_names import parse_name
from tests.lake.conftest import as_json, definition_of, send
from tests.rig.hdfs import Hdfs
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hdfs_native import Client

    from tests.rig.agent import AgentProcess

SENDS = 60


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[Hdfs]:
    with Hdfs(tmp_path / "hdfs") as one:
        yield one


@pytest.mark.timeout(600)
def test_each_record_is_in_one_file_though_agent_and_namenode_are_killed(
    agent: AgentProcess, hdfs: Hdfs, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    sink = {"path": "{@topic}/dt={@timestamp:%H:%M}", "roll": {"records": 40, "age": "300ms"}}
    agent.define("lake", definition_of("lake", [topic], f"{hdfs.url}/lake/", sink=sink, errors={"retry_max_delay": "500ms"}))
    sent = 0

    def more() -> None:
        """Send records, and wait until all are in files."""
        nonlocal sent
        send(agent.bootstrap, topic, as_json(({"n": number} for number in range(sent, sent + SENDS)), 2))
        sent += SENDS
        wait_until(lambda: len(rows(hdfs.client)) >= sent, 200, lambda: f"{sent}: {agent.log[-3000:]}")

    agent.start()
    more()
    hdfs.kill_namenode()
    agent.kill()
    hdfs.start_namenode()
    agent.start()
    more()
    agent.stop()
    assert sorted(rows(hdfs.client)) == list(range(sent))
    command = [sys.executable, "-m", "copycat_agent", "explain", f"{topic}/0@0", str(agent.connectors_dir)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert f"{hdfs.url}/lake/{topic}/dt=14%3A13/{topic}+0+" in told


def rows(client: Client) -> list[int]:
    """The numbers of all visible records; none while HDFS does not answer."""
    found: list[Any] = []
    try:
        for one in client.list_status("/lake", recursive=True):
            if not one.isdir and "/_copycat/" not in one.path:
                assert parse_name(one.path) is not None, one.path
                found += [json.loads(line)["n"] for line in client.read(one.path).read().splitlines()]
    except (OSError, RuntimeError):
        return []
    return found
