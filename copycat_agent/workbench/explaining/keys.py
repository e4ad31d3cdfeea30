"""Explains options: every key of a definition and of agent.yaml, from the models that load them."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions.client_settings import ACCEPTED, READING, check_name
from copycat_agent.definitions.models import default_of, key_of, markers, models_in
from copycat_agent.formats.records import FORMATS, FormatOptions
from copycat_agent.options import (
    AgentOptions,
    ConverterOptions,
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
from copycat_agent.workbench.explaining.examples import (
    ALONE,
    BESIDE,
    EXAMPLES,
    EXAMPLES_OF,
    LEAST_OF_FILES,
    LEAST_OF_SOURCES,
    written_example,
)

_REGISTRIES: dict[type[Options], tuple[str, Registry[Any]]] = {
    SourceOptions: ("source", SOURCES),
    TransformOptions: ("transform", TRANSFORMS),
    SinkOptions: ("sink", SINKS),
    ConverterOptions: ("converter", CONVERTERS),
    FormatOptions: ("format", FORMATS),
}
_CLIENTS = {"kafka.client.": ACCEPTED, "source.kafka.client.": READING}
_NEAR = 5
_LISTS = ("transforms", "columns")
"""Sections that are lists of maps."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./ -]*")
_STEP = "a definition, transform "
_SECTION = "the defaults of its keys"


class OptionKey(NamedTuple):
    """One option. `where` names its file, and its source, transform or converter. `default` is None for a required option.

    `kind` is its type in words, `allowed` its choices or bounds ("" for none), `example` an example, `children` the keys below it.
    """

    key: str
    where: str
    meaning: str
    kind: str
    default: str | None
    allowed: str
    example: str
    children: tuple[str, ...]


def find_keys(text: str) -> list[OptionKey]:
    """Returns the options with a dotted key, one for each place where it can be written; [] for none.

    The key's beginning may be left out if one place is nearer to the top than all others: `topic` is `record.topic`. For the name of a
    type, such as `avro`, the options that accept it are returned, too.
    """
    for beginning, accepted in _CLIENTS.items():
        if text.startswith(beginning):
            return [_client_setting(text, text.removeprefix(beginning), accepted)]
    exact = [one for one in all_keys() if one.key == text]
    if exact:
        return _merged(exact)
    ending = [one for one in all_keys() if one.key.endswith(f".{text}")]
    least = min((one.key.count(".") for one in ending), default=0)
    highest = [one for one in ending if one.key.count(".") == least]
    return [*(_merged(highest) if len({one.key for one in highest}) == 1 else []), *_of_type(text)]


def _of_type(name: str) -> list[OptionKey]:
    """Returns the options `type` that accept this value, with that type's options as children."""
    found = [one for one in all_keys() if one.key.endswith(".type") and one.where.endswith(f" {name}")]
    return [one._replace(children=tuple(each.key for each in all_keys() if _stands_beside(each, one))) for one in found]


def _stands_beside(one: OptionKey, other: OptionKey) -> bool:
    return one != other and one.where == other.where and one.key.rpartition(".")[0] == other.key.rpartition(".")[0]


def _merged(keys: list[OptionKey]) -> list[OptionKey]:
    """Returns options that are the same in several places only once."""
    places: dict[OptionKey, list[str]] = {}
    for one in keys:
        places.setdefault(one._replace(where=""), []).append(one.where)
    return [one._replace(where=_joined(where)) for one, where in places.items()]


def _joined(places: list[str]) -> str:
    """Returns places such as `a definition, transform regex or grok`; all transforms are `any transform`."""
    kinds = [place.removeprefix(_STEP) for place in places if place.startswith(_STEP)]
    if len(kinds) > 1 and len(kinds) == len(places):
        return "a definition, any transform" if len(kinds) >= len(TRANSFORMS) else _STEP + " or ".join(kinds)
    return " or ".join(places)


