"""A definition that a client changes keeps what the client was not shown: comments, references to secrets, tests, spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copycat_agent.definitions import load_content
from copycat_agent.definitions.formatting import format_text
from copycat_agent.definitions.formatting.editing import UneditableError, edited, has_words, new_text
from copycat_agent.definitions.yaml_tree import decode, parse_mapping
from copycat_agent.options import AgentOptions

FILE = """\
# Owned by the shop team.

name: app
source:
  type: log_file
  include: ["/var/log/shop/*.log"]  # rotated at night
  # Slow disk.
  scan_interval: 60s
record:
  topic: shop
  headers:
    token: "${file:/etc/copycat/token}"  # rotates monthly
    team: shop
transforms:
  - regex: {pattern: "(?P<a>.*)"}  # the first one
  # Nobody needs these.
  - drop_if: {a: ping}
tests:
  - name: a ping is dropped
    input: ping
    expect: []
"""
SHOWN: dict[str, Any] = {
    "name": "app",
    "source": {"type": "log_file", "include": ["/var/log/shop/*.log"], "scan_interval": "1m"},
    "record": {"topic": "shop", "headers": {"token": "********", "team": "shop"}},
    "transforms": [{"regex": {"pattern": "(?P<a>.*)"}}, {"drop_if": {"a": "ping"}}],
}


def change(**sections: Any) -> str:
    return edited(FILE.encode(), SHOWN, {**SHOWN, **sections})


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def test_what_comes_back_as_it_was_shown_changes_nothing() -> None:
    assert change() == format_text(FILE.encode())


def test_a_value_is_changed_where_it_stands() -> None:
    made = change(record={**SHOWN["record"], "topic": "shop-2"})
    assert made == format_text(FILE.replace("topic: shop\n", "topic: shop-2\n").encode())


def test_a_hidden_value_keeps_what_it_hides() -> None:
    made = change(record={"topic": "t", "headers": {"token": "********", "more": "x"}})
    assert '    token: "${file:/etc/copycat/token}"  # rotates monthly' in made.splitlines()
    assert "********" not in made
    assert "team: shop" not in made
    assert "    more: x" in made.splitlines()


@pytest.mark.parametrize("value", ["x********", "********", ["********"], {"a": "********"}, "https://********@host/"])
def test_a_hidden_value_that_stands_nowhere_is_refused(value: object) -> None:
    with pytest.raises(UneditableError, match="stands for a secret that is not there") as caught:
        change(record={**SHOWN["record"], "key": value})
    assert caught.value.place.startswith("record.key")


def test_no_value_becomes_a_reference() -> None:
    values = {"a": "${file:/etc/shadow}", "b": "$${env:HOME}", "c": "${cred:x}"}
    text = new_text({**SHOWN, "record": {"topic": "t"}, "transforms": [{"drop_if": values}]})
    definition = load_content(Path("app.yaml"), text.encode(), AgentOptions(), environ={}).definition
    assert definition is not None
    told = definition.masked()["transforms"][0]["drop_if"]
    assert {field: matcher["any_of"] for field, matcher in told.items()} == {field: [text] for field, text in values.items()}


def test_words_about_what_is_gone_stay() -> None:
    source = {"type": "log_file", "include": ["/var/log/shop/*.log"]}
    assert "# Slow disk." in lines(change(source=source))
    assert "# rotated at night" in change(source={**SHOWN["source"], "include": ["/a", "/b"]})
    made = change(transforms=[SHOWN["transforms"][0]])
    assert "# Nobody needs these." in lines(made)
    assert "drop_if" not in made
    assert "# the first one" in change(transforms=[SHOWN["transforms"][1]])
    for text in (made, change(transforms=[])):
        assert load_content(Path("app.yaml"), text.encode(), AgentOptions(), resolve_env=False).problems == ()


def test_tests_are_the_files_own() -> None:
    assert change(record={"topic": "t"}).endswith(FILE[FILE.index("tests:") :])


def test_items_of_a_list_are_changed_one_by_one() -> None:
    made = change(transforms=[{"regex": {"pattern": "(?P<b>.*)"}}, SHOWN["transforms"][1]])
    assert made == format_text(FILE.replace("(?P<a>.*)", "(?P<b>.*)").encode())
    made = change(transforms=[{"json": {}}, *SHOWN["transforms"]])
    assert made.index("- json: {}") < made.index("# the first one") < made.index("# Nobody needs these.")


def test_an_item_that_is_moved_takes_its_secret_and_its_words_along() -> None:
    steps = (
        '  - set: {if: a, password: "${cred:a}"} # of a\n  - set: {if: b, password: "${cred:b}"}\n  - set: {if: c, password: "${cred:c}"}\n'
    )
    text = FILE.replace("  - regex:", f"{steps}  - regex:").encode()
    one, two, three = ({"set": {"if": name, "password": "********"}} for name in "abc")
    shown = {**SHOWN, "transforms": [one, two, three, *SHOWN["transforms"]]}
    other = {"set": {"if": "d", "password": "********"}}
    made = edited(text, shown, {**shown, "transforms": [three, one, other, *SHOWN["transforms"]]})
    found = [line for line in lines(made) if "cred:" in line]
    assert ["if: c" in found[0], "cred:c" in found[0]] == [True, True], found
    assert ["if: a" in found[1], "cred:a" in found[1], "# of a" in found[1]] == [True, True, True], found
    assert ["if: d" in found[2], "cred:b" in found[2]] == [True, True], found


def test_of_items_that_look_the_same_nobody_guesses_which_secret_is_meant() -> None:
    text = FILE.replace("  - regex:", '  - set: {password: "${cred:a}"}\n  - set: {password: "${cred:b}"}\n  - regex:').encode()
    twin = {"set": {"password": "********"}}
    shown = {**SHOWN, "transforms": [twin, twin, *SHOWN["transforms"]]}
    with pytest.raises(UneditableError, match="differ only in what is hidden"):
        edited(text, shown, {**shown, "transforms": [twin, *SHOWN["transforms"]]})
    kept = edited(text, shown, {**shown, "record": {"topic": "t"}})
    assert kept.index("cred:a") < kept.index("cred:b")


def test_a_file_with_aliases_is_left_to_who_wrote_it() -> None:
    text = b"name: &a app\nsource: {type: log_file, include: [/a]}\nrecord: {topic: *a}\n"
    with pytest.raises(UneditableError, match="aliases"):
        edited(text, {}, {"name": "b"})


@pytest.mark.parametrize(
    ("text", "has"),
    [("name: a\n", False), ("name: a # x\n", True), ("# x\nname: a\n", True), ("name: a\ntests: []\n", True), ("name: [\n", True),
     ('name: "a # b"\n', False), ("source:\n  include:\n    - a\n    # x\n", True)],
)  # fmt: skip
def test_what_a_person_has_said_is_known(text: str, has: bool) -> None:
    assert has_words(text.encode()) is has


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=6).filter(lambda text: "*" not in text and text.isprintable()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=4),
    max_leaves=12,
)
MAPS = st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, min_size=1, max_size=4)


@given(MAPS, MAPS)
@example({"a": [":0"]}, {"a": [":0", ":1"], "b": {"c": [{":2": ":3"}]}})
def test_whatever_is_wanted_is_what_the_file_says_then(before: dict[str, Any], wanted: dict[str, Any]) -> None:
    text = new_text(before)
    assert said(text) == said(new_text(before))
    assert said(edited(text.encode(), before, wanted)) == said(new_text(wanted))


def said(text: str) -> object:
    node = parse_mapping(decode(text.encode()))

    def plain(one: Any) -> object:
        if hasattr(one, "text"):
            return one.text, one.plain
        return (
            {key: plain(value) for key, value in one.items.items()} if isinstance(one.items, dict) else [plain(item) for item in one.items]
        )

    return plain(node)
