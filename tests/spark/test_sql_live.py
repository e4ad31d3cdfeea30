"""The real command with a query: live and to the end, through reloads and kills."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


def _definition(logs: Path, topic: str, query: str = "", names: str = "*.log") -> dict[str, Any]:
    steps = [{"sql": query}] if query else []
    return {"source": {"type": "log_file", "include": [f"{logs}/{names}"]}, "transforms": steps, "record": {"topic": topic}}


def _append(path: Path, begin: int, end: int) -> None:
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in range(begin, end))


def _numbers(broker: DevBroker, topic: str, until: int) -> list[int]:
    return [json.loads(record.value or b"")["n"] for record in consume(broker.bootstrap, topic, until=until, deadline=90)]


def test_a_live_query_survives_kill_9_of_the_agent_and_a_reload_that_takes_it_away(
    agent: AgentProcess, broker: DevBroker, tmp_path: Path, make_topic: Callable[..., str]
) -> None:
    topic, logs = make_topic(), tmp_path / "logs"
    logs.mkdir()
    log = logs / "app.log"
    agent.define("app", _definition(logs, topic, "SELECT CAST(message AS INT) AS n FROM records WHERE message % 2 = 0"))
    agent.define("refused", _definition(logs, make_topic(), "SELECT count(*) AS c FROM records"))
    agent.start()
    _append(log, 0, 1000)
    assert sorted(set(_numbers(broker, topic, 500))) == list(range(0, 1000, 2))
    wait_until(lambda: "it groups records" in agent.log, 60, "the other connector says why its query is refused")
    _append(log, 1000, 50_000)
    agent.kill()
    _append(log, 50_000, 60_000)
    agent.start()
    wait_until(lambda: set(_numbers(broker, topic, 30_000)) == set(range(0, 60_000, 2)), 90, "everything has arrived")
    agent.define("app", _definition(logs, topic))
    wait_until(lambda: "app (transforms)" in agent.log or "changed" in agent.log, 60, "the reload")
    log.write_text(log.read_text() + "plain\n")
    wait_until(lambda: any(record.value == b"plain" for record in consume(broker.bootstrap, topic)), 60, "the line goes as it is")


def test_connectors_of_a_silent_broker_leave_the_others_their_turns(
    agent: AgentProcess, broker: DevBroker, tmp_path: Path, make_topic: Callable[..., str]
) -> None:
    """Each of theirs holds a job for 30 s and more: with eight of them, 20 batches used to take eight minutes."""
    topic, logs = make_topic(), tmp_path / "logs"
    logs.mkdir()
    query = "SELECT CAST(message AS INT) AS n FROM records"
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        for number in range(8):
            _append(logs / f"dead-{number}", 0, 1000)
            servers = [f"127.0.0.1:{silent.getsockname()[1]}"]
            agent.define(f"dead-{number}", {**_definition(logs, topic, query, f"dead-{number}"), "kafka": {"bootstrap_servers": servers}})
        agent.define("well", _definition(logs, topic, query))
        agent.start()
        for number in range(20):
            _append(logs / "app.log", number, number + 1)
            assert _numbers(broker, topic, number + 1) == list(range(number + 1))
        agent.stop()


def test_a_run_to_the_end_takes_a_query_along(
    agent: AgentProcess, broker: DevBroker, tmp_path: Path, make_topic: Callable[..., str]
) -> None:
    topic, logs = make_topic(), tmp_path / "logs"
    logs.mkdir()
    _append(logs / "app.log", 0, 5000)
    agent.define("app", _definition(logs, topic, "SELECT CAST(message AS INT) AS n FROM records WHERE message >= 10"))
    agent.start("--until-idle")
    assert agent.wait(120) == 0
    assert _numbers(broker, topic, 4990) == list(range(10, 5000))
