"""What one transaction costs the agent and the broker, and how many there were."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import psutil

from benchmarks.latency import Latency
from tests.rig.kafka import Consumed


@dataclass(frozen=True)
class Trickle:
    """One guarantee at so many lines a second: latency, the broker's share of a core beside it, and transactions a second."""

    latency: Latency
    broker_share: float
    broker_idle_share: float
    transactions_per_second: float

    def values(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def transactions_per_second(records: Sequence[Consumed]) -> float:
    """How many transactions ended in a partition, from the first record to the last: each leaves an offset without a record."""
    ended = sum(later.offset - earlier.offset - 1 for earlier, later in pairwise(records))
    seconds = ((records[-1].timestamp_ms or 0) - (records[0].timestamp_ms or 0)) / 1e3 if records else 0.0
    return ended / seconds if seconds else 0.0


def ms_per_transaction(exactly: Trickle, at_least: Trickle) -> float | None:
    """CPU of the agent, in ms, that a batch costs more for being a transaction. None when there were none."""
    if not exactly.transactions_per_second:
        return None
    return (exactly.latency.cpu_share - at_least.latency.cpu_share) / exactly.transactions_per_second * 1e3


def median(found: Sequence[Trickle]) -> Trickle:
    """Column by column."""
    latency = Latency(*(statistics.median(getattr(one.latency, field.name) for one in found) for field in fields(Latency)))
    rest = (statistics.median(getattr(one, field.name) for one in found) for field in fields(Trickle)[1:])
    return Trickle(latency, *rest)


class Beside:
    """Looks at the broker's processor time at each mark of a trickle."""

    def __init__(self, broker_pid: int) -> None:
        self._broker = psutil.Process(broker_pid)
        self._looks: dict[str, tuple[float, float]] = {}

    def look(self, mark: str) -> None:
        """Remember what it is now."""
        self._looks[mark] = time.monotonic(), self.cpu_seconds()

    def share(self, first: str, last: str) -> float:
        """Of one core, between two marks."""
        (begin, before), (end, after) = self._looks[first], self._looks[last]
        return (after - before) / (end - begin)

    def cpu_seconds(self) -> float:
        """Used so far."""
        times = self._broker.cpu_times()
        return times.user + times.system
