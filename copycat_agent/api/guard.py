"""Who may ask, not web pages, not who meant another host, and with `api.users` only those named there; and how a fault is told."""

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
"""Goes with 401."""
FAULT_HINT = "this is a fault of the agent; its log says where"
_OWN_HOSTS = frozenset({"", "copycat", "localhost", "127.0.0.1", "[::1]"})

_log = logs.get("api")


class StatusError(CopycatError):
    """A refusal with a status of its own."""

    def __init__(self, status: HTTPStatus, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status


class Guard:
    """Keeps browsers out: a web page can make one send requests to this host, but not without saying so.

    Who can open the unix socket (0600, in a directory of 0700) may do everything; this is against what such a user's programs do
    without his knowing.

    `hosts` are names that clients may use besides our own; None: any, on a port that is open to other hosts, which know this one by
    names that it does not know. `logins`: who may ask; None: everybody. `page_scheme`: `http` or `https` where pages of the agent's own are
    served, which may ask on; None: there are none.
    """

    def __init__(self, hosts: Iterable[str] | None, logins: Callable[[], Logins] | None = None, page_scheme: str | None = None) -> None:
        self._page_scheme = page_scheme
        self._hosts = None if hosts is None else _OWN_HOSTS | {host.lower() for host in hosts}
        self._logins = logins

    def check(self, environ: WSGIEnvironment) -> Role | None:
        """Returns what the user of this request may do, None where nobody is asked for a login.

        Raises `StatusError` for a request on behalf of a web page, one that was meant for another host, and one without a login.
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
        """Whether a web page has it sent, one of our own excepted. Another port of this host is another page: `same-site` is foreign."""
        origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE", "none")
        if self._page_scheme is None:
            return origin is not None or site != "none"
        own = f"{self._page_scheme}://{environ.get('HTTP_HOST', '')}"
        return origin not in {None, own} or site not in {"none", "same-origin"}


def fault(error: Exception, method: str) -> str:
    """Returns words for a fault of the agent's own, and logs where it happened.

    The error's own words may quote anything: its class is all that is told.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}" if trace else ""
    _log.error("a request could not be answered", method=method, type=type(error).__name__, place=place)
    return f"the agent failed on this request: {type(error).__name__}"
