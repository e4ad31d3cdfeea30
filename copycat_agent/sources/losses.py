"""Bytes that can never be read: counted and told, never silent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from copycat_agent.model import Loss

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.model import SourcePartition
    from copycat_agent.sources.planner import Changes


class Lost:
    """What a connector has lost since it was started: `bytes` of it."""

    def __init__(self, log: Log) -> None:
        self.bytes = 0
        self._log = log

    def add(self, partition: SourcePartition, path: str, start: int, end: int, why: str, changes: Changes) -> None:
        """The bytes from `start` to `end` are gone. A `base.Lose`.

        They are entered in the `changes` that make the next start see nothing of them any more: those forget the partition, end
        it, or save the size that is left. So none is counted twice, or not at all, whatever is killed when.
        """
        self.bytes += end - start
        changes.losses.append(Loss(partition, path, start, end, end - start, 0, "destroyed", why, int(time.time() * 1000)))
        self._log.error("bytes were destroyed before they could be read", path=path, start=start, end=end, why=why)
