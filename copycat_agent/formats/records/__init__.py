"""Formats of whole files: where each record is, and its content. A new format is one file and one line in `_BUILT_IN`.

The readers of `avro` and `parquet` are imported when the first such file is met; so their options are defined here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from copycat_agent.errors import FatalError
from copycat_agent.formats.model import FormatKind, FormatOptions, OptionProblem, RecordFormat
from copycat_agent.model import Column
from copycat_agent.options import ByteSize, Field
from copycat_agent.registry import ProviderGuard, Registry, wrong_kind, wrong_type_name

__all__ = ["FORMATS", "FormatKind", "FormatOptions", "build_format"]


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
    from copycat_agent.formats.records import avro_format  # noqa: PLC0415 - imports fastavro, 0.12 s

    return avro_format.AvroFormat(options.max_block_bytes)


AVRO = FormatKind(AvroOptions, _build_avro)


class ParquetOptions(FormatOptions):
    """Apache Parquet. The schema is the file's own."""

    type: Literal["parquet"] = Field("parquet", description="Apache Parquet files.")
    columns: tuple[str, ...] = Field(
        (), description="The columns to read, in this order; absent: all. Others are not even read from the disk."
    )


def _build_parquet(options: ParquetOptions) -> RecordFormat:
    from copycat_agent.formats.records import parquet_format  # noqa: PLC0415 - imports pyarrow, 0.25 s

    return parquet_format.ParquetFormat(options.columns)


PARQUET = FormatKind(ParquetOptions, _build_parquet)


def build_format(options: FormatOptions) -> RecordFormat:
    """Returns the format of `options` (validated by `FORMATS[type].options`). Called once per definition and process."""
    return FORMATS[options.type].build(options)


_BUILT_IN: dict[str, FormatKind | str] = {
    "lines": "copycat_agent.formats.records.byte_records:LINES",
    "csv": "copycat_agent.formats.records.csv_format:CSV",
    "fixed_width": "copycat_agent.formats.records.fixed_width:FIXED_WIDTH",
    "w3c": "copycat_agent.formats.records.w3c_format:W3C",
    "jsonl": "copycat_agent.formats.records.json_format:JSONL",
    "json": "copycat_agent.formats.records.json_format:JSON",
    "xml": "copycat_agent.formats.records.xml_format:XML",
    "binary": "copycat_agent.formats.records.byte_records:BINARY",
    "avro": AVRO,
    "parquet": PARQUET,
}


def _wrong(name: str, part: FormatKind) -> str:
    return wrong_kind(part, FormatKind, FormatOptions) or wrong_type_name(name, part.options)


def _fenced(kind: FormatKind, fence: ProviderGuard) -> FormatKind:
    def problems(options: Any) -> Iterable[OptionProblem]:  # noqa: ANN401 - options of any format
        try:
            return list(fence(lambda: list(kind.problems(options)))())
        except FatalError as error:
            return [OptionProblem((), error.message, error.hint)]

    def columns(options: Any) -> tuple[Column, ...] | None:  # noqa: ANN401 - as above
        try:
            return kind.columns(options)
        except Exception:  # noqa: BLE001 - called while definitions are loaded, which foreign code must not end
            return None

    return replace(kind, build=fence(kind.build), problems=problems, columns=columns)


FORMATS = Registry("format", _BUILT_IN, _wrong, _fenced)
"""Formats by the name in `format.type`; includes those of installed packages."""
