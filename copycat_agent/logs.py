r"""The agent's own log: one line per event, as text or JSON, on top of the standard library's logging.

An event is a few constant words, what varies goes into fields::

    log = logs.get("worker")
    log.warning("connector backs off", connector="nginx", delay_s=0.4, error=error)

- No value can forge a line: control characters, bidirectional overrides and lone surrogates are escaped.
- An exception is one line, type and message; its stack follows, on the same line, only at level debug.
- Repeats are counted instead of written, see `_Repeats`.
- Fields name things of the agent (connector, path, offset, counts). Data of users and secrets never go into a log line:
  that is a rule for callers, nothing here can check it.

Thread-safe; each line is one write, so worker processes may share the stream.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
import traceback
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Log", "get", "setup"]

_ROOT = "copycat_agent"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_MAX_VALUE_CHARS = 4000
_REPEAT_SECONDS = 60.0
_REPEAT_VARIANTS = 20  # lines per event and connector that differ in other fields, before the rest is only counted
_REPEAT_EVENTS = 1000  # events remembered at a time

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_PLAIN = re.compile(r"[^\s\"'\\={}\[\],]+")


class Log:
    """Writes the events of one part of the agent. Made by `get`; cheap, stateless, picklable."""

    __slots__ = ("_fields", "_name")

    def __init__(self, name: str, fields: Mapping[str, object] | None = None) -> None:
        """For `get` and `bind`."""
        self._name = name
        self._fields = dict(fields or {})

    def bind(self, **fields: object) -> Log:
        """A log that adds these fields to every event."""
        return Log(self._name, {**self._fields, **fields})

    def debug(self, event: str, /, *, error: BaseException | None = None, **fields: object) -> None:
        """For someone who looks for a fault."""
        self._write(logging.DEBUG, event, error, fields)

    def info(self, event: str, /, *, error: BaseException | None = None, **fields: object) -> None:
        """Something happened that a person expects. Never per record."""
        self._write(logging.INFO, event, error, fields)

    def warning(self, event: str, /, *, error: BaseException | None = None, **fields: object) -> None:
        """It repairs itself, but you may want to know."""
        self._write(logging.WARNING, event, error, fields)

    def error(self, event: str, /, *, error: BaseException | None = None, **fields: object) -> None:
        """Data is lost, or a person is needed."""
        self._write(logging.ERROR, event, error, fields)

    def _write(self, level: int, event: str, error: BaseException | None, fields: dict[str, object]) -> None:
        logger = logging.getLogger(f"{_ROOT}.{self._name}")
        if logger.isEnabledFor(level):
            info = (type(error), error, error.__traceback__) if error else None
            logger.log(level, "%s", event, exc_info=info, extra={"fields": {**self._fields, **fields}})


def get(name: str) -> Log:
    """The log of one part of the agent, such as `worker`. May be called at import, before `setup`."""
    return Log(name)


def setup(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:  # noqa: A002 - the option's name
    """Send every event of this process to `stream` (stderr). Called once per process; a second call replaces the first.

    `level` is debug, info, warning or error; other packages are heard from warning up. `format` is text, json, or auto: text
    on a terminal, else JSON. Python's own warnings become events.
    """
    stream = sys.stderr if stream is None else stream
    as_text = format == "text" or (format == "auto" and stream.isatty())
    handler = _Handler(stream, _text_line if as_text else _json_line)
    root = logging.getLogger()
    for other in [other for other in root.handlers if isinstance(other, _Handler)]:
        root.removeHandler(other)
        other.close()
    root.addHandler(handler)
    root.setLevel(max(_LEVELS[level], logging.WARNING))
    logging.getLogger(_ROOT).setLevel(_LEVELS[level])
    logging.getLogger("py4j").setLevel(max(_LEVELS[level], logging.WARNING))  # it sets its own level when it is imported
    logging.captureWarnings(capture=True)


@dataclass(frozen=True, slots=True)
class _Event:
    """One line to be."""

    created: float
    level: int
    logger: str
    words: str
    fields: Mapping[str, object] = field(default_factory=dict)


class _Handler(logging.Handler):
    """Turns log records into lines. Never raises, never prints about itself: a broken log must not stop the agent."""

    def __init__(self, stream: TextIO, line: Callable[[_Event], str], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._stream = stream
        self._line = line
        self._repeats = _Repeats(clock)

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging, under this handler's lock."""
        try:
            for event in self._repeats.admit(_event(record)):
                self._put(event)
        except Exception:  # noqa: BLE001 - see the class
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop the line: the standard library would write a stack trace with the message into stderr."""

    def close(self) -> None:
        """Write what was only counted so far. Called by `setup` and, through `logging.shutdown`, at exit."""
        self.acquire()
        try:
            for event in self._repeats.drain():
                self._put(event)
        except (OSError, ValueError):
            pass  # the stream is gone
        finally:
            self.release()
        super().close()

    def _put(self, event: _Event) -> None:
        self._stream.write(self._line(event) + "\n")
        self._stream.flush()


@dataclass(slots=True)
class _Window:
    """What was seen of one event since `start`."""

    start: float
    seen: set[int]
    last: _Event
    suppressed: int = 0


class _Repeats:
    """Counts repeats within a minute instead of writing them.

    Events are the same when logger, level, words and the field `connector` are. The first is written; an identical one (all
    fields) is counted; one with other fields (a path, an offset) is written up to `_REPEAT_VARIANTS` times, then counted.
    When the minute is over, the count is written, at the latest with the next event of any kind. Debug is not suppressed.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: OrderedDict[tuple[object, ...], _Window] = OrderedDict()  # by start: oldest first

    def admit(self, event: _Event) -> list[_Event]:
        """The lines to write now: counts of minutes that are over, then the event itself unless it is a repeat."""
        now = self._clock()
        due = self._expire(now)
        if event.level <= logging.DEBUG:
            return [*due, event]
        key = (event.logger, event.level, event.words, event.fields.get("connector"))
        variant = hash(repr(sorted(event.fields.items())))
        window = self._windows.get(key)
        if window is None:
            self._windows[key] = _Window(now, {variant}, event)
            return [*due, event]
        window.last = event
        if variant in window.seen or len(window.seen) >= _REPEAT_VARIANTS:
            window.suppressed += 1
            return due
        window.seen.add(variant)
        return [*due, event]

    def drain(self) -> list[_Event]:
        """All counts, for the end."""
        return self._expire(float("inf"))

    def _expire(self, now: float) -> list[_Event]:
        due = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if now - window.start < _REPEAT_SECONDS and len(self._windows) < _REPEAT_EVENTS:
                break
            del self._windows[key]
            if window.suppressed:
                due.append(_summary(window))
        return due


