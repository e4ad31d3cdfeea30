"""Where the agent listens: a unix socket that is ours alone, and perhaps a port."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from copycat_agent.errors import FatalError
from copycat_agent.probe import SOCKET_NAME

PATH_BYTES_MAX = 107
"""The kernel's bound on a unix socket's path."""
BACKLOG = 64
_PORT_MAX = 65_535
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def socket_path(option: Path | None, configured: str | None, state_dir: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the agent listens: `--socket`, else `api.socket`, else the runtime directory, else the state directory."""
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


def listen_tcp(listen: str) -> tuple[socket.socket, bool]:
    """Listen at HOST:PORT, and whether only this host reaches it. Raises FatalError when that is no address of this host or is taken.

    A name with several addresses gets its first IPv4 one, else its first.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise FatalError(f"api.listen: {listen} is not HOST:PORT", "write 127.0.0.1:9464, or 0.0.0.0:9464 for other hosts")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise FatalError(f"api.listen: {host} has no address: {error.strerror}", "write 127.0.0.1:PORT") from error
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        why = "another program uses this port" if error.errno == errno.EADDRINUSE else error.strerror
        raise FatalError(f"api.listen: cannot listen at {listen}: {why}", "choose another port for api.listen in agent.yaml") from error
    listener.setblocking(False)
    return listener, ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
