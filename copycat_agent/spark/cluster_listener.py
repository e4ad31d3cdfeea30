"""Accepts runners on other hosts: over TCP and TLS, with a certificate for this purpose alone and a key that travels with their jobs."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import NamedTuple, cast

from copycat_agent import logs
from copycat_agent.runner import Answer, Hello, LogMessage, Report, RunnerHeartbeat
from copycat_agent.spark.runner_connections import RunnerConnection
from copycat_agent.tls_channel import TlsChannel

QUIET_SECONDS = 8.0
"""A runner that has a batch and is silent for this long counts as dead: it sends something every `runner.BEAT_SECONDS`."""

MOST_STRANGERS = 64
"""Most connections at a time that have not proved the key; each has `tls_channel.MEET_SECONDS` for that."""
_BACKLOG = 512
_AGAIN_SECONDS = 1.0
_VALID_DAYS = 3650  # not checked: the hash is what counts

_log = logs.get("spark")


class ListenerAddress(NamedTuple):
    """The address and secrets that a runner needs to connect. Sent with its job, in memory."""

    host: str
    port: int
    key: bytes
    certificate: bytes


class RemoteRunnerConnection(RunnerConnection):
    """The link to a runner on an executor, which cannot be killed from here: disconnected, it ends its batches; else Spark ends its job."""

    def __init__(self, channel: TlsChannel, known: Callable[[], None]) -> None:
        """`known` is called once: when the runner has proved the key, or is gone."""
        super().__init__(cast("Connection", channel))
        self.host = ""
        self._channel = channel
        self._known: Callable[[], None] | None = known
        self._heard_at = 0.0

    @property
    def name(self) -> str:
        return f"runner {self.index} (pid {self.pid} on {self.host})"

    def receive(self, key: bytes) -> Iterator[Hello | Answer | RunnerHeartbeat | Report | LogMessage]:
        for message in super().receive(key):
            self._heard_at = time.monotonic()
            if self._known is not None:
                self._channel.trust()
                self._is_known()
            if isinstance(message, Hello):
                self.pid, self.host = message.pid, message.host
                _log.info("a process of an executor takes batches", runner=message.runner, host=self.host, pid=self.pid)
            yield message

    def is_stopped(self) -> bool:
        """Returns whether it has a batch and has been silent for longer than `QUIET_SECONDS`."""
        since = max(self._heard_at, min((one.sent_at for one in self.pending.values()), default=float("inf")))
        return time.monotonic() - since > QUIET_SECONDS

    def release(self) -> None:
        self._is_known()
        super().release()

    def _meet(self) -> None:
        self._channel.meet()

    def _is_known(self) -> None:
        known, self._known = self._known, None
        if known is not None:
            known()


class ClusterListener:
    """The driver's listening socket for runners."""

    def __init__(self, bind: str, host: str) -> None:
        """Listens on `bind`, which runners reach as `host`. Raises OSError."""
        self._context, certificate = identity()
        self._closed = threading.Event()
        self._strangers = threading.Semaphore(MOST_STRANGERS)
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._socket = socket.create_server((bind, 0), family=family, backlog=_BACKLOG)
        self.address = ListenerAddress(host, self._socket.getsockname()[1], secrets.token_bytes(32), certificate)

    def accept(self) -> RemoteRunnerConnection | None:
        """Returns the next connection, which has yet to prove the key; None once the listener is closed."""
        self._strangers.acquire()
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError as error:
                if self._closed.is_set():
                    return None
                _log.error("no process of batches can be let in now, and it is tried again", error=error)
                self._closed.wait(_AGAIN_SECONDS)
                continue
            return RemoteRunnerConnection(TlsChannel(peer, self._context, is_server=True), self._strangers.release)

    def close(self) -> None:
        """Stops listening: `accept` returns None from now on."""
        self._closed.set()
        self._strangers.release()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which close() does not
        self._socket.close()


def identity() -> tuple[ssl.SSLContext, bytes]:
    """Returns a TLS context with a new key and certificate, which are never on disk, and the certificate's SHA-256."""
    from cryptography import x509  # noqa: PLC0415 - takes 0.1 s, and an agent without a cluster does not need it
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "copycat-agent")])
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=_VALID_DAYS))
        .sign(key, hashes.SHA256())
    )
    encoded = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    memory = os.memfd_create("identity")
    try:
        os.write(memory, key.private_bytes(*encoded) + made.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(f"/proc/self/fd/{memory}")  # OpenSSL reads it only from a file
    finally:
        os.close(memory)
    return context, hashlib.sha256(made.public_bytes(serialization.Encoding.DER)).digest()
