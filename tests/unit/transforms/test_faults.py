"""A step that fails as no step may stops its connector, by name and place, and shows nothing of the record."""

from __future__ import annotations

import pytest

from copycat_agent.errors import DataError, FatalError, RetriableError
from copycat_agent.transforms import Draft, GuardedTransform, Steady, StepError
from copycat_agent.transforms.base import OnError
from tests.unit.transforms.steps import META, draft, step


def raising(error: BaseException, on_error: OnError | None = None) -> GuardedTransform:
    def fails(record: Draft) -> bool:
        raise error

    return GuardedTransform(Steady(fails), "transforms[2] shout", None, on_error)


@pytest.mark.parametrize("policy", [None, "dlq", "keep", "drop", "stop"])
@pytest.mark.parametrize("error", [ValueError("card 4111"), KeyError("4111"), TypeError("4111"), RecursionError(), OSError("4111")])
def test_anything_but_a_data_error_is_fatal_by_no_policy(error: Exception, policy: OnError | None) -> None:
    with pytest.raises(FatalError, match=rf"^transforms\[2\] shout: {type(error).__name__} at test_faults.py:\d+;") as caught:
        raising(error, policy).bind(META)(draft(b"x"))
    assert "4111" not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("error", [RetriableError("registry"), FatalError("no"), MemoryError()])
def test_what_is_meant_for_others_passes(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        raising(error, "keep").bind(META)(draft(b"x"))
    assert caught.value is error


def test_policies_are_for_bad_records() -> None:
    kept, dropped = draft(b"x"), draft(b"x")
    assert raising(DataError("bad"), "keep").bind(META)(kept) is True
    assert raising(DataError("bad"), "drop").bind(META)(dropped) is False
    assert (kept.kept, dropped.kept) == (1, 0)
    with pytest.raises(StepError, match="transforms"):
        raising(DataError("bad")).bind(META)(draft(b"x"))


@pytest.mark.parametrize(
    ("condition", "applies"),
    [
        ({"a": 1}, True),
        ({"a": {"not": 1}}, False),
        ({"a": {"not": 2}}, True),
        ({"a": {"not": (1, 2)}}, False),
        ({"a": {"not": {"matches": "^2"}}}, True),
        ({"a": {"not": {"ge": 2}}}, True),
        ({"a": {"ge": 0, "not": 5}}, True),
        ({"a": {"ge": 0, "not": 1}}, False),
        ({"gone": {"not": 1}}, True),
        ({"gone": {"not": {"exists": True}}}, True),
    ],
)
def test_a_condition_may_be_turned_round(condition: object, applies: bool) -> None:
    record = draft({"a": 1})
    assert step({"set": {"b": 2}, "if": condition})(record) is True
    assert ("b" in record.fields()) is applies
