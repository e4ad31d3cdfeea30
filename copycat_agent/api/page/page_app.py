"""The WSGI application of the page: checks logins and roles, finds the view, and sets the headers that restrict the browser.

The content security policy lets a browser load nothing but the documents and the two files from here, run no inline script, and show
nothing in a frame.
"""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.api import is_name
from copycat_agent.api.app import JsonLines
from copycat_agent.api.guard import CHALLENGE, FAULT_HINT, Guard, StatusError, fault
from copycat_agent.api.page.child_commands import ChildCommands
from copycat_agent.api.page.connector_page import connector_page
from copycat_agent.api.page.file_page import file_page
from copycat_agent.api.page.letters_page import letters_page, replay_page, replayed
from copycat_agent.api.page.losses_page import losses_page
from copycat_agent.api.page.order_page import ORDERS, carry_out, order_page
from copycat_agent.api.page.overview import overview
from copycat_agent.api.page.page_frame import Fields, View, ViewContext, document, error_document, now
from copycat_agent.api.page.records_page import records, records_page
from copycat_agent.api.page.try_page import tried, try_page
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
"""Headers of every answer."""
FILES = {"/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8"}
"""Content types of the files beside this module, by address."""
_HTML = "text/html; charset=utf-8"
_FORM = "application/x-www-form-urlencoded"
_CONNECTORS = "/connectors/"
_FIELDS_MAX = 60
CHANGES_MAX = 2
"""Most forms processed at a time: each holds a thread until it is done."""
STREAMS_MAX = 3
"""Most streams of records at a time, for the same reason."""
WAIT_SECONDS = 5.0
"""How long a further form waits for its turn."""

Look = Callable[[ViewContext, str, Fields], View]
"""Returns a view for a connector ("" for none) from the fields of the query."""
Act = Callable[[ViewContext, str, Fields], "View | str"]
"""Processes a form. Returns a view of the result, or the address to show next."""


class PagePlace(NamedTuple):
    """The page at an address. `act` processes its form, None if it has none. `operates`: it needs the role `operate`."""

    look: Look
    act: Act | None = None
    operates: bool = False


PLACES = {"/": PagePlace(overview), "/losses": PagePlace(losses_page), "/try": PagePlace(try_page, tried, operates=True)}
"""Pages that are not about one connector."""
OF_CONNECTORS = {
    "": PagePlace(connector_page),
    "file": PagePlace(file_page),
    "records": PagePlace(records_page, operates=True),
    "letters": PagePlace(letters_page, operates=True),
    "replay": PagePlace(replay_page, replayed, operates=True),
    **{name: PagePlace(partial(order_page, name), partial(carry_out, name), operates=True) for name in ORDERS},
}
"""Pages of a connector, by what follows its name."""
_TAP = "tap"


class _PageResponse(NamedTuple):
    status: HTTPStatus
    kind: str
    content: bytes
    location: str = ""


