"""`fmt` changes how a definition looks and never what it says; comments stay with what they are about."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from copycat_agent.definitions import load_content, load_file
from copycat_agent.definitions.formatting import format_text, quoted, written
from copycat_agent.definitions.yaml_tree import SyntaxProblem, decode, parse_mapping
from copycat_agent.options import AgentOptions
from tests.rig.examples import examples

ROOT = Path(__file__).parents[3]
SHIPPED = sorted([*(ROOT / "connectors.d").iterdir(), ROOT / "docs/agent.yaml"])


def formatted(text: str) -> str:
    made = format_text(text.encode())
    assert format_text(made.encode()) == made, "formatting twice is formatting once"
    return made


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_files_keep_their_meaning_and_each_comment(path: Path) -> None:
    content = path.read_bytes()
    made = formatted(content.decode())
    assert (
        load_content(path, made.encode(), AgentOptions(), environ={}).definition == load_file(path, AgentOptions(), environ={}).definition
    )
    remarks = sorted(line.partition(" #")[2].strip() for line in content.decode().splitlines() if " #" in line)
    assert remarks == sorted(line.partition(" #")[2].strip() for line in made.splitlines() if " #" in line)


def test_keys_come_in_the_order_of_the_documentation_with_the_comments_that_belong_to_them() -> None:
    text = """\
# About this file.

# where to
record: {topic: logs.a}   # one topic
# where from
source:
  include: [/var/log/a.log]
  # read it all
  start_at: beginning
  type: log_file
  # encoding: latin-1
name: a
"""
    assert (
        formatted(text)
        == """\
# About this file.

name: a
# where from
source:
  type: log_file
  include: [/var/log/a.log]
  # read it all
  start_at: beginning
  # encoding: latin-1
