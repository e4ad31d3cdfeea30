"""The handler: from records to lines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from copycat_agent.logs.event import Event, event_of
from copycat_agent.logs.lines import text_line
from copycat_agent.logs.recent import Recent
from copycat_agent.logs.repeats import Repeats
from copycat_agent.logs.sink import Sink

_SLACK_SECONDS = 0.05
"""So much later than due a count is written, so that it is over by any clock."""


class Handler(logging.Handler):
    """Turns log records into lines. Never raises, never prints about itself: a broken log must not stop the agent."""

    def __init__(self, sink: Sink, line: Callable[[Event], str], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._sink = sink
        self._line = line
        self._repeats = Repeats(clock)
        self._recent = Recent()
        self._lost = 0
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging, under this handler's lock."""
        try:
            for event in self._repeats.admit(event_of(record)):
                self._put(event)
            self._set_timer()
        except Exception:  # noqa: BLE001 - see the class
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop the line: the standard library would write a stack trace with the message into stderr."""

    def close(self) -> None:
        """Write what was only counted so far. Called by `setup` and, through `logging.shutdown`, at exit."""
        with self.lock or threading.RLock():
            for event in self._repeats.drain():
                self._put(event)
            if self._timer is not None:
                self._timer.cancel()
        super().close()

    def recent(self) -> tuple[str, ...]:
        """The latest lines as text, oldest first, those included that could not be written."""
        with self.lock or threading.RLock():
            return self._recent.lines()

    def _put(self, event: Event) -> None:
        """Write a line, and before it how many could not be written."""
        self._recent.add(text_line(event))
        if self._lost:
            words = f"{self._lost} lines of this log could not be written"
            if not self._sink.write(self._line(Event(event.created, logging.WARNING, "logs", words, {"lines": self._lost}))):
                self._lost += 1
                return
            self._lost = 0
        if not self._sink.write(self._line(event)):
            self._lost += 1

    def _set_timer(self) -> None:
        """Counts are written when their minute is over, also when nothing else happens then."""
        wait = self._repeats.next_due_seconds
        if wait is None or (self._timer is not None and self._timer.is_alive()):
            return
        self._timer = threading.Timer(wait + _SLACK_SECONDS, self._tick)
        self._timer.name, self._timer.daemon = "log-repeats", True
        self._timer.start()

    def _tick(self) -> None:
        with self.lock or threading.RLock():
            self._timer = None
            for event in self._repeats.due():
                self._put(event)
            self._set_timer()
