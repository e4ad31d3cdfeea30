"""HTTP of a registry's client: it connects only to the address in the definition, and bounds the time and size of answers.

Only this module uses httpx2, on which confluent-kafka's client is built. By default that follows the environment's proxies, unpacks
responses, and reads answers of any length.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
from confluent_kafka.schema_registry import SchemaRegistryClient

STEP_SECONDS = 5.0
"""Time-out of a connection, and between two pieces of an answer."""
ANSWER_SECONDS = 8.0
"""Time-out of a whole answer: one that trickles would hold a batch for ever."""
ANSWER_BYTES_MAX = 8 * 2**20
"""The most bytes of an answer. Registries take schemas of 1 MiB by default."""


class BadAnswerError(ValueError):
    """The answer is not one that a registry gives."""


def connected(
    url: str, login: tuple[str, str] | None, authorities: ssl.SSLContext | None, bearer: Callable[[Any], dict[str, str]] | None = None
) -> SchemaRegistryClient:
    """Returns a client for some requests, to be closed. `authorities` None: for an address without TLS.

    `bearer` returns what replaces a login, as the client's `bearer.auth.custom.provider.function` does.
    """
    settings: dict[str, Any] = {"url": url, "max.retries": 0}
    if bearer is not None:
        settings |= {
            "bearer.auth.credentials.source": "CUSTOM",
            "bearer.auth.custom.provider.function": bearer,
            "bearer.auth.custom.provider.config": {},
        }
    client = SchemaRegistryClient(settings)
    session = httpx2.Client(
        transport=_Bounded(authorities),
        auth=login,
        timeout=STEP_SECONDS,
        trust_env=False,
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},
    )
    rest: Any = client._rest_client  # noqa: SLF001 - it takes no session; a test looks at what goes out
    rest.session.close()
    rest.session = session
    return client


class _Bounded(httpx2.BaseTransport):
    """A connection that bounds its answers."""

    def __init__(self, authorities: ssl.SSLContext | None) -> None:
        self._until = time.monotonic() + ANSWER_SECONDS
        trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if authorities is None else authorities  # trusts no one, if TLS is used after all
        self._transport = httpx2.HTTPTransport(verify=trusted, trust_env=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = self._transport.handle_request(request)
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            answer.close()
            raise BadAnswerError("packed, though nobody asked for that")
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=_Pieces(answer.stream, self._until))

    def close(self) -> None:
        self._transport.close()


class _Pieces(httpx2.SyncByteStream):
    """An answer's body, up to the bounds."""

    def __init__(self, stream: Any, until: float) -> None:  # noqa: ANN401 - the library's
        self._stream = stream
        self._until = until

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._stream:
            size += len(piece)
            if size > ANSWER_BYTES_MAX:
                raise BadAnswerError("too long")
            if time.monotonic() > self._until:
                raise httpx2.ReadTimeout("the answer takes too long")
            yield piece

    def close(self) -> None:
        self._stream.close()
