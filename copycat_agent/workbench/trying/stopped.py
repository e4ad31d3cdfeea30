"""Where a pattern stopped matching, for the steps that parse by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from copycat_agent.model import Record
from copycat_agent.options import Definition, TransformOptions
from copycat_agent.patterns import where_it_stopped
from copycat_agent.templates import MISSING, compile_path
from copycat_agent.transforms.grok import GrokOptions
from copycat_agent.transforms.grok.expanding import GrokReference, expand, field_path, pattern_set
from copycat_agent.workbench.trying.results import Fields, StepTrace

_GROUP = re.compile(r"\(\?P<(g\d+)>")
_REFERENCE = re.compile(r"%\{\w+:([^:}]+)(?::\w+)?\}")
_MOST_CHARACTERS = 60


class Stopped(NamedTuple):
    """The pattern matches the first `at` characters of `text`, the field that was parsed; `element` is what it wants to find there."""

    text: str
    at: int
    element: str


def stopped(definition: Definition, step: StepTrace) -> Stopped | None:
    """Where the step's pattern stopped, the one that came furthest of several. None for steps without one, and where all matches."""
    options = definition.transforms[step.number]
    text = _text(step.before, getattr(getattr(options, step.action, None), "field", "message"))
    if text is None:
        return None
    stops = [(stop, names) for pattern, names in _patterns(options, step.action) if (stop := where_it_stopped(pattern, text))]
    if not stops:
        return None
    stop, names = max(stops, key=lambda one: one[0].text_end)
    return Stopped(text, stop.text_end, _element(stop.element, names))


def _patterns(options: TransformOptions, action: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Regular expressions, and what to call their groups."""
    chosen: Any = options
    if action == "regex":
        yield from ((pattern, {}) for pattern in chosen.regex.pattern)
    elif action == "grok":
        library = {**pattern_set(chosen.grok.set), **chosen.grok.definitions}
        for text in chosen.grok.pattern:
            expanded = expand(text, library)
            yield expanded.pattern, {group: _written(found, chosen.grok) for group, found in expanded.fields.items()}


def _written(found: GrokReference, options: GrokOptions) -> str:
    """How the definition writes the group of a field; one within a pattern of the set is named by its field."""
    written = (match for text in options.pattern for match in _REFERENCE.finditer(text))
    return next((match[0] for match in written if field_path(match[1]) == found.path), f"field {found.path}")


def _element(element: str, names: dict[str, str]) -> str:
    group = _GROUP.search(element)
    if group is not None and group[1] in names:
        return names[group[1]]
    return element if len(element) <= _MOST_CHARACTERS else f"{element[:_MOST_CHARACTERS]}..."


def _text(value: Fields, path: str) -> str | None:
    found = compile_path(path)(Record(value, 0, 0, 0))
    return found if found is not MISSING and isinstance(found, str) else None
