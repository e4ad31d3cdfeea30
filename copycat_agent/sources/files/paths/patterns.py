"""What include and exclude patterns mean: where one begins, and which names and paths it matches."""

from __future__ import annotations

import re
from functools import lru_cache


def normalise(pattern: str) -> str:
    """`pattern` with doubled slashes and `.` parts removed; `..` is left alone, it means what the kernel says."""
    return "/" + "/".join(part for part in pattern.split("/") if part not in ("", "."))


def split_pattern(pattern: str) -> tuple[str, tuple[str, ...]]:
    """The directory to begin at, and the pattern of each level below it. `**` never stands last, nor twice in a row."""
    parts = normalise(pattern)[1:].split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not _is_wild(parts[fixed]):
        fixed += 1
    levels = [part for part, before in zip(parts[fixed:], ["", *parts[fixed:]], strict=False) if (part, before) != ("**", "**")]
    if levels[-1] == "**":
        levels.append("*")
    return "/" + "/".join(parts[:fixed]), tuple(levels)


def fixed_part(pattern: str) -> str:
    """The directory at which a pattern begins: all above its first wildcard, or above its last name when it has none."""
    return split_pattern(pattern)[0]


def _is_wild(part: str) -> bool:
    return any(char in part for char in "*?[")


@lru_cache(maxsize=1024)
def name_regex(pattern: str) -> re.Pattern[str]:
    """One name. A wildcard at the beginning does not match a dot there."""
    guard = r"(?!\.)" if pattern[:1] in ("*", "?", "[") else ""
    return re.compile(guard + _translate(pattern) + r"\Z", re.DOTALL)


def path_regex(pattern: str) -> re.Pattern[str]:
    """A whole path. Here wildcards match dots too: excluding too little is the worse surprise."""
    parts = normalise(pattern)[1:].split("/")
    pieces = ["(?:/[^/]+)*" if part == "**" else "/" + _translate(part) for part in parts]
    if parts[-1] == "**":
        pieces[-1] = "(?:/[^/]+)+"
    return re.compile("".join(pieces) + r"\Z", re.DOTALL)


def _translate(part: str) -> str:
    """One level of a pattern as a regular expression that never crosses a slash."""
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
