"""Samples go through the real pipeline, and what became of each record is told: which step dropped it, which one failed, what came out."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import DataError, FatalError, FileError
from copycat_agent.producer import TaskProducer
from copycat_agent.workbench.trying import RecordingProducer, SampleContext, TrialResult, likely_path, take

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from copycat_agent.options import Definition

    Define = Callable[..., Definition]

REGEX = r"regex: '^(?P<level>\w+) (?P<text>.*)$'"
FILTERED = f"transforms: [{{{REGEX}}}, {{drop_if: {{level: DEBUG}}}}]\nerrors: {{tolerance: all, dlq: {{topic: t.dlq}}}}"
SPOOL = "{type: spool_dir, dir: /var/spool/in, pattern: 'orders-*.csv', format: "


def fates(samples: TrialResult) -> list[str]:
    return [one.fate for one in samples.records]


def values(samples: TrialResult) -> list[Any]:
    return [output.value for one in samples.records for output in one.outputs]


def test_each_record_tells_what_became_of_it_and_by_which_step(define: Define) -> None:
    samples = take(define(FILTERED), b"INFO all is well\nDEBUG x\n!\n")
    sent, dropped, failed = samples.records
    assert (sent.fate, sent.number, sent.raw, sent.start, sent.end) == ("sent", 1, b"INFO all is well", 0, 17)
    (output,) = sent.outputs
    assert (output.value, output.payload) == ({"level": "INFO", "text": "all is well"}, b'{"level":"INFO","text":"all is well"}')
    assert [(step.name, step.outcome) for step in sent.steps] == [("transforms[0] regex", "done"), ("transforms[1] drop_if", "done")]
    assert (sent.steps[0].before, sent.steps[0].after) == (b"INFO all is well", {"level": "INFO", "text": "all is well"})
    assert dropped.fate == "dropped"
    assert dropped.ended_by is dropped.steps[1]
    assert (failed.fate, failed.stage, failed.outputs) == ("dead-lettered", "transform", ())
    assert failed.ended_by is failed.steps[0]
    assert failed.error is not None
    assert failed.error.message.startswith("transforms[0] regex: ")


@pytest.mark.parametrize(
    ("errors", "on_error", "fate"),
    [
        ("{tolerance: all, dlq: {topic: d}}", "", "dead-lettered"),
        ("{tolerance: all}", "", "passed over"),
        ("{tolerance: none}", "", "stops"),
        ("{tolerance: all, dlq: {topic: d}}", ", on_error: stop", "stops"),
        ("{tolerance: none}", ", on_error: drop", "dropped"),
        ("{tolerance: none}", ", on_error: keep", "sent"),
    ],
)
def test_a_bad_record_goes_the_way_of_its_policy_and_those_behind_it_are_looked_at_too(
    define: Define, errors: str, on_error: str, fate: str
) -> None:
    samples = take(define(f"transforms: [{{{REGEX}{on_error}}}]\nerrors: {errors}"), b"!\nINFO x\n")
    assert fates(samples) == [fate, "sent"]
    bad = samples.records[0].steps[0]
    assert bad.error is not None
    assert "does not match" in bad.error.message
    assert bad.outcome == {"dropped": "dropped", "sent": "kept"}.get(fate, "failed")
    assert samples.error is None


def test_a_step_whose_if_does_not_match_is_skipped(define: Define) -> None:
    samples = take(define(f"transforms: [{{{REGEX}, if: {{message: {{matches: INFO}}}}}}]"), b"DEBUG x\n")
    assert samples.records[0].steps[0].outcome == "skipped"


def test_a_record_that_no_template_fits_fails_in_its_stage(define: Define) -> None:
    samples = take(define(f"transforms: [{{{REGEX}}}]", record="{topic: t, key: '{user}'}"), b"INFO x\n")
    (failed,) = samples.records
    assert (failed.stage, failed.fate, failed.ended_by) == ("record", "stops", None)
    assert failed.error is not None
    assert "'user' is missing" in failed.error.message


def test_over_long_lines_are_told_though_they_reach_no_step(define: Define) -> None:
    source = "{type: log_file, include: [/x], line: {max_bytes: 1KiB, on_too_long: %s}}"
    content = b"a" * 5000 + b"\nshort\n"
    letter, short = take(define("errors: {tolerance: all, dlq: {topic: d}}", source=source % "dlq"), content).records
    assert (letter.fate, letter.stage, letter.number, short.number) == ("dead-lettered", "frame", 1, 2)
    dropped = take(define(source=source % "drop"), content)
    assert (len(dropped.records), dropped.long_dropped) == (1, 1)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_more_records_are_looked_at_than_asked_for_dropped_ones_included(define: Define, count: int) -> None:
    samples = take(define(FILTERED), b"DEBUG x\n" * 3 + b"INFO x\n" * 100_000, most=count)
    assert (fates(samples), samples.has_more) == (["dropped"] * count, True)
    assert not take(define(FILTERED), b"DEBUG x\n" * count, most=count).has_more


def test_a_file_is_read_no_further_than_for_the_records_asked_for(define: Define) -> None:
    cut_off = gzip.compress(b"DEBUG x\n" * 1_000_000)[:-9]
    assert take(define(FILTERED), cut_off, most=2).damage == ""


def test_what_a_record_was_before_a_step_is_not_changed_by_it(define: Define) -> None:
    first, second = take(define("transforms: [{json: {}}, {convert: {n: int}}, {set: {m: x}}]"), b'{"n": "1"}\n').records[0].steps[1:]
    assert (first.before, first.after) == ({"n": "1"}, {"n": 1})
    assert (second.before, second.after) == ({"n": 1}, {"n": 1, "m": "x"})


def test_packed_files_are_unpacked(define: Define, tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    samples = take(define(record="{topic: t, key: '{@file.name}'}"), path)
    assert [(output.value, output.key) for one in samples.records for output in one.outputs] == [
        (b"one", b"a.log.gz"),
        (b"two", b"a.log.gz"),
    ]
    damaged = take(define(), gzip.compress(b"one\ntwo\n" * 1000)[:-9])
    assert "cut off" in damaged.damage or damaged.damage


def test_lines_are_grouped_as_they_are_in_a_run_and_the_last_group_ends(define: Define) -> None:
    source = "{type: log_file, include: [/x], multiline: {preset: indented}}"
    assert values(take(define(source=source), b"a\n  b\nc\n  d")) == [b"a\n  b", b"c\n  d"]
    assert values(take(define(source=source), b"a\n  b\nc\n  d\n")) == [b"a\n  b", b"c\n  d"]


def test_rows_of_files_have_their_fields(define: Define) -> None:
    source = SPOOL + "{type: csv, header: true, types: {qty: int}}}"
    samples = take(define(source=source, record="{topic: t, headers: {row: '{@record.number}'}}"), b"id,qty\nx,3\ny,four\n")
    good, bad = samples.records
    assert (good.outputs[0].fields, good.raw) == ({"id": "x", "qty": 3}, b"x,3")
    assert (bad.stage, bad.raw) == ("parse", b"y,four")
    jsonl = take(define(source=SPOOL + "jsonl}"), b'{"a": 1}\n')
    assert (jsonl.records[0].outputs[0].fields, jsonl.records[0].outputs[0].payload) == ({"a": 1}, b'{"a": 1}')


def test_what_templates_know_of_file_and_host_can_be_said(define: Define) -> None:
    headers = "{f: '{@file.path}', i: '{@file.inode}', h: '{@host}', r: '{@read_time:%Y-%m-%d %H:%M}', o: '{@offset}'}"
    where = SampleContext("/var/log/x.log", 1_700_000_000_000, 7, "web1", 1_600_000_000_000)
    samples = take(define(record=f"{{topic: t, timestamp: file, headers: {headers}}}"), b"a\nb\n", where=where)
    output = samples.records[1].outputs[0]
    assert dict(output.headers) == {"f": b"/var/log/x.log", "i": b"7", "h": b"web1", "r": b"2020-09-13 12:26", "o": b"2"}
    assert output.timestamp_ms == 1_700_000_000_000


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("{type: log_file, include: [/var/log/nginx/*access.log*]}", "/var/log/nginx/access.log"),
        ("{type: log_file, include: ['/var/log/**/*.log']}", "/var/log/app.log"),
        ("{type: log_file, include: ['/var/log/pods/pay_*/*/0.log']}", "/var/log/pods/pay_/app/0.log"),
        ("{type: log_file, include: ['/var/log/[ab]?.log']}", "/var/log/app.log"),
        (SPOOL + "csv}", "/var/spool/in/orders-.csv"),
    ],
)
def test_bytes_are_called_like_a_file_that_the_source_would_read(define: Define, source: str, path: str) -> None:
    assert likely_path(define(source=source)) == path


def test_a_file_that_cannot_be_read_is_told(define: Define, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        take(define(), tmp_path / "absent")
    with pytest.raises(FileError, match="not a regular file"):
        take(define(), tmp_path)


def test_nothing_asks_a_schema_registry(define: Define) -> None:
    more = f"transforms: [{{{REGEX}}}]\nconverters: {{value: {{type: avro, subject: s}}, schema_registry: {{url: 'http://127.0.0.1:1'}}}}"
    samples = take(define(more), b"INFO x\n")
    (output,) = samples.records[0].outputs
    assert (samples.unchecked, output.value, output.payload) == (True, {"level": "INFO", "text": "x"}, None)


class Answers:
    """Stands in for Spark."""

    def rows(self, records: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]] | DataError]:
        many = {"1": [], "2": [{"n": 1}, {"n": 2}], "3": DataError("no such row")}
        return [many[record["message"]] for record in records]  # type: ignore[misc]


def test_a_query_makes_none_one_or_many_of_a_record(define: Define) -> None:
    more = "transforms: [{drop_if: {message: 'x'}}, {sql: {query: 'SELECT n FROM records', schema: 'message string'}}, {drop_if: {n: 2}}]"
    definition = define(more)
    samples = take(definition, b"1\nx\n2\n3\n", query=Answers())
    assert fates(samples) == ["dropped", "dropped", "sent", "stops"]
    ended = [one.ended_by.name if one.ended_by else "" for one in samples.records]
    assert ended == ["transforms[1] sql", "transforms[0] drop_if", "", "transforms[1] sql"]
    assert values(samples) == [{"n": 1}]
    with pytest.raises(FatalError, match="needs Spark"):
        take(definition, b"1\n")


def test_the_stand_in_answers_to_everything_that_a_producer_does() -> None:
    """It has none of a producer's inside: a method that is not its own would fail in the middle of a run."""
    assert {name for name in vars(TaskProducer) if not name.startswith("_")} <= set(vars(RecordingProducer))


