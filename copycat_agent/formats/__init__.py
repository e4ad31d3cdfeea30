"""Formats find where records are. Framing works on bytes and does not interpret them; the content of a record is left to transforms."""

from __future__ import annotations

from copycat_agent.formats.draft import Chunk, Draft, Envelope, Envelopes, Parsed, Unparsed
from copycat_agent.formats.lines import LineFrames, LineOptions
from copycat_agent.formats.model import (
    Frame,
    FrameOptions,
    Frames,
    Gap,
    LongLine,
    OnTooLong,
    RecordFile,
    RecordFormat,
    RecordPart,
    SkippedRest,
)
from copycat_agent.formats.multiline import MultilineFrames
from copycat_agent.formats.multiline_options import MultilineOptions
from copycat_agent.formats.text import TAIL_BYTES, Reader, Text, encoding_problem, split_problem

__all__ = [
    "TAIL_BYTES",
    "Chunk",
    "Draft",
    "Envelope",
    "Envelopes",
    "Frame",
    "FrameOptions",
    "Frames",
    "Gap",
    "LineFrames",
    "LineOptions",
    "LongLine",
    "MultilineFrames",
    "MultilineOptions",
    "OnTooLong",
    "Parsed",
    "Reader",
    "RecordFile",
    "RecordFormat",
    "RecordPart",
    "SkippedRest",
    "Text",
    "Unparsed",
    "encoding_problem",
    "split_problem",
]
