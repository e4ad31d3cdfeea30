"""Opens a single lane again while the others work: to find out the outcome of a batch, or to publish offsets.

If it is not known whether a batch was committed, its lane is opened until Kafka tells. Offsets that the driver has changed by itself are
published in a transaction of their own once the connector is quiet. Otherwise a store that is rebuilt from Kafka would lack them if nothing
was sent for long: of a connector that began at the end of its files, for example.
"""

from __future__ import annotations

import contextlib
import math
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent import failpoints
from copycat_agent.backoff import Backoff
from copycat_agent.errors import BehindError, BlockedError, CopycatError, RetriableError
from copycat_agent.model import Batch, Head, LaneOutcome, LanePlan, Position, Results, SourceOffset, SourcePartition, Split, SplitResult
from copycat_agent.offsets import LaneCommit, OffsetStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from copycat_agent.delivery.base import PendingResults
    from copycat_agent.delivery.exactly_once.opening_attempts import OpeningAttempt, Rows
    from copycat_agent.options import Definition, ErrorsOptions
    from copycat_agent.transactions.opening import LaneSnapshot

TELL_SECONDS = 1.0
"""A recovery that takes longer is reported as trouble."""
_UNDONE = "what became of a transaction was not known; Kafka says that it is not committed, and all of it is sent again"

PUBLISHING_LANE = 0
"""The lane that publishes offsets: every connector has it."""
QUIET_SECONDS = 3.0
"""How long nothing must be sent or changed before offsets are published: the next batch would write them at no extra cost."""
PUBLISH_AGAIN_SECONDS = 30.0
"""How long to wait after a failure before offsets are published again: records go first."""
PUBLISHED_MAX = 2000
"""The most offsets in one such transaction: about 1 MiB."""


class Recovery:
    """Finds out the outcome of one batch. The connector's steps call `advance` until `results` is done."""

    def __init__(self, batch: Batch, results: Results, again: Callable[[], OpeningAttempt], errors: ErrorsOptions) -> None:
        """`again` begins another attempt to open the batch's lane."""
        self.results: PendingResults = Future()
        """The batch's results as Kafka has them, or the error that ends the connector."""
        self.began = time.monotonic()
        self.why = _why(results)
        """Why the outcome is not known, in words."""
        self.error: RetriableError | None = None
        """Why the last attempt failed."""
        self._batch, self._before = batch, results
        self._again = again
        self._backoff = Backoff(errors)
        self._attempt: OpeningAttempt | None = None

    @property
    def trouble(self) -> RetriableError | None:
        """Returns the error to show to people; None while the recovery is quick."""
        slow = time.monotonic() - self.began > TELL_SECONDS
        if self.error is None and not slow:
            return None
        doing = self._attempt.doing if self._attempt else "tries again"
        words = f"whether a batch of task {self._batch.task.number} was committed is not known yet: it {doing}"
        kind = BlockedError if isinstance(self.error, BlockedError) else RetriableError
        return kind(f"{words}; {self.error}" if self.error else words)

    def advance(self) -> None:
        """Begins an attempt when one is due, and handles one that is over. Raises nothing."""
        try:
            self._tend()
        except CopycatError as error:  # the store's, or errors.retry_timeout is over
            self.results.set_exception(error)

    def cancel(self) -> None:
        """Cancels the attempt under way. The next start finds out the outcome."""
        if self._attempt is not None:
            self._attempt.cancel()

    def _tend(self) -> None:
        try:
            if self._attempt is None and not self._backoff.seconds_left():
                failpoints.hit("recovering")
                self._attempt = self._again()
            elif self._attempt is not None and self._attempt.is_over:
                attempt, self._attempt = self._attempt, None
                self.results.set_result(results_from_kafka(self._batch, self._before, attempt.result().snapshot))
        except LaneMismatchError:
            raise
        except BehindError as error:
            raise LaneMismatchError(error.message) from None  # an opening of all lanes finds out whether that is so
        except RetriableError as error:
            self.error = error.with_traceback(None)  # its frames hold data that was read
            self._backoff.failed(error)


class LaneMismatchError(RetriableError):
    """Raised when a lane in Kafka has entries that no batch of this connector explains: all of its lanes have to be opened anew."""


def results_from_kafka(batch: Batch, before: Results, snapshot: LaneSnapshot) -> Results:
    """Returns the results of a batch, from Kafka's entries of its lane. `before` are the unreliable results; their errors say why.

    Raises LaneMismatchError.
    """
    plan = batch.delivery
    assert isinstance(plan, LanePlan), "a transaction has a lane"
    found = _positions(plan, batch, snapshot)
    state = LaneOutcome("committed" if found else "undone", snapshot.heads[plan.lane.number])
    pairs = zip(batch.splits, before, strict=True)
    results = [_committed_result(split, found.get(split.partition)) if found else _undone_result(one) for split, one in pairs]
    results[0] = replace(results[0], outcome=state)
    return tuple(results)


