"""Messages over TCP and TLS, between two processes of which one knows the other's certificate by its hash.

Imports the standard library only: executors run this, and may have nothing else. A channel has the methods that `multiprocessing` needs of
a connection, so that both ends can prove a key over it. TLS runs in memory, apart from the socket, since `ssl` lets no thread send while
another one waits to receive.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
import threading
import time

MEET_SECONDS = 10.0
"""Limit of the time in which an end has to become trusted, by the handshake and the key; connecting takes no longer either."""

_LENGTH = struct.Struct("!Q")
_BLOCK_BYTES = 2**18
_OPTIONS = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000, "TCP_NODELAY": 1}
"""The connection breaks after 14 s without a sign of the other host, or 15 s (in ms) in which sent data is not acknowledged."""


class TlsChannel:
    """One end. One thread receives, any thread sends. Methods raise OSError when the other end is gone, EOFError when it has closed."""

    def __init__(self, peer: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        """`peer` is connected, and is owned by this object from now on. `meet` has to be called first."""
        self._peer = peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._sending = threading.Lock()  # keeps the order of TLS records on the wire
        self._state = threading.Lock()  # guards TLS and both of its ends
        self._received = bytearray()
        self._trusted_by = time.monotonic() + MEET_SECONDS

    def meet(self) -> None:
        """Performs the TLS handshake. If `trust` is not called within `MEET_SECONDS` of the construction, methods raise TimeoutError."""
        self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS.items():
            if hasattr(socket, name):
                self._peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._take_in()
            else:
                self._flush()
                return

    def trust(self) -> None:
        """Called when the other end has proved the key: it has no time limit from now on."""
        self._trusted_by = float("inf")
        self._peer.settimeout(None)

    @property
    def certificate(self) -> bytes:
        """Returns the SHA-256 of the other end's certificate."""
        return hashlib.sha256(self._tls.getpeercert(binary_form=True) or b"").digest()

    def send_bytes(self, data: bytes) -> None:
        """Sends a message. Blocks while the other end does not receive."""
        with self._sending:
            with self._state:
                for part in (_LENGTH.pack(len(data)), data):
                    sent = 0
                    while sent < len(part):
                        sent += self._tls.write(part[sent:])
                sealed = self._outgoing.read()
            self._limit()
            self._peer.sendall(sealed)

    def recv_bytes(self, maxlength: int | None = None) -> bytes:
        """Returns the next message. Raises OSError for one that is longer than `maxlength`."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if maxlength is not None and length > maxlength:
            raise OSError("the message is longer than any that can come now")
        return self._read(length)

    def fileno(self) -> int:
        """Returns the socket's file descriptor."""
        return self._peer.fileno()

    def close(self) -> None:
        """Closes the socket."""
        self._peer.close()

    def _read(self, count: int) -> bytes:
        while len(self._received) < count:
            with self._state:
                try:
                    plain: bytes | None = self._tls.read(_BLOCK_BYTES)
                except ssl.SSLWantReadError:
                    plain = None
                except ssl.SSLZeroReturnError:
                    plain = b""
            if plain is None:
                self._take_in()
            elif plain:
                self._received += plain
            else:
                raise EOFError
        found = bytes(self._received[:count])
        del self._received[:count]
        return found

    def _limit(self) -> None:
        """Limits the next call of the socket to the time that is left, as long as the other end is not trusted."""
        if self._trusted_by == float("inf"):
            return
        left = self._trusted_by - time.monotonic()
        if left <= 0:
            raise TimeoutError("the other end took too long to prove who it is")
        self._peer.settimeout(left)

    def _take_in(self) -> None:
        self._limit()
        sealed = self._peer.recv(_BLOCK_BYTES)
        if not sealed:
            raise EOFError
        with self._state:
            self._incoming.write(sealed)

    def _flush(self) -> None:
        if sealed := self._outgoing.read():
            self._limit()
            self._peer.sendall(sealed)


def connect(host: str, port: int, certificate: bytes) -> TlsChannel:
    """Connects to the process with the certificate of this hash. Raises OSError, also for another certificate, and EOFError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the hash counts, not the signature
    channel = TlsChannel(socket.create_connection((host, port), MEET_SECONDS), context, is_server=False)
    try:
        channel.meet()
    except BaseException:
        channel.close()
        raise
    if not hmac.compare_digest(channel.certificate, certificate):
        channel.close()
        raise OSError("somebody else answers there")
    return channel
