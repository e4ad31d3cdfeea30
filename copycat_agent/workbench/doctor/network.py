"""Checks the layers of a broker's address over plain sockets: DNS, TCP, TLS, Kafka's ApiVersions and SaslHandshake.

No secret is sent, and each step has its own deadline.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from copycat_agent.errors import CopycatError
from copycat_agent.options import KafkaOptions, SecurityOptions

STEP_SECONDS = 3.0
"""Time limit of each step: DNS, TCP, TLS and the first answer."""
_EXPIRY_SECONDS = 14 * 86400.0
_FETCH, _SASL_HANDSHAKE, _API_VERSIONS, _INIT_PRODUCER_ID = 1, 17, 18, 22
_UNSUPPORTED_MECHANISM, _ILLEGAL_SASL_STATE = 33, 34
_FRAME_BYTES_MAX = 2**20
_CORRELATION_BYTES = 4
_RELEASES = ((22, "0.11"), (36, "1.0"), (44, "2.3"), (57, "2.7"), (60, "2.8"), (65, "3.0"), (68, "3.7"), (75, "3.8"))
"""APIs with the release that introduced them: a broker that lists one has at least that release. Clients can tell it by nothing else."""
_VERIFY_EXPIRED, _VERIFY_NOT_YET, _VERIFY_HOST, _VERIFY_ADDRESS = 10, 9, 62, 64  # X509_V_ERR_*

_T = TypeVar("_T")


class NetworkTrouble(CopycatError):  # noqa: N818 - a finding
    """A layer does not answer as it should. `layer` is dns, tcp, tls, kafka, sasl or login; `unreachable`: there was no answer at all."""

    def __init__(self, layer: str, message: str, hint: str = "", *, unreachable: bool = False) -> None:
        super().__init__(message, hint)
        self.layer = layer
        self.unreachable = unreachable


class Broker(NamedTuple):
    """A broker that answered. `apis` maps API keys to (oldest, newest) version."""

    ip: str
    tls: str
    expires_soon: str
    apis: dict[int, tuple[int, int]]

    @property
    def release(self) -> str:
        """Returns Kafka's least possible release, such as `2.8`; "" for one that is too old."""
        if self.apis.get(_FETCH, (0, 0))[0] >= 4:  # noqa: PLR2004 - KIP-896 removed older versions
            return "4.0"
        return next((release for api, release in reversed(_RELEASES) if api in self.apis), "")

    @property
    def is_idempotent(self) -> bool:
        """Returns whether it supports idempotent producers."""
        return _INIT_PRODUCER_ID in self.apis


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of `host:9092` or `[::1]:9092`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def meet(address: str, options: KafkaOptions, seconds: float = STEP_SECONDS) -> Broker:
    """Checks every layer of one address, from the lowest up. Raises `NetworkTrouble` for the first that fails."""
    host, port = split_address(address)
    connection, ip = reach(host, port, seconds)
    with connection:
        tls = until = ""
        stream: socket.socket = connection
        if options.security.protocol.endswith("SSL"):
            secured = _secure(connection, host, options, seconds)
            stream, tls, until = secured, f"{secured.version()}", expiring(secured)
        with stream:
            apis = _api_versions(stream, options.security, seconds)
            _sasl_handshake(stream, options.security, seconds)
    return Broker(ip, tls, until, apis)


def reach(host: str, port: int, seconds: float = STEP_SECONDS) -> tuple[socket.socket, str]:
    """Returns a connection and its remote address. Raises `NetworkTrouble` of dns or tcp."""
    try:
        found = in_time(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), seconds)
    except TimeoutError:
        text = f"the name {host} is not resolved within {seconds:g} s"
        raise NetworkTrouble("dns", text, "check the name servers: resolvectl status", unreachable=True) from None
    except OSError as error:
        hint = f"getent hosts {host}; correct kafka.bootstrap_servers, or the name servers"
        raise NetworkTrouble("dns", f"the name {host} is not resolved: {error.strerror or error}", hint, unreachable=True) from None
    deadline, problems = time.monotonic() + seconds, []
    for family, kind, protocol, _, target in found[:4]:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(max(0.2, deadline - time.monotonic()))
            connection.connect(target)
        except OSError as error:
            connection.close()
            problems.append(f"{target[0]}: {'no answer' if isinstance(error, TimeoutError) else error.strerror or error}")
        else:
            return connection, str(target[0])
    hint = f"is the broker up, and does a firewall let this host through? nc -vz {host} {port}"
    raise NetworkTrouble("tcp", f"no connection to {host}:{port}: {'; '.join(problems)}", hint, unreachable=True)


