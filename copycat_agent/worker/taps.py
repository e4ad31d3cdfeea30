"""Taps: people who look at records as they are sent. They get what passes, and hold nothing up."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from copycat_agent.model import Sample

MOST_PER_BATCH = 100
"""Samples that one batch is asked for."""
MOST_TAPS = 16
"""Taps of one connector at a time; the oldest makes room."""
_LOOK_SECONDS = 0.2


class _Tap:
    def __init__(self, limit: int, seconds: float) -> None:
        self.left = limit
        self.until = time.monotonic() + seconds
        self.samples: queue.Queue[Sample] = queue.Queue(limit)
        self.closed = False

    @property
    def open(self) -> bool:
        return not self.closed and self.left > 0 and time.monotonic() < self.until


class Taps:
    """One connector's taps, kept over changes of its definition. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taps: list[_Tap] = []
        self.is_used = False
        """Whether anybody looks, or did a moment ago."""

    def open(self, limit: int, seconds: float) -> Iterator[Sample]:
        """From now on up to `limit` samples, for at most `seconds`; ends early when the connector is removed."""
        tap = _Tap(max(1, limit), seconds)
        with self._lock:
            self._taps = [*self._taps, tap][-MOST_TAPS:]
            self.is_used = True
        return self._flow(tap)

    def wanted(self) -> int:
        """How many samples the next batch should bring."""
        with self._lock:
            self._taps = [tap for tap in self._taps if tap.open]
            self.is_used = bool(self._taps)
            return min(MOST_PER_BATCH, max((tap.left for tap in self._taps), default=0))

    def give(self, samples: Iterable[Sample]) -> None:
        """What a batch brought."""
        with self._lock:
            for sample in samples:
                for tap in self._taps:
                    if tap.open:
                        tap.left -= 1
                        tap.samples.put_nowait(sample)

    def close(self) -> None:
        """No more samples: the connector is gone."""
        with self._lock:
            for tap in self._taps:
                tap.closed = True
            self._taps = []

    def _flow(self, tap: _Tap) -> Iterator[Sample]:
        try:
            while tap.open or not tap.samples.empty():
                try:
                    yield tap.samples.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    continue
        finally:
            tap.closed = True
