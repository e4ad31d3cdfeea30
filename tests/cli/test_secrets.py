"""Passwords stay where they belong: in the definitions' sources and in librdkafka's memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from tests.rig.agent import AgentProcess

IN_ENVIRONMENT = "canary-in-the-environment"
IN_FILE = "canary-in-a-file"


@pytest.fixture
def guarded_agent(agent: AgentProcess, tmp_path: Path) -> AgentProcess:
    """Runs two connectors with passwords against a broker that does not speak SASL: they fail, which is when things are told."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("a line\n")
    (tmp_path / "password").write_text(f"{IN_FILE}\n")
    for name, reference in (("by-env", "${env:KAFKA_PASSWORD}"), ("by-file", f"${{file:{tmp_path}/password}}")):
        security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "copycat", "password": reference}
        source = {"type": "log_file", "include": [f"{tmp_path}/logs/*.log"]}
        agent.define(name, {"source": source, "record": {"topic": "t"}, "kafka": {"security": security}})
    return agent.start("--verbose", env={"KAFKA_PASSWORD": IN_ENVIRONMENT})


def _leaks(agent: AgentProcess) -> list[str]:
    """Every place where a password shows."""
    pids = [process.pid for process in agent.descendants()]
    places = [Path(f"/proc/{pid}/cmdline") for pid in [agent.pid, *pids]] + [Path(f"/proc/{pid}/environ") for pid in pids]
    places += [agent.log_path, agent.stdout_path, *(path for path in agent.state_dir.rglob("*") if path.is_file())]
    return [str(place) for place in places if any(secret in _content(place) for secret in (IN_ENVIRONMENT.encode(), IN_FILE.encode()))]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # a process that ended, a file that was temporary
        return b""


def test_no_password_in_logs_command_lines_environments_or_state(guarded_agent: AgentProcess) -> None:
    told = [f'"event": "connector backs off", "connector": "{name}"' for name in ("by-env", "by-file")]
    wait_until(lambda: all(event in guarded_agent.log for event in told), 90, lambda: guarded_agent.log[-3000:])
    assert len(guarded_agent.descendants()) >= 3, "JVM, daemon and a worker are there to be looked at"
    assert _leaks(guarded_agent) == []
    guarded_agent.stop()
    assert _leaks(guarded_agent) == []


def test_the_search_finds_what_it_looks_for(guarded_agent: AgentProcess) -> None:
    wait_until(guarded_agent.state_dir.exists, 30, "the state directory is there")
    planted = guarded_agent.state_dir / "planted"
    planted.write_text(f"x{IN_FILE}x")
    assert str(planted) in _leaks(guarded_agent)  # beside a child between its fork and its exec, perhaps: that is still the agent
