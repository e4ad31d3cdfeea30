"""What is left: text."""

from __future__ import annotations

from collections.abc import Sequence

from copycat_agent.guessing.grouping import trace_preset
from copycat_agent.guessing.model import Guess, Value


def recognise(lines: Sequence[str]) -> Guess:
    """Every line is a record as it stands, stack traces whole."""
    preset = trace_preset(lines)
    multiline: dict[str, Value] | None = {"preset": preset} if preset else None
    return Guess("plain text", 1.0, 0.05, multiline=multiline, remarks=("no known format: the value of a record is the line as it stands",))
