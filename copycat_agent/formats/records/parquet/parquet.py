"""`parquet`: Apache Parquet files. See `reading`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.formats.model import RecordFormat
from copycat_agent.formats.records.base import FormatKind, FormatOptions
from copycat_agent.options import Field


class ParquetOptions(FormatOptions):
    """Apache Parquet. The schema is the file's own."""

    type: Literal["parquet"] = Field("parquet", description="Apache Parquet files.")
    columns: tuple[str, ...] = Field(
        (), description="The columns to read, in this order; absent: all. Others are not even read from the disk."
    )


def _build(options: ParquetOptions) -> RecordFormat:
    from copycat_agent.formats.records.parquet import reading  # noqa: PLC0415 - imports pyarrow, 0.25 s

    return reading.ParquetFormat(options.columns)


PARQUET = FormatKind(ParquetOptions, _build)
