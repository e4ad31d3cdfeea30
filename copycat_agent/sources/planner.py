"""Whose turn it is, how much of a batch each partition gets, what is in flight, and how long it waits after a failure: one planner for all.

A source hands in its candidates in the order of their turns (a `TurnQueue` keeps one), keeps to itself what makes one of them
readable, and says which of them may follow another one in the same batch. What it has asked to be saved stands here too, until it is, and
so does the sum of what very many of them come to.

A partition belongs to a task for one batch, not for ever: any idle task takes the next one that has something to read. Order within a
partition holds because it is in one batch at a time, and the next one is planned from the committed offset.
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
"""Partitions of one batch: files are held open while it runs. The others' turn comes with the next."""

CROWD = 1000
"""What more members than these come to is added up now and then, not in every round."""
KEEP_SECONDS = 0.5
KEEP_COST = 20.0
"""So long a sum over a crowd holds, or this many times what it took, whichever is longer."""


class Candidate(Protocol):
    """A partition as the planner sees it. `partition` is what its offset belongs to."""

    @property
    def partition(self) -> SourcePartition:
        """One split of it is in flight at most."""

    @property
    def backoff(self) -> FileBackoff:
        """Until when it is left alone after it failed."""


S = TypeVar("S")
T = TypeVar("T", bound=Hashable)
C = TypeVar("C", bound=Candidate)


class TurnQueue(Generic[T]):
    """An ordered set: who is added stands at the end, or where `key` puts it, and who is served goes there again.

    Iteration is in the order in which members came. `add`, `discard` and `served` take constant time, with a `key` logarithmic time.
    """

    def __init__(self, key: Callable[[T], Any] | None = None) -> None:
        """`key` is asked when a member is added, and the least goes first; equal ones go as they came."""
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
        """Put it in; one that is in keeps its place."""
        if one not in self._members:
            number = self._members[one] = next(self._numbers)
            if self._key is not None:
                heapq.heappush(self._heap, (self._key(one), number, one))

    def discard(self, one: T) -> None:
        """Take it out, if it is in."""
        self._members.pop(one, None)

    def served(self, one: T) -> None:
        """It was its turn: others come before it now. Without effect when it is not in."""
        if self._members.pop(one, None) is not None:
            self.add(one)

    def in_order(self) -> Iterator[T]:
        """Take members out one by one, the next one first, each when it is asked for. Needs a `key`."""
        while self._heap:
            _, number, one = heapq.heappop(self._heap)
            if self._members.get(one) == number:
                del self._members[one]
                yield one


class CrowdSum(Generic[S]):
    """A sum over the members of a crowd, which is asked for in every round: a first start finds 100,000 files with something to read."""

    def __init__(self, count: Callable[[], int], add_up: Callable[[], S], clock: Callable[[], float] = time.monotonic) -> None:
        """`count`: how many members there are."""
        self._count = count
        self._add_up = add_up
        self._clock = clock
        self._last: S | None = None
        self._until = 0.0

    def now(self) -> S:
        """Returns the sum, which may be a little old with more than `CROWD` members."""
        begin = self._clock()
        if self._last is None or begin >= self._until or self._count() <= CROWD:
            self._last = self._add_up()
            end = self._clock()
            self._until = end + max(KEEP_SECONDS, KEEP_COST * (end - begin))
        return self._last