def _positions(plan: LanePlan, batch: Batch, snapshot: LaneSnapshot) -> Mapping[SourcePartition, Position]:
    """Returns the positions of its transaction; empty if it was not committed, or wrote only tombstones, which are written again."""
    mine = {one.partition: one for one in snapshot.positions if one.lane == plan.lane.number and one.seq > plan.head.seq}
    expected = {split.partition for split in batch.splits} | {partition for partition, _ in plan.driver_rows}
    if any(one.seq != plan.head.seq + 1 for one in mine.values()) or mine.keys() - expected:
        raise LaneMismatchError(f"lane {plan.lane.number} holds positions that nobody here has sent")
    if mine and any(split.origins for split in batch.splits):
        raise LaneMismatchError(f"lane {plan.lane.number} has gone on with an archive whose content is known by another name")
    return mine


def _committed_result(split: Split, position: Position | None) -> SplitResult:
    """Returns the result as Kafka has it. What is not in Kafka (the end of the file, damage) is found and counted when reading goes on."""
    if position is None or position.offset is None:
        return SplitResult(split, split.offset)
    assert isinstance(position.offset, SourceOffset), "a split has an offset"
    offset = replace(position.offset, done=split.offset.done, trouble=split.offset.trouble)
    losses = tuple(one for one in position.losses if one.reason != "damaged")
    return SplitResult(split, offset, position.counts, losses=losses)


def _undone_result(result: SplitResult) -> SplitResult:
    return SplitResult(result.split, result.split.offset, error=result.error or RetriableError(_UNDONE))


def _why(results: Results) -> str:
    outcome = next((one.outcome for one in results if one.outcome is not None), None)
    error = next((one.error for one in results if one.error is not None), None)
    return (outcome.why if outcome else "") or str(error or "its process gave no answer")


class OffsetPublisher:
    """Publishes offsets that the driver has changed by itself. Called by the connector's steps.

    After a failure its lane's head is unknown: the transaction may have been committed. Nothing is planned in that lane, and nothing else
    is written about its files, before the lane was opened again.
    """

    def __init__(self, definition: Definition, store: OffsetStore, publish: Callable[[Rows], OpeningAttempt]) -> None:
        """`publish` opens lane `PUBLISHING_LANE` again, with these offsets in its first transaction."""
        self.rows: Rows = {}
        """Offsets that are being published: nothing else may be written about them meanwhile."""
        self.held: list[Split] = []
        """Splits of their files, held back until publishing is over."""
        self._connector, self._store, self._publish = definition.name, store, publish
        self._attempt: OpeningAttempt | None = None
        self._backoff = Backoff(definition.errors)
        self._error: RetriableError | None = None
        self._at = time.monotonic() + QUIET_SECONDS

    @property
    def is_under_way(self) -> bool:
        """Returns whether it uses the lane, or whether the lane's head is unknown after a failure."""
        return self._attempt is not None or self._error is not None

    @property
    def has_work(self) -> bool:
        """Returns whether it publishes something, or is scheduled to."""
        return self.is_under_way or self._at < math.inf

    @property
    def trouble(self) -> RetriableError | None:
        """Returns why its lane is not used now, None if it is."""
        if self._error is None:
            return None
        kind = BlockedError if isinstance(self._error, BlockedError) else RetriableError
        return kind(f"task {PUBLISHING_LANE} waits until its lane is open again; {self._error}")

    def postpone(self) -> None:
        """Restarts the quiet period, because something was sent or has changed."""
        self._at = time.monotonic() + QUIET_SECONDS

    def begin_if_due(self) -> None:
        """Publishes what is unpublished, if it is due. Called when nothing is in flight. Raises FatalError as the store does."""
        if self.is_under_way or time.monotonic() < self._at:
            return
        self._at = math.inf
        try:
            rows = self._store.unpublished(self._connector, PUBLISHED_MAX)
            self._attempt = self._publish(rows) if rows else None
        except RetriableError:  # from the store: nothing was begun
            self._at = time.monotonic() + PUBLISH_AGAIN_SECONDS
        else:
            self.rows = rows

    def end(self) -> Head | None:
        """Returns the head of the lane once publishing has succeeded, else None. Raises what ends the connector."""
        try:
            return self._end()
        except BehindError as error:
            raise LaneMismatchError(error.message) from None
        except RetriableError as error:
            self._error = error.with_traceback(None)  # its frames hold data that was read
            self._backoff.failed(error)
            return None

    def _end(self) -> Head | None:
        if self._attempt is None:
            if self._error is not None and not self._backoff.seconds_left():
                self._attempt = self._publish({})
            return None
        if not self._attempt.is_over:
            return None
        attempt, self._attempt = self._attempt, None
        head = attempt.result().snapshot.heads[PUBLISHING_LANE]
        rows, self.rows = self.rows, {}
        told = {} if self._error else rows
        with contextlib.suppress(RetriableError):  # then it is published again
            self._store.commit({}, moved=LaneCommit(self._connector, {PUBLISHING_LANE: head}, driver_rows=told))
        if self._error is not None:
            self._error, self._at = None, time.monotonic() + PUBLISH_AGAIN_SECONDS
            self._backoff.succeeded()
        elif len(rows) == PUBLISHED_MAX:
            self._at = time.monotonic()
        return head

    def take_back(self) -> Results:
        """Returns the splits that need wait no longer, unread."""
        if self.is_under_way or not self.held:
            return ()
        held, self.held = self.held, []
        return tuple(SplitResult(split, split.offset) for split in held)

    def cancel(self) -> None:
        """Cancels the attempt under way, because the connector ends."""
        if self._attempt is not None:
            self._attempt.cancel()
