"""Writes events as lines to a descriptor whose reader may be slow, stuck or gone, and keeps the latest ones in memory."""

from __future__ import annotations

import logging
import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

from copycat_agent.logs.events import Event, RepeatFilter, event_of, text_line

PATIENCE_SECONDS = 1.0
"""How long a line waits for a reader that does not read. After a time-out, later lines do not wait until one gets through."""
_CHUNK_BYTES = 4096
"""PIPE_BUF of Linux: a pipe that is writable takes this much without blocking."""


class Sink:
    """Writes whole lines to a stream's descriptor; to the stream itself if it has none (`io.StringIO`), to nowhere if it is None.

    Not thread-safe: the handler's lock is held.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._fd = _descriptor(stream)
        self._waits = self._fd is not None and not stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._stuck = False
        self._torn = False

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads along."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # closed
            return False

    @property
    def is_journal(self) -> bool:
        """Whether journald reads: systemd names its socket in $JOURNAL_STREAM, see systemd.exec(5)."""
        named = os.environ.get("JOURNAL_STREAM", "")
        if self._fd is None or not named:
            return False
        info = os.fstat(self._fd)
        return named == f"{info.st_dev}:{info.st_ino}"

    def write(self, line: str) -> bool:
        """Writes `line` and a newline. Returns False if it could not be written, or not all of it; raises nothing."""
        try:
            if self._fd is None:
                return self._write_stream(line)
            return self._write_all((line + "\n").encode(self._encoding, "backslashreplace"))
        except (OSError, ValueError):
            return False

    def _write_stream(self, line: str) -> bool:
        if self._stream is None:
            return False
        self._stream.write(line + "\n")
        self._stream.flush()
        return True

    def _write_all(self, data: bytes) -> bool:
        assert self._fd is not None
        if self._torn:  # half a line was written: it ends here
            data = b"\n" + data
        deadline = time.monotonic() + (0.0 if self._stuck else PATIENCE_SECONDS)
        view = memoryview(data)
        while view:
            if self._waits and not self._is_writable(deadline):
                self._stuck = True
                self._torn = self._torn or len(view) < len(data)
                return False
            try:
                view = view[os.write(self._fd, view[:_CHUNK_BYTES] if self._waits else view) :]
            except BlockingIOError:  # somebody has made it non-blocking
                if time.monotonic() >= deadline:
                    self._stuck = True
                    self._torn = self._torn or len(view) < len(data)
                    return False
                self._is_writable(deadline)
        self._stuck = self._torn = False
        return True

    def _is_writable(self, deadline: float) -> bool:
        assert self._fd is not None
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _descriptor(stream: TextIO | None) -> int | None:
    """Returns the stream's descriptor if it is open."""
    try:
        number = stream.fileno() if stream is not None else None
        if number is not None:
            os.fstat(number)
    except (OSError, ValueError, AttributeError):
        return None
    return number


LINES_MAX = 2000
BYTES_MAX = 512 * 1024
"""In characters: lines are nearly all ASCII."""


class RecentLines:
    """The last `LINES_MAX` lines, of at most `BYTES_MAX` characters together. Not thread-safe: the handler's lock is held."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0

    def add(self, line: str) -> None:
        """Adds this line, and drops the oldest ones that do not fit."""
        self._lines.append(line)
        self._size += len(line)
        while len(self._lines) > LINES_MAX or self._size > BYTES_MAX:
            self._size -= len(self._lines.popleft())

    def lines(self) -> tuple[str, ...]:
        """Returns the lines, oldest first."""
        return tuple(self._lines)


_SLACK_SECONDS = 0.05
"""Added to the time when a count is due, so that its minute is over by any clock."""


class Handler(logging.Handler):
    """Turns log records into lines. Never raises, never prints about itself: a broken log must not stop the agent."""

    def __init__(self, sink: Sink, line: Callable[[Event], str], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._sink = sink
        self._line = line
        self._repeats = RepeatFilter(clock)
        self._recent = RecentLines()
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
        """Drops the line: the standard library would write a stack trace with the message to stderr."""

    def close(self) -> None:
        """Writes pending counts. Called by `setup` and, through `logging.shutdown`, at exit."""
        with self.lock or threading.RLock():
            for event in self._repeats.drain():
                self._put(event)
            if self._timer is not None:
                self._timer.cancel()
        super().close()

    def recent(self) -> tuple[str, ...]:
        """Returns the latest lines as text, oldest first, including those that could not be written."""
        with self.lock or threading.RLock():
            return self._recent.lines()

    def _put(self, event: Event) -> None:
        """Writes a line, and before it how many could not be written."""
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
        """Starts a timer, so that counts are written when their minute is over, even without other events."""
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
