"""The client of the agent's HTTP interface on its unix socket, for commands.

It needs only the standard library. The server is in `server`; it imports `app`, and with it the HTTP libraries, at the first request.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from copycat_agent.errors import BusyError, CopycatError, UnknownConnectorError

__all__ = ["AgentClient", "AgentUnreachableError", "RefusedRequestError", "address"]


class AgentUnreachableError(CopycatError):
    """No agent answers at this socket: none runs, it runs elsewhere or as another user, or it has ended."""


class RefusedRequestError(CopycatError):
    """The request is invalid: a value is wrong, too large, or of the wrong type."""


class MissingError(CopycatError):
    """There is nothing at this address."""


ANSWER_SECONDS = 10.0
"""Time limit of `/livez`, also under load. It is asked first, so that nobody waits for minutes for an agent that hangs."""
READ_SECONDS = 30.0
"""Time limit of a request that changes nothing. It is needed for lists of 100,000 files."""
CHANGE_SECONDS = 180.0
"""Time limit of a change. It is answered when it is done, and a connector that stops may settle what is in flight first."""
BODY_BYTES_MAX = 32 * 2**20
"""Largest body that the server accepts: offsets of 100,000 files."""
HOST = "copycat"
"""The client's Host header."""

_AGAIN_SECONDS = 0.05
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_HOW_TO_START = "start it with: copycat run DIR; an agent with another state directory is found with --state-dir or --socket"
_ERRORS: dict[str, type[CopycatError]] = {
    "unknown_connector": UnknownConnectorError,
    "busy": BusyError,
    "refused": RefusedRequestError,
    "missing": MissingError,
}


def is_name(text: str) -> bool:
    """Returns whether a connector may have this name."""
    return bool(_NAME.fullmatch(text))


def address(kind: str, name: str, rest: str = "") -> str:
    """Returns a path such as `/v1/connectors/app/files`. Raises UnknownConnectorError for an invalid name."""
    if not is_name(name):
        raise UnknownConnectorError(f"no connector can have the name {name!r:.80}", "see: copycat ls")
    return f"/v1/{kind}/{name}{rest}"


class AgentClient:
    """Sends requests to the agent at `socket_path`, each on a connection of its own. Thread-safe.

    All methods return the parsed JSON of the answer. They raise AgentUnreachableError if nobody answers, UnknownConnectorError, BusyError
    or RefusedRequestError if the agent refuses, and another CopycatError if it fails, with the agent's own message and hint. Paths start
    with `/v1`.
    """

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self._answered_at = float("-inf")

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Sends GET."""
        return self._ask("GET", path, None, READ_SECONDS)

    def text(self, path: str) -> str:
        """Returns the body at a path outside `/v1` (`/readyz`, `/metrics`), whatever its status."""
        with _ApiConnection(self.socket_path, READ_SECONDS) as call:
            return call.send("GET", path, None).read().decode("utf-8", "replace")

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Sends POST. Returns when the change is done."""
        return self._ask("POST", path, body, CHANGE_SECONDS)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Sends PUT. Returns when the change is done."""
        return self._ask("PUT", path, body, CHANGE_SECONDS)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Sends DELETE. Returns when the change is done."""
        return self._ask("DELETE", path, body, CHANGE_SECONDS)

    def stream(self, path: str, silent_seconds: float = CHANGE_SECONDS) -> Iterator[Any]:
        """Yields a JSON value per line as they come. Raises AgentUnreachableError after `silent_seconds` without any."""
        self._check_alive()
        with _ApiConnection(self.socket_path, silent_seconds) as call:
            answer = call.send("GET", path, None)
            if answer.status != http.client.OK:
                raise _error_of(answer.status, answer.read())
            while line := answer.readline():
                if line.strip():
                    yield _value_of(line)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float) -> Any:  # noqa: ANN401 - JSON
        self._check_alive()
        with _ApiConnection(self.socket_path, seconds) as call:
            answer = call.send(method, path, body)
            content = answer.read()
        self._answered_at = time.monotonic()
        if answer.status != http.client.OK:
            raise _error_of(answer.status, content)
        return _parsed(content)

    def _check_alive(self) -> None:
        """Raises AgentUnreachableError unless the agent answers `/livez`, or has answered within `ANSWER_SECONDS`."""
        if time.monotonic() - self._answered_at > ANSWER_SECONDS:
            with _ApiConnection(self.socket_path, ANSWER_SECONDS) as call:
                call.send("HEAD", "/livez", None).read()
            self._answered_at = time.monotonic()


