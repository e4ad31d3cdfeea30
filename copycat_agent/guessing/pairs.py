"""logfmt and other `key=value` lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from copycat_agent.guessing.model import Guess, StepGuess
from copycat_agent.guessing.times import field_with_time

_PAIR = re.compile(r'([A-Za-z_][\w.\-/@]*)=("(?:[^"\\]|\\.)*"|\S*)(?:\s+|$)')
_ENOUGH = 0.6
_FEWEST = 2
_LOOK_CHARACTERS = 16_384
"""Of a line that are looked at: enough to tell, however long it is."""
_BETWEEN = (("|", "="), (";", "="), (",", "="), ("&", "="), ("|", ":"), (";", ":"), (",", ":"))


def logfmt(lines: Sequence[str]) -> Guess | None:
    """Lines of pairs with blanks between them, and nothing else (a bare word is a flag)."""
    rows = [row for line in lines if (row := _row(line)) is not None]
    if len(rows) < _ENOUGH * len(lines):
        return None
    name, form = field_with_time(rows)
    steps = [StepGuess("logfmt", {})]
    if name:
        steps.append(StepGuess("timestamp", {"field": name, "format": form}, keep=True))
    numbers = _numbers(rows, {name})
    if numbers:
        steps.append(StepGuess("convert", numbers, keep=True))
    return Guess("logfmt", len(rows) / len(lines), 0.95, tuple(steps), timestamp="event" if name else "")


def _row(line: str) -> dict[str, object] | None:
    row: dict[str, object] = {}
    rest = line[:_LOOK_CHARACTERS].strip()
    flags = 0
    while rest:
        match = _PAIR.match(rest)
        if match:
            row[match[1]] = match[2].strip('"')
            rest = rest[match.end() :]
        else:
            flags += 1
            rest = rest.partition(" ")[2].lstrip()
    return row if len(row) >= _FEWEST and flags * 2 <= len(row) else None


def key_value(lines: Sequence[str]) -> Guess | None:
    """Pairs with another sign between them."""
    for between, within in _BETWEEN:
        rows = [row for line in lines if (row := _split(line, between, within)) is not None]
        if len(rows) < _ENOUGH * len(lines):
            continue
        name, form = field_with_time(rows)
        steps = [StepGuess("key_value", {"field_split": between, "value_split": within})]
        if name:
            steps.append(StepGuess("timestamp", {"field": name, "format": form}, keep=True))
        numbers = _numbers(rows, {name})
        if numbers:
            steps.append(StepGuess("convert", numbers, keep=True))
        what = f"pairs of key {within} value with {between} between them"
        return Guess(what, len(rows) / len(lines), 0.8, tuple(steps), timestamp="event" if name else "")
    return None


def _split(line: str, between: str, within: str) -> dict[str, object] | None:
    parts = [part.partition(within) for part in line.strip().strip(between).split(between)]
    if len(parts) < _FEWEST or not all(sign and re.fullmatch(r"\s*[A-Za-z_][\w.\- ]*\s*", key) for key, sign, _ in parts):
        return None
    return {key.strip(): value.strip() for key, _, value in parts}


def _numbers(rows: Sequence[dict[str, object]], without: set[str]) -> dict[str, str]:
    """Fields whose every value reads as a number, with the type that takes all of them."""
    seen: Counter[str] = Counter(key for row in rows for key in row)
    found = {}
    for key in seen:
        if key in without or "." in key:
            continue
        values = [str(row[key]) for row in rows if key in row]
        if all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", value) for value in values):
            found[key] = "int"
        elif all(re.fullmatch(r"-?(0|[1-9]\d{0,14})(\.\d{1,12})?", value) for value in values):
            found[key] = "double"
    return found
