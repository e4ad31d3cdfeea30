"""Where the agent listens, who may reach it, and what becomes of what others left there."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent import api as api_client
from copycat_agent.api import AgentClient, AgentUnreachableError
from copycat_agent.api import server as api_server
from copycat_agent.api.ports import listen_tcp
from copycat_agent.api.server import ApiServer, UnixListener, listen_unix, socket_path
from copycat_agent.dev_broker import free_port
from copycat_agent.errors import FatalError
from copycat_agent.options import ApiOptions
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import CLIENT_SECONDS
from tests.unit.api.doubles import MemoryControl

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def test_option_before_file_before_runtime_directory_before_state_directory() -> None:
    state, environ = Path("/state"), {"RUNTIME_DIRECTORY": "/run/copycat:/run/other"}
    assert socket_path(Path("/o.sock"), "/f.sock", state, environ) == Path("/o.sock")
    assert socket_path(None, "/f.sock", state, environ) == Path("/f.sock")
    assert socket_path(None, None, state, environ) == Path("/run/copycat/agent.sock")
    assert socket_path(None, None, state, {}) == Path("/state/agent.sock")


def test_only_this_user_reaches_the_socket_and_it_is_gone_at_the_end(server: ApiServer, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    server.close()
    assert not path.exists()
    server.close()


@pytest.fixture
def path(socket_path: Path) -> Path:
    return socket_path


def test_a_directory_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(FatalError, match=r"mode 755.*RuntimeDirectoryMode=0700"):
        listen_unix(tmp_path / "open" / "agent.sock")


def test_what_a_dead_agent_left_is_replaced(control: MemoryControl, path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = ApiServer(control, path)
    server.start()
    assert AgentClient(path).get("/v1")["pid"] == 7
    server.close()


def test_a_living_agent_keeps_its_socket(server: ApiServer, control: MemoryControl, path: Path) -> None:
    with pytest.raises(FatalError, match=r"another agent answers at .*--socket"):
        ApiServer(control, path).start()
    assert AgentClient(path).get("/v1")["pid"] == 7


def test_of_two_agents_at_once_exactly_one_gets_the_socket(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    path = tmp_path / "run" / "agent.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    barrier, got, refused = threading.Barrier(8), [], []

    def start() -> None:
        barrier.wait()
        try:
            got.append(listen_unix(path))
        except FatalError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 7)
    got[0].close()


def test_who_looks_whether_a_socket_is_dead_holds_others_off(path: Path) -> None:
    """Else both of two agents could find it dead, and the second remove the first one's."""
    path.parent.mkdir(mode=0o700)
    made: list[UnixListener] = []
    looking = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_EX)
    other = threading.Thread(target=lambda: made.append(listen_unix(path)))
    other.start()
    other.join(0.3)
    assert other.is_alive()
    os.close(looking)
    other.join(60)
    made[0].close()


def test_an_agent_removes_its_own_socket_only(path: Path) -> None:
    first = listen_unix(path)
    path.unlink()
    second = listen_unix(path)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.write_text("mine")
    with pytest.raises(FatalError, match="is no socket"):
        listen_unix(path)
    assert path.read_text() == "mine"


def test_a_path_that_is_too_long_says_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match=r"more than 107 bytes.*--socket"):
        listen_unix(tmp_path / ("x" * 107))


def test_without_an_agent_the_client_says_the_next_step(path: Path) -> None:
    with pytest.raises(AgentUnreachableError, match="start it with: copycat run DIR"):
        AgentClient(path).get("/v1")
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(AgentUnreachableError, match="no agent answers at"):
        AgentClient(path).get("/v1")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may reach every socket")
def test_another_users_agent_is_told_from_none(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.parent.chmod(0)
    try:
        with pytest.raises(AgentUnreachableError, match=r"no permission.*the agent's user"):
            AgentClient(path).get("/v1")
    finally:
        path.parent.chmod(0o700)


def test_an_agent_that_goes_away_under_a_request_is_told(path: Path) -> None:
    listener = listen_unix(path)
    listener.socket.setblocking(True)

    def hang_up() -> None:
        connection, _ = listener.socket.accept()
        connection.recv(65536)
        connection.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    with pytest.raises(AgentUnreachableError, match="went away before it answered"):
        AgentClient(path).get("/v1")
    thread.join()
    listener.close()


def test_closing_does_not_wait_for_a_tap_and_leaves_no_thread_that_takes_requests(
    server: ApiServer, control: MemoryControl, path: Path, threads: NewThreads
) -> None:
    control.samples = ()
    control.hold.clear()
    stream = AgentClient(path).stream("/v1/connectors/app/tap?seconds=60")
    failed: list[BaseException] = []

    def read() -> None:
        try:
            list(stream)
        except AgentUnreachableError as error:
            failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: threads.named("api-loop"))
    server.close()
    reader.join(60)
    assert not reader.is_alive()
    wait_until(lambda: {thread.name for thread in threads.named("api")} <= {"api-request"})
    control.hold.set()
    wait_until(lambda: not threads.named("api"))


def _mounts() -> dict[str, WSGIApplication]:
    def livez(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"alive"]

    return {"/livez": livez}


