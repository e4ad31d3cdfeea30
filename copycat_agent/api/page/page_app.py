"""The WSGI side of the page: who may look, which view answers, and what a browser may do with it.

Documents and their two files come from here alone: the policy lets a browser load nothing else, run no script that stands in a document,
and show none of it in a frame.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.api import is_name
from copycat_agent.api.guard import CHALLENGE, FAULT_HINT, Guard, StatusError, fault
from copycat_agent.api.page.connector_page import connector_page
from copycat_agent.api.page.losses_page import losses_page
from copycat_agent.api.page.overview import overview
from copycat_agent.api.page.page_frame import Moment, View, document, error_document, now
from copycat_agent.api.rate_history import RateHistory
from copycat_agent.control import Control
from copycat_agent.errors import CopycatError, UnknownConnectorError

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


class _Answer(NamedTuple):
    status: HTTPStatus
    kind: str
    content: bytes


class PageApp:
    """The WSGI application of `api.page.listen`."""

    def __init__(self, control: Control, guard: Guard, history: RateHistory) -> None:
        """Reads its files: later, what is on disk may be those of another version."""
        self._control, self._guard, self._history = control, guard, history
        self._files = {path: (Path(__file__).parent / path.removeprefix("/")).read_bytes() for path in FILES}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """WSGI. Raises nothing."""
        method = environ["REQUEST_METHOD"]
        try:
            self._guard.check(environ)
            answer = self._answer(environ)
        except Exception as error:  # noqa: BLE001 - told, logged, and never shown with its traceback
            answer = _refused(error, method)
        challenge = CHALLENGE if answer.status == HTTPStatus.UNAUTHORIZED else ()
        headers = [("Content-Type", answer.kind), ("Content-Length", str(len(answer.content))), *HEADERS, *challenge]
        start_response(f"{answer.status.value} {answer.status.phrase}", headers)
        return () if method == "HEAD" else [answer.content]

    def _answer(self, environ: WSGIEnvironment) -> _Answer:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "this address can only be read")
        path = str(environ.get("PATH_INFO", ""))
        if path in FILES:
            return _Answer(HTTPStatus.OK, FILES[path], self._files[path])
        moment = Moment(self._control, self._history, now())
        view = _view(path, _query(str(environ.get("QUERY_STRING", ""))), moment)
        return _Answer(HTTPStatus.OK, _HTML, document(view, moment).encode())


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


def _refused(error: Exception, method: str) -> _Answer:
    if isinstance(error, StatusError):
        status, words, hint = error.status, error.message, error.hint
    elif isinstance(error, CopycatError):
        is_unknown = isinstance(error, UnknownConnectorError)
        status = HTTPStatus.NOT_FOUND if is_unknown else HTTPStatus.INTERNAL_SERVER_ERROR
        words, hint = error.message, error.hint
    else:
        status, words, hint = HTTPStatus.INTERNAL_SERVER_ERROR, fault(error, method), FAULT_HINT
    return _Answer(status, _HTML, error_document(f"{status.value} {status.phrase}", words, hint).encode())
