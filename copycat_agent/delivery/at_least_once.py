"""At least once: positions are saved in the store, after Kafka has acknowledged the records before them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.batch.following import Following, Reporting
from copycat_agent.delivery.base import Accounts, AsValue, Delivery, DeliveryView, MakeRun, Results, Unsaved, joined
from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.model import AT_LEAST_ONCE, AtLeastOncePlan, SplitResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from copycat_agent.batch.progress import Progress
    from copycat_agent.delivery.base import Callbacks
    from copycat_agent.encoding.encoder import Encoder
    from copycat_agent.logs import Log
    from copycat_agent.model import Batch, ClientView, Split
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.producer import Producers
    from copycat_agent.sources import Changes


class AtLeastOnceGuarantee:
    """Opens deliveries with this guarantee: at once, since nothing has to be asked."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    def open(self, definition: Definition, callbacks: Callbacks, _earlier: Sequence[str]) -> OpenDelivery:
        """The delivery, open. FatalError where the offsets are lost: nobody else has them."""
        undecided = self._store.undecided(definition.name)
        if undecided:
            hint = f"put offsets.db back from a backup; or read everything again: copycat offsets reset {definition.name}"
            raise FatalError(undecided, hint)
        return OpenDelivery(AtLeastOnce(definition.name, self._store, callbacks.log))

    def leave(self, _connector: str) -> None:
        """Nothing to do: offsets are saved with every guarantee."""

    def remember(self, _connector: str, _error: CopycatError) -> None:
        """Nothing to do: there is nothing that a person has to decide."""


class OpenDelivery:
    """An `Opening` with nothing to wait for."""

    doing = ""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def tend(self) -> Delivery:
        """The delivery."""
        return self._delivery

    def seconds_left(self) -> float:
        """Nothing is waited for."""
        return 0.0

    def cancel(self) -> None:
        """Nothing was begun."""


class AtLeastOnce:
    """The driver's half: what a batch brings back is saved in the store. Nothing is kept here, and Kafka is never asked."""

    pace_seconds = 0.0
    may_stay = True
    has_work = False
    trouble: RetriableError | None = None
    unanswered: frozenset[int] = frozenset()

    def __init__(self, connector: str, store: OffsetStore, log: Log) -> None:
        self._connector, self._store = connector, store
        self._log = log

    def view(self) -> DeliveryView:
        """Nothing but that: no positions are in Kafka."""
        return DeliveryView()

    def is_free(self, _task: int) -> bool:
        """Every task may have a batch."""
        return True

    def admit(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        """All of them."""
        return tuple(splits)

    def plan(self, _task: int, _splits: Sequence[Split]) -> AtLeastOncePlan:
        """A batch has to be told nothing."""
        return AT_LEAST_ONCE

    def take_in(self, _batch: Batch, results: Results) -> Results:
        """The results as they are."""
        return results

    def source_changed(self) -> None:
        """It has nothing to publish."""

    def publish_if_due(self) -> None:
        """It has nothing to publish."""

    def save(self, unsaved: Unsaved, accounts: Accounts) -> bool:
        """Save offsets, losses and accounts in one transaction."""
        return self._commit(unsaved.changes, accounts)

    def save_last(self, changes: Changes, _unsaved: Iterable[Unsaved], accounts: Accounts) -> None:
        """Save them for the last time: they hold what was left unsaved."""
        self._commit(changes, accounts)

    def _commit(self, changes: Changes, accounts: Accounts) -> bool:
        accounts = joined(accounts, changes) if changes.accounts else accounts
        rows = changes.offsets if changes.state is None else changes.rows(self._connector)
        return self._store.commit(rows, changes.forget, changes.losses, accounts, None)

    def log_what_is_left(self, *, unsaved: bool, in_flight: bool) -> bool:
        """Log that what was in flight is sent again. Offsets that are not saved mean repeats."""
        if in_flight:
            self._log.warning("stopped before everything in flight was acknowledged; it will be sent again")
        return unsaved

    def close(self) -> None:
        """Nothing is open."""

    def tend(self) -> Results:
        """Nothing waits for Kafka."""
        return ()


class AtLeastOnceTask:
    """The task's half: what one producer has acknowledged counts, whatever becomes of the rest of the batch."""

    def run(
        self, batch: Batch, encoder: Encoder, producers: Producers, stopping: Callable[[], bool], make_run: MakeRun, as_value: AsValue
    ) -> Results:
        """Run a batch with one producer. What it raises came before anything was sent."""
        kafka = encoder.kafka
        producer = producers.take(batch.task, kafka, tracked=batch.tracked)
        run = make_run(batch, encoder, producer, stopping)
        failure: CopycatError | None = None
        try:
            producer.begin(stopping)
            if batch.follow_seconds and isinstance(stopping, Reporting):
                seconds, take_view = batch.follow_seconds, producer.take_view
                following = Following(run, seconds, stopping, lambda some: _results(some, None, as_value, take_view()))
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


def _results(progresses: Sequence[Progress], failure: CopycatError | None, as_value: AsValue, client: ClientView | None) -> Results:
    results = [_result(progress, failure, as_value) for progress in progresses]
    samples = tuple(sample for progress in progresses for sample in progress.done.samples)
    if results and (samples or client):
        results[0] = replace(results[0], samples=samples, client=client)
    return tuple(results)


def _result(progress: Progress, failure: CopycatError | None, as_value: AsValue) -> SplitResult:
    """The split's result. Where its source cannot say where it is, that is its error and its offset stays: the others keep theirs."""
    try:
        return progress.result(failure)
    except Exception as error:  # noqa: BLE001 - a batch never raises
        return SplitResult(progress.split, progress.split.offset, error=as_value(error))