Ask = Callable[..., tuple[int, bytes]]


@pytest.fixture
def ask(control: MemoryControl, path: Path) -> Iterator[Ask]:
    """`ask("GET", "/livez", Host="x")` over TCP."""
    port = free_port()
    server = ApiServer(control, path, ApiOptions(listen=f"localhost:{port}"), _mounts)
    server.start()

    def call(method: str, where: str, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CLIENT_SECONDS)
        connection.request(method, where, headers=headers)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    yield call
    server.close()


def test_the_port_answers_what_is_mounted_and_no_commands(ask: Ask, path: Path) -> None:
    assert ask("GET", "/livez") == (200, b"alive")
    assert ask("HEAD", "/livez") == (200, b"")
    assert ask("POST", "/livez")[0] == 405
    assert ask("GET", "/v1/connectors")[0] == 404
    assert ask("POST", "/v1/connectors/app/stop")[0] == 404
    assert ask("GET", "/livez", Host="rebound.example")[0] == 403
    assert ask("GET", "/livez", Origin="http://evil.example")[0] == 403


def test_the_socket_answers_what_is_mounted_too(ask: Ask, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(path))
        one.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: one.recv(4096), b""))
    assert answer.endswith(b"alive")


def test_a_port_that_is_taken_says_which_option_and_leaves_no_socket(control: MemoryControl, path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(FatalError, match=r"api.listen: .*another program uses this port.*agent.yaml"):
            ApiServer(control, path, ApiOptions(listen=listen)).start()
    assert not path.exists()


@pytest.mark.parametrize("listen", ["9464", ":9464", "localhost", "localhost:http", "localhost:65536", "localhost:-1"])
def test_what_is_no_address_is_told(listen: str) -> None:
    with pytest.raises(FatalError, match=r"is not HOST:PORT.*write 127\.0\.0\.1"):
        listen_tcp(listen)


def test_an_address_of_another_host_is_told() -> None:
    with pytest.raises(FatalError, match=r"cannot listen at 192\.0\.2\.1:80: Cannot assign"):
        listen_tcp("192.0.2.1:80")


def test_the_http_libraries_wait_for_the_first_connection(control: MemoryControl, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost 0.16 s, which the first record should not wait for; later they come without being asked."""
    asked: list[float] = []

    def mounts() -> dict[str, Any]:
        asked.append(time.monotonic())
        return {}

    monkeypatch.setattr(api_server, "GRACE_SECONDS", 3600.0)
    server = ApiServer(control, path, None, mounts)
    server.start()
    assert not asked
    assert AgentClient(path).get("/v1")["pid"] == 7
    assert len(asked) == 1
    server.close()
    monkeypatch.setattr(api_server, "GRACE_SECONDS", 0.05)
    server = ApiServer(control, path, None, mounts)
    server.start()
    wait_until(lambda: len(asked) == 2)
    server.close()


def test_what_is_no_agent_is_told_from_one(path: Path) -> None:
    listener = listen_unix(path)
    listener.socket.setblocking(True)

    def answer() -> None:
        for body in (b"", b"hello", b"", json.dumps({"error": 1}).encode()):  # each is asked first whether it answers at all
            connection, _ = listener.socket.accept()
            connection.recv(65536)
            status = b"200 OK" if body in {b"", b"hello"} else b"500 Oops"
            connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    for words in ("the answer is no JSON", "answered with HTTP status 500"):
        with pytest.raises(Exception, match=words):
            AgentClient(path).get("/v1")
    thread.join()
    listener.close()


@pytest.fixture
def full(path: Path) -> Iterator[UnixListener]:
    """An agent that hangs, with as many waiting for it as the kernel lets wait."""
    listener = listen_unix(path)
    waiting = []
    with contextlib.suppress(BlockingIOError):
        while True:
            one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            waiting.append(one)
            one.connect(str(path))
    yield listener
    for one in waiting:
        one.close()
    listener.close()


def test_a_hung_agent_whose_queue_is_full_is_told_from_none(full: UnixListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "ANSWER_SECONDS", 0.2)
    with pytest.raises(AgentUnreachableError, match=r"takes no more connections.*see its log"):
        AgentClient(full.path).get("/v1")
    with pytest.raises(FatalError, match="another agent answers"):
        listen_unix(full.path)


def test_who_meets_a_full_queue_waits_for_a_place(full: UnixListener) -> None:
    def drain() -> None:
        with contextlib.suppress(OSError):
            while True:
                full.socket.accept()[0].close()

    full.socket.setblocking(True)
    later = threading.Timer(0.2, drain)
    later.start()
    with pytest.raises(AgentUnreachableError, match="went away before it answered"):
        AgentClient(full.path).get("/v1")
    full.socket.shutdown(socket.SHUT_RDWR)
    later.join()


def test_an_agent_that_does_not_answer_is_named_with_its_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "ANSWER_SECONDS", 0.2)
    listener = listen_unix(path)
    with pytest.raises(AgentUnreachableError) as told:
        AgentClient(path).get("/v1")
    assert f"-p {os.getpid()}" in told.value.hint
    assert "may still happen" not in told.value.hint, "nothing was to be changed"
    listener.close()
