"""Which port is free on loopback."""

from __future__ import annotations

import random
import socket

_PORTS = range(20_000, 32_000)
"""Below the range from which Linux takes the client side of connections (32768 up): a port inside that range can be taken
by any outgoing connection while a broker restarts, and a client that retries it on loopback can even reach itself."""
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Whether a server could bind 127.0.0.1:`port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on now, safe to restart a server on. Someone else may still take it first."""
    numbers = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        port = numbers.choice(_PORTS)
        if is_free(port):
            return port
    msg = "no free port between 20000 and 32000 on 127.0.0.1"
    raise OSError(msg)
