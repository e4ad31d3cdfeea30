"""Reads one HTTP/1.1 request from a connected socket, within limits, and sends the answer. Only this module uses h11.

Every wait has a time limit. A connection carries one request; what follows it is not read. Servers with sockets and threads of their own do
not fit: waitress has no TLS, and its limits can be set through private attributes only.
"""

from __future__ import annotations

import io
import json
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

_BLOCK_BYTES = 2**14
"""Size of a read. h11 checks the size of headers after each, so they may exceed the limit by this much."""
_PIECE_BYTES = 2**20
"""Size of a write, which has a time limit of its own, so that a slow client gets the whole answer."""
_LINGER_SECONDS = 2.0
"""How long `finish` reads on."""

_Sent = h11.Response | h11.Data | h11.EndOfMessage

Refusal = Callable[[HTTPStatus, str, str, str], object]
"""Takes status, message, hint and kind, and returns the JSON body of an error that occurs before an application is called."""


def refusal(_status: HTTPStatus, words: str, hint: str, kind: str) -> object:
    """Returns the body of an error for the agent's own commands."""
    return {"error": words, "hint": hint, "kind": kind}


def connect_refusal(status: HTTPStatus, words: str, hint: str, _kind: str) -> object:
    """Returns the body of an error for clients of Kafka Connect."""
    return {"error_code": status.value, "message": f"{words}; {hint}" if hint else words}


class BadRequestError(Exception):
    """The request cannot be answered; `status`, `words` and `hint` say why."""

    def __init__(self, status: HTTPStatus, words: str, hint: str = "") -> None:
        super().__init__(words)
        self.status, self.words, self.hint = status, words, hint


class Wire:
    """A connected socket. The request must be complete within `seconds`, and each piece of the answer be read within as long.

    `form` makes the bodies of refusals.
    """

    def __init__(self, connected: socket.socket, seconds: float, header_bytes: int, form: Refusal = refusal) -> None:
        self._socket, self._seconds, self._form = connected, seconds, form
        self._end = time.monotonic() + seconds
        self._http = h11.Connection(h11.SERVER, header_bytes)
        self._is_head = False

    def read(self, body_bytes: int) -> WSGIEnvironment | None:
        """Returns the request, None if the client has closed the connection. Raises BadRequestError for an invalid or too large one."""
        body = bytearray()
        try:
            request = self._next()
            if not isinstance(request, h11.Request):
                return None
            self._is_head = request.method == b"HEAD"
            environ = _environment(request)
            if "HTTP_TRANSFER_ENCODING" in environ:
                words = "the request does not say how long its body is: send a Content-Length"
                raise BadRequestError(HTTPStatus.LENGTH_REQUIRED, words)
            if int(environ.get("CONTENT_LENGTH", "0")) > body_bytes:
                raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body of the request is too large")
            while isinstance(event := self._next(), h11.Data):
                body += event.data
        except h11.RemoteProtocolError as error:
            raise _unreadable(error) from None
        environ["wsgi.input"] = io.BytesIO(body)
        return environ

    def answer(self, environ: WSGIEnvironment, application: WSGIApplication) -> None:
        """Sends the application's answer. Raises what it raises, and OSError for a client that has gone or does not read."""
        started: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], _error: object = None) -> Any:  # noqa: ANN401 - never used
            started[:] = [status, headers]

        body = application(environ, start_response)
        try:
            status, headers = started
            self._put(status, headers, body)
        finally:
            if hasattr(body, "close"):
                body.close()

    def refuse(self, status: HTTPStatus, words: str, hint: str = "", kind: str = "refused") -> None:
        """Sends an error."""
        content = json.dumps(self._form(status, words, hint, kind)).encode() + b"\n"
        self._put(f"{status.value} {status.phrase}", [("Content-Type", "application/json")], [content])

    def finish(self) -> None:
        """Ends the answer, and reads what the client still sends: with a plain close it could lose the answer."""
        self._socket.shutdown(socket.SHUT_WR)
        self._end = time.monotonic() + _LINGER_SECONDS
        while self._http.their_state in {h11.SEND_BODY, h11.ERROR} and self._receive():
            pass

    def _next(self) -> object:
        """Returns the next event of the request. Raises TimeoutError when the time is up."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                self._send(self._http.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")))
            self._http.receive_data(self._receive())
        return event

    def _receive(self) -> bytes:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket.recv(_BLOCK_BYTES)

    def _send(self, data: bytes) -> None:
        """Sends all data. Raises TimeoutError if the client does not read."""
        for begin in range(0, len(data), _PIECE_BYTES):
            self._socket.settimeout(self._seconds)
            self._socket.sendall(data[begin : begin + _PIECE_BYTES])

    def _put(self, status: str, headers: list[tuple[str, str]], body: Iterable[bytes]) -> None:
        is_known = isinstance(body, list | tuple)
        if (
            is_known
            and not self._is_head
            and not status.startswith("204")
            and "content-length" not in {name.lower() for name, _ in headers}
        ):
            headers = [*headers, ("Content-Length", str(sum(map(len, body))))]
        pieces = (self._http.send(event) for event in self._events(status, headers, body))
        for piece in (b"".join(pieces),) if is_known else pieces:
            self._send(piece)

    def _events(self, status: str, headers: list[tuple[str, str]], body: Iterable[bytes]) -> Iterator[_Sent]:
        code, _, reason = status.partition(" ")
        yield h11.Response(status_code=int(code), reason=reason, headers=[*headers, ("Connection", "close")])
        for part in () if self._is_head else body:
            yield h11.Data(data=part)
        yield h11.EndOfMessage()


def _unreadable(error: h11.RemoteProtocolError) -> BadRequestError:
    """Returns the refusal of an unreadable request. The error's own text is not used: it may quote a header, and so a password."""
    status = HTTPStatus(error.error_status_hint)
    if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return BadRequestError(status, "the headers of the request are too large")
    return BadRequestError(status, "this is no request of HTTP/1.1", "it needs one Host header, and for a body one Content-Length")


def _environment(request: h11.Request) -> WSGIEnvironment:
    """Returns the WSGI environment of a request, with its undecoded path in RAW_PATH."""
    path, _, query = request.target.decode("ascii").partition("?")
    environ: WSGIEnvironment = {
        "REQUEST_METHOD": request.method.decode("ascii"), "SCRIPT_NAME": "",
        "PATH_INFO": urllib.parse.unquote_to_bytes(path).decode("latin-1"), "QUERY_STRING": query, "RAW_PATH": path,
        "SERVER_PROTOCOL": f"HTTP/{request.http_version.decode('ascii')}", "SERVER_NAME": "localhost", "SERVER_PORT": "0",
        "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
    }  # fmt: skip
    for name, value in request.headers:
        if b"_" in name:
            continue  # it would be taken for the one with a hyphen
        key = name.decode("ascii").upper().replace("-", "_")
        key = key if key in {"CONTENT_LENGTH", "CONTENT_TYPE"} else f"HTTP_{key}"
        text = value.decode("latin-1")
        environ[key] = f"{environ[key]}, {text}" if key in environ else text
    return environ
