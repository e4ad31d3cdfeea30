"""The meaning of include and exclude patterns: where one begins, what it matches, and why a path does not match."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple


def normalise(pattern: str) -> str:
    """Returns `pattern` without doubled slashes and `.` parts; `..` is left alone, the kernel interprets it."""
    return "/" + "/".join(part for part in pattern.split("/") if part not in ("", "."))


def split_pattern(pattern: str) -> tuple[str, tuple[str, ...]]:
    """Returns the directory to begin at, and the pattern of each level below it. `**` is never the last level, nor twice in a row."""
    parts = normalise(pattern)[1:].split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not is_wild(parts[fixed]):
        fixed += 1
    levels = [part for part, before in zip(parts[fixed:], ["", *parts[fixed:]], strict=False) if (part, before) != ("**", "**")]
    if levels[-1] == "**":
        levels.append("*")
    return "/" + "/".join(parts[:fixed]), tuple(levels)


def fixed_part(pattern: str) -> str:
    """Returns the directory at which a pattern begins: all above its first wildcard, or above its last name if it has none."""
    return split_pattern(pattern)[0]


def is_wild(part: str) -> bool:
    """Returns whether a level of a pattern has a wildcard; else it matches only its own name."""
    return any(char in part for char in "*?[")


@lru_cache(maxsize=1024)
def name_regex(pattern: str) -> re.Pattern[str]:
    """Returns a regex for one name. A wildcard at the beginning does not match a dot there."""
    guard = r"(?!\.)" if pattern[:1] in ("*", "?", "[") else ""
    return re.compile(guard + _translate(pattern) + r"\Z", re.DOTALL)


def path_regex(pattern: str) -> re.Pattern[str]:
    """Returns a regex for a whole path. Here wildcards match dots too: excluding too little is the worse surprise."""
    parts = normalise(pattern)[1:].split("/")
    pieces = ["(?:/[^/]+)*" if part == "**" else "/" + _translate(part) for part in parts]
    if parts[-1] == "**":
        pieces[-1] = "(?:/[^/]+)+"
    return re.compile("".join(pieces) + r"\Z", re.DOTALL)


def _translate(part: str) -> str:
    """Returns a level of a pattern as a regular expression that never crosses a slash."""
    pieces, index = [], 0
    while index < len(part):
        char = part[index]
        close = part.find("]", index + 2) if char == "[" else -1
        if close > 0:
            inside = part[index + 1 : close].replace("\\", r"\\").replace("[", r"\[")
            pieces.append(f"(?!/)[{'^' + inside[1:] if inside[0] in '!^' else inside}]")
            index = close
        else:
            pieces.append({"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char))
        index += 1
    return "".join(pieces)


_WILD = "*?["
_FILLERS = ("", "a", "a1")
"""Replacements, in made-up names, for a star that is in both patterns."""
_STATES = 20_000
"""The limit for a search for a shared name: real patterns need less."""


class Mismatch(NamedTuple):
    """The pattern that comes nearest to a path, how many of the path's parts it matches, and what is wrong with the next."""

    pattern: str
    depth: int
    why: str


def mismatch(include: Sequence[str], path: str) -> Mismatch | None:
    """Returns the mismatch of the nearest pattern; None if one matches `path`. Both are absolute."""
    nearest: Mismatch | None = None
    for pattern in include:
        found = _compare(pattern, path)
        if found is None:
            return None
        if nearest is None or (found.depth, _likeness(pattern, path)) > (nearest.depth, _likeness(nearest.pattern, path)):
            nearest = found
    return nearest


def _likeness(pattern: str, path: str) -> float:
    return SequenceMatcher(None, pattern, path, autojunk=False).ratio()


def excluded_by(exclude: Sequence[str], path: str) -> str:
    """Returns the first exclude pattern that matches `path`, "" if none does."""
    name = path.rpartition("/")[2]
    return next((one for one in exclude if (path_regex(one).match(path) if "/" in one else name_regex(one).match(name))), "")


def fixed_depth(pattern: str) -> int:
    """Returns how many directories a pattern names without a wildcard: links among them are always followed."""
    return len(fixed_part(pattern).strip("/").split("/"))


def shared_name(one: tuple[Sequence[str], Sequence[str]], other: tuple[Sequence[str], Sequence[str]]) -> str:
    """Returns a path that matches both (include, exclude) pairs; "" if none was found: then they count as disjoint."""
    for mine in one[0]:
        for theirs in other[0]:
            for filler in _FILLERS:
                name = _common_path(_split(mine), _split(theirs), filler)
                if name and all(not mismatch(include, name) and not excluded_by(exclude, name) for include, exclude in (one, other)):
                    return name
    return ""


def _split(path: str) -> list[str]:
    parts = normalise(path)[1:].split("/")
    return [*parts, "*"] if parts[-1] == "**" else parts


def _compare(pattern: str, path: str) -> Mismatch | None:
    """Returns how far a pattern matches a path; None if it matches all of it."""
    parts, names = _split(pattern), normalise(path)[1:].split("/")
    reached = {(0, 0)}
    todo = [(0, 0)]
    while todo:
        part, name = todo.pop()
        if part == len(parts) and name == len(names):
            return None
        for step in _steps(parts, names, part, name):
            if step not in reached:
                reached.add(step)
                todo.append(step)
    depth = max(name for _, name in reached)
    stuck = sorted(part for part, name in reached if name == depth)
    return Mismatch(pattern, depth, _why(parts, names, stuck, depth))


