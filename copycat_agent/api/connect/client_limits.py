"""Limits of definitions made by clients: which options and files of this host only a definition's file may name.

A client on another host may say which records are sent, how they are made, and to which topic. It must not be able to open files outside
`api.connect.roots`, to read a secret of this host, or to make this host write or send anywhere else. So it may set no reference, no
sink, no address of a broker, registry or token endpoint, and no part of an installed package. Values that the file has already may stay.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions.formatting.editing import is_same, leaves
from copycat_agent.formats.records import FORMATS
from copycat_agent.options import Definition
from copycat_agent.registry import Registry
from copycat_agent.sources.files.paths.matching import split_pattern
from copycat_agent.transforms import TRANSFORMS

IN_ITS_FILE = "this is said in the definition's file alone"
_REFERENCE = re.compile(r"\$\{\s*(?:env|file|cred)\s*:")
_SCHEMAS = (("converters", "key", "schema"), ("converters", "value", "schema"))
"""Options with files that are read together with the definition."""
_OPEN = frozenset(("name", "renamed_from", "enabled", "source", "transforms", "record", "converters", "delivery", "errors", "limits"))
"""Sections that a client may write, within the limits below. A new section belongs to the file until it is named here."""
_CLOSED = tuple(section for section in Definition.model_fields if section not in _OPEN)
"""Sections of the file alone: `sink`, `kafka` and `tests`."""
_FIXED = (*_SCHEMAS, *((section,) for section in _CLOSED), ("converters", "schema_registry"), ("source", "follow_hard_links"))
"""These, and options that decide where records and secrets are sent, or that only the host's administrator can judge."""
_SOURCES = ("log_file", "spool_dir")
_PATHS = (("include",), ("dir",), ("symlink_roots",), ("cleanup", "to"), ("cleanup", "failed_to"))
_TYPED: tuple[tuple[tuple[str, ...], Registry[Any]], ...] = (
    (("converters", "key"), CONVERTERS),
    (("converters", "value"), CONVERTERS),
    (("source", "format"), FORMATS),
)

Values = Mapping[str, object]
Complaints = Iterator[tuple[str, str]]


def complaints(shown: Values, wanted: Values, roots: Sequence[str]) -> Complaints:
    """Yields each dotted option of `wanted` that a client may not set so, and why. `shown` are the present values."""
    yield from files_named(shown, wanted, _FIXED)
    known = {value for _, value in leaves(shown) if isinstance(value, str)}
    for option, value in leaves(wanted):
        if isinstance(value, str) and _REFERENCE.search(value) and value not in known:
            yield option, f"a reference: {IN_ITS_FILE}"
    yield from _of_packages(shown, wanted)
    if not is_same(wanted.get("source"), shown.get("source")):
        yield from _of_source(wanted, roots)


def files_named(shown: Values, wanted: Values, places: Sequence[tuple[str, ...]] = _SCHEMAS) -> Complaints:
    """Yields those of `places` that have changed, and why they may not."""
    for place in places:
        if _says_else(_at(wanted, place), _at(shown, place)):
            yield ".".join(place), IN_ITS_FILE


def with_closed_of(shown: Values, wanted: Values) -> dict[str, object]:
    """Returns `wanted` with the present sections that clients may not write. They may leave them out; they stay nevertheless."""
    return {**wanted, **{section: shown[section] for section in _CLOSED if section in shown}}


def _says_else(said: object, before: object) -> bool:
    """Returns whether a value differs from the one before. Values that are left out do not."""
    if isinstance(said, Mapping) and isinstance(before, Mapping):
        return any(_says_else(value, before.get(key)) for key, value in said.items())
    return said is not None and not is_same(said, before)


def _of_source(wanted: Values, roots: Sequence[str]) -> Complaints:
    if _at(wanted, ("source", "type")) not in _SOURCES:
        yield "source.type", f"{IN_ITS_FILE}: clients define {' and '.join(_SOURCES)}"
        return
    for place in _PATHS:
        value = _at(wanted, ("source", *place))
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, str) and not is_beneath(path if place == ("include",) else f"{path}/*", roots):
                yield ".".join(("source", *place)), f"leads out of api.connect.roots: {', '.join(roots)}"


def is_beneath(pattern: str, roots: Sequence[str]) -> bool:
    """Whether all files that a pattern can match lie below one of these directories, with symbolic links of its fixed part resolved.

    The source itself decides about links below the fixed part.
    """
    if not pattern.startswith("/") or ".." in pattern.split("/") or "\0" in pattern:
        return False
    fixed = split_pattern(pattern)[0]
    real = os.path.realpath(fixed)
    return any(_lies_in(fixed, root) and _lies_in(real, os.path.realpath(root)) for root in roots)


def _lies_in(directory: str, root: str) -> bool:
    return f"{directory.rstrip('/')}/".startswith(f"{root.rstrip('/')}/")


def _of_packages(shown: Values, wanted: Values) -> Complaints:
    """Yields parts of installed packages, because the effect of their options is unknown."""
    for place, registry in _TYPED:
        value, before = _at(wanted, place), _at(shown, place)
        name = value.get("type") if isinstance(value, Mapping) else value
        if isinstance(name, str) and name not in registry.built_in and registry.find(name) is not None and not is_same(value, before):
            yield ".".join(place), f"a part of an installed package: {IN_ITS_FILE}"
    before, steps = _at(shown, ("transforms",)), _at(wanted, ("transforms",))
    known = before if isinstance(before, list) else []
    for number, step in enumerate(steps if isinstance(steps, list) else []):
        actions = [key for key in step if key not in TRANSFORMS.built_in and key in TRANSFORMS] if isinstance(step, Mapping) else []
        if actions and not any(is_same(step, one) for one in known):
            yield f"transforms.{number}.{actions[0]}", f"a part of an installed package: {IN_ITS_FILE}"


def _at(values: object, place: tuple[str, ...]) -> object:
    for step in place:
        values = values.get(step) if isinstance(values, Mapping) else None
    return values
