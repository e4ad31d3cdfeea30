"""`avro`: Object Container Files. See `reading`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.formats.model import RecordFormat
from copycat_agent.formats.records.base import FormatKind, FormatOptions
from copycat_agent.options import ByteSize, Field


class AvroOptions(FormatOptions):
    """Avro Object Container Files. The schema is the file's own."""

    type: Literal["avro"] = Field("avro", description="Avro Object Container Files.")
    max_block_bytes: ByteSize = Field(
        64 * 2**20,
        ge=64 * 2**10,
        le=2**30,
        description="A file with a larger block, packed or unpacked, is a bad file. A block is held in memory as a whole.",
    )


def _build(options: AvroOptions) -> RecordFormat:
    from copycat_agent.formats.records.avro import reading  # noqa: PLC0415 - imports fastavro, 0.12 s

    return reading.AvroFormat(options.max_block_bytes)


AVRO = FormatKind(AvroOptions, _build)
