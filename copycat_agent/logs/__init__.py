r"""The agent's own log: one line per event, as text or JSON, on top of the standard library's logging.

An event is a few constant words, variable data goes into fields::

    log = logs.get("worker")
    log.warning("connector backs off", connector="nginx", delay_s=0.4, error=error)

- No value can forge a line: control characters, bidirectional overrides and lone surrogates are escaped.
- An exception is one line, type and message; its stack follows, on the same line, only at level debug.
- Repeats are counted instead of written, see `events.RepeatFilter`; except for changes (`always=True`), of which the last has to be seen.
- A reader that is slow or gone, or a full disk, costs lines and never blocks the agent for long, see `handler`.
- Fields name things of the agent (connector, path, offset, counts). Data of users and secrets never go into a log line:
  that is a rule for callers, nothing here can check it.

Thread-safe.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping
from typing import TextIO

from copycat_agent.logs.events import ROOT, journal_json_line, journal_line, json_line, text_line
from copycat_agent.logs.handler import Handler, Sink

__all__ = ["Log", "PassingLevel", "get", "level", "recent", "setup"]


class Log:
    """Writes the events of one part of the agent. Made by `get`; cheap, stateless, picklable."""

    __slots__ = ("_fields", "_name")

    def __init__(self, name: str, fields: Mapping[str, object] | None = None) -> None:
        """Called by `get` and `bind`."""
        self._name = name
        self._fields = dict(fields or {})

    def bind(self, **fields: object) -> Log:
        """Returns a log that adds these fields to every event."""
        return Log(self._name, {**self._fields, **fields})

    def debug(self, event: str, /, *, error: BaseException | None = None, **fields: object) -> None:
        """Writes an event for people who look for a fault."""
        self._write(logging.DEBUG, event, error, fields)

    def info(self, event: str, /, *, error: BaseException | None = None, always: bool = False, **fields: object) -> None:
        """Writes an event that is expected. Never per record. `always`: never suppressed as a repeat."""
        self._write(logging.INFO, event, error, fields, always=always)

    def warning(self, event: str, /, *, error: BaseException | None = None, always: bool = False, **fields: object) -> None:
        """Writes an event that resolves itself, but that an operator may want to know. `always` as in `info`."""
        self._write(logging.WARNING, event, error, fields, always=always)

    def error(self, event: str, /, *, error: BaseException | None = None, **fields: object) -> None:
        """Writes an event that means lost data, or that needs a person."""
        self._write(logging.ERROR, event, error, fields)

    def _write(self, level: int, event: str, error: BaseException | None, fields: dict[str, object], *, always: bool = False) -> None:
        logger = logging.getLogger(f"{ROOT}.{self._name}")
        if logger.isEnabledFor(level):
            info = (type(error), error, error.__traceback__) if error else None
            logger.log(level, "%s", event, exc_info=info, extra={"fields": {**self._fields, **fields}, "always": always})


def get(name: str) -> Log:
    """Returns the log of one part of the agent, such as `worker`. May be called at import, before `setup`."""
    return Log(name)


def recent() -> tuple[str, ...]:
    """Returns the latest lines of this process's log as text, oldest first; none before `setup`."""
    return tuple(line for one in logging.getLogger().handlers if isinstance(one, Handler) for line in one.recent())


def setup(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:  # noqa: A002 - the options' names
    """Sends every event of this process to `stream` (stderr). Called once per process; a second call replaces the first.

    `level` is debug, info, warning or error; other packages are logged from warning up. `format` is text, json, or auto: text on a terminal
    and under journald, else JSON. Lines for journald begin with their priority and have no time. Python's own warnings become events.
    """
    sink = Sink(sys.stderr if stream is None else stream)
    as_text = format == "text" or (format == "auto" and (sink.is_terminal or sink.is_journal))
    if sink.is_journal:
        handler = Handler(sink, journal_line if as_text else journal_json_line)
    else:
        handler = Handler(sink, text_line if as_text else json_line)
    root = logging.getLogger()
    for other in [other for other in root.handlers if isinstance(other, Handler)]:
        root.removeHandler(other)
        other.close()
    root.addHandler(handler)
    set_level(level)
    logging.captureWarnings(capture=True)


LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def level() -> str:
    """Returns the present level."""
    number = logging.getLogger(ROOT).getEffectiveLevel()
    return next((name for name, least in LEVELS.items() if number <= least), "error")


def set_level(name: str) -> None:
    """Sets the level `name`, one of `LEVELS`; other packages are logged from warning up."""
    logging.getLogger().setLevel(max(LEVELS[name], logging.WARNING))
    logging.getLogger(ROOT).setLevel(LEVELS[name])
    logging.getLogger("py4j").setLevel(max(LEVELS[name], logging.WARNING))  # it sets its own level when it is imported


class PassingLevel:
    """Sets a level for a while, and then restores the level of the process's start. Thread-safe."""

    def __init__(self) -> None:
        """Remembers the present level."""
        self._first = level()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_set = False
        self.until: float | None = None
        """When the first level is restored, in epoch seconds; None if nothing changes by itself."""
        self.changed: float | None = None
        """When the level was last changed, in epoch seconds, None for never."""

    def set(self, name: str, seconds: float | None) -> None:
        """Sets a level for `seconds`; None: until the process ends."""
        with self._lock:
            self._cancel()
            set_level(name)
            self._is_set, self.changed = True, time.time()
            if seconds is not None:
                self.until = time.time() + seconds
                self._timer = threading.Timer(seconds, self._end)
                self._timer.name, self._timer.daemon = "log-level", True
                self._timer.start()

    def close(self) -> None:
        """Restores the first level at once, if it was ever changed here."""
        with self._lock:
            self._cancel()
            if self._is_set:
                set_level(self._first)

    def _end(self) -> None:
        with self._lock:
            if threading.current_thread() is self._timer:  # else it was just set again
                self._cancel()
                set_level(self._first)
                self.changed = time.time()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.until = None
