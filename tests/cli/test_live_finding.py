"""A command finds the agent where the agent chooses to listen, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from copycat_agent.api.sockets import listen_unix
from copycat_agent.cli import client
from copycat_agent.cli.client import find_agent


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Every place an agent can be at, with nobody there: set in the environment, or named by an option."""
    found = {name: tmp_path / name / "agent.sock" for name in ("run", "state", "service", "other", "home/.local/state/copycat")}
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setattr(client, "SERVICE_SOCKET", found["service"])
    return found


def found(socket: Path | None = None, state_dir: Path | None = None, config: Path | None = None) -> Path:
    return find_agent(socket, state_dir, config).socket_path


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


def test_what_is_named_is_meant_even_if_another_agent_answers(places: dict[str, Path], tmp_path: Path) -> None:
    service = listen_unix(places["service"])
    config = tmp_path / "agent.yaml"
    config.write_text(f"api: {{socket: {places['other']}}}\n")
    assert found(socket=places["other"]) == places["other"]
    assert found(state_dir=places["other"].parent) == places["other"]
    assert found(config=config) == places["other"]
    config.write_text(f"state_dir: {places['other'].parent}\n")
    assert found(config=config) == places["other"]
    service.close()


def test_a_user_without_a_service_has_it_at_home(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    monkeypatch.delenv("STATE_DIRECTORY")
    assert found() == places["home/.local/state/copycat"]