def near_keys(text: str) -> list[str]:
    """Returns keys that may have been meant: those with the same ending, then similar ones."""
    known = list(dict.fromkeys(one.key for one in all_keys()))
    last = text.rpartition(".")[2]
    same = [key for key in known if key.rpartition(".")[2] == last]
    alike = difflib.get_close_matches(text, known, n=_NEAR, cutoff=0.6)
    lasts = difflib.get_close_matches(last, {key.rpartition(".")[2] for key in known}, n=1, cutoff=0.7)
    return list(dict.fromkeys([*same, *alike, *(key for key in known if key.rpartition(".")[2] in lasts)]))[: 2 * _NEAR]


@lru_cache(maxsize=1)
def all_keys() -> tuple[OptionKey, ...]:
    """Returns every option of a definition and of agent.yaml; one of both is there twice."""
    return (*_keys_of(Definition, "", "a definition"), *_keys_of(AgentOptions, "", "agent.yaml"))


def _keys_of(model: type[Options], prefix: str, where: str) -> Iterator[OptionKey]:
    for name, field in model.model_fields.items():
        key = prefix + key_of(name, field)
        inner = [_below(part, f"{key}.", where) for part in models_in(field.annotation)]
        below = [one for keys in inner for one in keys]
        depth = key.count(".") + 1
        children = dict.fromkeys(one.key for one in below if one.key.count(".") == depth)
        yield _key(model, name, key, where, tuple(children))
        yield from below


def _below(model: type[Options], prefix: str, where: str) -> list[OptionKey]:
    """Returns the keys of a section; for a source, transform or converter those of all kinds."""
    if model not in _REGISTRIES:
        return list(_keys_of(model, prefix, where))
    noun, registry = _REGISTRIES[model]
    return [one for kind, entry in registry.items() for one in _of_part(registry, kind, entry.options, prefix, f"{where}, {noun} {kind}")]


def _of_part(registry: Registry[Any], kind: str, model: type[Options], prefix: str, where: str) -> list[OptionKey]:
    """Returns the keys of one part. Those of an installed package are left out if its models cannot be explained."""
    origin = registry.origin(kind)
    if origin is None:
        return list(_keys_of(model, prefix, where))
    with contextlib.suppress(Exception):  # models of other packages may raise anything
        return list(_keys_of(model, prefix, f"{where} of {origin.text}"))
    return []


def _key(model: type[Options], name: str, key: str, where: str, children: tuple[str, ...]) -> OptionKey:
    field = model.model_fields[name]
    schema = _schema(field)
    default = None if field.is_required() else _default(model, name, field)
    return OptionKey(
        key,
        where,
        field.description or "",
        _kind(schema),
        default,
        _allowed(field, schema),
        _example(key, schema, default, where),
        children,
    )


def _schema(field: FieldInfo) -> dict[str, Any]:
    adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
    return adapter.json_schema()


def _default(model: type[Options], name: str, field: FieldInfo) -> str:
    if isinstance(field.get_default(), Options):
        return _SECTION
    default = default_of(model, name)
    return "none" if default is None else json.dumps(default)


def _kind(schema: dict[str, Any]) -> str:
    """Returns the type in words, alternatives joined by "or"."""
    words = [_one_kind(one) for one in schema.get("anyOf", [schema])]
    return " or ".join(dict.fromkeys(word for word in words if word))


def _one_kind(schema: dict[str, Any]) -> str:
    pattern = schema.get("pattern", "")
    if pattern.endswith("ms|s|m|h|d)$"):
        return "a duration"
    if pattern.endswith("GB)$"):
        return "a size in bytes"
    if "enum" in schema or "const" in schema:
        return "one of its words" if len(schema.get("enum", [])) > 1 else "a word"
    kind = schema.get("type", "")
    if kind == "array":
        return f"a list of {_plural(schema.get('items', {}))}"
    words = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "null": ""}
    inner = schema.get("additionalProperties")
    section = "a section" if not isinstance(inner, dict) else "a map of texts" if inner.get("type") == "string" else "a map"
    return words.get(kind if isinstance(kind, str) else "string", section)


