"""From a record of the standard library's logging to an event: plain, bounded values."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

ROOT = "copycat_agent"
_MAX_VALUE_CHARS = 4000
_MAX_STACK_CHARS = 16_000
_MAX_ITEMS = 100
_MAX_INT_BITS = 256
"""Python refuses to write whole numbers of thousands of digits; nothing here counts so far."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line to be. `fields` hold what `plain` yields. `always`: written also when it was written before."""

    created: float
    level: int
    logger: str
    words: str
    fields: Mapping[str, object] = field(default_factory=dict)
    always: bool = False


def event_of(record: logging.LogRecord) -> Event:
    """What is written of a record, also of other packages'."""
    try:
        words = record.getMessage()
    except Exception:  # noqa: BLE001 - some other package's arguments do not fit its message
        words = str(record.msg)
    fields = {name: plain(value) for name, value in getattr(record, "fields", {}).items() if value != ""}  # no hint is no field
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        fields["error"] = plain(f"{type(error).__name__}: {plain(error)}")
        if logging.getLogger(ROOT).isEnabledFor(logging.DEBUG):
            fields["stack"] = _cut("".join(traceback.format_exception(error)), _MAX_STACK_CHARS)
    always = getattr(record, "always", False)
    return Event(record.created, record.levelno, record.name.removeprefix(ROOT + "."), str(plain(words)), fields, always)


def plain(value: object) -> object:
    """A JSON scalar, or a bounded text without lone surrogates; lists item by item, together no longer than a text."""
    if value is None or isinstance(value, float) and math.isfinite(value):  # noqa: RUF021 - reads as it is meant
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _MAX_INT_BITS else f"a number of {value.bit_length()} bits"
    if isinstance(value, list | tuple | set | frozenset):
        return _plain_items(list(value))
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 - a broken __str__ must not cost the line
        text = f"<{type(value).__name__}>"
    return _cut(text, _MAX_VALUE_CHARS)


def _plain_items(items: list[object]) -> list[object]:
    shown: list[object] = []
    room = _MAX_VALUE_CHARS
    for item in items[:_MAX_ITEMS]:
        shown.append(plain(item))
        room -= len(str(shown[-1]))
        if room <= 0:
            break
    return shown if len(shown) == len(items) else [*shown, f"... {len(items) - len(shown)} more"]


def _cut(text: str, most: int) -> str:
    """At most so many characters, lone surrogates as backslash escapes; everything else as it is."""
    text = text if len(text) <= most else text[:most] + "..."
    return text.encode("utf-8", "backslashreplace").decode()
