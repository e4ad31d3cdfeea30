"""The agent's API outlives what goes wrong on its serving thread, and commands hear within seconds that nobody answers."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent import api as api_client
from copycat_agent.api import AgentClient, AgentUnreachableError
from copycat_agent.api.connections import COMMANDS, ListenerLimits, Server
from copycat_agent.api.server import ApiServer
from copycat_agent.errors import CopycatError
from tests.rig.descriptors import no_descriptors_left
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import connect
from tests.unit.api.doubles import MemoryControl

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

ANSWER_SECONDS = api_client.ANSWER_SECONDS
"""As the product has it."""


def test_an_import_that_fails_is_told_and_tried_again(control: MemoryControl, socket_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A package that is being upgraded is incomplete for a moment."""
    missing = threading.Event()
    missing.set()

    def mounts() -> dict[str, Any]:
        if missing.is_set():
            raise ModuleNotFoundError("No module named 'prometheus_client'")
        return {}

    server = ApiServer(control, socket_path, None, mounts)
    server.start()
    try:
        with pytest.raises(CopycatError, match=r"cannot answer now: ModuleNotFoundError.*see its log"):
            AgentClient(socket_path).get("/v1")
        assert "No module named 'prometheus_client'" in caplog.text
        missing.clear()
        assert AgentClient(socket_path).get("/v1")["pid"] == 7
    finally:
        server.close()


@pytest.mark.parametrize("answered", [False, True], ids=["from the first connection on", "later"])
def test_without_descriptors_clients_wait_and_are_answered_once_there_are_some(
    server: ApiServer, client: AgentClient, socket_path: Path, threads: NewThreads, caplog: pytest.LogCaptureFixture, answered: bool
) -> None:
    if answered:
        client.get("/v1")
    wait_until(lambda: not threads.named("api-request"))  # each gives a descriptor back
    with connect(socket_path, at_once=False) as one:
        with no_descriptors_left():
            one.connect(str(socket_path))
            one.sendall(b"GET /v1 HTTP/1.0\r\n\r\n")
            wait_until(lambda: "Too many open files" in caplog.text)
            assert server.heartbeat() < 60
        assert b"200 OK" in one.recv(65536)
    assert client.get("/v1")["pid"] == 7


class OddListener(socket.socket):
    """A listening socket whose next connection does to the loop what no connection should do."""

    trouble: Callable[[], None] | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        if self.trouble is not None:
            self.trouble()
        return super().accept()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[OddListener]:
    with OddListener(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "odd.sock"))
        made.listen(8)
        made.setblocking(False)
        yield made


def _hello(_environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    start_response("200 OK", [])
    return [b"hello"]


def test_where_all_places_are_taken_by_answers_a_new_client_is_told_at_once(listener: OddListener, tmp_path: Path) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        asked.set()
        go_on.wait(30)
        return _hello(environ, start_response)

    server = Server(listener, slow, ListenerLimits(connections=1, body_bytes=0))
    with connect(tmp_path / "odd.sock") as first, connect(tmp_path / "odd.sock", at_once=False) as second:
        first.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert asked.wait(60)
        second.connect(str(tmp_path / "odd.sock"))
        refused = b"".join(iter(lambda: second.recv(65536), b""))
        assert refused.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b'"kind": "busy"' in refused
        go_on.set()
        assert first.recv(65536).startswith(b"HTTP/1.1 200 OK")
    server.close()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"), OSError(errno.ENFILE, "x"), ValueError("?")])
def test_no_exception_ends_the_loop_that_takes_connections(
    listener: OddListener, tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def once() -> None:
        listener.trouble = None
        raise error

    listener.trouble = once
    server = Server(listener, _hello, COMMANDS)
    with connect(tmp_path / "odd.sock") as one:
        one.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert one.recv(65536).startswith(b"HTTP/1.1 200 OK")
    assert "takes no connection now" in caplog.text
    wait_until(lambda: server.heartbeat() == 0)
    server.close()


def test_a_loop_that_hangs_is_seen_by_who_feeds_the_watchdog(listener: OddListener, tmp_path: Path) -> None:
    hangs = threading.Event()

    def hang() -> None:
        hangs.wait(30)

    listener.trouble = hang
    server = Server(listener, _hello, COMMANDS)
    assert server.heartbeat() == 0
    with connect(tmp_path / "odd.sock"):
        wait_until(lambda: server.heartbeat() > 0.2)
        hangs.set()
        listener.trouble = None
        wait_until(lambda: server.heartbeat() == 0)
    server.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_has_ended_is_seen_too(listener: OddListener, tmp_path: Path) -> None:
    def end() -> None:
        raise SystemExit  # the one thing that ends a thread without a word

    listener.trouble = end
    server = Server(listener, _hello, COMMANDS)
    with connect(tmp_path / "odd.sock"):
        wait_until(lambda: server.heartbeat() > 0.2)
    server.close()


def test_a_command_hears_within_seconds_that_nobody_answers(path_of_a_mute: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that may take minutes once the agent has it."""
    assert ANSWER_SECONDS <= 10
    monkeypatch.setattr(api_client, "ANSWER_SECONDS", 0.2)
    client = AgentClient(path_of_a_mute)
    for ask in (lambda: client.get("/v1"), lambda: client.post("/v1/reload"), lambda: list(client.stream("/v1/connectors/app/tap"))):
        with pytest.raises(AgentUnreachableError, match=r"did not answer within 0 s.*see its log") as told:  # not after its own limit
            ask()
        assert "may still happen" not in str(told.value), "nothing was asked for yet"


@pytest.fixture
def path_of_a_mute(tmp_path: Path) -> Iterator[Path]:
    """The socket of an agent that takes connections, as the kernel does for it, and never answers."""
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "mute.sock"))
        mute.listen(8)
        yield tmp_path / "mute.sock"
