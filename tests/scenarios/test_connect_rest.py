"""A worker of Kafka Connect and an agent, side by side on one file, asked the same: they answer alike, but for what docs/api.md names."""

from __future__ import annotations

import re
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from kafka_connect import KafkaConnect
from py4j.protocol import Py4JJavaError
from requests import HTTPError

from copycat_agent.api.port_access import line_of
from copycat_agent.dev_broker import free_port
from tests.rig import connect_demands
from tests.rig.agent import AgentProcess
from tests.rig.connect import ConnectWorker, RestAnswer, ask
from tests.rig.connect_java import JavaClients
from tests.rig.kafka import create_topic, unique_topic
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import PASSWORD, basic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker

GOOD: dict[str, dict[str, str]] = {}
"""What a connector of each class needs beside the class, for a body that says `GOOD`."""
THEIR_CLASS, OUR_CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector", "log_file"
WORKER_ID = re.compile(r"127\.0\.0\.1:\d+")
TOPICS = {"topic", "record.topic"}
MASKED = {"version", "commit", "kafka_cluster_id", "last_modified", "level", "trace"}


class Both(NamedTuple):
    """`HOST:PORT` of each; both have one connector `app` with one task."""

    theirs: str
    ours: str

    def ask(self, method: str, path: str, body: object = None) -> tuple[RestAnswer, RestAnswer]:
        """What each answers; CLASS stands for its class of connectors."""
        login = {"Authorization": basic("writer", PASSWORD)}
        found = [
            ask(address, method, path.replace("CLASS", kind), _named(body, kind), login)
            for address, kind in ((self.theirs, THEIR_CLASS), (self.ours, OUR_CLASS))
        ]
        return masked(found[0]), masked(found[1])


def _named(value: Any, kind: str) -> Any:
    if isinstance(value, dict) and "GOOD" in value:
        return {
            "connector.class": kind,
            "tasks.max": "1",
            **GOOD[kind],
            **{key: _named(one, kind) for key, one in value.items() if key != "GOOD"},
        }
    if isinstance(value, dict):
        return {key: _named(inner, kind) for key, inner in value.items()}
    return kind if value == "CLASS" else value


def masked(answer: RestAnswer) -> RestAnswer:
    """The answer with what is each one's own replaced by what kind of thing it is."""
    return answer._replace(value=_masked(answer.value), location="somewhere" if answer.location else "")


