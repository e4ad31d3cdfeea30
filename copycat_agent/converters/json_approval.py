"""Quickly approves records that a JSON Schema allows, by a validator in Rust. Only this module uses jsonschema-rs.

It gets a copy of the schema: only keywords that both libraries treat alike, with references replaced by their targets. So it neither
fetches anything nor recurses, and its time is bounded by the sizes of the copy and of the record. Patterns are ours, as formats with a
function. A schema that needs more has no approver. Records that are not approved are validated by jsonschema, which gives the reasons: a
refusal may be wrong, an approval never, also below a `not`. Tests compare both over random schemas and records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs
from jsonschema import Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator, validators

from copycat_agent.patterns import compile_pattern

Approve = Callable[[Any], bool]

_DRAFTS = (Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator)
_REFERENCE_ALONE = _DRAFTS[:2]
"""Drafts in which everything beside a reference is ignored."""
_DEPTH_MAX = 30
_PARTS_MAX = 5000
"""The most schemas in the copy, which grows where references are used repeatedly."""
_LOOKS_MAX = 200
"""How many of them may check one place of a record, at some 40 ns each: less per byte than jsonschema is allowed."""
_BASES = frozenset(("$id", "$schema"))
"""Keywords that are understood only at the beginning of a document."""
_NAMES = frozenset(("$id", "$schema", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"))
_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "object", "array"))


def approver(schema: Any, others: Mapping[str, Any] | None = None) -> Approve | None:  # noqa: ANN401 - JSON
    """Returns None for a schema that needs more than is supported here. `others` are the schemas that it may refer to, by their names."""
    draft = validators.validator_for(schema, default=Draft7Validator)
    if draft not in _DRAFTS:
        return None
    copying = _SchemaCopier(schema, others or {}, draft)
    try:
        copy = copying.of(schema, schema, 0)
        if _looks(copy) > _LOOKS_MAX:
            return None
        is_valid = jsonschema_rs.Draft7Validator(copy, formats=copying.formats, validate_formats=True).is_valid
    except Exception:  # noqa: BLE001 - beyond what is known here, or beyond the library: the other one judges, as without it
        return None

    def approve(value: Any) -> bool:  # noqa: ANN401 - JSON
        try:
            return is_valid(value)
        except Exception:  # noqa: BLE001 - a value beyond the library, a pattern that took too long: as above
            return False

    return approve


class _BeyondError(Exception):
    """A keyword, or a use of one, is not supported here."""


class _SchemaCopier:
    """Makes the copy of one schema. `formats` gets its patterns."""

    def __init__(self, schema: Any, others: Mapping[str, Any], draft: Any) -> None:  # noqa: ANN401 - JSON, and a class of the library
        self.formats: dict[str, Callable[[str], bool]] = {}
        self._schema = schema
        self._others = others
        self._draft = draft
        self._parts = 0

    def of(self, schema: Any, document: Any, depth: int) -> Any:  # noqa: ANN401 - JSON
        """Copies a schema within `document`. Raises _BeyondError."""
        self._parts += 1
        if depth > _DEPTH_MAX or self._parts > _PARTS_MAX or not isinstance(schema, dict | bool):
            raise _BeyondError
        if isinstance(schema, bool):
            return schema
        if schema.keys() & (_NAMES - _BASES if schema is document else _NAMES):
            raise _BeyondError
        if "$ref" not in schema:
            return self._keywords(schema, document, depth)
        target = self._target(schema["$ref"], document, depth)
        if self._draft in _REFERENCE_ALONE:
            return target
        beside = {name: said for name, said in schema.items() if name != "$ref"}
        return {"allOf": [target, self._keywords(beside, document, depth)]}

    def _keywords(self, schema: dict[str, Any], document: Any, depth: int) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Copies keywords, without those that the draft does not assert."""
        if "if" in schema and "if" in self._draft.VALIDATORS:
            asserted = {*self._draft.VALIDATORS, "then", "else"}
        else:
            asserted = {*self._draft.VALIDATORS} - {"then", "else"}
        copy: dict[str, Any] = {}
        for name, said in schema.items():
            if name in asserted and name not in _UNASSERTED:
                copy |= self._keyword(name, said, document, depth + 1)
        return copy

    def _keyword(self, name: str, said: Any, document: Any, depth: int) -> dict[str, Any]:  # noqa: ANN401 - JSON
        if name in _OF_SCHEMA:
            return {name: self.of(said, document, depth)}
        if name in _OF_SCHEMAS and isinstance(said, list):
            return {name: [self.of(one, document, depth) for one in said]}
        if name == "properties" and isinstance(said, dict):
            return {name: {key: self.of(one, document, depth) for key, one in said.items()}}
        if name == "pattern" and isinstance(said, str):
            return self._pattern(said)
        if name in _PLAIN and _PLAIN[name](said):
            return {name: said}
        raise _BeyondError

    def _pattern(self, text: str) -> dict[str, Any]:
        pattern = compile_pattern(text)
        if pattern.doubt:  # a pattern that may use up the whole time does so only once
            raise _BeyondError
        name = f"p{len(self.formats)}"
        self.formats[name] = lambda value: pattern.search(value) is not None
        return {"format": name}

    def _target(self, reference: Any, document: Any, depth: int) -> Any:  # noqa: ANN401 - JSON
        """Copies the target of a reference: a place in this document, or in one of the others."""
        if not isinstance(reference, str) or "%" in reference or "~" in reference:
            raise _BeyondError
        name, _, pointer = reference.partition("#")
        if name:
            if name not in self._others or "$id" in document:
                raise _BeyondError
            document = self._others[name]
            if not isinstance(document, dict) or "$id" in document or self._draft_of(document) is not self._draft:
                raise _BeyondError
        elif document is self._schema and "#" in document.get("$id", ""):
            raise _BeyondError
        return self.of(_at(document, pointer), document, depth + 1)

    def _draft_of(self, document: dict[str, Any]) -> Any:  # noqa: ANN401 - a class of the library
        return validators.validator_for(document, default=self._draft)


