"""HTTP/1.1 on a connected socket: one request is read, within bounds, and its answer written.

Nothing here waits without an end. A connection carries one request: what follows it is not read.
"""

from __future__ import annotations

import io
import json
import re
import socket
import time
import urllib.parse
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

_BLOCK_BYTES = 2**16
_PIECE_BYTES = 2**20
"""So much is sent within one time-out: who reads slowly, but reads, gets it all."""
_LINGER_SECONDS = 2.0
_END = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/(1\.[01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_ONCE = frozenset({"HTTP_HOST", "CONTENT_LENGTH", "HTTP_AUTHORIZATION", "CONTENT_TYPE"})


class BadRequestError(Exception):
    """What came is no request that can be answered; `status` and `words` say why."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Wire:
    """A connected socket. The request has to be there `seconds` after it was made, and each piece of the answer taken within as long."""

    def __init__(self, connected: socket.socket, seconds: float) -> None:
        self._socket, self._seconds = connected, seconds
        self._end = time.monotonic() + seconds
        self._is_read = False
        self.version = "1.1"

    def receive(self) -> bytes:
        """What has come, at least a byte; b"" at its end. TimeoutError when the time is up."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket.recv(_BLOCK_BYTES)

    def send(self, data: bytes) -> None:
        """Send all of it. TimeoutError for who does not read."""
        for begin in range(0, len(data), _PIECE_BYTES):
            self._socket.settimeout(self._seconds)
            self._socket.sendall(data[begin : begin + _PIECE_BYTES])

    def read(self, body_bytes: int, header_bytes: int) -> WSGIEnvironment | None:
        """The request; None when the client has hung up before. BadRequestError for what is none, and for too much."""
        head = bytearray()
        while (end := head.find(_END)) < 0 and len(head) < header_bytes:
            if not (block := self.receive()):
                return None
            head += block
        if not 0 <= end < header_bytes:
            raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers of the request are too large")
        environ = _environment(bytes(head[:end]))
        self.version = environ["SERVER_PROTOCOL"].removeprefix("HTTP/")
        length = _body_length(environ, body_bytes)
        body = head[end + len(_END) :]
        if len(body) < length and environ.get("HTTP_EXPECT", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(body) < length:
            if not (block := self.receive()):
                return None
            body += block
        self._is_read = len(body) == length
        environ["wsgi.input"] = io.BytesIO(bytes(body[:length]))
        return environ

    def answer(self, environ: WSGIEnvironment, application: WSGIApplication) -> None:
        """Send what the application answers. Raises what it raises, and OSError for a client that has gone or does not read."""
        started: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], _error: object = None) -> Any:  # noqa: ANN401 - nobody writes
            started[:] = [status, headers]

        body = application(environ, start_response)
        try:
            status, headers = started
            self._put(status, headers, body, has_body=environ["REQUEST_METHOD"] != "HEAD")
        finally:
            if hasattr(body, "close"):
                body.close()

    def refuse(self, status: HTTPStatus, words: str, hint: str = "", kind: str = "refused") -> None:
        """Send an error in the form of all others."""
        content = json.dumps({"error": words, "hint": hint, "kind": kind}).encode() + b"\n"
        self._put(f"{status.value} {status.phrase}", [("Content-Type", "application/json")], [content], has_body=True)

    def finish(self) -> None:
        """No more will be sent. A client that is still sending gets to read the answer, which a plain close would take from it."""
        self._socket.shutdown(socket.SHUT_WR)
        self._end = time.monotonic() + _LINGER_SECONDS
        while not self._is_read and self.receive():
            pass

    def _put(self, status: str, headers: list[tuple[str, str]], body: Iterable[bytes], *, has_body: bool) -> None:
        names = {name.lower() for name, _ in headers}
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "Connection: close"]
        known = b"".join(body) if isinstance(body, list | tuple) else None
        chunks = known is None and self.version != "1.0"
        if known is not None and has_body and "content-length" not in names:
            lines.append(f"Content-Length: {len(known)}")
        elif chunks and has_body:
            lines.append("Transfer-Encoding: chunked")
        head = "\r\n".join((*lines, "", "")).encode("latin-1")
        if known is not None:
            self.send(head + (known if has_body else b""))
            return
        self.send(head)
        for part in body if has_body else ():
            self.send(b"%x\r\n%b\r\n" % (len(part), part) if chunks else part)
        if chunks and has_body:
            self.send(b"0\r\n\r\n")


def _environment(head: bytes) -> WSGIEnvironment:
    """What stands in the request's line and headers, as WSGI names it."""
    first, *lines = head.lstrip(b"\r\n").split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
    method, target, version = (part.decode("ascii") for part in match.groups())
    path, _, query = target.partition("?")
    environ: WSGIEnvironment = {
        "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": urllib.parse.unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query, "SERVER_PROTOCOL": f"HTTP/{version}", "SERVER_NAME": "localhost", "SERVER_PORT": "0",
        "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
    }  # fmt: skip
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "a header of the request is none")
        name, value = header[1].decode("ascii").upper(), header[2].decode("latin-1")
        if "_" in name:
            continue  # it would look like the one with a hyphen
        key = name.replace("-", "_")
        key = key if key in {"CONTENT_LENGTH", "CONTENT_TYPE"} else f"HTTP_{key}"
        if key in environ and key in _ONCE:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, f"the request has two headers {name.title()}")
        environ[key] = f"{environ[key]}, {value}" if key in environ else value
    return environ


def _body_length(environ: WSGIEnvironment, body_bytes: int) -> int:
    if "HTTP_TRANSFER_ENCODING" in environ:
        raise BadRequestError(HTTPStatus.LENGTH_REQUIRED, "the request does not say how long its body is: send a Content-Length")
    text = environ.get("CONTENT_LENGTH", "0")
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "Content-Length is no number of bytes")
    if int(text) > body_bytes:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body of the request is too large")
    return int(text)
