"""An agent that says what a test wants, and a clock that a test turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from copycat_agent.control import AgentView, Control, ReloadResult
from copycat_agent.options import AgentOptions, ApiOptions
from copycat_agent.sources import Lag
from copycat_agent.worker import State, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from wsgiref.types import WSGIApplication

    from copycat_agent.model import LossReason, LossTotal

NOW = 1_800_000_000.0


def running(name: str = "app", **changes: Any) -> Status:
    """A connector at work with nothing unread."""
    return replace(Status(name, State.RUNNING, since=NOW - 1000), **changes)


def behind(name: str = "app", *, since: float = NOW, **changes: Any) -> Status:
    """A connector with 300 bytes in 2 files that wait since then."""
    return running(name, lag=Lag(bytes=300, files=2, oldest_unread_ms=int(since * 1000)), **changes)


class FakeAgent:
    """The part of `Control` that monitoring reads. Change its attributes as the story goes."""

    def __init__(self, *statuses: Status) -> None:
        self.options = AgentOptions(api=ApiOptions(stalled_after=60.0))
        self.now = AgentView(
            version="1.2.3", pid=1, uuid="u", started=NOW - 5000, state_dir="/s", directory="/d", spark="running", java_pid=2,
            offsets_unsaved="", last_reload=ReloadResult(), reloads={"ok": 1},
        )  # fmt: skip
        self.there = statuses
        self.losses: Mapping[tuple[str, LossReason], LossTotal] = {}
        self.error: Exception | None = None

    @property
    def control(self) -> Control:
        """Itself, for what takes a `Control`."""
        return cast("Control", self)

    def view(self) -> AgentView:
        return self.now

    def statuses(self) -> tuple[Status, ...]:
        return self.there

    def loss_totals(self) -> Mapping[tuple[str, LossReason], LossTotal]:
        if self.error is not None:
            raise self.error
        return self.losses


class Clock:
    """The wall clock and the monotonic one, which go together unless a test steps one."""

    def __init__(self) -> None:
        self.wall = NOW
        self.monotonic = 10.0

    def pass_(self, seconds: float) -> None:
        """Time passes on both."""
        self.wall += seconds
        self.monotonic += seconds


def get(app: WSGIApplication, path: str, method: str = "GET", **environ: str) -> tuple[int, dict[str, str], bytes]:
    """Ask a WSGI application: status, headers by name, body."""
    answer: list[tuple[str, list[tuple[str, str]]]] = []

    def start(status: str, headers: list[tuple[str, str]], _: object = None) -> Any:
        answer.append((status, headers))

    body = b"".join(cast("Iterator[bytes]", app({"PATH_INFO": path, "REQUEST_METHOD": method, **environ}, start)))
    ((status, headers),) = answer
    return int(status.split()[0]), dict(headers), body


def get_json(app: WSGIApplication, path: str) -> tuple[int, Any]:
    """Status and decoded body."""
    status, headers, body = get(app, path)
    assert headers["Content-Type"] == "application/json"
    return status, json.loads(body)
