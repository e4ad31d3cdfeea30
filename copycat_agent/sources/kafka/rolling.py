"""When what is unread of a partition makes a file: Kafka keeps it until then."""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from copycat_agent.extending import RollOptions

SAMPLES_MOST = 1000
"""Ends that are remembered of a partition: a time between two of them is known as that of the later one."""


class _End(NamedTuple):
    end: int
    at: float


class Rolling:
    """One partition. Times are those of `time.monotonic`."""

    def __init__(self, roll: RollOptions) -> None:
        self._roll = roll
        self._seen: deque[_End] = deque()
        self._is_first = True

    def saw(self, end: int) -> None:
        """The partition ends here now."""
        if self._seen and self._seen[-1].end >= end:
            return
        # what was there before the first look may be as old as can be
        self._seen.append(_End(end, -self._roll.age if self._is_first else time.monotonic()))
        self._is_first = False
        if len(self._seen) > SAMPLES_MOST:
            del self._seen[1]

    def is_due(self, position: int, end: int, record_bytes: float) -> bool:
        """Whether what lies between the two is to be read now. A record has about so many bytes."""
        while self._seen and self._seen[0].end <= position:
            self._seen.popleft()
        records = end - position
        if records <= 0:
            return False
        if records >= self._roll.records or records * record_bytes >= self._roll.bytes or not self._seen:
            return True
        now, idle = time.monotonic(), self._roll.idle
        return now >= self._seen[0].at + self._roll.age or (idle is not None and now >= self._seen[-1].at + idle)
