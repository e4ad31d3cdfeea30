"""Records per second, from counts that are looked at now and then, and how long a run to the end still takes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from copycat_agent.cli.shown import age

if TYPE_CHECKING:
    from copycat_agent.sources import FileView
    from copycat_agent.worker import Status

HISTORY = 60
"""Rates remembered by connector, one per look."""
_SMOOTH_SECONDS = 10.0
"""Rates are means over about so long."""


class Rates:
    """Fed with every look at the connectors."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}
        self._history: dict[str, deque[float]] = {}

    def look(self, connectors: Iterable[Mapping[str, Any]], now: float) -> None:
        """Connectors as the API shows them, at `now` (monotonic seconds). A count that shrank began anew."""
        for one in connectors:
            name, count = one["name"], one["counts"]["acknowledged"]
            then, before = self._last.get(name, (now, count))
            self._last[name] = (now, count)
            if now > then:
                moved = count - before if count >= before else count
                self._history.setdefault(name, deque(maxlen=HISTORY)).append(moved / (now - then))

    def of(self, name: str) -> float | None:
        """Acknowledged records per second between the last two looks, None before there were two."""
        history = self._history.get(name)
        return history[-1] if history else None

    def history(self, name: str) -> list[float]:
        """The rates of the last looks, oldest first."""
        return list(self._history.get(name, ()))


class FollowedRun(Protocol):
    """What is followed."""

    def wait(self, seconds: float) -> bool:
        """At most so long; True once it is over."""

    @property
    def status(self) -> Status:
        """How it is now."""

    def trouble(self) -> str:
        """Why nothing moves now, "" while it does."""

    def files(self) -> Sequence[FileView]:
        """How far it is in each file."""


class RunPace:
    """Rates and what is left, from looks now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._records = self._left = 0
        self._is_first = True
        self.records_per_second = self.bytes_per_second = 0.0

    def look(self, status: Status) -> None:
        """Take in how it stands."""
        now = self._clock()
        records, left = status.counts.read, status.lag.bytes
        if not self._is_first and now > self._at:
            share = min(1.0, (now - self._at) / _SMOOTH_SECONDS) if self.records_per_second or self.bytes_per_second else 1.0
            self.records_per_second += share * ((records - self._records) / (now - self._at) - self.records_per_second)
            self.bytes_per_second += share * (max(0, self._left - left) / (now - self._at) - self.bytes_per_second)
        self._is_first = False
        self._at, self._records, self._left = now, records, left

    def left(self) -> str:
        """How long what is left takes at this pace; "" when nobody knows."""
        if self._left and self.bytes_per_second > 1:
            return f"about {age(self._left / self.bytes_per_second)} left"
        return ""
