"""`copycat health`: what probes run. It says what `/livez` and `/readyz` say, and costs next to nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from typer.testing import CliRunner

from copycat_agent import probe
from copycat_agent.api.port_access import logins
from copycat_agent.api.server import ApiServer
from copycat_agent.cli.main import app
from copycat_agent.metrics import PATHS, health_app
from copycat_agent.worker import State, Status
from tests.unit.metrics.doubles import FakeAgent, behind, running

if TYPE_CHECKING:
    from copycat_agent.control import Control
    from tests.cli.conftest import Done


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "agent.sock"


Serve = Callable[..., FakeAgent]


@pytest.fixture
def serve(path: Path) -> Iterator[Serve]:
    """`serve(status, ...)` has an agent with these connectors answer at `path`."""
    servers: list[ApiServer] = []

    def start(*statuses: Status) -> FakeAgent:
        agent = FakeAgent(*statuses)
        application = health_app(agent.control)
        servers.append(ApiServer(cast("Control", agent), path, None, lambda: dict.fromkeys(PATHS, application)))
        servers[0].start()
        return agent

    yield start
    for server in servers:
        server.close()


@pytest.fixture(params=["quick", "whole"])
def health(request: pytest.FixtureRequest, path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """`health("--live")`: exit code and output, both of the short way and of the one through the whole command line."""

    def call(*arguments: str) -> tuple[int, str]:
        options = [*arguments, "--socket", str(path)]
        code = probe.quick(options) if request.param == "quick" else CliRunner().invoke(app, ["health", *options]).exit_code
        assert code is not None
        return code, capfd.readouterr().out

    return call


def test_an_agent_at_work_is_alive_and_ready_though_nothing_can_be_delivered(serve: Serve, health: Callable[..., tuple[int, str]]) -> None:
    """A probe that fails in an outage of Kafka would restart the agent, which helps nobody."""
    serve(behind(since=0.0, state=State.RETRYING), running("bad", state=State.FAILED, reason="boom"))
    assert health() == health("--ready") == (0, "ready\n")
    assert health("--live") == (0, "alive\n")


def test_one_that_starts_is_alive_and_not_ready_and_says_why(serve: Serve, health: Callable[..., tuple[int, str]]) -> None:
    serve(Status("nginx"))
    assert health("--live") == (0, "alive\n")
    assert health() == (1, "not ready: nginx: it has not looked at its files yet\n")


def test_one_whose_store_hangs_is_not_alive_and_one_with_a_connector_that_hangs_is(
    serve: Serve, health: Callable[..., tuple[int, str]]
) -> None:
    agent = serve(running("a"), running("b"))
    agent.now = replace(agent.now, stuck=("a",))
    assert health("--live") == (0, "alive\n")
    agent.now = replace(agent.now, hangs=True)
    assert health("--live") == (1, "not alive: what all connectors need does not answer\n")


def test_no_agent_is_neither(path: Path, health: Callable[..., tuple[int, str]]) -> None:
    assert health() == (1, f"not ready: no agent answers at {path}: No such file or directory\n")
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert health("--live") == (1, f"not alive: no agent answers at {path}: Connection refused\n")


def test_one_that_hangs_is_told_within_seconds(path: Path, health: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe.ANSWER_SECONDS <= 5
    monkeypatch.setattr(probe, "ANSWER_SECONDS", 0.3)
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen(1)
        assert health() == (1, f"not ready: the agent did not answer within 0 s at {path}\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "the answer was none"),
        (b"HTTP/1.1 404 Not Found\r\n\r\nhello", "the answer was 404 Not Found"),
        (b'HTTP/1.1 503 No\r\n\r\n{"error": "not now\\u001b[2J"}', "not now\\x1b[2J"),
        (b'HTTP/1.1 503 No\r\n\r\n{"troubles": 5}', "the answer was 503 No"),
        (b"HTTP/1.1 503 No\r\n\r\n[]", "the answer was 503 No"),
    ],
)
def test_whatever_answers_there_is_no_agent_unless_it_says_so(
    path: Path, capfd: pytest.CaptureFixture[str], answer: bytes, words: str
) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen(1)

        def reply() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        assert probe.quick(["--socket", str(path)]) == 1
        thread.join()
    assert words in capfd.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["--config", "x"], ["--live", "--ready"], ["--socket"], ["--oops"], ["x"]])
def test_what_the_short_way_does_not_know_is_left_to_the_whole_command_line(arguments: list[str]) -> None:
    assert probe.quick(arguments) is None


def test_two_questions_at_once_are_a_mistake(copycat: Callable[..., Done]) -> None:
    done = copycat("health", "--live", "--ready")
    assert done.returncode == 2
    assert "one of them" in done.stderr


def test_a_probe_imports_next_to_nothing(path: Path) -> None:
    """Every library counts: this runs every few seconds for as long as the agent does."""
    code = "import sys; from copycat_agent.__main__ import main\ntry:\n main()\nexcept SystemExit as e: print(e.code, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "health", "--socket", str(path)], capture_output=True, text=True, check=True)
    ended, *modules = done.stdout.splitlines()[-1].split()
    assert ended == "1"
    assert not {"typer", "pydantic", "yaml", "http.client", "pathlib", "logging", "asyncio", "ssl", "copycat_agent.errors"} & set(modules)


def test_its_default_places_are_those_of_all_commands(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/r:/other")
    monkeypatch.setenv("STATE_DIRECTORY", "/s")
    assert probe.default_places() == ["/r/agent.sock", "/s/agent.sock", "/run/copycat/agent.sock"]
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert probe.default_places() == [f"{tmp_path}/.local/state/copycat/agent.sock", "/run/copycat/agent.sock"]


def test_a_line_for_the_file_of_users_is_made_without_the_password_on_a_command_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["passwd", "prometheus"], input="s3cret\n")
    assert done.exit_code == 0
    (tmp_path / "users").write_text(done.stdout)
    known = logins(str(tmp_path / "users"))()
    assert known.role_of("Basic cHJvbWV0aGV1czpzM2NyZXQ=")
    assert "s3cret" not in done.stdout
    assert known.role_of("Basic cHJvbWV0aGV1czpzM2NyZXQ=") == "view"
    operating = CliRunner().invoke(app, ["passwd", "prometheus", "--role", "operate"], input="s3cret\n")
    (tmp_path / "users").write_text(operating.stdout)
    assert logins(str(tmp_path / "users"))().role_of("Basic cHJvbWV0aGV1czpzM2NyZXQ=") == "operate"
    assert CliRunner().invoke(app, ["passwd", "prometheus", "--role", "everything"], input="s3cret\n").exit_code == 2
    assert CliRunner().invoke(app, ["passwd", "prometheus"], input="\n").exit_code == 2
    assert "without blanks and colons" in str(CliRunner().invoke(app, ["passwd", "a:b"], input="x\n").exception)
