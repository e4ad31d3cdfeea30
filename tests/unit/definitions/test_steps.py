"""Mistakes in transforms and converters: exactly one error each, at the key that is wrong, and nothing of that connector starts.

The rule behind Kafka Connect's ConnectorValidationIntegrationTest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from tests.unit.definitions.conftest import GOOD

if TYPE_CHECKING:
    from tests.unit.definitions.conftest import Load

STEPS = [
    ("unknwn: {a: 1}", "unknwn", "unknown-type", "unknown transform 'unknwn'", "known are"),
    ("filter: {a: 1}", "filter", "unknown-type", "unknown transform 'filter'", "here it is keep_if or drop_if"),
    ("add-fields: {a: 1}", "add-fields", "unknown-type", "unknown transform 'add-fields'", "here it is set"),
    ("uppercase: a", "uppercase", "unknown-type", "unknown transform 'uppercase'", "here it is sql"),
    ("json:", "json", "no-value", "json has no value", "write json: {}"),
    ("set:", "set", "no-value", "set has no value", "give it one"),
    ("json", "json", "wrong-type", "needs one action", "write - json: {}"),
    ("{set: {a: 1}, if: {b: {gte: 2}}}", "gte", "unknown-key", "unknown key 'gte'", "here it is ge"),
    ("{set: {a: 1}, if: {b: {eq: 2}}}", "eq", "unknown-key", "unknown key 'eq'", "write the value itself"),
    ("csv: {names: [a]}", "names", "unknown-key", "unknown key 'names'", "here it is columns"),
    ("timestamp: {field: a, tz: UTC}", "tz", "unknown-key", "unknown key 'tz'", "here it is zone"),
    ("timestamp: {field: a, format: yyyy-MM-dd}", "yyyy", "bad-value", "is %Y-%m-%d %H:%M:%S,%f here", ""),
    ("timestamp: {field: a, format: '2006-01-02'}", "'2006", "bad-value", "is %Y-%m-%d %H:%M:%S here", ""),
    ("timestamp: {field: a, format: epoch_millis}", "epoch", "bad-value", "here it is unix_ms", ""),
    ("convert: {a: boolean}", "boolean", "bad-value", "no type has this name", ""),
    ("convert: {a: Integer}", "Integer", "bad-value", "here it is int", ""),
    ("mask: {field: card, pattern: '[0-9]'}", "{field", "bad-value", "needs fields and their patterns", ""),
    ("drop_fi: {a: 1}", "drop_fi", "unknown-type", "unknown transform 'drop_fi'", "did you mean drop_if?"),
    ("{drop_if: {a: 1}, keep_if: {a: 1}}", "keep_if", "several-actions", "a second action in one item", "dash"),
    ("{drop_if: {a: 1}, drop_if: {a: 2}}", "drop_if: {a: 2}", "duplicate-key", "", ""),
    ("{if: {a: 1}}", "{if", "missing-key", "the action is missing", "known are"),
    ("{}", "{}", "missing-key", "the action is missing", "known are"),
    ("{on_error: keep}", "{on_error", "missing-key", "the action is missing", "known are"),
    ("drop_if", "drop_if", "wrong-type", "needs one action", "known are"),
    ("", "", "wrong-type|no-value", "", ""),
    ("{set: {a: 1}, if: {}}", "{}", "bad-value", "", ""),
    ("{set: {a: 1}, if: nothing}", "nothing", "wrong-type", "needs keys and values", ""),
    ("{set: {a: 1}, if: {b: {matchs: x}}}", "matchs", "unknown-key", "unknown key 'matchs'", "did you mean matches?"),
    ("{set: {a: 1}, if: {b: {matches: '('}}}", "{matches", "bad-value", "not a regular expression", ""),
    ("{set: {a: 1}, if: {b: {not: {matches: '('}}}}", "{matches", "bad-value", "not a regular expression", ""),
    ("{set: {a: 1}, if: {b: {}}}", "{}}}", "bad-value", "needs a value", ""),
    ("{set: {a: 1}, on_error: ignore}", "ignore", "bad-value", "needs one of dlq, keep, drop, stop", ""),
    ("{set: {a: 1}, when: {b: 1}}", "when", "unknown-key", "unknown key 'when'", "here it is if"),
    ("set: {a: '{'}", "'{'", "bad-value", "bad template", ""),
    ("set: {a: [1, {b: '{@hots}'}]}", "[1", "bad-value", "unknown metadata", ""),
    ("rename: {a: 'b..c'}", "'b..c'", "bad-value", "not a field name", ""),
    ("rename: {'a b ': c}", "'a b '|c", "bad-value", "not a field name", ""),
    ("rename: {a: c, b: c}", "rename|{a", "bad-value", "'c' is named twice", ""),
    ("mask: {a: '('}", "'('", "bad-value", "not a regular expression", ""),
    ("mask: {a: {pattern: x, wth: y}}", "wth", "unknown-key", "unknown key 'wth'", "did you mean with?"),
    ("replace: {a: {pattern: x, with: '\\1'}}", "{pattern", "bad-value", "no group 1", ""),
    ("sample: 2", "2", "bad-value", "at most 1", ""),
    ("sample: often", "often", "wrong-type", "needs keys and values", ""),
    ("hash: {field: a, algorithm: md4}", "md4", "bad-value", "needs one of sha256", "did you mean md5?"),
    ("flatten: {delimiter: ''}", "''", "bad-value", "must not be empty", ""),
    ("nest: {into: a, fields: [a]}", "nest|{into", "bad-value", "cannot move into itself", ""),
    ("drop_fields: []", "[]", "bad-value", "must not be empty", ""),
    ("keep_fields: {a: 1}", "{a", "wrong-type", "needs a list", ""),
]

OTHERS = [
    ("converters: {value: jsn}", "jsn", "unknown-type", "unknown converter 'jsn'", "did you mean json?"),
    ("converters: {value: {type: jsn}}", "jsn", "unknown-type", "unknown converter 'jsn'", "did you mean json?"),
    (
        "converters: {value: {subject: x}}",
        "value",
        "missing-key",
        "the type of the converter is missing",
        "known are bytes, string, json",
    ),
    ("converters: {value: {}}", "value", "missing-key", "the type of the converter is missing", ""),
    ("converters: {value: [json]}", "[json]", "wrong-type", "needs keys and values", "type: bytes or"),
    ("converters: {valeu: json}", "valeu", "unknown-key", "unknown key 'valeu'", "did you mean value?"),
]


def places(text: str, wanted: str) -> set[tuple[int, int]]:
    """Line and column of each of the given pieces, behind the good lines."""
    lines = text.splitlines()
    found = set()
    for piece in wanted.split("|"):
        for number in range(GOOD.count("\n"), len(lines)):
            if piece in lines[number]:
                found.add((number + 1, lines[number].rindex(piece) + 1))
    return found


def written(item: str) -> str:
    return f"{GOOD}transforms:\n  - set: {{ok: true}}\n  - {item}\n"


CASES = [(written(item), *rest) for item, *rest in STEPS] + [(f"{GOOD}{section}\n", *rest) for section, *rest in OTHERS]


@pytest.mark.parametrize(("text", "at", "code", "words", "hint"), CASES, ids=[case[0].splitlines()[-1].strip()[:60] for case in CASES])
def test_each_mistake_is_one_error_at_its_key(load: Load, text: str, at: str, code: str, words: str, hint: str) -> None:
    loaded = load(text, GOOD.replace("name: app", "name: other"))
    assert len(loaded.problems) == 1, loaded.problems
    (problem,) = loaded.problems
    assert problem.code in code.split("|")
    assert words in problem.text
    assert hint in problem.hint
    assert not at or (problem.line, problem.column) in places(text, at)
    assert [file.definition is not None for file in loaded.files] == [False, True]


def test_several_mistakes_are_told_at_once(load: Load) -> None:
    text = f"{GOOD}transforms:\n  - nope: 1\n  - set: {{a: '{{'}}\n  - {{drop_if: {{a: 1}}, if: {{}}}}\nconverters: {{key: nope}}\n"
    assert [(each.line, each.code) for each in load(text).problems] == [
        (5, "unknown-type"),
        (6, "bad-value"),
        (7, "bad-value"),
        (8, "unknown-type"),
    ]


def test_a_secret_in_a_bad_step_is_in_no_message(load: Load) -> None:
    loaded = load(written("hash: {field: a, secret: hunter2hunter2, algorithm: crc}"))
    (problem,) = loaded.problems
    assert "hunter2" not in repr(problem)


def test_check_says_so_and_exits_78(directory: Path) -> None:
    (directory / "a.yaml").write_text(written("nope: 1"))
    (directory / "b.yaml").write_text(GOOD.replace("name: app", "name: other"))
    result = CliRunner().invoke(app, ["check", str(directory), "--format", "json"])
    assert result.exit_code == 78
    report = json.loads(result.stdout)
    assert [(each["name"], each["good"]) for each in report["definitions"]] == [("app", False), ("other", True)]
    assert len(report["problems"]) == 1
