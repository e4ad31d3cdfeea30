"""Turns a log record into an event of plain, bounded values, and that into a line: text, JSON, and both with journald's prefix.

Repeats are counted within a minute instead of written.
"""

from __future__ import annotations

import json
import logging
import math
import re
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

ROOT = "copycat_agent"
_MAX_VALUE_CHARS = 4000
_MAX_STACK_CHARS = 16_000
_MAX_ITEMS = 100
_MAX_INT_BITS = 256
"""Python refuses to write whole numbers of thousands of digits; no count here is that large."""


@dataclass(frozen=True, slots=True)
class Event:
    """The content of one line. `fields` hold results of `plain`. `always`: written also if it was written before."""

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
    fields = {name: plain(value) for name, value in getattr(record, "fields", {}).items() if value != ""}  # an empty hint is no field
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        fields["error"] = plain(f"{type(error).__name__}: {plain(error)}")
        if logging.getLogger(ROOT).isEnabledFor(logging.DEBUG):
            fields["stack"] = _cut("".join(traceback.format_exception(error)), _MAX_STACK_CHARS)
    always = getattr(record, "always", False)
    return Event(record.created, record.levelno, record.name.removeprefix(ROOT + "."), str(plain(words)), fields, always)


def plain(value: object) -> object:
    """Returns a JSON scalar, or a bounded text without lone surrogates; lists item by item, together no longer than a text."""
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
    """Returns at most `most` characters, lone surrogates as backslash escapes; everything else unchanged."""
    text = text if len(text) <= most else text[:most] + "..."
    return text.encode("utf-8", "backslashreplace").decode()


# Controls, marks that turn the direction of text or cannot be seen, separators that some viewers break lines at, surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_PLAIN = re.compile(r"[^\s\"'\\={}\[\],]+")
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Levels and the priorities of syslog(3) from which on they apply; everything below is debug, 7."""


def json_line(event: Event) -> str:
    """Returns ASCII only: json escapes everything else, control characters included, and DEL is escaped here."""
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
    """Returns `2026-11-21T05:00:00.000Z WARNING worker: connector backs off connector=nginx delay_s=0.4`."""
    return f"{_timestamp(event.created)} {_level(event.level).upper():<7} {_said(event)}"


def journal_line(event: Event) -> str:
    """Returns `<4>worker: connector backs off connector=nginx`: journald keeps level and time itself, see sd-daemon(3)."""
    return f"<{_priority(event.level)}>{_said(event)}"


def journal_json_line(event: Event) -> str:
    """Returns JSON after journald's priority, which journald removes."""
    return f"<{_priority(event.level)}>{json_line(event)}"


def _said(event: Event) -> str:
    shown = "".join(f" {name}={_text_value(value)}" for name, value in event.fields.items())
    return f"{_escaped(event.logger)}: {_escaped(event.words)}{shown}"


def _text_value(value: object) -> str:
    """Returns a word as it is, everything else in JSON's quotes: where a value ends is never in doubt."""
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


REPEAT_SECONDS = 60.0
REPEAT_VARIANTS = 20
"""How many lines per event and connector, differing in other fields, are written before the rest is only counted."""
REPEAT_EVENTS = 1000
"""How many events are remembered at a time."""


@dataclass(slots=True)
class _RepeatWindow:
    """One event since `start`. `common`: the fields that all repeats share."""

    start: float
    seen: set[int]
    last: Event
    suppressed: int = 0
    common: Mapping[str, object] | None = None


class RepeatFilter:
    """Decides which events are written.

    Events are the same if logger, level, words and the field `connector` are. The first is written; an identical one (all fields) is
    counted; one with other fields (a path, an offset) is written up to `REPEAT_VARIANTS` times, then counted. When the minute is over the
    count is written, with the fields that all counted events share. Events of level debug, or with `always`, are never suppressed.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: OrderedDict[tuple[object, ...], _RepeatWindow] = OrderedDict()  # by start: oldest first

    def __len__(self) -> int:
        """Returns how many events are remembered; `REPEAT_EVENTS` at most."""
        return len(self._windows)

    def admit(self, event: Event) -> list[Event]:
        """Returns the lines to write now: counts of minutes that are over, then the event itself unless it is a repeat."""
        due = self.due()
        if event.level <= logging.DEBUG or event.always:
            return [*due, event]
        key = (event.logger, event.level, event.words, event.fields.get("connector"))
        variant = hash(repr(sorted(event.fields.items())))
        window = self._windows.get(key)
        if window is None:
            due += self._end_while(lambda _: len(self._windows) >= REPEAT_EVENTS)
            self._windows[key] = _RepeatWindow(self._clock(), {variant}, event)
            return [*due, event]
        if variant in window.seen or len(window.seen) >= REPEAT_VARIANTS:
            _suppress(window, event)
            return due
        window.seen.add(variant)
        return [*due, event]

    def due(self) -> list[Event]:
        """Returns counts of minutes that are over."""
        now = self._clock()
        return self._end_while(lambda window: now - window.start >= REPEAT_SECONDS)

    def drain(self) -> list[Event]:
        """Returns all counts and forgets them; for the end of the process."""
        return self._end_while(lambda _: True)

    @property
    def next_due_seconds(self) -> float | None:
        """How long until a count has to be written; None if nothing is counted."""
        start = next((window.start for window in self._windows.values() if window.suppressed), None)
        return None if start is None else max(0.0, start + REPEAT_SECONDS - self._clock())

    def _end_while(self, is_over: Callable[[_RepeatWindow], bool]) -> list[Event]:
        ended = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if not is_over(window):
                break
            del self._windows[key]
            if window.suppressed:
                ended.append(_summary(window))
        return ended


def _suppress(window: _RepeatWindow, event: Event) -> None:
    window.last = event
    window.suppressed += 1
    if window.common is None:
        window.common = event.fields
    elif window.common != event.fields:
        window.common = {name: value for name, value in window.common.items() if event.fields.get(name, window) == value}


def _summary(window: _RepeatWindow) -> Event:
    last, times = window.last, window.suppressed
    words = f"{last.words} (repeated {times} times)"
    return Event(last.created, last.level, last.logger, words, {**(window.common or {}), "repeated": times})
