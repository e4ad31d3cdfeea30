"""Decides whether the agent is alive, ready and healthy, from what a `Control` tells. Nothing here waits for Kafka or a disk.

- alive: the process answers, and so does what all connectors need. If not, restart it. One connector that hangs is no reason to.
- ready: definitions are loaded, and every connector has looked at its files once. Whether Kafka answers does not matter.
- healthy: what is written gets delivered. It is not while something waits to be read and nothing was acknowledged for
  `api.stalled_after`, while offsets cannot be saved, or while a connector is FAILED or BLOCKED. A paused or stopped connector is healthy.

Ages are measured with the monotonic clock between two calls, so that a step of the wall clock neither raises nor hides an alarm.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from copycat_agent.control import AgentView, Control
from copycat_agent.worker import State, Status

Kind = Literal["starting", "stopping", "stuck", "stalled", "failed", "blocked", "offsets_unsaved"]


class HealthProblem(NamedTuple):
    """One reason for a bad verdict. `connector` is "" for the agent itself; `since` in epoch seconds; `action` is a command to run."""

    kind: Kind
    connector: str
    reason: str
    since: float
    action: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a check. `resting` says which connectors are paused, stopped or disabled."""

    troubles: tuple[HealthProblem, ...] = ()
    resting: Mapping[str, str] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether there are no troubles."""
        return not self.troubles


class _Stall(NamedTuple):
    """A connector without progress since `begun` (`time.monotonic()`), and for `age` seconds before that."""

    progress: object
    begun: float
    age: float


class Health:
    """The three checks of one agent. Thread-safe and cheap. It remembers the last progress it saw, to detect what has stalled."""

    def __init__(self, control: Control, *, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`wall` and `monotonic` are clocks, in seconds."""
        self._control = control
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._marks: dict[str, _Stall] = {}
        self._seen: dict[tuple[Kind, str], float] = {}
        self._was_ready = False

    def alive(self) -> Verdict:
        """Checks whether the process works. If not, only a restart helps."""
        return Verdict(tuple(one for one in self._agents_own(self._control.view()) if one.kind == "stuck"))

    def ready(self) -> Verdict:
        """Checks whether the agent has started and is not stopping. Once it was ready, a connector added later does not change that."""
        return Verdict(self._not_ready(self._control.view(), self._control.statuses()))

    def delivering(self) -> Verdict:
        """Checks whether all that is written arrives, and would not arrive twice after a crash."""
        view, statuses = self._control.view(), self._control.statuses()
        unready = self._not_ready(view, statuses)
        if unready:
            return Verdict(unready, _resting(statuses))
        stalled = self.stalled(statuses)
        theirs = (self._of(status, stalled[status.name], view) for status in statuses)
        return Verdict((*self._agents_own(view), *(one for one in theirs if one is not None)), _resting(statuses))

    def stalled(self, statuses: Iterable[Status]) -> dict[str, float]:
        """Returns for how many seconds each connector has had nothing acknowledged although something waits; 0 if all is well."""
        with self._lock:
            marks, now = {}, self._monotonic()
            for status in statuses:
                marks[status.name] = self._mark(status, now)
            self._marks = {name: mark for name, mark in marks.items() if mark is not None}
            return {name: 0.0 if mark is None else mark.age + now - mark.begun for name, mark in marks.items()}

    def _mark(self, status: Status, now: float) -> _Stall | None:
        """Returns the earlier mark without progress, a new one after progress, and None if no progress is expected."""
        if not _has_to_move(status):
            return None
        progress = (status.state is State.STARTING, status.counts, status.acknowledged_at, status.lag.oldest_unread_ms)
        before = self._marks.get(status.name)
        if before is not None and before.progress == progress:
            return before
        begun = status.since if status.state is State.STARTING else max(status.acknowledged_at, status.lag.oldest_unread_ms / 1000)
        known = status.state is State.STARTING or status.lag.oldest_unread_ms
        return _Stall(progress, now, max(0.0, self._wall() - begun) if known else 0.0)

    def _not_ready(self, view: AgentView, statuses: tuple[Status, ...]) -> tuple[HealthProblem, ...]:
        if view.stopping:
            return tuple(one for one in self._agents_own(view) if one.kind == "stopping")
        if self._was_ready:
            return ()
        starting = tuple(
            HealthProblem("starting", status.name, "it has not looked at its files yet", status.since, f"copycat describe {status.name}")
            for status in statuses
            if status.state is State.STARTING and status.enabled
        )
        if not starting and view.last_reload is None and not statuses:
            starting = (HealthProblem("starting", "", "definitions are not loaded yet", view.started, "copycat status"),)
        self._was_ready = not starting
        return starting

    def _agents_own(self, view: AgentView) -> tuple[HealthProblem, ...]:
        """Returns the troubles of the agent itself, with the time at which each was first seen."""
        found: list[tuple[Kind, str, str, str]] = []
        if view.stopping:
            found.append(("stopping", "", "the agent stops", ""))
        if view.offsets_unsaved:
            reason = f"offsets cannot be saved: {view.offsets_unsaved}"
            found.append(("offsets_unsaved", "", reason, f"copycat doctor {view.directory}"))
        if view.hangs:
            found.append(("stuck", "", "what all connectors need does not answer", "systemctl restart copycat"))
        with self._lock:
            now = self._wall()
            self._seen = {(kind, name): self._seen.get((kind, name), now) for kind, name, _, _ in found}
            return tuple(HealthProblem(kind, name, why, self._seen[kind, name], action) for kind, name, why, action in found)

    def _of(self, status: Status, stalled_seconds: float, view: AgentView) -> HealthProblem | None:
        """Returns a connector's worst trouble, None without any."""
        if status.state is State.FAILED:
            return HealthProblem("failed", status.name, status.reason, status.since, f"copycat ctl restart {status.name}")
        if status.state is State.BLOCKED:
            return HealthProblem("blocked", status.name, status.reason, status.since, f"copycat doctor {view.directory}")
        if stalled_seconds <= self._control.options.api.stalled_after:
            return None
        since = self._wall() - stalled_seconds
        return HealthProblem("stalled", status.name, _stall(status, stalled_seconds), since, f"copycat describe {status.name}")


def _has_to_move(status: Status) -> bool:
    if not status.enabled or status.state in {State.PAUSED, State.STOPPED, State.FAILED}:
        return False
    return status.state is State.STARTING or status.lag.files > 0


def _stall(status: Status, seconds: float) -> str:
    if status.state is State.STARTING:
        return f"its first look at its files takes {seconds:.0f} s"
    files = "1 file" if status.lag.files == 1 else f"{status.lag.files} files"
    words = f"nothing acknowledged for {seconds:.0f} s while {status.lag.bytes} bytes in {files} wait"
    return f"{words}: {status.reason}" if status.reason else words


def _resting(statuses: Iterable[Status]) -> dict[str, str]:
    resting = {status.name: str(status.state) for status in statuses if status.state in {State.PAUSED, State.STOPPED}}
    return resting | {status.name: "disabled" for status in statuses if not status.enabled}
