"""HTTP on a listening socket: a thread per connection and request, bounded against clients that mean no good.

A request has to be there within `CONNECTION_SECONDS`, and an answer that is not read is given up after as long. Where all places
are taken, a connection without a whole request makes room for a new one; of several the oldest, of the address with most of them.
So whoever opens many and sends nothing cuts off his own.

One thread per socket takes connections. Nothing that goes wrong there ends it: it is logged, and the next connection is tried.
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
PAUSE_SECONDS = 1.0
"""Between two tries where connections cannot be taken, for want of descriptors or threads."""
_CLOSE_SECONDS = 5.0

_log = logs.get("api")


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Bounds of one listening socket. A body beyond `body_bytes` is refused, and so are headers beyond `header_bytes`.

    `cuts_answers`: where all places are taken by requests that are being answered, the oldest of those makes room; otherwise
    the new one is refused. `form`: see `Wire`.
    """

    connections: int
    body_bytes: int
    header_bytes: int = 16 * 1024
    cuts_answers: bool = False
    form: Refusal = refusal


COMMANDS = ListenerLimits(connections=64, body_bytes=BODY_BYTES_MAX)
"""Bounds of the unix socket."""
MOUNTS = ListenerLimits(connections=32, body_bytes=0, cuts_answers=True)
"""Bounds of the port, which strangers may reach: its requests have no body, and its answers are quick unless nobody reads them."""
CONNECT = ListenerLimits(connections=32, body_bytes=2**20, cuts_answers=True, form=connect_refusal)
"""Bounds of the port for clients of Kafka Connect: a body is a configuration, or offsets of some files."""
PAGE = ListenerLimits(connections=32, body_bytes=512 * 1024, cuts_answers=True)
"""Bounds of the port for browsers: a body is a form, with a definition and lines to try. One looks with several connections at a time."""


@dataclass(eq=False, slots=True)
class _Connection:
    socket: socket.socket
    peer: str
    began: float = field(default_factory=time.monotonic)
    is_answered: bool = False
    is_cut: bool = False

    def cut(self) -> None:
        """Its thread finds it closed by the client, so to speak. The base class's, since TLS would begin to say good-bye."""
        self.is_cut = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Server:
    """Serves one listening socket, which stays the caller's, until `close`. `tls` is asked for the context of each connection."""

    def __init__(
        self, listener: socket.socket, application: WSGIApplication, limits: ListenerLimits, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self._listener, self._application, self._limits, self._tls = listener, application, limits, tls
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._closing = False
        self._busy_since: float | None = None
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._loop, name="api-loop", daemon=True)
        self._thread.start()

    def heartbeat(self) -> float:
        """For how many seconds the thread that takes connections has been busy with one, or dead; 0 when it waits for the next."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def close(self) -> None:
        """Take no more connections and cut off those there are. Threads that wait for the agent end by themselves."""
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
        """Poll, never select: the agent holds more than 1,024 files open."""
        try:
            while not self._closing:
                try:
                    self._turn()
                except Exception as error:  # noqa: BLE001 - see the module
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
            return  # the client has gone again
        connection = _Connection(connected, str(address[0]) if address and isinstance(address, tuple) else "")
        if not self._make_room(connection):
            _refuse_at_once(connected, self._limits.form)
            return
        try:
            threading.Thread(target=self._serve, args=(connection,), name="api-request", daemon=True).start()
        except BaseException:
            self._forget(connection)
            raise

    def _wait(self, milliseconds: float | None, listener: socket.socket | None = None) -> None:
        poll = select.poll()  # select() ends at descriptor 1,024, and the agent holds more
        poll.register(self._wake_reader, select.POLLIN)
        if listener is not None:
            poll.register(listener, select.POLLIN)
        self._busy_since = None
        poll.poll(milliseconds)
        self._busy_since = time.monotonic()

    def _make_room(self, new: _Connection) -> bool:
        """Take it in, and cut off another if need be. False where all are being answered, and where those cut off still hold threads."""
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

    def _forget(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
        connection.socket.close()

    def _serve(self, connection: _Connection) -> None:
        """Thread: one connection's whole life."""
        try:
            with contextlib.suppress(OSError):  # gone, silent, or no TLS: its own affair
                self._answer(connection)
        except Exception as error:  # noqa: BLE001 - a fault of ours, told without its words, which may quote anything
            _log.error("a connection of the API broke off", type=type(error).__name__)
        finally:
            self._forget(connection)

    def _answer(self, connection: _Connection) -> None:
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

    def _encrypt(self, connection: _Connection, context: ssl.SSLContext) -> None:
        """Sends nothing yet: the handshake comes with the first bytes that are read, and within the same time."""
        with self._lock:  # who cuts it off has to find the right one of the two
            if connection.is_cut:
                raise ConnectionAbortedError
            connection.socket = context.wrap_socket(connection.socket, server_side=True, do_handshake_on_connect=False)


def _refuse_at_once(connected: socket.socket, form: Refusal) -> None:
    """On the thread that takes connections, which waits for nobody: what fits into the socket's buffer, which is empty, is sent."""
    with connected, contextlib.suppress(OSError):
        connected.setblocking(False)
        wire = Wire(connected, seconds=0.0, header_bytes=0, form=form)
        wire.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "all connections of the API are taken", "try again in a minute", "busy")
