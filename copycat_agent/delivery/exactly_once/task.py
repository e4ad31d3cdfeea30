"""A batch as one transaction of its lane: records, dead letters, positions and head are committed together or not at all.

What settles while the batch runs is settled in the transaction, and counts with the commit. Before that, every message that was sent has to
be accounted for: messages of a file that turns out to be another one would stay there for good, so the transaction is undone, and the
others are tried again without that file (`_AttemptResult.aside`). Of a file that is cut while it is read, pieces that were read before the
cut still count (`Stream.was_still`); the driver begins it anew afterwards. Kafka's refusal of a record undoes the whole transaction, too:
`refused_transaction_search` says what is tried next.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from copycat_agent import failpoints
from copycat_agent.batch.run import BatchRun
from copycat_agent.delivery.base import AsValue, MakeRun
from copycat_agent.delivery.batch_outcomes import unanswered_results
from copycat_agent.delivery.exactly_once.refused_transaction_search import RefusedTransactionSearch
from copycat_agent.encoding.encoder import Encoder
from copycat_agent.errors import (
    BlockedError,
    CopycatError,
    DataError,
    FatalError,
    FencedError,
    RefusedError,
    RetriableError,
    SentInPartError,
)
from copycat_agent.model import (
    OFFSETS_TOPIC,
    Batch,
    LaneOutcome,
    LanePlan,
    LaneState,
    Position,
    Results,
    SourcePartition,
    Split,
    SplitResult,
)
from copycat_agent.producer import ProducerPool
from copycat_agent.producer.producer_pool import TaskLane
from copycat_agent.transactions.protocol import Procedure, perform

READ_PART, STOP_PART, LATEST_PART = 1 / 3, 7 / 12, 3 / 4
"""Fractions of the transaction's time-out: a batch reads until the first, waits for nothing after the second, never commits after the
third."""
ATTEMPTS_SECONDS = 40.0
"""A batch makes no further attempt that is expected to end later than this after the batch began: the next batch makes it."""
_BUG = "this is a bug in copycat-agent: please report it"


class _AttemptResult(NamedTuple):
    """The result of an attempt. `results` are those of the splits that it tried; `error` is why it is not committed, None when it is.

    `aside` are results of files that must not be tried again now. `refused` is Kafka's refusal when only the first record can be the cause.
    `is_worthwhile`: another attempt may succeed.
    """

    outcome: LaneOutcome
    results: Results
    error: CopycatError | None = None
    aside: tuple[SplitResult, ...] = ()
    refused: DataError | None = None
    is_worthwhile: bool = False


class ExactlyOnceTask:
    """The task's side: see `base.TaskDelivery`."""

    def run(
        self, batch: Batch, encoder: Encoder, producers: ProducerPool, stopping: Callable[[], bool], make_run: MakeRun, as_value: AsValue
    ) -> Results:
        lane = producers.take_lane(batch.task, encoder.kafka, tracked=batch.tracked)
        lane.stopping = stopping
        try:
            return LaneBatch(batch, encoder, lane, make_run, as_value).run()
        except Exception as error:  # noqa: BLE001 - a batch never raises
            lane.broken = True
            return unanswered_results(batch, as_value(error), begun=True)
        finally:
            with contextlib.suppress(Exception):  # the commit cannot be undone, and has to be reported
                producers.give_lane_back(batch.task, lane)


