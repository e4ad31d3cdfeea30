"""`protobuf`: fields as a Protobuf message, with the id of their schema in a schema registry."""

from __future__ import annotations

from collections.abc import Iterator

from copycat_agent.converters.base import Converter, ConverterKind, OptionProblem, Site
from copycat_agent.converters.protobuf.options import ProtobufOptions
from copycat_agent.converters.schemas.building import build
from copycat_agent.converters.schemas.options import schema_problems


def _build(options: ProtobufOptions, site: Site) -> Converter:
    from copycat_agent.converters.protobuf import proto_form  # noqa: PLC0415 - imports protobuf and its compiler, 0.1 s

    return build(options, site, proto_form.ProtoForm(options))


def _problems(options: ProtobufOptions, site: Site) -> Iterator[OptionProblem]:
    yield from schema_problems(options, site)
    if options.schema_ is None:
        if options.auto_register:
            hint = "name its file under schema"
            why = "needs a schema to register: the numbers of Protobuf's fields cannot be made from declared types and stay the same"
            yield OptionProblem((site.part, "auto_register"), why, hint)
        return
    from copycat_agent.converters.protobuf import proto_form  # noqa: PLC0415 - imports protobuf and its compiler, 0.1 s

    yield from proto_form.problems(options, site)


PROTOBUF = ConverterKind(ProtobufOptions, _build, wants_record=True, problems=_problems)
