"""Promises of the quick yes: what it approves the library allows, whatever schema and record are; and most good records get it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import referencing
from jsonschema import validators
from referencing.jsonschema import DRAFT7

from copycat_agent.converters.json_approval import approver
from copycat_agent.converters.json_checking import bounded, give

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
NAMES = ["a", "b", "qty", "ä", ""]
NUMBERS = [0, 1, -1, 2, 100, 1.0, 1.5, -0.0, 2**53, 2**53 + 1, 2.0**53, 2**63, 2**64 - 1, 2**64, 10**30, 1e30, 1e308, 5e-324, 0.1, 0.3]
TEXTS = ["", "a", "b", "abc-123", "2026-01-01", "x\n", "ä", "é", "👍👍", "1", "null"]
PATTERNS = ["^[a-z]{3}-[0-9]+$", "^a", "b$", "[^a]", r"\d", r"^\w*$", "", "x$"]
TYPES = ["null", "boolean", "integer", "number", "string", "object", "array"]


def record(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 2:
        return rng.choice(TEXTS)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 6:
        return rng.choice([None, True, False])
    if kind == 6:
        return [record(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {name: record(rng, depth + 1) for name in NAMES if rng.random() < 0.5}


def keyword(rng: random.Random, depth: int) -> dict[str, Any]:
    plain: list[Any] = [
        lambda: {"type": rng.choice([rng.choice(TYPES), rng.sample(TYPES, rng.randrange(1, 4))])},
        lambda: {"enum": [record(rng, 1) for _ in range(rng.randrange(1, 4))]},
        lambda: {"const": record(rng, 1)},
        lambda: {"required": rng.sample(NAMES, rng.randrange(3))},
        lambda: {rng.choice(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]): rng.choice(NUMBERS)},
        lambda: {rng.choice(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]): rng.randrange(4)},
        lambda: {"pattern": rng.choice(PATTERNS)},
        lambda: rng.choice([{"format": "date"}, {"contentEncoding": "base64"}, {"title": "t"}, {"x-own": {"type": "nothing"}}]),
        lambda: {"$ref": rng.choice(["#/definitions/one", "#/definitions/two", "#", "other.json", "other.json#/definitions/one"])},
        lambda: rng.choice([{"multipleOf": 2}, {"uniqueItems": True}, {"patternProperties": {"^a": False}}, {"contains": True}]),
    ]
    if depth > 2 or rng.random() < 0.4:
        return dict(rng.choices(plain, [6, 3, 3, 3, 4, 4, 2, 1, 3, 0.2])[0]())

    def one() -> Any:
        return schema(rng, depth + 1)

    deep: list[Any] = [
        lambda: {"properties": {name: one() for name in NAMES if rng.random() < 0.5}},
        lambda: {"additionalProperties": one()},
        lambda: {"items": one()},
        lambda: {rng.choice(["allOf", "anyOf", "oneOf"]): [one() for _ in range(rng.randrange(1, 4))]},
        lambda: {"not": one()},
        lambda: {name: one() for name in ("if", "then", "else") if rng.random() < 0.8},
        lambda: {"propertyNames": one()},
    ]
    return dict(rng.choice(deep)())


def schema(rng: random.Random, depth: int = 0) -> Any:
    if rng.random() < 0.05:
        return rng.choice([True, False])
    made: dict[str, Any] = {}
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        made |= keyword(rng, depth)
    return made


def document(rng: random.Random, draft: str | None, depth: int = 0) -> dict[str, Any]:
    made = schema(rng, depth)
    made = made if isinstance(made, dict) else {"allOf": [made]}
    made["definitions"] = {"one": schema(rng, 2), "two": schema(rng, 2)}
    return made if draft is None else {"$schema": draft, **made}


def is_allowed(made: Any, others: dict[str, Any], value: Any) -> bool:
    resources = [(name, referencing.Resource.from_contents(other, default_specification=DRAFT7)) for name, other in others.items()]
    near: referencing.Registry[Any] = referencing.Registry().with_resources(resources)
    validator = bounded(validators.validator_for(made, default=validators.Draft7Validator))(made, registry=near)
    give(10_000)
    try:
        return next(iter(validator.iter_errors(value)), None) is None
    except Exception:  # noqa: BLE001 - whatever the library cannot work out is a bad record
        return False


def compare(seed: int) -> tuple[int, int, int]:
    """One schema with many records: those that the quick yes was asked for, its yeses, and the library's."""
    rng = random.Random(seed)
    draft = rng.choice([None, *DRAFTS])
    made, others = document(rng, draft), {"other.json": document(rng, rng.choice([None, draft, rng.choice(DRAFTS)]), 1)}
    try:
        for one in (made, *others.values()):
            validators.validator_for(one, default=validators.Draft7Validator).check_schema(one)
    except Exception:  # noqa: BLE001 - no schema in its draft
        return 0, 0, 0
    approve = approver(made, others)
    if approve is None:
        return 0, 0, 0
    quick = whole = 0
    values = [record(rng) for _ in range(30)]
    for value in values:
        allowed = is_allowed(made, others, value)
        whole += allowed
        if approve(value):
            quick += 1
            assert allowed, f"seed {seed}: {json.dumps(made)} {json.dumps(others)} does not allow {value!r}"
    return len(values), quick, whole


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.long) for part in range(2, 8))])
def test_a_quick_yes_is_never_wrong_over_random_schemas(part: int, rng: random.Random) -> None:
    first = rng.randrange(2**40)
    asked, quick, whole = map(sum, zip(*(compare(first + number) for number in range(60)), strict=True))
    assert asked > 300, f"part {part}: most random schemas are known here"
    assert quick > 0.95 * whole, "and most of what they allow gets the quick yes"


