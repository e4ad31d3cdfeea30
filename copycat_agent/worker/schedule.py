"""When a connector scans, plans and waits, and how large its next batch may be. All times are of `time.monotonic()`, passed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from copycat_agent.model import Counts
from copycat_agent.options import Definition, LimitsOptions
from copycat_agent.transforms.sql import sql_at
from copycat_agent.worker.effects import WaitForChange
from copycat_agent.worker.poll_loop import Wait

QUERY_SECONDS = 1.0
"""Least time between two batches of a connector with a query that is up to date: each is a Spark job."""
SCAN_GAP_SECONDS = 0.05
"""Least time between two scans caused by events; after a scan that takes long, five times its own duration."""
BUSY_SECONDS = 1.0
"""Longest wait while there is something to do: a file that failed, an answer of Kafka, a query that is examined."""
PAUSED_SECONDS = 0.5
"""Least time between two scans at growing files while the connector is paused."""
FIRST_REPORT_SECONDS = 0.5
"""How long a batch that may stay may take until its first report before it has to make room for others: after that they can join it."""
STAY_LINGER_SECONDS = 0.05
"""If the pause between batches is longer, no batch stays."""
BURST_SECONDS = 1.0
"""How many seconds of its rate a quiet connector saves up."""
LEAST_SECONDS = 0.05
"""A batch is planned once its grant covers this many seconds of the rate, so that no batch is made for a single record."""


@dataclass(slots=True)
class RoundSchedule:
    """The times of one connector. `linger` is the least number of seconds between two batches of a task that is up to date."""

    linger: float
    limits: RateLimits | None = None
    next_scan: float = 0.0
    """When a scan is due if nothing requires an earlier one."""
    scan_allowed_at: float = 0.0
    """When events may cause a scan again."""
    plan_at: float = 0.0
    """When the next batch may be planned."""
    times_out_at: float = math.inf
    """When records become due that only time completes, see `Source.end_timed_out`."""
    has_scanned: bool = False
    last_scan_failed: bool = False
    """Whether the last scan could not determine what is there."""
    scan_seconds: float = 0.0
    """The interval between two scans without events."""

    @classmethod
    def of(cls, definition: Definition, pace_seconds: float, clock: Callable[[], float]) -> RoundSchedule:
        """Returns the schedule of a connector. `pace_seconds` is the least time between two batches that its delivery requires."""
        query_seconds = QUERY_SECONDS if sql_at(definition.transforms) is not None else 0.0
        return cls(max(definition.delivery.linger, query_seconds, pace_seconds), RateLimits.of(definition.limits, clock))

    @property
    def may_stay(self) -> bool:
        """Returns whether batches may stay at the ends of their files: neither `limits` nor a longer `linger` require fewer batches."""
        return self.limits is None and self.linger <= STAY_LINGER_SECONDS

    def scan_soon(self) -> None:
        """Makes a scan due as soon as one is allowed."""
        self.next_scan = min(self.next_scan, self.scan_allowed_at)

    def note_scan(self, now: float, seconds: float, interval: float) -> None:
        """Notes the end of a scan that took `seconds`; the next one is due after `interval`."""
        self.last_scan_failed, self.has_scanned = False, True
        self.scan_allowed_at = now + max(SCAN_GAP_SECONDS, 5 * seconds)
        self.scan_seconds, self.next_scan = interval, now + interval

    def note_failed_scan(self) -> None:
        """Notes a scan that failed: the next one is due when the source says that it knows more."""
        self.last_scan_failed, self.next_scan = True, math.inf

    def wait(self, now: float, retry_at: float, *, is_idle: bool, is_well: bool, pausing: bool) -> Wait | WaitForChange:
        """Returns the wait for the next round. Nothing can be planned before `retry_at`; `is_idle`: there is nothing to do."""
        keeps_scanning = pausing and not (is_idle and self.times_out_at > now)  # at growing files
        begin = now + PAUSED_SECONDS if keeps_scanning else max(self.plan_at, retry_at)
        if self.limits is not None and not pausing:
            begin = max(begin, now + self.limits.seconds_left())
        if is_idle and is_well and begin <= now and not self.last_scan_failed:
            return WaitForChange(self.next_scan, self.scan_seconds, self.times_out_at)
        latest = min(self.next_scan, math.inf if is_idle else now + BUSY_SECONDS)
        return Wait(min(begin, latest)) if begin > now else Wait(min(latest, self.times_out_at), deaf=False)


class BatchLimits(NamedTuple):
    """The limits of one batch: bytes read and records sent; 0 means that there is no limit of this kind."""

    bytes: int = 0
    records: int = 0


class InFlightBatch(NamedTuple):
    """A batch in flight: when it was submitted or last reported, and its limits.

    `begun`: when it was submitted. `stays`: it may stay at the ends of its files, and was not asked to end. `files`: how many it has.
    `reported`: it has reported at least once. `careful`: it is an attempt after an error, beside which no other one is made.
    """

    since: float
    grant: BatchLimits
    begun: float
    stays: bool = False
    careful: bool = False
    files: int = 0
    reported: bool = False


class TokenBucket:
    """A token bucket. What exceeds a grant (a record is never cut) is a debt that is paid before the next one."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._rate = per_second
        self._most = max(1.0, per_second * BURST_SECONDS)
        self._least = max(1.0, per_second * LEAST_SECONDS)
        self._tokens = self._most
        self._clock = clock
        self._at = clock()

    def seconds_left(self) -> float:
        """Returns the seconds until something may be sent."""
        self._fill(0.0)
        return max(0.0, (self._least - self._tokens) / self._rate)

    def take(self, shares: int) -> int:
        """Takes one of `shares` equal parts of the tokens, at least the minimum."""
        amount = int(max(self._least, self._tokens / shares))
        self._tokens -= amount
        return amount

    def give_back(self, amount: int) -> None:
        """Returns unused tokens to the bucket; less than 0: more were used than taken."""
        self._fill(float(amount))

    def _fill(self, extra: float) -> None:
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate + extra)
        self._at = now


class RateLimits:
    """The limits of one connector (`limits`), over all its tasks: they slow down, and drop nothing. Not thread-safe."""

    def __init__(self, options: LimitsOptions, clock: Callable[[], float]) -> None:
        self._bytes = TokenBucket(options.bytes_per_second, clock) if options.bytes_per_second else None
        self._records = TokenBucket(options.records_per_second, clock) if options.records_per_second else None
        self._buckets = [bucket for bucket in (self._bytes, self._records) if bucket]

    @staticmethod
    def of(options: LimitsOptions, clock: Callable[[], float]) -> RateLimits | None:
        """Returns the limits of a definition; None if it sets none."""
        return RateLimits(options, clock) if options.bytes_per_second or options.records_per_second else None

    def seconds_left(self) -> float:
        """Returns the seconds until the next batch may be planned; 0 when it may now."""
        return max(bucket.seconds_left() for bucket in self._buckets)

    def take(self, shares: int) -> BatchLimits:
        """Takes the grant of one batch when there will be `shares` of them. Call it when `seconds_left` is 0."""
        return BatchLimits(self._bytes.take(shares) if self._bytes else 0, self._records.take(shares) if self._records else 0)

    def give_back(self, grant: BatchLimits, used: Iterable[Counts]) -> None:
        """Returns the unused part of an ended batch's grant.

        Bytes count as they are read, records as they are sent, dead letters too.
        """
        total = sum(used, Counts())
        if self._bytes:
            self._bytes.give_back(grant.bytes - total.read_bytes)
        if self._records:
            self._records.give_back(grant.records - total.acknowledged - total.dead_lettered)
