"""Promises of the step `convert`: what each kind of value becomes, exactly, or a DataError that does not show it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from copycat_agent.formats.records.field_types import field_type
from copycat_agent.options import ValidationError
from copycat_agent.transforms import StepError
from copycat_agent.transforms.convert import caster
from tests.unit.transforms.steps import after, columns, draft, options, step

BAD = object()
DAY = date(2026, 11, 21)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLOCK = datetime(2026, 11, 21, 12)  # noqa: DTZ001 - as Parquet has them
WORDS = ("string", "int", "bigint", "double", "decimal", "bool", "date", "time", "timestamp", "json", "binary")

TABLE: list[tuple[Any, dict[str, Any]]] = [
    ("200", {"string": "200", "int": 200, "bigint": 200, "double": 200.0, "decimal": Decimal(200), "bool": BAD, "date": BAD, "json": 200}),
    (" -7 ", {"string": " -7 ", "int": -7, "bigint": -7, "double": -7.0, "decimal": Decimal(-7), "json": -7}),
    ("1.10", {"int": BAD, "bigint": BAD, "double": 1.1, "decimal": Decimal("1.10"), "json": Decimal("1.10"), "bool": BAD}),
    ("9" * 20, {"int": 10**20 - 1, "bigint": BAD, "double": 1e20}),
    ("٢٠", {"int": BAD, "double": BAD, "decimal": BAD}),
    ("1_000", {"int": BAD, "bigint": BAD, "double": BAD}),
    ("²", {"int": BAD, "bigint": BAD}),
    ("", dict.fromkeys(WORDS, BAD) | {"string": "", "binary": b""}),
    ("-", dict.fromkeys(WORDS, BAD) | {"string": "-"}),
    ("yes", {"bool": True, "int": BAD}),
    ("FALSE", {"bool": False}),
    ("2026-11-21", {"date": DAY}),
    ("12:00:01", {"time": time(12, 0, 1)}),
    ("2026-11-21T12:00:00Z", {"timestamp": NOON}),
    ("YWI=", {"binary": b"ab"}),
    ('{"a": 1.10}', {"json": {"a": Decimal("1.10")}}),
    (200, {"string": "200", "int": 200, "bigint": 200, "double": 200.0, "decimal": Decimal(200), "bool": BAD, "json": 200, "binary": BAD}),
    (1, {"bool": True}),
    (0, {"bool": False}),
    (20261121, {"date": DAY}),
    (2**63, {"int": 2**63, "bigint": BAD, "string": str(2**63)}),
    (10**5000, {"string": BAD, "double": BAD, "bigint": BAD, "decimal": BAD, "date": BAD, "timestamp": BAD, "int": 10**5000}),
    (1.0, {"string": "1.0", "int": 1, "bigint": 1, "double": 1.0, "decimal": Decimal("1.0"), "bool": True, "date": BAD, "json": 1.0}),
    (1.5, {"int": BAD, "bigint": BAD, "string": "1.5", "decimal": Decimal("1.5"), "bool": BAD}),
    (1e300, {"bigint": BAD, "decimal": Decimal("1e300"), "int": int(1e300)}),
    (math.inf, {"int": BAD, "bool": BAD, "double": math.inf, "decimal": BAD}),
    (math.nan, {"int": BAD, "bool": BAD, "decimal": BAD}),
    (Decimal("1.10"), {"string": "1.10", "int": BAD, "double": 1.1, "decimal": Decimal("1.10")}),
    (Decimal("2.00"), {"int": 2, "bigint": 2}),
    (Decimal("1e400"), {"double": BAD, "bigint": BAD, "int": 10**400}),
    (Decimal("1e999999"), {"int": BAD, "double": BAD}),
    (Decimal("NaN"), {"int": BAD, "bool": BAD, "decimal": BAD}),
    (True, {"string": "true", "int": 1, "bigint": 1, "double": 1.0, "bool": True, "decimal": BAD, "date": BAD, "json": True}),
    (False, {"string": "false", "int": 0, "bool": False}),
    (NOON, {"string": "2026-11-21T12:00:00+00:00", "timestamp": NOON, "date": BAD, "int": BAD, "bool": BAD, "json": NOON}),
    (CLOCK, {"timestamp": CLOCK}),
    (DAY, {"string": "2026-11-21", "date": DAY, "timestamp": BAD, "int": BAD}),
    (time(12), {"string": "12:00:00", "time": time(12), "int": BAD}),
    (b"caf\xc3\xa9", {"string": "café", "binary": b"caf\xc3\xa9", "int": BAD, "json": BAD}),
    (b"caf\xe9", {"string": BAD, "json": BAD}),
    (b"[1]", {"json": [1]}),
    ({"a": 1}, dict.fromkeys(WORDS, BAD) | {"json": {"a": 1}}),
    ([1], dict.fromkeys(WORDS, BAD) | {"json": [1]}),
]  # fmt: skip


CELLS = [
    pytest.param(value, word, to, id=f"row{number}-{word}") for number, (value, row) in enumerate(TABLE) for word, to in row.items()
]  # fmt: skip
"""Named by number: Python writes no whole number of 5,000 digits."""


@pytest.mark.parametrize(("value", "word", "expected"), CELLS)
def test_the_table_of_conversions(value: Any, word: str, expected: Any) -> None:
    if expected is BAD:
        with pytest.raises(DataError, match="field 'x': "):
            after({"convert": {"x": word}}, {"x": value})
        return
    found = after({"convert": {"x": word}}, {"x": value})["x"]
    assert (type(found), found) == (type(expected), expected)


@given(
    st.sampled_from(WORDS), st.text(max_size=30) | st.from_regex(r"[-+]?[0-9]{0,25}(\.[0-9]{0,20})?([eE][-+]?[0-9]{1,4})?", fullmatch=True)
)
def test_a_text_is_read_as_formats_read_it(word: str, text: str) -> None:
    def outcome(read: Any) -> Any:
        try:
            return repr(read(text))
        except ValueError:
            return ValueError

    assert outcome(caster(word)) == (repr(text) if word == "string" else outcome(field_type(word).read))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes()
    | st.times(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


@given(
    st.sampled_from([*WORDS, "decimal(10,2)", "timestamp:unix", "timestamp:unix_ms", "timestamp:%Y", "date:%d.%m.%Y", "bool:j/n"]), VALUES
)
def test_any_value_is_converted_or_a_data_error(word: str, value: Any) -> None:
    record = draft({"x": value})
    try:
        assert step({"convert": {"x": word}})(record)
    except DataError:
        assert isinstance(record.value, dict)
        assert record.value["x"] is value


@pytest.mark.parametrize(
    ("item", "before", "expected"),
    [
        ({"convert": {"a": "int"}}, {"b": "1"}, {"b": "1"}),
        ({"convert": {"a": "int"}}, {"a": None}, {"a": None}),
        ({"convert": {"a": "int"}, "null": "-"}, {"a": "-"}, {"a": None}),
        ({"convert": {"a": "int", "b": "int"}, "null": ("", "0")}, {"a": "", "b": "0"}, {"a": None, "b": None}),
        ({"convert": {"a": "double"}, "decimal_point": ","}, {"a": "3,50"}, {"a": 3.5}),
        ({"convert": {"a": "timestamp"}, "timestamp_zone": "UTC"}, {"a": "2026-11-21T12:00:00"}, {"a": NOON}),
        ({"convert": {"a": "timestamp"}, "timestamp_zone": "UTC"}, {"a": CLOCK}, {"a": NOON}),
        ({"convert": {"a": "timestamp:unix"}}, {"a": 1795262400.000001}, {"a": NOON.replace(microsecond=1)}),
        ({"convert": {"a": "timestamp:unix_ms"}}, {"a": 1795262400123.456}, {"a": NOON.replace(microsecond=123456)}),
        ({"convert": {"a": "timestamp:unix"}}, {"a": 1795262400}, {"a": NOON}),
        ({"convert": {"a": "bool:j/n"}}, {"a": "J"}, {"a": True}),
        ({"convert": {"u.age": "int"}}, {"u": {"age": "7", "b": 1}}, {"u": {"age": 7, "b": 1}}),
        ({"convert": {"u.age": "int", "n": "int"}}, {"u": "text", "n": "1"}, {"u": "text", "n": 1}),
        ({"convert": {"u.age": "int"}}, {"u.age": "7"}, {"u.age": 7}),
        ({"convert": {"message": "int"}}, b"12", {"message": 12}),
    ],
)
def test_fields_are_converted_where_they_are(item: dict[str, Any], before: Any, expected: Any) -> None:
    assert after(item, before) == expected


@pytest.mark.parametrize("good", ["z", "o.z"])
def test_all_good_fields_are_converted_before_the_first_bad_one_is_named(good: str) -> None:
    inner = {"z": "3", "y": 1}
    item = {"convert": {"a": "int", "b": "int", "c": "int", good: "int"}}
    record = draft({"a": "1", "b": "secret", "c": "token", "z": "3", "o": inner})
    with pytest.raises(StepError, match="field 'b': not a whole number") as caught:
        step(item)(record)
    assert "secret" not in str(caught.value)
    assert isinstance(record.value, dict)
    assert (record.value["a"], record.value["b"], record.value["c"]) == (1, "secret", "token")
    assert (record.value["z"] if good == "z" else record.value["o"]["z"]) == 3
    assert inner == {"z": "3", "y": 1}
    record = draft({"a": "1", "b": "-"})
    assert step({**item, "on_error": "keep"})(record)
    assert (record.value, record.kept) == ({"a": 1, "b": "-"}, 1)


def test_declared_fields() -> None:
    item = {"convert": {"a": "int", "b": "decimal(10,2)", "o.c": "bool", "gone": "int"}}
    expected = {"a": "bigint", "b": "decimal(10,2)", "o": "struct<c: boolean, d: string>"}
    assert columns(item, a="string", b="string", o="struct<c: string, d: string>") == expected


@pytest.mark.parametrize(
    "item",
    [{"convert": {}}, {"convert": {"a": "integer"}}, {"convert": {"a[0]": "int"}}, {"convert": {"a": "decimal(99)"}}, {"convert": "a"},
     {"convert": {"a": "timestamp:%Q%"}}, {"convert": {"a": "int"}, "timestamp_zone": "Nowhere"}, {"convert": {"a": "int"}, "nul": "-"}],
)  # fmt: skip
def test_what_cannot_work_is_refused_when_it_is_loaded(item: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        options(item)
