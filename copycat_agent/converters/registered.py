"""`avro`, `json_schema` and `protobuf`: fields in a form that a schema says, with the id of that schema in a schema registry.

Forms, and the client of registries, are imported when a definition needs them: each takes 0.1 to 0.24 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from copycat_agent.converters.base import Converter, ConverterKind, ConverterProblem, Site
from copycat_agent.converters.schemas.schema_options import AvroConverterOptions, JsonSchemaOptions, ProtobufOptions, schema_problems

if TYPE_CHECKING:
    from copycat_agent.converters.base import Converter, Site
    from copycat_agent.converters.schemas.form import SchemaForm
    from copycat_agent.converters.schemas.schema_options import SchemaOptions


def build(options: SchemaOptions, site: Site, form: SchemaForm) -> Converter:
    """What `options` describe, at `site`. Raises ValueError without a registry."""
    from copycat_agent.converters.schemas import converting, registry_access  # noqa: PLC0415 - import the registry's client, 0.24 s

    if site.registry is None:
        msg = f"converter {options.type} needs converters.schema_registry"
        raise ValueError(msg)
    return converting.SchemaConverter(options, site, form, registry_access.registry_of(site.registry))


def _build_avro(options: AvroConverterOptions, site: Site) -> Converter:
    from copycat_agent.converters import avro_form  # noqa: PLC0415 - imports fastavro, 0.1 s

    return build(options, site, avro_form.AvroForm(options))


def _avro_problems(options: AvroConverterOptions, site: Site) -> Iterator[ConverterProblem]:
    yield from schema_problems(options, site)
    from copycat_agent.converters import avro_form  # noqa: PLC0415 - imports fastavro, 0.1 s

    yield from avro_form.problems(options, site)


AVRO = ConverterKind(AvroConverterOptions, _build_avro, wants_record=True, problems=_avro_problems)


def _build_json_schema(options: JsonSchemaOptions, site: Site) -> Converter:
    from copycat_agent.converters import json_form  # noqa: PLC0415 - imports jsonschema, 0.1 s

    return build(options, site, json_form.JsonForm(options))


def _json_schema_problems(options: JsonSchemaOptions, site: Site) -> Iterator[ConverterProblem]:
    yield from schema_problems(options, site)
    from copycat_agent.converters import json_form  # noqa: PLC0415 - imports jsonschema, 0.1 s

    yield from json_form.problems(options, site)


JSON_SCHEMA = ConverterKind(JsonSchemaOptions, _build_json_schema, wants_record=True, problems=_json_schema_problems)


def _build_protobuf(options: ProtobufOptions, site: Site) -> Converter:
    from copycat_agent.converters import proto_form  # noqa: PLC0415 - imports protobuf and its compiler, 0.1 s

    return build(options, site, proto_form.ProtoForm(options))


def _protobuf_problems(options: ProtobufOptions, site: Site) -> Iterator[ConverterProblem]:
    yield from schema_problems(options, site)
    if options.schema_ is None:
        if options.auto_register:
            hint = "name its file under schema"
            why = "needs a schema to register: the numbers of Protobuf's fields cannot be made from declared types and stay the same"
            yield ConverterProblem((site.part, "auto_register"), why, hint)
        return
    from copycat_agent.converters import proto_form  # noqa: PLC0415 - imports protobuf and its compiler, 0.1 s

    yield from proto_form.problems(options, site)


PROTOBUF = ConverterKind(ProtobufOptions, _build_protobuf, wants_record=True, problems=_protobuf_problems)
