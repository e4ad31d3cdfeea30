"""The port for health and metrics: what answers there, to whom, over what; and that nobody can take it away from others."""

from __future__ import annotations

import base64
import contextlib
import http.client
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.api import connections, port_access
from copycat_agent.api.handlers import ENDPOINTS
from copycat_agent.api.port_access import Logins, line_of
from copycat_agent.api.server import ApiServer
from copycat_agent.dev_broker import free_port
from copycat_agent.errors import FatalError
from copycat_agent.metrics import PATHS
from copycat_agent.options import ApiOptions
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import CLIENT_SECONDS, PASSWORD, Answer, basic, trusting
from tests.unit.api.doubles import MemoryControl

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def _mounts() -> dict[str, WSGIApplication]:
    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"this is {environ['PATH_INFO']}".encode()]

    return dict.fromkeys(PATHS, answer)


class Port:
    """A server with a port, and clients of it."""

    def __init__(self, server: ApiServer, number: int) -> None:
        self.server, self.number = server, number

    def ask(self, path: str, method: str = "GET", context: ssl.SSLContext | None = None, **headers: str) -> Answer:
        name = "127.0.0.1"
        connection = (
            http.client.HTTPConnection(name, self.number, timeout=CLIENT_SECONDS)
            if context is None
            else http.client.HTTPSConnection("localhost", self.number, timeout=CLIENT_SECONDS, context=context)
        )
        try:
            connection.request(method, path, headers={each.replace("_", "-"): value for each, value in headers.items()})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.number), timeout=CLIENT_SECONDS)


Open = Callable[..., Port]


@pytest.fixture
def listen(control: MemoryControl, socket_path: Path) -> Iterator[Open]:
    """`listen("0.0.0.0", users=FILE)` starts an agent's API with a port there."""
    with contextlib.ExitStack() as undo:

        def start(host: str, **options: object) -> Port:
            number = free_port()
            server = ApiServer(control, socket_path, ApiOptions.model_validate({"listen": f"{host}:{number}", **options}), _mounts)
            server.start()
            undo.callback(server.close)
            return Port(server, number)

        yield start


def test_other_hosts_reach_three_addresses_and_nothing_else(listen: Open, control: MemoryControl) -> None:
    port = listen("0.0.0.0")
    assert [port.ask(path).body for path in ("/livez", "/readyz", "/metrics")] == [
        b"this is /livez",
        b"this is /readyz",
        b"this is /metrics",
    ]
    for method, path, *_ in ENDPOINTS:
        assert port.ask(path.replace("<name:connector>", "app"), method).status == 404, path
    for path in (
        "/",
        "/healthz",
        "/v1",
        "//livez",
        "/livez/",
        "/metrics/x",
        "/LIVEZ",
        "/livez%00",
        "/v1/../livez",
        "/livez;x",
        "/favicon.ico",
    ):
        assert port.ask(path).status == 404, path
    assert port.ask("/metrics", "POST").status == port.ask("/livez", "DELETE").status == 405
    assert control.under_way == control.tapped == 0


def test_other_hosts_may_call_this_one_what_they_like_and_pages_still_get_nothing(listen: Open) -> None:
    port = listen("0.0.0.0")
    assert port.ask("/livez", Host="logs-7.example.test:9464").status == 200
    assert port.ask("/v1/connectors", Host="logs-7.example.test").status == port.ask("/v1/connectors", Host="localhost").status == 404
    for path in ("/metrics", "/v1/connectors"):
        assert port.ask(path, Origin="http://evil.example").status == port.ask(path, Origin="null").status == 403
        assert port.ask(path, Sec_Fetch_Site="same-origin").status == 403


def test_on_loopback_all_is_as_before(listen: Open) -> None:
    port = listen("127.0.0.1")
    assert [port.ask(path).status for path in PATHS] == [200] * 4
    assert port.ask("/livez", Host="rebound.example").status == 403
    assert port.ask("/v1").status == 404


