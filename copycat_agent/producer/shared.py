"""What the producers of one task, each of which lives for one transaction, tell those after them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from copycat_agent.producer.pace import Pace
from copycat_agent.producer.settings import TRANSACTION_TIMEOUT_MS
from copycat_agent.producer.statistics import INTERVAL_SECONDS

_LEAST_WAIT_SECONDS, _MOST_WAIT_SECONDS = 0.03, 1.0
SLICE_SECONDS = 5.0
"""One call to fence lasts no longer, so that trouble with the connection is heard; asking again goes on with what is under way. Each call
that is given up costs some 200 bytes for good, for the binding never frees the error that says so: hence not in shorter steps."""
_BRIEF_SECONDS = 1.0
"""Who lives no longer than this may never get to say a word that is due every 500 ms."""


@dataclass(slots=True)
class Shared:
    """What the producers of one task have in common, and what they tell those after them.

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
        """How long the first call to fence waits: half as long again as that usually takes.

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
