"""Expected and got: types count, times and decimals compare by what they mean, and what is not named may be there."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from copycat_agent.options import ExpectedOptions, WrittenFloat
from copycat_agent.workbench.trying import ABSENT, Difference, compare, differences, same
from copycat_agent.workbench.trying.results import Output

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (200, 200),
        ("200", "200"),
        (True, True),
        (None, None),
        (1.5, 1.5),
        (WrittenFloat("1.50"), 1.5),
        (WrittenFloat("12.10"), Decimal("12.10")),
        (12, Decimal(12)),
        ("2026-11-21T12:00:00Z", NOON),
        ("2026-11-21T13:00:00+01:00", NOON),
        (1_795_262_400_000, NOON),
        ("2026-11-21T12:00:00", NOON.replace(tzinfo=None)),
        ("2026-11-21", date(2026, 11, 21)),
        ("12:00:00", time(12)),
        ("AP8=", b"\x00\xff"),
    ],
)
def test_these_are_the_same(expected: object, got: object) -> None:
    assert same(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (200, "200"),
        ("200", 200),
        (200, 200.0),
        (1, True),
        (True, 1),
        ("true", True),
        (None, ABSENT),
        (None, ""),
        (0, None),
        (WrittenFloat("12.1"), Decimal("12.11")),
        (True, Decimal(1)),
        ("2026-11-21T12:00:01Z", NOON),
        (1_795_262_400_001, NOON),
        ("noon", NOON),
        (True, NOON),
    ],
)
def test_these_are_not(expected: object, got: object) -> None:
    assert not same(expected, got)


def test_a_map_may_have_more_fields_and_a_list_not_more_items() -> None:
    got = {"a": 1, "user": {"id": 7, "name": "x"}, "tags": ["p", "q"]}
    assert list(differences({"user": {"id": 7}, "tags": ["p", "q"]}, got, "value", exact=False)) == []
    found = list(differences({"user": {"id": "7"}, "tags": ["p"], "no": None}, got, "value", exact=False))
    assert [(one.place, one.expected, one.got) for one in found] == [
        ("value.user.id", "7", 7), ("value.tags[1]", ABSENT, "q"), ("value.no", None, ABSENT),
    ]  # fmt: skip
    extra = [one.place for one in differences({"a": 1, "user": {"id": 7}, "tags": ["p", "q"]}, got, "value", exact=True)]
    assert extra == ["value.user.name"]


def output(**changed: object) -> Output:
    made = Output("t", b"k", {"a": 1}, {"a": 1}, b'{"a":1}', (("h", b"1"), ("h", b"2")), None, None)
    return made._replace(**changed)  # type: ignore[arg-type]


def compared(expected: dict[str, object], *, exact: bool = False, **changed: object) -> list[str]:
    return [one.place for one in compare(ExpectedOptions.model_validate(expected, strict=False), output(**changed), exact=exact)]


def test_only_what_is_named_is_compared_and_null_says_that_there_is_none() -> None:
    assert compared({}) == []
    assert compared({"topic": "x", "key": "x", "headers": {"h": "2", "g": None, "i": "1"}}) == ["topic", "key", "headers.h", "headers.i"]
    assert compared({"key": None, "timestamp": None, "partition": None}) == ["key"]
    assert compared({"key": None}, key=None) == []
    assert compared({"value": {"a": 1}}, exact=True) == ["headers.h"]


def test_a_text_is_compared_with_the_bytes_and_a_map_with_the_fields() -> None:
    assert compared({"value": '{"a":1}'}) == []
    assert compared({"value": {"a": 1}}) == []
    line = output(value=b"a line", fields=None, payload=b"a line")
    assert compare(ExpectedOptions(value="a line"), line, exact=False) == ()
    (found,) = compare(ExpectedOptions(value={"message": "a line"}), line, exact=False)
    assert found == Difference("value", {"message": "a line"}, "a line", "no step makes fields of it: the value is the line as it is")


def test_a_timestamp_is_a_text_or_milliseconds() -> None:
    assert compared({"timestamp": "2026-11-21T12:00:00Z"}, timestamp_ms=1_795_262_400_000) == []
    assert compared({"timestamp": 1_795_262_400_000}, timestamp_ms=1_795_262_400_000) == []
    (found,) = compare(ExpectedOptions(timestamp="2026-11-21T12:00:01Z"), output(timestamp_ms=1_795_262_400_000), exact=False)
    assert found.got == "2026-11-21T12:00:00.000Z"


def test_a_number_that_is_still_a_text_comes_with_the_step_that_makes_one() -> None:
    (found,) = differences({"status": 200}, {"status": "200"}, "value", exact=False)
    assert "convert: {status: int}" in found.hint
    (found,) = differences({"status": 200}, {"status": "201"}, "value", exact=False)
    assert not found.hint
