"""Promises of the steps that shape records: what becomes of the fields, declared and real, and what is refused."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import hmac
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.converters import CONVERTERS, build_converter
from copycat_agent.errors import DataError
from copycat_agent.options import ValidationError, WrittenFloat
from copycat_agent.transforms import StepError
from tests.unit.transforms.steps import after, columns, draft, options, step

NOTHING = hashlib.sha256(b"").hexdigest()
CASES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"rename": {"a": "b"}}, {"a": 1, "c": 2}, {"b": 1, "c": 2}),
    ({"rename": {"a": "b", "b": "a"}}, {"a": 1, "b": 2}, {"a": 2, "b": 1}),
    ({"rename": {"gone": "b"}}, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
    ({"rename": {"a": "b"}}, {"a": None}, {"b": None}),
    ({"rename": {"u.id": "id"}}, {"u": {"id": 1, "n": 2}}, {"u": {"n": 2}, "id": 1}),
    ({"rename": {"id": "u.id"}}, {"u": {"n": 2}, "id": 1}, {"u": {"n": 2, "id": 1}}),
    ({"rename": {"id": "u.id"}}, {"u": "text", "id": 1}, {"u": {"id": 1}}),
    ({"rename": {"u.id": "id"}}, {"u.id": 1, "u": {"n": 2}}, {"u": {"n": 2}, "id": 1}),
    ({"rename": {"message": "raw"}}, b"caf\xe9", {"raw": "caf\ufffd"}),
    ({"set": {"env": "prod"}}, {"a": 1}, {"a": 1, "env": "prod"}),
    ({"set": {"env": "prod"}}, b"line", {"message": "line", "env": "prod"}),
    ({"set": {"n": 8080, "ok": True, "no": None, "f": WrittenFloat("1.50")}}, {}, {"n": 8080, "ok": True, "no": None, "f": 1.5}),
    ({"set": {"copy": "{a}"}}, {"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}], "copy": [1, {"b": 2}]}),
    ({"set": {"copy": "{u.id}"}}, {"u": {"id": 7}}, {"u": {"id": 7}, "copy": 7}),
    ({"set": {"copy": "{a}"}}, {"a": None}, {"a": None, "copy": None}),
    ({"set": {"text": "{a}-{a}"}}, {"a": 7}, {"a": 7, "text": "7-7"}),
    ({"set": {"text": "{a:>3}"}}, {"a": 7}, {"a": 7, "text": "  7"}),
    ({"set": {"a": "{b}", "b": "{a}"}}, {"a": 1, "b": 2}, {"a": 2, "b": 1}),
    ({"set": {"h": "{@host}", "f": "{@file.name}"}}, {}, {"h": "web1", "f": "app.log"}),
    ({"set": {"i": "{@file.inode}", "o": "{@offset}", "n": "{@record.number}"}}, {}, {"i": 7, "o": 100, "n": 3}),
    ({"set": {"k": {"host": "{@host}", "id": "{a}", "n": 1}, "l": ("{a}", 2)}},
     {"a": 5}, {"a": 5, "k": {"host": "web1", "id": 5, "n": 1}, "l": [5, 2]}),
    ({"set": {"o": "{@file.owner}"}, "on_error": "keep"}, {"a": 1}, {"a": 1}),
    ({"set": {"u.id": 1, "u.n": 2}}, {"u": {"x": 0}}, {"u": {"x": 0, "id": 1, "n": 2}}),
    ({"set": {"a": "{{x}}"}}, {}, {"a": "{x}"}),
    ({"default": {"a": 1, "b": 2, "c": 3}}, {"a": 0, "b": None}, {"a": 0, "b": 2, "c": 3}),
    ({"default": {"a": "", "u.id": "{a}"}}, {"a": "x", "u": {}}, {"a": "x", "u": {"id": "x"}}),
    ({"default": {"level": "info"}}, {"level": ""}, {"level": ""}),
    ({"rename": {"a": "b", "c": "d.e", "f": "g"}}, {"a": 0, "c": "", "f": None}, {"b": 0, "d": {"e": ""}, "g": None}),
    ({"drop_fields": ("a", "gone")}, {"a": 1, "b": 2}, {"b": 2}),
    ({"drop_fields": "a"}, {"a": 1, "b": 2}, {"b": 2}),
    ({"drop_fields": ("u.id",)}, {"u": {"id": 1}, "u.id": 2}, {"u": {}}),
    ({"hash": "u.id"}, {"u": {"id": ""}, "u.id": ""}, {"u": {"id": NOTHING}, "u.id": NOTHING}),
    ({"hash": "u.id"},
     {"u": [{"id": ""}, 7, {"id": None}, [{"id": "", "x": 1}]]}, {"u": [{"id": NOTHING}, 7, {"id": None}, [{"id": NOTHING, "x": 1}]]}),
    ({"drop_fields": "u.v.id"},
     {"u": [{"v": {"id": 1, "x": 2}}, {"v": [{"id": 3}]}, 7], "u.v.id": 4}, {"u": [{"v": {"x": 2}}, {"v": [{}]}, 7]}),
    ({"default": {"u.id": 1}}, {"u.id": 0}, {"u.id": 0}),
    ({"replace": {"u.id": {"pattern": "x", "with": "y"}}}, {"u.id": "x"}, {"u.id": "y"}),
    ({"keep_fields": ("c", "a", "gone")}, {"a": 1, "b": 2, "c": None}, {"c": None, "a": 1}),
    ({"keep_fields": ("u.id", "a")}, {"u": {"id": 1, "n": 2}, "a": 1, "b": 2}, {"u": {"id": 1}, "a": 1}),
    ({"keep_fields": ("u.id",)}, {"u.id": 3, "u": {"n": 1}}, {"u.id": 3}),
    ({"keep_fields": ("gone",)}, {"a": 1}, {}),
    ({"flatten": {}}, {"a": {"b": {"c": 1}, "d": []}, "e": {}, "f": 2}, {"a.b.c": 1, "a.d": [], "e": {}, "f": 2}),
    ({"flatten": {"delimiter": "_"}}, {"a": {"b": 1}}, {"a_b": 1}),
    ({"flatten": {"field": "a"}}, {"a": {"b": {"c": 1}}, "d": {"e": 1}}, {"d": {"e": 1}, "a.b.c": 1}),
    ({"flatten": {"field": "a.b", "delimiter": "_"}}, {"a": {"b": {"c": 1}}}, {"a": {}, "a_b_c": 1}),
    ({"flatten": {"field": "gone"}}, {"a": 1}, {"a": 1}),
    ({"nest": {"into": "v"}}, {"a": 1, "v": 2}, {"v": {"a": 1, "v": 2}}),
    ({"nest": {"into": "v.w"}}, b"x", {"v": {"w": {"message": "x"}}}),
    ({"nest": {"into": "h", "fields": ("m", "s", "gone")}},
     {"m": 1, "s": 2, "h": {"x": 0}, "r": 3}, {"h": {"x": 0, "m": 1, "s": 2}, "r": 3}),
    ({"nest": {"into": "h", "fields": ("u.id",)}}, {"u": {"id": 1, "n": 2}}, {"u": {"n": 2}, "h": {"u": {"id": 1}}}),
    ({"nest": {"into": "h", "fields": ("gone",)}}, {"a": 1}, {"a": 1}),
    ({"replace": {"t": {"pattern": "^app-(.*)$", "with": "logs.\\1"}}}, {"t": "app-x"}, {"t": "logs.x"}),
    ({"replace": {"t": {"pattern": "(?P<d>[0-9]+)", "with": "<\\g<d>\\\\>"}}}, {"t": "a1b22"}, {"t": "a<1\\>b<22\\>"}),
    ({"replace": {"t": {"pattern": "(a)|b", "with": "[\\1]"}}}, {"t": "ab"}, {"t": "[a][]"}),
    ({"replace": {"t": {"pattern": "5", "with": "6"}}}, {"t": 505}, {"t": "606"}),
    ({"replace": {"t": {"pattern": "x", "with": "y"}, "gone": {"pattern": "x", "with": "y"}}}, {"t": None}, {"t": None}),
    ({"hash": "a"}, {"a": "alice"}, {"a": hashlib.sha256(b"alice").hexdigest()}),
    ({"hash": {"field": "a", "algorithm": "md5", "into": "h"}},
     {"a": 7}, {"a": 7, "h": hashlib.md5(b"7", usedforsecurity=False).hexdigest()}),
    ({"hash": {"field": "a", "secret": "s3cret"}}, {"a": "é"}, {"a": hmac.digest(b"s3cret", "é".encode(), "sha256").hex()}),
    ({"hash": ("a", "b", "gone")}, {"a": None, "b": True}, {"a": None, "b": hashlib.sha256(b"true").hexdigest()}),
    ({"hash": "a"}, {"a": {"y": [1, None], "x": Decimal("1.10")}}, {"a": hashlib.sha256(b'{"x":"1.10","y":[1,null]}').hexdigest()}),
    ({"hash": {"field": ("a", "b", "c"), "into": "h"}},
     {"a": "xy", "b": 1}, {"a": "xy", "b": 1, "h": hashlib.sha256(b"2:xy,1:1,-,").hexdigest()}),
    ({"hash": {"field": ("a", "b"), "into": "h"}}, {"a": None}, {"a": None}),
    ({"convert": {"e.code": "int"}}, {"e": "boom", "e.code": "5"}, {"e": "boom", "e.code": 5}),
    ({"convert": {"e.code": "int"}}, {"e": {"a": 1}, "e.code": "5"}, {"e": {"a": 1}, "e.code": 5}),
    ({"convert": {"e.code": "int"}}, {"e": {"code": "4"}, "e.code": "5"}, {"e": {"code": 4}, "e.code": "5"}),
    ({"default": {"u.id": 1}}, {"u": "ann", "u.id": None}, {"u": "ann", "u.id": 1}),
    ({"set": {"u.id": 1}}, {"u": "ann", "u.id": 0}, {"u": "ann", "u.id": 1}),
    ({"rename": {"a": "u.id"}}, {"u": "ann", "u.id": 0, "a": 1}, {"u": "ann", "u.id": 1}),
    ({"nest": {"into": "u.x", "fields": "a"}}, {"u": "ann", "u.x": {"b": 2}, "a": 1}, {"u": "ann", "u.x": {"b": 2, "a": 1}}),
    ({"regex": {"pattern": "a=(?P<a>.)", "field": "l.m"}}, {"l.m": "a=1", "l": {"x": 2}}, {"l": {"x": 2}, "a": "1"}),
    ({"regex": {"pattern": "a=(?P<a>.)", "field": "l.m"}}, {"l.m": "a=1", "l": {"m": "a=2"}}, {"l.m": "a=1", "l": {}, "a": "2"}),
    ({"regex": {"pattern": "a=(?P<a>.)", "field": "l.m", "into": "l.m"}}, {"l.m": "a=1", "l": "x"}, {"l.m": {"a": "1"}, "l": "x"}),
    ({"regex": {"pattern": "a=(?P<a>.)", "field": "l.m", "into": "u.id"}},
     {"l.m": "a=1", "u": "ann", "u.id": 0}, {"u": "ann", "u.id": {"a": "1"}}),
    ({"regex": {"pattern": "a=(?P<a>.)", "field": "l.m", "into": "l"}}, {"l": {"m": "a=1", "x": 2}}, {"l": {"a": "1"}}),
    ({"regex": {"pattern": "a=(?P<a>.)", "field": "l", "into": "l.m"}}, {"l": "a=1", "b": 2}, {"b": 2, "l": {"m": {"a": "1"}}}),
]  # fmt: skip


@pytest.mark.parametrize(("item", "before", "expected"), CASES, ids=[str(case[0])[:60] for case in CASES])
def test_what_a_step_makes_of_a_record(item: dict[str, Any], before: Any, expected: Any) -> None:
    assert options(item).masked(), "fit to be shown"
    untouched = copy.deepcopy(before)
    inner = {name: value for name, value in before.items() if isinstance(value, dict | list)} if isinstance(before, dict) else {}
    assert after(item, dict(before) if isinstance(before, dict) else before) == expected
    assert {name: untouched[name] for name in inner} == inner, "what lies in a field is replaced, never changed"


@pytest.mark.parametrize(("item", "before", "expected"), CASES, ids=[str(case[0])[:60] for case in CASES])
def test_declared_fields_are_those_that_records_have(item: dict[str, Any], before: Any, expected: Any) -> None:
    """Where every field of the record has a type that can be told from its value."""
    if isinstance(before, bytes):
        before = {"message": "x"}
    declared, wanted = _types(before), _types(expected)
    found = columns(item, **declared)
    assert found is not None
    assert [name for name in wanted if name not in found and wanted[name]] == []


def _types(fields: dict[str, Any]) -> dict[str, str]:
    return {name: _type(value) for name, value in fields.items()}


def _type(value: Any) -> str:
    if isinstance(value, dict):
        return "struct<" + ", ".join(f"{name}: {_type(inner)}" for name, inner in value.items()) + ">"
    return "boolean" if isinstance(value, bool) else "bigint" if isinstance(value, int) else "string"


@pytest.mark.parametrize(
    ("item", "before", "expected"),
    [
        ({"rename": {"a": "b", "u.id": "id"}},
         {"a": "date", "u": "struct<id: int, n: string>"}, {"u": "struct<n: string>", "b": "date", "id": "int"}),
        ({"rename": {"gone": "b"}}, {"a": "date"}, {"a": "date"}),
        ({"set": {"a": 1, "b": "{c}", "d.e": True, "f": "{@offset}", "g": "x{c}"}}, {"a": "string", "c": "array<int>"},
         {"a": "bigint", "c": "array<int>", "b": "array<int>", "d": "struct<e: boolean>", "f": "bigint", "g": "string"}),
        ({"set": {"m": {"a b": 1}, "l": (WrittenFloat("1.5"),)}}, {}, {"m": "struct<`a b`: bigint>", "l": "array<double>"}),
        ({"default": {"a": 1, "b": 2}}, {"a": "int"}, {"a": "int", "b": "bigint"}),
        ({"drop_fields": ("a", "u.id", "gone")}, {"a": "int", "u": "struct<id: int, n: array<struct<x: int, y: int>>>"},
         {"u": "struct<n: array<struct<x: int, y: int>>>"}),
        ({"keep_fields": ("u.id", "a", "gone")},
         {"a": "int", "b": "int", "u": "struct<id: int, n: int>"}, {"u": "struct<id: int>", "a": "int"}),
        ({"flatten": {}}, {"a": "struct<b: struct<c: decimal(10,2)>, d: map<string, int>>", "e": "int"},
         {"a.b.c": "decimal(10,2)", "a.d": "map<string, int>", "e": "int"}),
        ({"flatten": {"field": "a", "delimiter": "_"}},
         {"a": "struct<b: int>", "c": "struct<d: int>"}, {"c": "struct<d: int>", "a_b": "int"}),
        ({"nest": {"into": "v"}}, {"a": "int", "b": "string"}, {"v": "struct<a: int, b: string>"}),
        ({"nest": {"into": "v", "fields": ("a",)}}, {"a": "int", "b": "string"}, {"b": "string", "v": "struct<a: int>"}),
        ({"replace": {"a": {"pattern": "x", "with": "y"}}}, {"a": "int"}, {"a": "string"}),
        ({"hash": "a"}, {"a": "struct<b: int>", "c": "int"}, {"a": "string", "c": "int"}),
        ({"hash": {"field": "a", "into": "h"}}, {"a": "int"}, {"a": "int", "h": "string"}),
        ({"mask": {"a": "x", "b": "x", "gone": "x"}},
         {"a": "array<int>", "b": "struct<c: int>"}, {"a": "array<string>", "b": "struct<c: string>"}),
        ({"sample": WrittenFloat("0.5")}, {"a": "int"}, {"a": "int"}),
        ({"convert": {"e.code": "int"}}, {"e": "string", "e.code": "string"}, {"e": "string", "e.code": "bigint"}),
        ({"convert": {"e.code": "int"}},
         {"e": "struct<code: string>", "e.code": "string"}, {"e": "struct<code: bigint>", "e.code": "string"}),
        ({"regex": {"pattern": "a=(?P<a>.)", "field": "l.m", "into": "l.m"}},
         {"l": "string", "l.m": "string"}, {"l": "string", "l.m": "struct<a: string>"}),
    ],
    ids=str,
)  # fmt: skip
def test_declared_fields_behind_a_step(item: dict[str, Any], before: dict[str, str], expected: dict[str, str]) -> None:
    assert columns(item, **before) == expected


@pytest.mark.parametrize(
    ("item", "fields", "left", "reason"),
    [
        ({"set": {"a": "{gone}", "b": 1, "c": "{u}-"}}, {"u": {}}, {"u": {}, "b": 1}, "field 'gone' is missing"),
        ({"set": {"a": "{gone}"}}, {"x": 1}, {"x": 1}, "field 'gone' is missing"),
        ({"default": {"a": "{gone}", "b": 1}}, {}, {"b": 1}, "field 'gone' is missing"),
        ({"flatten": {}}, {"a": {"b": 1}, "a.b": 2}, {"a": {"b": 1}, "a.b": 2}, "two fields would have the same name"),
        ({"flatten": {"field": "a"}}, {"a": {"b": 1}, "a.b": 2}, {"a": {"b": 1}, "a.b": 2}, "two fields would have the same name"),
        ({"replace": {"a": {"pattern": "x", "with": "y"}, "b": {"pattern": "x", "with": "y"}}}, {"a": [1], "b": "x"}, {"a": [1], "b": "y"},
         "field 'a' is not a text or a number"),
        ({"replace": {"a": {"pattern": "x", "with": "y"}}}, {"a": 10**5000}, {"a": 10**5000}, "field 'a' is not a text"),
        ({"hash": ("a", "b")}, {"a": 10**5000, "b": ""}, {"a": "********", "b": NOTHING}, "field 'a' cannot be hashed"),
        ({"hash": "a"}, {"a": {1: {"x"}}}, {"a": "********"}, "field 'a' cannot be hashed"),
        ({"hash": {"field": ("a", "b"), "into": "h"}}, {"a": 10**5000}, {"a": 10**5000}, "field 'a' cannot be written as text"),
    ],
    ids=range(10),
)  # fmt: skip
def test_a_step_with_several_fields_does_the_good_ones_and_names_the_first_bad_one(
    item: dict[str, Any], fields: dict[str, Any], left: dict[str, Any], reason: str
) -> None:
    record = draft(dict(fields))
    with pytest.raises(StepError, match=reason):
        step(item)(record)
    assert record.value == left
    kept = draft(dict(fields))
    assert step({**item, "on_error": "keep"})(kept) is True
    assert (kept.value, kept.kept) == (left, 1)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"rename": {}}, "at least 1 item"),
        ({"rename": {"a": "c", "b": "c"}}, "'c' is named twice"),
        ({"rename": {"a": "x", "a.b": "y"}}, "'a.b' is named twice, or lies in"),
        ({"rename": {"a": "x", "b": "x.y"}}, "'x.y' is named twice, or lies in"),
        ({"rename": {"a": "b..c"}}, "not a field name"),
        ({"rename": {"a": 1}}, "valid string"),
        ({"set": {}}, "at least 1 item"),
        ({"set": {"a": "{"}}, "bad template"),
        ({"set": {"a": ["{x!r}"]}}, "conversions"),
        ({"set": {"a": {"b": "{@nope}"}}}, "unknown metadata"),
        ({"set": {"a": 1, "a.b": 2}}, "lies in another field"),
        ({"set": {"@host": 1}}, "not a field name"),
        ({"default": {"a[0]": 1}}, "not a field name"),
        ({"drop_fields": ()}, "at least 1 item"),
        ({"keep_fields": "a b "}, "not a field name"),
        ({"flatten": {"delimiter": ""}}, "at least 1 character"),
        ({"flatten": {"depth": 1}}, "Extra inputs"),
        ({"nest": {}}, "required"),
        ({"nest": {"into": "a.b", "fields": ("a",)}}, "cannot move into itself"),
        ({"nest": {"into": "a", "fields": ("a",)}}, "cannot move into itself"),
        ({"nest": {"into": "x", "fields": ("u", "u.id")}}, "lies in another field"),
        ({"hash": {"field": "a", "algorithm": "crc32"}}, "Input should be"),
        ({"hash": {"field": "a", "secret": ""}}, "secret is empty"),
        ({"hash": ("a", "a")}, "'a' is named twice"),
        ({"mask": {"a": "("}}, "not a regular expression"),
        ({"mask": {"a": {"with": "x"}}}, "required"),
        ({"mask": {"a": "x", "a.b": "x"}}, "lies in another field"),
        ({"replace": {"a": {"pattern": "x", "with": "\\1"}}}, "no group 1"),
        ({"replace": {"a": {"pattern": "(x)", "with": "\\g<y>"}}}, "no group y"),
        ({"sample": 0}, "greater than 0"),
        ({"sample": WrittenFloat("1.1")}, "less than or equal to 1"),
        ({"sample": True}, "valid dictionary|instance of SampleSettings"),
        ({"sample": {"key": "a"}}, "required"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_when_it_is_loaded(item: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        options(item)


def test_a_record_does_not_grow_without_bound_when_it_is_flat() -> None:
    """A line of some 600 kB, whose flat names would take 300 MB."""
    value: dict[str, Any] = {str(number): 0 for number in range(60_000)}
    for _ in range(500):
        value = {"deep_deep_": value}
    record = draft({"a": value})
    with pytest.raises(StepError, match="names of its fields would be too long"):
        step({"flatten": {}})(record)
    assert record.value == {"a": value}


def test_a_secret_of_a_hash_is_in_no_repr_and_no_dump() -> None:
    made = options({"hash": {"field": "a", "secret": "hunter2"}})
    assert "hunter2" not in f"{made!r} {made} {made.masked()} {made.model_dump_json()}"


def test_a_deep_object_is_flattened_without_recursion() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = {"a": deep}
    assert list(after({"flatten": {}}, {"a": deep}).values()) == [1]


def test_fields_are_dropped_from_objects_in_lists_of_any_depth() -> None:
    deep: Any = [{"id": 1, "x": 2}, 7]
    bare: Any = [{"x": 2}, 7]
    for _ in range(100_000):
        deep, bare = [deep], [bare]
    found = after({"drop_fields": "u.id"}, {"u": deep})["u"]
    while len(found) == 1:
        (found,), (bare,) = found, bare
    assert found == bare == [{"x": 2}, 7]


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.just(datetime(2026, 1, 2, tzinfo=UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "u", "id", "a.b"]), inner, max_size=3),
    max_leaves=8,
)
_RECORDS = st.dictionaries(st.sampled_from(["a", "b", "u", "u.id", "message"]), _VALUES, max_size=4)
_ITEMS: list[dict[str, Any]] = [case[0] for case in CASES] + [{"mask": {"a": "[0-9]", "u.id": {"pattern": "(.).*", "with": ""}}}]


@given(st.sampled_from(_ITEMS), _RECORDS)
def test_no_record_breaks_a_step_and_nothing_within_a_field_is_changed(item: dict[str, Any], fields: dict[str, Any]) -> None:
    before = copy.deepcopy(fields)
    record = draft(dict(fields))
    with contextlib.suppress(DataError):
        assert step(item)(record) is True
    assert fields == before
    assert isinstance(record.value, dict)
    build_converter(CONVERTERS["json"].options(type="json"))(record.value)
