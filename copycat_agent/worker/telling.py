"""What the driver has changed by itself and no batch takes along: a transaction of its own tells it, once all is quiet.

So a store that is lost is made anew as it was also where nothing was sent for long: where a connector began at the end of its files, say.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from copycat_agent.errors import RetriableError
from copycat_agent.model import Head, Split, SplitResult

if TYPE_CHECKING:
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.worker.attempts import Attempt, Rows

LANE = 0
"""The one whose step it is: every connector has it."""
QUIET_SECONDS = 3.0
"""So long nothing is sent and nothing changes before it is told: batches would take it along for nothing."""
AGAIN_SECONDS = 30.0
"""After a failure. The records do not wait for it."""
MOST = 2000
"""Offsets in one such transaction: about 1 MiB."""


class Telling:
    """For the connector's thread."""

    def __init__(self, connector: str, store: OffsetStore, tell: Callable[[Rows], Attempt]) -> None:
        """`tell` begins a transaction of lane `LANE` with these offsets."""
        self.rows: Rows = {}
        """Those that are being told: of them nothing else may be said meanwhile."""
        self.held: list[Split] = []
        """Splits of their files, which wait."""
        self._connector, self._store, self._tell = connector, store, tell
        self._attempt: Attempt | None = None
        self._at = time.monotonic() + QUIET_SECONDS

    @property
    def is_under_way(self) -> bool:
        """Whether the lane is taken by it."""
        return self._attempt is not None

    def postpone(self) -> None:
        """Something was sent, or has changed."""
        self._at = time.monotonic() + QUIET_SECONDS

    def begin(self) -> None:
        """Nothing is in flight: tell what there is to tell, if it is time for it. Raises FatalError as the store does."""
        if self._attempt is not None or time.monotonic() < self._at:
            return
        self._at = math.inf
        with contextlib.suppress(RetriableError):
            self.rows = self._store.unpublished(self._connector, MOST)
            if self.rows:
                self._attempt = self._tell(self.rows)

    def end(self) -> Head | None:
        """Where the lane is, once it is over and has gone well. Raises what ends the connector."""
        if self._attempt is None or not self._attempt.is_over:
            return None
        attempt, rows, self._attempt, self.rows = self._attempt, self.rows, None, {}
        try:
            head = attempt.result().truth.heads[LANE]
        except RetriableError:
            self._at = time.monotonic() + AGAIN_SECONDS
            return None
        with contextlib.suppress(RetriableError):  # then it is told again
            self._store.commit({}, heads={LANE: head}, also=rows.items())
        self._at = time.monotonic() if len(rows) == MOST else self._at
        return head

    def take_back(self) -> tuple[SplitResult, ...]:
        """Splits that wait no longer, unread."""
        if self._attempt is not None or not self.held:
            return ()
        held, self.held = self.held, []
        return tuple(SplitResult(split, split.offset) for split in held)

    def cancel(self) -> None:
        """The connector ends."""
        if self._attempt is not None:
            self._attempt.cancel()
