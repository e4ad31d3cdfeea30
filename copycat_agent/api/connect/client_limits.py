"""How far what a client defines may reach: which options and files of this host are for those alone who write files of definitions.

Who operates from another host says which records are sent, how they are made and to which topic. Nothing of it opens a file outside
`api.connect.roots`, reads a secret of this host, or tells a secret to somebody else: so no reference, no address of a broker, registry or
token endpoint, and nothing that installed packages bring. What a file says already stays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions.formatting.editing import is_same, leaves
from copycat_agent.formats.records import FORMATS
from copycat_agent.registry import Registry
from copycat_agent.sources.files.paths.matching import split_pattern
from copycat_agent.transforms import TRANSFORMS

IN_ITS_FILE = "this is said in the definition's file alone"
_REFERENCE = re.compile(r"\$\{\s*(?:env|file|cred)\s*:")
_SCHEMAS = (("converters", "key", "schema"), ("converters", "value", "schema"))
"""Files that are read as soon as a definition is."""
_FIXED = (*_SCHEMAS, ("kafka",), ("converters", "schema_registry"), ("tests",), ("source", "follow_hard_links"))
"""These, whom secrets are told, and what only who looks after the host can judge."""
_SOURCES = ("log_file", "spool_dir")
_PATHS = (("include",), ("dir",), ("symlink_roots",), ("cleanup", "to"), ("cleanup", "failed_to"))
_TYPED: tuple[tuple[tuple[str, ...], Registry[Any]], ...] = (
    (("converters", "key"), CONVERTERS),
    (("converters", "value"), CONVERTERS),
    (("source", "format"), FORMATS),
)

Values = Mapping[str, object]
Found = Iterator[tuple[str, str]]


def complaints(shown: Values, wanted: Values, roots: Sequence[str]) -> Found:
    """Yields each dotted option of `wanted` that a client may not say so, and why. `shown`: what it says so far."""
    yield from files_named(shown, wanted, _FIXED)
    known = {value for _, value in leaves(shown) if isinstance(value, str)}
    for option, value in leaves(wanted):
        if isinstance(value, str) and _REFERENCE.search(value) and value not in known:
            yield option, f"a reference: {IN_ITS_FILE}"
    yield from _of_packages(shown, wanted)
    if not is_same(wanted.get("source"), shown.get("source")):
        yield from _of_source(wanted, roots)


def files_named(shown: Values, wanted: Values, places: Sequence[tuple[str, ...]] = _SCHEMAS) -> Found:
    """Yields these places where they say something else than before, and why that will not do."""
    for place in places:
        if _says_else(_at(wanted, place), _at(shown, place)):
            yield ".".join(place), IN_ITS_FILE


def with_kafka_of(shown: Values, wanted: Values) -> dict[str, object]:
    """`wanted` with all that is said of Kafka. Much of it is not the definition's own, and clients leave it out: it stays all the same."""
    return {**wanted, "kafka": shown["kafka"]} if "kafka" in shown else dict(wanted)


def _says_else(said: object, before: object) -> bool:
    """Whether something is said that was not so. What is left out says nothing."""
    if isinstance(said, Mapping) and isinstance(before, Mapping):
        return any(_says_else(value, before.get(key)) for key, value in said.items())
    return said is not None and not is_same(said, before)


def _of_source(wanted: Values, roots: Sequence[str]) -> Found:
    if _at(wanted, ("source", "type")) not in _SOURCES:
        yield "source.type", f"{IN_ITS_FILE}: clients define {' and '.join(_SOURCES)}"
        return
    for place in _PATHS:
        value = _at(wanted, ("source", *place))
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, str) and not is_beneath(path if place == ("include",) else f"{path}/*", roots):
                yield ".".join(("source", *place)), f"leads out of api.connect.roots: {', '.join(roots)}"


def is_beneath(pattern: str, roots: Sequence[str]) -> bool:
    """Whether all that a pattern of local files names lies below one of these directories, wherever links lead by now.

    What a link leads to below the pattern's fixed part is the source's own affair.
    """
    if not pattern.startswith("/") or ".." in pattern.split("/") or "\0" in pattern:
        return False
    fixed = split_pattern(pattern)[0]
    real = os.path.realpath(fixed)
    return any(_lies_in(fixed, root) and _lies_in(real, os.path.realpath(root)) for root in roots)


def _lies_in(directory: str, root: str) -> bool:
    return f"{directory.rstrip('/')}/".startswith(f"{root.rstrip('/')}/")


def _of_packages(shown: Values, wanted: Values) -> Found:
    """Parts of installed packages: what their options mean is not ours to say."""
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
