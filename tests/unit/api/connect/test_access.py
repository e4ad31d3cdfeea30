"""Who may ask at the port for clients of Kafka Connect, what they may do, and that no request takes it from others."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import pytest

from copycat_agent.api import connections, port_access
from copycat_agent.errors import CopycatError, FatalError
from tests.unit.api.conftest import CLIENT_SECONDS, PASSWORD, basic, trusting
from tests.unit.api.connect.conftest import ConnectPort, OpenConnect
from tests.unit.api.doubles import CANARY, LoudError, MemoryControl


def test_without_a_login_the_port_is_open_on_loopback_alone(open_connect: OpenConnect) -> None:
    with pytest.raises(FatalError, match=r"api\.connect\.listen: other hosts reach 0\.0\.0\.0:\d+, so it needs api\.tls and api\.users"):
        open_connect("0.0.0.0")
    assert open_connect("localhost").json("/connectors") == ["app"]


def test_for_other_hosts_users_alone_or_tls_alone_will_not_do(open_connect: OpenConnect, users: Path, pair: dict[str, str]) -> None:
    for options in ({"users": str(users)}, {"tls": pair}):
        with pytest.raises(FatalError, match=r"needs api\.tls and api\.users"):
            open_connect("0.0.0.0", **options)


def test_with_tls_and_users_it_is_open_to_all_who_have_a_login(
    open_connect: OpenConnect, users: Path, pair: dict[str, str], pems: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_access, "WRONG_SECONDS", 0.0)
    port, context = open_connect("0.0.0.0", users=str(users), tls=pair), trusting(pems, 1)
    login = {"Authorization": basic("prometheus", PASSWORD)}
    answer = port.ask("/connectors", context=context, headers=login)
    assert answer.json == ["app"]
    worker = port.ask("/connectors/app/status", context=context, headers=login).json["connector"]["worker_id"]
    assert worker == f"{socket.gethostname()}:{port.number}"
    for headers in ({}, {"Authorization": basic("prometheus", "wrong")}):
        refused = port.ask("/connectors", context=context, headers=headers)
        assert (refused.status, refused.json["error_code"]) == (401, 401)
        assert refused.headers["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8083"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "evil.example:8083"}, 403),
        ({"Origin": "http://localhost:8000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_a_web_page_gets_nothing(port: ConnectPort, headers: dict[str, str], status: int) -> None:
    answer = port.ask("/connectors", headers=headers)
    assert answer.status == status
    assert status == 200 or answer.json["error_code"] == status
    assert not any(name.lower().startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/connectors"), ("PUT", "/connectors/app/config"), ("PATCH", "/connectors/app/config"), ("DELETE", "/connectors/app")],
)
def test_definitions_are_files_and_the_refusal_says_where(port: ConnectPort, control: MemoryControl, method: str, path: str) -> None:
    answer = port.ask(path, method, {"name": "app", "config": {}})
    assert (answer.status, answer.json["error_code"]) == (405, 405)
    assert answer.json["message"].startswith(f"connectors of this agent are defined by files in {control.directory}: change them there")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("OPTIONS", "/connectors"),
        ("DELETE", "/"),
        ("POST", "/connectors/app"),
        ("PUT", "/connector-plugins"),
        ("POST", "/admin/loggers"),
        ("TRACE", "/connectors"),
    ],
)
def test_an_address_takes_its_own_methods_only(port: ConnectPort, method: str, path: str) -> None:
    answer = port.ask(path, method)
    assert (answer.status, answer.json) == (405, {"error_code": 405, "message": "HTTP 405 Method Not Allowed"})


def test_a_head_is_a_get_without_its_body(port: ConnectPort) -> None:
    answer = port.ask("/connectors", "HEAD")
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (200, b"", str(len(port.ask("/connectors").body)))


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("a%2Fb", "a/b"),
        ("..%2F..%2Fetc%2Fpasswd", "../../etc/passwd"),
        ("a%00b", "a\0b"),
        ("a%0d%0aX-Evil:%201", "a\r\nX-Evil: 1"),
        ("%ff%fe", "��"),
        ("%E2%82%AC%20x", "€ x"),
        ("a%252Fb", "a%2Fb"),
        ("App", "App"),
        ("<script>".replace("<", "%3C"), "<script>"),
        ("a" * 5000, "a" * 5000),
    ],
)
def test_a_hostile_name_is_a_name_that_is_not_there(port: ConnectPort, sent: str, name: str) -> None:
    answer = port.ask(f"/connectors/{sent}")
    assert (answer.status, answer.json) == (404, {"error_code": 404, "message": f"Connector {name} not found"})
    assert "X-Evil" not in answer.headers
    assert port.json(f"/connectors/{sent}/topics") == {name: {"topics": []}}


@pytest.mark.parametrize(
    "path", ["//connectors", "/connectors//app", "/connectors/app//status", "//", "/connectors/app/status/x", "/Connectors"]
)
def test_an_address_that_is_none_leads_nowhere(port: ConnectPort, path: str) -> None:
    assert port.ask(path).status == 404


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /connectors HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2**16 + b"\r\n\r\n", 431),
        (b"PUT /connectors/app/config HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n", 413),
        (b"POST /connectors HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /connectors HTTP/1.1\r\n\r\n", 400),
    ],
    ids=["headers", "body", "chunked", "no HTTP", "no host"],
)
def test_what_cannot_be_read_is_refused_in_connects_form(port: ConnectPort, request_bytes: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", port.number), timeout=CLIENT_SECONDS) as one:
        one.sendall(request_bytes)
        answer = b"".join(iter(lambda: one.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    told = json.loads(body)
    assert told["error_code"] == status
    assert told["message"]


def test_a_query_without_end_is_refused(port: ConnectPort) -> None:
    assert port.ask("/connectors?" + "expand=info&" * 500).json["error_code"] == 400


def test_a_crowd_that_asks_nothing_takes_no_place_from_a_client(port: ConnectPort) -> None:
    with contextlib.ExitStack() as crowd:
        for _ in range(2 * connections.CONNECT.connections):
            crowd.enter_context(socket.create_connection(("127.0.0.1", port.number), timeout=CLIENT_SECONDS))
        assert port.json("/connectors") == ["app"]


def test_a_fault_of_the_agent_is_told_without_its_words(
    port: ConnectPort, control: MemoryControl, caplog: pytest.LogCaptureFixture
) -> None:
    control.fail = ValueError(CANARY)
    answer = port.ask("/")
    assert answer.status == 200, "the worker's own answer asks the statuses alone"
    answer = port.ask("/admin/loggers")
    assert (answer.status, answer.json["error_code"]) == (500, 500)
    assert "ValueError" in answer.json["message"]
    assert CANARY not in answer.body.decode() + caplog.text


def test_what_the_agent_cannot_do_is_told_with_its_next_step(port: ConnectPort, control: MemoryControl) -> None:
    control.fail = LoudError("it is full", "make room")
    answer = port.ask("/admin/loggers")
    assert (answer.status, answer.json) == (500, {"error_code": 500, "message": "it is full; make room"})
    assert issubclass(LoudError, CopycatError)
