"""Promises of the step `json`: the object that the text is, number by number, or a DataError that does not show it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copycat_agent.converters import CONVERTERS, build_converter
from copycat_agent.errors import DataError
from copycat_agent.transforms import StepError
from tests.unit.transforms.steps import after, columns, draft, step

JSON: dict[str, Any] = {"json": {}}


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (b'{"a":1,"b":[true,null,{"c":"d"}]}', {"a": 1, "b": [True, None, {"c": "d"}]}),
        (b' {"a" : "caf\\u00e9 \\ud83d\\ude00"} \r', {"a": "café 😀"}),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b"{}", {}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"message":"x"}', {"message": "x"}),
        (b'{"n":18446744073709551615}', {"n": 2**64 - 1}),
        (b'{"n":18446744073709551616}', {"n": 2**64}),
        (b'{"n":-9223372036854775809}', {"n": -(2**63) - 1}),
        (b'{"n":[{"m":123456789012345678901234567890}]}', {"n": [{"m": 123456789012345678901234567890}]}),
        (b'{"n":18446744073709551616,"a":"\\u001f"}', {"n": 2**64, "a": "\x1f"}),
        (b'{"n":1.10}', {"n": 1.1}),
        (b'{"n":0.1234567890123456789}', {"n": Decimal("0.1234567890123456789")}),
        (b'{"n":1e400}', {"n": Decimal("1e400")}),
        (b'{"n":1e-400}', {"n": Decimal("1e-400")}),
        (b'{"n":-0.0}', {"n": -0.0}),
        (b'{"id":"0e12345678901234567890","n":0.5}', {"id": "0e12345678901234567890", "n": 0.5}),
    ],
)
def test_an_object_becomes_fields_without_losing_a_digit(line: bytes, fields: dict[str, Any]) -> None:
    assert repr(after(JSON, line)) == repr(fields)
    assert repr(after({"json": {"field": "x.y"}}, {"x": {"y": line.decode()}, "z": 1})) == repr({"x": {}, "z": 1, **fields})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "nothing in it"),
        (b" \t", "nothing in it"),
        (b"\xef\xbb\xbf", "nothing in it"),
        (b"[1,2]", "a list, not an object"),
        (b'"secret"', "a text, not an object"),
        (b"12", "a number, not an object"),
        (b"true", "a boolean, not an object"),
        (b"null", "null, not an object"),
        (b"secret", "not JSON"),
        (b'{"secret":1}}', "not JSON"),
        (b'{"secret":1} {"b":2}', "not JSON"),
        (b'{"secret":NaN}', "not JSON"),
        (b'{"secret":1e400,"b":Infinity}', "not JSON"),
        (b'{"secret":1e-8000000}', "exponent that nothing holds"),
        (b'{"secret":[-1E9000000000]}', "exponent that nothing holds"),
        (b'{"secret":01}', "not JSON"),
        (b'{"secret":"a\nb"}', "not JSON"),
        (b'{"secret":"\\ud800"}', "not JSON"),
        (b'{"secret":0.12345678901234567890,"b":"\\ud800"}', "surrogate"),
        (b'{"secret":"caf\xe9"}', "not JSON: not UTF-8 at byte 14$"),
        (b'{"secret":' * 100_000, "not JSON"),
        (b'{"secret":' + b"[" * 5000 + b"1e400" + b"]" * 5000 + b"}", "not JSON"),
        (b"{'secret':1}", "not JSON"),
        (b'{"secret":1,}', "not JSON"),
    ],
    ids=range(24),
)
def test_anything_else_is_a_data_error_that_does_not_show_it(line: bytes, why: str) -> None:
    record = draft(line)
    with pytest.raises(StepError, match=why) as caught:
        step(JSON)(record)
    assert "secret" not in str(caught.value)
    assert record.value == line


def test_a_field_that_holds_half_of_a_pair_is_a_data_error() -> None:
    with pytest.raises(DataError, match="surrogate"):
        after(JSON, {"message": '{"a":"\ud800"}'})


def test_fields_of_the_record_stay_and_those_of_the_text_win() -> None:
    value = {"message": '{"a":1,"level":"info"}', "level": "?", "ts": 5}
    assert after(JSON, dict(value)) == {"level": "info", "ts": 5, "a": 1}
    assert after({"json": {"into": "app.log"}}, value) == {"level": "?", "ts": 5, "app": {"log": {"a": 1, "level": "info"}}}
    assert after({"json": {"keep_source": True}}, b'{"a":1}') == {"message": '{"a":1}', "a": 1}


def test_nobody_knows_its_fields_before_a_record_is_read() -> None:
    assert columns(JSON, message="string") is None


_CHARACTERS = st.characters(codec="utf-8")
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
TREES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(_CHARACTERS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(_CHARACTERS, max_size=8), inner, max_size=4),
)  # fmt: skip


@given(st.dictionaries(st.text(_CHARACTERS, max_size=8), TREES, max_size=5))
def test_what_was_written_is_read_and_written_again(fields: dict[str, Any]) -> None:
    found = after(JSON, json.dumps(fields).encode())
    assert repr(found) == repr(fields)
    convert: Any = build_converter(CONVERTERS["json"].options(type="json"))
    assert json.loads(convert(found)) == fields


@given(st.decimals(allow_nan=False, allow_infinity=False), st.booleans())
def test_a_decimal_keeps_its_value_to_the_last_digit(number: Decimal, nested: bool) -> None:
    text = f'{{"n":{{"m":[{number}]}}}}' if nested else f'{{"n":{number}}}'
    found = after(JSON, text.encode())["n"]
    found = found["m"][0] if nested else found
    assert Decimal(repr(found)) == number if isinstance(found, float) else found == number


@given(st.binary(max_size=60) | st.text('{}[]":,.0123456789eE+-\\udn tf', max_size=60).map(str.encode))
@example(b'{"a":1e99999999999999999999}')
def test_any_text_is_an_object_or_a_data_error(line: bytes) -> None:
    try:
        found = after(JSON, line)
    except DataError:
        return
    assert repr(found) == repr(after(JSON, {"message": line.decode()}))