class Planner(Generic[C]):
    """Plans for one source, one call at a time. `in_flight` are the candidates that a task reads."""

    def __init__(self, most_bytes: int | None = None, most: int | None = PER_BATCH, clock: Callable[[], float] = time.monotonic) -> None:
        """Limits of a batch: it ends with the candidate that brings it to `most_bytes`, and holds up to `most` of them; None: no limit."""
        self.in_flight: dict[SourcePartition, C] = {}
        self._most_bytes = most_bytes
        self._most = most
        self._clock = clock

    def take(self, one: C) -> None:
        """A split of it is handed to a task."""
        assert one.partition not in self.in_flight, "a partition is read by one task at a time"
        self.in_flight[one.partition] = one

    def land(self, partition: SourcePartition) -> C:
        """The task that read it is over, and what it brought is saved. Returns whose it was."""
        return self.in_flight.pop(partition)

    def reads_any(self, partitions: Iterable[SourcePartition]) -> bool:
        """Whether a task reads one of these."""
        return any(one in self.in_flight for one in partitions)

    def ready(self, candidates: Iterable[C], shares: int) -> list[C]:
        """The share of one of `shares` idle tasks in what can be read now, in the order given.

        What is in flight or waits after a failure is passed over.
        """
        now, flying = self._clock(), self.in_flight
        ready = (one for one in candidates if one.backoff.retry_at <= now and one.partition not in flying)
        found = list(ready if self._most is None else itertools.islice(ready, self._most * shares))
        return found[: self.share(len(found), shares)]

    def share(self, count: int, shares: int) -> int:
        """How many of `count` candidates one of `shares` idle tasks gets: rounded up, and no more than a batch holds."""
        share = -(-count // shares)
        return share if self._most is None else min(share, self._most)

    def may_follow(self, one: C) -> bool:
        """Whether it can be read behind another one of the same batch: it is not in flight, and does not wait after a failure."""
        return one.backoff.retry_at <= self._clock() and one.partition not in self.in_flight

    def fill(
        self, firsts: Iterable[C], size: Callable[[C], int], follower: Callable[[C], C | None] | None = None, followers: int = 0
    ) -> list[C]:
        """A batch of `firsts` in their order, as many as it holds by their `size` in bytes.

        Behind each stand those that wait for it, up to `followers` in all: a task reads its splits in this order, so an older one of
        a group goes before a newer one. `follower` gives the next of a group, None at its end. `firsts` is not asked for more than fit.
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
    """What to save: offsets to store, partitions to forget, and what was given up, in one transaction.

    `accounts`: what a run to the end has to say of files, beside what tasks do with them. `state`: what the source remembers besides
    from now on; None: nothing else than before.
    """

    offsets: dict[SourcePartition, SourceOffset] = field(default_factory=dict)
    forget: set[SourcePartition] = field(default_factory=set)
    losses: list[Loss] = field(default_factory=list)
    accounts: dict[SourcePartition, Account] = field(default_factory=dict)
    state: SourceState | None = None

    def rows(self, connector: str) -> dict[SourcePartition, SavedRow]:
        """The offsets and the state, as they go to the store."""
        return {**self.offsets, **({} if self.state is None else {state_partition(connector): self.state})}


class UnsavedChanges:
    """Changes that a source has asked to be saved and that nobody has confirmed yet, oldest first."""

    def __init__(self) -> None:
        self._changes: list[Changes] = []

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, changes: Changes) -> Changes:
        """They are asked for. Returns them."""
        self._changes.append(changes)
        return changes

    def confirm(self, changes: Changes) -> None:
        """These very ones are saved."""
        self._changes = [one for one in self._changes if one is not changes]

    def offset_of(self, partition: SourcePartition) -> SourceOffset | None:
        """The newest offset that is asked for; None when nobody has asked for any."""
        return next((one.offsets[partition] for one in reversed(self._changes) if partition in one.offsets), None)

    def joined(self) -> Changes:
        """All of them as one, for the last chance to save them: what came later holds, losses and offsets stay together."""
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
"""First and longest wait of a file that could not be read."""
BLOCKED_SECONDS = (1.0, 60.0)
"""First and longest wait of a file whose topic is missing or forbidden."""
_DOUBLINGS = 10
"""Most doublings of a wait: an outage may last for days, and a float ends at 2**1024."""


def wait_seconds(bounds: tuple[float, float], times: int) -> float:
    """Returns the wait after `times` earlier failures: the first of `bounds`, doubled each time, at most the second."""
    first, longest = bounds
    return min(longest, first * 2.0 ** min(times, _DOUBLINGS))


@dataclass(frozen=True, slots=True)
class FileBackoff:
    """Why and until when a partition is not tried again.

    `errors`: how often in a row it could not be read; `blocked`: how often in a row its records could not be sent until someone
    repairs something. `retry_at`: `time.monotonic()`.
    """

    errors: int = 0
    blocked: int = 0
    retry_at: float = 0.0

    @property
    def error_seconds(self) -> float:
        """Returns how long it waits if it cannot be read once more."""
        return wait_seconds(RETRY_SECONDS, self.errors)

    def after_error(self, now: float, bounds: tuple[float, float] = RETRY_SECONDS) -> FileBackoff:
        """Returns the back-off of what could not be read at `now`. It grows each time. `bounds`: first and longest wait in seconds."""
        return FileBackoff(self.errors + 1, self.blocked, now + wait_seconds(bounds, self.errors))

    def after_block(self, now: float, bounds: tuple[float, float] = BLOCKED_SECONDS) -> FileBackoff:
        """Returns the back-off of what could not be sent at `now`. `bounds` as above."""
        return FileBackoff(self.errors, self.blocked + 1, now + wait_seconds(bounds, self.blocked))


READY = FileBackoff()
"""The back-off of what went well last."""
