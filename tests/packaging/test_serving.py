"""What `copycat run` tells the service manager, and when."""

from __future__ import annotations

import socket
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import typer

from copycat_agent.agent import AgentSettings
from copycat_agent.cli import run
from copycat_agent.cli.run import ServiceReporter
from copycat_agent.errors import RetriableError
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.producer.state_topic import StateTopic
from copycat_agent.systemd import ServiceManager
from copycat_agent.worker import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.agent import Agent
    from copycat_agent.cli.running import StopSignals


class Double:
    """The little of an agent that is looked at."""

    def __init__(self) -> None:
        self.age = 0.0
        self.is_started = True
        self.states = [State.RUNNING, State.RUNNING, State.BLOCKED]
        self.reloading = False
        self.worker = SimpleNamespace(started=lambda: self.is_started, states=lambda: Counter(self.states))

    def heartbeat(self) -> float:
        return self.age


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
        listener.bind(str(tmp_path / "notify"))
        yield listener


@pytest.fixture
def agent() -> Double:
    return Double()


@pytest.fixture
def service(listener: socket.socket, agent: Double) -> ServiceReporter:
    manager = ServiceManager({"NOTIFY_SOCKET": listener.getsockname(), "WATCHDOG_USEC": "20000"})  # 20 ms
    return ServiceReporter(manager, cast("Agent", agent))


def heard(listener: socket.socket) -> list[str]:
    """All lines since the last call."""
    lines: list[str] = []
    while True:
        try:
            lines += listener.recv(65536).decode().split("\n")
        except BlockingIOError:
            return lines


def test_ready_comes_once_when_every_connector_has_started(
    listener: socket.socket, agent: Double, service: ServiceReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "READY_SECONDS", 3600.0)
    agent.is_started = False
    service.tick()
    assert heard(listener) == ["STATUS=3 connectors: 1 blocked, 2 running", "WATCHDOG=1"]
    agent.is_started = True
    service.tick()
    service.tick()
    assert heard(listener).count("READY=1") == 1


def test_a_connector_that_cannot_start_does_not_hold_up_ready_for_ever(
    listener: socket.socket, agent: Double, service: ServiceReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.is_started = False
    monkeypatch.setattr(run, "READY_SECONDS", -1.0)
    service.tick()
    assert "READY=1" in heard(listener)


def test_the_watchdog_hears_of_a_pipeline_that_moves_and_not_of_one_that_hangs(
    listener: socket.socket, agent: Double, service: ServiceReporter
) -> None:
    service.tick()
    assert "WATCHDOG=1" in heard(listener)
    agent.age = 5.0
    time.sleep(0.02)
    service.tick()
    assert "WATCHDOG=1" not in heard(listener)
    agent.age = 0.0
    service.tick()
    assert "WATCHDOG=1" in heard(listener)


@pytest.mark.parametrize(("up_seconds", "count"), [(3600.0, 0), (-1.0, 1)])
def test_an_agent_whose_state_is_in_a_kafka_that_is_away_is_ready_after_a_while_all_the_same(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up_seconds: float, count: int
) -> None:
    monkeypatch.setattr(run, "UP_SECONDS", up_seconds)
    attempts, stop = iter(range(2)), SimpleNamespace(asked=False)

    def is_away(_: StateTopic) -> None:
        stop.asked = next(attempts) == 1
        raise RetriableError("Connection refused")

    monkeypatch.setattr(StateTopic, "ensure", is_away)
    settings = AgentSettings(AgentOptions(agent_id="lake", kafka=KafkaOptions(bootstrap_servers=("127.0.0.1:1",))), tmp_path)
    manager = ServiceManager({"NOTIFY_SOCKET": listener.getsockname()})
    with pytest.raises(typer.Exit), run.led(settings, cast("StopSignals", stop), manager, stands_by=False, until_idle=False):
        pytest.fail("it does not lead")
    lines = heard(listener)
    assert lines.count("READY=1") == count
    assert "STATUS=waits for Kafka: Connection refused" in lines


def test_a_reload_ends_when_the_definitions_were_read(listener: socket.socket, agent: Double, service: ServiceReporter) -> None:
    service.tick()
    heard(listener)
    service.reloading()
    agent.reloading = True
    service.tick()
    lines = heard(listener)
    assert "RELOADING=1" in lines
    assert "READY=1" not in lines
    agent.reloading = False
    service.tick()
    assert "READY=1" in heard(listener)


def test_a_stop_is_told(listener: socket.socket, service: ServiceReporter) -> None:
    service.stopping()
    assert heard(listener) == ["STOPPING=1", "STATUS=settles what is in flight"]


def test_without_a_service_manager_the_agent_is_not_even_asked() -> None:
    ServiceReporter(ServiceManager({}), cast("Agent", None)).tick()
