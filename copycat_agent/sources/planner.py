"""Plans batches for every source: which partition is next, how many a batch holds, what is in flight, and how long a failed one waits.

A source passes its candidates in the order of their turns (a `TurnQueue` keeps it), decides itself which are readable, and which may follow
another one in the same batch.

A partition belongs to a task for one batch only: any idle task takes the next one that has something to read. The order within a partition
holds because it is in one batch at a time, and the next one is planned from the committed offset.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from copycat_agent.model import Account, Loss, SavedRow, SourceOffset, SourcePartition, SourceState, state_partition

PER_BATCH = 128
"""Most partitions of one batch, whose files are open while it runs."""

CROWD = 1000
"""A sum over more members than this is cached."""
KEEP_SECONDS = 0.5
KEEP_COST = 20.0
"""A cached sum is valid for `KEEP_SECONDS`, or for `KEEP_COST` times as long as it took, whichever is longer."""


class Candidate(Protocol):
    """A partition as a candidate for a batch."""

    @property
    def partition(self) -> SourcePartition:
        """The partition, of which at most one split is in flight."""

    @property
    def backoff(self) -> FileBackoff:
        """How long it waits after a failure."""


S = TypeVar("S")
T = TypeVar("T", bound=Hashable)
C = TypeVar("C", bound=Candidate)


class TurnQueue(Generic[T]):
    """An ordered set. A member that is added goes to the end, or to its place by `key`; one that is served does so again.

    Iteration is in order of insertion. `add`, `discard` and `served` take constant time, with a `key` logarithmic time.
    """

    def __init__(self, key: Callable[[T], Any] | None = None) -> None:
        """`key` is called when a member is added. `in_order` takes the least key first, and equal keys in order of insertion."""
        self._key = key
        self._members: dict[T, int] = {}
        self._heap: list[tuple[Any, int, T]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def __contains__(self, one: object) -> bool:
        return one in self._members

    def add(self, one: T) -> None:
        """Adds a member. A present one keeps its position."""
        if one not in self._members:
            number = self._members[one] = next(self._numbers)
            if self._key is not None:
                heapq.heappush(self._heap, (self._key(one), number, one))

    def discard(self, one: T) -> None:
        """Removes a member, if it is present."""
        self._members.pop(one, None)

    def served(self, one: T) -> None:
        """Moves a member to the end. Has no effect if it is not present."""
        if self._members.pop(one, None) is not None:
            self.add(one)

    def in_order(self) -> Iterator[T]:
        """Removes and yields members one by one, the least first. Needs a `key`."""
        while self._heap:
            _, number, one = heapq.heappop(self._heap)
            if self._members.get(one) == number:
                del self._members[one]
                yield one


class CachedSum(Generic[S]):
    """A sum over many members, cached because it is wanted in every round: a first start may find 100,000 files to read."""

    def __init__(self, count: Callable[[], int], add_up: Callable[[], S], clock: Callable[[], float] = time.monotonic) -> None:
        """`count` returns the number of members, `add_up` their sum."""
        self._count = count
        self._add_up = add_up
        self._clock = clock
        self._last: S | None = None
        self._until = 0.0

    def now(self) -> S:
        """Returns the sum, which may be slightly out of date with more than `CROWD` members."""
        begin = self._clock()
        if self._last is None or begin >= self._until or self._count() <= CROWD:
            self._last = self._add_up()
            end = self._clock()
            self._until = end + max(KEEP_SECONDS, KEEP_COST * (end - begin))
        return self._last


class Planner(Generic[C]):
    """Plans batches of one source. Not thread-safe. `in_flight` holds the candidates that a task is reading."""

    def __init__(self, most_bytes: int | None = None, most: int | None = PER_BATCH, clock: Callable[[], float] = time.monotonic) -> None:
        """A batch ends with the candidate that brings it to `most_bytes`, and holds at most `most` candidates. None: no limit."""
        self.in_flight: dict[SourcePartition, C] = {}
        self._most_bytes = most_bytes
        self._most = most
        self._clock = clock

    def take(self, one: C) -> None:
        """Marks it as in flight: a task gets a split of it."""
        assert one.partition not in self.in_flight, "a partition is read by one task at a time"
        self.in_flight[one.partition] = one

    def release(self, partition: SourcePartition) -> C:
        """Marks a partition as no longer in flight, after its result was saved. Returns its candidate."""
        return self.in_flight.pop(partition)

    def reads_any(self, partitions: Iterable[SourcePartition]) -> bool:
        """Returns whether a task is reading one of these."""
        return any(one in self.in_flight for one in partitions)

    def ready(self, candidates: Iterable[C], shares: int) -> list[C]:
        """Returns one idle task's share of the candidates, in the order given; `shares` is the number of idle tasks.

        Candidates that are in flight or wait after a failure are left out.
        """
        now, flying = self._clock(), self.in_flight
        ready = (one for one in candidates if one.backoff.retry_at <= now and one.partition not in flying)
        found = list(ready if self._most is None else itertools.islice(ready, self._most * shares))
        return found[: self.share(len(found), shares)]

    def share(self, count: int, shares: int) -> int:
        """Returns how many of `count` candidates one of `shares` idle tasks gets: rounded up, at most what a batch holds."""
        share = -(-count // shares)
        return share if self._most is None else min(share, self._most)

    def may_follow(self, one: C) -> bool:
        """Returns whether it may follow another one in the same batch: it is not in flight and does not wait after a failure."""
        return one.backoff.retry_at <= self._clock() and one.partition not in self.in_flight

    def fill(
        self, firsts: Iterable[C], size: Callable[[C], int], follower: Callable[[C], C | None] | None = None, followers: int = 0
    ) -> list[C]:
        """Returns a batch of `firsts` in their order, limited by their `size` in bytes.

        Each is followed by those that wait for it, `followers` in all: a task reads its splits in this order, so that an older file of a
        group goes before a newer one. `follower` returns the next of a group, None at its end. `firsts` is consumed no further than fits.
        """
        chosen: list[C] = []
        size_bytes = 0
        for first in firsts:
            one: C | None = first
            while one is not None:
                chosen.append(one)
                size_bytes += size(one)
                if self._most_bytes is not None and size_bytes >= self._most_bytes:
                    return chosen
                one = follower(one) if follower is not None and followers > 0 else None
                followers -= one is not None
        return chosen


@dataclass(slots=True)
class Changes:
    """What to save in one transaction: offsets to store, partitions to forget, and losses to enter.

    `accounts` adds to a run to the end's account of files. `state` replaces what the source remembers besides offsets; None leaves it.
    """

    offsets: dict[SourcePartition, SourceOffset] = field(default_factory=dict)
    forget: set[SourcePartition] = field(default_factory=set)
    losses: list[Loss] = field(default_factory=list)
    accounts: dict[SourcePartition, Account] = field(default_factory=dict)
    state: SourceState | None = None

    def rows(self, connector: str) -> dict[SourcePartition, SavedRow]:
        """Returns the offsets and the state as rows of the store."""
        return {**self.offsets, **({} if self.state is None else {state_partition(connector): self.state})}


class UnsavedChanges:
    """Changes that a source has asked to be saved and that are not confirmed yet, oldest first."""

    def __init__(self) -> None:
        self._changes: list[Changes] = []

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, changes: Changes) -> Changes:
        """Adds changes, and returns them."""
        self._changes.append(changes)
        return changes

    def confirm(self, changes: Changes) -> None:
        """Removes changes that are saved, by identity."""
        self._changes = [one for one in self._changes if one is not changes]

    def offset_of(self, partition: SourcePartition) -> SourceOffset | None:
        """Returns the newest unsaved offset; None if there is none."""
        return next((one.offsets[partition] for one in reversed(self._changes) if partition in one.offsets), None)

    def joined(self) -> Changes:
        """Returns all of them as one, for a last attempt to save them. Later changes win; losses stay with their offsets."""
        joined = Changes()
        for one in self._changes:
            joined.offsets.update(one.offsets)
            joined.forget.difference_update(one.offsets)
            joined.forget.update(one.forget)
            for partition in one.forget:
                joined.offsets.pop(partition, None)
            joined.losses.extend(one.losses)
            joined.state = one.state or joined.state
            for partition, account in one.accounts.items():
                joined.accounts[partition] = joined.accounts.get(partition, Account()) + account
        return joined


RETRY_SECONDS = (0.5, 60.0)
"""First and longest wait, in seconds, of a file that could not be read."""
BLOCKED_SECONDS = (1.0, 60.0)
"""First and longest wait, in seconds, of a file whose topic is missing or forbidden."""
_DOUBLINGS = 10
"""Most doublings of a wait: an outage may last for days, and a float ends at 2**1024."""


def wait_seconds(bounds: tuple[float, float], times: int) -> float:
    """Returns the wait after `times` earlier failures: the first of `bounds`, doubled each time, at most the second."""
    first, longest = bounds
    return min(longest, first * 2.0 ** min(times, _DOUBLINGS))


@dataclass(frozen=True, slots=True)
class FileBackoff:
    """Why and until when a partition is not tried again.

    `errors` counts failed reads in a row, `blocked` failed attempts to send that need somebody to act. `retry_at` is `time.monotonic()`.
    """

    errors: int = 0
    blocked: int = 0
    retry_at: float = 0.0

    @property
    def error_seconds(self) -> float:
        """The wait after one more failed read, in seconds."""
        return wait_seconds(RETRY_SECONDS, self.errors)

    def after_error(self, now: float, bounds: tuple[float, float] = RETRY_SECONDS) -> FileBackoff:
        """Returns the back-off after a failed read at `now`. It grows each time. `bounds`: first and longest wait in seconds."""
        return FileBackoff(self.errors + 1, self.blocked, now + wait_seconds(bounds, self.errors))

    def after_block(self, now: float, bounds: tuple[float, float] = BLOCKED_SECONDS) -> FileBackoff:
        """Returns the back-off after a failed attempt to send at `now`. `bounds`: first and longest wait in seconds."""
        return FileBackoff(self.errors, self.blocked + 1, now + wait_seconds(bounds, self.blocked))


READY = FileBackoff()
"""The back-off of a partition whose last attempt succeeded."""
