"""The tests of a definition: which input they are given, and what makes them fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from copycat_agent.workbench.trying import CaseOutcome, run_tests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.options import Definition

    Define = Callable[..., Definition]

REGEX = r"transforms: [{regex: '^(?P<level>\w+) (?P<text>.*)$'}, {drop_if: {level: DEBUG}}]"


def outcomes(define: Define, tests: str, more: str = "", **sections: str) -> list[CaseOutcome]:
    return list(run_tests(define(f"{more}\ntests:\n{tests}", **sections)))


def titles(outcome: CaseOutcome) -> list[str]:
    return [one.title for one in outcome.mismatches]


@pytest.mark.parametrize(
    ("case", "values"),
    [
        ("input: one line", ["one line"]),
        ("input: [a, b]", ["a", "b"]),
        ("input: |\n      a\n      b", ["a", "b"]),
        ("input: ''", []),
        ("input: []", []),
        ("input: ['a', '', 'b']", ["a", "", "b"]),
    ],
)
def test_input_is_a_text_or_a_list_of_lines_each_of_them_complete(define: Define, case: str, values: list[str]) -> None:
    expect = json.dumps([{"value": value, "headers": {"copycat.partial": None}} for value in values])
    (outcome,) = outcomes(define, f"  - {case}\n    expect: {expect}\n    exact: true")
    assert outcome.good, outcome.mismatches


def test_a_last_line_may_be_left_unfinished(define: Define) -> None:
    tests = "  - {input: [a, b], partial: true, expect: [{value: a}, {value: b, headers: {copycat.partial: true}}]}"
    assert outcomes(define, tests)[0].good


def test_groups_of_lines_and_other_encodings_go_through_framing(define: Define) -> None:
    source = "{type: log_file, include: [/x], multiline: {preset: indented}, encoding: utf-16-le}"
    tests = '  - {input: ["ä\\n  b", c], expect: [{value: "ä\\n  b"}, {value: c}]}'
    assert outcomes(define, tests, source=source)[0].good
    nul = '{type: log_file, include: [/x], line: {delimiter: "\\0"}}'
    assert outcomes(define, '  - {input: "a\\nb", expect: [{value: "a\\nb"}]}', source=nul)[0].good


def test_of_a_spooled_file_the_text_is_all_of_it(define: Define) -> None:
    source = "{type: spool_dir, dir: /in, format: {type: csv, header: true, types: {qty: int, price: decimal}}}"
    tests = "  - input: |\n      id,qty,price\n      x,3,1.10\n    expect: [{value: {id: x, qty: 3, price: 1.10}, headers: {row: 1}}]"
    assert outcomes(define, tests, source=source, record="{topic: t, headers: {row: '{@record.number}'}}")[0].good


def test_a_file_may_be_the_input(define: Define, tmp_path: Path) -> None:
    (tmp_path / "in.log").write_text("a\nb\n")
    definition = define("tests:\n  - {input_file: in.log, expect: [{value: a}, {value: b}]}\n  - {input_file: no.log, expect: []}")
    good, absent = run_tests(definition, tmp_path)
    assert good.good
    assert absent.error is not None
    assert "no.log" in str(absent.error)


def test_time_host_and_file_are_the_same_on_every_machine(define: Define) -> None:
    headers = "{h: '{@host}', r: '{@read_time:%Y}', p: '{@file.path}', i: '{@file.inode}', a: '{@file.owner} {@file.group} {@file.mode}'}"
    usual = "{h: test-host, r: 2026, p: /var/log/app/app.log, i: 1, a: root root 0644}"
    said = "{h: web1, r: 2020, p: /x/y.log, i: 9, a: app adm 0600}"
    tests = f"""
  - {{input: a, expect: [{{headers: {usual}, timestamp: "2026-01-01T00:00:00Z"}}]}}
  - input: a
    host: web1
    read_time: "2020-01-01T00:00:00Z"
    file: {{path: /x/y.log, inode: 9, owner: app, group: adm, mode: "0600", mtime: "2019-01-01T00:00:00Z"}}
    expect: [{{headers: {said}, timestamp: "2019-01-01T00:00:00Z"}}]"""
    for outcome in outcomes(define, tests, record=f"{{topic: t, timestamp: file, headers: {headers}}}"):
        assert outcome.good, outcome.mismatches


def test_records_that_are_missing_and_records_that_should_not_be_there_fail_a_test(define: Define) -> None:
    tests = "  - {input: [INFO a, DEBUG b], expect: [{value: {text: a}}, {}]}\n  - {input: [INFO a, INFO b], expect: [{}]}"
    missing, extra = outcomes(define, tests, REGEX)
    assert titles(missing) == ["record 2 is missing: 1 sent, 1 dropped by transforms[1] drop_if"]
    assert titles(extra) == ["record 2 was not expected"]
    assert extra.mismatches[0].sampled is not None
    assert extra.mismatches[0].sampled.number == 2


def test_nothing_expected_means_dropped_and_a_failure_is_none(define: Define) -> None:
    dropped, failed = outcomes(define, "  - {input: DEBUG b, expect: []}\n  - {input: '!', expect: []}", REGEX)
    assert dropped.good
    assert titles(failed) == ["input record 1 failed, and no dead_letters expect it"]


def test_failures_can_be_expected_by_stage_step_and_reason(define: Define) -> None:
    letters = ("{}", "{stage: transform}", "{step: regex}", "{step: 'transforms[0]'}", "{reason: 'not match'}")
    tests = "\n".join(f"  - {{input: '!', dead_letters: [{letter}]}}" for letter in letters)
    assert [outcome.good for outcome in outcomes(define, tests, REGEX)] == [True] * len(letters)
    wrong = "  - {input: ['!', INFO a], expect: [{}], dead_letters: [{stage: record, step: json, reason: zzz}, {}]}"
    (outcome,) = outcomes(define, wrong, REGEX)
    assert [one.place for one in outcome.mismatches[0].differences] == ["stage", "step", "reason"]
    assert titles(outcome)[1] == "dead letter 2 is missing: 1 of 2 records failed"


def test_what_is_not_named_must_not_be_there_when_a_test_is_exact(define: Define) -> None:
    tests = "  - {input: INFO a, exact: true, expect: [{value: {level: INFO}}]}"
    (outcome,) = outcomes(define, tests, REGEX)
    assert [one.place for one in outcome.mismatches[0].differences] == ["value.text"]


@pytest.mark.parametrize(
    "source",
    ["{type: log_file, include: [/x], encoding: utf-16}", "{type: spool_dir, dir: /in, format: {type: lines, encoding: utf-16-le}}"],
    ids=["log_file", "spool_dir"],
)
def test_input_is_written_in_the_encoding_that_is_read(define: Define, source: str) -> None:
    (outcome,) = outcomes(define, "  - {input: [Grüße], expect: [{value: Grüße}]}", source=source)
    assert (outcome.mismatches, outcome.error) == ((), None)


def test_a_file_that_is_damaged_fails_a_test(define: Define) -> None:
    source = "{type: spool_dir, dir: /in, format: json}"
    (outcome,) = outcomes(define, '  - {input: \'[{"a": 1}, {"b"\', expect: [{}]}', source=source)
    assert not outcome.good


def test_values_of_one_field_are_compared_as_what_they_are(define: Define) -> None:
    cases = [("7", 7), ('{"a": 1, "b": 2}', {"a": 1}), ('"x"', "x"), ("[1, 2]", [1, 2]), ("true", True)]
    tests = "\n".join(f"  - {{input: '{{\"body\": {written}}}', expect: [{{value: {json.dumps(value)}}}]}}" for written, value in cases)
    bad = "\n  - {input: '{\"body\": 7}', expect: [{value: {a: 1}}]}\n  - {input: '{\"body\": null}', expect: [{value: x}]}"
    found = outcomes(define, tests + bad, "transforms: [{json: {}}]", record="{topic: t, value: '{body}'}")
    assert [outcome.good for outcome in found] == [True] * len(cases) + [False] * 2
