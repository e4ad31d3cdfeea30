"""Counts and logs bytes that were destroyed before they could be read."""

from __future__ import annotations

import time

from copycat_agent.logs import Log
from copycat_agent.model import Loss, SourcePartition
from copycat_agent.sources.planner import Changes


class LostData:
    """Counts the `bytes` that a connector has lost since its start."""

    def __init__(self, log: Log) -> None:
        self.bytes = 0
        self._log = log

    def add(self, partition: SourcePartition, path: str, start: int, end: int, why: str, changes: Changes) -> None:
        """Enters the loss of the bytes from `start` to `end`. A `base.Lose`.

        `changes` must be those after which the next start does not see these bytes any more: they forget the partition, end it, or save
        the size that is left. So the loss is counted exactly once, whenever the process is killed.
        """
        self.bytes += end - start
        changes.losses.append(Loss(partition, path, start, end, end - start, 0, "destroyed", why, int(time.time() * 1000)))
        self._log.error("bytes were destroyed before they could be read", path=path, start=start, end=end, why=why)
