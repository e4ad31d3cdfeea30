"""When a connector looks, plans and rests. All times are of `time.monotonic()`, handed in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from copycat_agent.worker.poll_loop import Wait

LOOK_GAP_SECONDS = 0.05
"""Least time between two looks that events ask for; a look that takes long keeps five times its own duration."""
BUSY_SECONDS = 1.0
"""Longest wait while there is something to do: a file that failed, an answer of Kafka, a query that is examined."""
PAUSED_SECONDS = 0.5
"""Least time between two looks at files that grow while nothing of them is to be read."""


@dataclass(slots=True)
class RoundSchedule:
    """The times of one connector. `linger`: least seconds between two batches of a task that is up to date."""

    linger: float
    next_look: float = 0.0
    """When a look is due if nothing asks for one before."""
    look_allowed_at: float = 0.0
    """When a look may follow on events."""
    plan_at: float = 0.0
    """When the next batch may be planned."""
    ripe_at: float = math.inf
    """When records are to be planned that nothing but time ends, see `Source.ripen`."""
    has_looked: bool = False
    blind: bool = False
    """Whether the last look could tell nothing of what is there."""
    is_idle: bool = False
    """Whether nothing was to be done, and all was well, when the present wait began."""

    def look_soon(self) -> None:
        """Something happened that only a look can sort out."""
        self.next_look = min(self.next_look, self.look_allowed_at)

    def looked(self, now: float, seconds: float, interval: float) -> None:
        """A look that took `seconds` is over, the next one is due after `interval`."""
        self.blind, self.has_looked = False, True
        self.look_allowed_at = now + max(LOOK_GAP_SECONDS, 5 * seconds)
        self.next_look = now + interval

    def found_unchanged(self, now: float, interval: float) -> None:
        """Nothing has changed: the next look is due after `interval`."""
        self.next_look = now + interval

    def cannot_look(self) -> None:
        """A look could tell nothing: the next one is due when the source says that it knows more."""
        self.blind, self.next_look = True, math.inf

    def is_time_to_check(self, now: float) -> bool:
        """Whether a look is due and was waited for by a connector that had nothing else to do.

        If it finds all as it was, a whole round would do nothing: of a thousand idle connectors it would take a tenth of a core.
        """
        return self.is_idle and self.next_look <= now < self.ripe_at

    def wait_for_a_look(self) -> Wait:
        """Nothing is to be done until then, unless something happens."""
        return Wait(min(self.next_look, self.ripe_at), deaf=False)

    def wait(self, now: float, retry_at: float, *, is_idle: bool, is_well: bool, pausing: bool) -> Wait:
        """Until there is a reason for another round. Nothing can be planned before `retry_at`; `is_idle`: nothing is to be done."""
        begin = now + PAUSED_SECONDS if pausing else max(self.plan_at, retry_at)
        self.is_idle = is_idle and is_well and begin <= now and not self.blind
        latest = min(self.next_look, math.inf if is_idle else now + BUSY_SECONDS)
        return Wait(min(begin, latest)) if begin > now else Wait(min(latest, self.ripe_at), deaf=False)
