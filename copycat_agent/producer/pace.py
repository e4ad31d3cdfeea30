"""How much to send before waiting for receipts, so that the receipts come in time also on a slow line.

A record that is not acknowledged within the message time-out makes everything since the last receipt be sent again. A run that
is larger than what the line carries in that time would be sent again for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MOST_BYTES = 16 * 2**20
"""A flush costs a round trip; a failure repeats a run."""
LEAST_BYTES = 32 * 2**10
_SHRINK = 64
"""A run that failed makes the next one so many times smaller: each failure costs half a minute and repeats."""
_GROW = 8
"""A quick one makes the next so many times larger at most."""


class Pace:
    """The size of a producer's next run, learnt from those before it. Used from one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, run_bytes: int = MOST_BYTES) -> None:
        """`run_bytes`: what earlier producers have learnt."""
        self._clock = clock
        self.run_bytes = run_bytes
        self._begun: float | None = None
        self._size_bytes = 0

    def begin(self) -> None:
        """Something is sent: a run begins, unless one is under way."""
        if self._begun is None:
            self._begun = self._clock()

    def forget(self) -> None:
        """Whatever was under way tells nothing."""
        self._begun, self._size_bytes = None, 0

    def weigh(self, size_bytes: int) -> None:
        """The run that is under way came from so many bytes of input."""
        self._size_bytes = size_bytes

    def settled(self, wanted_seconds: float) -> None:
        """A run has its receipts, and so long it should take at most. Small and quick ones tell nothing about larger ones."""
        begun, size_bytes = self._begun, self._size_bytes
        self.forget()
        if begun is None or not size_bytes:
            return
        fitting = size_bytes * wanted_seconds / max(self._clock() - begun, 1e-3)
        if fitting < size_bytes:
            self._become(fitting)
        elif size_bytes >= self.run_bytes / 2:
            self._become(min(max(fitting, self.run_bytes), self.run_bytes * _GROW))

    def failed(self) -> None:
        """A run had no receipts in time."""
        self.forget()
        self._become(self.run_bytes / _SHRINK)

    def _become(self, run_bytes: float) -> None:
        self.run_bytes = int(min(MOST_BYTES, max(LEAST_BYTES, run_bytes)))
