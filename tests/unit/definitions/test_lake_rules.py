"""What a definition of files in a store may say, and that a mistake in its sink is told once, where it is."""

from __future__ import annotations

import pytest

from tests.unit.definitions.conftest import Load

TOP = 'name: lake\nsource: {type: kafka, topics: ["orders.*"]}\nkafka: {bootstrap_servers: [b:9092]}\n'


def definition(*options: str, more: str = "", uri: str = "file:///lake/") -> str:
    """A definition whose options of the sink begin at line 6, behind type and, if it is not "", uri."""
    lines = ["type: files", f"uri: {uri}" if uri else "format: csv", *options]
    return TOP + "sink:" + "".join(f"\n  {one}" for one in lines) + f"\n{more}"


def steps(*items: str) -> str:
    return "transforms:\n" + "".join(f"  - {item}\n" for item in items)


BY_JSON = "converters: {value: json}\n"
BY_SCHEMA = "converters: {{value: {}, schema_registry: {{url: 'http://r:8081'}}}}\n"
GOOD = [
    definition("path: 'dt={@timestamp:%H:%M}/{c}'", uri="hdfs://host:8020/lake"), definition("path: 'a:b'"),
    definition("path: /{@topic}/"), definition('path: "{{a}}/{b}={c}"'), definition("format: lines", more=steps("drop_if: {message: x}")),
    definition("format: parquet", "compression: lz4", more=BY_JSON), definition("format: jsonl", more=BY_JSON + steps("set: {a: 1}")),
    definition("format: lines", more="converters: {value: string}\n"),
    definition("format: lines", more=steps("{set: {a: 1}, if: {message: x}}")),
    definition("format: binary", more=steps("{json: {}, on_error: keep}")),
    definition("format: lines", more=BY_SCHEMA.format("avro")),
]  # fmt: skip
BAD = [
    (definition("roll: {bytes: 50KiB}"), 7, "must be at least 64KiB"),
    (definition("format: csv", "compression: lz4"), 8, "format csv takes compression none, gzip, zstd"),
    (definition("format: cvs", "compression: lz4"), 7, "needs one of"),
    (definition(uri="/tmp/x"), 6, "known are file://, s3://, gs://, abfss://"),
    (definition(uri="viewfs://host/lake"), 6, "known are file://, s3://, gs://, abfss://, hdfs://"),
    (definition(uri="hdfs://host/a:b"), 6, "no names with a colon"),
    (definition("path: 'a:b/{c}'", uri="hdfs://host/lake"), 7, "no names with a colon"),
    (definition('path: ""'), 7, "must not be empty"),
    (definition("path: a//{b}"), 7, "an empty part"),
    (definition("path: '{b}//a'"), 7, "an empty part"),
    (definition("path: a=/{b}"), 7, "an empty part"),
    (definition(uri=""), 4, "uri is missing"),
    (definition().replace("type: files", "type: flies"), 5, "unknown sink"),
    (definition("format: lines", more=BY_JSON), 7, "converters.value: json makes fields"),
    (definition("format: binary", more=BY_SCHEMA.format("protobuf")), 7, "protobuf makes fields"),
    (definition("format: lines", more=steps("drop_if: {message: x}", "set: {a: 1}")), 7, "transforms[1] set makes fields"),
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_what_works_is_good(load: Load, text: str) -> None:
    assert load(text).problems == ()


@pytest.mark.parametrize(("text", "line", "words"), BAD)
def test_a_mistake_is_told_once_with_its_line(load: Load, text: str, line: int, words: str) -> None:
    (problem,) = load(text).problems
    assert words in problem.text
    assert problem.line == line, problem


def test_a_bad_sink_hides_no_mistake_elsewhere(load: Load) -> None:
    first, second = load(definition("format: cvs", more="delivery: {guarantee: maybe}\n")).problems
    assert (first.line, second.line) == (7, 8)
