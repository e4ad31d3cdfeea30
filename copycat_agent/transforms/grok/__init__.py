"""`grok` makes fields by named patterns, `%{IP:client} %{NUMBER:bytes:int}`; the public sets are built in.

Only named groups make fields. A field whose group did not match is left out, as the sets expect; if a field occurs in several places, the
first that matched counts.

A pattern becomes a regular expression: names are replaced by their patterns, fields by groups. Named patterns are the public sets
(logstash-patterns-core, see `sets/NOTICE`) and those of a definition.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, NamedTuple

from copycat_agent.errors import DataError
from copycat_agent.model import Column
from copycat_agent.options import Field, Patterns
from copycat_agent.patterns import Pattern, compile_pattern
from copycat_agent.templates import compile_path
from copycat_agent.transforms.base import Columns, Steady, StepOptions, TransformKind, in_short
from copycat_agent.transforms.convert import caster
from copycat_agent.transforms.grok.oniguruma import Translation
from copycat_agent.transforms.parsing import Parse, ParseOptions, parse_step, parsed_columns
from copycat_agent.transforms.paths import clash, with_type
from copycat_agent.transforms.regex_ import first_match

_NAME = re.compile(r"[A-Za-z0-9_-]+")
TYPES = {"int": "int", "long": "int", "float": "float", "double": "float", "string": "string"}
"""The types allowed after the second colon, and their names for `convert.caster`."""
_MOST_CHARACTERS = 2**18
_DEEPEST = 50
_REFERENCE = re.compile(r"([A-Za-z0-9_-]+)(?::([^:\s]*))?(?::([A-Za-z]+))?")
_INTERNAL = ("[@metadata]", "@metadata.")
"""Fields that never leave the program for which the sets were written."""
_BRACKETS = re.compile(r"\[([^\[\]]+)\]")


@cache
def pattern_set(name: str) -> Mapping[str, str]:
    """Returns the patterns of a public set by name, unexpanded."""
    found: dict[str, str] = {}
    directory = resources.files(__package__).joinpath("sets", name)
    for file in sorted(directory.iterdir(), key=lambda each: each.name):
        for line in file.read_text("utf-8").splitlines():
            word, _, pattern = line.strip().partition(" ")
            if word and not word.startswith("#"):
                found[word] = pattern.strip()
    return found


def check_names(definitions: Mapping[str, str]) -> None:
    """Raises ValueError for a name that is not allowed in `%{}`."""
    for name in definitions:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a pattern: write letters, digits, _ and -")


class GrokReference(NamedTuple):
    """The field that a group makes."""

    path: str
    type: str


@dataclass(frozen=True)
class Expanded:
    """A regular expression, and the fields that its named groups make."""

    pattern: str
    fields: Mapping[str, GrokReference]


def expand(pattern: str, library: Mapping[str, str]) -> Expanded:
    """Expands a grok pattern. Raises ValueError for names that are unknown, that lead in a circle, and the like."""
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
            raise ValueError(f"is larger than {_MOST_CHARACTERS:,} characters with all that it names")
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
            raise ValueError(f"%{{{text}}} is not %{{NAME}}, %{{NAME:field}} or %{{NAME:field:type}}")
        name, field, type_ = match.groups()
        inner = self._named(name)
        if not field or field.startswith(_INTERNAL):
            return f"(?:{inner})"
        if type_ is not None and type_ not in TYPES:
            raise ValueError(f"%{{{text}}}: {type_} is no type: write one of {', '.join(TYPES)}")
        return f"(?P<{self._group(field, type_ or 'string')}>{inner})"

    def _named(self, name: str) -> str:
        if name not in self._library:
            near = difflib.get_close_matches(name, self._library, 1) or difflib.get_close_matches(name.upper(), self._library, 1)
            raise ValueError(f"%{{{name}}} is not known" + (f"; did you mean %{{{near[0]}}}?" if near else "; put it into definitions"))
        if name in self._within or len(self._within) >= _DEEPEST:
            way = " -> ".join([*self._within[self._within.index(name) if name in self._within else 0 :], name])
            raise ValueError(f"%{{{name}}} stands for itself: {way}")
        self._within.append(name)
        inner = self.translated(self._library[name])
        self._within.pop()
        return inner

    def _group(self, field: str, type_: str = "string") -> str:
        """Returns a generated name for a field's group: a field may occur several times, and its name may be invalid in Python."""
        path = field_path(field)
        group = f"g{len(self.fields)}"
        self.fields[group] = GrokReference(path, TYPES[type_])
        self._groups[field] = group
        return group

    def _again(self, field: str) -> str:
        if field not in self._groups:
            raise ValueError(rf"\k<{field}> names no group before it")
        return self._groups[field]