def test_a_body_is_refused(listen: Open) -> None:
    with listen("127.0.0.1").connect() as one:
        one.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello")
        assert one.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password costs no second."""
    monkeypatch.setattr(port_access, "WRONG_SECONDS", 0.0)


def test_with_users_nothing_is_told_without_a_login(listen: Open, users: Path, patient: None, caplog: pytest.LogCaptureFixture) -> None:
    port = listen("127.0.0.1", users=str(users))
    for path in (*PATHS, "/v1", "/nothing"):
        answer = port.ask(path)
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="copycat", charset="UTF-8"')
    good = basic("prometheus", PASSWORD)
    assert port.ask("/metrics", Authorization=good).status == port.ask("/metrics", Authorization=good).status == 200
    assert port.ask("/livez", Authorization=basic("größe", "p:w").replace("Basic", "basic")).status == 200
    assert port.ask("/v1/connectors", Authorization=good).status == 404
    wrong = (
        basic("prometheus", PASSWORD + "x"), basic("prometheus", ""), basic("nobody", PASSWORD), basic("größe", PASSWORD),
        "Basic", "Basic !", "Basic " + base64.b64encode(b"prometheus").decode(), good.replace("Basic", "Bearer"),
        "Basic " + base64.b64encode(b"\xff:\xff").decode(), f"{good}, {good}",
    )  # fmt: skip
    for header in wrong:
        assert port.ask("/metrics", Authorization=header).status == 401, header
    assert "refused" in caplog.text
    assert not any(word in caplog.text for word in (PASSWORD, "nobody", good.removeprefix("Basic ")))


def test_the_socket_asks_for_no_login(listen: Open, users: Path, socket_path: Path) -> None:
    listen("127.0.0.1", users=str(users))
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(socket_path))
        one.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_login_that_was_right_is_not_hashed_again_and_a_wrong_one_waits(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape every few seconds must cost nothing, and guessing must not cost the host its processor."""
    hashed: list[str] = []
    digest, paused, go_on = port_access.digest, list[float](), threading.Event()

    def sleep(seconds: float) -> None:
        paused.append(seconds)
        go_on.wait(60)

    def counted(password: str, salt: bytes, rounds: int) -> bytes:
        hashed.append(password)
        return digest(password, salt, rounds)

    monkeypatch.setattr(port_access, "digest", counted)
    monkeypatch.setattr(port_access, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    known: Logins = port_access.logins(str(users))()
    assert all(known.role_of(basic("prometheus", PASSWORD)) for _ in range(100))
    assert hashed == [PASSWORD]
    guesses = [threading.Thread(target=known.role_of, args=(basic("prometheus", str(number)),)) for number in range(2)]
    for guess in guesses:
        guess.start()
    wait_until(lambda: len(hashed) == 2)
    assert known.role_of(basic("prometheus", PASSWORD)), "it is known, and waits for nobody"
    assert len(hashed) == 2, "the other guess waits"
    go_on.set()
    for guess in guesses:
        guess.join(60)
    assert len(hashed) == 3
    assert paused == [port_access.WRONG_SECONDS] * 2


def test_logins_that_change_hold_at_once_and_a_broken_file_changes_nothing(
    listen: Open, users: Path, patient: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(port_access, "AGAIN_SECONDS", 0.0)
    port = listen("127.0.0.1", users=str(users))
    first, second = basic("prometheus", PASSWORD), basic("prometheus", "another")
    assert port.ask("/metrics", Authorization=first).status == 200
    users.write_text("prometheus:another\n")
    assert port.ask("/metrics", Authorization=first).status == 200
    assert "line 1 of" in caplog.text
    assert "another" not in caplog.text
    users.write_text(line_of("prometheus", "another", 1000))
    assert port.ask("/metrics", Authorization=first).status == 401, "also though it was right before"
    assert port.ask("/metrics", Authorization=second).status == 200


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "names nobody"),
        ("# nothing\n", "names nobody"),
        (f"prometheus:{PASSWORD}\n", "line 1 of .* is not name:"),
        ("a:$pbkdf2-sha256$600000$c2FsdA$short\n", "line 1 of"),
        (line_of("a", "x", 1000) + ":admin", "line 1 of"),
        (line_of("a", "x", 1000).replace("$1000$", "$99999999$"), "line 1 of"),
        (line_of("a", "x", 1000).replace("$1000$", "$1$"), "line 1 of"),
        ("\n" + line_of("a", "x", 1000) + "\n" + line_of("a", "y", 1000), "line 3 of .* names a user again"),
        ("a:$pbkdf2-sha256$1000$aaaaa$" + "a" * 43, "line 1 of"),
    ],
    ids=["empty", "only a comment", "in clear", "short hash", "no such role", "too many rounds", "too few rounds", "twice", "odd salt"],
)
def test_a_file_of_users_that_is_no_good_ends_the_start_without_quoting_it(listen: Open, users: Path, content: str, words: str) -> None:
    users.write_text(content)
    with pytest.raises(FatalError, match=f"api.users: .*{words}") as told:
        listen("127.0.0.1", users=str(users))
    assert PASSWORD not in str(told.value)


def test_a_file_of_users_that_is_not_there_says_so(listen: Open, tmp_path: Path) -> None:
    with pytest.raises(FatalError, match=r"api\.users: .*nowhere cannot be read: No such file"):
        listen("127.0.0.1", users=str(tmp_path / "nowhere"))


