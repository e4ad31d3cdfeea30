"""A port for clients of Kafka Connect, over an agent in memory."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from copycat_agent.api.server import ApiServer
from copycat_agent.dev_broker import free_port
from copycat_agent.options import ApiOptions
from tests.unit.api.conftest import CLIENT_SECONDS, Answer
from tests.unit.api.doubles import MemoryControl


class ConnectPort:
    """Any request, as any client could send it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: object = None,
        context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send `body` as JSON, bytes as they are."""
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.number, timeout=CLIENT_SECONDS)
            if context is None
            else http.client.HTTPSConnection("localhost", self.number, timeout=CLIENT_SECONDS, context=context)
        )
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, path, content, {**kind, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """What is answered with 200."""
        answer = self.ask(path)
        assert answer.status == 200, answer
        return answer.json


OpenConnect = Callable[..., ConnectPort]


@pytest.fixture
def open_connect(control: MemoryControl, socket_path: Path) -> Iterator[OpenConnect]:
    """`open_connect("0.0.0.0", users=FILE, tls=...)` starts an agent's API with such a port there."""
    with contextlib.ExitStack() as undo:

        def start(host: str = "127.0.0.1", **options: object) -> ConnectPort:
            number = free_port()
            listen = {"listen": f"{host}:{number}"}
            server = ApiServer(control, socket_path, ApiOptions.model_validate({"connect": listen, **options}))
            server.start()
            undo.callback(server.close)
            undo.callback(control.hold.set)
            return ConnectPort(number)

        yield start


@pytest.fixture
def port(open_connect: OpenConnect) -> ConnectPort:
    return open_connect()
