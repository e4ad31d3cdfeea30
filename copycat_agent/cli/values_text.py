"""Values of records as people read them: texts in quotes, everything else with its type."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from copycat_agent.cli.shown import visible

_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (Decimal, "decimal"),
    (datetime, "timestamp"),
    (date, "date"),
    (time, "time"),
    (bytes, "bytes"),
    (list, "list"),
    (tuple, "list"),
    (Mapping, "object"),
)


def type_of(value: object) -> str:
    """In a word: text, int, float, bool, null, timestamp, ..."""
    if value is None:
        return "null"
    return next((word for kind, word in _TYPES if isinstance(value, kind)), "text")


def value_text(value: object) -> str:
    """One line that no terminal acts upon. Texts are in double quotes."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{visible(str(name))}: {value_text(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return visible(json.dumps(value, ensure_ascii=False)) if isinstance(value, str) else json.dumps(value)


def leaves(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted names and values; an object without fields is a value."""
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield visible(prefix + str(name)), value


def plain(value: object) -> object:
    """The same for JSON: what JSON cannot say as `value_text` shows it."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | bool | int | float) else value_text(value)