def in_time(call: Callable[[], _T], seconds: float) -> _T:
    """Returns `call()`, run on a thread, since name look-ups have no time-out. Raises TimeoutError and leaves the thread, or its error."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((True, call()))
        except Exception as error:  # noqa: BLE001 - raised below
            outcome.append((False, error))

    thread = threading.Thread(target=run, name="doctor-look-up", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError
    good, value = outcome[0]
    if not good:
        raise value
    return value  # type: ignore[no-any-return]


def _secure(connection: socket.socket, host: str, options: KafkaOptions, seconds: float) -> ssl.SSLSocket:
    context = tls_context(options)
    connection.settimeout(seconds)
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise _distrusted(error, host, options.security) from None
    except TimeoutError:
        raise NetworkTrouble(
            "tls", f"no TLS answer within {seconds:g} s", "is this the port of a TLS listener?", unreachable=True
        ) from None
    except ssl.SSLError as error:
        hint = "is this the port of a TLS listener? if it is not, set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        raise NetworkTrouble("tls", f"the TLS handshake fails: {error.reason or error}", hint) from None
    except OSError as error:
        hint = "is this the port of a TLS listener?"
        raise NetworkTrouble("tls", f"the broker ended the TLS handshake: {error.strerror or 'closed'}", hint) from None


def tls_context(options: KafkaOptions) -> ssl.SSLContext:
    """Returns a context with the Kafka client's certificates and checks. Raises `NetworkTrouble` for unusable files."""
    security = options.security
    try:
        context = ssl.create_default_context(cafile=security.ca_file)
    except (OSError, ssl.SSLError) as error:
        text = f"ca_file {security.ca_file} cannot be used: {getattr(error, 'strerror', '') or error}"
        raise NetworkTrouble("tls", text, "it has to be PEM (-----BEGIN CERTIFICATE-----) and readable") from None
    if options.client.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif options.client.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if security.cert_file:
        password = security.key_password.get_secret_value() if security.key_password else ""
        try:
            context.load_cert_chain(security.cert_file, security.key_file, lambda: password)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "reason", "") or getattr(error, "strerror", "") or "not PEM, or another key"
            text = f"cert_file and key_file cannot be used: {reason}"
            raise NetworkTrouble("tls", text, "both have to be PEM and belong together; key_password opens an encrypted key") from None
    return context


def _distrusted(error: ssl.SSLCertVerificationError, host: str, security: SecurityOptions) -> NetworkTrouble:
    said, code = error.verify_message, error.verify_code
    if code in (_VERIFY_EXPIRED, _VERIFY_NOT_YET):
        return NetworkTrouble(
            "tls", f"the broker's certificate does not hold now: {said}", "renew it on the broker; check this host's clock: date"
        )
    if code in (_VERIFY_HOST, _VERIFY_ADDRESS):
        hint = "name the broker as its certificate does (subjectAltName), in kafka.bootstrap_servers and in its advertised.listeners"
        return NetworkTrouble("tls", f"the broker's certificate is not for {host}: {said}", hint)
    where = f"ca_file {security.ca_file}" if security.ca_file else "the system's authorities"
    hint = "set kafka.security.ca_file to the authority that signed the broker's certificate"
    return NetworkTrouble("tls", f"the broker's certificate is not signed by {where}: {said}", hint)


def expiring(stream: ssl.SSLSocket) -> str:
    """Returns when the broker's certificate ends, if that is soon; else ""."""
    certificate = stream.getpeercert() or {}
    until = certificate.get("notAfter")
    if not isinstance(until, str) or ssl.cert_time_to_seconds(until) - time.time() > _EXPIRY_SECONDS:
        return ""
    return until


