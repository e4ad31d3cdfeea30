"""At least once: positions are saved in the store, after Kafka has acknowledged the records before them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.batch.following import BatchChannel, FollowingBatch
from copycat_agent.delivery.base import Accounts, AsValue, Callbacks, Delivery, DeliveryView, MakeRun, Unsaved, joined
from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.model import AtLeastOncePlan, Batch, ClientView, FilesPlan, Results, Split, SplitResult
from copycat_agent.producer.settings import MESSAGE_TIMEOUT_MS, message_timeout_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from copycat_agent.batch.progress import SplitProgress
    from copycat_agent.encoding.encoder import Encoder
    from copycat_agent.logs import Log
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.producer import ProducerPool
    from copycat_agent.sources import Changes


class AtLeastOnceGuarantee:
    """Opens deliveries with this guarantee, at once and without a request."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    def open(self, definition: Definition, callbacks: Callbacks, _earlier: Sequence[str]) -> ImmediateOpening:
        """Returns the open delivery. Raises FatalError when the offsets are lost, since there is no other copy."""
        undecided = self._store.undecided(definition.name)
        if undecided:
            hint = f"put offsets.db back from a backup; or read everything again: copycat offsets reset {definition.name}"
            raise FatalError(undecided, hint)
        longer_ms = max(0, message_timeout_ms(definition.kafka) - MESSAGE_TIMEOUT_MS)
        return ImmediateOpening(AtLeastOnceDelivery(definition.name, self._store, callbacks.log, AtLeastOncePlan(longer_ms / 1000)))

    def leave(self, _connector: str) -> None:
        """Does nothing: offsets are saved with every guarantee."""

    def remember(self, _connector: str, _error: CopycatError) -> None:
        """Does nothing: a person has nothing to decide."""


class ImmediateOpening:
    """An `Opening` with nothing to wait for."""

    doing = ""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def advance(self) -> Delivery:
        """Returns the delivery."""
        return self._delivery

    def seconds_left(self) -> float:
        """Returns 0: nothing is waited for."""
        return 0.0

    def cancel(self) -> None:
        """Does nothing: nothing was begun."""


class AtLeastOnceDelivery:
    """The driver's side: saves the results of batches in the store. Has no state of its own, and sends no request to Kafka."""

    pace_seconds = 0.0
    may_stay = True
    allow_rewind = False
    """Whether saved positions may move backwards."""
    has_work = False
    trouble: RetriableError | None = None
    unanswered: frozenset[int] = frozenset()

    def __init__(self, connector: str, store: OffsetStore, log: Log, plan: AtLeastOncePlan | FilesPlan) -> None:
        self._connector, self._store = connector, store
        self._log = log
        self._plan = plan

    def view(self) -> DeliveryView:
        """Returns an empty view: no positions are in Kafka."""
        return DeliveryView()

    def is_free(self, _task: int) -> bool:
        """Returns True: every task may have a batch."""
        return True

    def admit(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        """Returns all of the splits."""
        return tuple(splits)

    def plan(self, _task: int, _splits: Sequence[Split]) -> AtLeastOncePlan | FilesPlan:
        """Returns the same plan for every batch."""
        return self._plan

    def handle_results(self, _batch: Batch, results: Results) -> Results:
        """Returns the results unchanged."""
        return results

    def source_changed(self) -> None:
        """It has nothing to publish."""

    def publish_if_due(self) -> None:
        """It has nothing to publish."""

    def save(self, unsaved: Unsaved, accounts: Accounts) -> bool:
        """Saves offsets, losses and accounts in one transaction."""
        return self._commit(unsaved.changes, accounts)

    def save_last(self, changes: Changes, _unsaved: Iterable[Unsaved], accounts: Accounts) -> None:
        """Saves `changes`, which contain all that was left unsaved."""
        self._commit(changes, accounts)

    def _commit(self, changes: Changes, accounts: Accounts) -> bool:
        accounts = joined(accounts, changes) if changes.accounts else accounts
        rows = changes.offsets if changes.state is None else changes.rows(self._connector)
        return self._store.commit(rows, changes.forget, changes.losses, accounts, None, allow_rewind=self.allow_rewind)

    def log_unfinished(self, *, unsaved: bool, in_flight: bool) -> bool:
        """Logs that records in flight are sent again. Returns `unsaved`: without their offsets records are repeated."""
        if in_flight:
            self._log.warning("stopped before everything in flight was acknowledged; it will be sent again")
        return unsaved

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def advance(self) -> Results:
        """Returns nothing: no split waits for Kafka."""
        return ()


class AtLeastOnceTask:
    """The task's side: acknowledged records count, whatever happens to the rest of the batch."""

    def run(
        self, batch: Batch, encoder: Encoder, producers: ProducerPool, stopping: Callable[[], bool], make_run: MakeRun, as_value: AsValue
    ) -> Results:
        """Runs a batch with one producer. Raises only before anything was sent."""
        kafka = encoder.kafka
        producer = producers.take(batch.task, kafka, tracked=batch.tracked)
        run = make_run(batch, encoder, producer, stopping)
        failure: CopycatError | None = None
        try:
            producer.begin(stopping)
            if batch.follow_seconds and isinstance(stopping, BatchChannel):
                seconds, take_view = batch.follow_seconds, producer.take_view
                following = FollowingBatch(run, seconds, stopping, lambda some: _results(some, None, as_value, take_view()))
                with closing(run):
                    run.send()
                    following.stay()
            else:
                run.run()
        except Exception as error:  # noqa: BLE001 - a batch never raises
            failure = as_value(error)
        finally:
            client = producer.take_view()
            producers.give_back(batch.task, kafka, producer)
        return _results(run.progresses, failure, as_value, client)


def _results(progresses: Sequence[SplitProgress], failure: CopycatError | None, as_value: AsValue, client: ClientView | None) -> Results:
    results = [_result(progress, failure, as_value) for progress in progresses]
    samples = tuple(sample for progress in progresses for sample in progress.done.samples)
    if results and (samples or client):
        results[0] = replace(results[0], samples=samples, client=client)
    return tuple(results)


def _result(progress: SplitProgress, failure: CopycatError | None, as_value: AsValue) -> SplitResult:
    """Returns the split's result. If its source cannot give its offset, it gets that error and keeps its offset."""
    try:
        return progress.result(failure)
    except Exception as error:  # noqa: BLE001 - a batch never raises
        return SplitResult(progress.split, progress.split.offset, error=as_value(error))
