"""A command finds the agent where the agent chooses to listen, and nobody else's."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent import api as api_client
from copycat_agent import probe
from copycat_agent.api.server import listen_unix
from copycat_agent.cli.agent_client import find_agent
from copycat_agent.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Every place an agent can be at, with nobody there: set in the environment, or named by an option."""
    found = {name: tmp_path / name / "agent.sock" for name in ("run", "state", "service", "other", "home/.local/state/copycat")}
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setattr(probe, "SERVICE_SOCKET", str(found["service"]))
    return found


def found(named: Path | None = None, state_dir: Path | None = None, config: Path | None = None) -> Path:
    return find_agent(named, state_dir, config).socket_path


def accepted(listener: socket.socket) -> Iterator[socket.socket]:
    """All who have connected so far."""
    with contextlib.suppress(BlockingIOError):
        while True:
            connection, _ = listener.accept()
            with connection:
                yield connection


@pytest.mark.parametrize("where", ["run", "state", "service"])
def test_wherever_one_listens_by_default(places: dict[str, Path], where: str) -> None:
    listener = listen_unix(places[where])
    assert found() == places[where]
    listener.close()
    assert found() == places["run"], "told as missing where it would be"


def test_a_dead_agents_socket_does_not_hide_a_living_agent(places: dict[str, Path]) -> None:
    dead = listen_unix(places["run"])
    dead.socket.close()
    living = listen_unix(places["service"])
    assert found() == places["service"]
    living.close()


def test_an_agent_whom_too_many_ask_is_still_the_one(places: dict[str, Path]) -> None:
    busy = listen_unix(places["run"])
    waiting: list[socket.socket] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            waiting[-1].connect(str(places["run"]))
    service = listen_unix(places["service"])
    assert found() == places["run"]
    for listener in (busy, service):
        listener.close()
    for one in waiting:
        one.close()


def test_an_agent_that_hangs_is_asked_for_no_change(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A change is given minutes; whether anybody is there shows at once."""
    monkeypatch.setattr(api_client, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(api_client, "CHANGE_SECONDS", 20.0)
    listener = listen_unix(places["run"])
    for command in (["pause", "app"], ["reload"]):
        done = CliRunner().invoke(app, ["ctl", *command])
        assert "did not answer within 0 s" in str(done.exception)
        assert [connection.recv(9) for connection in accepted(listener.socket)][-1] == b"HEAD /liv"
    listener.close()


def test_what_is_named_is_meant_even_if_another_agent_answers(places: dict[str, Path], tmp_path: Path) -> None:
    service = listen_unix(places["service"])
    config = tmp_path / "agent.yaml"
    config.write_text(f"api: {{socket: {places['other']}}}\n")
    assert found(places["other"]) == places["other"]
    assert found(state_dir=places["other"].parent) == places["other"]
    assert found(config=config) == places["other"]
    config.write_text(f"state_dir: {places['other'].parent}\n")
    assert found(config=config) == places["other"]
    service.close()


def test_a_user_without_a_service_has_it_at_home(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    monkeypatch.delenv("STATE_DIRECTORY")
    assert found() == places["home/.local/state/copycat"]
