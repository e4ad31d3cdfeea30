"""The agent's HTTP server: commands on a unix socket that is ours alone, health and metrics there, and what `api` opens ports for."""

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
"""The kernel's bound on a unix socket's path."""
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def socket_path(option: Path | None, configured: str | None, state_dir: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the socket's path: `--socket`, else `api.socket`, else in the runtime directory, else in the state directory."""
    chosen = option or (Path(configured) if configured else None)
    return (chosen or (runtime_dir(environ) or state_dir) / SOCKET_NAME).absolute()


def runtime_dir(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The directory systemd gave us for sockets (the first, if there are several), None outside of a service."""
    named = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(named) if named else None


@dataclass(frozen=True, slots=True)
class UnixListener:
    """A listening socket and the file that stands for it."""

    socket: socket.socket
    path: Path
    identity: tuple[int, int]
    """Device and inode of the file."""

    def close(self) -> None:
        """Stop listening and remove the file, unless another agent has put its own there."""
        with contextlib.suppress(OSError):
            status = self.path.lstat()
            if (status.st_dev, status.st_ino) == self.identity:
                self.path.unlink()
        self.socket.close()


def listen_unix(path: Path) -> UnixListener:
    """Listen at `path` (0600). Its directory is created, or has to be ours and closed to everybody else.

    What a dead agent left there is replaced. Raises FatalError when a living one answers there, when something else lies
    there, and when the path is too long for a socket.
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
    """Make sure that nobody else can reach what lies in it; hold its lock, so that of two agents one is first."""
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
    """Remove a socket that nobody listens to."""
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
            pass  # its backlog is full: it lives
    raise FatalError(f"another agent answers at {path}", "stop it first, or give this one a socket of its own with --socket")


GRACE_SECONDS = 10.0
"""The HTTP libraries, which take 0.15 s, are imported with the first request, or after so long: never in the way of the first record, and
not months later, when the files on disk may already be those of another version."""
OPEN_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are served on a port that other hosts can reach."""

MakeMounts = Callable[[], Mapping[str, "WSGIApplication"]]

_log = logs.get("api")


class ApiServer:
    """Serves `control` at `socket_path`, and at the ports that `options` name the `mounts`, Kafka Connect's REST API, or the page.

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
        self.page = ""
        """Where a browser finds the page, "" where it is not served."""

    def start(self) -> None:
        """Listen from now on; answers come from threads of its own. FatalError when it cannot listen, or a file of the port is no good."""
        with contextlib.ExitStack() as undo:
            unix = listen_unix(self._path)
            undo.callback(unix.close)
            ports = open_ports(self._options, undo) if self._options else []
            history = RateHistory(self._control.statuses)
            undo.callback(history.close)
            late = _Late(self._control, self._mounts, ports, history, self._path)
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
        """For how many seconds a thread that takes connections has been stuck, or dead; 0 when none is. For a watchdog."""
        return max((server.heartbeat() for server in self._servers), default=0.0)

    def close(self) -> None:
        """Stop answering and remove the socket. What is being answered is cut off. Idempotent."""
        self._servers = []
        self._undo.close()


class _Late:
    """The applications of all sockets, made when there is a first request, or after a grace."""

    def __init__(self, control: Control, mounts: MakeMounts, ports: Sequence[Port], history: RateHistory, path: Path) -> None:
        self._control, self._mounts, self._ports, self._history, self._path = control, mounts, ports, history, path
        self._lock = threading.Lock()
        self._made: list[WSGIApplication] = []
        self._timer = threading.Timer(GRACE_SECONDS, self._prepare)
        self._timer.name, self._timer.daemon = "api", True
        self._timer.start()

    def close(self) -> None:
        """Stop the timer that would prepare the applications."""
        self._timer.cancel()

    def answer(self, which: int, form: Refusal, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request of the unix socket (0) or of a port, by its number from 1."""
        try:
            application = self._applications()[which]
        except Exception as error:  # noqa: BLE001 - an upgrade under way, no descriptors: the next request tries again
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
