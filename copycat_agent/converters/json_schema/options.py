"""Options of converter `json_schema`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.converters.schemas.options import SchemaOptions
from copycat_agent.options import Field


class JsonSchemaOptions(SchemaOptions):
    """JSON with a schema registry: a zero byte, the schema's id, the record as the json converter writes it."""

    type: Literal["json_schema"] = Field("json_schema", description="JSON, with the schema's id in a schema registry.")
    validate_: bool = Field(
        True,
        alias="validate",
        description="true: a record that the schema does not allow is a bad record. false: nobody looks, which is much faster with "
        "schemas that use more than types, required, enum and bounds.",
    )
