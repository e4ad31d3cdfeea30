"""The agent's HTTP server: commands, health and metrics on a private unix socket, and the ports of section `api`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.api.connections import COMMANDS, CONNECT, PAGE, Server
from copycat_agent.api.guard import Guard
from copycat_agent.api.messages import Refusal
from copycat_agent.api.ports import BACKLOG, Port, open_ports
from copycat_agent.api.rate_history import RateHistory
from copycat_agent.errors import FatalError
from copycat_agent.probe import SOCKET_NAME

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from copycat_agent.control import Control
    from copycat_agent.options import ApiOptions

PATH_BYTES_MAX = 107
"""The kernel's limit on the path of a unix socket."""
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def socket_path(option: Path | None, configured: str | None, state_dir: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the socket's path: `--socket`, else `api.socket`, else in the runtime directory, else in the state directory."""
    chosen = option or (Path(configured) if configured else None)
    return (chosen or (runtime_dir(environ) or state_dir) / SOCKET_NAME).absolute()


def runtime_dir(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the service's runtime directory from systemd (the first of several), None outside a service."""
    named = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(named) if named else None


@dataclass(frozen=True, slots=True)
class UnixListener:
    """A listening socket and its file."""

    socket: socket.socket
    path: Path
    identity: tuple[int, int]
    """Device and inode of the file."""

    def close(self) -> None:
        """Stops listening and removes the file, unless another agent has replaced it."""
        with contextlib.suppress(OSError):
            status = self.path.lstat()
            if (status.st_dev, status.st_ino) == self.identity:
                self.path.unlink()
        self.socket.close()


def listen_unix(path: Path) -> UnixListener:
    """Listens at `path` (mode 0600). Its directory is created, or must belong to this user and be closed to all others.

    A dead agent's socket is replaced. Raises FatalError if a living agent answers there, the file is no socket, or the path is too long.
    """
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        hint = "name a shorter one with --socket, or as api.socket in agent.yaml"
        raise FatalError(f"the path of the agent's socket has more than {PATH_BYTES_MAX} bytes: {path}", hint)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _private_directory(path.parent):
            _clear(path)
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen(BACKLOG)
            status = path.lstat()
    except OSError as error:
        listener.close()
        raise FatalError(
            f"the agent's socket {path} cannot be used: {error.strerror or error}", "name another one with --socket"
        ) from error
    except FatalError:
        listener.close()
        raise
    listener.setblocking(False)
    return UnixListener(listener, path, (status.st_dev, status.st_ino))


@contextlib.contextmanager
def _private_directory(directory: Path) -> Iterator[None]:
    """Checks that other users cannot reach the directory, and locks it meanwhile, so that two agents take turns."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory, _DIRECTORY_FLAGS)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            hint = f"chmod 700 {directory}, in a systemd unit RuntimeDirectoryMode=0700, or name a socket elsewhere with --socket"
            raise FatalError(
                f"others can reach the directory of the agent's socket, {directory} (mode {mode:o}, user {status.st_uid})", hint
            )
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _clear(path: Path) -> None:
    """Removes a socket without a listener. Raises FatalError for one with a listener, or any other file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FatalError(f"{path} is there and is no socket", "name another one with --socket, or move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except (TimeoutError, BlockingIOError):
            pass  # its backlog is full, so an agent has it
    raise FatalError(f"another agent answers at {path}", "stop it first, or give this one a socket of its own with --socket")


GRACE_SECONDS = 10.0
"""The HTTP libraries, which take 0.15 s, are imported at the first request, or after this time: they do not delay the first record, nor
are they imported months later, when another version may be installed."""
OPEN_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that a port serves to other hosts."""

MakeMounts = Callable[[], Mapping[str, "WSGIApplication"]]

_log = logs.get("api")


class ApiServer:
    """Serves `control` at `socket_path`, and the `mounts`, Kafka Connect's REST API or the page at the ports of `options`.

    `mounts` returns WSGI applications by path (`/metrics`), which answer GET and HEAD and must be thread-safe. It is called once, on a
    thread of the server and not before the first request, so that slow imports delay nothing else. If it raises, this request fails, and
    the next one calls it again.
    """

    def __init__(self, control: Control, socket_path: Path, options: ApiOptions | None = None, mounts: MakeMounts = dict) -> None:
        self._control = control
        self._path = socket_path
        self._options = options
        self._mounts = mounts
        self._servers: list[Server] = []
        self._undo = contextlib.ExitStack()
        self.page = ""
        """URL of the page, "" if it is not served."""

    def start(self) -> None:
        """Starts listening. Threads of its own answer. Raises FatalError if it cannot listen, or a file of a port is invalid."""
        with contextlib.ExitStack() as undo:
            unix = listen_unix(self._path)
            undo.callback(unix.close)
            ports = open_ports(self._options, undo) if self._options else []
            history = RateHistory(self._control.statuses)
            undo.callback(history.close)
            late = _LazyApplications(self._control, self._mounts, ports, history, self._path)
            undo.callback(late.close)
            servers = [Server(unix.socket, partial(late.answer, 0, COMMANDS.form), COMMANDS)]
            undo.callback(servers[0].close)
            for number, port in enumerate(ports, 1):
                servers.append(Server(port.socket, partial(late.answer, number, port.limits.form), port.limits, port.tls))
                undo.callback(servers[-1].close)
            self.page = next((port.origin for port in ports if port.limits is PAGE), "")
            history.start()
            self._undo, self._servers = undo.pop_all(), servers
        _log.info("listening", socket=self._path, listen=" ".join(port.listen for port in ports) or None)

    def heartbeat(self) -> float:
        """Returns for how many seconds an accepting thread has been stuck, or dead; 0 without such a thread. For a watchdog."""
        return max((server.heartbeat() for server in self._servers), default=0.0)

    def close(self) -> None:
        """Stops serving and removes the socket. Requests under way are cut off. Idempotent."""
        self._servers = []
        self._undo.close()


class _LazyApplications:
    """The applications of all sockets, created at the first request, or after `GRACE_SECONDS`."""

    def __init__(self, control: Control, mounts: MakeMounts, ports: Sequence[Port], history: RateHistory, path: Path) -> None:
        self._control, self._mounts, self._ports, self._history, self._path = control, mounts, ports, history, path
        self._lock = threading.Lock()
        self._made: list[WSGIApplication] = []
        self._timer = threading.Timer(GRACE_SECONDS, self._prepare)
        self._timer.name, self._timer.daemon = "api", True
        self._timer.start()

    def close(self) -> None:
        """Stops the timer that would create the applications."""
        self._timer.cancel()

    def answer(self, which: int, form: Refusal, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers a request at the unix socket (0) or at a port, numbered from 1."""
        try:
            application = self._applications()[which]
        except Exception as error:  # noqa: BLE001 - such as an upgrade under way, or no descriptors: the next request tries again
            words = f"the agent cannot answer now: {type(error).__name__} while its API was prepared"
            _log.error("the API cannot be prepared; the next request tries again", error=error)
            start_response("503 Service Unavailable", [("Content-Type", "application/json")])
            return [json.dumps(form(HTTPStatus.SERVICE_UNAVAILABLE, words, "see its log; try again", "failed")).encode() + b"\n"]
        return application(environ, start_response)

    def _applications(self) -> list[WSGIApplication]:
        with self._lock:
            self._timer.cancel()
            if not self._made:
                self._made = self._make()
            return self._made

    def _make(self) -> list[WSGIApplication]:
        from copycat_agent.api.app import Application, Commands  # noqa: PLC0415 - slow, see `GRACE_SECONDS`

        mounts = self._mounts()
        made: list[WSGIApplication] = [Application(Commands(self._control, self._history), mounts, Guard(()))]
        for port in self._ports:
            hosts = None if port.is_open else (port.host,)
            if port.limits is CONNECT:
                from copycat_agent.api.connect.rest_app import ConnectRest  # noqa: PLC0415 - for those who want it

                made.append(ConnectRest(self._control, Guard(hosts, port.logins), port.worker_id, port.origin))
            elif port.limits is PAGE:
                from copycat_agent.api.page.child_commands import ChildCommands  # noqa: PLC0415 - for those who want it
                from copycat_agent.api.page.page_app import PageApp  # noqa: PLC0415 - as above

                guard = Guard(hosts, port.logins, port.scheme)
                made.append(PageApp(self._control, guard, self._history, ChildCommands(self._path)))
            else:
                allowed = {path: mounted for path, mounted in mounts.items() if not port.is_open or path in OPEN_PATHS}
                made.append(Application(None, allowed, Guard(hosts, port.logins)))
        return made

    def _prepare(self) -> None:
        try:
            self._applications()
        except Exception as error:  # noqa: BLE001 - as above
            _log.error("the API cannot be prepared; the next request tries again", error=error)
