"""Promises of the step `regex`: what its named groups find becomes fields, and what it does not match is a bad record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from copycat_agent.options import ValidationError
from tests.unit.transforms.steps import after, columns, draft, options, step

LINE = r"^(?P<client>\S+) (?P<user>\S+)(?: (?P<rest>.*))?$"


def test_named_groups_become_fields_and_the_line_is_gone() -> None:
    assert after({"regex": LINE}, b"10.0.0.1 ann a b") == {"client": "10.0.0.1", "user": "ann", "rest": "a b"}


def test_a_group_that_took_no_part_is_null_so_that_all_records_have_the_same_fields() -> None:
    assert after({"regex": LINE}, b"10.0.0.1 ann") == {"client": "10.0.0.1", "user": "ann", "rest": None}


def test_it_is_looked_for_anywhere_unless_it_is_anchored() -> None:
    assert after({"regex": r"id=(?P<id>\d+)"}, b"x id=7 y") == {"id": "7"}
    with pytest.raises(DataError, match="does not match"):
        after({"regex": r"^id=(?P<id>\d+)"}, b"x id=7 y")


def test_the_first_pattern_of_a_list_that_matches_counts() -> None:
    item: dict[str, Any] = {"regex": [r"^(?P<a>\d+)$", r"^(?P<b>\w+)$"]}
    assert after(item, b"12") == {"a": "12"}
    assert after(item, b"xy") == {"b": "xy"}
    with pytest.raises(DataError, match="none of the 2 patterns matches"):
        after(item, b"?")


def test_a_record_that_does_not_match_stays_as_it_was_and_the_error_does_not_show_it() -> None:
    record = draft(b"secret")
    with pytest.raises(DataError) as caught:
        step({"regex": LINE})(record)
    assert record.value == b"secret"
    assert "secret" not in str(caught.value)
    assert "copycat try" in caught.value.hint


@pytest.mark.parametrize(
    ("more", "value", "expected"),
    [
        ({"field": "a.b"}, {"a": {"b": "x y", "c": 1}, "d": 2}, {"a": {"c": 1}, "d": 2, "client": "x", "user": "y", "rest": None}),
        ({"into": "p.q"}, b"x y", {"p": {"q": {"client": "x", "user": "y", "rest": None}}}),
        ({"keep_source": True}, b"x y", {"message": "x y", "client": "x", "user": "y", "rest": None}),
        ({"field": "raw"}, {"raw": b"x \xff", "user": 1}, {"client": "x", "user": "\ufffd", "rest": None}),
    ],
)
def test_it_takes_any_field_and_puts_what_it_finds_where_it_is_told(more: dict[str, Any], value: Any, expected: dict[str, Any]) -> None:
    assert after({"regex": {"pattern": LINE, **more}}, value) == expected


@pytest.mark.parametrize("value", [{"other": "x"}, {"message": None}, {"message": 7}])
def test_a_field_that_holds_no_text_is_a_bad_record(value: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="field 'message' is"):
        after({"regex": LINE}, value)


def test_a_pattern_that_takes_too_long_is_a_bad_record() -> None:
    with pytest.raises(DataError, match="longer than 100 ms"):
        after({"regex": "^(?P<x>(a+)+)$"}, b"a" * 100_000 + b"b")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "not a regular expression"),
        ("abc", "no named group"),
        ("(a)(b)", "its 2 unnamed groups are not used"),
        ("(?P<a>x)(?P<a>y)", "redefinition of group name"),
        ([], "needs a pattern"),
        ({"pattern": LINE, "into": "a..b"}, "not a field name"),
    ],
)
def test_what_makes_no_fields_is_refused_when_it_is_loaded(pattern: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        options({"regex": tuple(pattern) if isinstance(pattern, list) else pattern})


def test_its_columns_are_the_groups_of_all_patterns() -> None:
    item: dict[str, Any] = {"regex": [r"^(?P<a>\d+)$", r"^(?P<b>\w+)(?P<a>x)$"]}
    assert columns(item, message="string", host="string") == {"host": "string", "a": "string", "b": "string"}
    assert columns({"regex": {"pattern": LINE, "into": "o"}}, message="string") == {
        "o": "struct<client: string, user: string, rest: string>"
    }


@given(st.binary(max_size=60))
def test_no_line_breaks_it(line: bytes) -> None:
    try:
        fields = after({"regex": LINE}, line)
    except DataError:
        return
    assert set(fields) == {"client", "user", "rest"}
