"""Formats of whole files: where each record is, and what is in it. A new format is one file and one line in `FORMATS`."""

from __future__ import annotations

from copycat_agent.formats.model import RecordFormat
from copycat_agent.formats.records.avro import AVRO
from copycat_agent.formats.records.base import FormatKind, FormatOptions
from copycat_agent.formats.records.binary import BINARY
from copycat_agent.formats.records.json_ import JSON
from copycat_agent.formats.records.csv_ import CSV
from copycat_agent.formats.records.fixed_width import FIXED_WIDTH
from copycat_agent.formats.records.jsonl import JSONL
from copycat_agent.formats.records.lines import LINES
from copycat_agent.formats.records.parquet import PARQUET
from copycat_agent.formats.records.xml_ import XML


__all__ = ["FORMATS", "FormatKind", "FormatOptions", "build_format"]


def build_format(options: FormatOptions) -> RecordFormat:
    """The format that `options` (validated by `FORMATS[type].options`) describes. Called once per definition and process."""
    return FORMATS[options.type].build(options)


FORMATS: dict[str, FormatKind] = {"lines": LINES, "csv": CSV, "fixed_width": FIXED_WIDTH, "jsonl": JSONL, "json": JSON, "xml": XML, "binary": BINARY, "avro": AVRO, "parquet": PARQUET}
