"""`jsonl`: each line is a JSON value."""

from __future__ import annotations

from typing import Literal

from copycat_agent.formats.lines import LineOptions
from copycat_agent.formats.records.base import FormatKind, FormatOptions
from copycat_agent.formats.records.lines import LinesFormat, LinesOptions
from copycat_agent.options import Field


class JsonlOptions(FormatOptions):
    """JSON Lines (ndjson)."""

    type: Literal["jsonl"] = Field("jsonl", description="Each line is a JSON object.")
    line: LineOptions = Field(LineOptions(), description="What a line is.")


def _build(options: JsonlOptions) -> LinesFormat:
    return LinesFormat(LinesOptions(line=options.line))


JSONL = FormatKind(JsonlOptions, _build)
