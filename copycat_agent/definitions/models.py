"""The option models: the class and field of each place in a definition, and their JSON Schema."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, get_args, get_origin

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions.client_settings import READING
from copycat_agent.formats.records import FORMATS, FormatOptions
from copycat_agent.options import (
    ConverterOptions,
    ConvertersOptions,
    Definition,
    FieldInfo,
    Options,
    SinkOptions,
    SourceOptions,
    TransformOptions,
    TypeAdapter,
)
from copycat_agent.registry import Registry
from copycat_agent.sinks import SINKS
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import TRANSFORMS

Loc = tuple[str | int, ...]
"""A place in a document: keys and list positions from the root."""


def key_of(name: str, field: FieldInfo) -> str:
    """Returns the key of a field in YAML: its alias if it has one."""
    return field.alias or name


def fields_by_key(model: type[Options]) -> dict[str, tuple[str, FieldInfo]]:
    """Returns the model's fields by their YAML keys, each with its name in Python."""
    return {key_of(name, field): (name, field) for name, field in model.model_fields.items()}


def models_in(annotation: object) -> Iterator[type[Options]]:
    """Yields every options class that `annotation` mentions, in order, without looking into them."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def all_models(roots: Sequence[type[Options]]) -> tuple[type[Options], ...]:
    """Returns the classes and every options class reachable from them, each once, parents first."""
    found: dict[type[Options], None] = {}
    todo = list(reversed(roots))
    while todo:
        model = todo.pop()
        if model not in found:
            found[model] = None
            todo.extend(reversed([inner for field in model.model_fields.values() for inner in models_in(field.annotation)]))
    return tuple(found)


def model_at(root: type[Options], loc: Loc) -> type[Options] | None:
    """Returns the options class of the map at `loc`; None inside free maps (headers, client settings)."""
    model: type[Options] | None = root
    in_map = False  # the next key is one of a free map, whose values may be options again
    for step in loc:
        if isinstance(step, int) or in_map:
            in_map = False
            continue
        found = fields_by_key(model).get(step) if model else None
        model = next(models_in(found[1].annotation), None) if found else None
        in_map = found is not None and _is_map(found[1].annotation)
    return None if in_map else model


def _is_map(annotation: object) -> bool:
    """Returns whether it is a free map, or an optional one."""
    return dict in {get_origin(one) for one in (annotation, *get_args(annotation))}


def field_at(root: type[Options], loc: Loc) -> FieldInfo | None:
    """Returns the field whose value, or part of it, is at `loc`."""
    for length in range(len(loc), 0, -1):
        model, key = model_at(root, loc[: length - 1]), loc[length - 1]
        if model is not None and isinstance(key, str) and key in model.model_fields | fields_by_key(model):
            return fields_by_key(model)[key][1]
    return None


def markers(field: FieldInfo) -> Iterator[Any]:
    """Yields the field's metadata and that of every part of its type: the markers of quantities and secrets are there."""
    yield from field.metadata
    yield from _annotated(field.annotation)


def _annotated(annotation: object) -> Iterator[Any]:
    yield from getattr(annotation, "__metadata__", ())
    for argument in get_args(annotation):
        if argument is not NoneType:
            yield from _annotated(argument)


SCHEMA_ID = "https://copycat-agent.example/definition.schema.json"

_REFERENCE = r"\$\{(env|file|cred):"


def definition_schema() -> dict[str, Any]:
    """Returns a schema of draft 2020-12, self-contained. For editors: it has types, names and ranges, not the rules between options.

    Wherever a number or boolean is expected, a text with a `${...}` reference is allowed too.
    """
    parts = parts_of_definitions()
    defs: dict[str, Any] = {}
    models: tuple[type[Options], ...] = (Definition, *parts)
    for model in models:
        schema = model.model_json_schema(ref_template="#/$defs/{model}")
        defs |= schema.pop("$defs", {})
        defs[model.__name__] = schema
    for model in all_models(models):
        _in_units(model, defs[model.__name__])
    for base in (SourceOptions, TransformOptions, SinkOptions, ConverterOptions, FormatOptions):
        defs.pop(base.__name__, None)
    root = defs.pop(Definition.__name__)
    root["required"].remove("record")  # files need none
    _compose(root, defs, _foreign(defs))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **_with_references(root),
            "title": "copycat-agent connector definition", "$defs": _with_references(defs)}  # fmt: skip


def parts_of_definitions() -> tuple[type[Options], ...]:
    """Returns the options of every built-in source, transform, sink, converter and format, in this order."""
    registries: tuple[Registry[Any], ...] = (SOURCES, TRANSFORMS, SINKS, CONVERTERS, FORMATS)
    return tuple(entry.options for registry in registries for entry in registry.built_in.values())


def default_of(model: type[Options], name: str) -> object:
    """Returns the default of a field as a definition would write it. The field must have one."""
    field = model.model_fields[name]
    adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
    return adapter.dump_python(field.get_default(call_default_factory=True), mode="json")


