"""`tests:` of a definition: checked when it is loaded, and no part of what runs."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator

from copycat_agent.definitions import lines_of
from copycat_agent.definitions.models import definition_schema
from tests.unit.definitions.conftest import GOOD

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.options import Definition
    from tests.unit.definitions.conftest import Load

CASE = "tests:\n  - name: first\n    input: a\n    expect: [{value: {a: 1, b: [x, 1.50, true, null]}}]\n\n  - {input: [a, b], expect: []}\n"


def loaded(load: Load, text: str) -> Definition:
    (file,) = load(text).files
    assert file.definition is not None, file.problems
    return file.definition


def test_values_keep_their_types_and_what_was_not_said_is_known(load: Load) -> None:
    expected = loaded(load, GOOD + CASE).tests[0].expect[0]
    assert expected.value == {"a": 1, "b": ("x", 1.5, True, None)}
    assert expected.model_fields_set == {"value"}


@pytest.mark.parametrize(
    ("case", "line", "words"),
    [
        ("{expect: []}", 5, "a test needs input or input_file"),
        ("{input: a, input_file: b, expect: []}", 5, "one of them"),
        ("{input: a}", 5, "a test needs expect; [] says that no record comes out"),
        ("{input: a, expct: []}", 5, "unknown key 'expct'"),
        ("{input: {a: 1}, expect: []}", 5, ""),
        ("{input: a, expect: [{valu: 1}]}", 5, "unknown key 'valu'"),
        ("{input: a, expect: [{timestamp: noon}]}", 5, "a time is written as in 2026-11-21T05:00:00Z"),
        ("{input: a, expect: [], read_time: '2026-11-21'}", 5, "with its zone"),
        ("{input: a, expect: [], file: {mtime: '12:00'}}", 5, "a time is written as in"),
        ("{input: a, dead_letters: [{reason: '(x'}]}", 5, "not a regular expression"),
        ("{input: a, dead_letters: [{stage: sending}]}", 5, "frame"),
        ("{input: 'a ${cred:token}', expect: []}", 5, "no place for a secret"),
    ],
)
def test_what_cannot_be_a_test_is_told_with_its_place(load: Load, case: str, line: int, words: str) -> None:
    problems = load(f"{GOOD}tests:\n  - {case}\n").problems
    assert problems
    assert problems[0].line == line
    assert words in problems[0].text + problems[0].hint


def test_tests_count_in_no_comparison_and_do_not_travel(load: Load) -> None:
    with_tests, without = loaded(load, GOOD + CASE), loaded(load, GOOD)
    assert with_tests == without
    assert without == with_tests
    assert with_tests != without.model_copy(update={"enabled": False})
    assert pickle.dumps(with_tests) == pickle.dumps(without)
    assert with_tests.tests
    assert "tests" not in with_tests.masked()


def test_each_test_knows_its_line(load: Load, directory: Path) -> None:
    load(GOOD + CASE)
    assert lines_of(directory / "a.yaml", "tests") == (5, 9)
    assert lines_of(directory / "absent.yaml", "tests") == ()


def test_the_schema_for_editors_knows_tests() -> None:
    validator = Draft202012Validator(definition_schema())
    document = {"name": "a", "source": {"type": "log_file", "include": ["/x"]}, "record": {"topic": "t"}}
    case = {"input": ["a"], "expect": [{"key": "k", "value": {"n": 1}, "timestamp": 5, "headers": {"h": None}}]}
    assert validator.is_valid({**document, "tests": [case]})
    assert not validator.is_valid({**document, "tests": [{**case, "expct": []}]})
    assert not validator.is_valid({**document, "tests": [{**case, "expect": [{"partition": "p"}]}]})
