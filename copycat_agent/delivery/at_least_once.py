"""At least once: positions are saved in the store, after Kafka has acknowledged the records before them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.delivery.base import Accounts, AsValue, Delivery, DeliveryView, MakeRun, Results, Unsaved, joined
from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.model import AT_LEAST_ONCE, AtLeastOncePlan, SplitResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from copycat_agent.batch.progress import Progress
    from copycat_agent.delivery.base import Report
    from copycat_agent.encoding.encoder import Encoder
    from copycat_agent.logs import Log
    from copycat_agent.model import Batch, Split
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.producer import Producers
    from copycat_agent.sources import Changes


class AtLeastOnceGuarantee:
    """See `delivery.guarantees.Guarantee`."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    def open(self, definition: Definition, report: Report, _earlier: Sequence[str]) -> OpenDelivery:
        """See `Guarantee.open`. FatalError where the offsets are lost: nobody else has them."""
        undecided = self._store.undecided(definition.name)
        if undecided:
            hint = f"put offsets.db back from a backup; or read everything again: copycat offsets reset {definition.name}"
            raise FatalError(undecided, hint)
        return OpenDelivery(AtLeastOnce(self._store, report.log))

    def leave(self, _connector: str) -> None:
        """See `Guarantee.leave`: offsets are saved with every guarantee."""

    def remember(self, _connector: str, _error: CopycatError) -> None:
        """See `Guarantee.remember`: there is nothing to decide."""


class OpenDelivery:
    """See `base.Opening`: there was nothing to wait for."""

    doing = ""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def tend(self) -> Delivery:
        """See `Opening.tend`."""
        return self._delivery

    def seconds_left(self) -> float:
        """See `Opening.seconds_left`."""
        return 0.0

    def cancel(self) -> None:
        """See `Opening.cancel`."""


class AtLeastOnce:
    """See `base.Delivery`."""

    pace_seconds = 0.0
    has_work = False
    trouble: RetriableError | None = None
    unanswered: frozenset[int] = frozenset()

    def __init__(self, store: OffsetStore, log: Log) -> None:
        self._store = store
        self._log = log

    def view(self) -> DeliveryView:
        """See `Delivery.view`."""
        return DeliveryView()

    def is_free(self, _task: int) -> bool:
        """See `Delivery.is_free`."""
        return True

    def admit(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        """See `Delivery.admit`."""
        return tuple(splits)

    def plan(self, _task: int, _splits: Sequence[Split]) -> AtLeastOncePlan:
        """See `Delivery.plan`."""
        return AT_LEAST_ONCE

    def take_in(self, _batch: Batch, results: Results) -> Results:
        """See `Delivery.take_in`."""
        return results

    def changed(self) -> None:
        """See `Delivery.changed`."""

    def quiet(self) -> None:
        """See `Delivery.quiet`."""

    def save(self, one: Unsaved, accounts: Accounts) -> bool:
        """See `Delivery.save`."""
        return self._commit(one.changes, accounts)

    def save_last(self, changes: Changes, _unsaved: Iterable[Unsaved], accounts: Accounts) -> None:
        """See `Delivery.save_last`."""
        self._commit(changes, accounts)

    def _commit(self, changes: Changes, accounts: Accounts) -> bool:
        accounts = joined(accounts, changes) if changes.accounts else accounts
        return self._store.commit(changes.offsets, changes.forget, changes.losses, accounts=accounts)

    def left(self, *, unsaved: bool, in_flight: bool) -> bool:
        """See `Delivery.left`."""
        if in_flight:
            self._log.warning("stopped before everything in flight was acknowledged; it will be sent again")
        return unsaved

    def close(self) -> None:
        """See `Delivery.close`."""

    def tend(self) -> Results:
        """See `Delivery.tend`."""
        return ()


class AtLeastOnceTask:
    """The task's half: what one producer has acknowledged counts, whatever becomes of the rest of the batch."""

    def run(
        self, batch: Batch, encoder: Encoder, producers: Producers, stopping: Callable[[], bool], make_run: MakeRun, as_value: AsValue
    ) -> Results:
        """See `TaskHalf.run`."""
        kafka = encoder.kafka
        producer = producers.take(batch.task, kafka, tracked=batch.tracked)
        run = make_run(batch, encoder, producer, stopping)
        failure: CopycatError | None = None
        try:
            producer.begin(stopping)
            run.run()
        except Exception as error:  # noqa: BLE001 - a batch never raises
            failure = as_value(error)
        finally:
            client = producer.take_view()
            producers.give_back(batch.task, kafka, producer)
        results = [_result(progress, failure, as_value) for progress in run.progresses]
        samples = tuple(sample for progress in run.progresses for sample in progress.done.samples)
        if results and (samples or client):
            results[0] = replace(results[0], samples=samples, client=client)
        return tuple(results)


def _result(progress: Progress, failure: CopycatError | None, as_value: AsValue) -> SplitResult:
    """The split's result. Where its source cannot say where it is, that is its error and its offset stays: the others keep theirs."""
    try:
        return progress.result(failure)
    except Exception as error:  # noqa: BLE001 - a batch never raises
        return SplitResult(progress.split, progress.split.offset, error=as_value(error))
