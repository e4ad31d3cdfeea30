"""From a grok pattern to a regular expression: names are put in for what they stand for, fields for what their groups find.

Named patterns are the public sets (logstash-patterns-core, see `sets/NOTICE`) and those of a definition.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

from copycat_agent.templates import compile_path
from copycat_agent.transforms.grok.oniguruma import Translation

_NAME = re.compile(r"[A-Za-z0-9_-]+")
TYPES = {"int": "int", "long": "int", "float": "float", "double": "float", "string": "string"}
"""What may stand behind the second colon, and the word for `casting.caster`."""
_MOST_CHARACTERS = 2**18
_DEEPEST = 50
_REFERENCE = re.compile(r"([A-Za-z0-9_-]+)(?::([^:\s]*))?(?::([A-Za-z]+))?")
_INTERNAL = ("[@metadata]", "@metadata.")
"""Fields that never leave the program for which the sets were written."""
_BRACKETS = re.compile(r"\[([^\[\]]+)\]")


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


class GrokReference(NamedTuple):
    """A field that a group makes."""

    path: str
    type: str


@dataclass(frozen=True)
class Expanded:
    """A regular expression, and the fields that its named groups make."""

    pattern: str
    fields: Mapping[str, GrokReference]


def expand(pattern: str, library: Mapping[str, str]) -> Expanded:
    """A grok pattern with the patterns that it names. ValueError for names that are not there, that lead in a circle, and the like."""
    expansion = _Expansion(library)
    return Expanded(expansion.translated(pattern), expansion.fields)


class _Expansion:
    def __init__(self, library: Mapping[str, str]) -> None:
        self._library = library
        self._within: list[str] = []
        self._size = 0
        self.fields: dict[str, GrokReference] = {}
        self._groups: dict[str, str] = {}

    def translated(self, pattern: str) -> str:
        self._size += len(pattern)
        if self._size > _MOST_CHARACTERS:
            msg = f"is larger than {_MOST_CHARACTERS:,} characters with all that it names"
            raise ValueError(msg)
        try:
            return Translation(pattern, self._reference, self._group, self._again).whole()
        except ValueError as error:
            if not self._within or str(error).startswith("%{"):
                raise
            msg = f"%{{{self._within[-1]}}}: {error}"
        raise ValueError(msg)

    def _reference(self, text: str) -> str:
        match = _REFERENCE.fullmatch(text.rstrip("?"))
        if match is None:
            msg = f"%{{{text}}} is not %{{NAME}}, %{{NAME:field}} or %{{NAME:field:type}}"
            raise ValueError(msg)
        name, field, type_ = match.groups()
        inner = self._named(name)
        if not field or field.startswith(_INTERNAL):
            return f"(?:{inner})"
        if type_ is not None and type_ not in TYPES:
            msg = f"%{{{text}}}: {type_} is no type: write one of {', '.join(TYPES)}"
            raise ValueError(msg)
        return f"(?P<{self._group(field, type_ or 'string')}>{inner})"

    def _named(self, name: str) -> str:
        if name not in self._library:
            near = difflib.get_close_matches(name, self._library, 1) or difflib.get_close_matches(name.upper(), self._library, 1)
            msg = f"%{{{name}}} is not known" + (f"; did you mean %{{{near[0]}}}?" if near else "; put it into definitions")
            raise ValueError(msg)
        if name in self._within or len(self._within) >= _DEEPEST:
            way = " -> ".join([*self._within[self._within.index(name) if name in self._within else 0 :], name])
            msg = f"%{{{name}}} stands for itself: {way}"
            raise ValueError(msg)
        self._within.append(name)
        inner = self.translated(self._library[name])
        self._within.pop()
        return inner

    def _group(self, field: str, type_: str = "string") -> str:
        """A name of our own for the group of a field: a field may stand in several places, and its name may be none in Python."""
        path = field_path(field)
        group = f"g{len(self.fields)}"
        self.fields[group] = GrokReference(path, TYPES[type_])
        self._groups[field] = group
        return group

    def _again(self, field: str) -> str:
        if field not in self._groups:
            msg = rf"\k<{field}> names no group before it"
            raise ValueError(msg)
        return self._groups[field]


def field_path(field: str) -> str:
    """`[http][response][bytes]` and `http.response.bytes` as a dotted path. ValueError for what is none."""
    path = field.rstrip("?")
    if path.startswith("["):
        names = [name.rstrip("?") for name in _BRACKETS.findall(path)]
        path = ".".join(names) if "".join(_BRACKETS.findall(path)) == path.replace("[", "").replace("]", "") else ""
    try:
        compile_path(path)
    except ValueError:
        msg = f"{field!r} is not a field name: write names joined by dots, or [each][in][brackets]"
        raise ValueError(msg) from None
    return path
