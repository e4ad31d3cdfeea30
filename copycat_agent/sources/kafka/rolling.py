"""Decides when the unread records of a partition make a file. Until then they stay in Kafka."""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from copycat_agent.extending import RollOptions

SAMPLES_MOST = 1000
"""Most ends that are remembered of a partition. Beyond it records between two ends get the time of the later one."""


class _PartitionEnd(NamedTuple):
    end: int
    at: float


class PartitionEnds:
    """The ends seen of one partition. Times are those of `time.monotonic`."""

    def __init__(self, roll: RollOptions) -> None:
        self._roll = roll
        self._seen: deque[_PartitionEnd] = deque()
        self._is_first = True

    def saw(self, end: int) -> None:
        """Notes that the partition ends at `end` now."""
        if self._seen and self._seen[-1].end >= end:
            return
        # records from before the first look may have any age
        self._seen.append(_PartitionEnd(end, -self._roll.age if self._is_first else time.monotonic()))
        self._is_first = False
        if len(self._seen) > SAMPLES_MOST:
            del self._seen[1]

    def is_due(self, position: int, end: int, record_bytes: float) -> bool:
        """Returns whether the records from `position` to `end` are due. `record_bytes` is the average size of a record."""
        while self._seen and self._seen[0].end <= position:
            self._seen.popleft()
        records = end - position
        if records <= 0:
            return False
        if records >= self._roll.records or records * record_bytes >= self._roll.bytes or not self._seen:
            return True
        now, idle = time.monotonic(), self._roll.idle
        return now >= self._seen[0].at + self._roll.age or (idle is not None and now >= self._seen[-1].at + idle)