def test_a_value_that_is_one_field_keeps_its_type_and_null_is_no_value(define: Define) -> None:
    definition = define("transforms: [{json: {}}]", record="{topic: t, value: '{body}'}")
    *made, null = take(definition, b'{"body": 7}\n{"body": {"a": 1}}\n{"body": "x"}\n{"body": null}\n').records
    assert [(one.outputs[0].value, one.outputs[0].payload) for one in made] == [(7, b"7"), ({"a": 1}, b'{"a":1}'), ("x", b"x")]
    assert (null.outputs, null.stage) == ((), "convert")


@pytest.mark.parametrize("kind", ["avro", "json_schema"])
def test_a_schema_that_is_at_hand_is_checked_without_the_registry(define: Define, tmp_path: Path, kind: str) -> None:
    avro = {"type": "record", "name": "r", "fields": [{"name": "level", "type": "string"}, {"name": "n", "type": "long"}]}
    written = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(avro if kind == "avro" else written))
    more = "transforms: [{json: {}}]\nerrors: {tolerance: all}\n"
    more += f"converters: {{value: {{type: {kind}, schema: {path}}}, schema_registry: {{url: 'http://127.0.0.1:1'}}}}"
    samples = take(define(more), b'{"level": "INFO", "n": 1}\n{"level": "INFO", "n": "1"}\n')
    assert (fates(samples), samples.unchecked) == (["sent", "passed over"], False)
    assert samples.records[0].outputs[0].payload is None
    assert samples.records[1].stage == "convert"