class PageApp:
    """The WSGI application of `api.page.listen`."""

    def __init__(self, control: Control, guard: Guard, history: RateHistory, commands: ChildCommands) -> None:
        """Reads its files now, because another version may be installed later."""
        self._control, self._guard, self._history, self._commands = control, guard, history, commands
        self._files = {path: (Path(__file__).parent / path.removeprefix("/")).read_bytes() for path in FILES}
        self._changes, self._streams = threading.BoundedSemaphore(CHANGES_MAX), threading.BoundedSemaphore(STREAMS_MAX)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers a request. Raises nothing before the answer has begun."""
        method = environ["REQUEST_METHOD"]
        try:
            operates = self._guard.check(environ) == "operate"
            answer = self._answer(environ, ViewContext(self._control, self._commands, self._history, now(), operates))
        except Exception as error:  # noqa: BLE001 - it is logged and answered, without its traceback
            answer = _refused(error, method)
        if not isinstance(answer, _PageResponse):
            return JsonLines(answer, start_response, self._streams, HEADERS)
        challenge = CHALLENGE if answer.status == HTTPStatus.UNAUTHORIZED else ()
        location = [("Location", answer.location)] if answer.location else []
        headers = [("Content-Type", answer.kind), ("Content-Length", str(len(answer.content))), *HEADERS, *location, *challenge]
        start_response(f"{answer.status.value} {answer.status.phrase}", headers)
        return () if method == "HEAD" else [answer.content]

    def _answer(self, environ: WSGIEnvironment, moment: ViewContext) -> _PageResponse | Iterator[object]:
        path, method = str(environ.get("PATH_INFO", "")), environ["REQUEST_METHOD"]
        name, rest = _of_connector(path)
        if name and rest == _TAP and method == "GET":
            return self._stream(moment, name)
        place = OF_CONNECTORS.get(rest) if name else PLACES.get(path)
        if method == "POST" and place and place.act:
            _must_operate(moment)
            return self._act(partial(place.act, moment, name, _form(environ)), moment)
        if method not in {"GET", "HEAD"}:
            raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "this address can only be read")
        if path in FILES:
            return _PageResponse(HTTPStatus.OK, FILES[path], self._files[path])
        if place is None:
            raise StatusError(HTTPStatus.NOT_FOUND, "there is nothing at this address")
        if place.operates:
            _must_operate(moment)
        return _shown(place.look(moment, name, _fields(str(environ.get("QUERY_STRING", "")))), moment)

    def _act(self, act: Callable[[], View | str], moment: ViewContext) -> _PageResponse:
        if not self._changes.acquire(timeout=WAIT_SECONDS):
            raise BusyError("other changes are under way", "try again when they are done")
        try:
            done = act()
        finally:
            self._changes.release()
        return _shown(done, moment) if isinstance(done, View) else _PageResponse(HTTPStatus.SEE_OTHER, _HTML, b"", done)

    def _stream(self, moment: ViewContext, name: str) -> Iterator[object]:
        _must_operate(moment)
        found = records(moment, name)
        if not self._streams.acquire(blocking=False):
            raise BusyError(f"{STREAMS_MAX} streams of records are open already", "end one of them, or try again in a minute")
        return found


def _shown(view: View, moment: ViewContext) -> _PageResponse:
    return _PageResponse(HTTPStatus.OK, _HTML, document(view, moment).encode())


def _must_operate(moment: ViewContext) -> None:
    """Raises StatusError for users who may only view. At a port without logins that is everybody: any user of the host may reach it."""
    if not moment.operates:
        words = "this needs a user who may operate"
        raise StatusError(HTTPStatus.FORBIDDEN, words, "set api.users, with a line made by: copycat passwd NAME --role operate")


def _of_connector(path: str) -> tuple[str, str]:
    """Returns the connector in an address, and what follows; ("", "") without one. Raises UnknownConnectorError for an invalid name."""
    if not path.startswith(_CONNECTORS):
        return "", ""
    name, _, rest = path.removeprefix(_CONNECTORS).partition("/")
    if not is_name(name) or path.endswith("/"):
        raise UnknownConnectorError("no connector can have this name")
    return name, rest


def _fields(text: str) -> Fields:
    try:
        return dict(urllib.parse.parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX))
    except ValueError:
        raise StatusError(HTTPStatus.BAD_REQUEST, f"there are more than {_FIELDS_MAX} fields") from None


def _form(environ: WSGIEnvironment) -> Fields:
    """Returns the fields of a form, with plain line breaks. Raises StatusError unless a browser sends it from one of the agent's pages.

    The guard has already checked that the headers name no other page.
    """
    if environ.get("HTTP_ORIGIN") is None and environ.get("HTTP_SEC_FETCH_SITE") != "same-origin":
        raise StatusError(HTTPStatus.FORBIDDEN, "only the page itself may change something", "programs use the API: docs/api.md")
    if str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower() != _FORM:
        raise StatusError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "this is no form of the page")
    sent = _fields(environ["wsgi.input"].read().decode("ascii", "replace"))
    return {name: value.replace("\r\n", "\n") for name, value in sent.items()}


_STATUSES = ((UnknownConnectorError, HTTPStatus.NOT_FOUND), (BusyError, HTTPStatus.CONFLICT))


def _refused(error: Exception, method: str) -> _PageResponse:
    if isinstance(error, StatusError):
        status, words, hint = error.status, error.message, error.hint
    elif isinstance(error, CopycatError):
        status = next((one for kind, one in _STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
        words, hint = error.message, error.hint
    else:
        status, words, hint = HTTPStatus.INTERNAL_SERVER_ERROR, fault(error, method), FAULT_HINT
    return _PageResponse(status, _HTML, error_document(f"{status.value} {status.phrase}", words, hint).encode())
