"""Formats: where is the next record. Framing works on bytes and never looks into them; what is in a record is a transform's question."""

from __future__ import annotations

from copycat_agent.formats.lines import LineFrames, LineOptions
from copycat_agent.formats.model import TAIL_BYTES, Chunk, Frame, Frames, LongLine, Reader, Row, SkippedRest

__all__ = ["TAIL_BYTES", "Chunk", "Frame", "Frames", "LineFrames", "LineOptions", "LongLine", "Reader", "Row", "SkippedRest"]
