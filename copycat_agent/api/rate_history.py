"""Each connector's acknowledged records per second over the last 15 minutes, for the charts of the page and `top`.

It is kept in the agent, so that it is there when somebody starts to watch. A connector takes 720 bytes and its name.
"""

from __future__ import annotations

import contextlib
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.worker import Status

SPAN_SECONDS = 900.0
LOOK_SECONDS = 5.0
"""Interval at which the counts are read."""
LOOKS = int(SPAN_SECONDS / LOOK_SECONDS)
"""Rates kept of each connector."""


def means(rates: Sequence[float], points: int) -> list[float]:
    """Returns the means of rates in at most `points` groups, oldest first. The oldest group may have fewer rates."""
    width = -(-LOOKS // points)
    return [sum(part) / len(part) for part in (rates[max(0, end - width) : end] for end in range(len(rates), 0, -width))][::-1]


class RateHistory:
    """Reads the connectors' counts on a thread of its own, from `start` to `close`. Thread-safe."""

    def __init__(self, statuses: Callable[[], Iterable[Status]]) -> None:
        self._statuses = statuses
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._counts: dict[str, int] = {}
        self._rates: dict[str, array[float]] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rate-history", daemon=True)

    def start(self) -> None:
        """Starts the thread. Called once, or never."""
        self._thread.start()

    def close(self) -> None:
        """Stops the thread; does not wait for one that hangs."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(LOOK_SECONDS)

    def look(self, now: float) -> None:
        """Reads the counts once, at `now` (`time.monotonic()`). A smaller count has started anew. Removed connectors are forgotten."""
        counts = {one.name: one.counts.acknowledged for one in self._statuses()}
        with self._lock:
            elapsed = now - self._looked_at
            for name, count in counts.items():
                before = self._counts.get(name)
                if before is not None and elapsed > 0:
                    self._append(name, (count - before if count >= before else count) / elapsed)
            for name in self._rates.keys() - counts.keys():
                del self._rates[name]
            self._counts, self._looked_at = counts, now

    def rates(self, name: str) -> Sequence[float]:
        """Returns up to `LOOKS` rates, oldest first; () before the second look."""
        with self._lock:
            return tuple(self._rates.get(name, ()))

    def rate(self, name: str) -> float | None:
        """Returns the rate between the last two looks, None before the second."""
        with self._lock:
            known = self._rates.get(name)
            return known[-1] if known else None

    def lines(self, points: int) -> Mapping[str, list[float]]:
        """Returns each connector's `means`; one without rates is left out."""
        with self._lock:
            known = {name: tuple(rates) for name, rates in self._rates.items()}
        return {name: means(rates, points) for name, rates in known.items()}

    def _append(self, name: str, rate: float) -> None:
        kept = self._rates.setdefault(name, array("f"))
        kept.append(rate)
        del kept[:-LOOKS]

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            with contextlib.suppress(Exception):  # a look that fails leaves a gap, and the next one is tried
                self.look(time.monotonic())
