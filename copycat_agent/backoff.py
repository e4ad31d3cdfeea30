"""The wait before the same work is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from copycat_agent.errors import BlockedError, FatalError, RetriableError
from copycat_agent.options import ErrorsOptions

FIRST_SECONDS = 0.2
"""First wait; it doubles from there."""
BLOCKED_SECONDS = 60.0
"""Longest wait while a person has to repair something outside."""
_JITTER = 0.2


class Backoff:
    """Doubling waits with jitter, for one connector. Not thread-safe."""

    def __init__(self, options: ErrorsOptions, clock: Callable[[], float] | None = None) -> None:
        """`clock` replaces `time.monotonic`."""
        self._options = options
        self._clock = clock
        self._tries = 0
        self._since = 0.0
        self.active = False
        """Whether the last attempt failed."""
        self.retry_at = 0.0

    def seconds_left(self) -> float:
        """Returns the seconds until the next attempt."""
        return max(0.0, self.retry_at - self._now())

    def failed(self, error: RetriableError) -> float:
        """Takes in a failed attempt; returns the wait in seconds. Raises FatalError if errors.retry_timeout is over."""
        now = self._now()
        self._since = self._since or now
        timeout = self._options.retry_timeout
        if timeout != "forever" and now - self._since >= timeout:
            raise FatalError(f"gave up after errors.retry_timeout: {error.message}", error.hint)
        longest = BLOCKED_SECONDS if isinstance(error, BlockedError) else self._options.retry_max_delay
        wait = min(longest, FIRST_SECONDS * 2.0 ** min(self._tries, 20))
        wait *= 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311 - spreads load, protects nothing
        self._tries += 1
        self.active = True
        self.retry_at = now + wait
        return wait

    def succeeded(self) -> None:
        """Takes in a successful attempt."""
        self._tries, self._since, self.active, self.retry_at = 0, 0.0, False, 0.0

    def _now(self) -> float:
        return time.monotonic() if self._clock is None else self._clock()
