"""`avro`: fields as Avro, with the id of their schema in a schema registry."""

from __future__ import annotations

from collections.abc import Iterator

from copycat_agent.converters.avro.options import AvroConverterOptions
from copycat_agent.converters.base import Converter, ConverterKind, OptionProblem, Site
from copycat_agent.converters.schemas.building import build
from copycat_agent.converters.schemas.options import schema_problems


def _build(options: AvroConverterOptions, site: Site) -> Converter:
    from copycat_agent.converters.avro import avro_form  # noqa: PLC0415 - imports fastavro, 0.1 s

    return build(options, site, avro_form.AvroForm(options))


def _problems(options: AvroConverterOptions, site: Site) -> Iterator[OptionProblem]:
    yield from schema_problems(options, site)
    from copycat_agent.converters.avro import avro_form  # noqa: PLC0415 - imports fastavro, 0.1 s

    yield from avro_form.problems(options, site)


AVRO = ConverterKind(AvroConverterOptions, _build, wants_record=True, problems=_problems)
