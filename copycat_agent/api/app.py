"""The WSGI application: routes requests to handlers, and turns errors into answers. Only this module uses werkzeug.

Every answer other than 200 is `{"error": message, "hint": next step, "kind": for programs}`, without a traceback.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter, Map, Rule

from copycat_agent.api import MissingError, RefusedRequestError
from copycat_agent.api.guard import CHALLENGE, FAULT_HINT, Guard, StatusError, fault
from copycat_agent.api.handlers import ENDPOINTS, Endpoint, Request, rates
from copycat_agent.api.messages import refusal
from copycat_agent.api.rate_history import RateHistory
from copycat_agent.control import Control
from copycat_agent.errors import BusyError, CopycatError, DataError, UnknownConnectorError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

CHANGES_MAX = 2
"""Most changes at a time: each holds a thread until it is done."""
STREAMS_MAX = 3
"""Most taps at a time, for the same reason."""
_JSON = "application/json"


class _ConnectorName(BaseConverter):
    """A connector's name."""

    regex = "[a-z0-9][a-z0-9-]{0,62}"


class Commands:
    """The `/v1` addresses."""

    def __init__(self, control: Control, history: RateHistory) -> None:
        self._control = control
        endpoints = (*ENDPOINTS, Endpoint("GET", "/v1/rates", partial(rates, history)))
        self._map = Map(
            [Rule(one.path, methods=[one.method], endpoint=one) for one in endpoints],
            converters={"name": _ConnectorName}, strict_slashes=False, merge_slashes=False,
        )  # fmt: skip
        self._changes = threading.BoundedSemaphore(CHANGES_MAX)
        self._streams = threading.BoundedSemaphore(STREAMS_MAX)

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Runs the handler of this address. Raises what it raises, and HTTPException for an unknown address or method."""
        found, named = self._map.bind("copycat").match(str(environ.get("PATH_INFO", "")), environ["REQUEST_METHOD"])
        endpoint: Endpoint = found
        request = Request(str(environ.get("QUERY_STRING", "")), _body(environ), **named)
        answer = partial(endpoint.handler, self._control, request)
        if endpoint.streams:
            return self._stream(cast("Iterator[Any]", answer()), start_response)
        if not endpoint.changes:
            return _send(start_response, HTTPStatus.OK, answer())
        if not self._changes.acquire(blocking=False):
            raise BusyError("other changes are under way", "try again when they are done")
        try:
            return _send(start_response, HTTPStatus.OK, answer())
        finally:
            self._changes.release()

    def _stream(self, values: Iterator[Any], start_response: StartResponse) -> Iterable[bytes]:
        """Sends each value at once as a line. An error after the first bytes becomes a line, too."""
        if not self._streams.acquire(blocking=False):
            raise BusyError(f"{STREAMS_MAX} taps are open already", "end one of them, or try again in a minute")
        return JsonLines(values, start_response, self._streams)


class JsonLines:
    """An NDJSON body. It releases its semaphore when the server closes it, which always happens."""

    def __init__(
        self,
        values: Iterator[Any],
        start_response: StartResponse,
        places: threading.BoundedSemaphore,
        headers: Iterable[tuple[str, str]] = (("Cache-Control", "no-store"),),
    ) -> None:
        self._values, self._places = values, places
        start_response("200 OK", [("Content-Type", "application/x-ndjson"), *headers])

    def __iter__(self) -> Iterator[bytes]:
        """Yields lines, each to be sent at once."""
        yield b"\n"  # so that the headers are sent now, not with the first value
        try:
            for value in self._values:
                yield json.dumps(value).encode() + b"\n"
        except CopycatError as error:  # too late for a status
            yield json.dumps(_words(error)[1]).encode() + b"\n"

    def close(self) -> None:
        """Called once, by the server."""
        self._places.release()


class Application:
    """The WSGI application of one listening socket: commands, or None, and applications mounted by path, for GET and HEAD."""

    def __init__(self, commands: Commands | None, mounts: Mapping[str, WSGIApplication], guard: Guard) -> None:
        self._commands, self._mounts, self._guard = commands, mounts, guard

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers a request. Raises nothing before the answer has begun."""
        try:
            content = self._answer(environ, start_response)
        except Exception as error:  # noqa: BLE001 - it is logged and answered, without its traceback
            status, words = _refusal(error, environ)
            content = _send(start_response, status, words, CHALLENGE if status == HTTPStatus.UNAUTHORIZED else ())
        if environ["REQUEST_METHOD"] != "HEAD":
            return content
        if isinstance(content, JsonLines):
            content.close()
        return ()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self._guard.check(environ)
        if mounted := self._mounts.get(str(environ.get("PATH_INFO", ""))):
            if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
                raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "this address can only be read")
            return mounted(environ, start_response)
        if self._commands is None:
            raise MissingError("there is nothing at this address")
        return self._commands.answer(environ, start_response)


_KINDS: tuple[tuple[type[CopycatError], HTTPStatus, str], ...] = (
    (UnknownConnectorError, HTTPStatus.NOT_FOUND, "unknown_connector"),
    (MissingError, HTTPStatus.NOT_FOUND, "missing"),
    (BusyError, HTTPStatus.CONFLICT, "busy"),
    (RefusedRequestError, HTTPStatus.BAD_REQUEST, "refused"),
    (DataError, HTTPStatus.BAD_REQUEST, "refused"),
    (CopycatError, HTTPStatus.INTERNAL_SERVER_ERROR, "failed"),
)
"""Status and kind of an error, by the first class that matches."""


def _refusal(error: Exception, environ: WSGIEnvironment) -> tuple[HTTPStatus, object]:
    if isinstance(error, HTTPException):
        status = HTTPStatus(error.code or 500)
        text = "this address does not take this method" if status == HTTPStatus.METHOD_NOT_ALLOWED else "there is nothing at this address"
        return status, refusal(status, text, "", "refused" if status == HTTPStatus.METHOD_NOT_ALLOWED else "missing")
    if isinstance(error, StatusError):
        return error.status, refusal(error.status, error.message, error.hint, "refused")
    if isinstance(error, CopycatError):
        return _words(error)
    words = fault(error, environ["REQUEST_METHOD"])
    return HTTPStatus.INTERNAL_SERVER_ERROR, refusal(HTTPStatus.INTERNAL_SERVER_ERROR, words, FAULT_HINT, "failed")


def _words(error: CopycatError) -> tuple[HTTPStatus, object]:
    status, kind = next((status, kind) for base, status, kind in _KINDS if isinstance(error, base))
    return status, refusal(status, error.message, error.hint, kind)


def _send(start_response: StartResponse, status: HTTPStatus, value: object, more: Iterable[tuple[str, str]] = ()) -> list[bytes]:
    content = json.dumps(value).encode() + b"\n"
    headers = [("Content-Type", _JSON), ("Content-Length", str(len(content))), ("Cache-Control", "no-store"), *more]
    start_response(f"{status.value} {status.phrase}", headers)
    return [content]


def _body(environ: WSGIEnvironment) -> object:
    """Returns the parsed body, None without one."""
    content = environ["wsgi.input"].read()
    if not content:
        return None
    if str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip() != _JSON:
        raise StatusError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is not declared as JSON", f"send the header Content-Type: {_JSON}")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise RefusedRequestError("the body is no JSON") from None
