"""When names are listed, and which of them: all at first and every `relist`, else those behind which something new is likely.

The floor of some names is the greatest of those that were not changed for `look_back`: what is new has mostly greater names. A poll lists
what lies behind the floor of all names, and of each directory that has something new, for their names may lie in the middle of all. A
directory is taken as high in the tree as what lies behind its floor stays small, so that a new day below it is found.
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
"""Directories of one poll, beside the range behind all names; with more it is each one's turn now and then."""
LARGE = 1000
"""A directory with more than that behind its floor, one page, is looked at one level deeper."""
_EARLY = 0.9
"""A poll may come a little early: its time is told from the begin of the one before, and looks are asked for on a beat of their own."""


class NameRange(NamedTuple):
    """Names that begin with `prefix` and lie behind `after`."""

    prefix: str = ""
    after: str = ""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.startswith(self.prefix) and name > self.after


@dataclass(slots=True)
class Pass:
    """One way through the names of `ranges`. It is in the range number `index`, through up to the name `at`, after `count` objects.

    `seen`: keys of the objects that are known and came up.
    """

    ranges: tuple[NameRange, ...]
    begun_at: float
    index: int = 0
    at: str = ""
    count: int = 0
    seen: set[str] = field(default_factory=set)

    def through(self, listed: Callable[[NameRange], Iterator[T]]) -> Iterator[T]:
        """What is left to come by. Asked again, it goes on behind the last name that was `passed`."""
        while self.index < len(self.ranges):
            now = self.ranges[self.index]
            yield from listed(now._replace(after=max(now.after, self.at)))
            self.index, self.at = self.index + 1, ""

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
    """One with something new: its floor, when something in it was new, and how many new ones came up behind the floor last."""

    floor: str
    seen_at: float
    count: int = 0


class Passes:
    """Times are those of `time.monotonic()`."""

    def __init__(self, prefix: str, poll_seconds: float, relist_seconds: float) -> None:
        """`prefix`: what all names begin with."""
        self._prefix = prefix
        self._poll_seconds = poll_seconds
        self._relist_seconds = relist_seconds
        self._now: Pass | None = None
        self._count: int | None = None
        self._complete_at = self._listed_at = -math.inf
        self._floor = ""
        self._directories: dict[str, _Directory] = {}
        self._group = _Directory("", -math.inf)
        self._group_name = ""
        self._deeper: set[str] = set()
        self._turn = 0

    @property
    def passed(self) -> str | None:
        """Everything up to this name has been listed; None: everything."""
        return None if self._count is not None else "" if self._now is None else self._now.at

    def current(self, now: float, *, lists_behind: bool, to_the_end: bool) -> Pass | None:
        """The pass that is under way, or one that begins now; None while it is not time. `lists_behind`: see `Store`."""
        self._now = self._now or self._next(now, lists_behind=lists_behind, to_the_end=to_the_end)
        return self._now

    def _next(self, now: float, *, lists_behind: bool, to_the_end: bool) -> Pass | None:
        if to_the_end and self._count is not None:
            return None
        if now - self._complete_at < self._relist_seconds:
            if now - self._listed_at < self._poll_seconds * _EARLY:
                return None
            if lists_behind and self._count is not None and self._count > FULL_MOST:
                return Pass((NameRange(after=self._floor), *self._in_turn()), now)
        return Pass((NameRange(),), now)

    def _in_turn(self) -> list[NameRange]:
        """Directories whose names do not lie behind all others."""
        behind = [NameRange(name, one.floor) for name, one in self._directories.items() if one.floor < self._floor]
        begin = self._turn % len(behind) if behind else 0
        self._turn = begin + RANGES_MOST
        return list(itertools.islice(itertools.chain(behind[begin:], behind[:begin]), RANGES_MOST))

    def note(self, one: Pass, name: str, now: float, *, is_old: bool) -> None:
        """The pass comes by this name. `is_old`: the object was not changed for `look_back`."""
        directory = self._directory_of(name)
        if directory != self._group_name:
            new = _Directory(one.ranges[one.index].after, -math.inf)
            self._group_name, self._group = directory, self._directories.get(directory, new)
            self._group.count = 0
        if is_old and name > self._group.floor:
            self._floor, self._group.floor, self._group.count = max(self._floor, name), name, 0
        elif not is_old:
            self._group.count += 1
            self._group.seen_at = now
            self._directories[directory] = self._group

    def _directory_of(self, name: str) -> str:
        found = self._prefix
        while (end := name.find("/", len(found))) >= 0:
            found = name[: end + 1]
            if found not in self._deeper:
                break
        return found

    def complete(self, one: Pass, now: float) -> None:
        """The pass is through."""
        self._now, self._listed_at, self._group_name = None, one.begun_at, ""
        if one.is_full:
            self._count, self._complete_at = one.count, one.begun_at
        for name, directory in [*self._directories.items()]:
            is_taken_apart = one.is_full and name in self._deeper and directory.seen_at < one.begun_at
            if is_taken_apart or now - directory.seen_at > 2 * self._relist_seconds:
                del self._directories[name]
            elif directory.count > LARGE and name != self._prefix:
                self._deeper.add(name)
