"""The state of a connector, its counts and measurements, and the snapshot of both that others get."""

from __future__ import annotations

import bisect
import enum
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from copycat_agent.errors import FileError
from copycat_agent.logs import Log
from copycat_agent.model import ClientView, Counts, Head, OffsetsPartition, Rejection, SplitResult
from copycat_agent.sources import Lag


class State(enum.StrEnum):
    """States of a connector. FAILED needs a person; RETRYING and BLOCKED end by themselves once their outside cause is gone."""

    STARTING = enum.auto()
    RUNNING = enum.auto()
    RETRYING = enum.auto()
    BLOCKED = enum.auto()
    PAUSED = enum.auto()
    STOPPED = enum.auto()
    FAILED = enum.auto()


BOUNDS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of a `Timing`'s buckets; one more bucket has no upper bound."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A histogram of durations: `buckets[i]` counts those up to `BOUNDS_SECONDS[i]` and above the previous bound."""

    buckets: tuple[int, ...] = (0,) * (len(BOUNDS_SECONDS) + 1)
    total_seconds: float = 0.0

    def plus(self, seconds: float) -> Timing:
        """Returns this histogram with another duration added."""
        index = bisect.bisect_left(BOUNDS_SECONDS, seconds)
        buckets = (*self.buckets[:index], self.buckets[index] + 1, *self.buckets[index + 1 :])
        return Timing(buckets, self.total_seconds + seconds)


@dataclass(frozen=True, slots=True)
class Status:
    """A snapshot of a connector. `counts` since it was started; `since` and `acknowledged_at` in epoch seconds (0: never).

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
    """Batches in flight."""
    commit_seconds: Timing = field(default_factory=Timing)
    """How long saving offsets took."""
    delivery_seconds: Timing = field(default_factory=Timing)
    """From submitting a batch to having its end acknowledged: an upper bound for each of its records."""
    clients: tuple[ClientView, ...] = ()
    """The producers' latest statistics, task by task."""
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Errors by stage (`send`, `read`, `parse`, ...) and class name, since the start."""
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"
    """The guarantee for each record; see `Definition.promise`."""
    sink: str = "kafka"
    """Where records go, as in `sink.type`."""
    lanes: Mapping[int, Head] = field(default_factory=dict)
    """The head of each lane of an exactly_once connector; empty while they are not open."""
    place: OffsetsPartition | None = None
    cluster: str = ""
    delivery_outcomes: Mapping[str, int] = field(default_factory=dict)
    """Counts of committed, idle, undone and unknown transactions, and of openings of lanes, since the start."""

    @property
    def has_lanes(self) -> bool:
        """Returns whether the connector delivers exactly once by Kafka transactions, and so has lanes."""
        return self.guarantee == "exactly_once" and self.sink == "kafka"

    @property
    def troubled_files(self) -> int:
        """Returns the number of files and directories that match and cannot be read now."""
        return self.lag.troubled_files


class CurrentState(NamedTuple):
    """A state with its reason ("" when it needs none), and since when, in epoch seconds."""

    state: State
    reason: str
    since: float


class ConnectorState:
    """Written by the connector's steps; `now`, `save_error` and `left_unsaved` are read by any thread."""

    def __init__(self, log: Log, on_change: Callable[[], None] = lambda: None) -> None:
        self.now = CurrentState(State.STARTING, "", time.time())
        self.save_error = ""
        """Why offsets cannot be saved at the moment, "" when they can."""
        self.left_unsaved = False
        """Whether it stopped and could not save offsets."""
        self._log = log
        self._on_change = on_change

    @property
    def state(self) -> State:
        """Returns the state alone."""
        return self.now.state

    def become(self, state: State, reason: str = "") -> None:
        """Sets state and reason, if either is new. The start time stays when only the reason changes."""
        before = self.now
        if (state, reason) == before[:2]:
            return
        log = self._log.bind(why=reason) if reason else self._log
        log.info("connector state", always=True, state=state)
        self.now = CurrentState(state, reason, before.since if state is before.state else time.time())
        self._on_change()


_NOTHING = Counts()


class ConnectorMetrics:
    """Written by the steps of the running connector (one at a time), read by any thread. Values are replaced, not changed in place."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.retries = 0
        self.acknowledged_at = 0.0
        self.commit_seconds = Timing()
        self.delivery_seconds = Timing()
        self._delivery_outcomes: Counter[str] = Counter()
        self._clients: dict[int, ClientView] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self.source_lag = Lag()
        """The source's lag when it was last computed."""
        self._earlier = Lag()

    @property
    def clients(self) -> tuple[ClientView, ...]:
        """Returns the producers' latest statistics, by task."""
        return tuple(view for _, view in sorted(self._clients.copy().items()))

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """Returns error counts by stage and class."""
        return self._errors.copy()

    @property
    def delivery_outcomes(self) -> Counter[str]:
        """Returns counts of transactions by outcome; `unknown` ones count again as what they turned out to be. Includes `openings`."""
        return self._delivery_outcomes.copy()

    @property
    def lag(self) -> Lag:
        """Returns the source's lag, plus what its predecessors counted."""
        lag, earlier = self.source_lag, self._earlier
        return lag._replace(
            lost_bytes=lag.lost_bytes + earlier.lost_bytes,
            rotated_files=lag.rotated_files + earlier.rotated_files,
            truncated_files=lag.truncated_files + earlier.truncated_files,
        )

    def begin(self) -> None:
        """Prepares for a new source, which counts from zero and has its own producers."""
        self._earlier, self.source_lag = self.lag, Lag()
        self._clients.clear()

    def saved(self, seconds: float) -> None:
        """Notes that saving offsets took `seconds`."""
        self.commit_seconds = self.commit_seconds.plus(seconds)

    def count_results(self, task: int, results: Sequence[SplitResult], seconds: float) -> None:
        """Counts the saved results of a task's batch that ended `seconds` after it was submitted."""
        counts = _NOTHING
        told: set[tuple[str, str]] = set()
        for result in results:
            if result.counts != _NOTHING:
                counts += result.counts
            if result.error is not None:
                told.add(("read" if isinstance(result.error, FileError) else "send", type(result.error).__name__))
            if result.rejections:
                self._count_bad(result.rejections, result.counts)
            if result.client is not None:
                self._clients[task] = result.client
        for stage, kind in told:  # one problem of the broker is one error, however many files wait for it
            self.count_error(stage, kind)
        if counts != _NOTHING:
            self.counts += counts
            self.delivery_seconds = self.delivery_seconds.plus(seconds)
        if not told:
            self.acknowledged_at = time.time()

    def count_error(self, stage: str, kind: str, times: int = 1) -> None:
        """Adds `times` errors of this kind."""
        self._errors[stage, kind] = self._errors.get((stage, kind), 0) + times

    def count_outcome(self, what: str) -> None:
        """Adds one to this count of `delivery_outcomes`."""
        self._delivery_outcomes = self._delivery_outcomes + Counter([what])

    def _count_bad(self, rejections: Sequence[Rejection], counts: Counts) -> None:
        """Counts bad records. Only the first have a stage: the others are counted under the stage of the last of these."""
        for rejection in rejections:
            self.count_error(rejection.stage, "DataError")
        unnamed = counts.dead_lettered + counts.rejected - len(rejections)
        if unnamed > 0:
            self.count_error(rejections[-1].stage, "DataError", unnamed)
