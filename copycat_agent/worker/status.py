"""What a connector tells about itself."""

from __future__ import annotations

import bisect
import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from copycat_agent.model import ClientView, Counts, Head, Place
from copycat_agent.sources import Lag


class State(enum.StrEnum):
    """States of a connector. FAILED needs a person; RETRYING and BLOCKED end by themselves once the outside is well."""

    STARTING = enum.auto()
    RUNNING = enum.auto()
    RETRYING = enum.auto()
    BLOCKED = enum.auto()
    PAUSED = enum.auto()
    STOPPED = enum.auto()
    FAILED = enum.auto()


BOUNDS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of a `Timing`'s buckets; one more takes the rest."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A histogram of durations: `buckets[i]` counts those up to `BOUNDS_SECONDS[i]` and above the bound before."""

    buckets: tuple[int, ...] = (0,) * (len(BOUNDS_SECONDS) + 1)
    total_seconds: float = 0.0

    def plus(self, seconds: float) -> Timing:
        """This one with another duration in it."""
        index = bisect.bisect_left(BOUNDS_SECONDS, seconds)
        buckets = (*self.buckets[:index], self.buckets[index] + 1, *self.buckets[index + 1 :])
        return Timing(buckets, self.total_seconds + seconds)


@dataclass(frozen=True, slots=True)
class Status:
    """A connector at one moment. `counts` since it was started; `since` and `acknowledged_at` in epoch seconds (0: never).

    BLOCKED with `lag.blocked_files` means these files only: the others go on. `unsaved`: it stopped and could not save offsets.
    """

    name: str
    state: State = State.STARTING
    reason: str = ""
    since: float = field(default_factory=time.time)
    counts: Counts = field(default_factory=Counts)
    lag: Lag = field(default_factory=Lag)
    retries: int = 0
    acknowledged_at: float = 0.0
    unsaved: bool = False
    enabled: bool = True
    tasks: int = 0
    """Batches under way."""
    commit_seconds: Timing = field(default_factory=Timing)
    """How long saving offsets took."""
    delivery_seconds: Timing = field(default_factory=Timing)
    """From handing a batch to a task to having its end acknowledged: an upper bound for each of its records."""
    clients: tuple[ClientView, ...] = ()
    """The producers' latest words, task by task."""
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Errors by stage (`send`, `read`, `parse`, ...) and class name, since the start."""
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"
    lanes: Mapping[int, Head] = field(default_factory=dict)
    """Where each lane of an exactly_once connector is; empty while they are not open."""
    place: Place | None = None
    cluster: str = ""
    delivery_outcomes: Mapping[str, int] = field(default_factory=dict)
    """committed, idle, undone and unknown transactions, and openings of lanes, since the start."""

    @property
    def troubled_files(self) -> int:
        """Files and directories that match and cannot be read now."""
        return self.lag.troubled_files
