"""What a connector has counted: kept while the agent runs, over restarts of the connector and changes of its definition."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from copycat_agent.errors import FileError
from copycat_agent.model import Counts
from copycat_agent.sources import Lag
from copycat_agent.worker.status import Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.model import ClientView, Rejection, SplitResult

_NOTHING = Counts()


class ConnectorMetrics:
    """Written by the thread of the connector that runs (there is one at a time), read by any. What it holds is replaced, not changed."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.retries = 0
        self.acknowledged_at = 0.0
        self.commit_seconds = Timing()
        self.delivery_seconds = Timing()
        self._delivery_outcomes: Counter[str] = Counter()
        self._clients: dict[int, ClientView] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._earlier = self._lag = Lag()

    @property
    def clients(self) -> tuple[ClientView, ...]:
        """The producers' latest words, by task."""
        return tuple(view for _, view in sorted(self._clients.copy().items()))

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """By stage and class."""
        return self._errors.copy()

    @property
    def delivery_outcomes(self) -> Counter[str]:
        """What became of transactions, by outcome; `unknown` ones count once more as what they were found to be. `openings` too."""
        return self._delivery_outcomes.copy()

    @property
    def lag(self) -> Lag:
        """The source's, with what its predecessors counted."""
        lag, earlier = self._lag, self._earlier
        return lag._replace(
            lost_bytes=lag.lost_bytes + earlier.lost_bytes,
            rotated_files=lag.rotated_files + earlier.rotated_files,
            truncated_files=lag.truncated_files + earlier.truncated_files,
        )

    def begin(self) -> None:
        """Another source begins to count from zero; it has its own producers."""
        self._earlier, self._lag = self.lag, Lag()
        self._clients.clear()

    def look(self, lag: Lag) -> None:
        """The source's lag is this now."""
        self._lag = lag

    def take_in(self, task: int, results: Sequence[SplitResult], seconds: float) -> None:
        """A task's batch came to its end `seconds` after it was handed over, and is saved."""
        counts = _NOTHING
        told: set[tuple[str, str]] = set()
        for result in results:
            if result.counts != _NOTHING:
                counts += result.counts
            if result.error is not None:
                told.add(("read" if isinstance(result.error, FileError) else "send", type(result.error).__name__))
            if result.rejections:
                self._count_bad(result.rejections, result.counts)
            if result.client is not None:
                self._clients[task] = result.client
        for stage, kind in told:  # one trouble of the broker is one error, however many files wait for it
            self.count_error(stage, kind)
        if counts != _NOTHING:
            self.counts += counts
            self.delivery_seconds = self.delivery_seconds.plus(seconds)
        if not told:
            self.acknowledged_at = time.time()

    def count_error(self, stage: str, kind: str, times: int = 1) -> None:
        """So many more errors of this kind."""
        self._errors[stage, kind] = self._errors.get((stage, kind), 0) + times

    def count_outcome(self, what: str) -> None:
        """One more of these, see `delivery_outcomes`."""
        self._delivery_outcomes = self._delivery_outcomes + Counter([what])

    def _count_bad(self, rejections: Sequence[Rejection], counts: Counts) -> None:
        """Bad records. Only the first are named with their stage: the others are taken to be like the last of these."""
        for rejection in rejections:
            self.count_error(rejection.stage, "DataError")
        unnamed = counts.dead_lettered + counts.rejected - len(rejections)
        if unnamed > 0:
            self.count_error(rejections[-1].stage, "DataError", unnamed)
