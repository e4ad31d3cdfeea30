"""What producers of a task leave to those after them: how much to send at once, what a topic takes, what the cluster has and allows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from copycat_agent.options import KafkaOptions
from copycat_agent.producer.settings import TRANSACTION_TIMEOUT_MS
from copycat_agent.producer.statistics import INTERVAL_SECONDS

MOST_BYTES = 16 * 2**20
"""A flush costs a round trip; a failure repeats a run."""
LEAST_BYTES = 32 * 2**10
_SHRINK = 64
"""A run that failed makes the next one so many times smaller: each failure costs half a minute and repeats."""
_GROW = 8
"""A quick one makes the next so many times larger at most."""
_LEAST_WAIT_SECONDS, _MOST_WAIT_SECONDS = 0.03, 1.0
SLICE_SECONDS = 5.0
"""One call to fence lasts no longer, so that trouble with the connection is heard; asking again goes on with what is under way. Each call
that is given up costs some 200 bytes for good, for the binding (confluent-kafka 2.16.1) never frees the error that says so: hence not in
shorter steps. About every third transaction has such a call: 6 MB a day at one transaction a second."""
_BRIEF_SECONDS = 1.0
"""A producer that lives no longer than this may never get to tell its statistics, which are due every 500 ms."""


class Pace:
    """The size of a producer's next run, learnt from those before it, so that receipts come in time also on a slow line.

    A record that is not acknowledged within the message time-out makes everything since the last receipt be sent again, and a run that is
    larger than what the line carries in that time would be sent again for ever: at 10 KB/s five attempts of 16 MiB brought 58,000 repeats
    and no offset. Used from one thread at a time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.run_bytes = MOST_BYTES
        self._begun: float | None = None
        self._size_bytes = 0

    def begin(self) -> None:
        """Something is sent: a run begins, unless one is under way."""
        if self._begun is None:
            self._begun = self._clock()

    def forget(self) -> None:
        """Forgets the run that is under way: nothing is learnt from it."""
        self._begun, self._size_bytes = None, 0

    def weigh(self, size_bytes: int) -> None:
        """The run that is under way came from so many bytes of input."""
        self._size_bytes = size_bytes

    def settled(self, wanted_seconds: float) -> None:
        """A run has its receipts, and so long it should take at most. Small and quick ones tell nothing about larger ones."""
        begun, size_bytes = self._begun, self._size_bytes
        self.forget()
        if begun is None or not size_bytes:
            return
        fitting = size_bytes * wanted_seconds / max(self._clock() - begun, 1e-3)
        if fitting < size_bytes:
            self._become(fitting)
        elif size_bytes >= self.run_bytes / 2:
            self._become(min(max(fitting, self.run_bytes), self.run_bytes * _GROW))

    def failed(self) -> None:
        """A run had no receipts in time."""
        self.forget()
        self._become(self.run_bytes / _SHRINK)

    def _become(self, run_bytes: float) -> None:
        self.run_bytes = int(min(MOST_BYTES, max(LEAST_BYTES, run_bytes)))


@dataclass(slots=True)
class Learnt:
    """What a process knows of a task that sends to the cluster of `options`. It is kept for a day after the task's last batch.

    `batch_bytes` is what a topic was found to take at once, 0 where nothing is known; `memory` what batches in transactions have found out
    for those after them; `used` when it was last asked for (monotonic).
    """

    options: KafkaOptions
    used: float
    batch_bytes: int = 0
    pace: Pace = field(default_factory=Pace)
    memory: Any = None


@dataclass(slots=True)
class Shared:
    """Holds what the producers of one task have in common, and what they tell those after them.

    `tracked`, `batch_bytes` and `pace` as of a `TaskProducer`; `stopping` ends `ready`, until `begin` says another. Learnt is how long
    brokers let a transaction be, what topics there are and which are missing, when a producer last said something about itself, whether
    the last one that sent something lived too briefly for that, how long fencing takes, and whether it had no answer in all its time.
    """

    tracked: bool = False
    batch_bytes: int = 0
    pace: Pace = field(default_factory=Pace)
    stopping: Callable[[], bool] = lambda: False
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    partitions: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    heard_at: float = -math.inf
    is_brief: bool = False
    init_seconds: float = 0.0
    is_unanswered: bool = False

    def took(self, seconds: float) -> None:
        """Fencing took so long: what it usually takes comes down at once, and goes up slowly."""
        self.init_seconds = min(seconds, 1.25 * self.init_seconds) if self.init_seconds else seconds
        self.is_unanswered = False

    def lived(self, seconds: float) -> None:
        """A producer that has sent something is closed after so long."""
        self.is_brief = seconds < _BRIEF_SECONDS

    def first_wait_seconds(self) -> float:
        """Returns how long the first call to fence waits: half as long again as that usually takes.

        One in four clients misses that a connection is there, and looks again when it is asked again, or after half a second.
        """
        if self.is_unanswered:
            return SLICE_SECONDS
        return min(max(_LEAST_WAIT_SECONDS, 1.5 * self.init_seconds), _MOST_WAIT_SECONDS)

    def statistics(self) -> dict[str, str]:
        """Settings by which the next producer speaks of itself sooner than usual, when those before it never lived to say a word.

        Not often where it may live for long: a word is 12 KB and more, and nobody polls it before it is used.
        """
        silent_seconds = time.monotonic() - self.heard_at
        if silent_seconds <= INTERVAL_SECONDS:
            return {}
        is_overdue = self.is_brief and silent_seconds > 3 * INTERVAL_SECONDS
        return {"statistics.interval.ms": "50" if is_overdue else "500"}
