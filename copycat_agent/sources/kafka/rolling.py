"""Decides when the unread records of a partition make a file. Until then they stay in Kafka."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from copycat_agent.extending import RollOptions, TopicRetention

RETENTION_SECONDS = 300.0
"""Time between two looks for how long topics keep records; those of new topics are looked for at once."""
SAMPLES_MOST = 1000
"""Most ends that are remembered of a partition. Beyond it records between two ends get the time of the later one."""


def within(roll: RollOptions, kept: TopicRetention) -> RollOptions:
    """Returns `roll` with at most half of the age and bytes that a topic keeps: records that wait must not expire."""
    return roll.model_copy(update={"age": min(roll.age, kept.seconds / 2), "bytes": min(roll.bytes, kept.bytes / 2)})


class Rolling:
    """Decides for all partitions of a source. `learn`, `saw` and `forget` are called by one thread, `is_due` by another."""

    def __init__(self, roll: RollOptions) -> None:
        self._roll = roll
        self._ends: dict[str, PartitionEnds] = {}
        self._rolls: dict[str, RollOptions] = {}
        """When a file is due, by topic, as far as its retention is known."""
        self._learned_at = -RETENTION_SECONDS

    def learn(self, topics: Iterable[str], ask: Callable[[list[str]], Mapping[str, TopicRetention]]) -> None:
        """Calls `ask` for what topics keep, as far as that is unknown or old."""
        is_old = time.monotonic() >= self._learned_at + RETENTION_SECONDS
        if asked := [name for name in topics if is_old or name not in self._rolls]:
            self._rolls |= {name: within(self._roll, kept) for name, kept in ask(asked).items()}
        if is_old:
            self._learned_at = time.monotonic()

    def saw(self, key: str, end: int) -> None:
        """Notes that a partition ends at `end` now."""
        self._ends.setdefault(key, PartitionEnds()).saw(end)

    def is_due(self, key: str, topic: str, position: int, end: int, record_bytes: float) -> bool:
        """Returns whether the records from `position` to `end` are due, as those of a partition whose end was never seen are."""
        ends = self._ends.get(key)
        return ends is None or ends.is_due(self._rolls.get(topic, self._roll), position, end, record_bytes)

    def forget(self, key: str, topic: str) -> None:
        """Forgets a partition of a deleted topic."""
        self._rolls.pop(topic, None)
        self._ends.pop(key, None)


class _PartitionEnd(NamedTuple):
    end: int
    at: float


class PartitionEnds:
    """The ends seen of one partition. Times are those of `time.monotonic`."""

    def __init__(self) -> None:
        self._seen: deque[_PartitionEnd] = deque()
        self._is_first = True

    def saw(self, end: int) -> None:
        """Notes that the partition ends at `end` now."""
        if self._seen and self._seen[-1].end >= end:
            return
        # records from before the first look may have any age
        self._seen.append(_PartitionEnd(end, -math.inf if self._is_first else time.monotonic()))
        self._is_first = False
        if len(self._seen) > SAMPLES_MOST:
            del self._seen[1]

    def is_due(self, roll: RollOptions, position: int, end: int, record_bytes: float) -> bool:
        """Returns whether the records from `position` to `end` are due. `record_bytes` is the average size of a record."""
        while self._seen and self._seen[0].end <= position:
            self._seen.popleft()
        records = end - position
        if records <= 0:
            return False
        if records >= roll.records or records * record_bytes >= roll.bytes or not self._seen:
            return True
        now, idle = time.monotonic(), roll.idle
        return now >= self._seen[0].at + roll.age or (idle is not None and now >= self._seen[-1].at + idle)
