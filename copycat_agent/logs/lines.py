"""From an event to its line: text, JSON, and both as journald takes them."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime

from copycat_agent.logs.event import Event

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
