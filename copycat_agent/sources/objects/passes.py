"""When names are listed, and which of them: all at first and every `relist`, else those behind the name that was the last a while ago."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

FULL_MOST = 2000
"""With no more objects than that everything is listed at each poll: two requests, and 0.1 s of CPU."""
_EARLY = 0.9
"""A poll may come a little early: its time is told from the begin of the one before, and looks are asked for on a beat of their own."""


@dataclass(slots=True)
class Pass:
    """One way through the names. `after`: it begins behind this name. `at`: it is through up to this one, after `count` of them.

    `seen`: keys of the objects that are known and came up. `highest_old`: the last name of an object that was not changed for long.
    """

    after: str
    begun_at: float
    at: str = ""
    count: int = 0
    seen: set[str] = field(default_factory=set)
    highest_old: str = ""


class Passes:
    """Times are those of `time.monotonic()`."""

    def __init__(self, poll_seconds: float, look_back_seconds: float, relist_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._look_back_seconds = look_back_seconds
        self._relist_seconds = relist_seconds
        self._now: Pass | None = None
        self._count: int | None = None
        self._complete_at = self._listed_at = -math.inf
        self._highest: deque[tuple[float, str]] = deque([(-math.inf, "")])

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
        if now - self._complete_at >= self._relist_seconds:
            return Pass("", now)
        if now - self._listed_at < self._poll_seconds * _EARLY:
            return None
        if not lists_behind or (self._count is not None and self._count <= FULL_MOST):
            return Pass("", now)
        while len(self._highest) > 1 and self._highest[1][0] <= now - self._look_back_seconds:
            self._highest.popleft()
        return Pass(self._highest[0][1], now)

    def complete(self, one: Pass, now: float) -> None:
        """The pass is through."""
        self._now, self._listed_at = None, one.begun_at
        if not one.after:
            if self._count is None:
                self._highest = deque([(-math.inf, one.highest_old)])
            self._count, self._complete_at = one.count, one.begun_at
        self._highest.append((now, max(one.at, self._highest[-1][1])))
