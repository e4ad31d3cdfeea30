"""Connectors that clients create, change and delete: as files, by those who may, and no further than api.connect.roots."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from copycat_agent.api.connect.routes import ROUTES
from copycat_agent.api.port_access import line_of
from copycat_agent.definitions import load_agent
from copycat_agent.definitions.formatting import format_text
from copycat_agent.errors import DefinitionError
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.worker import State
from tests.unit.api.conftest import PASSWORD, Answer, basic
from tests.unit.api.connect.conftest import ConnectPort, OpenConnect
from tests.unit.api.doubles import MemoryControl

Ask = Callable[..., Answer]
INVALID = "Connector configuration is invalid and contains the following "
SECRET = "Zq7-c4n4ry"


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    return made


@pytest.fixture
def good(roots: Path) -> dict[str, str]:
    return {"connector.class": "log_file", "source.include": f"{roots}/*.log", "record.topic": "logs"}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


@pytest.fixture
def control(directory: Path, roots: Path, tmp_path: Path, secret: Path) -> MemoryControl:
    (directory / "app.yaml").write_text(f"""\
# Owned by the shop team.
name: app
source: {{type: log_file, include: ["{roots}/app.log"], scan_interval: 60s}}
record:
  topic: logs.app  # not yet partitioned
  key: shop
  headers: {{token: "${{file:{secret}}}", team: shop}}
