"""`limits`: how much the next batch may bring. They slow down, and drop nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from copycat_agent.model import Counts
    from copycat_agent.options import LimitsOptions

BURST_SECONDS = 1.0
"""So long a quiet connector saves up."""
LEAST_SECONDS = 0.05
"""A batch is planned once it may bring this much of a second: not one batch per record."""


class Grant(NamedTuple):
    """What one batch may bring: bytes read, records sent; 0 means that there is no limit of this kind."""

    bytes: int = 0
    records: int = 0


class Flight(NamedTuple):
    """A batch under way: since when, and what it may bring."""

    since: float
    grant: Grant


class Bucket:
    """A token bucket. What goes beyond a grant (a record is never cut) is a debt that is paid before the next one."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._rate = per_second
        self._most = max(1.0, per_second * BURST_SECONDS)
        self._least = max(1.0, per_second * LEAST_SECONDS)
        self._tokens = self._most
        self._clock = clock
        self._at = clock()

    def seconds_left(self) -> float:
        """Until something may be sent."""
        self._fill(0.0)
        return max(0.0, (self._least - self._tokens) / self._rate)

    def take(self, shares: int) -> int:
        """One of `shares` equal parts of what is there, at least the least."""
        amount = int(max(self._least, self._tokens / shares))
        self._tokens -= amount
        return amount

    def give_back(self, amount: int) -> None:
        """So much of what was taken was not used; less than 0: more was used."""
        self._fill(float(amount))

    def _fill(self, extra: float) -> None:
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate + extra)
        self._at = now


class Limits:
    """The limits of one connector, over all its tasks. Not thread-safe."""

    def __init__(self, options: LimitsOptions, clock: Callable[[], float]) -> None:
        self._bytes = Bucket(options.bytes_per_second, clock) if options.bytes_per_second else None
        self._records = Bucket(options.records_per_second, clock) if options.records_per_second else None
        self._buckets = [bucket for bucket in (self._bytes, self._records) if bucket]

    def seconds_left(self) -> float:
        """Until the next batch may be planned; 0 when it may now."""
        return max((bucket.seconds_left() for bucket in self._buckets), default=0.0)

    def take(self, shares: int) -> Grant:
        """For one batch, when there will be `shares` of them. Call it when `seconds_left` is 0."""
        if not self._buckets:
            return Grant()
        return Grant(self._bytes.take(shares) if self._bytes else 0, self._records.take(shares) if self._records else 0)

    def settle(self, grant: Grant, used: Counts) -> None:
        """A batch with this grant is over: bytes count as they are read, records as they are sent, dead letters too."""
        if self._bytes:
            self._bytes.give_back(grant.bytes - used.read_bytes)
        if self._records:
            self._records.give_back(grant.records - used.acknowledged - used.dead_lettered)
