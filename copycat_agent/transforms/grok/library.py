"""Named patterns: the public sets (logstash-patterns-core, see `sets/NOTICE`), and those of a definition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

_NAME = re.compile(r"[A-Za-z0-9_-]+")


@cache
def pattern_set(name: str) -> Mapping[str, str]:
    """The patterns of a public set by name, as they stand there."""
    found: dict[str, str] = {}
    directory = resources.files(__package__).joinpath("sets", name)
    for file in sorted(directory.iterdir(), key=lambda each: each.name):
        for line in file.read_text("utf-8").splitlines():
            word, _, pattern = line.strip().partition(" ")
            if word and not word.startswith("#"):
                found[word] = pattern.strip()
    return found


def check_names(definitions: Mapping[str, str]) -> None:
    """Raise ValueError for a name that cannot stand in `%{}`."""
    for name in definitions:
        if not _NAME.fullmatch(name):
            msg = f"{name!r} is no name of a pattern: write letters, digits, _ and -"
            raise ValueError(msg)