def _at(document: Any, pointer: str) -> Any:  # noqa: ANN401 - JSON
    if not pointer:
        return document
    if not pointer.startswith("/"):
        raise _BeyondError  # an anchor
    found = document
    for step in pointer[1:].split("/"):
        if not isinstance(found, dict) or step not in found or (found is not document and found.keys() & _NAMES):
            raise _BeyondError
        found = found[step]
    return found


def _looks(schema: Any) -> int:  # noqa: ANN401 - JSON
    """Returns the most schemas of the copy that check any one place of a record."""
    if isinstance(schema, bool):
        return 1
    here = [one for name in _OF_SCHEMAS for one in schema.get(name, ())] + [schema[name] for name in _HERE if name in schema]
    below = [*schema.get("properties", {}).values(), *(schema[name] for name in _OF_SCHEMA - _HERE if name in schema)]
    return sum(map(_looks, here)) + max([1, *map(_looks, below)])


def _is_number(said: object) -> bool:
    return type(said) is int or (type(said) is float and math.isfinite(said))


def _is_size(said: object) -> bool:
    return type(said) is int


def _is_type(said: object) -> bool:
    words = said if isinstance(said, list) else [said]
    return all(isinstance(word, str) and word in _TYPES for word in words)


def _is_names(said: object) -> bool:
    return isinstance(said, list) and all(isinstance(name, str) for name in said)


_HERE = frozenset(("not", "if", "then", "else"))
_OF_SCHEMA = frozenset(("additionalProperties", "items", "propertyNames")) | _HERE
_OF_SCHEMAS = frozenset(("allOf", "anyOf", "oneOf"))
_UNASSERTED = frozenset(("format",))
"""The library asserts it only on request."""
_PLAIN: dict[str, Callable[[Any], bool]] = {
    "type": _is_type,
    "enum": lambda said: isinstance(said, list),
    "const": lambda _: True,
    "required": _is_names,
    "minimum": _is_number,
    "maximum": _is_number,
    "exclusiveMinimum": _is_number,
    "exclusiveMaximum": _is_number,
    "minLength": _is_size,
    "maxLength": _is_size,
    "minItems": _is_size,
    "maxItems": _is_size,
    "minProperties": _is_size,
    "maxProperties": _is_size,
}
"""Keywords that are copied unchanged, and the check of their values."""
