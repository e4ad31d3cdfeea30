"""`json_schema`: fields as JSON, with the id of their schema in a schema registry."""

from __future__ import annotations

from collections.abc import Iterator

from copycat_agent.converters.base import Converter, ConverterKind, OptionProblem, Site
from copycat_agent.converters.json_schema.options import JsonSchemaOptions
from copycat_agent.converters.schemas.building import build
from copycat_agent.converters.schemas.options import schema_problems


def _build(options: JsonSchemaOptions, site: Site) -> Converter:
    from copycat_agent.converters.json_schema import json_form  # noqa: PLC0415 - imports jsonschema, 0.1 s

    return build(options, site, json_form.JsonForm(options))


def _problems(options: JsonSchemaOptions, site: Site) -> Iterator[OptionProblem]:
    yield from schema_problems(options, site)
    from copycat_agent.converters.json_schema import json_form  # noqa: PLC0415 - imports jsonschema, 0.1 s

    yield from json_form.problems(options, site)


JSON_SCHEMA = ConverterKind(JsonSchemaOptions, _build, wants_record=True, problems=_problems)
