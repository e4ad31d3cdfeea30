"""Passwords stay where they belong: in the definitions' sources and in librdkafka's memory."""

from __future__ import annotations

import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.dev_broker import free_port
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Done
    from tests.rig.agent import AgentProcess

IN_ENVIRONMENT = "canary-in-the-environment"
IN_FILE = "canary-in-a-file"
OF_STORE = "canary-of-a-store"
"""In the environment of every process that reads objects, and nowhere else."""


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
    nobody = f"127.0.0.1:{free_port()}"
    uri = f"s3://bucket/?endpoint_override={nobody}&scheme=http&region=us-east-1"
    agent.define("objects", {"source": {"type": "objects", "uri": uri, "notify": {"sqs": "${env:QUEUE_URL}"}}, "record": {"topic": "t"}})
    login = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "reader"}
    far = {"bootstrap_servers": [nobody], "security": {**login, "password": f"${{file:{tmp_path}/password}}"}}
    near = {"security": {**login, "password": "${env:KAFKA_PASSWORD}"}}
    registry = {"url": f"http://{nobody}", "basic_auth": {"username": "reader", "password": "${env:KAFKA_PASSWORD}"}}
    lake = {"type": "files", "uri": f"s3://bucket/lake/?endpoint_override={nobody}&scheme=http&region=us-east-1"}
    read = {"value": {"type": "avro"}, "schema_registry": registry}
    agent.define("lake", {"source": {"type": "kafka", "topics": ["t"], "kafka": far}, "sink": lake, "converters": read, "kafka": near})
    environment = {"KAFKA_PASSWORD": IN_ENVIRONMENT, "QUEUE_URL": f"http://{nobody}/{IN_ENVIRONMENT}"}
    keys = {"AWS_ACCESS_KEY_ID": f"{OF_STORE}-id", "AWS_SECRET_ACCESS_KEY": f"{OF_STORE}-key", "AWS_SESSION_TOKEN": f"{OF_STORE}-token"}
    return agent.start("--verbose", env=environment | keys)


def _leaks(agent: AgentProcess) -> list[str]:
    """Every place where a password shows."""
    pids = [process.pid for process in agent.descendants()]
    places = [Path(f"/proc/{pid}/cmdline") for pid in [agent.pid, *pids]]
    places += [agent.log_path, agent.stdout_path, *(path for path in agent.state_dir.rglob("*") if path.is_file())]
    found = [str(place) for place in places if any(one in _content(place) for one in (IN_ENVIRONMENT, IN_FILE, OF_STORE))]
    environments = [Path(f"/proc/{pid}/environ") for pid in pids]
    return [*found, *(str(place) for place in environments if any(one in _content(place) for one in (IN_ENVIRONMENT, IN_FILE)))]


COMMANDS = {
    "status": ("--format", "json"), "describe": ("lake", "--format", "json"), "explain": ("t/0@1", "agent/connectors.d"),
    "try": ("-d", "agent/connectors.d/lake.yaml", "-v"), "bundle": ("--output", "bundle.tar.gz"),
}  # fmt: skip
"""What doctor and the metrics say is in the bundle."""


def _said(agent: AgentProcess, copycat: Callable[..., Done], command: str) -> str:
    """All that a command writes, with the secrets in its environment as the agent has them."""
    secrets = {"KAFKA_PASSWORD": IN_ENVIRONMENT, "QUEUE_URL": f"http://127.0.0.1:1/{IN_ENVIRONMENT}", "AWS_SECRET_ACCESS_KEY": OF_STORE}
    at_work = command in {"status", "describe", "bundle"}
    where = ("--state-dir", str(agent.state_dir)) if at_work else ()
    done = copycat(command, *COMMANDS[command], *where, env={**secrets, "AWS_ACCESS_KEY_ID": f"{OF_STORE}-id"})
    return done.stdout + done.stderr


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:  # a process that ended, a file that was temporary
        return ""


@pytest.mark.timeout(900)
def test_no_password_in_logs_command_lines_environments_answers_or_state(
    guarded_agent: AgentProcess, copycat: Callable[..., Done], tmp_path: Path
) -> None:
    told = [f'"event": "connector backs off", "connector": "{name}"' for name in ("by-env", "by-file", "objects", "lake")]
    wait_until(lambda: all(event in guarded_agent.log for event in told), 240, lambda: guarded_agent.log[-3000:])
    assert len(guarded_agent.descendants()) >= 3, "JVM, daemon and a worker are there to be looked at"
    assert _leaks(guarded_agent) == []
    with ThreadPoolExecutor(len(COMMANDS)) as pool:  # most of their time they wait for brokers
        said = dict(zip(COMMANDS, pool.map(lambda command: _said(guarded_agent, copycat, command), COMMANDS), strict=True))
    assert [command for command, words in said.items() if "lake" not in words] == ["try"], said
    assert [command for command, words in said.items() if any(one in words for one in (IN_ENVIRONMENT, IN_FILE, OF_STORE))] == []
    with tarfile.open(tmp_path / "bundle.tar.gz") as bundle:
        parts = {one.name: bundle.extractfile(one) for one in bundle if one.isfile()}
        texts = {name: file.read().decode("utf-8", "replace") for name, file in parts.items() if file is not None}
    assert "s3://bucket/lake/" in "".join(texts.values())
    assert [name for name, text in texts.items() if any(one in text for one in (IN_ENVIRONMENT, IN_FILE, OF_STORE))] == []
    guarded_agent.stop()
    assert _leaks(guarded_agent) == []
    planted = guarded_agent.state_dir / "planted"
    planted.write_text(f"x{IN_FILE}x")
    assert _leaks(guarded_agent) == [str(planted)], "what is there is found"
