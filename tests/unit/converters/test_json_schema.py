"""Promises of JSON with a schema: what the schema allows is written as JSON, all else refused in words without its value."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from jsonschema import Draft7Validator

from copycat_agent.converters import json_checking
from copycat_agent.converters.base import BadSchemaError, UnfitValueError
from copycat_agent.converters.json_form import JsonForm, json_schema_of
from copycat_agent.converters.schema_options import JsonSchemaOptions
from copycat_agent.model import Column


def write(schema: Any, value: Any, **options: Any) -> bytes:
    return JsonForm(JsonSchemaOptions.model_construct(**options)).own(json.dumps(schema))[1].write(value)


ORDER = {
    "title": "order",
    "type": "object",
    "properties": {
        "id": {"type": "string", "minLength": 1},
        "qty": {"type": "integer", "minimum": 1, "maximum": 100},
        "state": {"enum": ["open", "closed", None]},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": ["number", "null"]}}, "required": ["p"]}},
    },
    "required": ["id"],
    "additionalProperties": False,
}


def test_what_the_schema_allows_is_written_as_json() -> None:
    value = {"id": "a", "qty": 5, "state": None, "note": None, "lines": [{"p": 1.5}, {"p": None}]}
    assert json.loads(write(ORDER, value)) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"id": 5}, "field 'id': the schema's type does not allow it (\"string\")"),
        ({}, "field 'id' is missing"),
        ({"id": "a", "s3cret": 1}, "is not in the schema, which allows no others"),
        ({"id": "a", "qty": 101}, "field 'qty': the schema's maximum does not allow it (100)"),
        ({"id": "a", "state": "s3cret-value"}, "field 'state': the schema's enum"),
        ({"id": "a", "lines": [{"p": 1}, {"p": "s3cret-value"}]}, "field 'lines[1].p': the schema's type"),
        ({"id": datetime(2026, 1, 1, tzinfo=UTC), "qty": float("nan")}, "field 'qty'"),
    ],
)
def test_what_it_does_not_allow_is_refused_in_words_without_the_value(value: Any, words: str) -> None:
    with pytest.raises(UnfitValueError) as caught:
        write(ORDER, value)
    message = caught.value.as_data_error("").message
    assert words in message
    assert "s3cret-value" not in message


def test_a_date_is_checked_as_the_text_that_it_becomes() -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "pattern": "^2026-"}}}
    assert write(schema, {"at": datetime(2026, 1, 1, tzinfo=UTC)}) == b'{"at":"2026-01-01T00:00:00+00:00"}'
    with pytest.raises(UnfitValueError, match="pattern"):
        write(schema, {"at": datetime(2027, 1, 1, tzinfo=UTC)})


def test_validate_false_looks_at_nothing() -> None:
    assert write(ORDER, {"other": 1}, validate_=False) == b'{"other":1}'


@pytest.mark.parametrize("text", ["{", "[1]", '{"type": "nothing"}', '{"pattern": "("}'])
def test_what_is_no_schema_is_said(text: str) -> None:
    with pytest.raises((BadSchemaError, UnfitValueError)):
        JsonForm(JsonSchemaOptions.model_construct()).own(text)[1].write({"a": 1})


def test_a_reference_to_elsewhere_is_not_fetched() -> None:
    with pytest.raises(UnfitValueError, match="cannot be applied"):
        write({"$ref": "http://127.0.0.1:9/other.json"}, {"a": 1})


def test_a_schema_is_made_from_declared_types() -> None:
    columns = (
        Column("s"),
        Column("n", "bigint", nullable=False),
        Column("a", "array<struct<x: double>>"),
        Column("m", "map<string, date>"),
    )
    schema = json_schema_of(columns, "orders")
    assert schema["title"] == "orders"
    Draft7Validator(schema).validate({"s": None, "n": 1, "a": [{"x": None}], "m": {"k": "2026-01-01"}})
    assert not Draft7Validator(schema).is_valid({"s": "x"})


def test_a_pattern_that_backtracks_is_given_up_in_values_and_in_names() -> None:
    evil, text = "^(a+)+$", "a" * 50_000 + "!"
    with pytest.raises(UnfitValueError, match=r"field 'x'.*|took longer"):
        write({"properties": {"x": {"pattern": evil}}}, {"x": text})
    with pytest.raises(UnfitValueError, match="took longer"):
        write({"patternProperties": {evil: {"type": "string"}}, "additionalProperties": False}, {text: "v"})


def test_patterns_of_names_work_as_in_the_library() -> None:
    schema = {"properties": {"id": {}}, "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
    for value in ({"id": [], "x-a": "s", "n": 1}, {"x-a": 1}, {"n": "s"}, {"n": 1, "m": None}):
        is_good = Draft7Validator(schema).is_valid(value)
        try:
            write(schema, value)
        except UnfitValueError:
            assert not is_good, value
        else:
            assert is_good, value
    with pytest.raises(UnfitValueError, match="a field that is not in the schema"):
        write({**schema, "additionalProperties": False}, {"x-a": "s", "n": 1})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"x": {"pattern": "\\p{L}+"}}}, "no JSON Schema: properties.x.pattern"),
        ({"allOf": [{"patternProperties": {"(": True}}]}, "no JSON Schema: allOf.0.patternProperties"),
        ({"patternProperties": {"^(a+)+$": True}, "unevaluatedProperties": False}, "may take too long"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_told_with_the_schema(schema: Any, words: str) -> None:
    with pytest.raises(BadSchemaError, match=words):
        write(schema, {})
    assert write({"enum": [schema], "properties": {"pattern": {"type": "string"}}}, schema), "data and names are no patterns"


@pytest.mark.parametrize("draft", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}])
def test_a_pattern_is_bounded_in_a_part_that_names_its_draft(draft: dict[str, str]) -> None:
    part = {**draft, "patternProperties": {"^(a+)+$": {"type": "string"}}}
    with pytest.raises(UnfitValueError, match="took longer"):
        write({"properties": {"x": part}}, {"x": {"a" * 50_000 + "!": "v"}})


def test_a_long_list_of_unique_items_costs_a_look_at_each() -> None:
    schema = {"properties": {"x": {"uniqueItems": True}}}
    items: list[Any] = [{"n": number} for number in range(10_000)]
    assert write(schema, {"x": [*items, 1, True, [1], [True], 0, False]})
    for twin in ({"n": 7}, 1.0, [True]):
        with pytest.raises(UnfitValueError, match="uniqueItems"):
            write(schema, {"x": [*items, 1, [True], twin]})


@pytest.mark.parametrize(
    "draft", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}, {"$schema": "https://json-schema.org/draft/2020-12/schema"}]
)
def test_a_record_with_too_many_ways_through_the_schema_is_given_up(draft: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_checking, "SECONDS", 0.1)
    node = {
        "anyOf": [{"type": "integer"}, {"properties": {"c": {"$ref": "#"}, "a": True}}, {"properties": {"c": {"$ref": "#"}, "b": True}}]
    }
    schema = {**draft, **node, "not": {"type": "string"}}
    value: Any = "x"
    for _ in range(60):
        value = {"c": value}
    with pytest.raises(UnfitValueError, match="too long"):
        write(schema, value)


def test_enum_and_const_both_hold() -> None:
    assert write({"enum": ["a", "b"], "const": "a"}, "a") == b'"a"'
    with pytest.raises(UnfitValueError, match="const"):
        write({"enum": ["a", "b"], "const": "a"}, "b")


def test_whatever_the_library_cannot_work_out_is_a_bad_record() -> None:
    with pytest.raises(UnfitValueError, match=r"cannot be applied \(OverflowError\)"):
        write({"properties": {"x": {"multipleOf": 0.1}}}, {"x": 10**400})


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x.json", "file:///etc/hostname", "x.json"])
def test_a_reference_to_elsewhere_is_never_followed(reference: str) -> None:
    with pytest.raises(UnfitValueError, match="cannot be applied"):
        write({"$ref": reference}, {"a": 1})


@pytest.mark.parametrize("text", ["1E+400", "-1E+400", "9" * 5000])
def test_numbers_beyond_floats_are_numbers(text: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}, "s": {"type": "string"}}}
    assert write(schema, {"n": Decimal(text)}) == b'{"n":' + text.encode() + b"}"
    with pytest.raises(UnfitValueError, match="type does not allow it"):
        write(schema, {"s": Decimal(text)})
