"""A real Kafka Connect: a standalone worker with FileStreamSource, as `benchmarks` starts one."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from benchmarks.connect_jars import class_path, sourcelab_jar
from benchmarks.tools import connect, end
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.tools import Process

_START_SECONDS = 90.0
_TIMEOUT_SECONDS = 30.0


def fetch_connect() -> None:
    """Have the jars of Connect and of its Java client: fetched once, through the Ivy inside PySpark."""
    class_path()
    sourcelab_jar()


class RestAnswer(NamedTuple):
    """`value` is the JSON of the body, None for an empty one; `location` the address of what was made."""

    status: int
    content_type: str
    value: Any
    location: str = ""


def ask(address: str, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> RestAnswer:
    """One request of the REST API at HOST:PORT; `body` is sent as JSON, bytes as they are."""
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    kind = {} if content is None else {"Content-Type": "application/json"}
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request(method, path, content, {**kind, **(headers or {})})
        answer = connection.getresponse()
        found = _answer(answer.status, answer.getheader("Content-Type", ""), answer.read())
        return found._replace(location=answer.getheader("Location", ""))
    finally:
        connection.close()


def _answer(status: int, kind: str, content: bytes) -> RestAnswer:
    try:
        return RestAnswer(status, kind, json.loads(content) if content else None)
    except ValueError:
        return RestAnswer(status, kind, content)


class ConnectWorker:
    """Runs below `root` with these connectors, name -> settings; use as a context manager."""

    def __init__(self, root: Path, bootstrap: str, connectors: Mapping[str, Mapping[str, str]]) -> None:
        self._root, self._bootstrap = root, bootstrap
        self.connectors = connectors
        self._processes: list[Process] = []
        self.address = ""

    def __enter__(self) -> Self:
        """Start it and wait until it has started its connectors."""
        self._processes = connect(self._root, self._bootstrap, self.connectors)
        settings = dict(line.split("=", 1) for line in (self._root / "worker.properties").read_text().splitlines())
        self.address = settings["listeners"].removeprefix("http://")
        wait_until(self._is_up, _START_SECONDS, lambda: f"no worker answers; its log ends:\n{self._words()}")
        return self

    def __exit__(self, *_: object) -> None:
        end(self._processes)

    def _is_up(self) -> bool:
        assert all(process.poll() is None for process in self._processes), self._words()
        try:
            return len(ask(self.address, "GET", "/connectors").value) == len(self.connectors)
        except (OSError, http.client.HTTPException):
            return False

    def _words(self) -> str:
        return (self._root / "output.log").read_text("utf-8", "replace")[-4000:]
