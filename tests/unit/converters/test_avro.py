"""Promises of Avro: every byte is what fastavro writes, and what does not fit is refused with its field, never changed."""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.converters.avro_form import avro_of
from copycat_agent.converters.avro_writing import Compiler, parsed
from copycat_agent.converters.base import BadSchemaError, UnfitValueError
from copycat_agent.model import Column


def write(schema: Any, value: Any, *, drops: bool = False) -> bytes:
    named: dict[str, Any] = {}
    return Compiler(named, drops=drops).top(parsed(schema, named))(value)


def theirs(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(schema: Any, data: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)


def record(*fields: Any, name: str = "r") -> dict[str, Any]:
    """Of (name, type) or (name, type, default)."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": one[0], "type": one[1], **({"default": one[2]} if len(one) > 2 else {})} for one in fields],
    }


def logical(base: str, word: str, /, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": word, **more}


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LEAST, MOST = datetime(1900, 1, 1), datetime(2200, 1, 1)  # noqa: DTZ001 - hypothesis adds the zone
MOMENTS = st.datetimes(LEAST, MOST, timezones=st.just(UTC))
CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("string", TEXT),
    ("bytes", st.binary()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("double", st.floats()),
    ("float", st.floats(width=32)),
    ("boolean", st.booleans()),
    (["null", "string"], st.none() | TEXT),
    (["long", "null"], st.none() | st.integers(-5, 10**12)),
    (["null", "long", "string", "boolean"], st.none() | st.integers(-5, 10**12) | TEXT | st.booleans()),
    ({"type": "array", "items": ["null", "long"]}, st.lists(st.none() | st.integers(-9000, 9000))),
    ({"type": "map", "values": "string"}, st.dictionaries(TEXT, TEXT)),
    ({"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
    ({"type": "fixed", "name": "f", "size": 3}, st.binary(min_size=3, max_size=3)),
    (logical("int", "date"), st.dates()),
    (logical("long", "timestamp-micros"), MOMENTS),
    (logical("long", "local-timestamp-micros"), st.datetimes(LEAST, MOST)),
    (logical("long", "time-micros"), st.times()),
    (logical("bytes", "decimal", precision=30, scale=4), st.decimals(-(10**20), 10**20, places=4)),
    (
        logical("fixed", "decimal", name="d", size=16, precision=30, scale=4),
        st.decimals(-(10**20), 10**20, places=4),
    ),
]


@pytest.mark.parametrize(("schema", "values"), CASES, ids=lambda case: json.dumps(case) if isinstance(case, str | dict | list) else "")
def test_every_byte_is_what_fastavro_writes(schema: Any, values: st.SearchStrategy[Any]) -> None:
    whole = record(("a", schema), ("b", "string"))

    @given(values)
    def check(value: Any) -> None:
        fields = {"a": value, "b": "x"}
        assert write(whole, fields) == theirs(whole, fields)

    check()


MOMENT = datetime(2026, 11, 21, 5, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schema", "value", "same_as"),
    [
        (logical("long", "timestamp-micros"), "2026-11-21T06:00:00.123456+01:00", MOMENT),
        (logical("long", "timestamp-micros"), MOMENT.astimezone(timezone(timedelta(hours=-7))), MOMENT),
        (logical("long", "timestamp-millis"), "2026-11-21T05:00:00.123999Z", MOMENT),
        (logical("long", "timestamp-millis"), 1_700_000_000_000, 1_700_000_000_000),
        (logical("int", "date"), "2026-11-21", date(2026, 11, 21)),
        (logical("int", "time-millis"), "05:00:00.250", time(5, 0, 0, 250000)),
        (logical("string", "uuid"), "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        (logical("bytes", "decimal", precision=6, scale=2), 12.3, Decimal("12.30")),
        (logical("bytes", "decimal", precision=6, scale=2), Decimal("1.2300"), Decimal("1.23")),
        (logical("bytes", "decimal", precision=6, scale=2), 7, Decimal("7.00")),
        ("double", 7, 7.0),
        (logical("string", "no-such-type"), "text", "text"),
        (["null", "double", "long"], 7, ("long", 7)),
    ],
)  # fmt: skip
def test_a_value_may_come_in_the_form_that_logs_have_it(schema: Any, value: Any, same_as: Any) -> None:
    assert write(schema, value) == theirs(schema, same_as)


SECRET = "s3cret-value"


@pytest.mark.parametrize(
    ("type_", "value", "words"),
    [
        ("int", "12", "a whole number is needed, not text"),
        ("int", True, "not a boolean"),
        ("int", 1.0, "not a number with a point"),
        ("int", 2**31, "32 bits of int; the schema's type could be long"),
        ("int", -(2**31) - 1, "32 bits"),
        ("long", 2**63, "64 bits of long"),
        ("long", None, "not null"),
        ("double", "1.5", "not text"),
        ("double", 2**53 + 1, "more digits than double"),
        ("double", False, "a number is needed, not a boolean"),
        ("float", 1e300, "beyond what float holds"),
        ("boolean", 1, "true or false is needed"),
        ("string", 5, "text is needed"),
        ("string", b"raw", "not bytes"),
        ("string", "\ud800", "half of a character"),
        ("bytes", SECRET, "bytes are needed, not text"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, SECRET, "none of the enum's words"),
        ({"type": "fixed", "name": "f", "size": 3}, b"1234", "3 bytes are needed, not 4"),
        ({"type": "array", "items": "int"}, {"a": 1}, "a list is needed"),
        ({"type": "map", "values": "int"}, [1], "an object is needed"),
        (["null", "int", "boolean"], SECRET, "none of the types that the schema allows takes text"),
        (logical("int", "date"), SECRET, "a date such as"),
        (logical("int", "date"), MOMENT, "a date is needed"),
        (logical("long", "timestamp-micros"), SECRET, "a time such as"),
        (logical("long", "timestamp-micros"), "2026-11-21T05:00:00", "a time with a zone"),
        (logical("long", "timestamp-micros"), 1.5, "a time is needed"),
        (logical("long", "local-timestamp-micros"), MOMENT, "without a zone"),
        (logical("string", "uuid"), SECRET, "a UUID is needed, the text is none"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.234"), "more than 2 digits behind the point"),
        (logical("bytes", "decimal", precision=4, scale=2), 100, "more than 2 digits before the point"),
        (logical("bytes", "decimal", precision=4, scale=2), "1.23", "a number is needed"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("NaN"), "not finite"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1E+999999"), "digits before the point"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_field_and_without_its_value(type_: Any, value: Any, words: str) -> None:
    schema = record(("outer", record(("bad", type_), name="inner")))
    with pytest.raises(UnfitValueError) as caught:
        write(schema, {"outer": {"bad": value}})
    error = caught.value.as_data_error("hint")
    assert error.message.startswith("field 'outer.bad': ")
    assert words in error.message
    assert SECRET not in error.message


def test_a_place_in_a_list_or_a_map_is_named() -> None:
    schema = record(("items", {"type": "array", "items": record(("n", "int"), name="i")}), ("tags", {"type": "map", "values": "string"}))
    with pytest.raises(UnfitValueError) as caught:
        write(schema, {"items": [{"n": 1}, {"n": "x"}], "tags": {}})
    assert caught.value.as_data_error("").message.startswith("field 'items[1].n': ")
    with pytest.raises(UnfitValueError) as caught:
        write(schema, {"items": [], "tags": {"a": "x", "b": 1}})
    assert caught.value.as_data_error("").message.startswith("field 'tags.b': ")


def test_a_missing_field_is_its_default_or_null_or_an_error() -> None:
    inner = record(("x", "int", 3), name="inner")
    schema = record(
        ("a", "int", 5), ("b", ["null", "string"]), ("c", {"type": "array", "items": "int"}, [1, 2]), ("d", inner, {}), ("e", "bytes", "ÿ")
    )
    assert read(schema, write(schema, {})) == {"a": 5, "b": None, "c": [1, 2], "d": {"x": 3}, "e": b"\xff"}
    with pytest.raises(UnfitValueError, match="missing") as caught:
        write(record(("must", "string")), {})
    assert caught.value.path == ["must"]


def test_a_field_that_the_schema_does_not_have_is_an_error_or_left_out() -> None:
    schema = record(("a", "int"))
    with pytest.raises(UnfitValueError, match="extra_fields") as caught:
        write(schema, {"a": 1, "b": 2})
    assert caught.value.path == ["b"]
    assert write(schema, {"a": 1, "b": 2}, drops=True) == write(schema, {"a": 1})


def test_a_type_that_contains_itself_is_written_and_a_depth_without_end_refused() -> None:
    schema = record(("v", "int"), ("next", ["null", "r"], None))
    value = {"v": 1, "next": {"v": 2, "next": None}}
    assert write(schema, value) == theirs(schema, value)
    for _ in range(5000):
        value = {"v": 0, "next": value}
    with pytest.raises(UnfitValueError, match="too deeply"):
        write(schema, value)


def test_of_several_records_the_one_that_fits_is_taken_and_else_the_deepest_place_is_named() -> None:
    schema = record(("u", [record(("a", "int"), name="A"), record(("b", "string"), name="B")]))
    assert write(schema, {"u": {"b": "x"}}) == theirs(schema, {"u": ("B", {"b": "x"})})
    with pytest.raises(UnfitValueError) as caught:
        write(schema, {"u": {"b": 1}})
    assert caught.value.path[0] == "u"


def test_named_types_of_a_namespace_are_found() -> None:
    schema = record(("one", {"type": "enum", "name": "E", "symbols": ["X"]}), ("two", "E"), name="a.b.r")
    assert write(schema, {"one": "X", "two": "X"}) == b"\0\0"


@pytest.mark.parametrize("schema", [{"type": "record"}, {"type": "no"}, 5, record(("a", "int", "x")), record(("a", "Unknown"))])
def test_what_is_no_schema_is_said(schema: Any) -> None:
    with pytest.raises(BadSchemaError):
        write(schema, {})


def test_a_schema_is_made_from_declared_types() -> None:
    columns = (
        Column("s"), Column("n", "bigint", nullable=False), Column("p", "decimal(10,2)"), Column("at", "timestamp"), Column("d", "date"),
        Column("t", "time(6)"), Column("list", "array<struct<`a`: int, b: string>>"), Column("m", "map<string, double>"),
        Column("l", "timestamp_ntz"),
    )  # fmt: skip
    schema = avro_of(columns, "shop_orders")
    value = {
        "s": "x", "n": 1, "p": Decimal("1.10"), "at": MOMENT, "d": date(2026, 11, 21), "t": time(5), "list": [{"a": 1, "b": None}],
        "m": {"k": 1.5}, "l": datetime(2026, 11, 21),  # noqa: DTZ001
    }  # fmt: skip
    assert read(schema, write(schema, value)) == value
    assert json.dumps(avro_of(columns, "shop_orders")) == json.dumps(schema), "the same text, so that a registry knows it again"
    assert read(schema, write(schema, {"n": 1}))["p"] is None


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Column("order id"), "cannot be a field's name"),
        (Column("v", "variant"), "type variant"),
        (Column("x", "array<"), "no type"),
        (Column("x", "array"), "no type"),
        (Column("x", "map"), "no type"),
    ],
)
def test_a_column_that_avro_cannot_name_or_hold_is_said(column: Column, words: str) -> None:
    with pytest.raises(BadSchemaError, match=words):
        avro_of((column,), "r")


TREE = record(("v", "int", 0), ("c", {"type": "array", "items": "r"}, []))


def test_a_bad_value_deep_in_lists_is_found_at_once_with_its_place() -> None:
    value: dict[str, Any] = {"v": "x"}
    for _ in range(60):  # each level looked at twice would take longer than the universe
        value = {"c": [{}, value]}
    with pytest.raises(UnfitValueError) as caught:
        write(TREE, value)
    assert caught.value.path == [*("c", "[1]") * 60, "v"]


def test_a_union_that_can_be_tried_in_too_many_ways_is_given_up() -> None:
    inner = record(("c", ["null", "a", "b"]), name="b")
    value: Any = 5
    for _ in range(80):
        value = {"c": value}
    with pytest.raises(UnfitValueError, match="too many ways"):
        write(["null", record(("c", ["null", "a", inner]), name="a")], value)


def test_a_long_list_of_a_unions_last_type_is_no_bad_record() -> None:
    union = [record(("a", "int"), name="a"), record(("b", "int"), name="b")]
    items = [{"b": 1}] * 50_000
    assert len(write({"type": "array", "items": union}, items)) > 100_000


def test_of_two_records_of_a_union_the_one_that_loses_nothing_is_written() -> None:
    union = [record(("id", "int"), name="a"), record(("id", "int"), ("note", "string"), name="b")]
    assert read(union, write(union, {"id": 1, "note": "x"}, drops=True)) == {"id": 1, "note": "x"}
    assert read(union, write(union, {"id": 1, "other": "x"}, drops=True)) == {"id": 1}


@pytest.mark.parametrize("drops", [False, True])
def test_a_number_that_float_would_round_is_a_double_where_the_union_has_one(drops: bool) -> None:
    union = ["null", "float", {"type": "double"}]
    assert [read(union, write(union, one, drops=drops)) for one in (0.1, 0.5, 1e300, float("inf"))] == [0.1, 0.5, 1e300, float("inf")]
    assert write(union, 0.5, drops=drops)[0] == 2, "the first type that has it"


@pytest.mark.parametrize("union", [["null", "string", "int"], ["string", "int", "null"], ["string", "null"], "null"])
def test_a_missing_field_is_null_wherever_null_stands_in_its_union(union: Any) -> None:
    assert read(record(("a", union)), write(record(("a", union)), {})) == {"a": None}


def test_the_default_of_a_union_may_be_of_any_of_its_types() -> None:
    schema = record(("note", ["string", "null"], None))
    assert write(schema, {}) == b"\x02"


def with_defaults(depth: int) -> Any:
    """A record whose default holds the next one twice, and so on."""
    schema = record(("x", "null", None), name=f"r{depth}")
    for level in reversed(range(depth)):
        schema = record(("a", schema, {}), ("b", f"r{level + 1}", {}), name=f"r{level}")
    return record(("v", schema, {}), ("x", "long"))


def test_defaults_of_records_within_each_other_are_bounded() -> None:
    assert write(with_defaults(10), {"x": 1}) == b"\2"
    with pytest.raises(BadSchemaError, match="its defaults have more than"):
        write(with_defaults(60), {"x": 1})


@pytest.mark.parametrize("schema", [record(("c", "r", {})), {"type": "array", "items": 5}])
def test_a_schema_that_cannot_be_compiled_says_so(schema: Any) -> None:
    with pytest.raises(BadSchemaError):
        write(schema, {})


@pytest.mark.parametrize("digits", [5_000, 15_000])
def test_a_decimal_of_more_digits_than_python_reads_is_refused_and_never_another_number(digits: int) -> None:
    with pytest.raises(UnfitValueError, match="more than 4000 digits"):
        write(logical("bytes", "decimal", precision=20_000, scale=0), Decimal("1" * digits))


def test_a_decimal_may_end_with_millions_of_zeros() -> None:
    cents = logical("bytes", "decimal", precision=6, scale=2)
    assert write(cents, Decimal("1.10" + "0" * 2_000_000)) == write(cents, Decimal("1.10"))
    with pytest.raises(UnfitValueError, match="more than 2 digits behind"):
        write(cents, Decimal("1.101" + "0" * 2_000_000))


def test_a_whole_number_that_float_would_change_is_refused() -> None:
    assert write("float", 2**24) == write("float", float(2**24))
    with pytest.raises(UnfitValueError, match="more digits than float holds"):
        write("float", 2**24 + 1)


@pytest.mark.parametrize(
    ("word", "text", "nanos"),
    [
        ("timestamp-nanos", "1970-01-01T00:00:01.123456789Z", 1_123_456_789),
        ("timestamp-nanos", "1970-01-01T01:00:01.1234567+01:00", 1_123_456_700),
        ("local-timestamp-nanos", "1970-01-01T00:00:01.000000001", 1_000_000_001),
    ],
)
def test_nanoseconds_of_a_text_are_kept(word: str, text: str, nanos: int) -> None:
    assert write(logical("long", word), text) == write("long", nanos)


def test_records_within_records_have_names_of_their_own() -> None:
    schema = avro_of((Column("a", "struct<b: struct<x: int>>"), Column("a_b", "struct<y: int>")), "r")
    value = {"a": {"b": {"x": 1}}, "a_b": {"y": 2}}
    assert read(schema, write(schema, value)) == value