def _in_units(model: type[Options], schema: dict[str, Any]) -> None:
    schema = next(one for one in schema.get("anyOf", [schema]) if "properties" in one)  # a scalar may stand for a map
    for name, field in model.model_fields.items():
        described = schema["properties"][key_of(name, field)]
        described.pop("title", None)
        described["description"] = field.description or ""
        if not field.is_required():
            described["default"] = default_of(model, name)
    for described in schema["properties"].values():
        if "$ref" in described and isinstance(described.get("default"), dict):
            del described["default"]  # the section's own options show theirs


def _foreign(defs: dict[str, Any]) -> dict[str, list[str]]:
    """Adds the parts of installed packages to `defs`; returns their keys there by the noun of their registry.

    Their keys have a prefix, since names of classes may be the same. A part without a valid schema is left out.
    """
    keys: dict[str, list[str]] = {}
    registries: tuple[Registry[Any], ...] = (SOURCES, TRANSFORMS, CONVERTERS, FORMATS)
    for registry in registries:
        for name in [name for name in registry if name not in registry.built_in]:
            prefix, model = f"{registry.noun}.{name}.", registry[name].options
            with contextlib.suppress(Exception):  # somebody else's models may raise anything
                schemas = _schemas_of(model, prefix)
                own = schemas[model.__name__]
                if "type" in model.model_fields:
                    own["required"] = sorted({"type", *own.get("required", ())})
                defs |= {prefix + key: schema for key, schema in schemas.items()}
                keys.setdefault(registry.noun, []).append(prefix + model.__name__)
    return keys


def _schemas_of(model: type[Options], prefix: str) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    schemas = {**schema.pop("$defs", {}), model.__name__: schema}
    for one in all_models((model,)):
        _in_units(one, schemas[one.__name__])
    return schemas


def _compose(root: dict[str, Any], defs: dict[str, Any], foreign: dict[str, list[str]]) -> None:
    """Replaces the base classes in the models by the choices of sources, transforms and converters."""
    properties = root["properties"]
    properties["source"] = _choice(SOURCES, foreign) | _described(properties["source"])
    properties["sink"] = _choice(SINKS, foreign) | _described(properties["sink"])
    items = _choice(TRANSFORMS, foreign)
    properties["transforms"] = {"type": "array", "items": items, "default": []} | _described(properties["transforms"])
    converter = _choice(CONVERTERS, foreign)
    for name in ("key", "value"):
        described = defs[ConvertersOptions.__name__]["properties"][name]
        choice: dict[str, Any] = {"anyOf": [{"enum": list(CONVERTERS)}, *converter["anyOf"], {"type": "null"}], "default": None}
        defs[ConvertersOptions.__name__]["properties"][name] = choice | _described(described)
    formats = _choice(FORMATS, foreign)
    for source in (entry.options for entry in SOURCES.built_in.values() if "format" in entry.options.model_fields):
        described = defs[source.__name__]["properties"]["format"]
        choice = {"anyOf": [{"enum": list(FORMATS)}, *formats["anyOf"]], "default": "lines"}
        defs[source.__name__]["properties"]["format"] = choice | _described(described)
    for part in (*(entry.options for entry in CONVERTERS.built_in.values()), *(entry.options for entry in FORMATS.built_in.values())):
        defs[part.__name__]["required"] = sorted({"type", *defs[part.__name__].get("required", ())})
    defs["KafkaOptions"]["properties"]["client"]["propertyNames"] = {"enum": sorted(READING)}


def _choice(registry: Registry[Any], foreign: dict[str, list[str]]) -> dict[str, Any]:
    keys = [entry.options.__name__ for entry in registry.built_in.values()] + foreign.get(registry.noun, [])
    return {"anyOf": [{"$ref": f"#/$defs/{key}"} for key in keys]}


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": schema["description"]}


def _with_references(schema: dict[str, Any]) -> dict[str, Any]:
    """Allows every number, boolean, pattern and choice to be a text that refers to its value."""
    kept = {"default", "enum", "propertyNames", "examples"}
    inner = {key: value if key in kept else _inside(value) for key, value in schema.items()}
    if schema.get("type") in ("integer", "number", "boolean") or ("const" in schema and schema.get("type") == "string"):
        return _or_reference(inner)
    return _or_reference(inner) if isinstance(schema.get("type"), str) and ("pattern" in schema or "enum" in schema) else inner


def _inside(value: object) -> object:
    if isinstance(value, list):
        return [_inside(item) for item in value]
    return _with_references(value) if isinstance(value, dict) else value


def _or_reference(schema: dict[str, Any]) -> dict[str, Any]:
    outer: dict[str, Any] = {key: schema.pop(key) for key in ("description", "default") if key in schema}
    return {"anyOf": [schema, {"type": "string", "pattern": _REFERENCE}], **outer}
