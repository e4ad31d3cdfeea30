"""A front of a server of objects that fails some requests: before it does what was asked, behind it, or without a word."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import random

_FAULTS = ("before", "behind", "silent")
_DELAYS = ("answered late", "done late")
_DELAYED_SHARE = 0.03
"""Of the faults."""
_DELAY_SECONDS = 20.0
"""More than a client waits for an answer."""
_OWN = ("content-length", "connection", "date", "server")
"""Headers that the front writes itself."""


class FailingStore(ThreadingHTTPServer):
    """Fails `share` of the requests. Use it as a context manager. `done`: fault -> how often, "" for requests that succeeded.

    `with_delays`: some requests end after their client has given up, and some of these are done only then.
    """

    daemon_threads = True

    def __init__(self, upstream: str, dice: random.Random, share: float, *, with_delays: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream)
        self.done: Counter[str] = Counter()
        self._dice, self._share, self._with_delays = dice, share, with_delays
        self.writing = threading.Lock()
        """The server behind may take two conditional puts at once for the first."""

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_port}"

    def fault(self) -> str:
        """What is to fail about the next request, "" for nothing."""
        if self._dice.random() >= self._share:
            return ""
        return self._dice.choice(_DELAYS if self._with_delays and self._dice.random() < _DELAYED_SHARE else _FAULTS)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed, or has given up."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: FailingStore
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.fault()
        self.server.done[fault] += 1
        if fault == "before":
            self.say(503, b"", {})
            return
        if fault == "done late":
            time.sleep(_DELAY_SECONDS)
        answer, data = self.ask(body)
        if fault == "answered late":
            time.sleep(_DELAY_SECONDS)
        if fault == "behind":
            self.say(500, b"", {})
        elif fault:
            self.close_connection = True
        else:
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in _OWN}
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.say(answer.status, data, kept, length)

    def ask(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        host = self.server.upstream
        upstream = http.client.HTTPConnection(str(host.hostname), host.port, timeout=30)
        try:
            with self.server.writing:
                upstream.request(self.command, self.path, body, dict(self.headers))
                answer = upstream.getresponse()
                return answer, answer.read()
        finally:
            upstream.close()

    def say(self, status: int, body: bytes, headers: dict[str, str], length: str | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": length or str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815 - the library's names

    def log_message(self, *_: Any) -> None:
        """Nothing."""
