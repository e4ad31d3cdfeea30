"""What means no good, or knows no better, gets an answer or the door, and nobody else waits for it."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copycat_agent.api import AgentClient, RefusedRequestError, connections
from copycat_agent.api.app import CHANGES_MAX, STREAMS_MAX
from copycat_agent.api.server import ApiServer
from copycat_agent.errors import BusyError
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import Answer, connect
from tests.unit.api.doubles import MemoryControl


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost"}, 200),
        ({"Host": "LOCALHOST:80"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 403),
        ({"Sec_Fetch_Site": "none"}, 200),
    ],
)
def test_a_browser_gets_no_answer_on_behalf_of_a_page(send: Callable[..., Answer], headers: dict[str, str], status: int) -> None:
    assert send("GET", "/v1/connectors", **headers).status == status


def test_a_page_cannot_pause_a_connector(send: Callable[..., Answer], control: MemoryControl) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "rebound.example"}):
        assert send("POST", "/v1/connectors/app/pause", b"", **headers).status == 403
    assert send("POST", "/v1/connectors/app/pause", b"a=b", Content_Type="text/plain").status == 415
    assert control.status("app").state == "running"


@pytest.mark.parametrize(
    "path",
    [
        "/", "/v1/connectors/../app", "/v1/connectors/app/../../../etc/passwd", "/v1/connectors/%2e%2e/app", "/v1/connectors/a%2Fb",
        "/v1/connectors/App", "/v1/connectors/a%00b", "/v1/connectors/a%0d%0ab", "/v1/connectors/%ff", "/v1/connectors/" + "a" * 64,
        "/v1/connectors/" + "a" * 5000, "/v1/connectors/%24%28id%29", "/v1/offsets/-app", "/v1/connectors//files", "/v1//connectors",
        "/../../etc/passwd", "/v1/connectors/app%20",
    ],
)  # fmt: skip
def test_names_that_are_none_lead_nowhere(send: Callable[..., Answer], path: str) -> None:
    answer = send("GET", path)
    assert answer.status == 404
    assert answer.json["error"] == "there is nothing at this address"


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1"), ("GET", "/v1/reload"), ("DELETE", "/v1/connectors/app"), ("TRACE", "/v1"), ("GET", "/v1/connectors/app/pause")],
)
def test_an_address_takes_its_own_methods_only(send: Callable[..., Answer], method: str, path: str) -> None:
    answer = send(method, path)
    assert answer.status == 405
    assert answer.json["error"] == "this address does not take this method"


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 100_000, b"5", b'"x"', b"[]", b"null1"])
def test_a_body_that_is_no_map_is_refused(send: Callable[..., Answer], body: bytes) -> None:
    answer = send("PUT", "/v1/offsets/app", body, Content_Type="application/json")
    assert answer.status == 400
    assert answer.json["kind"] == "refused"


def test_a_body_beyond_the_limit_is_refused_before_it_is_sent(server: ApiServer, socket_path: Path) -> None:
    with connect(socket_path) as one:
        length = connections.COMMANDS.body_bytes + 1
        one.sendall(f"PUT /v1/offsets/app HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        answer = _everything(one)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"error": "the body of the request is too large"' in answer


def test_a_body_without_a_length_is_refused_and_who_goes_on_sending_reads_the_answer(client: AgentClient, socket_path: Path) -> None:
    with connect(socket_path) as one:
        one.sendall(b"PUT /v1/offsets/app HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(16):
            one.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        answer = _everything(one)
    assert answer.startswith(b"HTTP/1.1 411")
    assert b"send a Content-Length" in answer
    assert client.get("/v1")["pid"] == 7


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 5\r\nContent-Length: 6", "Host: a", "Content-Length: -1", "Content-Length: 1_0", "X : y",
        "Content-Length: 5, 6", "no colon", "X: \x00",
    ],
)  # fmt: skip
def test_headers_that_two_readers_could_take_differently_are_refused(server: ApiServer, socket_path: Path, lines: str) -> None:
    with connect(socket_path) as one:
        one.sendall(f"GET /v1 HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n".encode())
        assert _everything(one).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("coding", ["gzip", "chunked, chunked", "identity"])
def test_a_body_in_a_coding_that_nobody_here_reads_is_refused(server: ApiServer, socket_path: Path, coding: str) -> None:
    with connect(socket_path) as one:
        one.sendall(f"PUT /v1/offsets/app HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {coding}\r\n\r\n".encode())
        assert _everything(one).startswith(b"HTTP/1.1 501 ")


def test_a_request_without_a_host_is_refused_and_told_what_it_needs(server: ApiServer, socket_path: Path) -> None:
    with connect(socket_path) as one:
        one.sendall(b"GET /v1 HTTP/1.1\r\n\r\n")
        answer = _everything(one)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"it needs one Host header" in answer


def test_an_answer_quotes_no_header(server: ApiServer, socket_path: Path) -> None:
    with connect(socket_path) as one:
        one.sendall(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nAuthorization : Basic c2VjcmV0\r\n\r\n")
        answer = _everything(one)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"c2VjcmV0" not in answer


@pytest.mark.parametrize(
    "lines", ["Host: localhost\r\n Origin: folded", "Host: localhost\r\nHost\t: localhost", "Host: localhost\r\nHOST: a"]
)
def test_what_is_folded_into_the_host_or_beside_it_makes_it_another(server: ApiServer, socket_path: Path, lines: str) -> None:
    with connect(socket_path) as one:
        one.sendall(f"GET /v1 HTTP/1.1\r\n{lines}\r\n\r\n".encode())
        assert _everything(one).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))


def test_two_content_types_are_none_of_ours(client: AgentClient, control: MemoryControl, socket_path: Path) -> None:
    with connect(socket_path) as one:
        both = "Content-Type: application/json\r\nContent-Type: text/plain"
        one.sendall(f"POST /v1/connectors/app/pause HTTP/1.1\r\nHost: localhost\r\n{both}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        assert _everything(one).startswith(b"HTTP/1.1 415 ")
    assert control.status("app").state == "running"


def test_a_header_with_an_underscore_is_no_other(client: AgentClient, control: MemoryControl, socket_path: Path) -> None:
    with connect(socket_path) as one:
        headers = "Host: localhost\r\nContent_Type: application/json\r\nContent-Length: 2"
        one.sendall(f"POST /v1/connectors/app/pause HTTP/1.1\r\n{headers}\r\n\r\n{{}}".encode())
        assert _everything(one).startswith(b"HTTP/1.1 415 ")
    assert control.status("app").state == "running"


def test_a_connection_answers_one_request(server: ApiServer, socket_path: Path) -> None:
    with connect(socket_path) as one:
        one.sendall(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        assert _everything(one).count(b"HTTP/1.1 ") == 1


def test_who_asks_whether_to_send_its_body_is_told(client: AgentClient, control: MemoryControl, socket_path: Path) -> None:
    """As curl does."""
    client.post("/v1/connectors/app/stop")
    body = b'{"offsets": [{"key": "k", "offset": {"position": 0}}]}'
    with connect(socket_path) as one:
        headers = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue"
        one.sendall(f"PUT /v1/offsets/app HTTP/1.1\r\n{headers}\r\n\r\n".encode())
        assert one.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(body)
        assert _everything(one).startswith(b"HTTP/1.1 200 OK")
    assert control.saved


def test_more_than_the_server_takes_is_not_even_sent(client: AgentClient) -> None:
    with pytest.raises(RefusedRequestError, match="do it in several parts"):
        client.put("/v1/offsets/app", {"offsets": "x" * connections.COMMANDS.body_bytes})


def test_headers_without_end_are_refused(server: ApiServer, socket_path: Path) -> None:
    with connect(socket_path) as one:
        one.sendall((b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nX: ").ljust(connections.COMMANDS.header_bytes + 1, b"x"))
        answer = _everything(one)
    assert b" 431 " in answer.splitlines()[0]
    assert b'"kind": "refused"' in answer


def test_headers_that_are_too_long_are_refused_with_their_end_too(client: AgentClient, socket_path: Path) -> None:
    with connect(socket_path) as one:
        one.sendall((b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nX: ").ljust(2 * connections.COMMANDS.header_bytes, b"x") + b"\r\n\r\n")
        assert _everything(one).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_answer_of_unknown_length_ends_where_its_reader_can_tell(client: AgentClient, socket_path: Path, version: str) -> None:
    """In chunks for 1.1, and with the connection for 1.0, which does not know them."""
    with connect(socket_path) as one:
        one.sendall(f"GET /v1/connectors/app/tap?limit=1 HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
        head, _, body = _everything(one).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.count(b"Connection: close") == 1
    if version == "1.1":
        assert b"Transfer-Encoding: chunked" in head
        assert body.startswith(b"1\r\n\n\r\n")
        assert body.endswith(b"\r\n0\r\n\r\n")
    else:
        assert b"Transfer-Encoding" not in head
        assert body.startswith(b'\n{"')
        assert body.endswith(b"}\n")


def test_a_refusal_of_head_has_no_body(client: AgentClient, socket_path: Path) -> None:
    with connect(socket_path) as one:
        one.sendall(b"HEAD /v1 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer = _everything(one)
    assert answer.startswith(b"HTTP/1.1 411 ")
    assert answer.endswith(b"\r\n\r\n")


def test_who_hangs_up_amid_its_body_changes_nothing(client: AgentClient, control: MemoryControl, socket_path: Path) -> None:
    with connect(socket_path) as one:
        headers = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 5"
        one.sendall(f"POST /v1/connectors/app/pause HTTP/1.1\r\n{headers}\r\n\r\n{{}}".encode())
        one.shutdown(socket.SHUT_WR)
        assert _everything(one).startswith(b"HTTP/1.1 400 ")
    assert control.status("app").state == "running"


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n", b"GET /v1 HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_request_harms_nobody(client: AgentClient, socket_path: Path, garbage: bytes) -> None:
    with connect(socket_path) as one:
        one.sendall(garbage)
        assert client.get("/v1")["pid"] == 7


def test_many_ask_at_once_and_all_are_answered(client: AgentClient) -> None:
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: client.get("/v1/connectors/app")["name"], range(200)))
    assert answers == ["app"] * 200


def test_changes_that_take_their_time_hold_up_no_question_and_are_bounded(client: AgentClient, control: MemoryControl) -> None:
    control.hold.clear()
    with ThreadPoolExecutor(CHANGES_MAX) as pool:
        waiting = [pool.submit(client.post, "/v1/connectors/app/pause") for _ in range(CHANGES_MAX)]
        wait_until(lambda: control.under_way == CHANGES_MAX)
        with pytest.raises(BusyError, match="other changes are under way"):
            client.post("/v1/reload")
        assert client.get("/v1/connectors/app")["name"] == "app"
        control.hold.set()
        assert [one.result(60)["state"] for one in waiting] == ["paused"] * CHANGES_MAX
    assert client.post("/v1/connectors/app/resume")["state"] == "running"


def test_taps_are_bounded_and_give_their_places_back(client: AgentClient, control: MemoryControl, send: Callable[..., Answer]) -> None:
    control.samples = ()
    control.hold.clear()
    for _ in range(STREAMS_MAX + 1):
        assert send("HEAD", "/v1/connectors/app/tap?seconds=60").status == 200
    with ThreadPoolExecutor(STREAMS_MAX) as pool:
        open_taps = [pool.submit(list, client.stream("/v1/connectors/app/tap?seconds=60")) for _ in range(STREAMS_MAX)]
        wait_until(lambda: control.tapped == STREAMS_MAX)  # a probe before that could take the place of one of them
        assert _is_refused(client)
        assert client.get("/v1/connectors/app")["name"] == "app"
        control.hold.set()
        assert [one.result(60) for one in open_taps] == [[]] * STREAMS_MAX
    wait_until(lambda: not _is_refused(client))


def _is_refused(client: AgentClient) -> bool:
    try:
        list(client.stream("/v1/connectors/app/tap?seconds=0"))
    except BusyError as error:
        return "taps are open already" in str(error)
    return False


def test_requests_that_trickle_in_hold_a_place_only_so_long(
    server: ApiServer, client: AgentClient, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sends a byte now and then, for ever; with all places taken, one of them makes room for the next client."""
    monkeypatch.setattr(connections, "CONNECTION_SECONDS", 3600.0)  # no time-out does it
    client.get("/v1")
    crowd = [connect(socket_path) for _ in range(connections.COMMANDS.connections)]
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(0.05):
            for one in crowd:
                try:
                    one.send(b"G")
                except OSError:
                    continue

    dripping = threading.Thread(target=trickle)
    dripping.start()
    try:
        assert client.get("/v1")["pid"] == 7
    finally:
        over.set()
        dripping.join()
        for one in crowd:
            one.close()


def test_who_does_not_read_the_answer_is_cut_off(
    server: ApiServer, control: MemoryControl, client: AgentClient, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taps of more than the buffers hold; their places come free although nobody reads."""
    control.samples = tuple(control.samples[0]._replace(value=b"x" * 4096) for _ in range(1000))
    with monkeypatch.context() as impatient:  # slow clients get some seconds instead of half a minute; who asks next does not
        impatient.setattr(connections, "CONNECTION_SECONDS", 5.0)
        deaf = [connect(socket_path) for _ in range(STREAMS_MAX)]
        for one in deaf:
            one.sendall(b"GET /v1/connectors/app/tap?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: control.tapped == STREAMS_MAX, message="all places are taken")
    wait_until(lambda: not _is_refused(client))
    for one in deaf:
        one.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """So many open files that no further descriptor is below 1,024, select's limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("the hard limit of open files is too low to try")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    yield
    for descriptor in descriptors:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_agent_with_thousands_of_open_files_still_answers(many_files: None, client: AgentClient) -> None:
    assert client.get("/v1")["pid"] == 7


def _everything(one: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            part = one.recv(65536)
        except ConnectionResetError:
            return found
        if not part:
            return found
        found += part
