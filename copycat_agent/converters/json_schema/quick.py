"""A quick yes for the JSON Schemas that most records have.

`approver` makes a function that is True only for what the schema certainly allows; what it does not approve, jsonschema judges, and
finds the words. It knows the keywords below and gives up on a schema with any other, so that a yes is never wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Approve = Callable[[Any], bool]

_IGNORED = frozenset({
    "$schema", "$id", "$comment", "title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly",
    "connect.type", "connect.index", "javaType", "existingJavaType",
})  # fmt: skip
"""Say something to people and tools; jsonschema asserts none of them, formats neither, unless it is told to."""
_KNOWN = _IGNORED | {
    "type", "enum", "const", "required", "properties", "additionalProperties", "items", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "oneOf", "anyOf",
}  # fmt: skip
_DEPTH_MAX = 30


def approver(schema: Any) -> Approve | None:  # noqa: ANN401 - JSON
    """None for a schema that needs more than is known here."""
    try:
        return _approver(schema, 0)
    except _BeyondError:
        return None


class _BeyondError(Exception):
    """A keyword, or a use of one, that is not known here."""


def _approver(schema: Any, depth: int) -> Approve:  # noqa: ANN401 - JSON
    if schema is True:
        return lambda _: True
    if not isinstance(schema, dict) or depth > _DEPTH_MAX or not schema.keys() <= _KNOWN:
        raise _BeyondError
    checks = [make(schema, depth) for key, make in _MAKERS.items() if key in schema]
    if not checks:
        return lambda _: True
    return checks[0] if len(checks) == 1 else _all(checks)


def _all(checks: list[Approve]) -> Approve:
    if len(checks) == 2:  # noqa: PLR2004 - a type and what it has
        first, second = checks
        return lambda value: first(value) and second(value)
    return lambda value: all([check(value) for check in checks])  # noqa: C419 - faster than a generator


_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),), "boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,), "object": (dict,),
    "array": (list,),
}  # fmt: skip


def _type(schema: dict[str, Any], _: int) -> Approve:
    words = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not all(isinstance(word, str) and word in _TYPES for word in words):
        raise _BeyondError
    types = frozenset(one for word in words for one in _TYPES[word])
    if len(types) == 1:
        (only,) = types
        return lambda value: type(value) is only
    return lambda value: type(value) in types


def _enum(schema: dict[str, Any], _: int) -> Approve:
    if {"enum", "const"} <= schema.keys():
        raise _BeyondError
    allowed = schema["enum"] if "enum" in schema else [schema["const"]]
    if not isinstance(allowed, list) or not all(type(one) in (str, type(None)) for one in allowed):
        raise _BeyondError  # 1, 1.0 and true are equal in Python and not in JSON
    words = frozenset(allowed)
    return lambda value: type(value) in (str, type(None)) and value in words


def _required(schema: dict[str, Any], _: int) -> Approve:
    names = schema["required"]
    if not isinstance(names, list):
        raise _BeyondError
    needed = frozenset(names)
    return lambda value: type(value) is not dict or needed <= value.keys()


def _properties(schema: dict[str, Any], depth: int) -> Approve:
    known = {name: _approver(inner, depth + 1) for name, inner in schema.get("properties", {}).items()}
    others = schema.get("additionalProperties", True)
    if others is not True and others is not False:
        return _with_others(known, _approver(others, depth + 1))
    closed = others is False

    def approve(value: Any) -> bool:  # noqa: ANN401 - JSON
        if type(value) is not dict:
            return True
        for name, inner in value.items():
            check = known.get(name)
            if check is None:
                if closed:
                    return False
            elif not check(inner):
                return False
        return True

    return approve


def _with_others(known: dict[str, Approve], other: Approve) -> Approve:
    return lambda value: type(value) is not dict or all(known.get(name, other)(inner) for name, inner in value.items())


def _items(schema: dict[str, Any], depth: int) -> Approve:
    check = _approver(schema["items"], depth + 1)
    return lambda value: type(value) is not list or all(check(item) for item in value)


def _bound(key: str, holds: Callable[[Any, Any], bool], types: tuple[type, ...], measure: Callable[[Any], Any]) -> Callable[..., Approve]:
    def make(schema: dict[str, Any], _: int) -> Approve:
        limit = schema[key]
        if type(limit) not in (int, float):
            raise _BeyondError
        return lambda value: type(value) not in types or holds(measure(value), limit)

    return make


def _of_several(schema: dict[str, Any], depth: int) -> Approve:
    """Of a choice, null or something else only: there one of the two holds at most."""
    choices = schema.get("oneOf", schema.get("anyOf", []))
    plain = [one for one in choices if one != {"type": "null"}] if isinstance(choices, list) else []
    if {"oneOf", "anyOf"} <= schema.keys() or len(choices) != len(plain) + 1 or len(plain) != 1 or _may_be_null(plain[0]):
        raise _BeyondError
    check = _approver(plain[0], depth + 1)
    return lambda value: value is None or check(value)


def _may_be_null(schema: Any) -> bool:  # noqa: ANN401 - JSON
    return not isinstance(schema, dict) or "null" in str(schema.get("type", "null"))


_NUMBERS, _TEXT, _LIST = (int, float), (str,), (list,)
_MAKERS: dict[str, Callable[[dict[str, Any], int], Approve]] = {
    "type": _type,
    "enum": _enum,
    "const": _enum,
    "required": _required,
    "properties": _properties,
    "additionalProperties": lambda schema, depth: (lambda _: True) if "properties" in schema else _properties(schema, depth),
    "items": _items,
    "minimum": _bound("minimum", lambda size, limit: size >= limit, _NUMBERS, lambda value: value),
    "maximum": _bound("maximum", lambda size, limit: size <= limit, _NUMBERS, lambda value: value),
    "exclusiveMinimum": _bound("exclusiveMinimum", lambda size, limit: size > limit, _NUMBERS, lambda value: value),
    "exclusiveMaximum": _bound("exclusiveMaximum", lambda size, limit: size < limit, _NUMBERS, lambda value: value),
    "minLength": _bound("minLength", lambda size, limit: size >= limit, _TEXT, len),
    "maxLength": _bound("maxLength", lambda size, limit: size <= limit, _TEXT, len),
    "minItems": _bound("minItems", lambda size, limit: size >= limit, _LIST, len),
    "maxItems": _bound("maxItems", lambda size, limit: size <= limit, _LIST, len),
    "oneOf": _of_several,
    "anyOf": _of_several,
}
