"""What a definition says without words, and what is allowed in it and probably not meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from copycat_agent.definitions.models import Loc, key_of, markers
from copycat_agent.definitions.problems import Finding
from copycat_agent.formats import MultilineOptions
from copycat_agent.options import Definition, Options, Regex
from copycat_agent.patterns import compile_pattern
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.transforms import action_of
from copycat_agent.transforms.grok import GrokOptions, translated
from copycat_agent.transforms.match import PlainCondition

if TYPE_CHECKING:
    from collections.abc import Iterator

_WRAPPED = frozenset({"cri", "docker"})
_MOST_PARTS = 100_000


def with_implied(definition: Definition) -> Definition:
    """The definition with what follows from it.

    A step that unwraps lines of containers wants the parts of a line together. What is written of over-long lines goes for records of
    several lines, too, where nothing is written of those.
    """
    source = definition.source
    if not isinstance(source, LogFileOptions):
        return definition
    multiline = source.multiline or _of_containers(definition, source)
    if multiline is None:
        return definition
    if "on_too_long" in source.line.model_fields_set and "on_too_long" not in multiline.model_fields_set:
        multiline = multiline.model_copy(update={"on_too_long": source.line.on_too_long})
    return definition.model_copy(update={"source": source.model_copy(update={"multiline": multiline})})


def _of_containers(definition: Definition, source: LogFileOptions) -> MultilineOptions | None:
    if not any(action_of(step) in _WRAPPED for step in definition.transforms):
        return None
    return MultilineOptions(preset="container", max_lines=_MOST_PARTS, max_bytes=max(2**20, source.line.max_bytes))


_HINT = "leave no two ways to match one text: (?:[^,]+,)* instead of (?:.+,?)*, or (?>...) around what need not be tried again"
_OVERRULED = "is not used: multiline.on_too_long says what becomes of a record over a limit, its lines included"
_OVERRULED_HINT = "delete one of the two"
_MARKER = get_args(Regex)[1]


def doubtful(definition: Definition) -> list[Finding]:
    """A warning for each pattern of a definition with which a match may take too long, and for a policy that is not used."""
    found = [*_patterns(definition.source, ("source",))]
    for number, step in enumerate(definition.transforms):
        found += _patterns(step, ("transforms", number))
    slow = [Finding(loc, "slow-pattern", doubt, _HINT) for loc, pattern in found if (doubt := compile_pattern(pattern).doubt)]
    line: Any = getattr(definition.source, "line", None)
    multiline = getattr(definition.source, "multiline", None)
    if multiline is None or "on_too_long" not in line.model_fields_set or line.on_too_long == multiline.on_too_long:
        return slow
    return [*slow, Finding(("source", "line", "on_too_long"), "unused", _OVERRULED, _OVERRULED_HINT)]


def _patterns(options: Options, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """Every regular expression in these options, with its place."""
    if isinstance(options, GrokOptions):
        yield from (((*loc, "pattern", number), text) for number, text in enumerate(translated(options)))
        return
    for name, field in type(options).model_fields.items():
        is_pattern = _MARKER in markers(field) or (isinstance(options, PlainCondition) and name == "matches")
        yield from _within(getattr(options, name), (*loc, key_of(name, field)), is_pattern=is_pattern)


def _within(value: object, loc: Loc, *, is_pattern: bool) -> Iterator[tuple[Loc, str]]:
    if isinstance(value, Options):
        yield from _patterns(value, loc)
    elif isinstance(value, str) and is_pattern:
        yield loc, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _within(inner, (*loc, key), is_pattern=is_pattern)
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from _within(inner, (*loc, number), is_pattern=is_pattern)
