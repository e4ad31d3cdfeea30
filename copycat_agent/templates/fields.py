"""Fields of a record, by dotted path."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from copycat_agent.templates.metadata import METADATA
from copycat_agent.templates.record_like import RecordLike

MISSING: Final = object()
"""Returned by a compiled path for a field that does not exist (None is a field that is null)."""

_SEGMENT = re.compile(r"[^\s.\[\]{}!:\x00-\x1f\x7f](?:[^.\[\]{}!:\x00-\x1f\x7f]*[^\s.\[\]{}!:\x00-\x1f\x7f])?")

_ALSO_FIELDS = frozenset({"@timestamp"})
"""Metadata names that many programs also use for fields."""


def is_path(path: str) -> bool:
    """Returns whether `path` is a dotted path: names without brackets, braces, colons and outer blanks, joined by dots.

    Many programs write a field `@timestamp` or `@version`; names that are only metadata in templates are not fields.
    """
    return (path not in METADATA or path in _ALSO_FIELDS) and all(_SEGMENT.fullmatch(key) for key in path.split("."))


def compile_path(path: str) -> Callable[[RecordLike], object]:
    """Returns a closure that finds the field at dotted `path`, or returns `MISSING`. Raises ValueError for an invalid path.

    `a.b` is `b` in the object `a`, or, if there is none, the field whose own name is `a.b`.
    """
    keys = path.split(".")
    if not is_path(path):
        raise ValueError(f"{path!r} is not a field name: write names joined by dots, such as user.id (no brackets, no empty parts)")
    is_message = path == "message"
    first, rest = keys[0], keys[1:]

    def top(record: RecordLike) -> object:
        value = record.value
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace") if is_message else MISSING
        return MISSING if value is None else value.get(first, MISSING)

    def nested(record: RecordLike) -> object:
        value = top(record)
        for key in rest:
            value = value.get(key, MISSING) if isinstance(value, dict) else MISSING
        if value is MISSING and isinstance(record.value, dict):
            return record.value.get(path, MISSING)
        return value

    return nested if rest else top
