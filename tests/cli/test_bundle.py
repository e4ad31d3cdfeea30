"""`copycat bundle`: what a report needs, whatever is broken, and never a record or a secret."""

from __future__ import annotations

import json
import os
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent import bundle
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Done
    from tests.rig.agent import AgentProcess

CANARY = "c4n4ry"


def unpacked(path: Path) -> dict[str, str]:
    """Content by name, without the folder that all of it is in."""
    with tarfile.open(path) as archive:
        return {
            member.name.partition("/")[2]: file.read().decode() for member in archive.getmembers() if (file := archive.extractfile(member))
        }


def test_a_running_agent_is_described_without_its_records_and_secrets(
    agent: AgentProcess, topic: str, copycat: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/app.log").write_text(f'{{"id": "{CANARY}-key", "text": "{CANARY}-record"}}\n')
    (tmp_path / "secret").write_text(f"{CANARY}-file\n")
    agent.define(
        "app",
        {
            "source": {"type": "log_file", "include": [f"{tmp_path}/logs/*.log"]},
            "transforms": [{"json": {}}],
            "record": {"topic": topic, "key": "{id}", "headers": {"token": f"${{file:{tmp_path}/secret}}"}},
            "tests": [{"input": f"{CANARY}-sample", "expect": []}],
        },
    )
    agent.start()
    consume(agent.bootstrap, topic, until=1, deadline=180)
    wait_until(lambda: '"state": "running"' in agent.log, message=lambda: agent.log)
    wait_until((agent.state_dir / "agent.sock").exists)
    done = copycat("bundle", agent.connectors_dir, "--output", "b.tar.gz", "--state-dir", agent.state_dir)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b.tar.gz\n"
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    found = unpacked(tmp_path / "b.tar.gz")
    assert [name for name, content in found.items() if CANARY in content] == []
    assert json.loads(found["connectors.json"])["connectors"][0]["state"] == "running"
    assert json.loads(found["connectors/app.json"])["files"][0]["path"] == f"{tmp_path}/logs/app.log"
    assert json.loads(found["store.json"])["store"]["offsets"]["app"] == 1, "the file's"
    assert "copycat_" in found["metrics.txt"]
    assert "connector state connector=app state=running" in found["agent-log.txt"]
    assert str(agent.pid) in found["processes.txt"]
    assert {"versions.json", "doctor.json", "agent.json", "losses.json", "readyz.txt", "connectors.d/app.yaml"} <= found.keys()
    assert "the service's log: MISSING" in found["MANIFEST.txt"] or "log.txt" in found
    agent.stop()


def test_without_an_agent_and_with_everything_broken_the_rest_is_there(copycat: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "connectors.d").mkdir()
    (tmp_path / "connectors.d/a.yaml").write_text(
        f"name: [a  # {CANARY}\nkafka: {{security: {{password: {CANARY}-literal}}}}\nheaders: {{t: '${{cred:k}}'}}\n"
    )
    (tmp_path / "agent.yaml").write_text(f"kafka: {{bootstrap_servers: ['u:{CANARY}-login@127.0.0.1:1'], nonsense: 1}}\n")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials/k").write_text("no-canary")
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state/offsets.db").write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    done = copycat("bundle", "--output", "b.tar.gz", "--state-dir", "state", env={"CREDENTIALS_DIRECTORY": f"{tmp_path}/credentials"})
    assert done.returncode == 0, done.stderr
    found = unpacked(tmp_path / "b.tar.gz")
    assert [name for name, content in found.items() if CANARY in content] == []
    assert CANARY not in done.stderr
    assert "cannot be read" in json.loads(found["store.json"])["store"]
    assert "they do not load" in found["MANIFEST.txt"]
    assert "MISSING, no agent answers" in found["MANIFEST.txt"]
    assert "no records" in done.stderr.replace("Not in it: records", "no records")
    assert json.loads(found["versions.json"])["copycat"]
    assert "name: [a" in found["connectors.d/a.yaml"]


def test_nothing_is_overwritten_and_no_link_followed(quick: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("mine", "link", "no/such/directory"):
        done = quick("bundle", "--output", name)
        assert done.returncode == 1
        assert "cannot be made" in done.stderr
        assert "--output" in done.stderr
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_a_part_that_hangs_or_fails_is_named_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def slow() -> str:
        go_on.wait(60)
        return ""

    def fails() -> str:
        raise ZeroDivisionError("by nothing")

    with monkeypatch.context() as impatient:
        impatient.setattr(bundle, "PART_SECONDS", 0.05)
        hung = bundle.make_part("slow", "what hangs", slow)
    assert (hung.content, hung.why) == ("", "it was not had within 0 s")
    assert bundle.is_hanging()
    go_on.set()
    assert bundle.make_part("bad", "what fails", fails).why == "ZeroDivisionError: by nothing"
    assert bundle.make_part("good", "what works", lambda: "x").content == "x"
