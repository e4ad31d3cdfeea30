"""The interface of a delivery, whichever guarantee it gives: what the loop of a connector asks, and what runs a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, Protocol

from copycat_agent.batch.run import BatchRun
from copycat_agent.encoding.encoder import Encoder
from copycat_agent.errors import CopycatError
from copycat_agent.model import Account, Batch, Counts, DeliveryPlan, Head, OffsetsPartition, SourcePartition, Split, SplitResult
from copycat_agent.producer import Producers, TaskProducer
from copycat_agent.sources import Changes

if TYPE_CHECKING:
    from copycat_agent.errors import RetriableError
    from copycat_agent.logs import Log

Results = tuple[SplitResult, ...]
Pending = Future[Results]
"""Results that are known once Kafka has answered."""

Accounts = Mapping[SourcePartition, Account]
"""What became of files, by partition; empty where no accounts are kept."""


class Unsaved(NamedTuple):
    """Changes that are not in the store yet, and the batch they came from, if any, which took so many seconds.

    `begun`: when it was handed out, as `time.monotonic()`; `goes_on`: it is still under way. `taken_back`: what was planned and not handed
    out, where they come from that (`Delivery.tend`).
    """

    changes: Changes
    results: Results = ()
    task: int = 0
    seconds: float = 0.0
    taken_back: Results = ()
    goes_on: bool = False
    begun: float = 0.0


class DeliveryView(NamedTuple):
    """Describes a delivery that keeps positions in Kafka for a status: heads by lane, where they stand, in which cluster."""

    lanes: Mapping[int, Head] = {}
    place: OffsetsPartition | None = None
    cluster: str = ""


class Delivery(Protocol):
    """Open from the beginning; `close` ends it. For the connector's steps, `view` for any thread.

    A batch passes `admit`, `plan`, `take_in` and `save`, in this order. Every method may raise what the store raises.
    """

    @property
    def pace_seconds(self) -> float:
        """Least time between two batches of a connector that is up to date."""

    @property
    def may_stay(self) -> bool:
        """Whether a batch may stay at the ends of its files and report: what it reports counts as soon as it is saved."""

    @property
    def has_work(self) -> bool:
        """Whether `tend` or `publish_if_due` may have something to do: a batch is under way, or offsets are to be published."""

    def view(self) -> DeliveryView:
        """Returns what a status says of it."""

    @property
    def trouble(self) -> RetriableError | None:
        """The error that holds up some of the tasks while the others go on; None while nothing does."""

    @property
    def unanswered(self) -> frozenset[int]:
        """Tasks whose batch has come back without a known outcome. To find it out may take long, and the next start can do it."""

    def is_free(self, task: int) -> bool:
        """Whether a batch may be planned for the task, which has none under way."""

    def admit(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        """The splits that may go into a batch now. The others come back, unread, from `take_in` or `tend`."""

    def plan(self, task: int, splits: Sequence[Split]) -> DeliveryPlan:
        """Returns what a batch of these splits is told (`Batch.delivery`)."""

    def take_in(self, batch: Batch, results: Results) -> Results | Pending:
        """Returns what the source may hear of a batch that came back; a future of it where Kafka has to be asked first.

        The future's result goes through here again. It may raise what ends the connector.
        """

    def tend(self) -> Results:
        """Go on with what waits for Kafka. Raises what ends the connector.

        Returns splits that were held back and come back unread, to be planned again.
        """

    def source_changed(self) -> None:
        """The source has changed something by itself."""

    def publish_if_due(self) -> None:
        """No batch is under way, and everything is saved: publish offsets that Kafka lacks, if it is time for that."""

    def save(self, unsaved: Unsaved, accounts: Accounts) -> bool:
        """Save changes, and what became of their batch. Returns whether there was anything to save."""

    def save_last(self, changes: Changes, unsaved: Iterable[Unsaved], accounts: Accounts) -> None:
        """The connector ends: save `changes`, which hold once more what was left `unsaved`."""

    def log_what_is_left(self, *, unsaved: bool, in_flight: bool) -> bool:
        """The connector ends with offsets `unsaved`, or batches in flight: log what the next start does about it.

        Returns whether it sends anything again because offsets could not be saved.
        """

    def close(self) -> None:
        """The connector has ended."""


MakeRun = Callable[[Batch, Encoder, TaskProducer, Callable[[], bool]], BatchRun]
"""`BatchRun`, or `sql_run.SqlRun` with its way through Spark."""
AsValue = Callable[[Exception], CopycatError]
"""An exception as the results of a batch tell it."""


class TaskHalf(Protocol):
    """The half of a delivery that works in a task."""

    def run(
        self,
        batch: Batch,
        encoder: Encoder,
        producers: Producers,
        stopping: Callable[[], bool],
        make_run: MakeRun,
        as_value: AsValue,
    ) -> Results:
        """As `executor.run_batch`. What it raises came before anything was sent."""


class Opening(Protocol):
    """A delivery that is being opened. For the connector's steps."""

    @property
    def doing(self) -> str:
        """Says for people what it waits for; "" while it is quick."""

    def tend(self) -> Delivery | None:
        """The delivery, once it is open; None before. RetriableError: call again later. Raises what ends the connector."""

    def seconds_left(self) -> float:
        """Returns how long another attempt is of no use after a RetriableError, whatever the back-off says."""

    def cancel(self) -> None:
        """The connector ends before it was opened."""


class Callbacks(NamedTuple):
    """What a delivery calls to count, to log and to wake its connector. `wake` may be called by any thread."""

    count_outcome: Callable[[str], None]
    """One more outcome of this name, for metrics: `openings`, or what became of a transaction."""
    count_records: Callable[[Counts], None]
    """Records that were settled before this start, and counted nowhere yet."""
    wake: Callable[[], None]
    log: Log


def is_empty(changes: Changes) -> bool:
    """Whether there is nothing to save."""
    return not (changes.offsets or changes.forget or changes.losses or changes.accounts or changes.state)


def joined(accounts: Accounts, changes: Changes) -> dict[SourcePartition, Account]:
    """Adds what the source says of files to what tasks did with them."""
    return {**accounts, **{one: accounts.get(one, Account()) + account for one, account in changes.accounts.items()}}
