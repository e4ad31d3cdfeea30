"""The work that the driver gives to a task, and the results that the task returns.

A *lane* is one task of a connector whose guarantee is exactly_once. It moves in steps: each transaction moves its *head* from one `seq` to
the next, and nothing else moves it.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from copycat_agent.errors import CopycatError
from copycat_agent.model.records import (
    Compact,
    Counts,
    Loss,
    OffsetRange,
    Rejection,
    SavedRow,
    Schema,
    SourceOffset,
    SourcePartition,
    StepFailure,
    TaskId,
)

OFFSETS_TOPIC = "__copycat_offsets"
"""The compacted topic that holds heads, positions, states and names."""
_ID_MARK = "~"
"""Connector ids begin with this character and names never do (`options.ConnectorName`), so a key is either an id or a name, never both."""


def new_connector_id() -> str:
    """Returns a new connector id, which stays the same when the connector is renamed. It is safe in a transactional.id."""
    return f"{_ID_MARK}{secrets.token_hex(6)}"


def connector_id_of(name: str) -> str:
    """Returns the id of a connector that had none in an older version: the same for each copy of that version's store that is migrated."""
    return f"{_ID_MARK}{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def is_connector_id(key: str) -> bool:
    """Returns whether a lane's key is a connector's id rather than a name."""
    return key.startswith(_ID_MARK)


class OffsetsPartition(NamedTuple):
    """The partition of the offsets topic that holds all entries of one connector, or of one name."""

    topic: str
    partition: int


class LaneId(NamedTuple):
    """A lane: the agent's uuid, the key of its connector, and the task's number.

    `key` is the connector's id (`new_connector_id`). Lanes from versions without ids have the connector's name as their key.
    """

    agent: str
    key: str
    number: int


class Head(NamedTuple):
    """The step that a lane has reached. `nonce` names the start of the agent that moved it there.

    The head is in its `OffsetsPartition` at `offset` or later; at exactly `offset` if it was read from there. -1 before it is written.
    """

    seq: int = 0
    nonce: str = ""
    offset: int = -1


class Position(NamedTuple):
    """The settled offset of a partition, as written by the transaction that moved lane number `lane` to `seq`.

    `offset` None: it is forgotten.

    `counts` and `losses` are what that transaction settled. `nonce` names the start of the agent whose transaction it was. `is_last`:
    nothing later is known of the partition under the same key, nor under the connector's own key if that is another one; a person may have
    set it back meanwhile.
    """

    partition: SourcePartition
    lane: int
    seq: int
    offset: SavedRow | None
    counts: Counts = Counts()
    losses: tuple[Loss, ...] = ()
    nonce: str = ""
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class LanePlan:
    """The lane's part of a batch: it may commit if, and only if, the head is still `head`.

    `driver_rows` are offsets that the driver has changed by itself since the last transaction, None for forgotten ones. The transaction
    writes them as well.
    """

    lane: LaneId
    head: Head
    place: OffsetsPartition
    driver_rows: tuple[tuple[SourcePartition, SavedRow | None], ...] = ()
    guarantee: ClassVar[str] = "exactly_once"
    upload_seconds: ClassVar[float] = 0.0


LaneState = Literal["committed", "idle", "undone", "unknown"]
"""committed: the transaction is committed, and the outcome's head is the new one. idle: there was nothing to commit. undone: nothing is
committed or can be. unknown: it may be committed, or another process has moved the lane: the head has to be read."""


class LaneOutcome(NamedTuple):
    """The outcome of a batch's transaction. `head` is the lane's current head, as far as the state tells; `why` explains in words."""

    state: LaneState
    head: Head
    why: str = ""


class Stretch(NamedTuple):
    """A range of a source that defines its own positions: from `start` to `end`, JSON values that only the source compares.

    `name` is for people and templates. `work` is anything else that the source's `read` needs, such as a pickled plan. `whole`: the range
    is sent in one batch or not at all, and may be no larger than `most_bytes` (0: the limit is `delivery.max_batch_bytes`).
    """

    key: str
    name: str
    start: Any
    end: Any = None
    work: bytes = b""
    whole: bool = False
    most_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Split(Compact):
    """A bounded range of one partition: from `offset.position` up to, not including, byte `end`.

    `path` is the file's name for people and templates (surrogate escapes where it is not UTF-8); `open_path` is what a task opens, which
    may be the driver's descriptor. `final`: nobody will finish an unfinished last line, so it becomes a record. `flush` ends an open group
    of lines: the file has been quiet long enough, and lines written later belong to another record. `origins` are offsets of files that
    this packed file may continue: the task goes on after the first of them whose bytes it holds, and begins at byte 0 when it holds those
    of none. `origin_sizes` are the sizes of these files in bytes, -1 or absent where unknown: a packed file that holds more was not made
    from that file. `after` is the partition of the older file of the same log, whose rest is sent first: in a batch with a split of
    it, nothing of this split is sent before. `stretch` is what to read of a source without files; positions are then record numbers.
    Replaying a split is always safe.
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
    origin_sizes: tuple[int, ...] = ()

    @property
    def goes_as_one(self) -> bool:
        """Returns whether its records are settled all together or not at all."""
        return self.stretch is not None and self.stretch.whole


class Sample(NamedTuple):
    """One record as it was sent, for `copycat tap`: key, value and header values are cut to 4 KiB. `path` and `start` are its origin."""

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
    """A producer's own statistics. `at` is in epoch seconds; the queue counts records and bytes not yet acknowledged."""

    at: float
    brokers: tuple[BrokerView, ...]
    queue_records: int
    queue_bytes: int
    retries: int


