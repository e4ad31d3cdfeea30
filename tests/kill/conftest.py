"""What kill tests work with: an agent with one connector, logs under load, a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kill.load import Load, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess
    from tests.rig.ledger import Ledger

TASKS = 2
BATCH_BYTES = 256 * 2**10
PARTITIONS = 2


@pytest.fixture
def target(broker: DevBroker, make_topic: Callable[..., str]) -> Iterator[Topic]:
    """The topic that the agent fills."""
    topic = Topic(broker.bootstrap, make_topic(PARTITIONS), PARTITIONS)
    yield topic
    topic.close()


@pytest.fixture
def logs_dir(tmp_path: Path) -> Path:
    """Where the logs are."""
    directory = tmp_path / "logs"
    directory.mkdir()
    return directory


@pytest.fixture
def loaded_agent(agent: AgentProcess, target: Topic, logs_dir: Path) -> AgentProcess:
    """An agent with one connector over `logs_dir`, not started."""
    agent.define("app", definition(logs_dir, target.name))
    return agent


@pytest.fixture
def load(logs_dir: Path, ledger: Ledger, seed: int) -> Load:
    """Not started."""
    return Load(logs_dir, ledger, seed)


def definition(logs_dir: Path, topic: str) -> dict[str, object]:
    """What the connector of these tests does."""
    return {
        "source": {"type": "log_file", "include": [f"{logs_dir}/*.log*"], "scan_interval": "500ms"},
        "record": {"topic": topic, "partition": "file"},
        "delivery": {"tasks_max": TASKS, "max_batch_bytes": f"{BATCH_BYTES // 2**10}KiB"},
    }