def field_path(field: str) -> str:
    """Returns `[http][response][bytes]` and `http.response.bytes` as a dotted path. Raises ValueError for an invalid name."""
    path = field.rstrip("?")
    if path.startswith("["):
        names = [name.rstrip("?") for name in _BRACKETS.findall(path)]
        path = ".".join(names) if "".join(_BRACKETS.findall(path)) == path.replace("[", "").replace("]", "") else ""
    try:
        compile_path(path)
    except ValueError:
        raise ValueError(f"{field!r} is not a field name: write names joined by dots, or [each][in][brackets]") from None
    return path


__all__ = ["GROK", "GrokOptions", "GrokStepOptions", "translated"]

_SPARK_TYPES = {"int": "bigint", "float": "double", "string": "string"}


class GrokOptions(ParseOptions):
    """Patterns by name, and what is done with what they find."""

    pattern: Patterns = Field(
        description="A pattern with %{NAME}, %{NAME:field} and %{NAME:field:int|float}, looked for anywhere in the text; or a list of "
        "them: the first that matches counts. A field may be nested: %{IP:client.ip}, %{IP:[client][ip]}.",
    )
    definitions: dict[str, str] = Field({}, description="Patterns by name, to be used as %{NAME}. They come before those of the set.")
    set: Literal["ecs-v1", "legacy"] = Field(
        "ecs-v1", description="The public set of patterns: its fields named by the Elastic Common Schema, or as they were before it."
    )

    def model_post_init(self, context: object) -> None:
        """Raises ValueError for patterns that do not work; pydantic reports it with its place."""
        super().model_post_init(context)
        check_names(self.definitions)
        if not self.pattern:
            raise ValueError("needs a pattern")
        for each in _expanded(self):
            _check(each)


class GrokStepOptions(StepOptions):
    """Parses text by named patterns."""

    grok: Annotated[GrokOptions, in_short("pattern", str | list | tuple, str | GrokOptions)] = Field(
        description="Parses text by named patterns, such as %{HTTPD_COMBINEDLOG}. A pattern, or {pattern, definitions, set, field, into, "
        "keep_source}."
    )


def translated(options: GrokOptions) -> tuple[str, ...]:
    """Returns the patterns as regular expressions in Python's syntax; their groups have generated names."""
    return tuple(each.pattern for each in _expanded(options))


def _expanded(options: GrokOptions) -> list[Expanded]:
    library = {**pattern_set(options.set), **options.definitions}
    return [expand(text, library) for text in options.pattern]


def _check(expanded: Expanded) -> None:
    compile_pattern(expanded.pattern)
    if not expanded.fields:
        raise ValueError("has no field: write %{NAME:field} or (?<field>...)")
    paths = list(dict.fromkeys(found.path for found in expanded.fields.values()))
    if twice := clash(paths):
        raise ValueError(f"{twice!r} lies in another field of the pattern")


Take = Callable[[Any], dict[str, Any]]


def _taker(pattern: Pattern, expanded: Expanded) -> Take:
    """Returns a function that makes fields of a match."""
    groups = [expanded.fields[name] for name in sorted(pattern.groupindex, key=pattern.groupindex.__getitem__)]
    flat = all("." not in found.path for found in groups) and len({found.path for found in groups}) == len(groups)
    if flat and all(found.type == "string" for found in groups):
        names = [found.path for found in groups]
        return lambda match: {name: text for name, text in zip(names, match.groups(), strict=True) if text is not None}
    makers = [(found.path, tuple(found.path.split(".")[:-1]), found.path.split(".")[-1], _reader(found)) for found in groups]

    def take(match: Any) -> dict[str, Any]:  # noqa: ANN401 - a match
        fields: dict[str, Any] = {}
        for (path, above, name, read), text in zip(makers, match.groups(), strict=True):
            if text is None:
                continue
            inner = fields
            for each in above:
                inner = inner.setdefault(each, {})
            if name not in inner:
                inner[name] = text if read is None else _read(read, text, path)
        return fields

    return take


def _reader(found: GrokReference) -> Callable[[Any], Any] | None:
    return None if found.type == "string" else caster(found.type)


def _read(read: Callable[[Any], Any], text: str, path: str) -> Any:  # noqa: ANN401 - of any type
    try:
        return read(text)
    except ValueError as error:
        why = str(error)
    raise DataError(f"field {path!r}: {why}")


def _parser(options: GrokOptions) -> Parse:
    expanded = _expanded(options)
    patterns = [compile_pattern(each.pattern) for each in expanded]
    takes = [_taker(pattern, each) for pattern, each in zip(patterns, expanded, strict=True)]
    if len(takes) == 1:
        (take,) = takes
        return first_match(patterns, lambda _, match: take(match))
    return first_match(patterns, lambda number, match: takes[number](match))


def _columns(options: GrokStepOptions, before: Columns | None) -> Columns | None:
    found: tuple[Column, ...] = ()
    for each in _expanded(options.grok):
        for field in each.fields.values():
            found = with_type(found, field.path, _SPARK_TYPES[field.type])
    return parsed_columns(options.grok, found, before)


GROK = TransformKind(GrokStepOptions, lambda options: Steady(parse_step(options.grok, _parser(options.grok))), _columns)
