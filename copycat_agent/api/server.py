"""The agent's HTTP server: commands on a unix socket, health and metrics there and perhaps on a port."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.api.serving import COMMANDS, MOUNTS, Server
from copycat_agent.api.sockets import listen_tcp, listen_unix

if TYPE_CHECKING:
    import socket
    import ssl
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from copycat_agent.api.logins import Logins
    from copycat_agent.control import Control
    from copycat_agent.options import ApiOptions

GRACE_SECONDS = 10.0
"""The HTTP libraries are imported with the first request, or after so long: never in the way of the first record, and not
only when the files on disk may already be those of another version."""
OPEN_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
"""What answers on a port that other hosts reach."""

MakeMounts = Callable[[], Mapping[str, "WSGIApplication"]]

_log = logs.get("api")


@dataclass(frozen=True, slots=True)
class _Port:
    """A listening port, and what its clients have to bring. `is_open`: other hosts reach it."""

    socket: socket.socket
    host: str
    is_open: bool
    logins: Callable[[], Logins] | None
    tls: Callable[[], ssl.SSLContext] | None


class ApiServer:
    """Serves `control` at `socket_path`, and the `mounts` there and at the port of `options`, if it names one.

    `mounts` returns WSGI applications by path (`/metrics`); they answer GET and HEAD, and may be called from several threads.
    It is called once, from a thread of the server's own and not before the first request: there slow imports harm nobody. Where
    it raises, that request is told so, and the next one has it called again.
    """

    def __init__(self, control: Control, socket_path: Path, options: ApiOptions | None = None, mounts: MakeMounts = dict) -> None:
        self._control = control
        self._path = socket_path
        self._options = options
        self._mounts = mounts
        self._servers: list[Server] = []
        self._undo = contextlib.ExitStack()

    def start(self) -> None:
        """Listen from now on; answers come from threads of its own. FatalError when it cannot listen, or a file of the port is no good."""
        options = self._options
        listen = options.listen if options else None
        with contextlib.ExitStack() as undo:
            unix = listen_unix(self._path)
            undo.callback(unix.close)
            port = _open_port(options, undo) if options and listen else None
            late = _Late(self._control, self._mounts, port)
            undo.callback(late.close)
            servers = [Server(unix.socket, late.commands, COMMANDS)]
            undo.callback(servers[0].close)
            if port is not None:
                servers.append(Server(port.socket, late.port, MOUNTS, port.tls))
                undo.callback(servers[1].close)
            self._undo, self._servers = undo.pop_all(), servers
        _log.info("listening", socket=self._path, listen=listen)

    def heartbeat(self) -> float:
        """For how many seconds a thread that takes connections has been stuck, or dead; 0 when none is. For a watchdog."""
        return max((server.heartbeat() for server in self._servers), default=0.0)

    def close(self) -> None:
        """Stop answering and remove the socket. What is being answered is cut off. Idempotent."""
        self._servers = []
        self._undo.close()


def _open_port(options: ApiOptions, undo: contextlib.ExitStack) -> _Port:
    """Listen, once the files of the port are known to be good."""
    listen, logins, tls = options.listen or "", None, None
    if options.users:
        from copycat_agent.api.logins import logins as read_logins  # noqa: PLC0415 - for those who have any

        logins = read_logins(options.users)
    if options.tls:
        from copycat_agent.api.tls import contexts  # noqa: PLC0415 - for those who want it

        tls = contexts(options.tls.cert_file, options.tls.key_file)
    listener, is_loopback = listen_tcp(listen)
    undo.callback(listener.close)
    if logins and not tls and not is_loopback:
        _log.warning("passwords for the API's port cross the network in clear: set api.tls", listen=listen)
    return _Port(listener, listen.rpartition(":")[0], not is_loopback, logins, tls)


class _Late:
    """The applications of both sockets, made when there is a first request, or after a grace."""

    def __init__(self, control: Control, mounts: MakeMounts, port: _Port | None) -> None:
        self._control, self._mounts, self._port = control, mounts, port
        self._lock = threading.Lock()
        self._made: tuple[WSGIApplication, WSGIApplication] | None = None
        self._timer = threading.Timer(GRACE_SECONDS, self._prepare)
        self._timer.name, self._timer.daemon = "api", True
        self._timer.start()

    def close(self) -> None:
        """Nothing is prepared any more."""
        self._timer.cancel()

    def commands(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """What the unix socket answers."""
        return self._answer(0, environ, start_response)

    def port(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """What the port answers."""
        return self._answer(1, environ, start_response)

    def _answer(self, which: int, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            application = self._applications()[which]
        except Exception as error:  # noqa: BLE001 - an upgrade under way, no descriptors: the next request tries again
            words = f"the agent cannot answer now: {type(error).__name__} while its API was prepared"
            _log.error("the API cannot be prepared; the next request tries again", error=error)
            start_response("503 Service Unavailable", [("Content-Type", "application/json")])
            return [json.dumps({"error": words, "hint": "see its log; try again", "kind": "failed"}).encode() + b"\n"]
        return application(environ, start_response)

    def _applications(self) -> tuple[WSGIApplication, WSGIApplication]:
        with self._lock:
            self._timer.cancel()
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> tuple[WSGIApplication, WSGIApplication]:
        from copycat_agent.api.app import Application, Commands, Guard, Mounts  # noqa: PLC0415 - slow, see `GRACE_SECONDS`

        mounts, port = self._mounts(), self._port
        commands = Application(Commands(self._control), Mounts(mounts), Guard(()))
        if port is None:
            return commands, commands
        allowed = {path: mounted for path, mounted in mounts.items() if not port.is_open or path in OPEN_PATHS}
        guard = Guard(None if port.is_open else (port.host,), port.logins)
        return commands, Application(None, Mounts(allowed), guard)

    def _prepare(self) -> None:
        try:
            self._applications()
        except Exception as error:  # noqa: BLE001 - as above
            _log.error("the API cannot be prepared; the next request tries again", error=error)
