"""What the service manager hears, and that nothing it does or does not do reaches the agent."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from copycat_agent import logs
from copycat_agent.spark.jvm import child_environment
from copycat_agent.systemd import ServiceManager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Listener:
    """systemd's end of $NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.name = address.replace("\0", "@")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(address)

    def heard(self) -> list[str]:
        """The messages since the last call, in order."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(65536).decode())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(str(tmp_path / "notify") if request.param == "path" else f"\0copycat-test-{secrets.token_hex(8)}")
    yield listener
    listener.close()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_life_of_an_agent_as_systemd_hears_it(listener: Listener) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": listener.name})
    manager.ready("3 connectors")
    manager.status("2 running, 1 retrying")
    manager.reloading()
    manager.ready("2 running, 1 retrying")
    manager.stopping("settles what is in flight")
    ready, status, reloading, again, stopping = listener.heard()
    assert ready == "READY=1\nSTATUS=3 connectors"
    assert status == "STATUS=2 running, 1 retrying"
    first, stamp = reloading.split("\n")
    assert first == "RELOADING=1"
    assert stamp.startswith("MONOTONIC_USEC=")
    assert int(stamp.split("=")[1]) > 0
    assert again == "READY=1"
    assert stopping == "STOPPING=1\nSTATUS=settles what is in flight"


def test_an_unchanged_status_is_not_sent_again_and_no_text_can_forge_a_message(listener: Listener) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": listener.name})
    for _ in range(3):
        manager.status("fine\nSTOPPING=1\r\x00MAINPID=1")
    assert listener.heard() == ["STATUS=fine STOPPING=1 MAINPID=1"]


def test_the_watchdog_is_fed_by_a_pipeline_that_moves_and_no_oftener_than_it_needs(listener: Listener) -> None:
    clock = Clock()
    manager = ServiceManager({"NOTIFY_SOCKET": listener.name, "WATCHDOG_USEC": "60000000"}, clock)
    assert manager.watchdog_seconds == 60
    for _ in range(61):
        manager.feed(age=0.5)
        clock.now += 1
    assert listener.heard() == ["WATCHDOG=1"] * 5  # at 0, 15, 30, 45 and 60 s


def test_an_agent_that_hangs_starves_the_watchdog_and_is_told_once(listener: Listener, capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info", "text", sys.stderr)
    clock = Clock()
    manager = ServiceManager({"NOTIFY_SOCKET": listener.name, "WATCHDOG_USEC": "60000000"}, clock)
    manager.feed(age=29)
    assert listener.heard() == ["WATCHDOG=1"]
    for hung in range(31, 90):
        clock.now += 1
        manager.feed(age=hung)
    assert listener.heard() == []
    assert capsys.readouterr().err.count("the agent hangs") == 1
    clock.now += 60
    manager.feed(age=0.1)
    assert listener.heard() == ["WATCHDOG=1"]
    assert "moves again" in capsys.readouterr().err


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "", "WATCHDOG_PID": ""},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "-1"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "٣"},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
    ],
)
def test_a_watchdog_that_is_not_meant_for_this_process_is_not_fed(listener: Listener, environ: dict[str, str]) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": listener.name, **environ})
    manager.feed(age=0)
    assert manager.watchdog_seconds is None
    assert listener.heard() == []


def test_a_watchdog_that_is_meant_for_this_process_is(listener: Listener) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": listener.name, "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())})
    manager.feed(age=0)
    assert listener.heard() == ["WATCHDOG=1"]


@pytest.mark.parametrize("address", ["", "@", "relative/socket", "vsock:2:1234", "/nowhere/notify", "/dev/null"])
def test_a_service_manager_that_cannot_be_reached_is_no_trouble(address: str) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": address} if address else {}, Clock())
    assert manager.listens == address.startswith("/")
    manager.ready("up")
    manager.reloading()
    manager.feed(0)
    manager.stopping()


def test_a_service_manager_that_went_away_or_does_not_read_holds_nobody_up(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.systemd.SEND_SECONDS", 0.01)
    manager = ServiceManager({"NOTIFY_SOCKET": listener.name})
    for number in range(1000):  # more than a socket's queue holds
        manager.status(str(number))
        if manager._refused:
            break
    assert manager._refused
    listener.close()
    manager.ready("still here")


def test_children_do_not_see_the_service_managers_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert not given.keys() & child_environment(os.environ).keys()
    ServiceManager()
    seen = subprocess.run([sys.executable, "-c", "import os; print(*os.environ)"], capture_output=True, text=True, check=True).stdout
    assert not given.keys() & set(seen.split())
