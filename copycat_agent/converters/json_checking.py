"""jsonschema's validators, made to end whatever the schema is, and a quick yes for the schemas that most records have.

What the quick check approves needs no library; what it does not approve, the library judges and words. So it may be wrong in a no, and
never in a yes: tests compare it with the library over random schemas. Keywords that may take for ever are replaced: patterns, uniqueItems
(which compares each with each), and references, which get a deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from jsonschema import validators
from jsonschema.exceptions import ValidationError

from copycat_agent.converters.base import BadSchemaError
from copycat_agent.patterns import compile_pattern

SECONDS = 2.0
SECONDS_PER_BYTE = 1e-5
"""So long a record may take, and so much more for each of its bytes: ten times what one needs that goes through the schema once."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = frozenset(("const", "enum", "default", "examples"))
"""Keywords below which there is no schema."""
_UNEVALUATED = "unevaluatedProperties"

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]
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


class SlowError(Exception):
    """A record would take too long."""


class _CheckClock(threading.local):
    """When the record that this thread looks at has had its time."""

    until = 0.0


_clock = _CheckClock()


def give(size: int) -> None:
    """A record of this many bytes begins."""
    _clock.until = time.monotonic() + SECONDS + SECONDS_PER_BYTE * size


@lru_cache(maxsize=16)
def bounded(validator: Any) -> Any:  # noqa: ANN401 - a class of the library
    """The validator class of a draft, with what may take too long replaced."""
    known = validator.VALIDATORS
    own = {"pattern": _pattern, "patternProperties": _pattern_properties, "additionalProperties": _additional, "uniqueItems": _unique}
    timed = {name: _timed(known[name]) for name in _REFERENCES if name in known}
    extend: Any = validators.extend  # it has no types
    made = extend(validator, {**{name: keyword for name, keyword in own.items() if name in known}, **timed})
    evolve = made.evolve

    def bounded_evolve(self: Any, **changes: Any) -> Any:  # noqa: ANN401 - the library's
        """For a schema that names its draft, as the whole does that refers to itself, the library goes on with that draft's own class."""
        part: Any = evolve(self, **changes)
        kind: Any = type(part)
        if kind is made:
            return part
        return bounded(kind)(part.schema, registry=part._registry, _resolver=part._resolver)  # noqa: SLF001 - nothing public has them

    made.evolve = bounded_evolve
    return made


def check_patterns(schema: Any) -> None:  # noqa: ANN401 - JSON
    """Raise BadSchemaError for a pattern that is none here, and for one whose use cannot be bounded."""
    if isinstance(schema, list):
        for inner in schema:
            check_patterns(inner)
    elif isinstance(schema, dict):
        named = schema.get("patternProperties")
        _check(schema.get("pattern"))
        for name in named if isinstance(named, dict) else ():
            if (doubt := _check(name)) and _UNEVALUATED in schema:
                raise BadSchemaError(f"beside {_UNEVALUATED} the pattern {name[:100]!r} may take too long: {doubt}")
        for name, inner in schema.items():
            if name not in _DATA:
                check_patterns(inner)


def _check(pattern: object) -> str:
    if not isinstance(pattern, str):
        return ""
    try:
        return compile_pattern(pattern).doubt
    except ValueError as error:
        raise BadSchemaError(f"the pattern {pattern[:100]!r} is {error}") from None


def _timed(keyword: Keyword) -> Keyword:
    def timed(validator: Any, said: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401 - the library's
        if time.monotonic() > _clock.until:
            raise SlowError
        yield from keyword(validator, said, instance, schema) or ()

    return timed


def _pattern(validator: Any, said: str, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401 - the library's
    del schema
    if validator.is_type(instance, "string") and not compile_pattern(said).search(instance):
        yield ValidationError("no match")


def _pattern_properties(validator: Any, said: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
    del schema
    if validator.is_type(instance, "object"):
        for pattern, inner in said.items():
            search = compile_pattern(pattern).search
            for name, value in instance.items():
                if search(name):
                    yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional(validator: Any, said: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401 - the library's
    if not validator.is_type(instance, "object"):
        return
    known, searches = schema.get("properties", {}), [compile_pattern(one).search for one in schema.get("patternProperties", {})]
    for name, value in instance.items():
        if name in known or any(search(name) for search in searches):
            continue
        if validator.is_type(said, "object"):
            yield from validator.descend(value, said, path=name)
        elif not said:
            yield ValidationError("no others are allowed")
            return


def _unique(validator: Any, said: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401 - the library's
    del schema
    if said and validator.is_type(instance, "array") and len(set(map(_comparable, instance))) < len(instance):
        yield ValidationError("not unique")


def _comparable(value: Any) -> object:  # noqa: ANN401 - JSON
    """What is equal where JSON is: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return frozenset((name, _comparable(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    return _BOOLEANS[value] if isinstance(value, bool) else value


_BOOLEANS = {True: object(), False: object()}


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
