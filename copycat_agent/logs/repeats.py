"""Repeats are counted within a minute instead of written."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from copycat_agent.logs.events import Event

REPEAT_SECONDS = 60.0
REPEAT_VARIANTS = 20
"""Lines per event and connector that differ in other fields, before the rest is only counted."""
REPEAT_EVENTS = 1000
"""Events remembered at a time."""


@dataclass(slots=True)
class _Window:
    """One event as it was seen since `start`. `common`: the fields that all repeats share."""

    start: float
    seen: set[int]
    last: Event
    suppressed: int = 0
    common: Mapping[str, object] | None = None


class Repeats:
    """Decides what is written.

    Events are the same when logger, level, words and the field `connector` are. The first is written; an identical one (all
    fields) is counted; one with other fields (a path, an offset) is written up to `REPEAT_VARIANTS` times, then counted.
    When the minute is over the count is written, with the fields that all that was counted share. Neither debug nor an event
    that is to be written always is suppressed.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: OrderedDict[tuple[object, ...], _Window] = OrderedDict()  # by start: oldest first

    def __len__(self) -> int:
        """How many events are remembered; `REPEAT_EVENTS` at most."""
        return len(self._windows)

    def admit(self, event: Event) -> list[Event]:
        """The lines to write now: counts of minutes that are over, then the event itself unless it is a repeat."""
        due = self.due()
        if event.level <= logging.DEBUG or event.always:
            return [*due, event]
        key = (event.logger, event.level, event.words, event.fields.get("connector"))
        variant = hash(repr(sorted(event.fields.items())))
        window = self._windows.get(key)
        if window is None:
            due += self._make_room()
            self._windows[key] = _Window(self._clock(), {variant}, event)
            return [*due, event]
        if variant in window.seen or len(window.seen) >= REPEAT_VARIANTS:
            _suppress(window, event)
            return due
        window.seen.add(variant)
        return [*due, event]

    def due(self) -> list[Event]:
        """Counts of minutes that are over."""
        now = self._clock()
        return self._end_while(lambda window: now - window.start >= REPEAT_SECONDS)

    def drain(self) -> list[Event]:
        """Returns all counts and forgets them; for the end of the process."""
        return self._end_while(lambda _: True)

    @property
    def next_due_seconds(self) -> float | None:
        """How long until a count has to be written; None when nothing is counted."""
        start = next((window.start for window in self._windows.values() if window.suppressed), None)
        return None if start is None else max(0.0, start + REPEAT_SECONDS - self._clock())

    def _make_room(self) -> list[Event]:
        return self._end_while(lambda _: len(self._windows) >= REPEAT_EVENTS)

    def _end_while(self, is_over: Callable[[_Window], bool]) -> list[Event]:
        ended = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if not is_over(window):
                break
            del self._windows[key]
            if window.suppressed:
                ended.append(_summary(window))
        return ended


def _suppress(window: _Window, event: Event) -> None:
    window.last = event
    window.suppressed += 1
    if window.common is None:
        window.common = event.fields
    elif window.common != event.fields:
        window.common = {name: value for name, value in window.common.items() if event.fields.get(name, window) == value}


def _summary(window: _Window) -> Event:
    last, times = window.last, window.suppressed
    words = f"{last.words} (repeated {times} times)"
    return Event(last.created, last.level, last.logger, words, {**(window.common or {}), "repeated": times})