def _masked(value: Any, key: str = "") -> Any:
    if key in MASKED:
        return "masked"
    if isinstance(value, dict) and "connector.class" in value:
        topics = {one for key, one in value.items() if key in TOPICS}
        return {"text to text": all(isinstance(one, str) for one in value.values()), "tasks.max": value["tasks.max"], "topics": topics}
    if key == "worker_id":
        return "a worker" if WORKER_ID.fullmatch(value) else value
    if isinstance(value, dict):
        return {name: _masked(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_masked(one) for one in value]
    return value.replace(THEIR_CLASS, "CLASS").replace(OUR_CLASS, "CLASS") if isinstance(value, str) else value


@pytest.fixture(scope="module")
def connect_worker(broker: DevBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    """A real worker with one connector, `app`; its topic is named in its settings."""
    root = tmp_path_factory.mktemp("connect")
    topic = create_topic(broker.bootstrap, unique_topic())
    (root / "app.log").write_text("one\ntwo\n")
    settings = {"connector.class": THEIR_CLASS, "file": str(root / "app.log"), "topic": topic}
    with ConnectWorker(root, broker.bootstrap, {"app": settings}) as worker:
        yield worker


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Below it the agent has all that is its own."""
    return tmp_path_factory.mktemp("agent")


@pytest.fixture(scope="module")
def both(broker: DevBroker, connect_worker: ConnectWorker, root: Path) -> Iterator[Both]:
    """Each has read the file and sent it."""
    port = free_port()
    (root / "users").write_text(line_of("writer", PASSWORD, 1000, "operate"))
    settings = connect_worker.connectors["app"]
    more = root / "more.log"
    more.write_text("one\n")
    GOOD[THEIR_CLASS] = {"file": str(more), "topic": settings["topic"]}
    GOOD[OUR_CLASS] = {"source.include": str(more), "record.topic": settings["topic"]}
    connect = f"{{listen: '127.0.0.1:{port}', writable: true, roots: [{root}]}}"
    (root / "agent.yaml").write_text(f"api: {{users: {root}/users, connect: {connect}}}\n")
    agent = AgentProcess(root, broker.bootstrap)
    source = {"type": "log_file", "include": [settings["file"]]}
    agent.define("app", {"source": source, "record": {"topic": settings["topic"]}, "delivery": {"tasks_max": 1}})
    with agent.start():
        pair = Both(connect_worker.address, f"127.0.0.1:{port}")
        wait_until(lambda: _is_done(pair), 180, lambda: f"the agent's log ends:\n{agent.log[-4000:]}")
        yield pair


def _is_done(pair: Both) -> bool:
    try:
        _, ours = pair.ask("GET", "/connectors/app/offsets")  # Connect saves them once a minute, and when it stops
        topics = pair.ask("GET", "/connectors/app/topics")
        run = _states(pair) == [["RUNNING", "RUNNING"]] * 2
    except OSError:
        return False
    return run and bool(ours.status == 200 and ours.value["offsets"]) and all(one.value["app"]["topics"] for one in topics)


ALIKE = (
    "/", "/health", "/connectors", "/connectors/", "/connectors?expand=info&expand=status", "/connectors?expand=nope", "/connectors/app",
    "/connectors/app/", "/connectors/app/config", "/connectors/app/status", "/connectors/app/tasks", "/connectors/app/tasks/0/status",
    "/connectors/app/tasks/7/status", "/connectors/app/tasks/-1/status", "/connectors/app/tasks/x/status", "/connectors/app/topics",
    "/connectors/nobody", "/connectors/nobody/config", "/connectors/nobody/status", "/connectors/nobody/tasks",
    "/connectors/nobody/tasks/0/status", "/connectors/nobody/topics", "/connectors/nobody/offsets", "/connectors/%E2%82%AC%20x",
    "/connector-plugins/nobody/config", "/admin/loggers/root", "/admin/loggers/nobody",
)  # fmt: skip


@pytest.mark.parametrize("path", ALIKE)
def test_what_is_read_is_alike(both: Both, path: str) -> None:
    theirs, ours = both.ask("GET", path)
    assert ours == theirs


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nowhere"),
        ("GET", "/connectors/app/nowhere"),
        ("GET", "/connectors/app/pause"),
        ("POST", "/connectors/app"),
        ("PATCH", "/connectors/app"),
        ("PUT", "/connectors"),
        ("DELETE", "/"),
        ("TRACE", "/connectors"),
    ],
)
def test_an_address_that_is_none_and_a_method_that_will_not_do_are_told_alike(both: Both, method: str, path: str) -> None:
    """Connect declares these bodies as nothing; ours say that they are JSON."""
    theirs, ours = both.ask(method, path)
    assert (ours.status, ours.value) == (theirs.status, theirs.value)


def test_both_name_the_same_kafka_cluster(both: Both) -> None:
    login = {"Authorization": basic("writer", PASSWORD)}

    def ids() -> list[str | None]:
        return [ask(address, "GET", "/", headers=login).value["kafka_cluster_id"] for address in both]

    wait_until(lambda: ids()[1], 60, lambda: f"{ids()}")
    theirs, ours = ids()
    assert ours == theirs


def test_plugins_have_the_same_form(both: Both) -> None:
    for query in ("", "?connectorsOnly=true", "?connectorsOnly=false"):
        theirs, ours = both.ask("GET", f"/connector-plugins{query}")
        forms = [{tuple(sorted(one)) for one in answer.value} for answer in (theirs, ours)]
        assert forms[0] == forms[1]
        assert {one["type"] for one in ours.value} <= {one["type"] for one in theirs.value}
        assert any(one["class"] == "CLASS" for one in ours.value)


def test_keys_of_a_plugin_have_the_same_form(both: Both) -> None:
    theirs, ours = both.ask("GET", "/connector-plugins/CLASS/config")
    assert ours.status == theirs.status == 200
    assert {tuple(sorted(one)) for one in ours.value} == {tuple(sorted(one)) for one in theirs.value}
    for name in ("required", "order"):
        assert {type(one[name]) for one in ours.value} == {type(one[name]) for one in theirs.value}


def test_a_configuration_is_looked_at_in_the_same_form(both: Both) -> None:
    theirs, ours = both.ask("PUT", "/connector-plugins/CLASS/config/validate", {"connector.class": "CLASS"})
    assert (ours.status, ours.value.keys()) == (theirs.status, theirs.value.keys())
    assert ours.value["error_count"] > 0
    assert theirs.value["error_count"] > 0
    for part in ("definition", "value"):
        forms = [{tuple(sorted(one[part])) for one in answer.value["configs"]} for answer in (theirs, ours)]
        assert forms[0] == forms[1]
    for answer in (theirs, ours):
        assert answer.value["error_count"] == sum(len(one["value"]["errors"]) for one in answer.value["configs"])


@pytest.mark.parametrize("included", ["CLASS", "nobody"])
def test_a_class_that_is_none_is_told_alike(both: Both, included: str) -> None:
    plugin = "nobody" if included == "CLASS" else "CLASS"
    theirs, ours = both.ask("PUT", f"/connector-plugins/{plugin}/config/validate", {"connector.class": included})
    assert ours == theirs


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/connectors/nobody/pause", None),
        ("PUT", "/connectors/nobody/resume", None),
        ("POST", "/connectors/nobody/restart?includeTasks=true", None),
        ("POST", "/connectors/app/tasks/x/restart", None),
        ("PATCH", "/connectors/nobody/offsets", {"offsets": [{"partition": {"key": "1:1"}, "offset": {"position": 1}}]}),
        ("PATCH", "/connectors/app/offsets", {"offsets": [{"partition": {"key": "1:1"}, "offset": {"position": 1}}]}),
        ("PATCH", "/connectors/app/offsets", {"offsets": []}),
        ("PATCH", "/connectors/app/offsets", {"offsets": None}),
        ("PATCH", "/connectors/app/offsets", {}),
        ("DELETE", "/connectors/nobody/offsets", None),
        ("DELETE", "/connectors/app/offsets", None),
        ("PUT", "/admin/loggers/root", {"level": "LOUD"}),
        ("PUT", "/admin/loggers/root", {}),
        ("PUT", "/admin/loggers/root?scope=cluster", {"level": "WARN"}),
    ],
)
def test_what_cannot_be_done_is_told_alike(both: Both, method: str, path: str, body: object) -> None:
    theirs, ours = both.ask(method, path, body)
    assert ours == theirs


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/connectors/nobody/stop", None, 404),
        ("POST", "/connectors/nobody/restart", None, 404),
        ("PATCH", "/connectors/app/offsets", None, 400),
        ("PATCH", "/connectors/app/offsets", b"{", 400),
        ("PATCH", "/connectors/app/offsets", [], 400),
        ("PUT", "/admin/loggers/root", None, 400),
        ("POST", "/connectors", None, 400),
        ("POST", "/connectors", b"{", 400),
        ("POST", "/connectors", [], 400),
        ("POST", "/connectors", {}, 400),
        ("POST", "/connectors", {"name": "x"}, 400),
        ("POST", "/connectors", {"name": "x", "config": {"GOOD": 1}, "initial_state": "NOPE"}, 400),
        ("POST", "/connectors", {"name": "x", "config": {"GOOD": 1}, "other": 1}, 400),
        ("POST", "/connectors", {"name": "x", "config": {"GOOD": 1, "a": {"b": 1}}}, 400),
        ("PUT", "/connectors/app/config", None, 400),
        ("PUT", "/connectors/app/config", b"{", 400),
        ("PUT", "/connectors/app/config", [], 400),
        ("PATCH", "/connectors/app/config", [], 400),
        ("PATCH", "/connectors/app/config", None, 400),
        ("PUT", "/connector-plugins/CLASS/config/validate", {}, 400),
        ("PUT", "/connector-plugins/CLASS/config/validate", [], 400),
    ],
)
def test_where_connect_fails_the_agent_says_what_is_wrong(both: Both, method: str, path: str, body: object, status: int) -> None:
    """A fault of Connect's own, 500 there: if it is mended, ours should be looked at again."""
    theirs, ours = both.ask(method, path, body)
    assert (theirs.status, ours.status, ours.value["error_code"]) == (500, status, status)


@pytest.mark.parametrize("sent", ["a%2Fb", "a%00b", "a%0d%0ab", "%ff", "a%252Fb", "/status"])
def test_an_ambiguous_name_is_refused_by_both(both: Both, sent: str) -> None:
    """By Connect's web server, before Connect sees it; by ours as a name that is not there."""
    theirs, ours = both.ask("GET", f"/connectors/{sent}")
    assert (theirs.status, ours.status, ours.value["error_code"]) == (400, 404, 404)


def test_a_connector_goes_through_the_same_states(both: Both) -> None:
    def are_alike(path: str) -> bool:
        """A restart may be under way at either: its state before it is the one after it."""
        theirs, ours = both.ask("GET", path)
        return ours == theirs

    def change(method: str, path: str, connector: str, *tasks: str) -> None:
        theirs, ours = both.ask(method, f"/connectors/app/{path}")
        assert ours == theirs
        wait_until(lambda: _states(both) == [[connector, *tasks]] * 2, message=lambda: f"after {path}: {_states(both)}")
        for address in ("", "/status", "/tasks", "/tasks/0/status", "/topics"):
            wait_until(partial(are_alike, f"/connectors/app{address}"), 60, f"{address} after {path}")

    change("PUT", "pause", "PAUSED", "PAUSED")
    change("PUT", "pause", "PAUSED", "PAUSED")
    change("POST", "restart?includeTasks=true", "PAUSED", "PAUSED")
    change("PUT", "resume", "RUNNING", "RUNNING")
    change("POST", "restart", "RUNNING", "RUNNING")
    change("POST", "restart?includeTasks=true", "RUNNING", "RUNNING")
    change("POST", "restart?includeTasks=true&onlyFailed=true", "RUNNING", "RUNNING")
    change("POST", "restart?includeTasks=nope", "RUNNING", "RUNNING")
    change("POST", "tasks/0/restart", "RUNNING", "RUNNING")
    change("PUT", "stop", "STOPPED")
    change("PUT", "stop", "STOPPED")
    change("POST", "restart", "STOPPED")
    change("POST", "restart?includeTasks=true", "STOPPED")
    for method, body in (("DELETE", None), ("DELETE", None), ("GET", None)):
        theirs, ours = both.ask(method, "/connectors/app/offsets", body)
        assert ours == theirs
    change("PUT", "resume", "RUNNING", "RUNNING")


def has_state(both: Both, name: str, state: str) -> None:
    """Wait until this connector is so at both, and its task, which one that is stopped has not."""
    wanted = [state] if state == "STOPPED" else [state, state]
    wait_until(lambda: _states(both, name) == [wanted, wanted], 60, lambda: f"{name} is {_states(both, name)}, not {state}")


def _states(both: Both, name: str = "app") -> list[list[str]]:
    """Of each the connector's state and its tasks'."""
    answers = both.ask("GET", f"/connectors/{name}/status")
    return [
        [one.value["connector"]["state"], *(task["state"] for task in one.value["tasks"])] if one.status == 200 else [f"{one.status}"]
        for one in answers
    ]


def test_offsets_that_a_client_has_read_can_be_given_back_to_each(both: Both) -> None:
    both.ask("PUT", "/connectors/app/stop")
    wait_until(lambda: _states(both) == [["STOPPED"]] * 2, message=lambda: f"{_states(both)}")
    login = {"Authorization": basic("writer", PASSWORD)}
    for address in both:
        shown = ask(address, "GET", "/connectors/app/offsets", headers=login).value
        assert [one.keys() for one in shown["offsets"]] == [{"partition", "offset"}]
        none = {"offsets": [{**one, "offset": None} for one in shown["offsets"]]}
        for body, left in ((none, {"offsets": []}), (shown, shown)):
            answer = ask(address, "PATCH", "/connectors/app/offsets", body, login)
            assert (answer.status, answer.value) == (200, {"message": "The offsets for this connector have been altered successfully"})
            assert ask(address, "GET", "/connectors/app/offsets", headers=login).value == left
    both.ask("PUT", "/connectors/app/resume")
    has_state(both, "app", "RUNNING")


def test_a_connector_is_made_changed_and_deleted_alike(both: Both) -> None:
    def same(method: str, path: str, body: object = None, status: int = 0) -> None:
        theirs, ours = both.ask(method, path, body)
        assert ours == theirs
        assert not status or ours.status == status

    same("POST", "/connectors", {"name": "new", "config": {"GOOD": 1}}, 201)
    has_state(both, "new", "RUNNING")
    same("POST", "/connectors", {"name": "new", "config": {"GOOD": 1}}, 409)
    same("GET", "/connectors")
    for body in ({"GOOD": 1, "tasks.max": 1}, {"GOOD": 1, "name": "new"}):
        same("PUT", "/connectors/new/config", body, 200)
    same("PATCH", "/connectors/new/config", {}, 200)
    same("PUT", "/connectors/new/stop", None, 204)
    has_state(both, "new", "STOPPED")
    same("PUT", "/connectors/new/config", {"GOOD": 1}, 200)
    has_state(both, "new", "STOPPED")
    same("DELETE", "/connectors/new", None, 204)
    for path in ("", "/config", "/status", "/offsets"):
        same("GET", f"/connectors/new{path}", None, 404)
    same("DELETE", "/connectors/new", None, 404)
    same("PUT", "/connectors/new/config", {"GOOD": 1}, 201)
    has_state(both, "new", "RUNNING")
    same("DELETE", "/connectors/new", None, 204)


@pytest.mark.parametrize("state", ["STOPPED", "paused"])
def test_a_connector_begins_in_the_state_that_is_asked_for(both: Both, state: str) -> None:
    body = {"name": f"new-{state.lower()}", "config": {"GOOD": 1}, "initial_state": state}
    assert [one.status for one in both.ask("POST", "/connectors", body)] == [201, 201]
    seen = set()

    def is_so() -> bool:
        theirs, ours = both.ask("GET", f"/connectors/{body['name']}/status")
        seen.add(ours.value["connector"]["state"])
        return bool(ours.value["connector"] == theirs.value["connector"])

    wait_until(is_so, 60, lambda: f"{seen}")
    assert seen <= {"UNASSIGNED", state.upper()}
    assert [one.status for one in both.ask("DELETE", f"/connectors/{body['name']}")] == [204, 204]


def test_the_address_of_a_new_connector_is_told_alike(both: Both) -> None:
    login = {"Authorization": basic("writer", PASSWORD)}
    for address, kind in ((both.theirs, THEIR_CLASS), (both.ours, OUR_CLASS)):
        for method, path, body in (
            ("POST", "/connectors", {"name": "addressed", "config": {"GOOD": 1}}),
            ("PUT", "/connectors/addressed/config", {"GOOD": 1}),
        ):
            answer = ask(address, method, path, _named(body, kind), login)
            assert (answer.status, answer.location) == (201, f"http://{address}/connectors/addressed")
            assert ask(address, "DELETE", "/connectors/addressed", headers=login).status == 204


@pytest.mark.parametrize(
    ("method", "path", "body", "same"),
    [
        ("POST", "/connectors", {"name": "x", "config": {"GOOD": 1, "name": "y"}}, True),
        ("POST", "/connectors", {"config": {"GOOD": 1, "name": "y"}}, True),
        ("POST", "/connectors", {"name": "x", "config": {}}, True),
        ("POST", "/connectors", {"name": "x", "config": {"GOOD": 1, "x": None}}, True),
        ("POST", "/connectors", {"name": "x", "config": {"connector.class": "CLASS"}}, False),
        ("POST", "/connectors", {"name": "x", "config": {"connector.class": "nobody"}}, False),
        ("POST", "/connectors", {"config": {"GOOD": 1}}, False),
        ("POST", "/connectors", {"name": "", "config": {"GOOD": 1}}, False),
        ("POST", "/connectors", {"name": "a\nb", "config": {"GOOD": 1}}, False),
        ("POST", "/connectors", {"name": "x", "config": {"GOOD": 1, "tasks.max": "0"}}, False),
        ("PUT", "/connectors/app/config", {"GOOD": 1, "name": "y"}, True),
        ("PUT", "/connectors/app/config", {}, True),
        ("PUT", "/connectors/app/config", {"connector.class": "CLASS"}, False),
        ("PUT", "/connectors/app/config", {"connector.class": "nobody"}, False),
        ("PATCH", "/connectors/nobody/config", {"x": "y"}, True),
        ("PATCH", "/connectors/app/config", {"topic": None, "record.topic": None}, False),
        ("PATCH", "/connectors/app/config", {"connector.class": None}, False),
        ("DELETE", "/connectors/nobody", None, True),
    ],
)
def test_a_configuration_that_will_not_do_is_told_alike(both: Both, method: str, path: str, body: object, same: bool) -> None:
    """`same`: in the very same words."""
    theirs, ours = both.ask(method, path, body)
    assert (ours.status, ours.content_type, ours.value.keys()) == (theirs.status, theirs.content_type, theirs.value.keys())
    if same:
        assert ours == theirs


def test_what_programs_demand_of_answers_is_so_at_both_in_every_state(both: Both) -> None:
    """At Connect, too: so the demands are no more than theirs."""

    def check(demand: Any, method: str, path: str, body: object = None) -> None:
        login = {"Authorization": basic("writer", PASSWORD)}
        for address, kind in ((both.theirs, THEIR_CLASS), (both.ours, OUR_CLASS)):
            answer = ask(address, method, path.replace("CLASS", kind), _named(body, kind), login)
            assert (answer.status < 400) is (demand is not connect_demands.Error), answer
            connect_demands.check(demand, answer.value)

    created = {"name": "demanded", "config": {"GOOD": 1}}
    check(connect_demands.Info, "POST", "/connectors", created)
    check(connect_demands.Error, "POST", "/connectors", created)
    for order, state in (("resume", "RUNNING"), ("pause", "PAUSED"), ("stop", "STOPPED")):
        check(None, "PUT", f"/connectors/demanded/{order}")
        has_state(both, "demanded", state)
        for path, demand in connect_demands.OF_A_CONNECTOR.items():
            check(demand, "GET", f"/connectors/demanded{path}")
        for path, demand in connect_demands.OF_THE_WORKER.items():
            check(demand, "GET", path)
    check(connect_demands.Message, "DELETE", "/connectors/demanded/offsets")
    check(connect_demands.Info, "PUT", "/connectors/demanded/config", {"GOOD": 1})
    check(None, "PUT", "/connectors/demanded/resume")
    has_state(both, "demanded", "RUNNING")
    check(connect_demands.TaskState, "GET", "/connectors/demanded/tasks/0/status")
    check(connect_demands.State, "POST", "/connectors/demanded/restart?includeTasks=true")
    check(list[connect_demands.Key], "GET", "/connector-plugins/CLASS/config")
    check(connect_demands.Validated, "PUT", "/connector-plugins/CLASS/config/validate", {"GOOD": 1})
    check(connect_demands.Validated, "PUT", "/connector-plugins/CLASS/config/validate", {"connector.class": "CLASS"})
    check(list[str], "PUT", "/admin/loggers/root", {"level": "INFO"})
    check(None, "DELETE", "/connectors/demanded")
    check(connect_demands.Error, "GET", "/connectors/demanded/status")


def test_a_listing_is_one_of_all_others_whatever_becomes_of_a_connector(both: Both, root: Path) -> None:
    """kafka-ui shows a listing that fails as a page without connectors."""
    login = {"Authorization": basic("writer", PASSWORD)}
    config = {"connector.class": OUR_CLASS, **GOOD[OUR_CLASS]}
    over, found = threading.Event(), list[RestAnswer]()

    def listing() -> Any:
        return ask(both.ours, "GET", "/connectors?expand=info&expand=status", headers=login)

    def look() -> None:
        while not over.is_set():
            found.append(listing())

    def has_looked_twice(before: int) -> bool:
        return len(found) >= before + 2

    files = [root / "connectors.d" / name for name in ("broken.yaml", "elsewhere.yaml")]
    files[0].write_text("name: broken\nsource: [\n")
    source = f"{{type: log_file, include: ['{GOOD[OUR_CLASS]['source.include']}']}}"
    files[1].write_text(f"name: elsewhere\nsource: {source}\nrecord: {{topic: nowhere}}\nkafka: {{bootstrap_servers: ['127.0.0.1:1']}}\n")
    looking = threading.Thread(target=look)
    looking.start()
    try:
        wait_until(lambda: "elsewhere" in listing().value, 60, lambda: f"{listing()}")
        for _ in range(5):
            assert ask(both.ours, "POST", "/connectors", {"name": "brief", "config": config}, login).status == 201
            wait_until(partial(has_looked_twice, len(found)), message="the second look began after it came")
            assert ask(both.ours, "DELETE", "/connectors/brief", headers=login).status == 204
    finally:
        over.set()
        looking.join()
        for path in files:
            path.unlink()
    wait_until(lambda: listing().value.keys() == {"app"}, 60, lambda: f"{listing()}")
    assert {one.status for one in found} == {200}
    for one in found:
        assert "app" in connect_demands.check(dict[str, connect_demands.Expanded], one.value)
    assert {name for one in found for name in one.value} == {"app", "elsewhere", "brief"}, "it saw them come"


class Clients(NamedTuple):
    """kafka-connect-py (PyPI), once for each."""

    theirs: Any
    ours: Any

    def call(self, method: str, *arguments: Any) -> Any:
        """What both calls return, which has to be the same; GOOD and CLASS stand in arguments for each one's own."""
        found = [
            _masked(getattr(client, method)(*(_named(one, kind) for one in arguments)))
            for client, kind in ((self.theirs, THEIR_CLASS), (self.ours, OUR_CLASS))
        ]
        assert found[0] == found[1], method
        return found[1]


@pytest.fixture
def clients(both: Both) -> Clients:
    return Clients(*(KafkaConnect(f"http://{address}", f"writer:{PASSWORD}") for address in both))


def test_a_client_reads_both_alike(clients: Clients) -> None:
    assert clients.call("list_connectors") == ["app"]
    for expand in ("info", "status"):
        assert clients.call("list_connectors", expand).keys() == {"app"}
    for method in ("get_connector", "get_connector_config", "get_connector_status", "list_connector_tasks", "list_connector_topics"):
        assert clients.call(method, "app")
    assert clients.call("get_connector_task_status", "app", 0)["state"] == "RUNNING"
    assert clients.call("get_cluster_info").keys() == {"version", "commit", "kafka_cluster_id"}
    for client in clients:
        assert {one["type"] for one in client.list_connector_plugins()} <= {"source", "sink"}


def test_a_client_makes_changes_and_deletes_a_connector_at_both(clients: Clients, both: Both) -> None:
    assert clients.call("create_connector", {"name": "made", "config": {"GOOD": 1}})["name"] == "made"
    has_state(both, "made", "RUNNING")
    assert sorted(clients.call("list_connectors", None, "made|app", "running")) == ["app", "made"]
    assert clients.call("update_connector", "made", {"GOOD": 1, "tasks.max": "1"})["name"] == "made"
    for client, kind in ((clients.theirs, THEIR_CLASS), (clients.ours, OUR_CLASS)):
        shown = client.get_connector_config("made")
        assert client.update_connector("made", shown)["config"] == shown, kind
        assert client.validate_connector_config(kind, shown)["error_count"] == 0
    for method, state in (("pause_connector", "PAUSED"), ("resume_connector", "RUNNING"), ("stop_connector", "STOPPED")):
        clients.call(method, "made")
        has_state(both, "made", state)
    clients.call("resume_connector", "made")
    has_state(both, "made", "RUNNING")
    clients.call("restart_connector", "made")
    clients.call("restart_connector", "made", True, True)
    has_state(both, "made", "RUNNING")
    clients.call("delete_connector", "made")
    assert clients.call("list_connectors") == ["app"]


@pytest.mark.parametrize(
    ("method", "arguments", "status"),
    [
        ("create_connector", [{"name": "app", "config": {"GOOD": 1}}], 409),
        ("create_connector", [{"name": "x", "config": {"connector.class": "CLASS"}}], 400),
        ("update_connector", ["app", {"connector.class": "nobody"}], 400),
        ("get_connector", ["nobody"], 404),
        ("delete_connector", ["nobody"], 404),
        ("pause_connector", ["nobody"], 404),
    ],
)
def test_what_a_client_cannot_do_it_is_told_by_both(clients: Clients, method: str, arguments: list[Any], status: int) -> None:
    for client, kind in ((clients.theirs, THEIR_CLASS), (clients.ours, OUR_CLASS)):
        with pytest.raises(HTTPError) as caught:
            getattr(client, method)(*(_named(one, kind) for one in arguments))
        assert caught.value.response is not None
        assert caught.value.response.status_code == status


@pytest.fixture(scope="module")
def java_clients() -> Iterator[JavaClients]:
    with JavaClients() as clients:
        yield clients


def test_the_client_of_akhq_reads_makes_changes_and_deletes_a_connector_at_both(both: Both, java_clients: JavaClients) -> None:
    clients = [java_clients.client(address, "writer", PASSWORD) for address in both]
    kinds = THEIR_CLASS, OUR_CLASS

    def same(method: str, *arguments: Any) -> Any:
        found = [_masked(one.call(method, *arguments)) for one in clients]
        assert found[0] == found[1], method
        return found[1]

    configs = [{"connector.class": kind, "tasks.max": "1", **GOOD[kind]} for kind in kinds]
    made = [_masked(client.add("akhq", config)) for client, config in zip(clients, configs, strict=True)]
    assert made[0] == made[1]
    has_state(both, "akhq", "RUNNING")
    assert [sorted(one.call("getConnectors")) for one in clients] == [["akhq", "app"]] * 2
    for method in ("getConnector", "getConnectorConfig", "getConnectorStatus", "getConnectorTasks"):
        assert same(method, "akhq")
    assert same("getConnectServerVersion")
    assert same("getConnectorsWithAllExpandedMetadata")
    assert same("getConnectorTopics", "app")
    assert same("getConnectorTaskStatus", "akhq", 0)["state"] == "RUNNING"
    for client, kind, config in zip(clients, kinds, configs, strict=True):
        assert any(kind in one.values() for one in client.call("getConnectorPlugins"))
        assert client.validate(kind, {"name": "akhq", **config})["error_count"] == 0
        shown = client.call("getConnectorConfig", "akhq")
        assert client.call("updateConnectorConfig", "akhq", shown)["config"] == shown
    has_state(both, "akhq", "RUNNING")
    for method, *rest, state in (("pauseConnector", "PAUSED"), ("resumeConnector", "RUNNING"), ("restartConnector", "RUNNING"),
                                 ("restartConnectorTask", 0, "RUNNING")):  # fmt: skip
        assert same(method, "akhq", *rest) is True
        has_state(both, "akhq", str(state))
    assert same("deleteConnector", "akhq") is True
    for client in clients:
        with pytest.raises(Py4JJavaError, match="ResourceNotFoundException"):
            client.call("getConnector", "akhq")
        with pytest.raises(Py4JJavaError, match="InvalidRequestException"):
            client.add("akhq", {"connector.class": "nobody"})