def _plural(schema: dict[str, Any]) -> str:
    if schema.get("type") == "string":
        return "texts"
    return "values" if "anyOf" in schema or isinstance(schema.get("type"), list) else "maps"


def _allowed(field: FieldInfo, schema: dict[str, Any]) -> str:
    """Choices, bounds, or a pattern."""
    choices = [word for one in schema.get("anyOf", [schema]) for word in one.get("enum", [one["const"]] if "const" in one else [])]
    if choices:
        return ", ".join(map(str, choices))
    bounds = {
        name: getattr(one, name) for one in markers(field) for name in ("ge", "gt", "le", "lt") if getattr(one, name, None) is not None
    }
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
    return ", ".join(f"{words[name]} {adapter.dump_python(value, mode='json', warnings=False)}" for name, value in bounds.items())


def _example(key: str, schema: dict[str, Any], default: str | None, where: str) -> str:
    """Returns an example of the key, nested in YAML's flow style; "" if only its children have useful ones."""
    if found := written_example(key, where.rpartition(" ")[2]):
        return found
    kind = where.rpartition(" format ")[2] if " format " in where else ""
    value = (
        EXAMPLES_OF.get((kind or where.rpartition(" ")[2], key))
        or EXAMPLES.get(key)
        or ("" if key.startswith(("transforms.", "tests.")) else _example_value(schema, default))
    )
    if not value:
        return ""
    *sections, last = key.split(".")
    beside = next((text for name, text in BESIDE.items() if key not in ALONE and (key == name or key.startswith(f"{name}."))), "")
    if value.startswith("{"):
        beside = ""
    text = f"{beside}, {last}: {value}" if beside else f"{last}: {value}"
    for depth, section in reversed(list(enumerate(sections))):
        text = _of_source(sections[: depth + 1], key, where, kind) + text
        text = f"{section}: [{{{text}}}]" if section in _LISTS else f"{section}: {{{text}}}"
    return text


def _written(text: str) -> str:
    """Returns a text in YAML, quoted if necessary."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _of_source(sections: list[str], key: str, where: str, kind: str) -> str:
    """Returns what else a section of a source or sink needs to be valid. `kind` is that of its format, if any."""
    if sections == ["source"]:
        wanted = next((texts for source, texts in LEAST_OF_SOURCES.items() if f"source {source}" in where), {})
        return "".join(f"{text}, " for name, text in wanted.items() if name != key)
    if sections == ["sink"] and "sink files" in where:
        return "".join(f"{text}, " for name, text in LEAST_OF_FILES.items() if name != key)
    return f"type: {kind}, " if kind and sections == ["source", "format"] and key != "source.format.type" else ""


def _example_value(schema: dict[str, Any], default: str | None) -> str:
    """Returns the last choice, the other boolean, else the default, else a small number."""
    for one in schema.get("anyOf", [schema]):
        if one.get("enum"):
            return str(one["enum"][-1])
        if one.get("type") == "boolean":
            return "false" if default == "true" else "true"
    if default not in (None, "none", "[]", "{}", _SECTION):
        return _written(json.loads(default)) if default.startswith('"') else default
    kinds = {str(one.get("type")): one for one in schema.get("anyOf", [schema])}
    return "1000" if "integer" in kinds else next((str(one["examples"][-1]) for one in kinds.values() if one.get("examples")), "")


def _client_setting(text: str, name: str, accepted: Mapping[str, str]) -> OptionKey:
    """Explains a setting of librdkafka: its values, or why it is not allowed."""
    wrong = check_name(name, accepted)
    if wrong is None:
        client, where = ("consumer", "a definition") if accepted is READING else ("producer", "a definition or agent.yaml")
        meaning = f"A setting of librdkafka, passed on to the {client}; see its CONFIGURATION.md."
        kind, _, values = accepted[name].partition(" ")
        return OptionKey(text, where, meaning, kind, "librdkafka's", values.replace("|", ", "), "", ())
    return OptionKey(text, "nowhere", f"{wrong[0]}: {wrong[1]}", "not allowed", "none", "", "", ())
