"""Formats of whole files: where each record is, and what is in it. A new format is one file and one line in `FORMATS`."""

from __future__ import annotations

from copycat_agent.formats.model import RecordFormat
from copycat_agent.formats.records.base import FormatKind, FormatOptions
from copycat_agent.formats.records.jsonl import JSONL
from copycat_agent.formats.records.lines import LINES

__all__ = ["FORMATS", "FormatKind", "FormatOptions", "build_format"]


def build_format(options: FormatOptions) -> RecordFormat:
    """The format that `options` (validated by `FORMATS[type].options`) describes. Called once per definition and process."""
    return FORMATS[options.type].build(options)


FORMATS: dict[str, FormatKind] = {"lines": LINES, "jsonl": JSONL}
