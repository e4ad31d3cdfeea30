"""Converters: value -> bytes. A new converter is one file and one line in `_BUILT_IN`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from copycat_agent.converters.base import Converter, ConverterKind, ConverterProblem, Site
from copycat_agent.converters.plain import BYTES, JSON, STRING
from copycat_agent.converters.registered import AVRO, JSON_SCHEMA, PROTOBUF
from copycat_agent.converters.schemas.schema_options import registry_problems
from copycat_agent.errors import FatalError
from copycat_agent.options import ConverterOptions
from copycat_agent.registry import Fence, Registry, wrong_kind, wrong_type_name

_ANYWHERE = Site()

__all__ = ["CONVERTERS", "Converter", "ConverterKind", "ConverterProblem", "Site", "build_converter", "registry_problems"]


def build_converter(options: ConverterOptions, site: Site = _ANYWHERE) -> Converter:
    """The converter that `options` (validated by `CONVERTERS[type].options`) describes. Called once per definition."""
    return CONVERTERS[options.type].build(options, site)


_BUILT_IN: dict[str, ConverterKind] = {
    "bytes": BYTES,
    "string": STRING,
    "json": JSON,
    "avro": AVRO,
    "json_schema": JSON_SCHEMA,
    "protobuf": PROTOBUF,
}


def _wrong(name: str, part: ConverterKind) -> str:
    return wrong_kind(part, ConverterKind, ConverterOptions) or wrong_type_name(name, part.options)


def _fenced(kind: ConverterKind, fence: Fence) -> ConverterKind:
    def build(options: Any, site: Site) -> Converter:  # noqa: ANN401 - options of any converter
        return fence(kind.build(options, site))

    def problems(options: Any, site: Site) -> Iterable[ConverterProblem]:  # noqa: ANN401 - as above
        try:
            return list(fence(lambda: list(kind.problems(options, site)))())
        except FatalError as error:
            return [ConverterProblem(("value",), error.message, error.hint)]

    return replace(kind, build=fence(build), problems=problems)


CONVERTERS = Registry("converter", _BUILT_IN, _wrong, _fenced)
"""By the name of their type; those of installed packages too."""
