"""Options of converter `protobuf`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.converters.schemas.options import StrictOptions
from copycat_agent.converters.schemas.schema_file import ProtoPath
from copycat_agent.options import Field


class ProtobufOptions(StrictOptions):
    """Protobuf with a schema registry: a zero byte, the schema's id, which message of it, the message."""

    type: Literal["protobuf"] = Field("protobuf", description="Protobuf, with the schema's id in a schema registry.")
    schema_: ProtoPath | None = Field(
        None,
        alias="schema",
        description="A .proto file, absolute. It may import files from its own directory and below, and google/protobuf/*. Default: the "
        "latest version of the subject.",
    )
    message: str | None = Field(
        None, min_length=1, max_length=512, description="Message of the schema, with its package or without. Default: the first."
    )