""")
    users = tmp_path / "users"
    users.write_text("\n".join((line_of("reader", PASSWORD, 1000), line_of("writer", PASSWORD, 1000, "operate"))))
    connect = {"listen": "127.0.0.1:0", "writable": True, "roots": (str(roots),)}
    return MemoryControl(directory, AgentOptions.model_validate({"api": {"users": str(users), "connect": connect}}))


@pytest.fixture
def port(open_connect: OpenConnect, control: MemoryControl) -> ConnectPort:
    return open_connect(users=control.options.api.users)


@pytest.fixture
def ask(port: ConnectPort) -> Ask:
    """`ask("PUT", "/connectors/app/config", body)` by a user who may."""

    def send(method: str, path: str, body: object = None) -> Answer:
        return port.ask(path, method, body, headers={"Authorization": basic("writer", PASSWORD)})

    return send


def files(control: MemoryControl) -> dict[str, str]:
    return {path.name: path.read_text() for path in control.directory.iterdir()}


@pytest.mark.parametrize("who", ["nobody", "reader"])
def test_who_may_only_read_defines_nothing(open_connect: OpenConnect, control: MemoryControl, good: dict[str, str], who: str) -> None:
    asked = open_connect(**({} if who == "nobody" else {"users": control.options.api.users}))
    headers = {} if who == "nobody" else {"Authorization": basic(who, PASSWORD)}
    before = files(control)
    for route in [route for route in ROUTES if route.defines]:
        answer = asked.ask(route.path.format(connector="app"), route.method, {"name": "new", "config": good}, headers=headers)
        assert (answer.status, answer.json["error_code"]) == (403, 403)
    assert files(control) == before


@pytest.mark.parametrize(
    ("state", "found"), [("", State.RUNNING), ("RUNNING", State.RUNNING), ("PAUSED", State.PAUSED), ("stopped", State.STOPPED)]
)
def test_a_new_connector_is_a_file_in_fmts_form(ask: Ask, control: MemoryControl, good: dict[str, str], state: str, found: State) -> None:
    body = {"name": "new", "config": {**good, "tasks.max": 3, "source.scan_interval": "9s"}}
    answer = ask("POST", "/connectors", {**body, "initial_state": state} if state else body)
    assert answer.status == 201
    assert answer.headers["Location"].endswith("/connectors/new")
    assert answer.headers["Location"].startswith("http://127.0.0.1:")
    assert answer.json == ask("GET", "/connectors/new").json
    assert answer.json["config"].items() >= {"name": "new", "connector.class": "log_file", "tasks.max": "3"}.items()
    text = files(control)["new.yaml"]
    assert text == format_text(text.encode())
    assert control.status("new").state is found


def test_a_name_that_is_taken_is_409(ask: Ask, control: MemoryControl, good: dict[str, str]) -> None:
    before = files(control)
    answer = ask("POST", "/connectors", {"name": "app", "config": good})
    assert (answer.status, answer.json) == (409, {"error_code": 409, "message": "Connector app already exists"})
    assert files(control) == before


def test_what_comes_back_as_it_was_shown_writes_nothing(ask: Ask, control: MemoryControl) -> None:
    before, stat = files(control), (control.directory / "app.yaml").stat()
    config = ask("GET", "/connectors/app/config").json
    assert config["record.headers"] == "********"
    answer = ask("PUT", "/connectors/app/config", config)
    assert (answer.status, answer.json["config"]) == (200, config)
    assert files(control) == before
    assert (control.directory / "app.yaml").stat().st_ino == stat.st_ino


def test_only_what_differs_is_written(ask: Ask, control: MemoryControl, secret: Path) -> None:
    config = ask("GET", "/connectors/app/config").json
    answer = ask("PUT", "/connectors/app/config", {**config, "record.topic": "logs.shop", "tasks.max": 3})
    assert answer.status == 200
    assert answer.json["config"] == {**config, "record.topic": "logs.shop", "tasks.max": "3"}
    text = files(control)["app.yaml"]
    assert "  topic: logs.shop  # not yet partitioned" in text.splitlines()
    assert text.startswith("# Owned by the shop team.\n")
    assert f"${{file:{secret}}}" in text
    assert "60s" in text
    assert "***" not in text
    assert SECRET not in text


def test_a_patch_changes_its_keys_and_null_deletes_one(ask: Ask, control: MemoryControl) -> None:
    before = ask("GET", "/connectors/app/config").json
    answer = ask("PATCH", "/connectors/app/config", {"record.topic": "t", "record.key": None, "enabled": None})
    expected = {**before, "record.topic": "t"}
    del expected["record.key"]
    assert (answer.status, answer.json["config"]) == (200, expected)
    assert ask("PATCH", "/connectors/app/config", {}).json["config"] == expected
    assert "key:" not in files(control)["app.yaml"]


def test_a_patch_of_a_whole_takes_the_place_of_its_parts(ask: Ask) -> None:
    assert ask("PATCH", "/connectors/app/config", {"transforms.0.json": "{}"}).json["config"]["transforms.0.json"] == "{}"
    config = ask("PATCH", "/connectors/app/config", {"transforms": '[{"logfmt": {}}]'}).json["config"]
    assert [key for key in config if key.startswith("transforms")] == ["transforms.0.logfmt"]


@pytest.mark.parametrize(
    "more",
    [
        {"transforms.0.json": "{}", "transforms": '[{"logfmt": {}}]'},
        {"transforms": '[{"logfmt": {}}]', "transforms.0.json": "{}"},
        {"source.line": "x", "source.line.max_bytes": "1MiB"},
    ],
)
def test_what_is_said_as_a_whole_and_in_parts_is_refused(ask: Ask, good: dict[str, str], more: dict[str, str]) -> None:
    (whole,) = (key for key in more if any(other.startswith(f"{key}.") for other in more))
    answer = ask("POST", "/connectors", {"name": "new", "config": {**good, **more}})
    assert (answer.status, f"{whole}: it is said as a whole and in parts" in answer.json["message"]) == (400, True), answer
    looked = ask("PUT", "/connector-plugins/log_file/config/validate", {**good, **more, "name": "new"})
    assert [one["value"]["name"] for one in looked.json["configs"] if one["value"]["errors"]] == [whole]


def test_names_with_dots_are_no_parts_of_each_other(ask: Ask, good: dict[str, str]) -> None:
    answer = ask("POST", "/connectors", {"name": "new", "config": {**good, "record.headers.a": "1", "record.headers.a.b": "2"}})
    assert {"record.headers.a": "1", "record.headers.a.b": "2"}.items() <= answer.json["config"].items()
    answer = ask("PATCH", "/connectors/new/config", {"record.headers.a": "3"})
    assert {"record.headers.a": "3", "record.headers.a.b": "2"}.items() <= answer.json["config"].items()


def test_put_creates_what_is_not_there(ask: Ask, control: MemoryControl, good: dict[str, str]) -> None:
    assert ask("PUT", "/connectors/new/config", good).status == 201
    assert ask("PUT", "/connectors/new/config", good).status == 200
    assert "new.yaml" in files(control)


def test_delete_removes_the_file(ask: Ask, control: MemoryControl) -> None:
    answer = ask("DELETE", "/connectors/app")
    assert (answer.status, answer.body) == (204, b"")
    assert ask("DELETE", "/connectors/app").json == {"error_code": 404, "message": "Connector app not found"}
    assert files(control) == {}


def test_where_the_file_says_something_else_than_what_runs_nothing_is_changed(ask: Ask, control: MemoryControl) -> None:
    path = control.directory / "app.yaml"
    for text in (path.read_text().replace("logs.app", "logs.other"), "name: [", ""):
        path.write_text(text)
        answer = ask("PUT", "/connectors/app/config", {"connector.class": "log_file", "source.include": "/x", "record.topic": "t"})
        assert answer.status == 409
        assert answer.json["message"].startswith("app.yaml holds something else than what runs as app")
        assert path.read_text() == text


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", "/connectors", None, "the body is not of the form"),
        ("POST", "/connectors", [], "the body is not of the form"),
        ("POST", "/connectors", {"name": "x", "config": {}, "other": 1}, "the body is not of the form"),
        ("POST", "/connectors", {"name": "x"}, "the configuration is no map of texts"),
        ("POST", "/connectors", {"name": "x", "config": {}}, "Connector config {name=x} contains no connector type"),
        ("POST", "/connectors", {"name": "x", "config": {"connector.class": "no"}}, "Failed to find any class that implements Connector"),
        ("POST", "/connectors", {"name": "x", "config": "GOOD", "initial_state": "NOPE"}, "initial_state is none of"),
        ("POST", "/connectors", {"config": "GOOD"}, f"{INVALID}1 error(s):\nname: 1 to 63"),
        ("POST", "/connectors", {"name": "a/b", "config": "GOOD"}, f"{INVALID}1 error(s):\nname: 1 to 63"),
        ("POST", "/connectors", {"name": "agent", "config": "GOOD"}, f"{INVALID}1 error(s):\nname: 1 to 63"),
        ("POST", "/connectors", {"name": "x", "config": {"name": "y", "connector.class": "log_file"}}, "doesn't match connector name"),
        ("PUT", "/connectors/app/config", {"name": "y", "connector.class": "log_file"}, "Connector name configuration (y) doesn't match"),
        ("PUT", "/connectors/app/config", {"connector.class": "log_file"}, f"{INVALID}2 error(s):\n"),
        ("PUT", "/connectors/app/config", {"topic": "x"}, "Connector config {name=app} contains no connector type"),
        ("PUT", "/connectors/app/config", {"connector.class": None}, f"{INVALID}1 error(s):\nNull value"),
        ("PUT", "/connectors/app/config", {"connector.class": {"a": 1}}, "the configuration is no map of texts"),
        ("PATCH", "/connectors/app/config", {"record.topic": None}, f"{INVALID}1 error(s):\nrecord.topic: "),
        ("PATCH", "/connectors/app/config", {"record.topci": "x"}, "did you mean topic"),
        ("PATCH", "/connectors/app/config", {"source.scan_interval": "nine"}, f"{INVALID}1 error(s):\nsource.scan_interval: "),
        ("PATCH", "/connectors/app/config", {"connector.class": None}, "Connector config {name=app} contains no connector type"),
        ("PATCH", "/connectors/app/config", {"name": "other"}, "Connector name configuration (other) doesn't match"),
        ("PATCH", "/connectors/app/config", [], "the configuration is no map of texts"),
    ],
)
def test_what_will_not_do_is_refused_before_anything_is_written(
    ask: Ask, control: MemoryControl, good: dict[str, str], method: str, path: str, body: Any, words: str
) -> None:
    before = files(control)
    if isinstance(body, dict) and body.get("config") == "GOOD":
        body = {**body, "config": good}
    answer = ask(method, path, body)
    assert (answer.status, answer.json["error_code"]) == (400, 400)
    assert words in answer.json["message"]
    assert files(control) == before


@pytest.mark.parametrize(
    "name",
    ["..", "../x", "..%2Fx", "%2e%2e%2fx", "a%00b", "x.yaml", ".hidden", "a%0Ab", "x" * 64, "%E2%82%AC", "Upper", "agent", "-x", "~root"],
)
def test_no_name_leads_out_of_the_directory(ask: Ask, control: MemoryControl, good: dict[str, str], name: str) -> None:
    before = files(control), sorted(control.directory.parent.iterdir())
    answer = ask("PUT", f"/connectors/{name}/config", good)
    assert answer.status in {400, 404, 405}
    assert ask("DELETE", f"/connectors/{name}").status in {404, 405}
    assert (files(control), sorted(control.directory.parent.iterdir())) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source.include", "/etc/shadow"),
        ("source.include", "ROOT/../secret"),
        ("source.include", "ROOT/link/shadow"),
        ("source.include", "ROOTx/a"),
        ("source.include", "/*/shadow"),
        ("source.include", '["ROOT/a", "/etc/shadow"]'),
        ("source", '{"include": ["/etc/shadow"]}'),
        ("source.symlink_roots", "/etc"),
        ("source.follow_hard_links", "true"),
        ("record.key", "${file:/etc/shadow}"),
        ("record.key", "x${env:HOME}"),
        ("record", '{"topic": "t", "key": "${cred:kafka}"}'),
        ("record.timestamp", "${ file:/etc/shadow}"),
        ("transforms", '[{"set": {"a": "${file:/etc/shadow}"}}]'),
        ("transforms.0.set.a", "${file:/etc/shadow}"),
        ("converters.value.schema", "/etc/shadow"),
        ("converters", '{"value": {"type": "avro", "schema": "/etc/shadow"}}'),
        ("converters.schema_registry.url", "http://evil.example"),
        ("kafka.bootstrap_servers", "evil.example:9092"),
        ("kafka", '{"bootstrap_servers": ["evil.example:9092"]}'),
        ("kafka.security.protocol", "SASL_PLAINTEXT"),
        ("kafka.client.ssl.ca.location", "/etc/shadow"),
        ("tests", '[{"input_file": "/etc/shadow", "expect": []}]'),
    ],
)
def test_nothing_that_a_client_defines_reads_another_file_or_tells_a_secret(
    ask: Ask, control: MemoryControl, good: dict[str, str], roots: Path, key: str, value: str
) -> None:
    (roots / "link").symlink_to("/etc")
    before, more = files(control), {key: value.replace("ROOT", str(roots))}
    answers = [
        ask("POST", "/connectors", {"name": "new", "config": {**good, **more}}),
        ask("PATCH", "/connectors/app/config", more),
    ]
    for answer in answers:
        assert answer.status == 400
        assert answer.json["message"].startswith(INVALID)
        assert "in the definition's file alone" in answer.json["message"] or "leads out of api.connect.roots" in answer.json["message"]
    assert files(control) == before
    looked = ask("PUT", "/connector-plugins/log_file/config/validate", {**good, **more, "name": "new"})
    assert looked.json["error_count"] > 0
    assert any("file alone" in text or "leads out" in text for one in looked.json["configs"] for text in one["value"]["errors"])


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": "spool_dir", "source.dir": "/etc", "record.topic": "t"},
        {
            "connector.class": "spool_dir",
            "source.dir": "ROOT",
            "source.cleanup.policy": "move",
            "source.cleanup.to": "/etc",
            "record.topic": "t",
        },
        {"connector.class": "spool_dir", "source.dir": "ROOT", "source.cleanup.failed_to": "/tmp", "record.topic": "t"},
        {"connector.class": "spool_dir", "source.dir": "s3://bucket/x", "record.topic": "t"},
        {"connector.class": "datasource", "source.class": "os:system", "record.topic": "t"},
        {"connector.class": "spool_dir", "source.dir": "ROOT", "source.pattern": "../*", "record.topic": "t"},
        {"connector.class": "spool_dir", "source.dir": "ROOT", "source.pattern": '["*", "/../secret"]', "record.topic": "t"},
        {"connector.class": "spool_dir", "source.dir": "ROOT", "source.ready.done_file": "../{name}", "record.topic": "t"},
        {"connector.class": "spool_dir", "source.dir": "ROOT", "source.ready": '{"done_file": "../../x"}', "record.topic": "t"},
    ],
)
def test_no_source_reads_or_cleans_up_elsewhere(ask: Ask, control: MemoryControl, roots: Path, config: dict[str, str]) -> None:
    before = files(control)
    answer = ask("PUT", "/connectors/new/config", {key: value.replace("ROOT", str(roots)) for key, value in config.items()})
    assert answer.status == 400
    why = (
        "leads out of api.connect.roots",
        "clients define log_file and spool_dir",
        "names of files have no slash",
        "is no name of a file",
    )
    assert any(words in answer.json["message"] for words in why)
    assert files(control) == before


@pytest.mark.parametrize(
    "step", ["{keep_if: {level: {not: [DEBUG, TRACE]}}}", "{set: {a: x}, if: {level: {not: {matches: ^D}, exists: true}}}"]
)
def test_a_configuration_as_it_is_shown_is_taken(ask: Ask, control: MemoryControl, step: str) -> None:
    path = control.directory / "app.yaml"
    path.write_text(path.read_text().replace("  headers", f"transforms: [{{json: {{}}}}, {step}]\n#"))
    control.definitions = MemoryControl(control.directory, control.options).definitions
    config = ask("GET", "/connectors/app/config").json
    assert ask("PUT", "/connector-plugins/log_file/config/validate", config).json["error_count"] == 0
    assert ask("POST", "/connectors", {"name": "new", "config": {**config, "name": "new"}}).status == 201
    assert control.definition("new").transforms == control.definition("app").transforms


def test_a_number_stays_a_number(ask: Ask, control: MemoryControl, good: dict[str, str]) -> None:
    numbers = {"a": 0.00001, "b": 1e16, "c": 1e-18, "d": 999999999999999999, "e": 1.5}
    config = {**good, "transforms.0.set": json.dumps(numbers), "transforms.1.sample": "0.00001"}
    assert ask("PUT", "/connector-plugins/log_file/config/validate", {**config, "name": "new"}).json["error_count"] == 0
    assert ask("POST", "/connectors", {"name": "new", "config": config}).status == 201
    definition = control.definition("new")
    assert definition.transforms[0].masked()["set"] == numbers
    shown = ask("GET", "/connectors/new/config").json
    before = files(control)
    assert ask("PUT", "/connectors/new/config", shown).status == 200
    assert files(control) == before


@pytest.mark.parametrize("number", ["12345678901234567890", "1e22", "1e-19", "1e-300", "NaN", "-Infinity"])
def test_a_number_that_a_definition_cannot_hold_is_refused_by_its_key(
    ask: Ask, control: MemoryControl, good: dict[str, str], number: str
) -> None:
    before, more = files(control), {"transforms.0.set": f'{{"a": {number}}}'}
    for answer in (
        ask("POST", "/connectors", {"name": "new", "config": {**good, **more}}),
        ask("PATCH", "/connectors/app/config", more),
    ):
        assert (answer.status, "transforms.0.set.a: a definition holds numbers of up to 18 digits" in answer.json["message"]) == (400, True)
    assert files(control) == before
    looked = ask("PUT", "/connector-plugins/log_file/config/validate", {**good, **more, "name": "new"})
    assert looked.json["error_count"] == 1


@pytest.mark.parametrize("uri", ["file:///root/.ssh", "s3://good/lake?endpoint_override=http%3A//evil.example&scheme=http", ""])
@pytest.mark.parametrize("before", ["", "sink: {type: files, uri: s3://good/lake}\n"], ids=["topics", "a store"])
def test_no_client_chooses_a_place_to_write_to_but_topics(
    ask: Ask, control: MemoryControl, good: dict[str, str], uri: str, before: str
) -> None:
    (control.directory / "app.yaml").write_text(f"name: app\nsource: {{type: kafka, topics: [orders]}}\nrecord: {{topic: t}}\n{before}")
    control.definitions = MemoryControl(control.directory, control.options).definitions
    shown, more = files(control), {"sink.type": "files", **({"sink.uri": uri} if uri else {"sink.path": "{@host}"})}
    config = ask("GET", "/connectors/app/config").json
    answers = [
        ask("PUT", "/connectors/app/config", {**config, **more}),
        ask("PATCH", "/connectors/app/config", more),
        ask("PATCH", "/connectors/app/config", {"sink": json.dumps({key.removeprefix("sink."): one for key, one in more.items()})}),
        ask("POST", "/connectors", {"name": "new", "config": {**good, **more}}),
    ]
    assert [(answer.status, "sink: this is said in the definition's file alone" in answer.json["message"]) for answer in answers] == [
        (400, True)
    ] * 4
    assert files(control) == shown
    assert ask("PUT", "/connectors/app/config", config).json["config"] == config
    assert files(control) == shown


def test_a_sink_that_a_client_leaves_out_stays(ask: Ask, control: MemoryControl) -> None:
    path = control.directory / "app.yaml"
    path.write_text(
        "name: app\nsource: {type: kafka, topics: [orders]}\nrecord: {topic: t}\nsink: {type: files, uri: s3://good/lake, path: a}\n"
    )
    control.definitions = MemoryControl(control.directory, control.options).definitions
    config = ask("GET", "/connectors/app/config").json
    without = {key: value for key, value in config.items() if not key.startswith("sink.")}
    for body in (without, {**without, "sink.uri": config["sink.uri"]}):
        assert ask("PUT", "/connectors/app/config", {**body, "limits.records_per_second": 5}).json["config"] == {
            **config,
            "limits.records_per_second": "5",
        }
    assert ask("PATCH", "/connectors/app/config", {"sink.path": None}).json["config"]["sink.path"] == "a"


def test_a_copy_of_a_configuration_may_say_what_agent_yaml_says_of_kafka(ask: Ask, control: MemoryControl) -> None:
    kafka = KafkaOptions(bootstrap_servers=("k1:9092",), client={"linger.ms": "5"})
    control.options = control.options.model_copy(update={"kafka": kafka})
    control.definitions = MemoryControl(control.directory, control.options).definitions
    config = ask("GET", "/connectors/app/config").json
    del config["record.headers"]
    assert config["kafka.client.linger.ms"] == "5"
    answer = ask("POST", "/connectors", {"name": "copy", "config": {**config, "name": "copy"}})
    assert answer.status == 201
    assert answer.json["config"] == {**config, "name": "copy"}
    assert "kafka" not in files(control)["copy.yaml"]
    for more in ({"kafka.client.linger.ms": "6"}, {"kafka.client.acks": "1"}):
        assert ask("PUT", "/connectors/new/config", {**config, "name": "new", **more}).status == 400


def test_what_a_file_says_beyond_that_stays_where_a_client_changes_something_else(ask: Ask, control: MemoryControl, roots: Path) -> None:
    path = control.directory / "app.yaml"
    path.write_text(path.read_text().replace(str(roots), "/elsewhere") + "kafka: {bootstrap_servers: [k:1]}\n")
    control.definitions = MemoryControl(control.directory, control.options).definitions
    config = ask("GET", "/connectors/app/config").json
    assert config["kafka.bootstrap_servers"] == '["k:1"]'
    assert ask("PUT", "/connectors/app/config", {**config, "record.topic": "t"}).status == 200
    assert "/elsewhere/app.log" in path.read_text()
    without = {key: value for key, value in config.items() if not key.startswith("kafka.")}
    assert ask("PUT", "/connectors/app/config", {**without, "record.topic": "t2"}).json["config"]["kafka.bootstrap_servers"] == '["k:1"]'
    answer = ask("PUT", "/connectors/app/config", {**config, "source.scan_interval": "3s"})
    assert "source.include: leads out of api.connect.roots" in answer.json["message"]


def test_a_hidden_value_moves_nowhere(ask: Ask, control: MemoryControl) -> None:
    before = files(control)
    answer = ask("PATCH", "/connectors/app/config", {"record.headers.more": "x"})
    assert (answer.status, "record.headers: it is hidden as a whole" in answer.json["message"]) == (400, True)
    for key in ("record.key", "errors.dlq.topic"):
        answer = ask("PATCH", "/connectors/app/config", {key: "********"})
        assert answer.status == 400
        assert f"{key}: ******** stands for a secret that is not there" in answer.json["message"]
    assert files(control) == before


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("transforms", "[" * 100_000, ""),
        ("transforms", "[" * 900 + "]" * 900, ""),
        ("source.exclude", "[" * 40 + "]" * 40, ""),
        ("record.headers.a", '{"a":' * 400 + "1" + "}" * 400, ""),
        ("x" + ".x" * 149, "1", ""),
        ("transforms", "[" + ",".join(f'{{"step{number}": 1}}' for number in range(2000)) + "]", "more than 100 steps"),
        ("source.exclude", "[" + ",".join('"a"' for _ in range(100_000)) + "]", "more than 5000 values"),
        ("record.key", "\ud800\x00\u202e\x1b[31m", ""),
        ("transforms.0.regex", "(a+)+$" * 1000, ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["POST", "PATCH", "validate"])
def test_no_configuration_takes_the_agent_long_or_makes_it_fail(
    ask: Ask, good: dict[str, str], method: str, key: str, text: str, words: str
) -> None:
    config = {**good, "name": "new", key: text}
    answer = {
        "POST": lambda: ask("POST", "/connectors", {"name": "new", "config": config}),
        "PATCH": lambda: ask("PATCH", "/connectors/app/config", {key: text}),
        "validate": lambda: ask("PUT", "/connector-plugins/log_file/config/validate", config),
    }[method]()
    assert answer.status in {200, 201, 400}
    assert answer.status == 400 or not words
    assert answer.status != 400 or words in answer.json["message"]


@pytest.mark.parametrize(
    ("connect", "words"),
    [
        ({"writable": "true", "roots": "[/var/log]"}, "needs api.users"),
        ({"writable": "true", "users": "/u"}, "needs roots"),
        ({"roots": "[/var/log]", "users": "/u"}, "needs writable: true"),
        ({"writable": "true", "roots": "[log]", "users": "/u"}, "absolute path without .."),
        ({"writable": "true", "roots": "[/var/../etc]", "users": "/u"}, "absolute path without .."),
    ],
)
def test_agent_yaml_opens_no_more_than_it_means(tmp_path: Path, connect: dict[str, str], words: str) -> None:
    users = f"users: {connect.pop('users')}, " if "users" in connect else ""
    said = ", ".join(f"{key}: {value}" for key, value in connect.items())
    path = tmp_path / "agent.yaml"
    path.write_text(f"api: {{{users}connect: {{listen: '127.0.0.1:8083', {said}}}}}\n")
    with pytest.raises(DefinitionError) as caught:
        load_agent(path)
    assert words in str([one.text for one in caught.value.problems])
