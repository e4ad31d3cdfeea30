"""The least level that is written, and how it is changed while the process runs."""

from __future__ import annotations

import logging
import threading
import time

from copycat_agent.logs.event import ROOT

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def level() -> str:
    """The level that holds now."""
    number = logging.getLogger(ROOT).getEffectiveLevel()
    return next((name for name, least in LEVELS.items() if number <= least), "error")


def set_level(name: str) -> None:
    """`name` is one of `LEVELS`; other packages are heard from warning up."""
    logging.getLogger().setLevel(max(LEVELS[name], logging.WARNING))
    logging.getLogger(ROOT).setLevel(LEVELS[name])
    logging.getLogger("py4j").setLevel(max(LEVELS[name], logging.WARNING))  # it sets its own level when it is imported


class PassingLevel:
    """A level for a while, and then the one that the process was started with. Thread-safe."""

    def __init__(self) -> None:
        """Remembers the level of this moment."""
        self._first = level()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_set = False
        self.until: float | None = None
        """When the first one holds again, in epoch seconds; None when nothing will change by itself."""

    def set(self, name: str, seconds: float | None) -> None:
        """From now on; None: until the process ends."""
        with self._lock:
            self._cancel()
            set_level(name)
            self._is_set = True
            if seconds is not None:
                self.until = time.time() + seconds
                self._timer = threading.Timer(seconds, self._end)
                self._timer.name, self._timer.daemon = "log-level", True
                self._timer.start()

    def close(self) -> None:
        """The first one, at once, if it was ever changed here."""
        with self._lock:
            self._cancel()
            if self._is_set:
                set_level(self._first)

    def _end(self) -> None:
        with self._lock:
            if threading.current_thread() is self._timer:  # else it was set again in this very moment
                self._cancel()
                set_level(self._first)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.until = None
