"""How fast a run to the end is, and how long it still takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from copycat_agent.cli.shown import age

if TYPE_CHECKING:
    from copycat_agent.sources import FileView
    from copycat_agent.worker import Status

_SMOOTH_SECONDS = 10.0
"""Rates are means over about so long."""


class Work(Protocol):
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


class Pace:
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
