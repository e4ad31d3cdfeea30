"""Who may look at the page, and what a browser is allowed to do with it."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from copycat_agent.api import connections, port_access
from copycat_agent.errors import FatalError
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import CLIENT_SECONDS, PASSWORD, basic, trusting
from tests.unit.api.doubles import CANARY, LoudError, MemoryControl
from tests.unit.api.page.conftest import OpenPage, PagePort, Read


def test_without_a_login_the_page_is_on_loopback_alone(open_page: OpenPage) -> None:
    with pytest.raises(
        FatalError, match=r"api\.page\.listen: other hosts reach 0\.0\.0\.0:\d+, so it needs api\.tls and api\.users"
    ) as told:
        open_page(host="0.0.0.0")
    assert "127.0.0.1:8090" in told.value.hint
    assert open_page(host="localhost").ask().status == 200


def test_for_other_hosts_users_alone_or_tls_alone_will_not_do(open_page: OpenPage, users: Path, pair: dict[str, str]) -> None:
    for options in ({"users": str(users)}, {"tls": pair}):
        with pytest.raises(FatalError, match=r"needs api\.tls and api\.users"):
            open_page(host="0.0.0.0", **options)


def test_with_tls_and_users_it_is_open_to_all_who_have_a_login(
    open_page: OpenPage, users: Path, pair: dict[str, str], pems: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_access, "WRONG_SECONDS", 0.0)
    page, context = open_page(host="0.0.0.0", users=str(users), tls=pair), trusting(pems, 1)
    login = {"Authorization": basic("prometheus", PASSWORD)}
    assert page.ask(context=context, headers=login).status == 200
    assert page.server.page == f"https://{socket.gethostname()}:{page.number}"
    for path in ("/", "/page.js", "/connectors/app"):
        refused = page.ask(path, context=context)
        assert refused.status == 401
        assert refused.headers["WWW-Authenticate"].startswith("Basic ")
        assert b"/var/log" not in refused.body
    own = {"Origin": f"https://localhost:{page.number}", "Sec-Fetch-Site": "same-origin"}
    assert page.ask(context=context, headers={**login, **own}).status == 200
    plain = {**own, "Origin": f"http://localhost:{page.number}"}
    assert page.ask(context=context, headers={**login, **plain}).status == 403, "over http it would be another page"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8090"}, 200),
        ({"Host": "evil.example:8090"}, 403),
        ({"Host": "localhost:8090", "Origin": "http://localhost:8090"}, 200),
        ({"Host": "localhost:8090", "Origin": "http://localhost:8091"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_its_own_pages_may_ask_and_no_others(page: PagePort, headers: dict[str, str], status: int) -> None:
    for path in ("/", "/page.js", "/losses"):
        answer = page.ask(path, headers=headers)
        assert answer.status == status
        assert not any(name.lower().startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("path", ["/", "/losses", "/connectors/app", "/page.css", "/page.js", "/nowhere", "/connectors/none"])
def test_a_browser_may_load_nothing_else_run_nothing_inline_and_frame_nothing(page: PagePort, path: str) -> None:
    headers = page.ask(path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/losses", "/connectors/app"])
def test_a_document_has_no_script_style_or_address_of_elsewhere_in_it(page: PagePort, path: str) -> None:
    read = page.read(path)
    assert [given for name, given in read.tags if name == "script"] == [{"src": "/page.js", "defer": None}]
    for name, given in read.tags:
        assert name not in {"style", "iframe", "object", "embed", "base"}
        assert not any(key == "style" or key.startswith("on") for key in given)
        assert all(str(given[key]).startswith(("/", "#")) for key in ("href", "src", "action") if key in given)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_without_logins_nothing_can_be_changed(page: PagePort, control: MemoryControl, method: str) -> None:
    before = dict(control.states)
    for path in ("/", "/connectors/app"):
        assert page.ask(path, method).status == 405
    assert page.ask("/connectors/app/pause", method).status == (403 if method == "POST" else 405)
    assert control.states == before


def test_the_commands_and_records_are_not_there(page: PagePort, control: MemoryControl) -> None:
    for path in (
        "/v1",
        "/v1/connectors",
        "/v1/connectors/app/tap",
        "/metrics",
        "/connectors",
        "/page.py",
        "/../page.css",
    ):
        assert page.ask(path).status == 404
    for path in ("/connectors/app/tap", "/connectors/app/records", "/connectors/app/letters", "/connectors/app/replay", "/try"):
        assert page.ask(path).status == 403
    assert control.tapped == 0


def test_a_head_is_a_get_without_its_body(page: PagePort) -> None:
    answer = page.ask("/page.css", "HEAD")
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (200, b"", str(len(page.ask("/page.css").body)))


@pytest.mark.parametrize("path", ["/?" + "q=a&" * 50, "/?page=x", "/?page=999999", "/?page=99999999999999999999", "/?q=%ff%00%3Cb%3E"])
def test_a_query_that_means_nothing_is_no_fault(page: PagePort, path: str) -> None:
    answer = page.ask(path)
    assert answer.status in {200, 400}
    Read(answer.body)


@pytest.mark.parametrize(
    "name", ["none", "App", "..%2F..%2Fetc%2Fpasswd", "%3Cscript%3Ealert(1)%3C/script%3E", "a" * 5000, "%ff", "app/x", ""]
)
def test_a_connector_that_is_not_there_is_told_and_its_name_is_no_markup(page: PagePort, name: str) -> None:
    answer = page.ask(f"/connectors/{name}")
    assert answer.status == 404
    assert all(given.get("src") == "/page.js" for tag, given in Read(answer.body).tags if tag == "script")


def test_a_fault_of_the_agent_is_told_without_its_words(page: PagePort, control: MemoryControl, caplog: pytest.LogCaptureFixture) -> None:
    control.fail = ValueError(CANARY)
    answer = page.ask()
    assert answer.status == 500
    assert "ValueError" in Read(answer.body).text
    assert CANARY not in answer.body.decode() + caplog.text


def test_what_the_agent_cannot_do_is_told_with_its_next_step(page: PagePort, control: MemoryControl) -> None:
    control.fail = LoudError("it is full", "make <room>")
    answer = page.ask()
    assert answer.status == 500
    assert "it is full make <room>" in Read(answer.body).text


def test_a_crowd_that_asks_nothing_takes_no_place_from_a_browser(page: PagePort) -> None:
    with contextlib.ExitStack() as crowd:
        for _ in range(2 * connections.PAGE.connections):
            crowd.enter_context(socket.create_connection(("127.0.0.1", page.number), timeout=CLIENT_SECONDS))
        assert page.ask().status == 200


def test_the_server_says_where_its_page_is(open_page: OpenPage) -> None:
    page = open_page(host="localhost")
    assert page.server.page == f"http://localhost:{page.number}"


def test_the_threads_of_the_page_end_with_the_server(threads: NewThreads, open_page: OpenPage) -> None:
    page = open_page()
    page.ask()
    page.server.close()
    wait_until(lambda: not threads.named("rate-history", "api"))
