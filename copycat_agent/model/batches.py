"""Work for a task, and what it made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from copycat_agent.errors import CopycatError
from copycat_agent.model.accounts import Counts, Delivered, Loss, Rejection, StepFailure
from copycat_agent.model.lanes import LaneOutcome
from copycat_agent.model.offsets import Reduced, SourceOffset, SourcePartition, TaskId
from copycat_agent.model.records import Schema


class Stretch(NamedTuple):
    """What a task reads of a source whose positions are its own: what lies between two of them, JSON values that only the source compares.

    `name` is for people and templates. `work` is whatever else the source's `read` needs, such as a pickled plan. `whole`: it goes as one,
    in one batch, or not at all, and may then be no larger than `most_bytes` (0: no matter).
    """

    key: str
    name: str
    start: Any
    end: Any = None
    work: bytes = b""
    whole: bool = False
    most_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """A bounded stretch of one partition: from `offset.position` up to, not including, byte `end`.

    `path` is the file's name for people and templates (surrogate escapes where it is not UTF-8); `open_path` is what a task
    opens, which may be the driver's descriptor. `final` makes an unfinished last line a record of its own: nobody will
    finish it. `flush` ends an open group of lines: it has been quiet for long enough, what is written later is another record.
    `origins` are offsets of files that this packed one may be the rest of: the task goes on behind the first of them whose bytes
    it holds, and begins at byte 0 when it holds those of none. `after`: the older generation of the same log, of which what is left
    goes first: in a batch that has a split of it nothing of this one is sent before. `stretch`: what to read of a source that has no
    files; positions are numbers of records then. Replaying a split is always safe.
    """

    partition: SourcePartition
    path: str
    open_path: str
    offset: SourceOffset
    end: int
    final: bool = False
    inode: int = 0
    mtime_ms: int = 0
    flush: bool = False
    origins: tuple[SourceOffset, ...] = ()
    after: SourcePartition | None = None
    stretch: Stretch | None = None

    @property
    def goes_as_one(self) -> bool:
        """Whether its records are settled together, or none of them."""
        return self.stretch is not None and self.stretch.whole

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        file = (self.inode, self.mtime_ms, self.flush, self.origins, self.after, self.stretch)
        return Split, (self.partition, self.path, self.open_path, self.offset, self.end, self.final, *file)


class Sample(NamedTuple):
    """One record as it was sent, for `copycat tap`: key, value and header values cut to 4 KiB. `path`, `start`: where it came from."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int | None
    path: str
    start: int
    end: int


class BrokerView(NamedTuple):
    """A broker as a producer sees it. `rtt_ms` is the mean round trip of the last window, None without one."""

    name: str
    state: str
    rtt_ms: float | None


class ClientView(NamedTuple):
    """What a producer says about itself. `at` in epoch seconds; the queue counts records and bytes not yet acknowledged."""

    at: float
    brokers: tuple[BrokerView, ...]
    queue_records: int
    queue_bytes: int
    retries: int


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What a task made of a split.

    `offset` is the end of the settled prefix (the split's own offset when nothing settled). `at_end` means that no complete
    record was left before the split's end. `changed` means that the file no longer holds what was read from it: a new
    generation begins. `error` is None, or why the task stopped before the end; it is a value, never raised. `rejections`
    names the first few records that were dead-lettered or passed over. `losses` is what was given up on before `offset`: to
    be saved with it. `samples` are records that the batch asked for; `client` is new word from the producer, None when there
    is none (both on one result of a batch). Of a packed file: `unpacked_size` is how many bytes it holds, once its end was
    reached, else -1; `damage` is why it cannot be unpacked further, "" when it can; `origin` is the index of the one of the
    split's `origins` that it goes on behind, -1 when it goes on behind none; `packed_position` is how many packed
    bytes are settled, never too many. `damage` is also why a spooled file cannot be read beyond `offset`. `schema` is the file's,
    where its format has one. `delivered` is where its records are in Kafka, if the batch was `tracked`. `undated`: see `Account`.
    `step_failures` names the first few records of which a step failed and that nobody else tells of. `outcome` is what became of the
    transaction of a batch that had one (on one result of the batch).
    """

    split: Split
    offset: SourceOffset
    counts: Counts = field(default_factory=Counts)
    at_end: bool = False
    changed: bool = False
    error: CopycatError | None = None
    rejections: tuple[Rejection, ...] = ()
    losses: tuple[Loss, ...] = ()
    samples: tuple[Sample, ...] = ()
    client: ClientView | None = None
    unpacked_size: int = -1
    damage: str = ""
    origin: int = -1
    packed_position: int = 0
    schema: Schema | None = None
    delivered: tuple[Delivered, ...] = ()
    undated: int = 0
    step_failures: tuple[StepFailure, ...] = ()
    outcome: LaneOutcome | None = None

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        packed = (self.unpacked_size, self.damage, self.origin, self.packed_position)
        told = (self.schema, self.delivered, self.undated, self.step_failures, self.outcome)
        rest = (self.error, self.rejections, self.losses, self.samples, self.client, *packed, *told)
        return SplitResult, (self.split, self.offset, self.counts, self.at_end, self.changed, *rest)


class DeliveryPlan(Protocol):
    """What a connector's delivery tells its half in the task of one batch. A frozen value, picklable."""

    @property
    def guarantee(self) -> str:
        """Names the delivery, as `delivery.guarantee` in a definition does."""


class AtLeastOncePlan(NamedTuple):
    """There is nothing to tell: what Kafka acknowledges is settled."""

    @property
    def guarantee(self) -> str:
        """See `DeliveryPlan`."""
        return "at_least_once"


AT_LEAST_ONCE = AtLeastOncePlan()
"""The one there is."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One task's work for one round trip.

    `definition` is the pickled `options.Definition` (bytes, so that a runner can keep what it compiled from it by its
    value; repr hides it: it may hold secrets). Reading stops after `max_bytes` bytes, `max_records` records (0: no matter how
    many) or `max_seconds` seconds. `samples` asks for so many records as they were sent, `tracked` for where they are in Kafka.
    `delivery` is what the connector's delivery tells its half in the task. `cluster` is the Kafka cluster's addresses: who shares them
    takes turns.
    """

    task: TaskId
    definition: bytes = field(repr=False)
    splits: tuple[Split, ...]
    max_bytes: int
    max_seconds: float
    max_records: int = 0
    samples: int = 0
    tracked: bool = False
    delivery: DeliveryPlan = AT_LEAST_ONCE
    cluster: str = ""

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        most = (self.max_bytes, self.max_seconds, self.max_records, self.samples, self.tracked, self.delivery, self.cluster)
        return Batch, (self.task, self.definition, self.splits, *most)
