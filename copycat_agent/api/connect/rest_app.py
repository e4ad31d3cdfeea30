"""The REST application: checks logins and roles, finds the view, and answers errors in Kafka Connect's form.

Every error is `{"error_code": status, "message": text}`. Paths are split before they are decoded, so that names may contain slashes.
"""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from copycat_agent.api.connect.calls import Call, Reply, WorkerView
from copycat_agent.api.connect.cluster_ids import ClusterIds
from copycat_agent.api.connect.defining import refuse_unless_writable
from copycat_agent.api.connect.routes import ROUTES, Route, segments_of
from copycat_agent.api.guard import CHALLENGE, FAULT_HINT, Guard, StatusError, fault
from copycat_agent.api.messages import connect_refusal
from copycat_agent.control import Control
from copycat_agent.errors import BusyError, CopycatError, DataError, DefinitionError, UnknownConnectorError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from copycat_agent.api.port_access import Role

OPERATIONS_MAX = 2
"""Most changes at a time: each holds a thread until it is done."""
WAIT_SECONDS = 5.0
"""How long a further change waits for its turn: the requests of a client that sends several at once are served one after the other."""
_QUERY_FIELDS_MAX = 100
_JSON = "application/json"


class ConnectRest:
    """The WSGI application of `api.connect.listen`."""

    def __init__(self, control: Control, guard: Guard, worker_id: str, origin: str) -> None:
        self._view = WorkerView(control, worker_id, origin, ClusterIds())
        self._guard = guard
        self._operations = threading.BoundedSemaphore(OPERATIONS_MAX)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers a request. Raises nothing."""
        method = environ["REQUEST_METHOD"]
        try:
            role = self._guard.check(environ) or "view"
            reply = self._reply(environ, role)
        except Exception as error:  # noqa: BLE001 - it is logged and answered, without its traceback
            reply = _refused(error, method)
        content = b"" if reply.value is None else json.dumps(reply.value).encode()
        headers = [("Content-Type", _JSON), ("Content-Length", str(len(content)))] if content else []
        headers += [("Location", self._view.origin + reply.made)] if reply.made else []
        challenge = CHALLENGE if reply.status == HTTPStatus.UNAUTHORIZED else ()
        start_response(f"{reply.status.value} {reply.status.phrase}", [*headers, ("Cache-Control", "no-store"), *challenge])
        return () if method == "HEAD" else [content]

    def _reply(self, environ: WSGIEnvironment, role: Role) -> Reply:
        method = "GET" if environ["REQUEST_METHOD"] == "HEAD" else environ["REQUEST_METHOD"]
        route, named = _find(method, segments_of(str(environ["RAW_PATH"])))
        query = _query(str(environ.get("QUERY_STRING", "")))
        if not route.operates:
            return route.view(self._view, Call(named, query))
        if route.defines:
            refuse_unless_writable(self._view)
        if role != "operate":
            words = "this needs a user who may operate"
            raise StatusError(HTTPStatus.FORBIDDEN, words, "set api.users, with a line made by: copycat passwd NAME --role operate")
        if not self._operations.acquire(timeout=WAIT_SECONDS):
            raise BusyError("other changes are under way", "try again when they are done")
        try:
            return route.view(self._view, Call(named, query, _body(environ)))
        finally:
            self._operations.release()


def _find(method: str, segments: list[str]) -> tuple[Route, dict[str, str]]:
    """Returns the route of this address and the values in its braces. Raises 405 if only the method is wrong, else 404, like Jersey."""
    fitting = [(route, named) for route in ROUTES if (named := route.match(segments)) is not None]
    if not fitting:
        raise StatusError(HTTPStatus.NOT_FOUND, "HTTP 404 Not Found")
    for route, named in fitting:
        if route.method == method:
            return route, named
    raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "HTTP 405 Method Not Allowed")


def _body(environ: WSGIEnvironment) -> object:
    """Returns the parsed body, None without one."""
    content = environ["wsgi.input"].read()
    if not content:
        return None
    if str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower() != _JSON:
        raise StatusError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "HTTP 415 Unsupported Media Type")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise StatusError(HTTPStatus.BAD_REQUEST, "the body is no JSON") from None


def _query(text: str) -> dict[str, list[str]]:
    try:
        return urllib.parse.parse_qs(text, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError:
        raise StatusError(HTTPStatus.BAD_REQUEST, f"the query has more than {_QUERY_FIELDS_MAX} fields") from None


_STATUSES: tuple[tuple[type[CopycatError], HTTPStatus], ...] = (
    (UnknownConnectorError, HTTPStatus.NOT_FOUND),
    (BusyError, HTTPStatus.CONFLICT),
    (DataError, HTTPStatus.BAD_REQUEST),
    (DefinitionError, HTTPStatus.BAD_REQUEST),
    (CopycatError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""Status of an error, by the first class that matches."""


def _refused(error: Exception, method: str) -> Reply:
    if isinstance(error, StatusError):
        return _error(error.status, str(error))
    if isinstance(error, RecursionError):
        return _error(HTTPStatus.BAD_REQUEST, "the body is too deep")
    if isinstance(error, CopycatError):
        return _error(next(status for kind, status in _STATUSES if isinstance(error, kind)), str(error))
    return _error(HTTPStatus.INTERNAL_SERVER_ERROR, f"{fault(error, method)}; {FAULT_HINT}")


def _error(status: HTTPStatus, message: str) -> Reply:
    return Reply(connect_refusal(status, message, "", ""), status)
