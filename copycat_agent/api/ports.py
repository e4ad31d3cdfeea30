"""Opens the ports that `agent.yaml` names: for health and metrics, Kafka Connect's REST API, and the page.

The last two show more: open to other hosts they require TLS and logins.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.api.connections import CONNECT, MOUNTS, PAGE, ListenerLimits
from copycat_agent.errors import FatalError

if TYPE_CHECKING:
    from copycat_agent.api.port_access import Logins
    from copycat_agent.options import ApiOptions

BACKLOG = 64
_PORT_MAX = 65_535
_EXAMPLES = {
    "api.listen": "127.0.0.1:9464, or 0.0.0.0:9464 for other hosts",
    "api.connect.listen": "127.0.0.1:8083",
    "api.page.listen": "127.0.0.1:8090",
}

_log = logs.get("api")


@dataclass(frozen=True, slots=True)
class Port:
    """A listening port, with its logins and TLS contexts. `is_open`: other hosts reach it. `limits` also tell which application it is."""

    socket: socket.socket
    listen: str
    is_open: bool
    limits: ListenerLimits
    logins: Callable[[], Logins] | None
    tls: Callable[[], ssl.SSLContext] | None

    @property
    def host(self) -> str:
        """Returns the host of its configured address."""
        return self.listen.rpartition(":")[0]

    @property
    def worker_id(self) -> str:
        """Returns HOST:PORT for clients, with this host's name if it listens on all addresses."""
        address = ipaddress.ip_address(str(self.socket.getsockname()[0]).partition("%")[0])
        return f"{socket.gethostname() if address.is_unspecified else self.host}:{self.socket.getsockname()[1]}"

    @property
    def scheme(self) -> str:
        """Returns `http` or `https`."""
        return "https" if self.tls else "http"

    @property
    def origin(self) -> str:
        """Returns its URL, such as `http://127.0.0.1:8090`."""
        return f"{self.scheme}://{self.worker_id}"


def open_ports(options: ApiOptions, undo: contextlib.ExitStack) -> list[Port]:
    """Opens the ports, after their files were checked; `undo` closes them.

    Raises FatalError if one cannot be opened, or must not be open to other hosts.
    """
    wanted = list(_wanted(options))
    logins, tls = None, None
    if wanted and options.users:
        from copycat_agent.api.port_access import logins as read_logins  # noqa: PLC0415 - for those who have any

        logins = read_logins(options.users)
    if wanted and options.tls:
        from copycat_agent.api.port_access import contexts  # noqa: PLC0415 - for those who want it

        tls = contexts(options.tls.cert_file, options.tls.key_file)
    ports = []
    for listen, option, limits in wanted:
        listener, is_loopback = listen_tcp(listen, option)
        undo.callback(listener.close)
        if limits is not MOUNTS and not is_loopback and not (logins and tls):
            words = f"{option}: other hosts reach {listen}, so it needs api.tls and api.users"
            raise FatalError(words, f"set both in agent.yaml, or listen at {_EXAMPLES[option]}")
        if logins and not tls and not is_loopback:
            _log.warning("passwords for the API's port cross the network in clear: set api.tls", listen=listen)
        ports.append(Port(listener, listen, not is_loopback, limits, logins, tls))
    return ports


def _wanted(options: ApiOptions) -> Iterator[tuple[str, str, ListenerLimits]]:
    """Yields address, option and limits of each port."""
    if options.listen:
        yield options.listen, "api.listen", MOUNTS
    if options.connect:
        yield options.connect.listen, "api.connect.listen", CONNECT
    if options.page:
        yield options.page.listen, "api.page.listen", PAGE


def listen_tcp(listen: str, option: str = "api.listen") -> tuple[socket.socket, bool]:
    """Listens at HOST:PORT. Returns the socket, and whether only this host reaches it. Raises FatalError, which names `option`.

    Of a name with several addresses the first IPv4 address is used, else the first one.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise FatalError(f"{option}: {listen} is not HOST:PORT", f"write {_EXAMPLES[option]}")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise FatalError(f"{option}: {host} has no address: {error.strerror}", "write 127.0.0.1:PORT") from error
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        why = "another program uses this port" if error.errno == errno.EADDRINUSE else error.strerror
        raise FatalError(f"{option}: cannot listen at {listen}: {why}", f"choose another port for {option} in agent.yaml") from error
    listener.setblocking(False)
    return listener, ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
