"""When names are listed, and which of them: all at first, else those behind which something new is likely, and beside them a part of all.

The floor of some names is the greatest of those that were not changed for `look_back`, or, where more than a page lies behind that, a name
within the last page: what is new has mostly greater names. A poll lists
what lies behind the floor of all names, and of each directory that has something new, for their names may lie in the middle of all. A
directory is taken as high in the tree as what lies behind its floor stays small, so that a new day below it is found. What is late is found
by a sweep through all names, of which each poll does as much as is due to have it through in `relist`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")

FULL_MOST = 2000
"""With no more objects than that everything is listed at each poll: two requests, and 0.1 s of CPU."""
RANGES_MOST = 4
"""Directories and pages of the sweep in one poll, beside the range behind all names; with more it is each directory's turn now and then."""
LARGE = 1000
"""A directory with more than that behind its floor, one page, is looked at one level deeper."""
PAGE = 1000
"""Names that one request lists."""
_ALL = 2**62
_EARLY = 0.9
"""A poll may come a little early: its time is told from the begin of the one before, and looks are asked for on a beat of their own."""


class NameRange(NamedTuple):
    """Names that begin with `prefix` and lie behind `after`."""

    prefix: str = ""
    after: str = ""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.startswith(self.prefix) and name > self.after


@dataclass(eq=False, slots=True)
class Pass:
    """One way through the names of `ranges`. It is in the range number `index`, through up to the name `at`, after `count` objects.

    `most`: after so many it stops for now. `seen`: keys of the objects that are known and came up.
    """

    ranges: tuple[NameRange, ...]
    begun_at: float
    index: int = 0
    at: str = ""
    count: int = 0
    most: int = _ALL
    seen: set[str] = field(default_factory=set)

    def through(self, listed: Callable[[NameRange], Iterator[T]]) -> Iterator[T]:
        """What is left to come by. Asked again, it goes on behind the last name that was `passed`."""
        while not self.is_through and self.count < self.most:
            now = self.ranges[self.index]
            yield from itertools.islice(listed(now._replace(after=max(now.after, self.at))), self.most - self.count)
            if self.count < self.most:
                self.index, self.at = self.index + 1, ""

    @property
    def is_through(self) -> bool:
        """Whether nothing is left to come by."""
        return self.index == len(self.ranges)

    def passed(self, name: str) -> None:
        """It came by this name."""
        self.at, self.count = name, self.count + 1

    @property
    def is_full(self) -> bool:
        """Whether it goes through all names."""
        return self.ranges == (NameRange(),)

    def covers(self, name: str) -> bool:
        """Whether it comes by this name."""
        return any(name in one for one in self.ranges)


@dataclass(slots=True)
class _Directory:
    """One with something new: its floor, when something in it was new, and how many new ones came up behind the floor last.

    `mark`: no more than a page of names lies behind it. `_next_mark` is the next one, and `_behind` names came up behind that.
    """

    floor: str
    seen_at: float
    count: int = 0
    mark: str = ""
    _next_mark: str = ""
    _behind: int = 0

    def begin(self) -> None:
        """Its names come up from some name on."""
        self._next_mark, self._behind = self.mark, 0

    def passed(self, name: str) -> None:
        """This one came up."""
        if name > self._next_mark:
            self._behind += 1
            if self._behind >= LARGE // 2:
                self.mark, self._next_mark, self._behind = self._next_mark, name, 0


class Passes:
    """Times are those of `time.monotonic()`."""

    def __init__(self, prefix: str, poll_seconds: float, relist_seconds: float) -> None:
        """`prefix`: what all names begin with."""
        self._prefix = prefix
        self._poll_seconds = poll_seconds
        self._relist_seconds = relist_seconds
        self._now: Pass | None = None
        self._sweep: Pass | None = None
        self._due = 0
        self._count: int | None = None
        self._listed_at = -math.inf
        self._all = _Directory("", -math.inf)
        self._directories: dict[str, _Directory] = {}
        self._group = _Directory("", -math.inf)
        self._group_of: tuple[Pass | None, str] = None, ""
        self._deeper: set[str] = set()
        self._turn = 0

    @property
    def passed(self) -> str | None:
        """Everything up to this name has been listed; None: everything."""
        return None if self._count is not None else "" if self._now is None else self._now.at

    def current(self, now: float, *, lists_behind: bool, to_the_end: bool) -> Pass | None:
        """The pass that is under way, or one that begins or goes on now; None while it is not time. `lists_behind`: see `Store`."""
        self._now = self._now or self._next(now, lists_behind=lists_behind, to_the_end=to_the_end)
        return self._now

    def _next(self, now: float, *, lists_behind: bool, to_the_end: bool) -> Pass | None:
        if self._count is None:
            return Pass((NameRange(),), now)
        is_time = now - self._listed_at >= min(self._poll_seconds * _EARLY, self._relist_seconds)
        if to_the_end or not (is_time or self._due):
            return None
        if not lists_behind or self._count <= FULL_MOST:
            self._due = 0
            return Pass((NameRange(),), now)
        if not is_time and self._sweep is not None:
            self._sweep.most, self._due = self._sweep.count + self._due * PAGE, 0
            return self._sweep
        self._due = 0 if self._sweep is None else self._pages_due(now, self._sweep, self._count)
        return Pass((NameRange(after=max(self._all.floor, self._all.mark)), *self._in_turn(max(1, RANGES_MOST - self._due))), now)

    def _pages_due(self, now: float, sweep: Pass, count: int) -> int:
        """Pages of the sweep until the next poll, for it to be through in time: what is late is found as long after it as it takes."""
        elapsed = now - sweep.begun_at + self._poll_seconds
        if elapsed >= self._relist_seconds:
            return _ALL // PAGE
        return math.ceil(max(0.0, count * elapsed / self._relist_seconds - sweep.count) / PAGE)

    def _in_turn(self, most: int) -> list[NameRange]:
        """Directories whose names do not lie behind all others."""
        floor = max(self._all.floor, self._all.mark)
        behind = [found for name, one in self._directories.items() if (found := self._range_of(name, one)).after < floor]
        begin = self._turn % len(behind) if behind else 0
        self._turn = begin + most
        return list(itertools.islice(itertools.chain(behind[begin:], behind[:begin]), most))

    def _range_of(self, name: str, directory: _Directory) -> NameRange:
        """What lies behind its floor. Where that is much, and cannot be looked at deeper, behind the mark."""
        is_last = name in self._deeper or name == self._prefix
        return NameRange(name, max(directory.floor, directory.mark) if is_last else directory.floor)

    def note(self, one: Pass, name: str, now: float, *, is_old: bool) -> None:
        """The pass comes by this name. `is_old`: the object was not changed for `look_back`."""
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

    def saw(self, one: Pass, key: str) -> None:
        """An object that is known came up: it need not come up again in the sweep."""
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
        """The sweep has done what was due."""
        self._now, self._group_of = None, (None, "")

    def complete(self, one: Pass, now: float) -> None:
        """The pass is through."""
        self.rest()
        if one is not self._sweep:
            self._listed_at = one.begun_at
        if one.is_full:
            self._count, self._sweep = one.count, Pass((NameRange(),), now)
        for name, directory in [*self._directories.items()]:
            is_taken_apart = one.is_full and name in self._deeper and directory.seen_at < one.begun_at
            if is_taken_apart or now - directory.seen_at > 2 * self._relist_seconds:
                del self._directories[name]
            elif directory.count > LARGE and name != self._prefix:
                self._deeper.add(name)
