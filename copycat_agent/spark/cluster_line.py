"""The line between the driver and each batch on a cluster: over it a batch hears that it shall settle, or that the driver has gone.

A task connects to the driver, as Spark's executors do, and proves with a token of its own which batch it is; then the driver says
one byte, or nothing. What an eavesdropper or a stranger could gain is the end of one batch, which is planned again. Where a firewall
lets no task through, batches run to their bounds.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from typing import NamedTuple

TOKEN_BYTES = 32
_PROOF_SECONDS = 2.0
"""How long who connects may take to send a token."""


class Address(NamedTuple):
    """What a task needs to connect. The token is good for one batch."""

    host: str
    port: int
    token: bytes


class Line:
    """One batch's. Thread-safe."""

    def __init__(self, address: Address | None) -> None:
        """`address` None: there is no way from the executors to here."""
        self.address = address
        self.settled = False
        self._lock = threading.Lock()
        self._peer: socket.socket | None = None
        self._closed = False

    def connect(self, peer: socket.socket) -> None:
        """The batch has come up; one that was told to settle before hears it now."""
        with self._lock:
            before, self._peer = self._peer, peer  # Spark may have started the task anew
        if before is not None:
            before.close()
        if self._closed:
            self.close()
        elif self.settled:
            self.settle()

    def settle(self) -> None:
        """The batch shall settle."""
        self.settled = True
        with self._lock:
            peer = self._peer
        if peer is not None:
            with contextlib.suppress(OSError):
                peer.send(b"s", socket.MSG_DONTWAIT)

    @property
    def is_connected(self) -> bool:
        """Whether the batch has come up and can hear."""
        return self._peer is not None

    def close(self) -> None:
        """The batch is over, or given up: if it still runs, it settles."""
        with self._lock:
            self._closed = True
            peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()


class Exchange:
    """Where the lines end."""

    def __init__(self, bind: str, host: str) -> None:
        """Listens on `bind`, reached as `host`. Where that is not possible there are no lines."""
        self._lines: dict[bytes, Line] = {}
        self._host = host
        self._server: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._server = socket.create_server((bind, 0), family=socket.AF_INET6 if ":" in bind else socket.AF_INET)
            threading.Thread(target=self._serve, args=(self._server,), name="cluster-lines", daemon=True).start()

    def line(self) -> Line:
        """One for a new batch."""
        if self._server is None:
            return Line(None)
        token = secrets.token_bytes(TOKEN_BYTES)
        line = self._lines[token] = Line(Address(self._host, self._server.getsockname()[1], token))
        return line

    def end(self, line: Line) -> None:
        """Its batch is over."""
        if line.address is not None:
            self._lines.pop(line.address.token, None)
        line.close()

    def close(self) -> None:
        """No line can be opened any more, and those that are hang up."""
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # wakes `accept`
            self._server.close()
        for line in list(self._lines.values()):
            self.end(line)

    def _serve(self, server: socket.socket) -> None:
        """Thread: one caller after the other; nobody is waited for long."""
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            line = self._lines.get(_proof(peer))
            if line is None:
                peer.close()
            else:
                line.connect(peer)


def _proof(peer: socket.socket) -> bytes:
    """The token that it sends, b"" when none comes."""
    data = b""
    with contextlib.suppress(OSError):
        peer.settimeout(_PROOF_SECONDS)
        while len(data) < TOKEN_BYTES and (more := peer.recv(TOKEN_BYTES - len(data))):
            data += more
    return data
