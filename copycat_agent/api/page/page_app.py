"""The WSGI side of the page: who may look, which view answers, and what a browser may do with it.

Documents and their two files come from here alone: the policy lets a browser load nothing else, run no script that stands in a document,
and show none of it in a frame.
"""

from __future__ import annotations

import re
import threading
import urllib.parse
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.api import is_name
from copycat_agent.api.guard import CHALLENGE, FAULT_HINT, Guard, StatusError, fault
from copycat_agent.api.page.connector_page import connector_page
from copycat_agent.api.page.losses_page import losses_page
from copycat_agent.api.page.order_page import ORDERS, carry_out, order_page
from copycat_agent.api.page.overview import overview
from copycat_agent.api.page.page_frame import Moment, View, document, error_document, now
from copycat_agent.api.rate_history import RateHistory
from copycat_agent.control import Control
from copycat_agent.errors import BusyError, CopycatError, UnknownConnectorError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_LOADS = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'"
_POLICY = f"{_LOADS}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
"""Go with every answer."""
FILES = {"/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8"}
"""Files that stand beside this module, by the address that they have."""
_HTML = "text/html; charset=utf-8"
_CONNECTORS = "/connectors/"
_NUMBER = re.compile("[0-9]{1,6}", re.ASCII)
_QUERY_FIELDS_MAX = 10
CHANGES_MAX = 2
"""Changes under way at a time: each holds a thread until it is done."""
WAIT_SECONDS = 5.0
"""How long another one waits for its turn."""


class _Answer(NamedTuple):
    status: HTTPStatus
    kind: str
    content: bytes
    location: str = ""


class PageApp:
    """The WSGI application of `api.page.listen`."""

    def __init__(self, control: Control, guard: Guard, history: RateHistory) -> None:
        """Reads its files: later, what is on disk may be those of another version."""
        self._control, self._guard, self._history = control, guard, history
        self._files = {path: (Path(__file__).parent / path.removeprefix("/")).read_bytes() for path in FILES}
        self._changes = threading.BoundedSemaphore(CHANGES_MAX)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """WSGI. Raises nothing."""
        method = environ["REQUEST_METHOD"]
        try:
            operates = self._guard.check(environ) == "operate"
            answer = self._answer(environ, Moment(self._control, self._history, now(), operates))
        except Exception as error:  # noqa: BLE001 - told, logged, and never shown with its traceback
            answer = _refused(error, method)
        challenge = CHALLENGE if answer.status == HTTPStatus.UNAUTHORIZED else ()
        location = [("Location", answer.location)] if answer.location else []
        headers = [("Content-Type", answer.kind), ("Content-Length", str(len(answer.content))), *HEADERS, *location, *challenge]
        start_response(f"{answer.status.value} {answer.status.phrase}", headers)
        return () if method == "HEAD" else [answer.content]

    def _answer(self, environ: WSGIEnvironment, moment: Moment) -> _Answer:
        path, method = str(environ.get("PATH_INFO", "")), environ["REQUEST_METHOD"]
        name, order = _ordered(path)
        if method == "POST" and order:
            return self._change(environ, moment, name, order)
        if method not in {"GET", "HEAD"}:
            raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "this address can only be read")
        if path in FILES:
            return _Answer(HTTPStatus.OK, FILES[path], self._files[path])
        if order:
            _must_operate(moment)
            return _shown(order_page(moment, name, order), moment)
        return _shown(_view(path, _query(str(environ.get("QUERY_STRING", ""))), moment), moment)

    def _change(self, environ: WSGIEnvironment, moment: Moment, name: str, order: str) -> _Answer:
        """Do what was confirmed, then show the connector."""
        _must_operate(moment)
        _must_be_own(environ)
        if not self._changes.acquire(timeout=WAIT_SECONDS):
            raise BusyError("other changes are under way", "try again when they are done")
        try:
            carry_out(moment.control, name, order)
        finally:
            self._changes.release()
        return _Answer(HTTPStatus.SEE_OTHER, _HTML, b"", f"{_CONNECTORS}{name}")


def _shown(view: View, moment: Moment) -> _Answer:
    return _Answer(HTTPStatus.OK, _HTML, document(view, moment).encode())


def _must_operate(moment: Moment) -> None:
    """Raises for who may only look. Whoever reaches a port without logins may be any user of the host."""
    if not moment.operates:
        words = "this needs a user who may operate"
        raise StatusError(HTTPStatus.FORBIDDEN, words, "set api.users, with a line made by: copycat passwd NAME --role operate")


def _must_be_own(environ: WSGIEnvironment) -> None:
    """Raises unless a browser says that one of our own pages sends this; that what it says is true, the guard has checked."""
    if environ.get("HTTP_ORIGIN") is None and environ.get("HTTP_SEC_FETCH_SITE") != "same-origin":
        raise StatusError(HTTPStatus.FORBIDDEN, "only the page itself may change something", "programs use the API: docs/api.md")


def _ordered(path: str) -> tuple[str, str]:
    """Connector and order of an address; ("", "") for one that orders nothing."""
    name, _, order = path.removeprefix(_CONNECTORS).partition("/")
    return (_name(name), order) if path.startswith(_CONNECTORS) and order in ORDERS else ("", "")


def _view(path: str, query: dict[str, str], moment: Moment) -> View:
    if path == "/":
        number = query.get("page", "")
        return overview(moment, query.get("q", ""), int(number) if _NUMBER.fullmatch(number) else 1)
    if path == "/losses":
        return losses_page(moment, _name(query["connector"]) if query.get("connector") else "")
    if path.startswith(_CONNECTORS):
        return connector_page(moment, _name(path.removeprefix(_CONNECTORS)))
    raise StatusError(HTTPStatus.NOT_FOUND, "there is nothing at this address")


def _name(text: str) -> str:
    """The text, if a connector can have it as its name. UnknownConnectorError otherwise."""
    if not is_name(text):
        raise UnknownConnectorError("no connector can have this name")
    return text


def _query(text: str) -> dict[str, str]:
    try:
        return dict(urllib.parse.parse_qsl(text, max_num_fields=_QUERY_FIELDS_MAX))
    except ValueError:
        raise StatusError(HTTPStatus.BAD_REQUEST, f"the query has more than {_QUERY_FIELDS_MAX} fields") from None


_STATUSES = ((UnknownConnectorError, HTTPStatus.NOT_FOUND), (BusyError, HTTPStatus.CONFLICT))


def _refused(error: Exception, method: str) -> _Answer:
    if isinstance(error, StatusError):
        status, words, hint = error.status, error.message, error.hint
    elif isinstance(error, CopycatError):
        status = next((one for kind, one in _STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
        words, hint = error.message, error.hint
    else:
        status, words, hint = HTTPStatus.INTERNAL_SERVER_ERROR, fault(error, method), FAULT_HINT
    return _Answer(status, _HTML, error_document(f"{status.value} {status.phrase}", words, hint).encode())
