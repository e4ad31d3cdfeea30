"""What `check` says of converters with schemas: every mistake with its place and the next step, before anything runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from copycat_agent.agent.definition_files import DefinitionFiles
from copycat_agent.definitions import load_file
from copycat_agent.options import AgentOptions

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.definitions import LoadedFile

RECORD = {"type": "record", "name": "R", "fields": [{"name": "message", "type": "string"}]}
PROTO = 'syntax = "proto3"; message R { string message = 1; }'
REGISTRY = "schema_registry: {url: 'http://127.0.0.1:8081'}"


def load(tmp_path: Path, converters: str) -> LoadedFile:
    for name, text in (("r.avsc", json.dumps(RECORD)), ("r.json", '{"type": "object"}'), ("r.proto", PROTO), ("bad", "{"), ("ca.pem", "x")):
        (tmp_path / name).write_text(text)
    text = f"name: a\nsource: {{type: log_file, include: [/l/*]}}\n\nrecord: {{topic: t}}\nconverters: {converters}\n"
    path = tmp_path / "a.yaml"
    path.write_text(text.replace("DIR", str(tmp_path)))
    return load_file(path, AgentOptions())


@pytest.mark.parametrize(
    "value",
    [
        "avro", "json_schema", "protobuf", "{type: avro, schema: DIR/r.avsc}", "{type: avro, schema: DIR/r.avsc, subject_strategy: record}",
        "{type: json_schema, schema: DIR/r.json, validate: false}",
        "{type: protobuf, schema: DIR/r.proto, message: R, auto_register: true}",
        "{type: avro, auto_register: true}", "{type: json_schema, auto_register: true}", "{type: avro, subject: s, extra_fields: drop}",
    ],
)  # fmt: skip
def test_what_can_work_loads(value: str, tmp_path: Path) -> None:
    loaded = load(tmp_path, f"{{value: {value}, {REGISTRY}}}")
    assert loaded.problems == ()
    assert loaded.definition is not None


@pytest.mark.parametrize(
    ("converters", "place", "words"),
    [
        ("{value: avro}", "avro", "needs a schema registry"),
        ("{key: {type: protobuf}}", "{type", "needs a schema registry"),
        ("{value: avro, schema_registry: {url: 'http://u:p@h:1'}}", "'http", "has a login in it"),
        ("{value: avro, schema_registry: {url: 'h:8081'}}", "'h:8081'", "is no address of a registry"),
        ("{value: avro, schema_registry: {url: 'http://a:1,http://b:1'}}", "'http", "is no address"),
        ("{value: avro, schema_registry: {url: 'http://a:x'}}", "'http", "is no address"),
        ("{value: avro, schema_registry: {url: 'http://a', ca_file: DIR/ca.pem}}", "DIR/ca.pem", "needs an https:// address"),
        ("{value: avro, schema_registry: {url: 'https://a', ca_file: DIR/ca.pem}}", "DIR/ca.pem", "holds no certificates"),
        ("{value: avro, schema_registry: {url: 'https://a', ca_file: /nope}}", "/nope", "No such file"),
        ("{value: avro, schema_registry: {url: 'http://a', basic_auth: {username: 'a:b', password: x}}}", "'a:b'", "has a : in it"),
        (f"{{value: {{type: avro, schema: r.avsc}}, {REGISTRY}}}", "r.avsc", "needs an absolute path"),
        (f"{{value: {{type: avro, schema: /nope}}, {REGISTRY}}}", "/nope", "No such file"),
        (f"{{value: {{type: avro, schema: DIR/bad}}, {REGISTRY}}}", "DIR/bad", "it is no JSON"),
        (f"{{value: {{type: json_schema, schema: DIR/bad}}, {REGISTRY}}}", "DIR/bad", "it is no JSON"),
        (f"{{value: {{type: protobuf, schema: DIR/bad}}, {REGISTRY}}}", "DIR/bad", "bad:1:1"),
        (f"{{value: {{type: protobuf, schema: DIR/r.proto, message: X}}, {REGISTRY}}}", "DIR/r.proto", "no message 'X'; there are R"),
        (f"{{value: {{type: protobuf, auto_register: true}}, {REGISTRY}}}", "true", "needs a schema to register"),
        (f"{{value: {{type: avro, subject_strategy: record}}, {REGISTRY}}}", "record", "only known with its schema"),
        (f"{{value: {{type: avro, subject: s, subject_strategy: topic}}, {REGISTRY}}}", "topic", "has no effect beside subject"),
        (f"{{value: {{type: json_schema, schema: DIR/r.json, subject_strategy: record}}, {REGISTRY}}}", "record", "has no title"),
        (f"{{value: {{type: json_schema, extra_fields: drop}}, {REGISTRY}}}", "extra_fields", "unknown key"),
    ],
)
def test_what_cannot_work_is_told_with_its_place(converters: str, place: str, words: str, tmp_path: Path) -> None:
    (problem, *others) = load(tmp_path, converters).problems
    assert words in problem.text, (problem, others)
    assert problem.hint or problem.code == "bad-value"
    assert (problem.path, problem.line) == (str(tmp_path / "a.yaml"), 5)
    written = f"converters: {converters}".replace("DIR", str(tmp_path))
    assert written[problem.column - 1 :].startswith(place.replace("DIR", str(tmp_path)))


def test_declared_fields_are_compared_with_the_schema(tmp_path: Path) -> None:
    (tmp_path / "two.avsc").write_text(json.dumps({**RECORD, "fields": [{"name": "other", "type": "string"}]}))
    problems = load(tmp_path, f"{{value: {{type: avro, schema: DIR/two.avsc}}, {REGISTRY}}}").problems
    assert ["no field 'message'" in problems[0].text, "needs a field 'other'" in problems[1].text] == [True, True]


def test_a_schema_that_changes_is_a_definition_that_changes(tmp_path: Path) -> None:
    one = load(tmp_path, f"{{value: {{type: avro, schema: DIR/r.avsc}}, {REGISTRY}}}").definition
    again = load(tmp_path, f"{{value: {{type: avro, schema: DIR/r.avsc}}, {REGISTRY}}}").definition
    RECORD["doc"] = "changed"
    try:
        other = load(tmp_path, f"{{value: {{type: avro, schema: DIR/r.avsc}}, {REGISTRY}}}").definition
    finally:
        del RECORD["doc"]
    assert one == again != other
    assert one is not None
    assert one.masked()["converters"]["value"]["schema_"] == str(tmp_path / "r.avsc"), "its path, not its text"


def test_a_schemas_file_is_followed_like_the_definition_itself(tmp_path: Path) -> None:
    for style in (f"{{type: avro, schema: {tmp_path}/r.avsc}}", f"\n    type: avro\n    schema: '{tmp_path}/r.avsc'"):
        load(tmp_path, f"\n  {REGISTRY}\n  value: {style}")
        files = DefinitionFiles(tmp_path, None, {})
        before = files.look()
        (tmp_path / "r.avsc").write_text("{}")
        assert files.look() != before, "another text of the schema is another definition"
