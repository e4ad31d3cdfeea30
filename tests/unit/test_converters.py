"""Promises of the converters: what reaches Kafka is exactly this."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.converters import CONVERTERS, build_converter
from copycat_agent.errors import DataError
from copycat_agent.options import ConverterOptions


def convert(name: str, value: Any) -> bytes:
    return build_converter(CONVERTERS[name].options(type=name))(value)


@pytest.mark.parametrize("name", sorted(CONVERTERS))
def test_every_converter_keeps_the_contract(name: str) -> None:
    kind = CONVERTERS[name]
    options = kind.options(type=name)
    assert issubclass(kind.options, ConverterOptions)
    assert kind.options.model_fields["type"].description
    assert pickle.loads(pickle.dumps(options)) == options
    if kind.wants_record:  # those ask a schema registry, see tests/unit/converters
        with pytest.raises(ValueError, match="schema_registry"):
            build_converter(options)
        return
    assert isinstance(build_converter(options)(b"line"), bytes)
    assert isinstance(build_converter(options)("key"), bytes)


@given(st.binary())
def test_bytes_are_untouched(line: bytes) -> None:
    assert convert("bytes", line) is line


def test_only_the_bytes_converter_may_be_left_out() -> None:
    assert [name for name, kind in CONVERTERS.items() if kind.is_identity] == ["bytes"]


def test_the_bytes_converter_refuses_fields_and_names_the_way_out() -> None:
    with pytest.raises(DataError, match="json converter") as caught:
        convert("bytes", {"card": "s3cret"})
    assert "s3cret" not in str(caught.value)


@given(st.binary())
def test_a_string_is_always_utf8_and_unchanged_where_it_was(line: bytes) -> None:
    text = convert("string", line)
    assert text == line.decode("utf-8", "replace").encode()
    assert text.decode() == line.decode("utf-8", "replace")


def test_fields_as_a_string_are_compact_json() -> None:
    assert convert("string", {"a": 1, "b": "ü"}) == '{"a":1,"b":"ü"}'.encode()


@pytest.mark.parametrize("name", ["bytes", "string"])
def test_a_key_becomes_its_utf8_bytes(name: str) -> None:
    assert convert(name, "schlüssel") == "schlüssel".encode()


def test_a_key_as_json_is_a_json_text() -> None:
    assert convert("json", 'a"b') == b'"a\\"b"'


@given(st.binary())
def test_a_raw_line_as_json_is_an_object_with_its_message(line: bytes) -> None:
    assert json.loads(convert("json", line)) == {"message": line.decode("utf-8", "replace")}


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON_VALUES, max_size=5))
def test_fields_as_json_read_back_as_they_were(fields: dict[str, Any]) -> None:
    assert json.loads(convert("json", fields)) == fields


def test_decimals_keep_their_digits_and_times_are_rfc_3339() -> None:
    fields = {
        "price": Decimal("1.10"),
        "big": Decimal("12345678901234567890.123"),
        "nan": Decimal("NaN"),
        "at": datetime(2026, 11, 21, 5, tzinfo=UTC),
    }
    assert convert("json", fields) == (b'{"price":1.10,"big":12345678901234567890.123,"nan":null,"at":"2026-11-21T05:00:00+00:00"}')


def test_what_json_has_no_type_for_loses_nothing() -> None:
    fields = {
        "id": -(10**30),
        "deep": [{"id": 2**64}, (2**64 - 1,)],
        "raw": b"\x00\xff",
        "day": date(2026, 11, 21),
        "at": time(5, 0, 0, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
        "local": datetime(2026, 11, 21, 5, 0, 0, 123456),  # noqa: DTZ001 - one without a zone
        "tiny": Decimal("1E-400"),
        "no": float("inf"),
    }
    assert convert("json", fields) == (
        b'{"id":-1000000000000000000000000000000,"deep":[{"id":18446744073709551616},[18446744073709551615]],"raw":"AP8=",'
        b'"day":"2026-11-21","at":"05:00:00.000001-03:30","local":"2026-11-21T05:00:00.123456","tiny":1E-400,"no":null}'
    )


@given(st.integers() | st.decimals(allow_nan=False, allow_infinity=False))
def test_numbers_of_any_size_keep_their_digits(number: int | Decimal) -> None:
    assert json.loads(convert("json", {"n": [number]}), parse_float=Decimal)["n"] == [number]


@pytest.mark.parametrize("bad", [{"s3cret"}, pytest.param(10**5000, id="too many digits"), "s3cret\ud800", object(), {1: "s3cret"}])
def test_what_json_cannot_carry_is_a_data_error_that_never_shows_the_data(bad: object) -> None:
    with pytest.raises(DataError) as caught:
        convert("json", {"field": bad})
    assert "cannot be written as JSON" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_nesting_without_end_is_a_data_error() -> None:
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"a": deep}
    with pytest.raises(DataError, match="cannot be written as JSON"):
        convert("json", deep)
