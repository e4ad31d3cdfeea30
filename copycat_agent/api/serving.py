"""The door to waitress: one loop thread and a few workers per listening socket, bounded against clients that mean no good.

A connection lives for `CONNECTION_SECONDS` unless a request of it is being answered, so that headers that trickle in hold a
place only so long; one that does not read its answer is cut off after as long. Bodies are read by the loop, not by a worker.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher

from copycat_agent.api.app import Application, Commands, Guard, Mounts
from copycat_agent.api.client import BODY_BYTES_MAX

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from copycat_agent.control import Control

CONNECTION_SECONDS = 30.0
SWEEP_SECONDS = 5.0
"""How often slow connections are looked for, while there are any."""
_CLOSE_SECONDS = 5.0
_IDLE_SECONDS = 3600.0
_WATERMARK_BYTES = 2**20
"""A worker that has so much to send waits for the client to read it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one listening socket. A body beyond `body_bytes` is refused, and so are headers beyond `header_bytes`."""

    threads: int
    connections: int
    body_bytes: int
    header_bytes: int = 16 * 1024


COMMANDS = Limits(threads=8, connections=64, body_bytes=BODY_BYTES_MAX)
"""Of the unix socket."""
MOUNTS = Limits(threads=2, connections=32, body_bytes=16 * 1024)
"""Of the port, which any user of this host reaches: nothing it takes has a body."""


def serve_commands(listener: socket.socket, control: Control, mounts: Mapping[str, WSGIApplication]) -> Server:
    """Answer commands, and what is mounted, on a unix socket."""
    application = Application(Commands(control), Mounts(mounts), Guard(()))
    return Server(listener, application, COMMANDS)


def serve_mounts(listener: socket.socket, listen: str, mounts: Mapping[str, WSGIApplication]) -> Server:
    """Answer what is mounted, on a port; `listen` is how it was written, whose host clients may use as well."""
    application = Application(None, Mounts(mounts), Guard((listen.rpartition(":")[0],)))
    return Server(listener, application, MOUNTS)


class Server:
    """Serves one listening socket until `close`."""

    def __init__(self, listener: socket.socket, application: Callable[..., Any], limits: Limits) -> None:
        for name in ("waitress", "waitress.queue"):
            logging.getLogger(name).setLevel(logging.ERROR)  # its warnings are about what clients do
        # `map` starts with the listening socket and the loop's own wake-up, which do not count
        adjustments = Adjustments(
            sockets=[listener], threads=limits.threads, connection_limit=limits.connections + 2, max_request_body_size=limits.body_bytes,
            max_request_header_size=limits.header_bytes, inbuf_overflow=limits.body_bytes + 1, outbuf_overflow=16 * _WATERMARK_BYTES,
            outbuf_high_watermark=_WATERMARK_BYTES, log_socket_errors=False, ident="copycat", server_name="localhost",
        )  # fmt: skip
        self._map: dict[int, Any] = {}
        self._tasks = ThreadedTaskDispatcher()
        self._tasks.set_thread_count(limits.threads)
        sockinfo = (listener.family, listener.type, listener.proto, listener.getsockname())
        self._server = _Listener(
            application, self._map, _sock=listener, dispatcher=self._tasks, adj=adjustments, sockinfo=sockinfo, bind_socket=False
        )  # fmt: skip
        self._closing = False
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name="api-loop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cut off every connection and end the threads. Workers that wait for the agent end by themselves."""
        with self._ending:
            self._closing = True
            self._server.pull_trigger()
        self._thread.join(_CLOSE_SECONDS)
        self._tasks.set_thread_count(0)

    def _loop(self) -> None:
        """Poll, never select: the agent holds more than 1,024 files open. Wakes by itself only while there are connections."""
        while not self._closing:
            self._server.sweep(time.time())
            wasyncore.poll2(SWEEP_SECONDS if self._server.channels() else _IDLE_SECONDS, self._map)
        with self._ending:  # it may have woken for another reason: what would wake it is not closed under the hand that pulls
            pass
        wasyncore.close_all(self._map, ignore_all=True)


class _Refusal(ErrorTask):
    """What waitress refuses by itself, in the words and the form of all other answers."""

    def execute(self) -> None:
        """Answer with JSON instead of text."""
        error = cast("Any", self.request).error
        words = {413: "the body of the request is too large", 431: "the headers of the request are too large"}.get(error.code, error.reason)
        content = json.dumps({"error": words, "hint": "", "kind": "refused"}).encode()
        self.status = f"{error.code} {error.reason}"
        self.response_headers = [("Content-Type", "application/json")]
        self.set_close_on_finish()
        self.content_length = len(content)
        self.write(content)


class _Channel(HTTPChannel):
    error_task_class = _Refusal


class _Listener(BaseWSGIServer):
    """A waitress server of either family, on a socket that is bound and stays ours."""

    channel_class = _Channel
    next_channel_cleanup = 2**62
    """Waitress' own sweep is off: it asks a connection to end itself, which waits until the client takes something."""

    def channels(self) -> list[HTTPChannel]:
        """The open connections."""
        return list(cast("dict[int, HTTPChannel]", self.active_channels).values())

    def getsockname(self) -> tuple[str, str]:
        """For the environment of applications, which do not use it."""
        return "localhost", "0"

    def set_reuse_addr(self) -> None:
        """Done where it was bound."""

    def accept_connections(self) -> None:
        """It listens already."""
        self.accepting = True

    def fix_addr(self, _addr: object) -> tuple[str, None]:
        """Nobody asks where a client on this host comes from."""
        return "localhost", None

    def sweep(self, now: float) -> None:
        """Cut off what has had its time, see the module. Called by the loop, between two rounds; `now` as waitress has it."""
        for channel in self.channels():
            waits_for_reader = channel.total_outbufs_len and channel.last_activity < now - CONNECTION_SECONDS
            if waits_for_reader or (not channel.requests and channel.creation_time < now - CONNECTION_SECONDS):
                channel.will_close = True
                channel.handle_close()
