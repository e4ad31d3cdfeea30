"""Notifies the service manager: that the agent is up, what it does, that it stops, and that it is still at work.

The protocol is `sd_notify(3)`: one datagram of `NAME=value` lines to the unix socket in $NOTIFY_SOCKET. Nothing here raises: an agent whose
service manager does not listen ships lines all the same.

The watchdog is fed while what all connectors need answers: the caller of `feed` passes how long ago that last did. If it hangs, the service
manager kills and restarts the agent, which costs nothing but repeats. One hanging connector is no reason for that.

Open files can be left with the service manager (`FDSTORE=1`): it passes them to the next process of the service as descriptors 3, 4, ...
with their names in $LISTEN_FDNAMES (`sd_listen_fds(3)`).
"""

from __future__ import annotations

import array
import faulthandler
import itertools
import os
import re
import resource
import socket
import sys
import time
from collections.abc import Callable, MutableMapping, Sequence

from copycat_agent import logs

SEND_SECONDS = 1.0
"""How long a message may wait for a service manager whose queue is full."""

MOST_STORED = 1024
"""FileDescriptorStoreMax= of the unit. All names together are in one variable, which may not be longer than 128 KiB."""

_SOCKET, _WATCHDOG, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
_PASSED, _PASSED_PID, _PASSED_NAMES, _STORE_MAX = "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "FDSTORE"
_FIRST_PASSED = 3
_STATUS_CHARACTERS = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")

_log = logs.get("systemd")


class ServiceManager:
    """Made once, by the main thread, before anything is started: it removes its variables from `environ`, so that no child has them.

    Without them (a terminal, a container) every method does nothing. Called from one thread at a time, except for `store` and `unstore`.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = _address(environ.pop(_SOCKET, ""))
        self.watchdog_seconds = _watchdog_seconds(environ.pop(_WATCHDOG, ""), environ.pop(_WATCHDOG_PID, ""))
        """How long the service manager waits for `feed`; None if it does not wait."""
        self.passed = _passed(environ)
        """Open files that an earlier process of the service has left with `store`, by name. No child inherits them."""
        self.most_stored = _most_stored(environ.pop(_STORE_MAX, ""))
        """How many open files the service manager may be given."""
        self._clock = clock
        self._fed = float("-inf")
        self._starves = False
        self._status = ""
        self.refused = False
        """Whether the last message was not accepted."""

    @property
    def listens(self) -> bool:
        """Whether there is a service manager."""
        return self._address is not None

    def ready(self, status: str = "") -> None:
        """Reports that the agent is up: definitions are loaded, connectors started. Also ends a reload. Starts the watchdog."""
        if self.watchdog_seconds and not faulthandler.is_enabled():
            faulthandler.enable(sys.__stderr__ or 2)  # the watchdog's SIGABRT then shows where each thread hangs
        self._say("READY=1", *self._status_line(status))

    def reloading(self) -> None:
        """Reports that definitions are read again; `ready` ends it."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> None:
        """Reports that the agent settles what is in flight and ends. Ends the watchdog."""
        self._say("STOPPING=1", *self._status_line(status))

    def status(self, text: str) -> None:
        """Sends one line for `systemctl status` if it has changed. No user data."""
        if line := self._status_line(text):
            self._say(*line)

    def store(self, name: str, fd: int) -> bool:
        """Leaves a copy of the descriptor with the service manager, under a name without colons. Returns False if that failed."""
        # FDPOLL=0: files of FUSE can be polled, and would be dropped when their server fails for a moment.
        return self._say("FDSTORE=1", f"FDNAME={name}", "FDPOLL=0", fds=(fd,))

    def unstore(self, name: str) -> bool:
        """Lets the service manager close the file of this name. Returns False if that failed."""
        return self._say("FDSTOREREMOVE=1", f"FDNAME={name}")

    def feed(self, age: float) -> None:
        """Feeds the watchdog, as often as needed, unless the agent hangs. Call it every second or so.

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

    def _say(self, *lines: str, fds: Sequence[int] = ()) -> bool:
        """Sends a message. Returns whether it was accepted."""
        if self._address is None:
            return False
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as talk:
                talk.settimeout(SEND_SECONDS)
                talk.sendmsg(["\n".join(lines).encode("utf-8", "backslashreplace")], rights, 0, self._address)
        except OSError as error:
            if not self.refused:
                _log.warning("the service manager does not take messages; the agent goes on without", error=error)
            self.refused = True
            return False
        self.refused = False
        return True


def _address(name: str) -> str | None:
    """Returns a socket's address from $NOTIFY_SOCKET: a path, or `@name` in the abstract namespace. None if it is neither, or empty."""
    if name.startswith("@") and len(name) > 1:
        return "\0" + name[1:]
    if name.startswith("/"):
        return name
    if name:
        _log.warning("NOTIFY_SOCKET is neither a path nor an abstract name; the service manager hears nothing", address=name)
    return None


def _watchdog_seconds(microseconds: str, pid: str) -> float | None:
    """Returns the watchdog's seconds for this process (WATCHDOG_PID is this one, or not set)."""
    if not microseconds.isascii() or not microseconds.isdigit() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 1e6 or None


def _passed(environ: MutableMapping[str, str]) -> dict[str, int]:
    """Returns descriptors that were passed to this process, by name. Of several with one name the last; the others are closed."""
    count, pid, names = (environ.pop(name, "") for name in (_PASSED, _PASSED_PID, _PASSED_NAMES))
    if not (count.isascii() and count.isdigit()) or pid != str(os.getpid()):
        return {}
    found: dict[str, int] = {}
    descriptors = range(_FIRST_PASSED, _FIRST_PASSED + int(count))
    for name, fd in zip(itertools.chain(names.split(":"), itertools.repeat("")), descriptors, strict=False):
        try:
            os.set_inheritable(fd, False)
        except OSError:
            continue
        if name in found:
            os.close(found[name])
        found[name] = fd
    return found


def _most_stored(limit: str) -> int:
    """Returns how many files may be stored. `limit` is $FDSTORE, which systemd sets from 254 on.

    A process begins with all of them open and has to open others to get anywhere: at most half of its initial limit.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = MOST_STORED if soft == resource.RLIM_INFINITY else min(MOST_STORED, soft // 2)
    return min(most, int(limit)) if limit.isascii() and limit.isdigit() else most
