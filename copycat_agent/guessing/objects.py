"""JSON, one object a line; or, in a spooled file, one document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from copycat_agent.guessing.model import Guess, StepGuess
from copycat_agent.guessing.times import field_with_time

_ENOUGH = 0.5


def rows_of(lines: Sequence[str]) -> list[dict[str, Any]]:
    """The objects among the lines."""
    found = []
    for line in lines:
        if line.lstrip().startswith("{"):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                found.append(row)
    return found


def recognise(lines: Sequence[str]) -> Guess | None:
    """Objects, most of the lines; or an array or object that goes over lines."""
    rows = rows_of(lines)
    full = [line for line in lines if line.strip()] or list(lines)
    if len(rows) < _ENOUGH * len(full):
        first = full[0].strip()
        if first in ("[", "{", "[{") or (first.startswith("[") and _is_array(full)):
            words = ("a JSON document of several lines: a spooled file of format json is one; as a log file it cannot be read",)
            return Guess("JSON document", 1.0, 0.9, layout={"type": "json"}, remarks=words)
        return None
    name, form = field_with_time(rows)
    steps = [StepGuess("json", {})]
    if name:
        steps.append(StepGuess("timestamp", {"field": name, "format": form}, keep=True))
    remarks: tuple[str, ...] = (
        () if name else ("no field was found that says when a line was written: record.timestamp stays the time of sending",)
    )
    return Guess(
        "JSON, one object a line",
        len(rows) / len(full),
        0.97,
        tuple(steps),
        layout={"type": "jsonl"},
        timestamp="event" if name else "",
        remarks=remarks,
    )


def _is_array(lines: Sequence[str]) -> bool:
    try:
        json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return lines[0].lstrip()[:2] in ("[{", "[[")
    return True
