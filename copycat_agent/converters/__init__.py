"""Converters: value -> bytes. A new converter is one file and one line in `_BUILT_IN`.

Forms of schemas, and the client of schema registries, are imported when a definition needs them: each takes 0.1 to 0.24 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copycat_agent.converters.base import Converter, ConverterKind, ConverterProblem, Site
from copycat_agent.converters.plain import BYTES, JSON, STRING
from copycat_agent.converters.schema_options import (
    AvroConverterOptions,
    JsonSchemaOptions,
    ProtobufOptions,
    SchemaOptions,
    registry_problems,
    schema_problems,
)
from copycat_agent.errors import FatalError
from copycat_agent.options import ConverterOptions
from copycat_agent.registry import ProviderGuard, Registry, wrong_kind, wrong_type_name

if TYPE_CHECKING:
    from copycat_agent.converters.schema_forms import SchemaForm

_ANYWHERE = Site()

__all__ = ["CONVERTERS", "Converter", "ConverterKind", "ConverterProblem", "Site", "build_converter", "registry_problems"]


def build_converter(options: ConverterOptions, site: Site = _ANYWHERE) -> Converter:
    """Returns the converter of `options` (validated by `CONVERTERS[type].options`). Called once per definition."""
    return CONVERTERS[options.type].build(options, site)


_Form = tuple[Callable[[Any], "SchemaForm"], Callable[[Any, Site], Iterable[ConverterProblem]]]
"""The form of a kind of schema, and the function that yields problems of a schema's file or of declared fields."""


def _avro() -> _Form:
    from copycat_agent.converters import avro_form  # noqa: PLC0415 - imports fastavro

    return avro_form.AvroForm, avro_form.problems


def _json_schema() -> _Form:
    from copycat_agent.converters import json_form  # noqa: PLC0415 - imports jsonschema

    return json_form.JsonForm, json_form.problems


def _protobuf() -> _Form:
    from copycat_agent.converters import proto_form  # noqa: PLC0415 - imports protobuf and its compiler

    return proto_form.ProtoForm, proto_form.problems


def _registered(options_type: type[SchemaOptions], load: Callable[[], _Form]) -> ConverterKind:
    """Returns the kind of a converter with schemas in a registry: it writes the schema's id, then the fields in the schema's form."""

    def build(options: Any, site: Site) -> Converter:  # noqa: ANN401 - of `options_type`
        from copycat_agent.converters import registry_access, schema_converter  # noqa: PLC0415 - import the registry's client

        if site.registry is None:
            raise ValueError(f"converter {options.type} needs converters.schema_registry")
        return schema_converter.SchemaConverter(options, site, load()[0](options), registry_access.registry_of(site.registry))

    def problems(options: Any, site: Site) -> Iterable[ConverterProblem]:  # noqa: ANN401 - as above
        yield from schema_problems(options, site)
        if options.schema_ is not None or options.derives:
            yield from load()[1](options, site)

    return ConverterKind(options_type, build, wants_record=True, problems=problems)


_BUILT_IN: dict[str, ConverterKind] = {
    "bytes": BYTES,
    "string": STRING,
    "json": JSON,
    "avro": _registered(AvroConverterOptions, _avro),
    "json_schema": _registered(JsonSchemaOptions, _json_schema),
    "protobuf": _registered(ProtobufOptions, _protobuf),
}


def _wrong(name: str, part: ConverterKind) -> str:
    return wrong_kind(part, ConverterKind, ConverterOptions) or wrong_type_name(name, part.options)


def _fenced(kind: ConverterKind, fence: ProviderGuard) -> ConverterKind:
    def build(options: Any, site: Site) -> Converter:  # noqa: ANN401 - options of any converter
        return fence(kind.build(options, site))

    def problems(options: Any, site: Site) -> Iterable[ConverterProblem]:  # noqa: ANN401 - as above
        try:
            return list(fence(lambda: list(kind.problems(options, site)))())
        except FatalError as error:
            return [ConverterProblem(("value",), error.message, error.hint)]

    return replace(kind, build=fence(build), problems=problems)


CONVERTERS = Registry("converter", _BUILT_IN, _wrong, _fenced)
"""Converters by the name of their type; includes those of installed packages."""