class _ApiConnection:
    """One connection. As a context manager it translates the errors within."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._seconds, self._changes = path, seconds, False
        self._connection = _UnixConnection(path, seconds)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None) -> http.client.HTTPResponse:
        self._changes = method not in {"GET", "HEAD"}
        headers = {"Host": HOST, "Connection": "close"}
        content = None
        if body is not None:
            headers["Content-Type"], content = "application/json", json.dumps(body).encode()
            if len(content) >= BODY_BYTES_MAX:
                raise RefusedRequestError(f"that is too much at a time: more than {BODY_BYTES_MAX} bytes", "do it in several parts")
        self._connection.request(method, path, content, headers)
        return self._connection.getresponse()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._connection.close()
        if isinstance(error, OSError | http.client.HTTPException):
            raise self._translated(error) from None

    def _translated(self, error: OSError | http.client.HTTPException) -> CopycatError:
        if isinstance(error, PermissionError):
            return AgentUnreachableError(
                f"no permission for {self._path}", "run this as the agent's user, as in: sudo -u copycat copycat ..."
            )
        if isinstance(error, TimeoutError):
            hint = "what was asked for may still happen; " if self._changes else ""
            return AgentUnreachableError(
                f"the agent did not answer within {self._seconds:.0f} s",
                f"{hint}see its log, and what its process does: ps -o pid,stat,wchan:20,args -p {self._connection.peer_pid}",
            )
        if isinstance(error, BlockingIOError):
            return AgentUnreachableError(
                f"the agent behind {self._path} takes no more connections", "it hangs, or too many programs ask it; see its log"
            )
        if self._connection.is_connected:
            return AgentUnreachableError("the agent went away before it answered", "see its log; it was perhaps stopped")
        if isinstance(error, FileNotFoundError | ConnectionRefusedError | NotADirectoryError):
            return AgentUnreachableError(f"no agent answers at {self._path}", _HOW_TO_START)
        return AgentUnreachableError(f"cannot reach the agent at {self._path}: {getattr(error, 'strerror', None) or error}", _HOW_TO_START)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(HOST, timeout=seconds)
        self._path = path
        self.is_connected = False
        self.peer_pid = 0

    def connect(self) -> None:
        """Connects to the path instead of the host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        _connect(self.sock, str(self._path), ANSWER_SECONDS)
        self.is_connected = True
        self.peer_pid = struct.unpack("iii", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iii")))[0]


def _connect(sock: socket.socket, path: str, seconds: float) -> None:
    """Connects. If the backlog is full, the kernel returns EAGAIN at once, whatever the time-out: retries for `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            sock.connect(path)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(_AGAIN_SECONDS)
        else:
            return


def _parsed(content: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(content)
    except ValueError:
        raise CopycatError("the answer is no JSON", "is it a copycat agent that listens there?") from None


def _value_of(line: bytes) -> Any:  # noqa: ANN401 - JSON
    """Returns a value of a stream. Raises an error that the agent has sent in place of a value."""
    value = _parsed(line)
    if isinstance(value, dict) and value.keys() == {"error", "hint", "kind"}:
        raise _error_of(0, line)
    return value


def _error_of(status: int, content: bytes) -> CopycatError:
    """Returns the error that the agent has sent; for any other body an error with the HTTP status."""
    try:
        said = json.loads(content)
        kind, message, hint = said["kind"], str(said["error"]), str(said["hint"])
    except (ValueError, KeyError, TypeError):
        return CopycatError(f"the agent answered with HTTP status {status}", "is it a copycat agent that listens there?")
    return _ERRORS.get(kind, CopycatError)(message, hint)
