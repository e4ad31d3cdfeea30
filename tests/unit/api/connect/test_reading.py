"""What clients of Kafka Connect read of an agent has the shapes, statuses and words that they know."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from copycat_agent import __version__
from copycat_agent.control import ReloadResult
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.registry import Provider
from copycat_agent.sources import SOURCES
from copycat_agent.worker import State
from tests.rig import connect_demands
from tests.unit.api.connect.conftest import ConnectPort
from tests.unit.api.doubles import MemoryControl


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "connectors.d"
    made.mkdir()
    (made / "app.yaml").write_text(
        "name: app\nsource: {type: log_file, include: [/var/log/app.log]}\nrecord: {topic: logs.app}\ndelivery: {tasks_max: 1}\n"
        "kafka: {security: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: c4n4ry-Zq7}}\n"
    )
    (made / "varied.yaml").write_text(
        "name: varied\nsource: {type: log_file, include: [/var/log/varied.log]}\n"
        'record: {topic: "logs.{level}", allowed_topics: [logs.warn, logs.info]}\ntransforms: [{logfmt: {}}]\n'
    )
    return made


def worker_id(port: ConnectPort) -> str:
    return f"127.0.0.1:{port.number}"


def test_the_worker_tells_whose_api_it_speaks_and_what_it_is(port: ConnectPort) -> None:
    assert port.json("/") == {"version": "4.1.0", "commit": f"copycat-agent-{__version__}", "kafka_cluster_id": None}


def test_the_cluster_is_known_once_a_connector_has_met_it(port: ConnectPort, control: MemoryControl) -> None:
    control.states["app"] = dataclasses.replace(control.states["app"], cluster="c1")
    assert port.json("/")["kafka_cluster_id"] == "c1"
    control.states["varied"] = dataclasses.replace(control.states["varied"], cluster="c2")
    assert port.json("/")["kafka_cluster_id"] is None, "there is no one cluster"


@pytest.mark.parametrize("path", ["/connectors", "/connectors/", "/connectors?", "/connectors?other=1"])
def test_connectors_are_a_list_of_names(port: ConnectPort, path: str) -> None:
    assert port.json(path) == ["app", "varied"]


def test_a_connector_has_a_name_a_configuration_tasks_and_a_type(port: ConnectPort) -> None:
    info = port.json("/connectors/app")
    assert info == {"name": "app", "config": info["config"], "tasks": [{"connector": "app", "task": 0}], "type": "source"}
    assert info["config"] == port.json("/connectors/app/config") == port.json("/connectors/app/")["config"]
    assert {key: info["config"][key] for key in ("name", "connector.class", "tasks.max", "record.topic")} == {
        "name": "app", "connector.class": "log_file", "tasks.max": "1", "record.topic": "logs.app",
    }  # fmt: skip


def test_expansions_are_those_that_are_asked_for_and_known(port: ConnectPort) -> None:
    both = port.json("/connectors?expand=info&expand=status&expand=else")
    assert list(both) == ["app", "varied"]
    assert both["app"] == {"info": port.json("/connectors/app"), "status": port.json("/connectors/app/status")}
    assert port.json("/connectors/?expand=status")["app"] == {"status": both["app"]["status"]}
    assert port.json("/connectors?expand=else") == {"app": {}, "varied": {}}


@pytest.mark.parametrize(
    ("state", "shown", "tasks", "trace"),
    [
        (State.STARTING, "UNASSIGNED", 2, None),
        (State.RUNNING, "RUNNING", 2, None),
        (State.RETRYING, "RUNNING", 2, "no broker answers"),
        (State.BLOCKED, "RUNNING", 2, "no broker answers"),
        (State.PAUSED, "PAUSED", 2, None),
        (State.STOPPED, "STOPPED", 0, None),
        (State.FAILED, "FAILED", 2, "no broker answers"),
    ],
)
def test_each_state_has_connects_word(
    port: ConnectPort, control: MemoryControl, state: State, shown: str, tasks: int, trace: str | None
) -> None:
    control.states["varied"] = dataclasses.replace(control.states["varied"], state=state, reason="no broker answers")
    status = port.json("/connectors/varied/status")
    common = {"state": shown, "worker_id": worker_id(port), "version": __version__, **({"trace": trace} if trace else {})}
    each = [{"id": number, **common} for number in range(tasks)]
    assert status == {"name": "varied", "connector": common, "tasks": each, "type": "source"}
    assert len(port.json("/connectors/varied")["tasks"]) == len(port.json("/connectors/varied/tasks")) == tasks
    for number in range(tasks):
        assert port.json(f"/connectors/varied/tasks/{number}/status") == each[number]


def test_the_version_of_a_connector_is_that_of_its_plugin(port: ConnectPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SOURCES, "origin", lambda _: Provider("a-package", "7.8"))
    status, plugins = port.json("/connectors/app/status"), port.json("/connector-plugins")
    assert {one["version"] for one in (status["connector"], *status["tasks"], *plugins)} == {"7.8"}


def test_a_task_that_failed_always_has_a_trace(port: ConnectPort, control: MemoryControl) -> None:
    """A client reads it without looking whether it is there."""
    control.states["app"] = dataclasses.replace(control.states["app"], state=State.FAILED, reason="")
    assert port.json("/connectors/app/tasks/0/status")["trace"]


def test_tasks_have_the_configuration_of_their_connector(port: ConnectPort) -> None:
    config = {**port.json("/connectors/app/config"), "task.class": "log_file"}
    assert port.json("/connectors/app/tasks") == [{"id": {"connector": "app", "task": 0}, "config": config}]
    assert port.json("/connectors/app/tasks-config") == {"app-0": config}


def test_topics_are_those_that_the_definition_names(port: ConnectPort) -> None:
    assert port.json("/connectors/app/topics") == {"app": {"topics": ["logs.app"]}}
    assert port.json("/connectors/varied/topics") == {"varied": {"topics": ["logs.info", "logs.warn"]}}
    assert port.json("/connectors/nobody/topics") == {"nobody": {"topics": []}}


def test_offsets_are_partitions_and_offsets_by_path(port: ConnectPort, control: MemoryControl) -> None:
    assert port.json("/connectors/app/offsets") == {"offsets": []}
    control.saved = {
        SourcePartition("app", "1:2"): SourceOffset(9, path="/var/log/b.log"),
        SourcePartition("app", "1:1"): SourceOffset(5, path="/var/log/\udcff.log"),
        SourcePartition("varied", "1:3"): SourceOffset(1, path="/var/log/c.log"),
    }
    found = port.json("/connectors/app/offsets")["offsets"]
    assert [(one["partition"], one["offset"]["position"]) for one in found] == [({"key": "1:2"}, 9), ({"key": "1:1"}, 5)]
    assert found[1]["offset"]["path"] == "/var/log/\\xff.log"


def test_plugins_are_sources_and_all_others_where_they_are_asked_for(port: ConnectPort) -> None:
    sources = port.json("/connector-plugins")
    assert {"class": "log_file", "type": "source", "version": __version__} in sources
    assert {one["type"] for one in sources} == {"source"}
    assert port.json("/connector-plugins/?connectorsOnly=true") == sources
    every = port.json("/connector-plugins?connectorsOnly=false")
    assert [one for one in every if one["type"] == "source"] == sources
    assert {"transforms.json", "converters.json"} <= {one["class"] for one in every}


def test_every_plugin_tells_its_keys(port: ConnectPort) -> None:
    for plugin in port.json("/connector-plugins?connectorsOnly=false"):
        keys = port.json(f"/connector-plugins/{plugin['class']}/config")
        assert [one["order"] for one in keys] == list(range(1, len(keys) + 1))
        assert len({one["name"] for one in keys}) == len(keys), plugin
        for one in keys:
            assert one["type"] in {"BOOLEAN", "DOUBLE", "LIST", "LONG", "PASSWORD", "STRING"}
            assert (one["default_value"] is None) or (isinstance(one["default_value"], str) and not one["required"])


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("name", {"type": "STRING", "required": True, "importance": "HIGH", "group": "connector"}),
        ("connector.class", {"type": "STRING", "required": True}),
        ("tasks.max", {"type": "LONG", "required": False, "default_value": "2"}),
        ("source.include", {"type": "LIST", "required": True, "group": "source"}),
        ("source.line.max_bytes", {"type": "STRING", "default_value": "1MiB"}),
        ("record.topic", {"type": "STRING", "required": True, "default_value": None}),
        ("errors.dlq.topic", {"type": "STRING", "required": False}),
        ("delivery.linger", {"type": "STRING", "default_value": "50ms", "importance": "MEDIUM"}),
        ("kafka.security.password", {"type": "PASSWORD", "required": False}),
    ],
)
def test_a_key_tells_its_type_its_default_and_whether_it_is_needed(port: ConnectPort, key: str, expected: dict[str, Any]) -> None:
    (found,) = [one for one in port.json("/connector-plugins/log_file/config") if one["name"] == key]
    assert found.items() >= expected.items()
    assert found["documentation"]
    assert found.keys() == {
        "name", "type", "required", "default_value", "importance", "documentation", "group", "width", "display_name", "dependents", "order",
    }  # fmt: skip


def test_the_level_of_the_log_is_that_of_the_only_logger(port: ConnectPort, control: MemoryControl) -> None:
    level = {"level": "INFO", "last_modified": None}
    assert port.json("/admin/loggers") == {"root": level}
    assert port.json("/admin/loggers/root") == port.json("/admin/loggers/ROOT") == level


def test_health_tells_of_a_worker_that_starts_and_one_that_hangs(
    port: ConnectPort, control: MemoryControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = port.ask("/health")
    assert (starting.status, starting.json["status"]) == (503, "starting"), "no definition was read yet"
    view = dataclasses.replace(control.view(), last_reload=ReloadResult())
    monkeypatch.setattr(control, "view", lambda: view)
    assert port.json("/health")["status"] == "healthy"
    view = dataclasses.replace(view, hangs=True)
    hanging = port.ask("/health")
    assert (hanging.status, hanging.json["status"]) == (500, "unhealthy")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/connectors/nobody", "Connector nobody not found"),
        ("/connectors/nobody/config", "Connector nobody not found"),
        ("/connectors/nobody/status", "No status found for connector nobody"),
        ("/connectors/nobody/tasks", "Connector nobody not found"),
        ("/connectors/nobody/tasks-config", "Connector nobody not found"),
        ("/connectors/nobody/offsets", "Connector nobody not found"),
        ("/connectors/nobody/tasks/0/status", "No status found for task nobody-0"),
        ("/connectors/app/tasks/7/status", "No status found for task app-7"),
        ("/connectors/app/tasks/-1/status", "No status found for task app--1"),
        ("/connectors/app/tasks/x/status", "HTTP 404 Not Found"),
        ("/connectors/app/tasks/--5/status", "HTTP 404 Not Found"),
        ("/connectors/app/tasks/+-5/status", "HTTP 404 Not Found"),
        ("/connectors/app/tasks/99999999999/status", "HTTP 404 Not Found"),
        ("/connectors/app/tasks/%D9%A3/status", "HTTP 404 Not Found"),
        ("/connector-plugins/nobody/config", "Unknown plugin nobody."),
        ("/admin/loggers/nobody", "Logger nobody not found."),
        ("/nowhere", "HTTP 404 Not Found"),
        ("/v1/connectors", "HTTP 404 Not Found"),
        ("/metrics", "HTTP 404 Not Found"),
    ],
)
def test_what_is_not_there_is_told_in_connects_words(port: ConnectPort, path: str, message: str) -> None:
    answer = port.ask(path)
    assert (answer.status, answer.json) == (404, {"error_code": 404, "message": message})
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("state", State)
def test_what_programs_demand_of_answers_is_so_in_every_state(port: ConnectPort, control: MemoryControl, state: State) -> None:
    control.states["app"] = dataclasses.replace(control.states["app"], state=state)
    control.saved = {SourcePartition("app", "1:2"): SourceOffset(9, path="/var/log/b.log")}
    for path, demand in connect_demands.OF_THE_WORKER.items():
        connect_demands.check(demand, port.json(path))
    for path, demand in connect_demands.OF_A_CONNECTOR.items():
        connect_demands.check(demand, port.json(f"/connectors/app{path}"))
    connect_demands.check(connect_demands.Error, port.ask("/connectors/nobody").json)


def test_what_programs_demand_of_keys_is_so_for_each_plugin(port: ConnectPort) -> None:
    for plugin in port.json("/connector-plugins?connectorsOnly=false"):
        connect_demands.check(list[connect_demands.Key], port.json(f"/connector-plugins/{plugin['class']}/config"))


def test_a_connector_that_goes_in_between_is_left_out(port: ConnectPort, control: MemoryControl, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = control.statuses()
    monkeypatch.setattr(control, "statuses", lambda: statuses)
    del control.states["app"]
    assert list(port.json("/connectors?expand=info")) == ["varied"]


def test_no_answer_holds_a_secret(port: ConnectPort) -> None:
    for path in (
        "/connectors?expand=info&expand=status",
        "/connectors/app/config",
        "/connectors/app/tasks",
        "/connectors/app/tasks-config",
    ):
        answer = port.ask(path)
        assert answer.status == 200
        assert b"c4n4ry" not in answer.body
    assert port.json("/connectors/app/config")["kafka.security.password"] == "********"
