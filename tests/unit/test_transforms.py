"""Promises of the filters: what they mean, and that a wrong one is found when the definition is loaded."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.options import FROM_YAML, ValidationError, WrittenFloat
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms import TRANSFORMS, Draft, build_transform
from copycat_agent.transforms.base import action_keys

FIELDS = {
    "path": "/healthz",
    "status": 503,
    "size": "512",
    "ratio": 0.5,
    "price": Decimal("1.10"),
    "ok": True,
    "flag": "true",
    "none": None,
    "user": {"id": 7, "name": "ann"},
    "tags": ["a"],
    "nan": float("nan"),
    "odd": Decimal("NaN"),
    "zeros": "0512",
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "clock": time(3, 4),
}


def step(action: str, matcher: Any) -> Any:
    options = TRANSFORMS[action].options.model_validate({action: matcher}, strict=True, context=FROM_YAML)
    return build_transform(pickle.loads(pickle.dumps(options))).bind(SplitMeta("/f", 1, "host", "name"))


def kept(action: str, matcher: Any, value: bytes | dict[str, Any]) -> bool:
    return bool(step(action, matcher)(Draft(value, 0, 10, 1)))


MATCHING: list[Any] = [
    {"path": "/healthz"},
    {"path": ("/a", "/healthz")},
    {"path": {"matches": "^/health"}},
    {"day": "2026-01-02"},
    {"at": ["2026-01-02T03:04:05+00:00"]},
    {"clock": {"matches": "^03:04"}},
    {"path": {"matches": "lth"}},
    {"status": 503},
    {"status": "503"},
    {"status": 503.0},
    {"status": (500, 503)},
    {"status": {"ge": 500, "lt": 600}},
    {"status": {"gt": 502, "le": 503}},
    {"status": {"matches": "^5..$"}},
    {"size": 512},
    {"size": "512"},
    {"size": {"gt": 500}},
    {"zeros": 512},
    {"ratio": WrittenFloat("0.50")},
    {"ratio": {"lt": WrittenFloat("0.6")}},
    {"price": {"gt": 1}},
    {"price": {"ge": WrittenFloat("1.1"), "le": WrittenFloat("1.1")}},
    {"status": {"lt": WrittenFloat("503.5"), "gt": WrittenFloat("502.5")}},
    {"price": "1.1"},
    {"ok": True},
    {"ok": "true"},
    {"ok": {"matches": "^true$"}},
    {"flag": True},
    {"none": None},
    {"none": {"exists": True}},
    {"gone": {"exists": False}},
    {"user.id": 7},
    {"user.name": {"matches": "nn"}},
    {"user.gone": {"exists": False}},
    {"path.deeper": {"exists": False}},
    {"tags": {"exists": True}},
    {"path": "/healthz", "status": 503},
]

NOT_MATCHING: list[Any] = [
    {"path": "/health"},
    {"path": "/HEALTHZ"},
    {"path": ("/a", "/b")},
    {"path": {"matches": "^health"}},
    {"day": "2026-01"},
    {"at": {"gt": 2026}},
    {"clock": None},
    {"path": {"gt": 0}},
    {"path": None},
    {"status": 500},
    {"status": {"ge": 504}},
    {"status": {"ge": 500, "lt": 503}},
    {"status": {"ge": 500, "matches": "^4"}},
    {"size": "0512"},
    {"ok": 1},
    {"ok": False},
    {"ok": {"ge": 0}},
    {"none": "null"},
    {"none": {"exists": False}},
    {"none": {"matches": ""}},
    {"gone": None},
    {"gone": "x"},
    {"gone": {"matches": ""}},
    {"gone": {"exists": True}},
    {"user": "ann"},
    {"user": {"matches": ""}},
    {"tags": "a"},
    {"nan": {"ge": 0}},
    {"odd": {"ge": 0}},
    {"path": "/healthz", "status": 200},
]


@pytest.mark.parametrize("matcher", MATCHING)
def test_a_matching_record_is_kept_by_one_and_dropped_by_the_other(matcher: Any) -> None:
    assert kept("keep_if", matcher, FIELDS)
    assert not kept("drop_if", matcher, FIELDS)


@pytest.mark.parametrize("matcher", NOT_MATCHING)
def test_a_record_that_does_not_match_is_dropped_by_one_and_kept_by_the_other(matcher: Any) -> None:
    assert not kept("keep_if", matcher, FIELDS)
    assert kept("drop_if", matcher, FIELDS)


def test_a_raw_line_is_the_field_message() -> None:
    assert kept("keep_if", {"message": {"matches": "ERR"}}, b"ERROR x")
    assert not kept("drop_if", {"message": "ERROR x"}, b"ERROR x")
    assert kept("drop_if", {"message": {"matches": "^ERROR"}}, b"INFO \xff")
    assert not kept("keep_if", {"level": "ERROR"}, b"ERROR x")


@given(st.dictionaries(st.sampled_from(["a", "b", "status"]), st.none() | st.booleans() | st.integers() | st.floats() | st.text()))
def test_no_record_breaks_a_filter_and_every_record_passes_exactly_one(fields: dict[str, Any]) -> None:
    for matcher in ({"status": {"ge": 1, "lt": 10}}, {"a": (1, "x", None, True)}, {"b": {"matches": r"\d+$"}}, {"a.b": {"exists": False}}):
        assert kept("keep_if", matcher, fields) is not kept("drop_if", matcher, fields)


@pytest.mark.parametrize("digits", [10**5000, "9" * 5000, "1e999", "-1e999"], ids=["int", "text", "big", "small"])
def test_absurd_numbers_do_not_break_a_filter(digits: object) -> None:
    assert kept("drop_if", {"a": {"matches": "^x"}, "b": 1}, {"a": digits, "b": 1})
    kept("drop_if", {"a": {"ge": 1}}, {"a": digits})
    kept("drop_if", {"a": 1}, {"a": digits})


@pytest.mark.parametrize(
    ("matcher", "reason"),
    [
        ({"path": {"matches": "("}}, "not a regular expression: missing \\), unterminated subpattern at position 0"),
        ({"path": {"matches": "a{1,99999999999999}"}}, "not a regular expression"),
        ({"path": {}}, "needs a value, a list of values, or one of"),
        ({"path": ()}, "at least 1 item"),
        ({}, "at least 1 item"),
        ({"path": {"matchez": "x"}}, "Extra inputs"),
        ({"path": {"ge": "5"}}, "number"),
        ({"path": {"ge": True}}, "number"),
        ({"path": {"exists": "yes"}}, "boolean"),
        ({"path": ({"matches": "x"},)}, "valid string"),
        ({"a..b": 1}, "not a field name"),
        ({"a[0]": 1}, "not a field name"),
        ("path", "valid dictionary"),
    ],
)
def test_a_wrong_matcher_is_refused_when_it_is_loaded(matcher: Any, reason: str) -> None:
    for action in ("keep_if", "drop_if"):
        with pytest.raises(ValidationError, match=reason):
            step(action, matcher)


def test_an_item_is_one_action() -> None:
    with pytest.raises(ValidationError):
        TRANSFORMS["drop_if"].options.model_validate({"drop_if": {"a": 1}, "keep_if": {"a": 1}})


@pytest.mark.parametrize("action", sorted(TRANSFORMS))
def test_every_transform_keeps_the_contract(action: str) -> None:
    options = TRANSFORMS[action].options
    assert all(field.description for field in options.model_fields.values())
    assert action in action_keys(options)
    assert "anyOf" in str(options.model_json_schema())


def test_options_are_compared_by_value() -> None:
    def options(number: int) -> object:
        return TRANSFORMS["drop_if"].options.model_validate({"drop_if": {"a": number}})

    assert options(1) == options(1)
    assert options(1) != options(2)
