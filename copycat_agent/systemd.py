"""What the agent tells the service manager: that it is up, what it does, that it stops, and that it is still at work.

The protocol is `sd_notify(3)`: one datagram of `NAME=value` lines to the unix socket in $NOTIFY_SOCKET. Nothing here raises:
an agent whose service manager does not listen ships lines all the same.

The watchdog is fed while what all connectors need answers: who calls `feed` says how long ago that did last. When it hangs, the
service manager kills and restarts the agent, which costs nothing but repeats. One connector that hangs is no reason to.
"""

from __future__ import annotations

import faulthandler
import os
import re
import socket
import sys
import time
from collections.abc import Callable, MutableMapping

from copycat_agent import logs

SEND_SECONDS = 1.0
"""How long a message may wait for a service manager whose queue is full."""

_SOCKET, _WATCHDOG, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
_STATUS_CHARACTERS = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")

_log = logs.get("systemd")


class ServiceManager:
    """Made once, by the main thread, before anything is started: it takes its variables out of `environ`, so that no child has them.

    Without them (a terminal, a container) every method does nothing. Called from one thread at a time.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = _address(environ.pop(_SOCKET, ""))
        self.watchdog_seconds = _watchdog_seconds(environ.pop(_WATCHDOG, ""), environ.pop(_WATCHDOG_PID, ""))
        """How long the service manager waits for `feed`; None when it does not wait."""
        self._clock = clock
        self._fed = float("-inf")
        self._starves = False
        self._status = ""
        self._refused = False

    @property
    def listens(self) -> bool:
        """Whether there is a service manager to talk to."""
        return self._address is not None

    def ready(self, status: str = "") -> None:
        """The agent is up: definitions are loaded, connectors started. Also ends a reload. From now on the watchdog waits."""
        if self.watchdog_seconds and not faulthandler.is_enabled():
            faulthandler.enable(sys.__stderr__ or 2)  # the watchdog's SIGABRT then shows where each thread hangs
        self._say("READY=1", *self._status_line(status))

    def reloading(self) -> None:
        """Definitions are read again; `ready` ends it."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> None:
        """The agent settles what is in flight and ends. The watchdog waits no more."""
        self._say("STOPPING=1", *self._status_line(status))

    def status(self, text: str) -> None:
        """One line for `systemctl status`; sent when it differs from the last one. No user data."""
        if line := self._status_line(text):
            self._say(*line)

    def feed(self, age: float) -> None:
        """Feed the watchdog, as often as it needs, unless the agent hangs. Call it every second or so.

        `age`: seconds since what all connectors need last answered.
        """
        interval = self.watchdog_seconds
        if interval is None:
            return
        if age > interval / 2:
            if not self._starves:
                self._starves = True
                _log.error("the agent hangs; unless it moves, the service manager restarts it", hangs_s=round(age), watchdog_s=interval)
            return
        if self._starves:
            self._starves = False
            _log.info("the agent that hung moves again")
        now = self._clock()
        if now - self._fed >= interval / 4:
            self._fed = now
            self._say("WATCHDOG=1")

    def _status_line(self, text: str) -> tuple[str, ...]:
        text = _CONTROL.sub(" ", text)[:_STATUS_CHARACTERS]
        if not text or text == self._status:
            return ()
        self._status = text
        return (f"STATUS={text}",)

    def _say(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as talk:
                talk.settimeout(SEND_SECONDS)
                talk.sendto("\n".join(lines).encode("utf-8", "backslashreplace"), self._address)
        except OSError as error:
            if not self._refused:
                _log.warning("the service manager does not take messages; the agent goes on without", error=error)
            self._refused = True
        else:
            self._refused = False


def _address(name: str) -> str | None:
    """A socket's address from $NOTIFY_SOCKET: a path, or `@name` in the abstract namespace. None without, and for what is neither."""
    if name.startswith("@") and len(name) > 1:
        return "\0" + name[1:]
    if name.startswith("/"):
        return name
    if name:
        _log.warning("NOTIFY_SOCKET is neither a path nor an abstract name; the service manager hears nothing", address=name)
    return None


def _watchdog_seconds(microseconds: str, pid: str) -> float | None:
    """Seconds of the watchdog that is meant for this process (WATCHDOG_PID is ours, or not set)."""
    if not microseconds.isascii() or not microseconds.isdigit() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 1e6 or None
