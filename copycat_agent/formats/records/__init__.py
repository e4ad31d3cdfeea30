"""Formats of whole files: where each record is, and what is in it. A new format is one file and one line in `FORMATS`."""

from __future__ import annotations

from copycat_agent.formats.model import RecordFormat
from copycat_agent.formats.records.avro.avro import AVRO
from copycat_agent.formats.records.base import FormatKind, FormatOptions
from copycat_agent.formats.records.binary import BINARY
from copycat_agent.formats.records.lines import LINES
from copycat_agent.formats.records.parquet.parquet import PARQUET
from copycat_agent.formats.records.tables.csv_ import CSV
from copycat_agent.formats.records.tables.fixed_width import FIXED_WIDTH
from copycat_agent.formats.records.trees.json_ import JSON
from copycat_agent.formats.records.trees.jsonl import JSONL
from copycat_agent.formats.records.trees.xml_ import XML

__all__ = ["FORMATS", "FormatKind", "FormatOptions", "build_format"]


def build_format(options: FormatOptions) -> RecordFormat:
    """The format that `options` (validated by `FORMATS[type].options`) describes. Called once per definition and process."""
    return FORMATS[options.type].build(options)


FORMATS: dict[str, FormatKind] = {
    "lines": LINES,
    "csv": CSV,
    "fixed_width": FIXED_WIDTH,
    "jsonl": JSONL,
    "json": JSON,
    "xml": XML,
    "binary": BINARY,
    "avro": AVRO,
    "parquet": PARQUET,
}
"""What `format.type` may say."""
