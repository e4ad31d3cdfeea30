"""Checks who may use the API: no web pages, no requests meant for another host, and with `api.users` only its users."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.errors import CopycatError

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from copycat_agent.api.port_access import Logins, Role

CHALLENGE = (("WWW-Authenticate", 'Basic realm="copycat", charset="UTF-8"'),)
"""The header of an answer 401."""
FAULT_HINT = "this is a fault of the agent; its log says where"
_OWN_HOSTS = frozenset({"", "copycat", "localhost", "127.0.0.1", "[::1]"})

_log = logs.get("api")


class StatusError(CopycatError):
    """A refusal with an HTTP status."""

    def __init__(self, status: HTTPStatus, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status


class Guard:
    """Refuses requests that a foreign web page has a browser send, which headers reveal, and requests without a login.

    Users who can open the unix socket (0600, in a directory of 0700) may do everything; the guard protects them from pages in their
    browser.

    `hosts` are names that a Host header may have besides the agent's own; None: any, for a port that is open to other hosts, which may know
    this one by any name. `logins` are the users; None: no login is needed. `page_scheme` is `http` or `https` if the port serves the
    agent's own pages, which may send requests; None: there are none.
    """

    def __init__(self, hosts: Iterable[str] | None, logins: Callable[[], Logins] | None = None, page_scheme: str | None = None) -> None:
        self._page_scheme = page_scheme
        self._hosts = None if hosts is None else _OWN_HOSTS | {host.lower() for host in hosts}
        self._logins = logins

    def check(self, environ: WSGIEnvironment) -> Role | None:
        """Returns the role of the request's user, None if no login is needed.

        Raises StatusError for a request from a foreign web page, one meant for another host, and one without a valid login.
        """
        if self._is_for_a_page(environ):
            raise StatusError(HTTPStatus.FORBIDDEN, "web pages may not ask the agent")
        host = str(environ.get("HTTP_HOST", "")).lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] if ":" in host else host
        if self._hosts is not None and name not in self._hosts:
            raise StatusError(HTTPStatus.FORBIDDEN, "the Host header names another host", "use localhost")
        if self._logins is None:
            return None
        role = self._logins().role_of(environ.get("HTTP_AUTHORIZATION"))
        if role is None:
            raise StatusError(HTTPStatus.UNAUTHORIZED, "user or password is wrong", "see api.users in agent.yaml")
        return role

    def _is_for_a_page(self, environ: WSGIEnvironment) -> bool:
        """Whether a web page other than the agent's own has caused it. Pages at another port of this host (`same-site`) are foreign."""
        origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE", "none")
        if self._page_scheme is None:
            return origin is not None or site != "none"
        own = f"{self._page_scheme}://{environ.get('HTTP_HOST', '')}"
        return origin not in {None, own} or site not in {"none", "same-origin"}


def fault(error: Exception, method: str) -> str:
    """Returns a message about an unexpected exception, and logs its place. Only its class is shown: its text may quote anything."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}" if trace else ""
    _log.error("a request could not be answered", method=method, type=type(error).__name__, place=place)
    return f"the agent failed on this request: {type(error).__name__}"
