"""From a log record to an event of plain, bounded values, and from that to its line: text, JSON, and both as journald takes them."""

from __future__ import annotations

import json
import logging
import math
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

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
    """Returns the event of a log record, also of other packages' records."""
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


# Controls, marks that turn the direction of text or cannot be seen, separators that some viewers break lines at, surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_PLAIN = re.compile(r"[^\s\"'\\={}\[\],]+")
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Levels and the priorities of syslog(3) from which on they hold; what is below is debug, 7."""


def json_line(event: Event) -> str:
    """ASCII only: json escapes everything else, control characters included, and DEL is escaped here."""
    line: dict[str, object] = {
        "ts": _timestamp(event.created),
        "level": _level(event.level),
        "logger": event.logger,
        "event": event.words,
    }
    for name, value in event.fields.items():
        line[f"{name}_" if name in line else name] = value
    return json.dumps(line, ensure_ascii=True).replace("\x7f", "\\u007f")


def text_line(event: Event) -> str:
    """`2026-11-21T05:00:00.000Z WARNING worker: connector backs off connector=nginx delay_s=0.4`."""
    return f"{_timestamp(event.created)} {_level(event.level).upper():<7} {_said(event)}"


def journal_line(event: Event) -> str:
    """`<4>worker: connector backs off connector=nginx`: journald keeps level and time itself, see sd-daemon(3)."""
    return f"<{_priority(event.level)}>{_said(event)}"


def journal_json_line(event: Event) -> str:
    """JSON with journald's priority before it, which journald takes off again."""
    return f"<{_priority(event.level)}>{json_line(event)}"


def _said(event: Event) -> str:
    shown = "".join(f" {name}={_text_value(value)}" for name, value in event.fields.items())
    return f"{_escaped(event.logger)}: {_escaped(event.words)}{shown}"


def _text_value(value: object) -> str:
    """A word as it is, everything else in JSON's quotes: where a value ends is never in doubt."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return _escaped(value)
    return _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the basic plane


def _timestamp(created: float) -> str:
    return datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _level(number: int) -> str:
    return logging.getLevelName(number).lower()


def _priority(level: int) -> int:
    return next((priority for least, priority in _PRIORITIES if level >= least), 7)