def test_a_hash_is_that_of_passlib(users: Path) -> None:
    """From passlib's own documentation: so lines of other tools are taken."""
    users.write_text("a:$pbkdf2-sha256$6400$.6UI/S.nXIk8jcbdHx3Fhg$98jZicV16ODfEsEZeYPGHU3kbrUrvUEXOPimVSQDD44\n")
    assert port_access.logins(str(users))().role_of(basic("a", "password"))


def test_passwords_in_clear_are_warned_of(listen: Open, users: Path, caplog: pytest.LogCaptureFixture) -> None:
    listen("127.0.0.1", users=str(users)).server.close()
    assert "in clear" not in caplog.text
    listen("0.0.0.0", users=str(users))
    assert "in clear" in caplog.text


def test_over_tls_the_same_is_answered_and_nothing_in_clear(listen: Open, pems: Path, pair: dict[str, str]) -> None:
    port = listen("127.0.0.1", tls=pair)
    assert port.ask("/livez", context=trusting(pems, 1)).body == b"this is /livez"
    assert port.ask("/v1", context=trusting(pems, 1)).status == 404
    with pytest.raises(ssl.SSLCertVerificationError):
        port.ask("/livez", context=trusting(pems, 2))
    with port.connect() as one, contextlib.suppress(ConnectionResetError):
        one.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"this is" not in b"".join(iter(lambda: one.recv(65536), b""))


def test_old_versions_of_tls_are_refused(listen: Open, pems: Path, pair: dict[str, str]) -> None:
    context = trusting(pems, 1)
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        listen("127.0.0.1", tls=pair).ask("/livez", context=context)


def test_a_certificate_that_is_renewed_is_taken_without_a_restart(
    listen: Open, pems: Path, pair: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(port_access, "AGAIN_SECONDS", 0.0)
    port = listen("127.0.0.1", tls=pair)
    assert port.ask("/livez", context=trusting(pems, 1)).status == 200
    shutil.copy(pems / "2.crt", pair["cert_file"])
    assert port.ask("/livez", context=trusting(pems, 1)).status == 200, "its key is not there yet"
    assert "cannot be used" in caplog.text
    shutil.copy(pems / "2.key", pair["key_file"])
    assert port.ask("/livez", context=trusting(pems, 2)).status == 200
    Path(pair["key_file"]).unlink()
    assert port.ask("/livez", context=trusting(pems, 2)).status == 200


@pytest.mark.parametrize("broken", ["cert_file", "key_file", "locked"])
def test_files_of_tls_that_are_no_good_end_the_start(listen: Open, pems: Path, pair: dict[str, str], broken: str) -> None:
    if broken == "locked":
        shutil.copy(pems / "locked.key", pair["key_file"])
    else:
        Path(pair[broken]).write_text("-----BEGIN NOTHING-----\n")
    with pytest.raises(FatalError, match=r"api\.tls: the certificate .* with the key .* cannot be used: .*PEM files"):
        listen("127.0.0.1", tls=pair)


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("sent", [b"", b"G", b"GET /livez HTTP/1.1\r\nX: "], ids=["nothing", "a byte", "half a request"])
def test_a_crowd_that_asks_nothing_takes_no_place_from_a_probe(
    listen: Open, pems: Path, pair: dict[str, str], monkeypatch: pytest.MonkeyPatch, sent: bytes, tls: bool
) -> None:
    """More than there are places, without waiting for any of them to be thrown out; a handshake that never comes among them."""
    monkeypatch.setattr(connections, "CONNECTION_SECONDS", 3600.0)  # the probe would not wait so long
    port = listen("127.0.0.1", **({"tls": pair} if tls else {}))
    context = trusting(pems, 1) if tls else None
    with contextlib.ExitStack() as crowd:
        for _ in range(3):
            for _ in range(connections.MOUNTS.connections):
                one = crowd.enter_context(port.connect())
                one.sendall(sent)
            assert port.ask("/livez", context=context).status == 200


def test_a_crowd_that_does_not_read_takes_no_place_from_a_probe(control: MemoryControl, socket_path: Path) -> None:
    def large(_environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [])
        return [b"x" * 2**24]

    number = free_port()
    server = ApiServer(control, socket_path, ApiOptions(listen=f"127.0.0.1:{number}"), lambda: {**_mounts(), "/metrics": large})
    server.start()
    port = Port(server, number)
    try:
        with contextlib.ExitStack() as deaf:
            for _ in range(connections.MOUNTS.connections + 4):
                deaf.enter_context(port.connect()).sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert port.ask("/livez").status == 200
    finally:
        server.close()


def test_who_sends_slowly_is_thrown_out_and_its_thread_ends(listen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTION_SECONDS", 0.5)
    threads = NewThreads()
    with listen("127.0.0.1").connect() as one:
        one.sendall(b"GET /livez HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionResetError):  # that is thrown out, too
            assert one.recv(10) == b""
    wait_until(lambda: not threads.named("api-request"))
