"""Options of converter `avro`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.converters.schemas.options import StrictOptions
from copycat_agent.options import Field


class AvroConverterOptions(StrictOptions):
    """Avro with a schema registry: a zero byte, the schema's id, the record in Avro's binary form."""

    type: Literal["avro"] = Field("avro", description="Avro, with the schema's id in a schema registry.")
