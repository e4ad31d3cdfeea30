"""Serves HTTP on a listening socket, a thread per connection, with limits against hostile clients.

A request must be complete within `CONNECTION_SECONDS`, and each piece of the answer must be read within as long. If the limit of
connections is reached, a connection without a complete request is cut off for a new one: the oldest of the address with most connections.
So a client that opens many and sends nothing cuts off its own.

One thread per socket accepts connections. It survives every error: it logs it and tries the next connection.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.api import BODY_BYTES_MAX
from copycat_agent.api.messages import BadRequestError, Refusal, Wire, connect_refusal, refusal

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

CONNECTION_SECONDS = 30.0
"""Time limit of a request, and of each piece of its answer."""
PAUSE_SECONDS = 1.0
"""Wait before the next attempt if no connection can be accepted, for want of descriptors or threads."""
_CLOSE_SECONDS = 5.0

_log = logs.get("api")


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one listening socket. Larger bodies and headers are refused.

    `cuts_answers`: if all connections are being answered, the oldest is cut off for a new one; otherwise the new one is refused. `form` is
    that of `Wire`.
    """

    connections: int
    body_bytes: int
    header_bytes: int = 16 * 1024
    cuts_answers: bool = False
    form: Refusal = refusal


COMMANDS = ListenerLimits(connections=64, body_bytes=BODY_BYTES_MAX)
"""Limits of the unix socket."""
MOUNTS = ListenerLimits(connections=32, body_bytes=0, cuts_answers=True)
"""Limits of the port for health and metrics, which strangers may reach. Requests have no body, and answers are quick."""
CONNECT = ListenerLimits(connections=32, body_bytes=2**20, cuts_answers=True, form=connect_refusal)
"""Limits of the port for clients of Kafka Connect. A body is a configuration, or offsets of some files."""
PAGE = ListenerLimits(connections=32, body_bytes=512 * 1024, cuts_answers=True)
"""Limits of the port for browsers, which open several connections each. A body is a form, with a definition and lines to try."""


@dataclass(eq=False, slots=True)
class _OpenConnection:
    socket: socket.socket
    peer: str
    began: float = field(default_factory=time.monotonic)
    is_answered: bool = False
    is_cut: bool = False

    def cut(self) -> None:
        """Shuts the connection down, so that its thread sees it as closed. The base class's method does not begin a TLS shutdown."""
        self.is_cut = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Server:
    """Serves one listening socket until `close`. The caller owns the socket. `tls` returns the context for each connection."""

    def __init__(
        self, listener: socket.socket, application: WSGIApplication, limits: ListenerLimits, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self._listener, self._application, self._limits, self._tls = listener, application, limits, tls
        self._lock = threading.Lock()
        self._connections: set[_OpenConnection] = set()
        self._closing = False
        self._busy_since: float | None = None
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._loop, name="api-loop", daemon=True)
        self._thread.start()

    def heartbeat(self) -> float:
        """Returns for how many seconds the accepting thread has been busy with a connection, or dead; 0 while it waits."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def close(self) -> None:
        """Accepts no more connections, and cuts off the present ones. Threads that wait for the agent end by themselves."""
        with self._lock:
            self._closing = True
            for one in self._connections:
                one.cut()
        os.write(self._wake_writer, b"x")
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _loop(self) -> None:
        try:
            while not self._closing:
                try:
                    self._turn()
                except Exception as error:  # noqa: BLE001 - the thread must survive
                    _log.error("the API takes no connection now, and tries again", error=error)
                    self._wait(PAUSE_SECONDS * 1000)
        finally:
            self._busy_since = time.monotonic()

    def _turn(self) -> None:
        self._wait(None, self._listener)
        if self._closing:
            return
        try:
            connected, address = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the client has closed it again
        connection = _OpenConnection(connected, str(address[0]) if address and isinstance(address, tuple) else "")
        if not self._make_room(connection):
            _refuse_at_once(connected, self._limits.form)
            return
        try:
            threading.Thread(target=self._serve, args=(connection,), name="api-request", daemon=True).start()
        except BaseException:
            self._forget(connection)
            raise

    def _wait(self, milliseconds: float | None, listener: socket.socket | None = None) -> None:
        poll = select.poll()  # select() fails above descriptor 1,023, and the agent has more files open
        poll.register(self._wake_reader, select.POLLIN)
        if listener is not None:
            poll.register(listener, select.POLLIN)
        self._busy_since = None
        poll.poll(milliseconds)
        self._busy_since = time.monotonic()

    def _make_room(self, new: _OpenConnection) -> bool:
        """Adds a connection, and cuts off another one if necessary. Returns False if it may cut off none, or too many hold threads."""
        with self._lock:
            there = [one for one in self._connections if not one.is_cut]
            if len(there) >= self._limits.connections:
                candidates = [one for one in there if not one.is_answered] or (there if self._limits.cuts_answers else [])
                if not candidates or len(self._connections) >= 2 * self._limits.connections:
                    return False
                number = Counter(one.peer for one in there)
                min(candidates, key=lambda one: (-number[one.peer], one.began)).cut()
            self._connections.add(new)
            return True

    def _forget(self, connection: _OpenConnection) -> None:
        with self._lock:
            self._connections.discard(connection)
        connection.socket.close()

    def _serve(self, connection: _OpenConnection) -> None:
        """Thread: serves one connection to its end."""
        try:
            with contextlib.suppress(OSError):  # the client has gone, is silent, or speaks no TLS
                self._answer(connection)
        except Exception as error:  # noqa: BLE001 - a bug; its message is not logged, because it may quote anything
            _log.error("a connection of the API broke off", type=type(error).__name__)
        finally:
            self._forget(connection)

    def _answer(self, connection: _OpenConnection) -> None:
        if self._tls is not None:
            self._encrypt(connection, self._tls())
        wire = Wire(connection.socket, CONNECTION_SECONDS, self._limits.header_bytes, self._limits.form)
        try:
            environ = wire.read(self._limits.body_bytes)
            if environ is None:
                return
            connection.is_answered = True
            wire.answer(environ, self._application)
        except BadRequestError as error:
            wire.refuse(error.status, error.words, error.hint)
        wire.finish()

    def _encrypt(self, connection: _OpenConnection, context: ssl.SSLContext) -> None:
        """Wraps the socket. The handshake follows with the first read, within the same time limit."""
        with self._lock:  # `cut` must not meet the socket while it is replaced
            if connection.is_cut:
                raise ConnectionAbortedError
            connection.socket = context.wrap_socket(connection.socket, server_side=True, do_handshake_on_connect=False)


def _refuse_at_once(connected: socket.socket, form: Refusal) -> None:
    """Refuses a connection without blocking the accepting thread: the answer fits into the socket's empty buffer."""
    with connected, contextlib.suppress(OSError):
        connected.setblocking(False)
        wire = Wire(connected, seconds=0.0, header_bytes=0, form=form)
        wire.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "all connections of the API are taken", "try again in a minute", "busy")
