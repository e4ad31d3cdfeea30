r"""How far a pattern got in a text that it does not match: for people who write patterns.

A pattern is cut into its elements, one after the other (`\[`, `(?P<ts>[^\]]+)`, `\]`), and the longest run of them that matches is
looked for.
"""

from __future__ import annotations

from typing import NamedTuple

from copycat_agent.errors import DataError
from copycat_agent.patterns.pattern import compile_pattern


class Stop(NamedTuple):
    """The first `pattern_end` characters of the pattern match the text up to, not including, character `text_end`; `element` comes next.

    0, 0 and the first element when nothing of it does.
    """

    pattern_end: int
    text_end: int
    element: str


def where_it_stopped(pattern: str, text: str) -> Stop | None:
    """How far a pattern gets in a text: None when all of it is found. Looks anywhere, as `Pattern.search` does."""
    parts = elements(pattern)
    prefixes = ["".join(parts[:count]) for count in range(len(parts) + 1)]
    for count in range(len(parts), -1, -1):
        end = _found(prefixes[count], text)
        if end is not None:
            return None if count == len(parts) else Stop(len(prefixes[count]), end, parts[count])
    return Stop(0, 0, parts[0]) if parts else None


def _found(pattern: str, text: str) -> int | None:
    """Where a match ends; None when there is none, or no telling."""
    try:
        match = compile_pattern(pattern).search(text)
    except (ValueError, DataError):
        return None
    return None if match is None else match.end()


def elements(pattern: str) -> list[str]:
    """A pattern's elements at the top level, which give the pattern again when they are joined. One with `|` there is one element."""
    found: list[str] = []
    position = 0
    while position < len(pattern):
        end = _quantified(pattern, _atom(pattern, position))
        element = pattern[position:end]
        if element == "|":
            return [pattern]
        if found and _is_flags(found[-1]):
            element = found.pop() + element
        found.append(element)
        position = end
    return found


def _is_flags(element: str) -> bool:
    return element.startswith("(?") and element.endswith(")") and element[2:-1].isalpha()


def _atom(pattern: str, position: int) -> int:
    """Where the atom that begins at `position` ends."""
    first = pattern[position]
    if first == "\\":
        return min(position + 2, len(pattern))
    if first == "[":
        return _set_end(pattern, position)
    if first == "(":
        return _group_end(pattern, position)
    return position + 1


def _set_end(pattern: str, position: int) -> int:
    at = position + 1 + pattern.startswith("^", position + 1)
    at += pattern.startswith("]", at)  # the first one stands for itself
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return min(at + 1, len(pattern))


def _group_end(pattern: str, position: int) -> int:
    depth, at = 0, position
    while at < len(pattern):
        if pattern[at] == "(":
            depth, at = depth + 1, at + 1
        elif pattern[at] == ")":
            depth, at = depth - 1, at + 1
            if not depth:
                return at
        else:
            at = _atom(pattern, at)
    return len(pattern)


def _quantified(pattern: str, at: int) -> int:
    """Behind the quantifier that follows, if one does."""
    if at < len(pattern) and pattern[at] in "*+?":
        at += 1
    elif pattern.startswith("{", at) and (close := pattern.find("}", at)) > 0 and pattern[at + 1 : close].replace(",", "", 1).isdigit():
        at = close + 1
    else:
        return at
    return at + 1 if at < len(pattern) and pattern[at] in "?+" else at
