"""jsonschema's validators, changed so that they end for any schema.

Keywords that may take too long are replaced: patterns, uniqueItems (which compares all pairs), and references, which get a deadline.
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
"""A record may take `SECONDS`, plus this for each of its bytes: ten times what one pass through the schema needs."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = frozenset(("const", "enum", "default", "examples"))
"""Keywords that hold no schema."""
_UNEVALUATED = "unevaluatedProperties"

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class SlowError(Exception):
    """A record would take too long."""


class _CheckClock(threading.local):
    """The deadline of the record that this thread validates."""

    until = 0.0


_clock = _CheckClock()


def give(size: int) -> None:
    """Starts the deadline of a record of this many bytes."""
    _clock.until = time.monotonic() + SECONDS + SECONDS_PER_BYTE * size


@lru_cache(maxsize=16)
def bounded(validator: Any) -> Any:  # noqa: ANN401 - a class of the library
    """Returns the validator class of a draft, with slow keywords replaced."""
    known = validator.VALIDATORS
    own = {"pattern": _pattern, "patternProperties": _pattern_properties, "additionalProperties": _additional, "uniqueItems": _unique}
    timed = {name: _timed(known[name]) for name in _REFERENCES if name in known}
    extend: Any = validators.extend  # it has no types
    made = extend(validator, {**{name: keyword for name, keyword in own.items() if name in known}, **timed})
    evolve = made.evolve

    def bounded_evolve(self: Any, **changes: Any) -> Any:  # noqa: ANN401 - the library's
        """Keeps the replacements. For a schema that names its draft, the library would go on with that draft's own class."""
        part: Any = evolve(self, **changes)
        kind: Any = type(part)
        if kind is made:
            return part
        return bounded(kind)(part.schema, registry=part._registry, _resolver=part._resolver)  # noqa: SLF001 - nothing public has them

    made.evolve = bounded_evolve
    return made


def check_patterns(schema: Any) -> None:  # noqa: ANN401 - JSON
    """Raises BadSchemaError for an invalid pattern, and for one whose use cannot be bounded."""
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
    """Returns a value that is equal if the JSON is: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return frozenset((name, _comparable(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    return _BOOLEANS[value] if isinstance(value, bool) else value


_BOOLEANS = {True: object(), False: object()}
