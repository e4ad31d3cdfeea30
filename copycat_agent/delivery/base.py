"""The interface of deliveries, for every guarantee: the driver's side, called by a connector's loop, and the task's, which runs a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from copycat_agent.batch.run import BatchRun
from copycat_agent.encoding.encoder import Encoder
from copycat_agent.errors import CopycatError, RetriableError
from copycat_agent.logs import Log
from copycat_agent.model import Account, Batch, Counts, DeliveryPlan, Head, OffsetsPartition, Results, SourcePartition, Split
from copycat_agent.producer import ProducerPool, TaskProducer
from copycat_agent.sources import Changes

PendingResults = Future[Results]
"""Results that are available once Kafka has answered."""

Accounts = Mapping[SourcePartition, Account]
"""Accounts of files by partition; empty where they are not kept."""


class Unsaved(NamedTuple):
    """Changes that are not in the store yet, and the batch they came from, if any, which took `seconds`.

    `begun`: when it was handed out, as `time.monotonic()`; `goes_on`: it is still under way. `taken_back`: what was planned and not handed
    out, where they come from that (`Delivery.advance`).
    """

    changes: Changes
    results: Results = ()
    task: int = 0
    seconds: float = 0.0
    taken_back: Results = ()
    goes_on: bool = False
    begun: float = 0.0


class DeliveryView(NamedTuple):
    """Describes a delivery that keeps positions in Kafka for a status: heads by lane, their partition, and the cluster."""

    lanes: Mapping[int, Head] = {}
    place: OffsetsPartition | None = None
    cluster: str = ""


class Delivery(Protocol):
    """The driver's side, open until `close`. Called from the connector's steps, `view` from any thread.

    A batch passes `admit`, `plan`, `handle_results` and `save`, in this order. Every method may raise what the store raises.
    """

    @property
    def pace_seconds(self) -> float:
        """Least time between two batches of a connector that is up to date."""

    @property
    def may_stay(self) -> bool:
        """Whether a batch may stay at the ends of its files and report: what it reports counts as soon as it is saved."""

    @property
    def has_work(self) -> bool:
        """Whether `advance` or `publish_if_due` may have something to do: a batch is under way, or offsets are to be published."""

    def view(self) -> DeliveryView:
        """Returns its part of a status."""

    @property
    def trouble(self) -> RetriableError | None:
        """The error that keeps some of the tasks from going on while the others do; None without one."""

    @property
    def unanswered(self) -> frozenset[int]:
        """Tasks whose batch has come back without a known outcome. To find it out may take long, and the next start can do it."""

    def is_free(self, task: int) -> bool:
        """Returns whether a batch may be planned for the task, which has none under way."""

    def admit(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        """The splits that may go into a batch now. The others come back, unread, from `handle_results` or `advance`."""

    def plan(self, task: int, splits: Sequence[Split]) -> DeliveryPlan:
        """Returns `Batch.delivery` for a batch of these splits."""

    def handle_results(self, batch: Batch, results: Results) -> Results | PendingResults:
        """Returns the results for the source of a finished batch; a future of them where Kafka has to be asked first.

        The future's result has to be passed to this method again. The future may raise what ends the connector.
        """

    def advance(self) -> Results:
        """Continues what waits for Kafka. Raises what ends the connector.

        Returns splits that were held back and come back unread, to be planned again.
        """

    def source_changed(self) -> None:
        """Called when the source has changed something by itself."""

    def publish_if_due(self) -> None:
        """Publishes offsets that Kafka lacks, if it is time to. Called when no batch is under way and everything is saved."""

    def save(self, unsaved: Unsaved, accounts: Accounts) -> bool:
        """Saves changes and the accounts of their batch. Returns whether there was anything to save."""

    def save_last(self, changes: Changes, unsaved: Iterable[Unsaved], accounts: Accounts) -> None:
        """Saves `changes`, which contain what was left `unsaved` as well. Called when the connector ends."""

    def log_unfinished(self, *, unsaved: bool, in_flight: bool) -> bool:
        """Logs what the next start does about offsets `unsaved` or batches in flight. Called when the connector ends with such.

        Returns whether the next start repeats records because offsets could not be saved.
        """

    def close(self) -> None:
        """Called when the connector has ended."""


MakeRun = Callable[[Batch, Encoder, TaskProducer, Callable[[], bool]], BatchRun]
"""`BatchRun`, or `sql_run.SqlRun` with its way through Spark."""
AsValue = Callable[[Exception], CopycatError]
"""Converts an exception into the error that the results of a batch carry."""


class TaskDelivery(Protocol):
    """The side of a delivery that runs in a task."""

    def run(
        self,
        batch: Batch,
        encoder: Encoder,
        producers: ProducerPool,
        stopping: Callable[[], bool],
        make_run: MakeRun,
        as_value: AsValue,
    ) -> Results:
        """Runs a batch, as `executor.run_batch` does. Raises only before anything was sent."""


class Opening(Protocol):
    """A delivery that is being opened. Called from the connector's steps."""

    @property
    def doing(self) -> str:
        """Returns what it waits for, for a status; "" while it is quick."""

    def advance(self) -> Delivery | None:
        """Returns the delivery once it is open, None before. After a RetriableError it is called again; other errors end the connector."""

    def seconds_left(self) -> float:
        """Returns the least wait before another attempt after a RetriableError, whatever the back-off says."""

    def cancel(self) -> None:
        """Called when the connector ends before the delivery is open."""


class Callbacks(NamedTuple):
    """The functions that a delivery calls to count, log and wake its connector. `wake` may be called from any thread."""

    count_outcome: Callable[[str], None]
    """Counts one outcome of this name, for metrics: `openings`, or what became of a transaction."""
    count_records: Callable[[Counts], None]
    """Counts records that were settled before this start, and not counted yet."""
    wake: Callable[[], None]
    log: Log


def is_empty(changes: Changes) -> bool:
    """Returns whether there is nothing to save."""
    return not (changes.offsets or changes.forget or changes.losses or changes.accounts or changes.state)


def joined(accounts: Accounts, changes: Changes) -> dict[SourcePartition, Account]:
    """Returns the accounts of tasks, with those of the source added."""
    return {**accounts, **{one: accounts.get(one, Account()) + account for one, account in changes.accounts.items()}}
