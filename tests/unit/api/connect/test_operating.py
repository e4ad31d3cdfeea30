"""What clients of Kafka Connect have done: in Connect's order of things, by those alone who may."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from copycat_agent import __version__
from copycat_agent.api.connect import rest_app
from copycat_agent.api.connect.rest_app import OPERATIONS_MAX
from copycat_agent.api.connect.routes import ROUTES
from copycat_agent.api.port_access import line_of
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.worker import State
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import PASSWORD, Answer, basic
from tests.unit.api.connect.conftest import ConnectPort, OpenConnect
from tests.unit.api.doubles import NOW, MemoryControl

Operate = Callable[..., Answer]
OFFSET = {"position": 5, "path": "/var/log/app.log"}


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text("\n".join((line_of("reader", PASSWORD, 1000), line_of("writer", PASSWORD, 1000, "operate"))))
    return path


@pytest.fixture
def port(open_connect: OpenConnect, users: Path) -> ConnectPort:
    return open_connect(users=str(users))


@pytest.fixture
def operate(port: ConnectPort) -> Operate:
    """`operate("PUT", "/connectors/app/pause", body)` by a user who may."""

    def ask(method: str, path: str, body: object = None) -> Answer:
        return port.ask(path, method, body, headers={"Authorization": basic("writer", PASSWORD)})

    return ask


def become(control: MemoryControl, state: State, *, enabled: bool = True) -> None:
    control.states["app"] = dataclasses.replace(control.states["app"], state=state, enabled=enabled)


@pytest.mark.parametrize("who", ["nobody", "reader"])
def test_who_may_only_read_changes_nothing(open_connect: OpenConnect, users: Path, control: MemoryControl, who: str) -> None:
    port = open_connect() if who == "nobody" else open_connect(users=str(users))
    headers = {} if who == "nobody" else {"Authorization": basic(who, PASSWORD)}
    assert port.ask("/connectors", headers=headers).status == 200
    operations = [route for route in ROUTES if route.operates and not route.defines]
    assert operations
    for route in operations:
        path = route.path.format(connector="app", task="0", plugin="log_file", logger="root")
        answer = port.ask(path, route.method, {"level": "DEBUG"}, headers=headers)
        assert (answer.status, answer.json["error_code"]) == (403, 403), path
        assert "copycat passwd NAME --role operate" in answer.json["message"]
    assert control.status("app").state is State.RUNNING
    assert control.log == ("info", None)


def test_only_what_reads_is_open_to_who_may_only_read() -> None:
    kept_out = {"/connectors/{connector}/topics/reset"}
    """To forget topics is refused to everybody."""
    assert [route for route in ROUTES if route.method != "GET" and not route.operates and route.path not in kept_out] == []


@pytest.mark.parametrize(
    ("method", "order", "status", "state"),
    [
        ("PUT", "pause", 202, State.PAUSED),
        ("PUT", "resume", 202, State.RUNNING),
        ("PUT", "stop", 204, State.STOPPED),
        ("POST", "restart", 204, State.RUNNING),
        ("POST", "tasks/0/restart", 204, State.RUNNING),
    ],
)
def test_an_order_is_done_when_it_is_answered_and_again_without_complaint(
    operate: Operate, control: MemoryControl, method: str, order: str, status: int, state: State
) -> None:
    for _ in range(2):
        answer = operate(method, f"/connectors/app/{order}")
        assert (answer.status, answer.body) == (status, b"")
        assert answer.headers.get("Content-Length") == (None if status == 204 else "0")
        assert control.status("app").state is state


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("PUT", "/connectors/nobody/pause", "Unknown connector nobody"),
        ("PUT", "/connectors/nobody/resume", "Unknown connector nobody"),
        ("PUT", "/connectors/nobody/stop", "Connector nobody not found"),
        ("POST", "/connectors/nobody/restart", "Connector nobody not found"),
        ("POST", "/connectors/nobody/restart?includeTasks=true", "Unknown connector: nobody"),
        ("POST", "/connectors/nobody/tasks/0/restart", "Connector nobody not found"),
        ("POST", "/connectors/app/tasks/7/restart", "Task app-7 not found"),
        ("POST", "/connectors/app/tasks/x/restart", "HTTP 404 Not Found"),
        ("DELETE", "/connectors/nobody/offsets", "Connector nobody not found"),
        ("PATCH", "/connectors/nobody/offsets", "Connector nobody not found"),
    ],
)
def test_what_is_not_there_cannot_be_ordered(operate: Operate, method: str, path: str, message: str) -> None:
    body = {"offsets": [{"partition": {"key": "1:1"}, "offset": OFFSET}]} if method == "PATCH" else None
    answer = operate(method, path, body)
    assert (answer.status, answer.json) == (404, {"error_code": 404, "message": message})


@pytest.mark.parametrize(
    ("query", "state", "shown", "is_started"),
    [
        ("includeTasks=true", State.RUNNING, "RESTARTING", True),
        ("includeTasks=true&onlyFailed=true", State.RUNNING, "RUNNING", False),
        ("onlyFailed=true", State.FAILED, "RESTARTING", True),
        ("includeTasks=true&onlyFailed=true", State.FAILED, "RESTARTING", True),
        ("includeTasks=true", State.STOPPED, "RESTARTING", False),
        ("onlyFailed=true", State.STOPPED, "STOPPED", False),
        ("includeTasks=TRUE", State.PAUSED, "RESTARTING", True),
    ],
)
def test_a_restart_with_flags_shows_what_is_started_again(
    operate: Operate, control: MemoryControl, query: str, state: State, shown: str, is_started: bool
) -> None:
    become(control, state)
    since = control.status("app").since
    answer = operate("POST", f"/connectors/app/restart?{query}")
    assert (answer.status, answer.json["connector"]["state"]) == (202, shown)
    assert {task["state"] for task in answer.json["tasks"]} == ({shown} if state is not State.STOPPED else set())
    assert answer.json["connector"]["version"] == __version__
    assert (control.status("app").since > since) == is_started


def test_a_plain_restart_leaves_a_stopped_connector_stopped(operate: Operate, control: MemoryControl) -> None:
    become(control, State.STOPPED)
    assert operate("POST", "/connectors/app/restart").status == 204
    assert operate("POST", "/connectors/app/restart?includeTasks=false&onlyFailed=false").status == 204
    assert control.status("app").state is State.STOPPED


def test_a_connector_that_is_disabled_is_no_business_of_clients(operate: Operate, control: MemoryControl) -> None:
    become(control, State.STOPPED, enabled=False)
    for method, order in (("PUT", "pause"), ("PUT", "resume"), ("POST", "restart")):
        answer = operate(method, f"/connectors/app/{order}")
        assert answer.status == 400, "409 would have clients try again"
        assert "disabled by its definition" in answer.json["message"]
    assert operate("PUT", "/connectors/app/stop").status == 204


def test_offsets_change_only_while_the_connector_is_stopped(operate: Operate, control: MemoryControl) -> None:
    entries = {"offsets": [{"partition": {"key": "1:1"}, "offset": OFFSET}]}
    for state in State:
        if state is not State.STOPPED:
            become(control, state)
            for method, body in (("PATCH", entries), ("DELETE", None)):
                answer = operate(method, "/connectors/app/offsets", body)
                assert answer.status == 400
                assert answer.json["message"].startswith("Connectors must be in the STOPPED state before their offsets can be modified.")
    assert control.saved == {}


def test_offsets_go_out_and_come_back_unchanged(operate: Operate, port: ConnectPort, control: MemoryControl) -> None:
    become(control, State.STOPPED)
    first, other = SourcePartition("app", "1:1"), SourcePartition("app", "1:2")
    control.saved = {first: SourceOffset(9, 2, path="/var/log/\udcff.log"), other: SourceOffset(4, path="/b")}
    shown = operate("GET", "/connectors/app/offsets").json
    before, control.saved = control.saved, {}
    answer = operate("PATCH", "/connectors/app/offsets", shown)
    assert (answer.status, answer.json) == (200, {"message": "The offsets for this connector have been altered successfully"})
    assert control.saved == before
    operate("PATCH", "/connectors/app/offsets", {"offsets": [{"partition": {"key": "1:1"}, "offset": None}]})
    assert list(control.saved) == [other]
    answer = operate("DELETE", "/connectors/app/offsets")
    assert (answer.status, answer.json) == (200, {"message": "The offsets for this connector have been reset successfully"})
    assert control.saved == {}


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"offsets": []},
        {"offsets": None},
        {"offsets": {"1:1": 5}},
        {"offsets": ["1:1"]},
        {"offsets": [{"partition": {"key": "1:1"}}]},
        {"offsets": [{"partition": {"filename": "/a"}, "offset": {"position": 1}}]},
        {"offsets": [{"partition": {"key": 5}, "offset": {"position": 1}}]},
        {"offsets": [{"partition": {"key": "1:1"}, "offset": {"position": -1}}]},
        {"offsets": [{"partition": {"key": "1:1"}, "offset": {"position": "1"}}]},
        {"offsets": [{"partition": {"key": "1:1"}, "offset": {}}]},
        {"offsets": [{"partition": {"key": "1:1"}, "offset": {"position": 1}}] * 2},
    ],
)
def test_offsets_that_make_no_sense_are_refused(operate: Operate, control: MemoryControl, body: object) -> None:
    become(control, State.STOPPED)
    answer = operate("PATCH", "/connectors/app/offsets", body)
    assert (answer.status, answer.json["error_code"]) == (400, 400)
    assert control.saved == {}


@pytest.mark.parametrize(
    ("level", "ours"),
    [("TRACE", "debug"), ("debug", "debug"), ("INFO", "info"), ("Warn", "warning"), ("ERROR", "error"), ("FATAL", "error")],
)
def test_the_level_of_the_log_is_changed(operate: Operate, control: MemoryControl, level: str, ours: str) -> None:
    assert operate("GET", "/admin/loggers/root").json["last_modified"] is None
    assert operate("PUT", "/admin/loggers/root", {"level": level}).json == ["root"]
    assert operate("GET", "/admin/loggers/root").json["last_modified"] == round(NOW * 1000)
    assert control.log == (ours, None)
    answer = operate("PUT", "/admin/loggers/root?scope=cluster", {"level": level})
    assert (answer.status, answer.body) == (204, b"")


@pytest.mark.parametrize(
    ("logger", "body", "status"),
    [
        ("root", {"level": "LOUD"}, 404),
        ("root", {"level": "OFF"}, 404),
        ("root", {"level": ["DEBUG"]}, 404),
        ("root", {}, 400),
        ("root", None, 400),
        ("root", [1], 400),
        ("org.apache.kafka", {"level": "DEBUG"}, 404),
    ],
)
def test_a_level_that_is_none_changes_nothing(operate: Operate, control: MemoryControl, logger: str, body: object, status: int) -> None:
    answer = operate("PUT", f"/admin/loggers/{logger}", body)
    assert (answer.status, answer.json["error_code"]) == (status, status)
    assert control.log == ("info", None)


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_json_is_refused(operate: Operate, body: bytes) -> None:
    answer = operate("PATCH", "/connectors/app/offsets", body)
    assert (answer.status, answer.json["error_code"]) == (400, 400)


def test_a_body_that_is_not_declared_as_json_is_refused(port: ConnectPort) -> None:
    headers = {"Authorization": basic("writer", PASSWORD), "Content-Type": "text/plain"}
    answer = port.ask("/admin/loggers/root", "PUT", b"{}", headers=headers)
    assert (answer.status, answer.json["message"]) == (415, "HTTP 415 Unsupported Media Type")


def test_changes_at_once_are_done_one_after_the_other(operate: Operate, control: MemoryControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_app, "WAIT_SECONDS", 60.0)
    control.hold.clear()
    answers: list[int] = []
    asking = [
        threading.Thread(target=lambda: answers.append(operate("PUT", "/connectors/app/pause").status)) for _ in range(3 * OPERATIONS_MAX)
    ]
    for one in asking:
        one.start()
    wait_until(lambda: control.under_way == OPERATIONS_MAX)
    control.hold.set()
    for one in asking:
        one.join(60)
    assert answers == [202] * len(asking)


def test_changes_that_wait_take_no_place_from_who_reads(
    operate: Operate, port: ConnectPort, control: MemoryControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_app, "WAIT_SECONDS", 0.1)
    control.hold.clear()
    waiting = [threading.Thread(target=operate, args=("PUT", "/connectors/app/pause")) for _ in range(OPERATIONS_MAX)]
    for one in waiting:
        one.start()
    wait_until(lambda: control.under_way == OPERATIONS_MAX)
    refused = operate("PUT", "/connectors/app/pause")
    assert (refused.status, refused.json["error_code"]) == (409, 409), "which has clients try again"
    assert operate("GET", "/connectors").json == ["app"]
    control.hold.set()
    for one in waiting:
        one.join(60)
    assert operate("PUT", "/connectors/app/resume").status == 202
