"""The agent's HTTP server: commands on a unix socket, health and metrics there and on loopback."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.api.sockets import listen_loopback, listen_unix

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from copycat_agent.api.serving import Server
    from copycat_agent.control import Control

GRACE_SECONDS = 10.0
"""The HTTP libraries are imported with the first connection, or after so long: never in the way of the first record, and not
only when the files on disk may already be those of another version."""
_CLOSE_SECONDS = 10.0

MakeMounts = Callable[[], Mapping[str, "WSGIApplication"]]

_log = logs.get("api")


class ApiServer:
    """Serves `control` at `socket_path`, and the `mounts` there and at `listen` (HOST:PORT of loopback; None: not at all).

    `mounts` returns WSGI applications by path (`/metrics`); they answer GET and HEAD, and may be called from several threads.
    It is called once, from a thread of the server's own and not before the first connection: there slow imports harm nobody.
    """

    def __init__(self, control: Control, socket_path: Path, listen: str | None = None, mounts: MakeMounts = dict) -> None:
        self._control = control
        self._path = socket_path
        self._listen = listen
        self._mounts = mounts
        self._undo = contextlib.ExitStack()

    def start(self) -> None:
        """Listen from now on; answers come from threads of its own. FatalError when it cannot listen (see `sockets`)."""
        with contextlib.ExitStack() as undo:
            unix = listen_unix(self._path)
            undo.callback(unix.close)
            tcp = listen_loopback(self._listen) if self._listen else None
            if tcp is not None:
                undo.callback(tcp.close)
            undo.callback(_Serving(self._control, self._mounts, unix.socket, tcp, self._listen or "").close)
            self._undo = undo.pop_all()
        _log.info("listening", socket=self._path, listen=self._listen)

    def close(self) -> None:
        """Stop answering and remove the socket. What is being answered is cut off. Idempotent."""
        self._undo.close()


class _Serving:
    """The thread that waits for the first connection, and the servers it then becomes."""

    def __init__(self, control: Control, mounts: MakeMounts, unix: socket.socket, tcp: socket.socket | None, listen: str) -> None:
        self._control, self._mounts, self._unix, self._tcp, self._listen = control, mounts, unix, tcp, listen
        self._servers: list[Server] = []
        self._lock = threading.Lock()
        self._closed = False
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all threads that wait for requests."""
        with self._lock:
            self._closed = True
            servers = list(self._servers)
        os.write(self._wake_writer, b"x")
        for server in servers:
            server.close()
        self._thread.join(_CLOSE_SECONDS)
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _run(self) -> None:
        poll = select.poll()
        for one in (self._unix, self._tcp, self._wake_reader):
            if one is not None:
                poll.register(one, select.POLLIN)
        poll.poll(GRACE_SECONDS * 1000)
        if not self._closed:
            self._serve()

    def _serve(self) -> None:
        from copycat_agent.api.serving import serve_commands, serve_mounts  # noqa: PLC0415 - slow, see `GRACE_SECONDS`

        mounts = self._mounts()
        with self._lock:
            if self._closed:
                return
            self._servers.append(serve_commands(self._unix, self._control, mounts))
            if self._tcp is not None:
                self._servers.append(serve_mounts(self._tcp, self._listen, mounts))
