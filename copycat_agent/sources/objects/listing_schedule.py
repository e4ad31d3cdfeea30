"""Decides when to list which names: all at first, then those where new objects are likely, and a part of all names beside them.

New objects mostly have greater names than old ones. So each poll lists the names after a floor: the greatest name that was not changed for
`look_back`, or a name within the last page if more than a page follows it. There is a floor for all names, and one for each directory
with new objects, because their names may lie in the middle of all. A directory is taken as high in the tree as the number of names
after its floor stays small, so that a new subdirectory, such as the next day's, is found. Late objects are found by a sweep through all
names; each poll does as much of it as is due to complete it within `relist`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")

FULL_MOST = 2000
"""Up to this many objects are listed completely at each poll: two requests, and 0.1 s of CPU."""
RANGES_MOST = 4
"""Most directories and pages of the sweep in one poll, besides the range after the floor of all names. More directories take turns."""
LARGE = 1000
"""A directory with more objects after its floor than this (one page) is split one level deeper."""
PAGE = 1000
"""Names that one request lists."""
_ALL = 2**62
_EARLY = 0.9
"""A poll may start after this share of the interval: intervals count from the previous start, and looks have a rhythm of their own."""


class NameRange(NamedTuple):
    """Names that begin with `prefix` and sort after `after`."""

    prefix: str = ""
    after: str = ""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.startswith(self.prefix) and name > self.after


@dataclass(eq=False, slots=True)
class ListingPass:
    """One pass through the names of `ranges`, which can be interrupted.

    It is in range number `index`, after the name `at` and `count` objects, and stops for now at `most` objects. `seen` are the keys of
    known objects that it has listed.
    """

    ranges: tuple[NameRange, ...]
    begun_at: float
    index: int = 0
    at: str = ""
    count: int = 0
    most: int = _ALL
    seen: set[str] = field(default_factory=set)

    def through(self, listed: Callable[[NameRange], Iterator[T]]) -> Iterator[T]:
        """Yields what is left to list. A new call resumes after the last name that was `passed`."""
        while not self.is_through and self.count < self.most:
            now = self.ranges[self.index]
            yield from itertools.islice(listed(now._replace(after=max(now.after, self.at))), self.most - self.count)
            if self.count < self.most:
                self.index, self.at = self.index + 1, ""

    @property
    def is_through(self) -> bool:
        """Whether nothing is left to list."""
        return self.index == len(self.ranges)

    def passed(self, name: str) -> None:
        """Notes that this name was listed."""
        self.at, self.count = name, self.count + 1

    @property
    def is_full(self) -> bool:
        """Whether it covers all names."""
        return self.ranges == (NameRange(),)

    def covers(self, name: str) -> bool:
        """Returns whether it lists this name, if it exists."""
        return any(name in one for one in self.ranges)


@dataclass(slots=True)
class _Directory:
    """A directory with new objects: its floor, when a new one was last seen, and how many were after the floor in the last listing.

    `mark` is a name with no more than a page of names after it. `_next_mark` is the next one, with `_behind` names after it so far.
    """

    floor: str
    seen_at: float
    count: int = 0
    mark: str = ""
    _next_mark: str = ""
    _behind: int = 0

    def begin(self) -> None:
        """Notes that a listing of its names begins."""
        self._next_mark, self._behind = self.mark, 0

    def passed(self, name: str) -> None:
        """Notes that this name was listed."""
        if name > self._next_mark:
            self._behind += 1
            if self._behind >= LARGE // 2:
                self.mark, self._next_mark, self._behind = self._next_mark, name, 0


class ListingSchedule:
    """Chooses the passes. Times are `time.monotonic()`. `full_since` is when the last complete listing of all names began."""

    def __init__(self, prefix: str, poll_seconds: float, relist_seconds: float) -> None:
        """All names begin with `prefix`."""
        self._prefix = prefix
        self._poll_seconds = poll_seconds
        self._relist_seconds = relist_seconds
        self._now: ListingPass | None = None
        self._sweep: ListingPass | None = None
        self._due = 0
        self._count: int | None = None
        self.full_since = -math.inf
        self._listed_at = -math.inf
        self._all = _Directory("", -math.inf)
        self._directories: dict[str, _Directory] = {}
        self._group = _Directory("", -math.inf)
        self._group_of: tuple[ListingPass | None, str] = None, ""
        self._deeper: set[str] = set()
        self._turn = 0

    def current(self, now: float, *, lists_behind: bool, to_the_end: bool) -> ListingPass | None:
        """Returns the pass to go on with, or a new one that is due; None while none is. `lists_behind` is that of the `Store`."""
        self._now = self._now or self._next(now, lists_behind=lists_behind, to_the_end=to_the_end)
        return self._now

    def _next(self, now: float, *, lists_behind: bool, to_the_end: bool) -> ListingPass | None:
        if self._count is None:
            return ListingPass((NameRange(),), now)
        is_time = now - self._listed_at >= min(self._poll_seconds * _EARLY, self._relist_seconds)
        if to_the_end or not (is_time or self._due):
            return None
        if not lists_behind or self._count <= FULL_MOST:
            self._due = 0
            return ListingPass((NameRange(),), now)
        if not is_time and self._sweep is not None:
            self._sweep.most, self._due = self._sweep.count + self._due * PAGE, 0
            return self._sweep
        self._due = 0 if self._sweep is None else self._pages_due(now, self._sweep, self._count)
        return ListingPass((NameRange(after=max(self._all.floor, self._all.mark)), *self._in_turn(max(1, RANGES_MOST - self._due))), now)

    def _pages_due(self, now: float, sweep: ListingPass, count: int) -> int:
        """Returns the pages that the sweep must list until the next poll to be complete in time."""
        elapsed = now - sweep.begun_at + self._poll_seconds
        if elapsed >= self._relist_seconds:
            return _ALL // PAGE
        return math.ceil(max(0.0, count * elapsed / self._relist_seconds - sweep.count) / PAGE)

    def _in_turn(self, most: int) -> list[NameRange]:
        """Returns the ranges of up to `most` directories, in turn, that the range of all names does not cover."""
        floor = max(self._all.floor, self._all.mark)
        behind = [found for name, one in self._directories.items() if (found := self._range_of(name, one)).after < floor]
        begin = self._turn % len(behind) if behind else 0
        self._turn = begin + most
        return list(itertools.islice(itertools.chain(behind[begin:], behind[:begin]), most))

    def _range_of(self, name: str, directory: _Directory) -> NameRange:
        """Returns the names after its floor, or after its mark if it was split or is the root."""
        is_last = name in self._deeper or name == self._prefix
        return NameRange(name, max(directory.floor, directory.mark) if is_last else directory.floor)

    def note(self, one: ListingPass, name: str, now: float, *, is_old: bool) -> None:
        """Notes a name that the pass has listed. `is_old`: the object was not changed for `look_back`."""
        directory = self._directory_of(name)
        if (one, directory) != self._group_of:
            if one is not self._group_of[0]:
                self._all.begin()
            new = _Directory(one.ranges[one.index].after, -math.inf)
            self._group_of, self._group = (one, directory), self._directories.get(directory, new)
            self._group.count = 0
            self._group.begin()
        if one.index == 0:
            self._all.passed(name)
        self._group.passed(name)
        if is_old and name > self._group.floor:
            self._all.floor, self._group.floor, self._group.count = max(self._all.floor, name), name, 0
        elif not is_old:
            self._group.count += 1
            self._group.seen_at = now
            self._directories[directory] = self._group

    def saw(self, one: ListingPass, key: str) -> None:
        """Notes that the pass has listed a known object; for the sweep it counts as listed, too."""
        one.seen.add(key)
        if self._sweep is not None:
            self._sweep.seen.add(key)

    def _directory_of(self, name: str) -> str:
        found = self._prefix
        while (end := name.find("/", len(found))) >= 0:
            found = name[: end + 1]
            if found not in self._deeper:
                break
        return found

    def rest(self) -> None:
        """Interrupts the present pass, after what was due of the sweep."""
        self._now, self._group_of = None, (None, "")

    def complete(self, one: ListingPass, now: float) -> None:
        """Notes that the pass is complete."""
        self.rest()
        if one is not self._sweep:
            self._listed_at = one.begun_at
        if one.is_full:
            self._count, self._sweep, self.full_since = one.count, ListingPass((NameRange(),), now), one.begun_at
        for name, directory in [*self._directories.items()]:
            is_taken_apart = one.is_full and name in self._deeper and directory.seen_at < one.begun_at
            if is_taken_apart or now - directory.seen_at > 2 * self._relist_seconds:
                del self._directories[name]
            elif directory.count > LARGE and name != self._prefix:
                self._deeper.add(name)