class LaneBatch:
    """One batch in its lane. Used once, from one thread."""

    def __init__(self, batch: Batch, encoder: Encoder, lane: TaskLane, make_run: Callable[..., BatchRun], as_value: AsValue) -> None:
        """`as_value` turns an exception into the error of a result. `lane.stopping` says when the batch has to end."""
        assert isinstance(batch.delivery, LanePlan), "a transaction has a lane"
        lane.memory = lane.memory or RefusedTransactionSearch()
        self._batch = batch
        self._plan: LanePlan = batch.delivery
        self._encoder = encoder
        self._lane = lane
        self._search: RefusedTransactionSearch = lane.memory
        self._make_run = make_run
        self._as_value = as_value
        self._run: BatchRun | None = None
        self._aside: dict[SourcePartition, SplitResult] = {}

    def run(self) -> Results:
        """Makes attempts until one is committed or another would be useless. Returns one result per split, in order. Raises nothing."""
        begun = time.monotonic()
        refusals: tuple[DataError, ...] = ()
        while True:
            since = time.monotonic()
            done = self._attempt(refusals)
            self._aside |= {one.split.partition: one for one in done.aside}
            now = time.monotonic()
            is_late = now + (now - since) > begun + ATTEMPTS_SECONDS
            if not done.is_worthwhile or is_late or self._lane.stopping() or len(self._aside) == len(self._batch.splits):
                return self._results(done)
            refusals = () if done.refused is None else (*refusals, done.refused)

    def _attempt(self, refusals: Sequence[DataError]) -> _AttemptResult:
        part = self._part()
        try:
            handle = self._perform(self._lane.writer.begin(self._plan))
        except Exception as error:  # noqa: BLE001 - a batch never raises
            return self._not_begun(error)
        clock = _Clock(handle, self._lane)
        run = self._new_run(part, handle, clock.is_over)
        run.expect(refusals)
        failure = self._read(run, handle, clock.is_over)
        doubt = _too_slow(run, failure, clock) or _doubt(run, handle, failure, clock)
        try:
            results = tuple(progress.result(failure) for progress in run.progresses)
            positions = [*_driver_rows(self._plan), *self._moved(results)]
        except Exception as error:  # noqa: BLE001 - as above
            doubt = doubt or self._as_value(error)
        if doubt is not None:
            return self._undo(part, run, handle, doubt)
        if not (handle.has_sent or positions):
            return _AttemptResult(self._lane.writer.keep(self._plan, handle), _sampled(run, results))
        return self._commit(run, handle, results, positions)

    def _not_begun(self, error: Exception) -> _AttemptResult:
        """Returns the result of an attempt that read and sent nothing. It has no error if a stop came first."""
        state: LaneState = "unknown" if isinstance(error, FencedError) else "undone"
        told = None if self._lane.stopping() and type(error) is RetriableError else self._as_value(error)
        return _AttemptResult(LaneOutcome(state, self._plan.head, str(error)), (), told)

    def _part(self) -> Batch:
        """Returns the part of the batch to try."""
        batch = replace(self._batch, max_seconds=min(self._batch.max_seconds, READ_PART * self._lane.transaction_seconds))
        if self._aside:
            batch = replace(batch, splits=self._beside(batch.splits))
        return self._search.part(batch)

    def _beside(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        """Returns the splits that are neither aside nor come after one that is."""
        out: set[SourcePartition | None] = set(self._aside)
        for one in splits:
            if one.after in out:
                out.add(one.partition)
        return tuple(one for one in splits if one.partition not in out)

    def _new_run(self, part: Batch, handle: Any, is_over: Callable[[], bool]) -> BatchRun:  # noqa: ANN401 - see `protocol.Handle`
        if self._run is None:
            self._run = self._make_run(part, self._encoder, handle, is_over)
        else:
            self._run = self._run.anew(part, handle, is_over)
        return self._run

    def _read(self, run: BatchRun, handle: Any, is_over: Callable[[], bool]) -> CopycatError | None:  # noqa: ANN401 - as above
        """Reads and sends. Returns the error that ended it early, or None."""
        try:
            failpoints.hit("begun")
            handle.begin(is_over)
            run.run()
        except RefusedError as error:
            return error
        except Exception as error:  # noqa: BLE001 - as above
            return self._as_value(error)
        return None

    def _commit(self, run: BatchRun, handle: Any, results: Results, positions: list[Position]) -> _AttemptResult:  # noqa: ANN401 - as above
        """Commits, as far as possible, and returns the result."""
        outcome, error = self._send_positions_and_commit(handle, positions)
        if outcome.state != "committed":
            return _AttemptResult(outcome, results, error)
        if self._search.committed(run.progresses, handle.sent, found=run.sender.refused > 0):
            handle.smaller_batches()
            self._lane.next_batch_bytes = handle.next_batch_bytes
        return _AttemptResult(outcome, _sampled(run, results))

    def _send_positions_and_commit(self, handle: Any, positions: list[Position]) -> tuple[LaneOutcome, CopycatError | None]:  # noqa: ANN401 - as above
        """Sends positions and head, and commits. Returns the outcome, and the error unless it is committed."""
        steps = _RecordingSteps(self._lane.steps)
        try:
            outcome = perform(self._lane.writer.finish(self._plan, handle, positions), steps)
            assert outcome.state != "committed" or outcome.head.seq == self._plan.head.seq + 1, "a transaction takes one step"
        except Exception as bug:  # noqa: BLE001 - it is unknown how far it got
            self._lane.broken = True
            self._lane.steps.close(handle)
            told = self._as_value(bug)
            return LaneOutcome("unknown", self._plan.head, str(told)), told
        if outcome.state == "committed":
            return outcome, None
        error = steps.error or RetriableError(outcome.why)
        if isinstance(error, RefusedError):
            hint = f"give topic {OFFSETS_TOPIC} the broker's default for max.message.bytes"
            error = BlockedError(f"{OFFSETS_TOPIC} does not take a position: {error.message}", hint)
        return outcome, error

    def _undo(self, part: Batch, run: BatchRun, handle: Any, why: CopycatError) -> _AttemptResult:  # noqa: ANN401 - as above
        """Gives the transaction up. Returns the result, which says whether another attempt is worthwhile."""
        outcome = self._perform(self._lane.writer.undo(self._plan, handle, why))
        aside = tuple(
            SplitResult(one.split, one.split.offset, changed=one.changed, error=one.error) for one in run.progresses if one.orphans
        )
        results = tuple(SplitResult(one.split, one.split.offset, error=one.error) for one in run.progresses)
        if outcome.state != "undone" or not isinstance(why, RefusedError):
            return _AttemptResult(outcome, results, why, aside, is_worthwhile=outcome.state == "undone" and bool(aside))
        if (one := next((one for one in part.splits if one.goes_as_one), None)) is not None:
            return _AttemptResult(outcome, results, _refused_whole(one, why.reason))
        is_first = self._search.refused(part, run.progresses, handle.sent)
        return _AttemptResult(outcome, results, why, refused=why.reason if is_first else None, is_worthwhile=True)

    def _moved(self, results: Results) -> list[Position]:
        """Returns the positions of the partitions that have moved."""
        moved, seq = [], self._plan.head.seq + 1
        for result in results:
            offset, losses = self._encoder.source.saved(result, self._encoder.definition.source)
            if offset != result.split.offset or result.losses:
                assert offset.position >= result.split.offset.position, "an offset never moves back"
                moved.append(Position(result.split.partition, self._plan.lane.number, seq, offset, result.counts, losses))
        return moved

    def _results(self, done: _AttemptResult) -> Results:
        """Returns one result per split. Unless committed, splits do not move and count nothing."""
        found = {one.split.partition: one for one in done.results}
        if done.outcome.state not in ("committed", "idle"):
            found = {key: SplitResult(one.split, one.split.offset, error=one.error or done.error) for key, one in found.items()}
        found |= self._aside
        error = done.error if done.outcome.state not in ("committed", "idle") else None
        results = [found.get(one.partition) or SplitResult(one, one.offset, error=error) for one in self._batch.splits]
        if results:
            samples = tuple(sample for one in results for sample in one.samples)
            results = [replace(one, samples=()) if one.samples else one for one in results]
            results[0] = replace(results[0], samples=samples, client=self._lane.steps.take_view(), outcome=done.outcome)
        return tuple(results)

    def _perform(self, procedure: Procedure[Any]) -> Any:  # noqa: ANN401 - what the procedure returns
        return perform(procedure, self._lane.steps)


class _Clock:
    """The time used by one transaction. It begins with the first message: from then on the cluster counts it."""

    def __init__(self, handle: Any, lane: TaskLane) -> None:  # noqa: ANN401 - see `protocol.Handle`
        self._handle = handle
        self._lane = lane
        self._since: float | None = None

    def is_over(self) -> bool:
        """Returns whether the batch has to end. Called often."""
        return self._lane.stopping() or self.is_spent()

    def is_spent(self) -> bool:
        """Returns whether all the time for sending is used up."""
        return self._seconds() > STOP_PART * self.transaction_seconds

    @property
    def transaction_seconds(self) -> float:
        """Returns the time-out after which the cluster ends the transaction."""
        return self._lane.transaction_seconds

    def is_late(self) -> bool:
        """Returns whether a commit would come too late."""
        return self._seconds() > LATEST_PART * self._lane.transaction_seconds

    def _seconds(self) -> float:
        now = time.monotonic()
        if self._since is None and self._handle.has_sent:
            self._since = now
        return 0.0 if self._since is None else now - self._since


class _RecordingSteps:
    """Wraps `Steps` and keeps the last error that one of them raised."""

    def __init__(self, steps: Any) -> None:  # noqa: ANN401 - see `protocol.Steps`
        self._steps = steps
        self.error: CopycatError | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        step = getattr(self._steps, name)

        def watched(*arguments: Any) -> Any:  # noqa: ANN401 - the step's own
            try:
                return step(*arguments)
            except CopycatError as error:
                self.error = error
                raise

        return watched


def _doubt(run: BatchRun, handle: Any, failure: CopycatError | None, clock: _Clock) -> CopycatError | None:  # noqa: ANN401 - as above
    """Returns why the transaction must not be committed; None when everything that was sent is acknowledged and accounted for."""
    changed = next((one for one in run.progresses if one.orphans), None)
    if isinstance(failure, RefusedError):
        return failure
    if handle.broken:
        return failure or RetriableError("the producer cannot go on", "the batch is done again")
    if changed is not None:
        return failure or RetriableError(f"{changed.split.path!r} changed while it was read: what was sent of it is undone")
    accounted = sum(one.done.messages for one in run.progresses)
    if not handle.is_flushed or handle.sent != accounted:
        return failure or FatalError(f"{handle.sent} messages were sent, and {accounted} are accounted for", _BUG)
    if clock.is_late():
        return failure or RetriableError("the transaction took too long to be committed in time: it is undone")
    return None


def _refused_whole(split: Split, reason: DataError) -> FatalError:
    """Returns the error for a split that is sent as a whole: it cannot be sent in parts to find the record that Kafka refuses."""
    words = f"{split.path}: Kafka refuses a record, and which one cannot be looked for in what goes as one transaction: {reason.message}"
    hint = "give the topic a larger max.message.bytes, or set kafka.client message.max.bytes to the topic's, so that such a record is bad"
    return FatalError(words, f"{hint}; or set source.replayable: true, if the reader gives the same records again")


def _too_slow(run: BatchRun, failure: CopycatError | None, clock: _Clock) -> BlockedError | None:
    """Returns the error for a split sent as a whole that takes longer than a transaction may: another attempt would likely fail, too."""
    is_late = clock.is_late() if failure is None else isinstance(failure, SentInPartError) and clock.is_spent()
    whole = next((one.split for one in run.progresses if one.split.goes_as_one), None) if is_late else None
    if whole is None:
        return None
    seconds = clock.transaction_seconds
    words = f"{whole.path}: what goes as one could not be sent within one transaction, which lasts {seconds:g} s at most: it is undone"
    hint = "have the reader give less at once (a read limit), or set source.replayable: true if it gives the same records again"
    return BlockedError(words, f"{hint}; it is tried again, in case the brokers were slow")


def _driver_rows(plan: LanePlan) -> list[Position]:
    """Returns the positions that the driver has changed by itself."""
    return [Position(partition, plan.lane.number, plan.head.seq + 1, offset) for partition, offset in plan.driver_rows]


def _sampled(run: BatchRun, results: Results) -> Results:
    """Returns the results with their samples, which `_results` moves to the first result."""
    return tuple(replace(result, samples=tuple(one.done.samples)) for result, one in zip(results, run.progresses, strict=True))
