"""Exactly once, the driver's side: the lane plan of each batch, and the outcome of its transaction.

A batch whose outcome is not known stays in flight until its lane is opened again and Kafka has told the outcome: only then the source
receives the results. All of this happens in the connector's steps; threads of their own wait for Kafka.

Files are not pinned to lanes: any idle task takes the next file. So positions of one file come from several lanes, and two rules keep their
order. Files of a batch with an unknown outcome stay in flight until its lane was opened again. A file whose row the driver publishes by
itself (`LanePlan.driver_rows`) is not planned before that transaction is over.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from copycat_agent.delivery.base import Accounts, Callbacks, DeliveryView, PendingResults, Unsaved, joined
from copycat_agent.delivery.exactly_once.lane_recovery import PUBLISHING_LANE, OffsetPublisher, Recovery
from copycat_agent.delivery.exactly_once.opening_attempts import LaneOpener, OpeningAttempt, OpeningResult, Rows, reopening_plan
from copycat_agent.errors import RetriableError
from copycat_agent.model import Batch, Head, LaneOutcome, LanePlan, OffsetsPartition, Results, SourcePartition, Split, SplitResult
from copycat_agent.offsets import LaneCommit, OffsetStore
from copycat_agent.options import Definition
from copycat_agent.sources import Changes

PACE_SECONDS = 0.2
"""Least time between two batches of a connector that is up to date: each is a transaction, with a producer of its own and markers in every
partition it wrote to. A line of a slow log then reaches read_committed consumers in less than half a second."""
DRIVER_ROWS_MAX = 200
"""The most offsets changed by the driver itself that are written with one batch: about 100 KiB of its transaction."""


@dataclass(eq=False, slots=True)
class _LaneBatch:
    """A batch in flight: its plan, the files in it, those of `driver_rows`, and splits held back until it ends (`admit`)."""

    plan: LanePlan
    splits: frozenset[SourcePartition]
    driver_rows: frozenset[SourcePartition]
    held: list[Split] = field(default_factory=list)
    recovery: Recovery | None = None


class ExactlyOnceDelivery:
    """A `base.Delivery`. A connector's task `n` has the lane `n`."""

    pace_seconds = PACE_SECONDS
    may_stay = False

    def __init__(self, definition: Definition, store: OffsetStore, opener: LaneOpener, found: OpeningResult, callbacks: Callbacks) -> None:
        self.place: OffsetsPartition = found.plan.lanes.place
        self.cluster = found.snapshot.cluster
        self.heads: dict[int, Head] = dict(found.snapshot.heads)
        """The head of each lane after the last batch that is known and saved. Replaced, never changed in place: any thread may read it."""
        self._definition = definition
        self._store = store
        self._asked = reopening_plan(found)
        self._opener = opener
        self._callbacks = callbacks
        self._flights: dict[int, _LaneBatch] = {}
        self._publisher = OffsetPublisher(definition, store, self._publish)

    def _publish(self, rows: Rows) -> OpeningAttempt:
        return self._open_again(PUBLISHING_LANE, rows)

    def _open_again(self, number: int, rows: Rows | None = None) -> OpeningAttempt:
        return self._opener.again(self._asked, number, self.heads[number], rows)

    def view(self) -> DeliveryView:
        return DeliveryView(self.heads, self.place, self.cluster)

    def is_free(self, task: int) -> bool:
        return task != PUBLISHING_LANE or not self._publisher.is_under_way

    def admit(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        """Returns the splits that may go now. The others come back with the results of the batch that publishes an offset of their file.

        If their own batch were committed before that one, the older offset would come last. Files that come after a held file are held as
        well.
        """
        where: dict[SourcePartition | None, list[Split]] = dict.fromkeys(self._publisher.rows, self._publisher.held)
        for flight in self._flights.values():
            where |= dict.fromkeys(flight.driver_rows, flight.held)
        admitted: list[Split] = []
        for split in splits:
            if split.after in where and split.partition not in where:
                where[split.partition] = where[split.after]
            where.get(split.partition, admitted).append(split)
        return tuple(admitted)

    def plan(self, task: int, splits: Sequence[Split]) -> LanePlan:
        """Returns the plan. If the store cannot be read now, no driver rows are published: they can wait, the records cannot."""
        mine = frozenset(split.partition for split in splits)
        busy = mine.union(self._publisher.rows, *(one.splits | one.driver_rows for one in self._flights.values()))
        name = self._definition.name
        try:
            rows = self._store.unpublished(name, DRIVER_ROWS_MAX + len(busy))
        except RetriableError:
            rows = {}
        driver_rows = tuple(islice((row for row in rows.items() if row[0] not in busy), DRIVER_ROWS_MAX))
        plan = LanePlan(self._asked.lane(self._asked.lanes, task), self.heads[task], self.place, driver_rows)
        self._flights[task] = _LaneBatch(plan, mine, frozenset(partition for partition, _ in driver_rows))
        self._publisher.postpone()
        return plan

    def handle_results(self, batch: Batch, results: Results) -> Results | PendingResults:
        number, outcome = batch.task.number, _outcome(results)
        flight = self._flights[number]
        if flight.recovery is None and not _is_known(flight.plan, outcome):
            self._callbacks.count_outcome("unknown")
            flight.recovery = Recovery(batch, results, functools.partial(self._open_again, number), self._definition.errors)
            flight.recovery.advance()
            return flight.recovery.results
        assert outcome is not None, "it is known"
        if flight.recovery is None:
            self._callbacks.count_outcome(outcome.state)
        else:
            self._tell_recovered(number, flight.recovery, outcome)
        held, flight.held = flight.held, []
        return (*results, *(SplitResult(split, split.offset) for split in held))

    def save(self, unsaved: Unsaved, accounts: Accounts) -> bool:
        writes = self._commit(unsaved.changes, accounts, self._moved(unsaved) if unsaved.results else None)
        if unsaved.results:
            flight, outcome = self._flights.pop(unsaved.task), _outcome(unsaved.results)
            self.heads = {**self.heads, unsaved.task: outcome.head if outcome else flight.plan.head}
        return writes

    def save_last(self, changes: Changes, unsaved: Iterable[Unsaved], accounts: Accounts) -> None:
        """Marks what the batches have written as not published, so that it is published once more."""
        outcomes = ((one.task, _outcome(one.results)) for one in unsaved) if changes.rows(self._definition.name) else ()
        heads = {number: outcome.head for number, outcome in outcomes if outcome is not None and outcome.state == "committed"}
        self._commit(changes, accounts, LaneCommit(self._definition.name, heads))

    def _commit(self, changes: Changes, accounts: Accounts, moved: LaneCommit | None) -> bool:
        name = self._definition.name
        rows, commit = changes.rows(name), moved or LaneCommit(name)
        return self._store.commit(rows, changes.forget, changes.losses, joined(accounts, changes), commit)

    def _moved(self, unsaved: Unsaved) -> LaneCommit | None:
        """Returns what is saved of a batch's transaction, apart from the changes that the source made of its results."""
        plan, outcome, changes = self._flights[unsaved.task].plan, _outcome(unsaved.results), unsaved.changes
        if outcome is None or outcome.state != "committed":
            return None
        written = {result.split.partition for result in unsaved.results if _is_written(result, changes)}
        heads = {unsaved.task: outcome.head} if written or plan.driver_rows or changes.rows(self._definition.name) or changes.forget else {}
        return LaneCommit(self._definition.name, heads, written, dict(plan.driver_rows))

    def advance(self) -> Results:
        """Continues recoveries and the publisher. Recoveries raise nothing here: the futures of `handle_results` do."""
        published = self._publisher.end()
        if published is not None:
            self.heads = {**self.heads, PUBLISHING_LANE: published}
        for recovery in self._recoveries():
            if not recovery.results.done():
                recovery.advance()
        return self._publisher.take_back()

    def source_changed(self) -> None:
        self._publisher.postpone()

    def publish_if_due(self) -> None:
        self._publisher.begin_if_due()

    @property
    def trouble(self) -> RetriableError | None:
        """Returns why a batch's outcome or a lane's head has been unknown for longer than a moment."""
        doubts = (one.trouble for one in self._recoveries() if not one.results.done())
        return next(filter(None, (*doubts, self._publisher.trouble)), None)

    @property
    def unanswered(self) -> frozenset[int]:
        return frozenset(number for number, one in self._flights.items() if one.recovery and not one.recovery.results.done())

    @property
    def has_work(self) -> bool:
        return bool(self._flights) or self._publisher.has_work

    def log_unfinished(self, *, unsaved: bool, in_flight: bool) -> bool:
        """Warns about batches in flight. Kafka has the offsets that could not be saved here, so the result is False."""
        del unsaved
        if in_flight:
            self._callbacks.log.warning("stopped before it was known what became of everything in flight; the next start asks Kafka")
        return False

    def close(self) -> None:
        """Cancels all recoveries; the next start finds out the outcomes that are still unknown."""
        self._publisher.cancel()
        for recovery in self._recoveries():
            recovery.cancel()

    def _recoveries(self) -> list[Recovery]:
        return [one.recovery for one in self._flights.values() if one.recovery is not None]

    def _tell_recovered(self, number: int, recovery: Recovery, outcome: LaneOutcome) -> None:
        self._callbacks.count_outcome("openings")
        self._callbacks.count_outcome(outcome.state)
        became = "committed" if outcome.state == "committed" else "not committed"
        seconds = round(time.monotonic() - recovery.began, 2)
        self._callbacks.log.warning("Kafka was asked what became of a batch", task=number, batch=became, why=recovery.why, seconds=seconds)


def _outcome(results: Iterable[SplitResult]) -> LaneOutcome | None:
    return next((one.outcome for one in results if one.outcome is not None), None)


def _is_known(plan: LanePlan, outcome: LaneOutcome | None) -> bool:
    """Returns whether the outcome is certain without opening the lane again."""
    if outcome is None or outcome.state == "unknown":
        return False
    if outcome.state == "committed":
        return outcome.head[:2] == (plan.head.seq + 1, plan.head.nonce)
    return outcome.head == plan.head


def _is_written(result: SplitResult, changes: Changes) -> bool:
    """Returns whether the transaction wrote this offset with the name and `gone_ms` that the store is about to save; `size` may differ."""
    partition = result.split.partition
    saved = changes.offsets.get(partition)
    if saved is None or partition in changes.forget:
        return False
    return (saved.path, saved.gone_ms) == (result.offset.path, result.offset.gone_ms)
