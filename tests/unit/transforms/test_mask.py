"""Promises of `mask`: the pattern's groups stay, the rest of the match goes, and no value passes that should have been masked."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from copycat_agent.transforms import TRANSFORMS, GuardedTransform, StepError
from tests.unit.transforms.steps import META, after, draft, options, step

CARD = r"\b\d{12}(\d{4})\b"


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        (CARD, "4111111111111111", "************1111"),
        (CARD, "a 4111111111111111, 5500000000000004.", "a ************1111, ************0004."),
        (CARD, "411111111111111", "411111111111111"),
        (CARD, 4111111111111111, "************1111"),
        (CARD, ["4111111111111111", {"n": 4111111111111111, "x": None}], ["************1111", {"n": "************1111", "x": None}]),
        (CARD, None, None),
        (CARD, "", ""),
        ("secret", "a secret", "a ******"),
        ({"pattern": "secret", "with": "?"}, "a secret", "a ?"),
        ({"pattern": "secret", "with": ""}, "a secret", "a "),
        ({"pattern": r"(\w)\w*@(\w+)", "with": "***"}, "ann@example bob@x", "a***example b***x"),
        (r"(\w)\w*@(\w+)", "ann@example", "a***example"),
        (r"pw=(?:\S+)", "user=a pw=b c", "user=a **** c"),
        (r"(a)|b", "ab", "a*"),
        (r"((a)b)c", "abc", "ab*"),
        (r"(a)x(b)", "axb", "a*b"),
        (r"(?<=pw=)\S+", "pw=hunter2", "pw=*******"),
        (r"x(?=(y))", "xy", "*y"),
        ({"pattern": r"x(?=(y))", "with": "?"}, "xy", "?y"),
        ({"pattern": r"(?<=(y))x", "with": "?"}, "yx", "y?"),
        ("^$", "", ""),
        ("x*", "axb", "a*b"),
        ({"pattern": r"\d+", "with": r"\1 \g<0>"}, "7", r"\1 \g<0>"),
        (".", True, "****"),
        (".", 1.5, "***"),
        ("[0-9]", Decimal("1.50"), "*.**"),
        ("2026", date(2026, 1, 2), "****-01-02"),
        ("e", b"secret", "s*cr*t"),
        ("é", "café", "caf*"),
    ],
)
def test_what_is_left_of_a_value(rule: Any, value: Any, expected: Any) -> None:
    assert after({"mask": {"f": rule}}, {"f": value, "other": "secret"}) == {"f": expected, "other": "secret"}


def test_a_raw_line_is_masked_as_its_message() -> None:
    assert after({"mask": {"message": "pw=[^ ]+"}}, b"login pw=x ok") == {"message": "login **** ok"}


def test_several_fields_nested_ones_and_missing_ones() -> None:
    item = {"mask": {"a": "x", "u.card": CARD, "gone": "x", "u.gone": "x"}}
    inner = {"card": "4111111111111111", "n": 1}
    assert after(item, {"a": "xyx", "u": inner}) == {"a": "*y*", "u": {"card": "************1111", "n": 1}}
    assert inner["card"] == "4111111111111111", "what lies in a field is replaced, never changed"


def test_a_path_means_every_field_that_it_can_mean() -> None:
    fields = {"u": {"card": "4111111111111111"}, "u.card": "5500000000000004"}
    assert after({"mask": {"u.card": CARD}}, fields) == {"u": {"card": "************1111"}, "u.card": "************0004"}
    assert after({"mask": {"u.card": CARD}}, {"u.card": "5500000000000004"}) == {"u.card": "************0004"}


def test_a_path_leads_into_lists_too() -> None:
    items = [{"card": "4111111111111111"}, "4111111111111111", [{"card": [4111111111111111], "x": 1}], {"card": None}]
    hidden = [{"card": "************1111"}, "4111111111111111", [{"card": ["************1111"], "x": 1}], {"card": None}]
    assert after({"mask": {"u.items.card": CARD}}, {"u": {"items": items}}) == {"u": {"items": hidden}}
    assert items[0] == {"card": "4111111111111111"}


def test_the_form_of_other_steps_masks_nothing_unseen() -> None:
    """`hash: {field: card}` invites it: the fields `field` and `pattern` would be masked, and the card would pass."""
    with pytest.raises(ValueError, match=r"as in \{card: RE\}"):
        options({"mask": {"field": "card", "pattern": CARD}})
    both = {"field": {"pattern": "x"}, "pattern": {"pattern": "y"}}
    assert after({"mask": both}, {"field": "x", "pattern": "y"}) == {"field": "*", "pattern": "*"}


class Odd:
    """A value of a type that nobody expects."""

    def __str__(self) -> str:
        return "4111111111111111"


def test_a_value_of_an_unknown_type_is_masked_as_its_text() -> None:
    assert after({"mask": {"f": CARD}}, {"f": Odd()}) == {"f": "************1111"}


def nested(depth: int) -> Any:
    value: Any = "secret"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [10**5000, nested(100_000)], ids=["digits", "depth"])
@pytest.mark.parametrize("policy", ["keep", "dlq", None])
def test_what_cannot_be_masked_is_hidden_as_a_whole_whatever_becomes_of_the_record(value: Any, policy: str | None) -> None:
    record = draft({"f": value, "g": "x1"})
    masking = step({"mask": {"f": "e", "g": "[0-9]"}, **({"on_error": policy} if policy else {})})
    if policy == "keep":
        assert masking(record) is True
    else:
        with pytest.raises(StepError, match="field 'f' cannot be masked, so all of it is hidden"):
            masking(record)
    assert record.value == {"f": "********", "g": "x*"}


def test_what_lies_too_deep_to_be_looked_for_is_hidden() -> None:
    record = draft({"f": nested(100_000), "f.g": "secret"})
    assert step({"mask": {"f.g": "e"}, "on_error": "keep"})(record) is True
    assert record.value == {"f": "********", "f.g": "s*cr*t"}


def test_a_condition_that_nobody_can_tell_lets_no_record_pass_unmasked() -> None:
    """`keep` is for the step; whether it has to work on the record at all is another question."""

    def undecided(_: object) -> bool:
        raise DataError("the pattern takes too long")

    inner = TRANSFORMS["mask"].build(options({"mask": {"f": CARD}}))
    with pytest.raises(StepError, match=r"transforms\[0\] mask: the pattern takes too long"):
        GuardedTransform(inner, "transforms[0] mask", undecided, "keep").bind(META)(draft({"f": "4111111111111111"}))


@given(st.text(max_size=40))
def test_no_digit_passes_a_mask_for_digits(text: str) -> None:
    masked = after({"mask": {"f": "[0-9]+"}}, {"f": text})["f"]
    assert masked == "".join("*" if char in "0123456789" else char for char in text)


@given(st.text(alphabet="ab0123456789 -", max_size=60))
def test_the_length_and_the_kept_groups_stay(text: str) -> None:
    masked = after({"mask": {"f": r"\d{4}(\d{2})"}}, {"f": text})["f"]
    assert len(masked) == len(text)
    assert all(new in ("*", old) for new, old in zip(masked, text, strict=True))
