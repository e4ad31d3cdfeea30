"""What a definition's patterns may cost is said with their place; and what a step for containers says without words."""

from __future__ import annotations

import pytest

from tests.unit.definitions.conftest import GOOD, Load

STEPS = r"""transforms:
  - regex: '^(?P<a>(x+)+)$'
  - drop_if: {a: {matches: '(a|aa)+$'}}
  - grok: '%{URI:u}'
    if: {a: {matches: '(b|bb)+$'}}
  - mask: {a: '(c+)+d'}
  - regex: {field: u, pattern: ['^(?P<b>x+)$', '(?P<c>(d*)*)e']}
  - grok: '%{COMBINEDAPACHELOG}'
    on_error: keep
"""


def test_each_doubtful_pattern_is_a_warning_with_its_place_and_its_part(load: Load) -> None:
    source = r"source: {type: log_file, include: [/var/log/app.log], multiline: {start: '^(\w+\s?)*:$'}}"
    loaded = load(f"name: app\n{source}\nrecord: {{topic: t}}\n{STEPS}")
    assert loaded.problems == ()
    assert [(each.code, each.line) for each in loaded.warnings] == [("slow-pattern", line) for line in (2, 5, 6, 7, 8, 9, 10)]
    parts = [r"(\w+\s?)*", "(x+)+", "(a(?:|a))+", r"(?:[A-Za-z0-9\+\-\.]+)+", "(b(?:|b))+", "(c+)+", "(d*)*"]
    for warning, part in zip(loaded.warnings, parts, strict=True):
        assert f"its part {part} can" in warning.text
        assert warning.hint


def test_usual_patterns_are_no_warning(load: Load) -> None:
    steps = "transforms:\n  - regex: '^(?P<a>.*) - (?P<b>.*)$'\n  - keep_if: {a: {matches: 'x.*y'}}\n"
    assert load(GOOD + steps).warnings == ()


@pytest.mark.parametrize("step", ["cri: {}", "docker: {}"])
def test_a_step_for_containers_wants_the_parts_of_a_line_together(load: Load, step: str) -> None:
    (definition,) = load(f"{GOOD}transforms:\n  - {step}\n").definitions.values()
    found = definition.source.multiline  # type: ignore[attr-defined]
    assert (found.preset, found.max_bytes) == ("container", 2**20)


def test_it_takes_no_shorter_line_than_it_would_without(load: Load) -> None:
    source = "source: {type: log_file, include: [/var/log/app.log], line: {max_bytes: 4MiB}}"
    (definition,) = load(f"name: app\n{source}\nrecord: {{topic: t}}\ntransforms:\n  - cri: {{}}\n").definitions.values()
    assert definition.source.multiline.max_bytes == 2**22  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("line", "policy"), [("", "split"), (", line: {on_too_long: drop}", "drop"), (", line: {max_bytes: 4KiB}", "split")]
)
def test_what_it_does_with_a_line_over_the_limit_is_what_the_line_s_options_say(load: Load, line: str, policy: str) -> None:
    source = f"source: {{type: log_file, include: [/var/log/app.log]{line}}}"
    loaded = load(f"name: app\n{source}\nrecord: {{topic: t}}\ntransforms:\n  - cri: {{}}\n")
    (definition,) = loaded.definitions.values()
    assert definition.source.multiline.on_too_long == policy  # type: ignore[attr-defined]
    assert loaded.warnings == ()


def test_a_policy_for_lines_that_another_one_overrules_is_a_warning(load: Load) -> None:
    multiline = "multiline: {preset: java, on_too_long: split}"
    source = f"source: {{type: log_file, include: [/var/log/app.log], {multiline}, line: {{on_too_long: truncate}}}}"
    loaded = load(f"name: app\n{source}\nrecord: {{topic: t}}\n")
    assert [(one.code, one.line, one.hint) for one in loaded.warnings] == [("unused", 2, "delete one of the two")]
    assert load(f"name: app\n{source.replace('truncate', 'split')}\nrecord: {{topic: t}}\n").warnings == ()


def test_a_policy_that_is_written_for_lines_alone_holds_for_records_of_several(load: Load) -> None:
    source = "source: {type: log_file, include: [/var/log/app.log], multiline: {preset: java}, line: {on_too_long: truncate}}"
    loaded = load(f"name: app\n{source}\nrecord: {{topic: t}}\n")
    (definition,) = loaded.definitions.values()
    assert definition.source.multiline.on_too_long == "truncate"  # type: ignore[attr-defined]
    assert loaded.warnings == ()


def test_lines_of_whole_files_are_put_together_by_the_same_rules(load: Load) -> None:
    source = "source: {type: spool_dir, dir: /in, format: {type: lines, line: {on_too_long: drop, max_bytes: 4MiB}}}"
    (definition,) = load(f"name: app\n{source}\nrecord: {{topic: t}}\ntransforms:\n  - cri: {{}}\n").definitions.values()
    multiline = definition.source.format.multiline  # type: ignore[attr-defined]
    assert (multiline.preset, multiline.max_bytes, multiline.on_too_long) == ("container", 2**22, "drop")
    loaded = load(f"name: app\n{source[:-2]}, multiline: {{ends: '(a+)+$', on_too_long: dlq}}}}}}\nrecord: {{topic: t}}\n")
    assert {one.code for one in loaded.warnings} == {"slow-pattern", "unused"}


def test_what_is_said_about_several_lines_stays_as_it_is(load: Load) -> None:
    source = "source: {type: log_file, include: [/var/log/app.log], multiline: {preset: java}}"
    (definition,) = load(f"name: app\n{source}\nrecord: {{topic: t}}\ntransforms:\n  - cri: {{}}\n").definitions.values()
    assert definition.source.multiline.preset == "java"  # type: ignore[attr-defined]


def test_without_such_a_step_each_line_is_a_record(load: Load) -> None:
    (definition,) = load(GOOD).definitions.values()
    assert definition.source.multiline is None  # type: ignore[attr-defined]