@dataclass(frozen=True, slots=True)
class SplitResult(Compact):
    """The result of a split.

    `offset` is the end of the settled prefix (the split's own offset when nothing settled). `at_end` means that no complete record was left
    before the split's end. `changed` means that the file no longer holds what was read from it: a new generation begins. `error` is None,
    or why the task stopped before the end; it is a value, never raised. `rejections` names the first few records that were dead-lettered or
    passed over. `losses` is what was given up before `offset`, to be saved with it. `samples` are records that the batch asked for;
    `client` has the producer's new statistics or None (both on one result of a batch). Of a packed file: `unpacked_size` is its size in
    bytes once its end was reached, else -1; `damage` is why it cannot be unpacked further, "" when it can; `origin` is the index of the one
    of the split's `origins` that it continues, -1 for none; `packed_position` is how many packed bytes are settled, never too many.
    `damage` is also why a spooled file cannot be read beyond `offset`. `schema` is the file's, if its format has one. `delivered` is where
    its records are in Kafka, if the batch was `tracked`. `undated`: see `Account`. `step_failures` names the first few records for which a
    step failed and that appear nowhere else. `outcome` is that of the batch's transaction, if it had one (on one result of the batch).
    `seen_ns`, of a batch that stayed at the end of the file, is a time, by the clock of its file system, at which the file held everything
    up to `offset`; otherwise 0.
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
    delivered: tuple[OffsetRange, ...] = ()
    undated: int = 0
    step_failures: tuple[StepFailure, ...] = ()
    outcome: LaneOutcome | None = None
    seen_ns: int = 0


Results = tuple[SplitResult, ...]
"""The results of a batch, one for each split, in order."""


class DeliveryPlan(Protocol):
    """Tells the task's side of a delivery what it needs to know for one batch. A frozen value, picklable."""

    @property
    def guarantee(self) -> str:
        """Returns the name of the delivery, as in `delivery.guarantee` of a definition."""

    @property
    def upload_seconds(self) -> float:
        """Returns the time that settling a batch may take after it was read, beyond what an answer takes."""


@dataclass(frozen=True, slots=True)
class AtLeastOncePlan:
    """What Kafka acknowledges is settled. `upload_seconds`: how much longer than by default `kafka.client` lets a record take."""

    upload_seconds: float = 0.0
    guarantee: ClassVar[str] = "at_least_once"


AT_LEAST_ONCE = AtLeastOncePlan()
"""The plan with Kafka's time-outs as they are by default."""


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """Names under which the connector has written files before. The task asks the store how far a partition is written."""

    earlier: tuple[str, ...] = ()
    guarantee: ClassVar[str] = "files"
    upload_seconds: ClassVar[float] = 240.0
    """Enough for two files of 256 MiB over 20 Mbit/s."""


@dataclass(frozen=True, slots=True)
class Batch(Compact):
    """The work of one task for one round trip.

    `definition` is the pickled `options.Definition` (bytes, so that a runner can cache what it compiled by their value; repr hides them
    because they may hold secrets). Reading stops after `max_bytes` bytes, `max_records` records (0: no limit) or `max_seconds` seconds.
    `samples` is how many records to return as they were sent. `tracked` asks for their offsets in Kafka: that costs a call for each record,
    so only `backfill` asks, and a run to the end whose account is JSON. With `follow_seconds` the batch stays at the ends of its files as
    long as something is added to one of them within that time. `delivery` is the plan for the task's side of the delivery. `cluster`
    is the addresses of the Kafka cluster: batches that share them take turns.
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
    follow_seconds: float = 0.0

    @property
    def settled_seconds(self) -> float:
        """Returns the time until everything should be settled, without what it may take to send and answer the batch."""
        return self.max_seconds + self.delivery.upload_seconds