def _steps(parts: list[str], names: list[str], part: int, name: int) -> Iterator[tuple[int, int]]:
    if part == len(parts):
        return
    if parts[part] == "**":
        yield part + 1, name
        if name < len(names) - 1 and not names[name].startswith("."):
            yield part, name + 1
    elif name < len(names) and name_regex(parts[part]).match(names[name]):
        yield part + 1, name + 1


def _why(parts: list[str], names: list[str], stuck: list[int], depth: int) -> str:
    """Returns the reason as a message: `depth` names are matched, and no part at `stuck` continues."""
    if depth == len(names):
        return f"the pattern goes on below it: /{'/'.join(parts[stuck[-1] :])}"
    name = names[depth]
    wild = [parts[one] for one in stuck if one < len(parts)]
    if not wild:
        return f"the pattern ends at {names[depth - 1]} and does not go into directories: ** would"
    if name.startswith(".") and any(one == "**" or (one[0] in _WILD and name_regex(one).match(name[1:])) for one in wild):
        return f"{name} is hidden: wildcards do not match a leading dot"
    if depth < len(names) - 1 and parts[-1] == wild[-1] and wild[-1][0] in _WILD:
        return f"{wild[-1]} names files, it does not go into {name}: **/{wild[-1]} would"
    return f"{name} does not match {wild[-1]}"


def _common_path(one: list[str], other: list[str], filler: str) -> str:
    """Returns the shortest path that both patterns match, level by level."""
    todo: deque[tuple[int, int, tuple[str, ...]]] = deque([(0, 0, ())])
    seen: set[tuple[int, int]] = set()
    while todo and len(seen) < _STATES:
        i, j, made = todo.popleft()
        if i == len(one) and j == len(other):
            return "/" + "/".join(made)
        if (i, j) in seen:
            continue
        seen.add((i, j))
        todo.extend(_common_steps(one, other, i, j, made, filler))
    return ""


def _common_steps(
    one: list[str], other: list[str], i: int, j: int, made: tuple[str, ...], filler: str
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    mine, theirs = one[i] if i < len(one) else "", other[j] if j < len(other) else ""
    if mine == "**":
        yield i + 1, j, made
    if theirs == "**":
        yield i, j + 1, made
    if mine == "**" and theirs not in ("", "**"):
        yield i, j + 1, (*made, _common_name("*", theirs, filler))
    if theirs == "**" and mine not in ("", "**"):
        yield i + 1, j, (*made, _common_name(mine, "*", filler))
    if "" not in (mine, theirs) and "**" not in (mine, theirs):
        name = _common_name(mine, theirs, filler)
        if name:
            yield i + 1, j + 1, (*made, name)


def literal_prefix(pattern: str) -> str:
    """Returns what every path that the pattern matches begins with: the pattern up to its first wildcard."""
    return re.split(r"[*?[]", normalise(pattern), maxsplit=1)[0]


def _common_name(one: str, other: str, filler: str) -> str:
    """Returns the shortest name that two levels match, with `filler` for a star that is in both; "" if there is none."""
    if not is_wild(one) or not is_wild(other):
        literal, pattern = (other, one) if is_wild(one) else (one, other)
        return literal if literal == pattern or (is_wild(pattern) and name_regex(pattern).match(literal)) else ""
    first, second = _tokens(one), _tokens(other)
    todo: deque[tuple[int, int, str]] = deque([(0, 0, "")])
    seen: set[tuple[int, int]] = set()
    while todo:
        i, j, made = todo.popleft()
        if i == len(first) and j == len(second):
            return made
        if (i, j) not in seen:
            seen.add((i, j))
            todo.extend(_character_steps(first[i : i + 1], second[j : j + 1], (i, j, made), filler))
    return ""


def _character_steps(mine: list[str], theirs: list[str], at: tuple[int, int, str], filler: str) -> Iterator[tuple[int, int, str]]:
    i, j, made = at
    both = filler if mine == ["*"] == theirs else ""
    if mine == ["*"] == theirs:
        yield i + 1, j + 1, made + filler
    if mine == ["*"]:
        yield i + 1, j, made + both
    if theirs == ["*"]:
        yield i, j + 1, made + both
    if not mine or not theirs or mine == theirs == ["*"]:
        return
    char = _common_character(mine[0], theirs[0])
    if char:
        yield i + (mine != ["*"]), j + (theirs != ["*"]), made + char


def _common_character(one: str, other: str) -> str:
    """Returns a character that two tokens match; "" if there is none. A star matches any that the other one needs."""
    wishes = [_example(token) for token in (one, other) if token not in ("*", "?")] or ["a"]
    return next((char for chars in wishes for char in chars if _takes(one, char) and _takes(other, char)), "")


def _takes(token: str, char: str) -> bool:
    return token in ("*", "?") or name_regex(f"x{token}").match(f"x{char}") is not None


def _example(token: str) -> str:
    """Returns characters to try for a token that is a character, or a set of characters."""
    if len(token) == 1:
        return token
    inside = token[1:-1].lstrip("!^")
    return inside + "".join(chr(code) for code in range(ord(inside[0]), ord(inside[-1]) + 1)[:128]) + "a0A_"


def _tokens(part: str) -> list[str]:
    """Splits a level of a pattern into single characters, wildcards, and sets in brackets."""
    tokens, index = [], 0
    while index < len(part):
        close = part.find("]", index + 2) if part[index] == "[" else -1
        end = close + 1 if close > 0 else index + 1
        tokens.append(part[index:end])
        index = end
    return tokens
