"""`avro` (Object Container Files) and `parquet`: their options. What reads them is imported when the first file is met."""

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


def _build_avro(options: AvroOptions) -> RecordFormat:
    from copycat_agent.formats.records.avro import avro_reading  # noqa: PLC0415 - imports fastavro, 0.12 s

    return avro_reading.AvroFormat(options.max_block_bytes)


AVRO = FormatKind(AvroOptions, _build_avro)


class ParquetOptions(FormatOptions):
    """Apache Parquet. The schema is the file's own."""

    type: Literal["parquet"] = Field("parquet", description="Apache Parquet files.")
    columns: tuple[str, ...] = Field(
        (), description="The columns to read, in this order; absent: all. Others are not even read from the disk."
    )


def _build_parquet(options: ParquetOptions) -> RecordFormat:
    from copycat_agent.formats.records.parquet import parquet_reading  # noqa: PLC0415 - imports pyarrow, 0.25 s

    return parquet_reading.ParquetFormat(options.columns)


PARQUET = FormatKind(ParquetOptions, _build_parquet)