def _summary(window: _Window) -> _Event:
    last, times = window.last, window.suppressed
    fields = {name: value for name, value in last.fields.items() if name == "connector"}
    words = f"{last.words} (repeated {times} times)"
    return _Event(last.created, last.level, last.logger, words, {**fields, "repeated": times})


def _event(record: logging.LogRecord) -> _Event:
    try:
        words = record.getMessage()
    except Exception:  # noqa: BLE001 - some other package's arguments do not fit its message
        words = str(record.msg)
    fields = {name: _plain(value) for name, value in getattr(record, "fields", {}).items()}
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        fields["error"] = _plain(f"{type(error).__name__}: {_plain(error)}")
        if logging.getLogger(_ROOT).isEnabledFor(logging.DEBUG):
            fields["stack"] = _unicode("".join(traceback.format_exception(error)))
    return _Event(record.created, record.levelno, record.name.removeprefix(_ROOT + "."), str(_plain(words)), fields)


def _plain(value: object) -> object:
    """A JSON scalar, or a bounded text without lone surrogates; lists item by item."""
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in list(value)[:100]]
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 - a broken __str__ must not cost the line
        text = f"<{type(value).__name__}>"
    text = text if len(text) <= _MAX_VALUE_CHARS else text[:_MAX_VALUE_CHARS] + "..."
    return _unicode(text)


def _unicode(text: str) -> str:
    """Lone surrogates as backslash escapes; everything else as it is."""
    return text.encode("utf-8", "backslashreplace").decode()


def _json_line(event: _Event) -> str:
    """ASCII only: json escapes everything else, control characters included."""
    line: dict[str, object] = {
        "ts": _timestamp(event.created),
        "level": _level(event.level),
        "logger": event.logger,
        "event": event.words,
    }
    for name, value in event.fields.items():
        line[f"{name}_" if name in line else name] = value
    return json.dumps(line, ensure_ascii=True)


def _text_line(event: _Event) -> str:
    shown = "".join(f" {name}={_text_value(value)}" for name, value in event.fields.items())
    return f"{_timestamp(event.created)} {_level(event.level).upper():<7} {event.logger}: {_escaped(event.words)}{shown}"


def _text_value(value: object) -> str:
    """A word as it is, everything else in JSON's quotes: where a value ends is never in doubt."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return _escaped(value)
    return _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _timestamp(created: float) -> str:
    return datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _level(number: int) -> str:
    return logging.getLevelName(number).lower()