ORDER = {
    "$schema": DRAFTS[2],
    "$id": "https://example.com/order.json",
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z]{3}-[0-9]+$"},
        "at": {"type": "string", "format": "date-time"},
        "qty": {"type": "integer", "minimum": 1, "maximum": 100},
        "state": {"enum": ["open", "closed", None]},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "blob": {"type": "string", "contentEncoding": "base64"},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
    },
    "required": ["id"],
    "additionalProperties": False,
    "definitions": {"line": {"type": "object", "properties": {"p": {"type": ["number", "null"]}}, "required": ["p"]}},
}


def test_most_good_records_get_the_quick_yes() -> None:
    approve = approver(ORDER)
    assert approve is not None
    good = {"id": "abc-1", "at": "today", "qty": 5, "state": None, "note": "x", "blob": "no base64!", "lines": [{"p": 1.5}, {"p": None}]}
    assert approve(good)
    bads: list[dict[str, Any]] = [{"id": "abc"}, {"qty": 101}, {"lines": [{}]}, {"other": 1}, {"state": "gone"}]
    for bad in bads:
        assert not approve({**good, **bad}), bad


def test_a_schema_that_the_registry_lists_is_referred_to_by_its_name() -> None:
    approve = approver(
        {"properties": {"a": {"$ref": "line.json#/definitions/p"}}}, {"line.json": {"definitions": {"p": {"type": "integer"}}}}
    )
    assert approve is not None
    assert approve({"a": 1})
    assert not approve({"a": "x"})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/a"},
        {"properties": {"a": {"$ref": "#"}}},
        {"$ref": "http://127.0.0.1:9/other.json"},
        {"$ref": "other.json"},
        {"$id": "http://example.com/a.json", "$ref": "line.json"},
        {"definitions": {"a": {"$id": "b.json", "definitions": {"c": True}}}, "$ref": "#/definitions/a/definitions/c"},
        {"properties": {"a": {"$schema": DRAFTS[4]}}},
        {"items": [{}]},
        {"multipleOf": 0.1},
        {"uniqueItems": True},
        {"patternProperties": {"a": True}},
        {"pattern": "^(a+)+$"},
        {"$schema": DRAFTS[0], "type": "integer"},
        {"minimum": float("nan")},
        {"properties": {"a": {"allOf": [{"maxLength": size} for size in range(500)]}}},
    ],
    ids=str,
)
def test_a_schema_with_more_is_left_to_the_library(schema: Any) -> None:
    assert approver(schema, {"line.json": True}) is None


def test_references_that_multiply_are_left_to_the_library_at_once() -> None:
    parts: dict[str, Any] = {f"p{level}": {"allOf": [{"$ref": f"#/definitions/p{level + 1}"}] * 2} for level in range(25)}
    assert approver({"$ref": "#/definitions/p0", "definitions": {**parts, "p25": {}}}) is None


def test_what_it_cannot_take_is_no_yes() -> None:
    approve = approver({"type": "object", "properties": {"a": {"not": {"pattern": "a"}}}})
    assert approve is not None
    for value in ({"a": b"bytes"}, {1: 2}):
        assert not approve(value)
