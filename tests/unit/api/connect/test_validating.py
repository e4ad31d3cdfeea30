"""`config/validate` tells every key with its value and what is wrong with it, and what is right comes out as the definition it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from copycat_agent.api.connect.calls import Call, WorkerView
from copycat_agent.api.connect.flat_config import flat_config
from copycat_agent.api.connect.nested_config import keys_below, nested
from copycat_agent.api.connect.plugin_views import keys_of
from copycat_agent.api.connect.validation import KEYS_MAX, validate
from copycat_agent.api.guard import StatusError
from copycat_agent.definitions import load_content, load_file
from copycat_agent.options import AgentOptions
from tests.unit.api.doubles import MemoryControl

GOOD = {"name": "app", "connector.class": "log_file", "source.include": "/var/log/app.log", "record.topic": "logs"}
EXAMPLES = sorted((Path(__file__).parents[4] / "connectors.d").glob("*.yaml*"))


@pytest.fixture
def view(control: MemoryControl) -> WorkerView:
    return WorkerView(control, "127.0.0.1:8083")


def asked(view: WorkerView, config: object, plugin: str = "log_file") -> Any:
    return validate(view, Call({"plugin": plugin}, {}, config)).value


def errors(answer: Any) -> dict[str, list[str]]:
    return {one["value"]["name"]: one["value"]["errors"] for one in answer["configs"] if one["value"]["errors"]}


def values(answer: Any) -> dict[str, str | None]:
    return {one["value"]["name"]: one["value"]["value"] for one in answer["configs"]}


def test_a_good_configuration_has_no_error_and_all_keys(view: WorkerView) -> None:
    answer = asked(view, GOOD)
    assert (answer["name"], answer["error_count"], errors(answer)) == ("log_file", 0, {})
    assert values(answer).items() >= {**GOOD, "tasks.max": "2", "delivery.linger": "50ms"}.items()
    assert set(answer["groups"]) == {one["definition"]["group"] for one in answer["configs"]}
    for one in answer["configs"]:
        assert one["value"].keys() == {"name", "value", "recommended_values", "errors", "visible"}
        assert one["definition"]["name"] == one["value"]["name"]


def test_what_only_names_its_class_is_told_all_that_it_lacks(view: WorkerView) -> None:
    """As a client asks of every plugin."""
    answer = asked(view, {"connector.class": "log_file", "topics": "x"})
    assert errors(answer).keys() == {"name", "source.include", "record.topic", "topics"}
    assert answer["error_count"] == 4
    assert "unknown key" in errors(answer)["topics"][0]


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("name", "Bad Name", "does not match"),
        ("tasks.max", "many", "needs a whole number"),
        ("tasks.max", "1000", "64"),
        ("source.include", "relative", "absolute path"),
        ("source.lien.max_bytes", "1MiB", "did you mean line"),
        ("delivery.linger", "5", "a number and a unit"),
        ("delivery.guarantee", "exactly-once", "exactly_once"),
        ("record.topic", "{level}", "prefix"),
        ("transforms.0.regex", "(", "not a regular expression"),
        ("transforms.0.regexx", "x", "did you mean regex"),
        ("converters.value", "nope", "unknown converter"),
        ("kafka.client.nope", "x", "no property of librdkafka"),
        ("source.type", "spool_dir", ""),
    ],
)
def test_what_is_wrong_is_told_at_its_key(view: WorkerView, key: str, text: str, words: str) -> None:
    told = errors(asked(view, {**GOOD, key: text}))
    if not words:
        assert told == {}, "Connect's name counts"
        return
    (name,) = told
    assert key.startswith(name) or name.startswith(key)
    assert words in told[name][0]


@pytest.mark.parametrize(
    "more",
    [
        {"tasks.max": 4, "enabled": True, "limits.records_per_second": 5},
        {"source.include": "/a/*.log, /b/*.log"},
        {"record.headers.a.b": "x", "record.headers.c": "5", "kafka.client.linger.ms": "5"},
        {
            "transforms.0.json": "{}",
            "transforms.1.set.a.b": "x",
            "transforms.10.drop_if.path": '{"matches": "^/h"}',
            "transforms.2.logfmt": "{}",
        },
        {"transforms": '[{"json": {}}]', "converters.value": "json"},
        {"transforms.0.regex": "(?P<a>.*)", "transforms.0.on_error": "drop"},
        {"record.partition": "3"},
        {"record.partition": "sticky", "source.exclude": None},
        {"errors.tolerance": "all", "errors.dlq.topic": "bad"},
    ],
)
def test_values_are_taken_as_the_kind_that_is_wanted(view: WorkerView, more: dict[str, object]) -> None:
    assert errors(asked(view, {**GOOD, **more})) == {}


def test_a_format_may_have_its_type_in_short_and_options_beside_it(view: WorkerView, tmp_path: Path) -> None:
    config = {"name": "app", "connector.class": "spool_dir", "source.dir": str(tmp_path), "record.topic": "logs"}
    answer = asked(view, {**config, "source.format": "csv", "source.format.delimiter": ";"}, "spool_dir")
    assert errors(answer) == {}
    assert values(answer)["source.format.delimiter"] == ";"
    assert list(errors(asked(view, {**config, "source.format": "csv", "source.format.nope": ";"}, "spool_dir"))) == ["source.format.nope"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_definition_is_the_same_after_it_was_a_configuration(view: WorkerView, path: Path) -> None:
    agent = AgentOptions()
    definition = load_file(path, agent, environ={}, offline=True).definition
    assert definition is not None
    config = flat_config(definition)
    assert errors(asked(view, config, config["connector.class"])) == {}
    keys = keys_of(config["connector.class"])
    assert keys is not None
    back = nested(config, {key.name: key for key in (*keys, *keys_below(config))})
    loaded = load_content(path, json.dumps(back).encode(), agent, environ={}).definition
    assert loaded is not None
    assert flat_config(loaded) == config


@pytest.mark.parametrize(
    ("plugin", "config", "status", "words"),
    [
        ("log_file", {}, 400, "contains no connector type"),
        ("log_file", None, 400, "no map of texts"),
        ("log_file", [], 400, "no map of texts"),
        ("log_file", {"connector.class": {"a": 1}}, 400, "no map of texts"),
        ("spool_dir", GOOD, 400, "Included connector type log_file does not match request type spool_dir"),
        ("nobody", {"connector.class": "nobody"}, 500, "Failed to find any class that implements Connector and which name matches nobody"),
        ("transforms.json", {"connector.class": "transforms.json"}, 500, "Failed to find any class"),
        ("log_file", {**GOOD, **dict.fromkeys(map(str, range(KEYS_MAX)), "x")}, 400, "more than 1000 keys"),
        ("log_file", {**GOOD, "a." * 5000: "x"}, 400, "more than 300 characters"),
        ("log_file", {**GOOD, "transforms.0.set.a": "[" * 500 + "]" * 500}, 400, "cannot be read"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(view: WorkerView, plugin: str, config: object, status: int, words: str) -> None:
    with pytest.raises(StatusError) as told:
        asked(view, config, plugin)
    assert told.value.status == status
    assert words in str(told.value)


def test_a_password_is_not_told_again_and_no_reference_is_followed(
    view: WorkerView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("c4n4ry-file")
    monkeypatch.setenv("CANARY", "c4n4ry-env")
    config = {
        **GOOD, "kafka.security.password": "c4n4ry-given", "kafka.security.protocol": "nope c4n4ry-given",
        "record.key": f"${{file:{tmp_path}/secret}}", "delivery.linger": "${env:CANARY}", "record.topic": "${env:CANARY}",
        "converters.value": "${env:CANARY}", "record.value": f"${{file:{tmp_path}/nowhere}}",
    }  # fmt: skip
    answer = asked(view, config)
    assert values(answer)["kafka.security.password"] == "********"
    told = json.dumps(answer)
    assert "c4n4ry-file" not in told
    assert "c4n4ry-env" not in told
    assert "record.value" not in errors(answer), "whether a file is there is not told either"
