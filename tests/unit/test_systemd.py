"""What the service manager hears, and that nothing it does or does not do reaches the agent."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from copycat_agent import logs
from copycat_agent.spark.jvm import child_environment
from copycat_agent.systemd import ServiceManager
from tests.rig.service_manager import ServiceManager as Systemd

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
        if manager.refused:
            break
    assert manager.refused
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


def test_an_open_file_is_stored_and_removed_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one")
    with Systemd() as systemd, (tmp_path / "app.log").open() as file:
        systemd.serve(os.getpid())
        manager = ServiceManager(dict(systemd.environment))
        assert manager.store("copycat-1", file.fileno())
        assert manager.store("copycat-1", file.fileno())
        systemd.catch_up()
        assert systemd.names == ["copycat-1"]
        assert systemd.links() == [str(tmp_path / "app.log")]
        assert manager.unstore("copycat-1")
        systemd.catch_up()
        assert systemd.names == []
    assert not manager.store("copycat-1", 0), "nobody listens any more"


def test_files_that_were_passed_are_found_by_name_and_no_child_has_them(tmp_path: Path) -> None:
    script = """if 1:
        import os, subprocess, sys
        from copycat_agent.systemd import ServiceManager
        found = ServiceManager().passed
        print({name: os.read(fd, 9) for name, fd in found.items()})
        print([name for name in os.environ if name.startswith("LISTEN_")])
        os.execvp("ls", ["ls", *(f"/proc/self/fd/{fd}" for fd in found.values())])
    """
    with Systemd() as systemd:
        for name in ("copycat-a", "copycat-b"):
            (tmp_path / name).write_text(name)
            systemd.keep(name, os.open(tmp_path / name, os.O_RDONLY))
        done = subprocess.run(
            systemd.command(sys.executable, "-c", script), env=os.environ | systemd.environment, capture_output=True, text=True, check=False
        )
    assert done.stdout == "{'copycat-a': b'copycat-a', 'copycat-b': b'copycat-b'}\n[]\n"
    assert done.stderr.count("No such file") == 2


@pytest.mark.parametrize("pid", ["", "1", "x"])
def test_files_that_were_passed_to_another_process_are_let_alone(pid: str) -> None:
    environ = {"LISTEN_FDS": "1", "LISTEN_PID": pid, "LISTEN_FDNAMES": "copycat-a"}
    assert ServiceManager(environ).passed == {}
    assert environ == {}


@pytest.mark.parametrize(("said", "most"), [("", 1024), ("7", 7), ("9999", 1024), ("many", 1024)])
def test_no_more_files_are_stored_than_the_service_manager_takes(said: str, most: int) -> None:
    with limit_of_files(65_536):
        assert ServiceManager({"FDSTORE": said}).most_stored == most


def test_a_process_can_begin_with_all_that_is_stored_for_it() -> None:
    """It begins with as many open files, and has to open its own modules."""
    with limit_of_files(512):
        assert ServiceManager({}).most_stored == 256


@contextlib.contextmanager
def limit_of_files(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