def _api_versions(stream: socket.socket, security: SecurityOptions, seconds: float) -> dict[int, tuple[int, int]]:
    """Returns the versions of each API: the first request of every client, allowed before it logs in. Raises `NetworkTrouble`."""
    try:
        body = _ask(stream, _API_VERSIONS, 0, b"", seconds)
        return _apis(body)
    except TimeoutError:
        text = f"the port is open, but nothing answers within {seconds:g} s"
        raise NetworkTrouble("kafka", text, "is the broker overloaded, or is this another service's port?", unreachable=True) from None
    except ssl.SSLError as error:  # TLS 1.3 refuses a client certificate only now
        hint = "check cert_file and key_file under kafka.security"
        raise NetworkTrouble("tls", f"the broker refuses this client: {error.reason or error}", hint) from None
    except (_NotKafka, OSError, struct.error):
        other = "SASL_SSL or SSL" if not security.protocol.endswith("SSL") else "PLAINTEXT or SASL_PLAINTEXT"
        text = f"what answers does not speak Kafka over {security.protocol}"
        raise NetworkTrouble("kafka", text, f"does the listener want kafka.security.protocol {other}? is it a broker's port?") from None


def _apis(body: bytes) -> dict[int, tuple[int, int]]:
    """Returns the oldest and newest version of each API. Raises `_NotKafka`, or struct.error."""
    code, count = struct.unpack_from(">hi", body)
    if code or not 0 <= count <= len(body) // 6:
        raise _NotKafka
    triples = struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])
    return {api: (oldest, newest) for api, oldest, newest in triples}


def _sasl_handshake(stream: socket.socket, security: SecurityOptions, seconds: float) -> None:
    """Checks that the listener supports this mechanism, or needs no login if none is set. Sends no secret. Raises `NetworkTrouble`."""
    wants_login = security.protocol.startswith("SASL")
    name = (security.mechanism or "PLAIN").encode()
    try:
        body = _ask(stream, _SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name, seconds)
        code, count = struct.unpack_from(">hi", body)
    except (TimeoutError, OSError, struct.error, _NotKafka):
        if wants_login:
            raise NetworkTrouble("sasl", "the broker does not answer to a SASL handshake", "is it older than 1.0?") from None
        return
    offered = ", ".join(_strings(body[6:], count)) or "nothing"
    if wants_login and code == _ILLEGAL_SASL_STATE:
        raise NetworkTrouble(
            "sasl", "the listener does not use SASL", "set kafka.security.protocol to SSL or PLAINTEXT, without a mechanism"
        )
    if wants_login and code:
        hint = "set kafka.security.mechanism to one of these"
        raise NetworkTrouble("sasl", f"the broker does not offer {security.mechanism}, it offers: {offered}", hint)
    if not wants_login and code in (0, _UNSUPPORTED_MECHANISM):
        hint = f"set kafka.security.protocol to SASL_{security.protocol}, and mechanism, username and password"
        raise NetworkTrouble("sasl", f"the listener wants a login, it offers: {offered}", hint)


class _NotKafka(Exception):  # noqa: N818 - translated above
    """The answer is not one of Kafka."""


def _ask(stream: socket.socket, api: int, version: int, body: bytes, seconds: float) -> bytes:
    """Sends a request and returns the body of its answer. Frames: a length, then API, version, correlation id, client id."""
    client = b"copycat-doctor"
    request = struct.pack(">hhih", api, version, api, len(client)) + client + body
    deadline = time.monotonic() + seconds
    stream.settimeout(seconds)
    stream.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _exactly(stream, 4, deadline))
    if not _CORRELATION_BYTES < size < _FRAME_BYTES_MAX:
        raise _NotKafka
    answer = _exactly(stream, size, deadline)
    if struct.unpack_from(">i", answer)[0] != api:
        raise _NotKafka
    return answer[4:]


def _exactly(stream: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        stream.settimeout(max(0.05, deadline - time.monotonic()))
        more = stream.recv(size - len(data))
        if not more:
            raise _NotKafka
        data += more
        if time.monotonic() > deadline:
            raise TimeoutError
    return data


def _strings(data: bytes, count: int) -> list[str]:
    found: list[str] = []
    for _ in range(min(count, 32)):
        if len(data) < 2:  # noqa: PLR2004 - the length before each
            break
        (size,) = struct.unpack_from(">h", data)
        found.append(data[2 : 2 + size].decode("utf-8", "replace"))
        data = data[2 + size :]
    return found
