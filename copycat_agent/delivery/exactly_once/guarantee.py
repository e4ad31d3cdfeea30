"""Opens the lanes of a connector before its source is made, in as many attempts as necessary.

The way of an opening: `ExactlyOnceOpening` (attempts, doubts), `LaneOpener`, `OpeningAttempt` (a thread), `OpeningPlanner` (the request,
from SQLite), `transactions.opening.open_lanes` (the protocol).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from copycat_agent import failpoints
from copycat_agent.delivery.base import Callbacks, Delivery
from copycat_agent.delivery.exactly_once.driver import ExactlyOnceDelivery
from copycat_agent.delivery.exactly_once.opening_attempts import LaneOpener, MakeKafkaAccess, OpeningAttempt, OpeningResult
from copycat_agent.errors import BehindError, CopycatError, PositionsError, RetriableError
from copycat_agent.fair_executor import FairExecutor
from copycat_agent.model import Counts, SavedRow, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import Definition
from copycat_agent.transactions.opening import OpeningPlan

TELL_SECONDS = 1.0
"""An attempt that takes longer reports what it waits for."""
DOUBT_SECONDS = 10.0
"""After this time Kafka is asked once more, by a new client, before it is believed to lack what this host has seen.

Brokers need 9 s to find out that one of them is cut off from the others."""


class ExactlyOnceOpening:
    """A `base.Opening`. The attempts run on `threads`."""

    def __init__(
        self,
        definition: Definition,
        store: OffsetStore,
        threads: FairExecutor,
        make_access: MakeKafkaAccess,
        callbacks: Callbacks,
        earlier: Sequence[str],
        *,
        keeps_accounts: bool,
    ) -> None:
        """`earlier`: see `LaneOpener`."""
        self._definition = definition
        self._store = store
        self._opener = LaneOpener(definition, store, threads, make_access, callbacks.wake, earlier)
        self._callbacks = callbacks
        self._keeps_accounts = keeps_accounts
        self._attempt: OpeningAttempt | None = None
        self._attempt_at = 0.0
        self._again_at = 0.0

    @property
    def doing(self) -> str:
        attempt = self._attempt
        return attempt.doing if attempt is not None and attempt.seconds > TELL_SECONDS else ""

    def seconds_left(self) -> float:
        return max(0.0, self._again_at - time.monotonic())

    def advance(self) -> Delivery | None:
        """Returns the open delivery, None while it is not open. Raises PositionsError when a person has to decide first."""
        if self._attempt is None:
            self._begin()
        assert self._attempt is not None, "it has just begun"
        if not self._attempt.is_over:
            return None
        attempt, self._attempt = self._attempt, None
        try:
            return self._opened(attempt.result())
        except BehindError as error:
            raise self._doubted(error) from None

    def cancel(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None

    def _begin(self) -> None:
        self._attempt_at = time.monotonic()
        self._attempt = self._opener.all()

    def _doubted(self, error: BehindError) -> RetriableError | BehindError:
        """Returns the error to raise when Kafka seems to lack what this host has seen: a broker that is cut off would show the same.

        It is final when an attempt that began `DOUBT_SECONDS` after the first doubt has the same result; until then it is retriable.
        """
        if self._again_at and self._attempt_at >= self._again_at:
            return error
        self._again_at = self._again_at or time.monotonic() + DOUBT_SECONDS
        hint = f"a broker that is cut off from the others may have said so: Kafka is asked again within {DOUBT_SECONDS:g} s"
        return RetriableError(error.message, hint)

    def _opened(self, found: OpeningResult) -> ExactlyOnceDelivery:
        """Saves what was found and returns the delivery. Raises what the store raises."""
        failpoints.hit("claimed")
        name, plan, snapshot = self._definition.name, found.plan, found.snapshot
        place = plan.lanes.place
        news = self._store.lanes_opened(name, snapshot.cluster, place, snapshot, _saved_here(plan), keeps_accounts=self._keeps_accounts)
        self._callbacks.count_records(sum((one.counts for one in news), Counts()))
        self._callbacks.count_outcome("openings")
        if news:
            self._callbacks.log.info("positions taken over from Kafka", files=len(news), topic=place.topic, partition=place.partition)
        return ExactlyOnceDelivery(self._definition, self._store, self._opener, found, self._callbacks)


def _saved_here(plan: OpeningPlan) -> list[tuple[SourcePartition, SavedRow]]:
    """Returns the rows of the store that were written to Kafka."""
    return [(partition, offset) for partition, offset in plan.publish if offset is not None]


class ExactlyOnceGuarantee:
    """A `delivery.guarantees.Guarantee`."""

    def __init__(self, store: OffsetStore, threads: FairExecutor, make_access: MakeKafkaAccess, *, keeps_accounts: bool) -> None:
        """`threads` runs the openings, with the steps that `make_access` makes: a Kafka cluster, or its substitute in tests."""
        self._store = store
        self._threads = threads
        self._make_access = make_access
        self._keeps_accounts = keeps_accounts

    def open(self, definition: Definition, callbacks: Callbacks, earlier: Sequence[str]) -> ExactlyOnceOpening:
        how = {"keeps_accounts": self._keeps_accounts}
        return ExactlyOnceOpening(definition, self._store, self._threads, self._make_access, callbacks, earlier, **how)

    def leave(self, connector: str) -> None:
        self._store.leave_lanes(connector)

    def remember(self, connector: str, error: CopycatError) -> None:
        if isinstance(error, PositionsError):
            self._store.lanes_refused(connector, error)
