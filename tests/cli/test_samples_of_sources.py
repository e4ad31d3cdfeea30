"""`copycat try FILE` and `copycat test` take samples of every source, also of those that read no files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from copycat_agent.sources import SOURCES
from copycat_agent.workbench.explaining.examples import LEAST_OF_SOURCES

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

LEAST = {"log_file": {"source.type": "type: log_file", "source.include": "include: [/var/log/*.log]"}, **LEAST_OF_SOURCES}
LINE = '{"a":1}'
LAKE = "name: lake\nsource: {type: kafka, topics: ['shop-.*']}\nsink: {type: files, uri: 'file:///lake', path: '{@topic}', format: jsonl}\n"
AVRO = "converters: {value: avro, schema_registry: {url: 'http://127.0.0.1:1'}}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample").write_text(f"{LINE}\n")
    return tmp_path


def copycat(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"NO_COLOR": "1"})


def tried(definition: str) -> list[dict[str, Any]]:
    """Returns what comes out of the sample."""
    done = copycat("try", "sample", "-d", definition, "--format", "json")
    assert done.exit_code == 0, (done.output, done.exception)
    return [output for record in json.loads(done.stdout)["records"] for output in record["outputs"]]


@pytest.mark.parametrize("source", list(SOURCES))
def test_a_sample_of_every_source_is_tried_and_tested(here: Path, source: str) -> None:
    case = f"tests: [{{input: '{LINE}', expect: [{{topic: t, value: '{LINE}'}}]}}]"
    (here / "d.yaml").write_text(f"name: d\nsource: {{{', '.join(LEAST[source].values())}}}\nrecord: {{topic: t}}\n{case}\n")
    (output,) = tried("d.yaml")
    assert output["topic"] == "t"
    assert output["value"] in (LINE, json.loads(LINE))
    done = copycat("test", ".")
    assert done.exit_code == 0, done.output


def test_a_sample_of_a_topic_has_a_place_in_it_and_a_key(here: Path) -> None:
    steps = "transforms: [{json: {}}, {set: {place: '{@topic}/{@partition}@{@offset}', key: '{@key}'}}]"
    case = "{input: [a, '{}'], file: {path: far/3}, expect: [{value: {place: far/3@1}}], dead_letters: [{step: json}]}"
    definition = "name: d\nsource: {type: kafka, topics: [x]}\nrecord: {topic: 'copy.{@topic}', partition: source}\n"
    (here / "d.yaml").write_text(f"{definition}{steps}\ntests: [{case}]\n")
    (output,) = tried("d.yaml")
    assert (output["topic"], output["value"]) == ("copy.x", {"a": 1, "place": "x/0@0", "key": "key"})
    done = copycat("test", ".")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("converters", ["", "converters: {value: json}\n", AVRO])
def test_a_sample_of_a_lake_shows_its_directory(here: Path, converters: str) -> None:
    (here / "d.yaml").write_text(f"{LAKE}{converters}")
    (output,) = tried("d.yaml")
    assert output["topic"] == "shop-lake/"
    assert output["value"] == (json.loads(LINE) if converters else LINE)


def test_a_sample_of_an_object_is_read_in_its_format_under_a_name_that_the_source_would_read(here: Path) -> None:
    source = "{type: objects, uri: 's3://logs/cdn/?region=eu', pattern: '*.csv', format: csv}"
    case = 'tests: [{input: "a,b\\n1,2\\n", expect: [{key: "s3://logs/cdn/d.csv", value: {a: "1", b: "2"}}]}]'
    (here / "d.yaml").write_text(f"name: d\nsource: {source}\nrecord: {{topic: t, key: '{{@file.path}}'}}\n{case}\n")
    done = copycat("test", ".")
    assert done.exit_code == 0, done.output