# where to
record: {topic: logs.a}   # one topic
"""
    )


def test_keys_of_the_users_own_stay_in_their_order() -> None:
    text = "name: a\nrecord:\n  headers: {z: one, a: two}\n  topic: t\n"
    assert formatted(text) == "name: a\nrecord:\n  topic: t\n  headers: {z: one, a: two}\n"


def test_fields_that_are_called_like_options_stay_in_their_order() -> None:
    text = "transforms:\n  - drop_if: {zone: a, matches: {exists: true, lt: 3}, any_of: b}\n"
    assert formatted(text) == "transforms:\n  - drop_if: {zone: a, matches: {lt: 3, exists: true}, any_of: b}\n"


def test_a_step_begins_with_its_action() -> None:
    text = "transforms:\n- on_error: keep\n  if: {a: 1}\n  drop_if: {b: 2}\n"
    assert formatted(text) == "transforms:\n  - drop_if: {b: 2}\n    if: {a: 1}\n    on_error: keep\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('name: "nginx-access"', "name: nginx-access"),
        ("name: 'no'", 'name: "no"'),
        ('name: "010"', 'name: "010"'),
        ('name: "12:30:45"', 'name: "12:30:45"'),
        ("name: 12:30:45", "name: 12:30:45"),
        ("name: 010", "name: 010"),
        ("name: no", "name: no"),
        ('name: "true"', 'name: "true"'),
        ('name: "1.10"', 'name: "1.10"'),
        ("name: 1.10", "name: 1.10"),
        ('name: "${env:X}"', 'name: "${env:X}"'),
        ("name: ${env:X:-a b}", "name: ${env:X:-a b}"),
        ("name: '\\d+\"x'", "name: '\\d+\"x'"),
        ('name: "\\\\d+"', "name: '\\d+'"),
        ('name: "a\\tb\\u00ad\\n"', 'name: "a\\tb\u00ad\\n"'),
        ('name: ""', 'name: ""'),
        ('name: ";"', 'name: ";"'),
        ('name: "{client}"', 'name: "{client}"'),
        ("name:", "name:"),
        ("name: ~", "name: ~"),
        ("record:\n    topic: a\n    # last\n", "record:\n  topic: a\n  # last"),
        ("source: {include: [a,\n  b]}", "source: {include: [a, b]}"),
        ("source: {include: [a,  # one\n  b]}", "source:\n  include:\n    - a  # one\n    - b"),
        ("source:\n  include: [   # one\n    a   # two\n  ]  # three", "source:\n  include:     # one\n    # two\n    - a  # three"),
        ("name: >-\n     one\n     two\n\n\nenabled: true", "name: >-\n  one\n  two\n\nenabled: true"),
        ("name: |+\n  one\n\n\nenabled: true", "name: |+\n  one\n\n\nenabled: true"),
        ("name: |2\n    one\n", 'name: "  one\\n"'),
        ("name: one\n  two\n", "name: one\n  two"),
        ("renamed_from: []\nname: &x a\nrecord: {topic: *x }", "renamed_from: []\nname: &x a\nrecord: {topic: *x}"),
        ("name: a\nsource: &s {include:  &i [/x]}\nrecord: *s", "name: a\nsource: &s {include: &i [/x]}\nrecord: *s"),
        ("---\nname: a\n...\n", "name: a"),
        ("name: a\n\n\n\nenabled: true\n\n\n", "name: a\n\nenabled: true"),
    ],
)  # fmt: skip
def test_how_a_text_is_written(before: str, after: str) -> None:
    assert formatted(before) == after + "\n"


def test_what_is_no_yaml_is_not_touched() -> None:
    with pytest.raises(SyntaxProblem):
        format_text(b"name: [a")


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["no", "010", "12:30:45", "${env:X}", "^\\S+ \\[(.*)\\]$", "a: b", "a #b", "- a", "'", '"', "*a", "&a", "!a", "null", "1e3",
     "0x1f", "=", "<<", ".inf", "2026-11-22"]
)  # fmt: skip


@given(TEXTS)
def test_a_written_text_is_read_as_the_same_text(text: str) -> None:
    for spelling in (written(text), quoted(text)):
        for document in (f"k: {spelling}", f"k: [{spelling}, 1]", f"k: {{{spelling}: 1}}", f"k:\n  - {spelling}  # c"):
            assert "\n" not in spelling
            read = yaml.safe_load(document)["k"]
            assert read in (text, [text, 1], {text: 1}, [text])
            parse_mapping(document)


LEAVES = TEXTS | st.integers(-5, 5) | st.booleans() | st.none()
TREES = st.dictionaries(
    st.sampled_from(["name", "source", "record", "transforms", "tests", "kafka", "odd"]),
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "include", "drop_if", "if", "topic", "headers", "odd", "no"]), inner, max_size=3),
        max_leaves=8,
    ),
    min_size=1,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(TREES, st.sampled_from([True, False, None]), st.integers(20, 200), st.sampled_from([None, "'", '"', "|", ">"]))
@example({"name": {"if": "a\n\n"}}, False, 80, "|")
def test_any_tree_in_any_style_keeps_its_meaning(tree: dict[str, object], flow: bool | None, width: int, style: str | None) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, width=width, allow_unicode=True, default_style=style, sort_keys=False)
    try:
        parse_mapping(decode(text.encode()))
    except SyntaxProblem:
        return  # a default style of quotes adds tags to what is no text; and some characters need an escape
    made = formatted(text)
    assert yaml.safe_load(made) == yaml.safe_load(text)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_comments_at_any_place_stay_and_do_no_harm(data: st.DataObject) -> None:
    lines = (ROOT / "connectors.d/system-logs.yaml").read_text("utf-8").splitlines()
    for number in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(lines)))
        comment = " " * data.draw(st.integers(0, 8)) + f"# extra {number}"
        lines[place:place] = [""] * data.draw(st.integers(0, 2)) + [comment]
    text = "\n".join(lines) + "\n"
    made = formatted(text)
    words = [line.partition("# ")[2] for line in text.splitlines() if "# " in line]
    assert sorted(words) == sorted(line.partition("# ")[2] for line in made.splitlines() if "# " in line)
