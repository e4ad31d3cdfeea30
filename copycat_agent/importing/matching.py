"""Conditions and steps that several products have in other words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from copycat_agent.importing.model import Made, Report
from copycat_agent.importing.parts import Part
from copycat_agent.importing.words import pattern_of

Matcher = dict[str, Any]


def joined(one: Matcher, other: Matcher) -> Matcher | None:
    """Both matchers in one; None where they say different things of one field in a way that one condition cannot."""
    out = dict(one)
    for field, condition in other.items():
        if field not in out:
            out[field] = condition
        elif isinstance(out[field], dict) and isinstance(condition, dict) and not out[field].keys() & condition.keys():
            out[field] = {**out[field], **condition}
        else:
            return None
    return out


def any_pattern(patterns: Sequence[str]) -> str | None:
    """One pattern that is found where one of several is; None when one of them is no pattern of Python's."""
    found = [pattern_of(text) for text in patterns]
    if not found or None in found:
        return None
    return str(found[0]) if len(found) == 1 else "|".join(f"(?:{one})" for one in found)


def keep_lines(made: Made, action: str, patterns: Sequence[str], part: Part | None, report: Report, what: str) -> None:
    """`keep_if` or `drop_if` by the text of the line."""
    if not patterns:
        return
    pattern = any_pattern(patterns)
    if pattern is None:
        report.cannot(part, what, "no regular expression of Python's: write keep_if or drop_if with matches")
        return
    made.step(**{action: {"message": {"matches": pattern}}})


def dissect(tokenizer: str) -> str | None:
    """A dissect pattern as a regular expression: `%{name}` up to the text behind it. None for what has no counterpart."""
    out, position = "^", 0
    names: set[str] = set()
    for match in re.finditer(r"%\{([^}]*)\}", tokenizer):
        out += re.escape(tokenizer[position : match.start()])
        name = match[1]
        if re.search(r"[+*&|#]", name.removesuffix("->")) or (match.end() < len(tokenizer) and tokenizer.startswith("%{", match.end())):
            return None
        padded, name = name.endswith("->"), name.removesuffix("->").lstrip("?")
        is_last = match.end() == len(tokenizer)
        within = "(?s:.*)" if is_last else ".*?"
        if match[1].startswith("?") or not name:
            out += within
        elif re.fullmatch(r"[A-Za-z_]\w*", name) and name not in names:
            names.add(name)
            out += f"(?P<{name}>{within})"
        else:
            return None
        position = match.end()
        if padded and not is_last:
            following = tokenizer[position]
            out += f"{re.escape(following)}+"
            position += 1
    return (out + re.escape(tokenizer[position:])).replace(r"\ ", " ").replace(r"\-", "-") if names else None
