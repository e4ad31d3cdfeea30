"""Records per second, from counts that are looked at now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

HISTORY = 60
"""Rates remembered by connector, one per look."""


class Rates:
    """Fed with every look at the connectors."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}
        self._history: dict[str, deque[float]] = {}

    def look(self, connectors: Iterable[Mapping[str, Any]], now: float) -> None:
        """Connectors as the API shows them, at `now` (monotonic seconds). A count that shrank began anew."""
        for one in connectors:
            name, count = one["name"], one["counts"]["acknowledged"]
            then, before = self._last.get(name, (now, count))
            self._last[name] = (now, count)
            if now > then:
                moved = count - before if count >= before else count
                self._history.setdefault(name, deque(maxlen=HISTORY)).append(moved / (now - then))

    def of(self, name: str) -> float | None:
        """Acknowledged records per second between the last two looks, None before there were two."""
        history = self._history.get(name)
        return history[-1] if history else None

    def history(self, name: str) -> list[float]:
        """The rates of the last looks, oldest first."""
        return list(self._history.get(name, ()))
