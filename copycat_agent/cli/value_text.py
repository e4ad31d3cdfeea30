"""Values as text for people: ages, sizes, counts, values of records, guarantees, and text without control characters."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from copycat_agent.display import visible

_SPARKS = "▁▂▃▄▅▆▇█"
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
WORDS: Mapping[str, str] = {"at_least_once": "at least once", "exactly_once": "exactly once"}
EXACTLY_ONCE = "exactly_once"
READERS = "for consumers with isolation.level=read_committed"
BY_CLAIMS = "exactly once: each record is in one file. What is written is known by claims in the store, whatever delivery.guarantee says."


def spark(values: Sequence[float], width: int) -> str:
    """Returns the last `width` values as bars, relative to the largest of them, "" without any."""
    last = values[-width:]
    most = max(last, default=0.0)
    if most <= 0:
        return _SPARKS[0] * len(last)
    return "".join(_SPARKS[min(len(_SPARKS) - 1, int(value / most * len(_SPARKS)))] for value in last)


def as_json(content: bytes | None) -> object:
    """Returns bytes of a record as a JSON value: text, or `{"base64": ...}` if they are not UTF-8."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def type_of(value: object) -> str:
    """Returns the type in a word: text, int, float, bool, null, timestamp, ..."""
    if value is None:
        return "null"
    return next((word for kind, word in _TYPES if isinstance(value, kind)), "text")


def value_text(value: object) -> str:
    """Returns one line without control characters. Texts are in double quotes."""
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
    """Yields dotted names and values; an object without fields is a value."""
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield visible(prefix + str(name)), value


def plain(value: object) -> object:
    """Returns the value for JSON, with types that JSON lacks as `value_text` shows them."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | bool | int | float) else value_text(value)


def guarantee_of(connector: Mapping[str, Any]) -> str:
    """Returns the guarantee of a connector of the running agent, in words."""
    return WORDS[connector.get("guarantee", "at_least_once")]


def exactly_once_facts(connector: Mapping[str, Any]) -> Iterator[str]:
    """Yields lines about a connector of the running agent that guarantees exactly once; none about others."""
    if connector.get("guarantee") != EXACTLY_ONCE:
        return
    if connector.get("sink", "kafka") != "kafka":
        yield BY_CLAIMS
        return
    yield (
        f"exactly once, {READERS}: each record is there once. Others also see what was given up. Each transaction takes one offset "
        "of every partition that it writes to, so a consumer's lag in offsets need not come down to 0."
    )
    place = connector["place"]
    if place is None:
        yield "positions: not read yet"
        return
    lanes = ", ".join(f"{lane['number']} at step {lane['seq']:,}" for lane in connector["lanes"])
    where = f"partition {place['partition']} of {place['topic']}, cluster {visible(connector['cluster'])}"
    yield f"positions: {where}; lanes: {lanes or 'not open'}"
    yield f"transactions since the start: {_outcomes(connector['lane_outcomes'])}"


def _outcomes(counted: Mapping[str, int]) -> str:
    """Returns `12 committed, 1 given up, 0 whose outcome had to be asked for; lanes were opened once`."""
    opened = counted.get("openings", 0)
    times = "once" if opened == 1 else f"{opened:,} times"
    return (
        f"{counted.get('committed', 0):,} committed, {counted.get('undone', 0):,} given up, "
        f"{counted.get('unknown', 0):,} whose outcome had to be asked for; lanes were opened {times}"
    )
