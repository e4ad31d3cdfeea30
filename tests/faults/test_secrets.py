"""Passwords by every way a definition offers, against everything an operator or another user of the host can look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.api import AgentClient
from copycat_agent.dev_broker import free_port
from copycat_agent.errors import CopycatError
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

WAYS = ("env", "file", "cred", "literal", "agent-yaml", "objects", "journald", "jdbc")
"""How a definition comes by its password; the last three are sources with something of their own to hide."""
CANARY = "c4n4ry-Qx9"
OF_STORE = "c4n4ry-Zk3"
"""Credentials of the object store, which tasks find in their environment, and nobody elsewhere."""
COMMANDS = [
    ["check", "{dir}"], ["check", "{dir}", "--format", "json"], ["doctor", "{dir}"], ["doctor", "{dir}", "--format", "json"],
    ["plan", "{dir}"], ["plan", "{dir}", "--format", "json"], ["run", "{dir}", "--dry-run", "--until-idle"], ["schema"],
    ["status"], ["status", "--format", "json"], ["ls"], ["top", "--once"], ["describe", "by-{way}"],
    ["describe", "by-{way}", "--format", "json"],
    ["losses"], ["offsets", "list"], ["offsets", "show", "by-{way}"], ["offsets", "export", "by-{way}"],
    ["dlq", "ls", "{dir}"], ["dlq", "show", "{dir}", "by-{way}"], ["dlq", "replay", "{dir}", "by-{way}", "--dry-run"],
    ["ctl", "reload"], ["tap", "by-{way}", "--limit", "1", "--seconds", "1"], ["bundle", "--output", "{out}"],
]  # fmt: skip
ADDRESSES = ("/livez", "/readyz", "/healthz", "/metrics")


@pytest.mark.long
@pytest.mark.timeout(400)
def test_no_password_is_in_anything_that_can_be_looked_at(agent: AgentProcess, broker: DevBroker, tmp_path: Path) -> None:
    """The broker speaks no SASL: every connection fails, which is when things are told."""
    listen = f"127.0.0.1:{free_port()}"
    environment = arrange(agent, tmp_path, listen)
    agent.start("--verbose", env=environment)
    told = [f'"connector": "by-{way}", "why"' for way in WAYS]
    wait_until(lambda: all(text in agent.log for text in told), 90, lambda: agent.log[-3000:])
    seen = {"log": agent.log_path.read_bytes(), "stdout": agent.stdout_path.read_bytes()}
    for number, template in enumerate(COMMANDS):
        for way in WAYS if any("{way}" in word for word in template) else WAYS[:1]:
            words = [word.format(dir=agent.connectors_dir, way=way, out=tmp_path / f"bundle-{number}.tar") for word in template]
            seen[" ".join(template[:2]) + f" {way} {number}"] = run(words, agent, environment)
    seen |= {address: fetch(f"http://{listen}{address}") for address in ADDRESSES}
    seen |= {address: ask(agent, address) for address in ("/v1/agent", "/v1/connectors", *(f"/v1/connectors/by-{way}" for way in WAYS))}
    for process in agent.descendants():
        for part in ("cmdline", "environ"):
            with suppress(OSError):
                seen[f"{part} of {process.pid}"] = Path(f"/proc/{process.pid}/{part}").read_bytes()
    seen["command line"] = Path(f"/proc/{agent.pid}/cmdline").read_bytes()
    seen |= {str(path): path.read_bytes() for path in agent.state_dir.rglob("*") if path.is_file()}
    assert [where for where, content in seen.items() if CANARY.encode() in content] == []
    assert [where for where, content in seen.items() if OF_STORE.encode() in content and not where.startswith("environ of")] == []
    answered = [where for where, content in seen.items() if len(content) > 20]
    assert len(answered) > 40, f"most of it said something: {answered}"
    assert any(b"***" in content for content in seen.values()), "what is masked is shown as masked"
    agent.stop()


def arrange(agent: AgentProcess, root: Path, listen: str) -> dict[str, str]:
    """A connector for each way; returns the environment that it needs."""
    (root / "logs").mkdir()
    (root / "logs" / "a.log").write_text("a line\n")
    (root / "password").write_text(f"{CANARY}-file\n")
    (root / "credentials").mkdir()
    (root / "credentials" / "kafka").write_text(f"{CANARY}-cred\n")
    said = {
        "env": "${env:KAFKA_PASSWORD}", "file": f"${{file:{root}/password}}", "cred": "${cred:kafka}", "literal": f"{CANARY}-literal",
    }  # fmt: skip
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "copycat"}
    (agent.root / "agent.yaml").write_text(
        json.dumps({"api": {"listen": listen}, "kafka": {"security": {**security, "password": f"{CANARY}-agent"}}}), "utf-8"
    )
    nobody = f"127.0.0.1:{free_port()}"
    sources = {
        "objects": {
            "type": "objects",
            "uri": f"s3://bucket/?endpoint_override={nobody}&scheme=http&region=us-east-1",
            "notify": {"sqs": f"${{file:{root}/queue}}"},
        },
        "journald": {"type": "journald", "directory": str(root / "no-journal"), "match": ["TOKEN=${cred:token}"]},
        "jdbc": {
            "type": "jdbc",
            "url": f"jdbc:postgresql://{nobody}/shop",
            "user": "copycat",
            "password": "${cred:token}",
            "properties": {"sslpassword": f"{CANARY}-property"},
            "tables": ["*"],
            "mode": "bulk",
        },
    }
    of_store = {"AWS_ACCESS_KEY_ID": f"{OF_STORE}-id", "AWS_SECRET_ACCESS_KEY": f"{OF_STORE}-key", "AWS_SESSION_TOKEN": f"{OF_STORE}-token"}
    (root / "queue").write_text(f"http://{nobody}/{CANARY}-queue\n")
    (root / "credentials" / "token").write_text(f"{CANARY}-token\n")
    for way in WAYS:
        kafka = {"kafka": {"security": {**security, "password": said[way]}}} if way in said else {}
        source = sources.get(way, {"type": "log_file", "include": [f"{root}/logs/*.log"]})
        errors = {"tolerance": "all", "dlq": {"topic": "letters"}, **({"retry_timeout": "20s"} if way in sources else {})}
        agent.define(f"by-{way}", {"source": source, "record": {"topic": "t"}, "errors": errors, **kafka})
    return {
        "KAFKA_PASSWORD": f"{CANARY}-env",
        "CREDENTIALS_DIRECTORY": str(root / "credentials"),
        "COLUMNS": "200",
        **of_store,
    }


def run(words: list[str], agent: AgentProcess, environment: dict[str, str]) -> bytes:
    """What a command says, whatever its exit code. One that does not exist (yet) says nothing worth looking at."""
    local = ["--state-dir", str(agent.state_dir)] if words[0] not in {"check", "schema", "dlq", "run"} else []
    if words[0] == "run":
        local = ["--state-dir", str(agent.root / "dry")]
    done = subprocess.run(
        [sys.executable, "-m", "copycat_agent", *words, *local], env=os.environ | environment, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=90, check=False,
    )  # fmt: skip
    output = Path(words[-1]) if words[0] == "bundle" else None
    unpacked = b""
    if output is not None and output.exists():
        unpacked = subprocess.run(["tar", "-xOf", output], capture_output=True, check=True).stdout
    return done.stdout + done.stderr + unpacked


def fetch(address: str) -> bytes:
    """The body of an answer, of an error too."""
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - loopback
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        return error.read()


def ask(agent: AgentProcess, address: str) -> bytes:
    """What the socket answers."""
    try:
        return json.dumps(AgentClient(agent.state_dir / "agent.sock").get(address)).encode()
    except CopycatError as error:
        return str(error).encode()
