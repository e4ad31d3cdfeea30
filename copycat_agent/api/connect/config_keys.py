"""The keys of a configuration with meaning, type and default, from the models of definitions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from copycat_agent.api.connect.flat_config import CONNECTOR_CLASS, TASKS_MAX, THEIRS, as_text
from copycat_agent.definitions.models import default_of, key_of, models_in
from copycat_agent.formats.records import FormatOptions
from copycat_agent.options import (
    ConverterOptions,
    Definition,
    DeliveryOptions,
    FieldInfo,
    Options,
    SourceOptions,
    TransformOptions,
    TypeAdapter,
)

_OPEN = (SourceOptions, TransformOptions, ConverterOptions, FormatOptions)
"""Sections whose keys depend on their type. Each is one key here, and keys below it are accepted."""
_TYPES = {"boolean": "BOOLEAN", "integer": "LONG", "number": "DOUBLE", "array": "LIST"}
_GENERAL = "connector"


class ConfigKey(NamedTuple):
    """A key as Connect describes it. `default` is None if there is none; `choices` are the words that it accepts."""

    name: str
    type: str
    required: bool
    default: str | None
    documentation: str
    group: str
    choices: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset({"string"})
    """The JSON types that a definition accepts here."""

    def document(self, order: int) -> dict[str, Any]:
        """Returns the definition of the key in the form of the REST API."""
        return {
            "name": self.name, "type": self.type, "required": self.required, "default_value": self.default,
            "importance": "HIGH" if self.required else "MEDIUM", "documentation": self.documentation, "group": self.group,
            "width": "MEDIUM", "display_name": self.name, "dependents": [], "order": order,
        }  # fmt: skip


@lru_cache(maxsize=64)
def connector_keys(source: type[Options], kind: str) -> tuple[ConfigKey, ...]:
    """Returns the keys of a connector with a source of this kind, Connect's own three first."""
    name = Definition.model_fields["name"].description or ""
    what = "Kind of source: source.type of a definition."
    tasks = DeliveryOptions.model_fields["tasks_max"]
    own = (
        ConfigKey("name", "STRING", True, None, name, _GENERAL),
        ConfigKey(CONNECTOR_CLASS, "STRING", True, None, what, _GENERAL, (kind,)),
        ConfigKey(TASKS_MAX, "LONG", False, str(tasks.default), tasks.description or "", _GENERAL, kinds=frozenset({"integer"})),
    )
    skipped = {"name", "source", "tests"}
    sections = (field for field in Definition.model_fields if field not in skipped)
    rest = [one for field in sections for one in _key_and_below(Definition, field, "", needed=True)]
    below = _keys_below(source, "source.", needed=True)
    return (*own, *(one for one in (*below, *rest) if one.name not in THEIRS))


@lru_cache(maxsize=256)
def part_keys(part: type[Options]) -> tuple[ConfigKey, ...]:
    """Returns the keys of a transform or converter, relative to its section."""
    return tuple(_keys_below(part, "", needed=True))


def _keys_below(model: type[Options], prefix: str, *, needed: bool) -> Iterator[ConfigKey]:
    """Yields the keys of a section. `needed`: the section is always there, so its required keys are required."""
    for name in model.model_fields:
        yield from _key_and_below(model, name, prefix, needed=needed)


def _key_and_below(model: type[Options], name: str, prefix: str, *, needed: bool) -> Iterator[ConfigKey]:
    field = model.model_fields[name]
    key = prefix + key_of(name, field)
    schema = _schema(field)
    inner = [one for one in models_in(field.annotation) if one not in _OPEN] if any(map(_is_section, _branches(schema))) else []
    if not inner or not all(map(_is_section, _branches(schema))):
        yield _key(model, name, key, schema, needed=needed)
    for one in inner:
        yield from _keys_below(one, f"{key}.", needed=needed and (field.is_required() or isinstance(field.get_default(), Options)))


def _key(model: type[Options], name: str, key: str, schema: dict[str, Any], *, needed: bool) -> ConfigKey:
    field = model.model_fields[name]
    default = None if field.is_required() else _default(model, name)
    choices = tuple(str(word) for one in _branches(schema) for word in one.get("enum", [one["const"]] if "const" in one else []))
    group = key.partition(".")[0]
    kinds = frozenset("object" if _is_section(one) else str(one.get("type", "string")) for one in _branches(schema))
    return ConfigKey(key, _type(schema), needed and field.is_required(), default, field.description or "", group, choices, kinds)


def _default(model: type[Options], name: str) -> str | None:
    with contextlib.suppress(Exception):  # models of other packages may raise anything
        value = default_of(model, name)
        return None if value is None else as_text(value)
    return None


def _schema(field: FieldInfo) -> dict[str, Any]:
    with contextlib.suppress(Exception):  # as above
        adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
        return adapter.json_schema()
    return {"type": "string"}


def _branches(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the alternatives of a schema, without null."""
    return [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]


def _is_section(schema: dict[str, Any]) -> bool:
    """Returns whether this is a section with fixed keys, not a map of any keys."""
    return "$ref" in schema or "properties" in schema


def _type(schema: dict[str, Any]) -> str:
    branches = _branches(schema)
    if any(one.get("format") == "password" for one in branches):
        return "PASSWORD"
    types = {_TYPES.get(str(one.get("type")), "STRING") for one in branches}
    return types.pop() if len(types) == 1 else "STRING"
