"""Work for a task, and what the task made of it.

A *lane* is one task of a connector whose guarantee is exactly_once. It moves in steps: each transaction takes its *head* from one `seq` to
the next, and nothing else does.
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
    Delivered,
    Loss,
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
"""No name begins so (`options.ConnectorName`): a key is an id or a name, and never both."""


def new_connector_id() -> str:
    """An id for a connector: made once, and kept whatever the connector is called. Safe in a transactional.id."""
    return f"{_ID_MARK}{secrets.token_hex(6)}"


def connector_id_of(name: str) -> str:
    """The id of a connector that a version before ids had under this name: the same whenever a copy of that version's store is migrated."""
    return f"{_ID_MARK}{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def is_connector_id(key: str) -> bool:
    """Whether a key of lanes is a connector's id, and not a name."""
    return key.startswith(_ID_MARK)


class OffsetsPartition(NamedTuple):
    """The partition that holds everything of one connector, or of one name."""

    topic: str
    partition: int


class LaneId(NamedTuple):
    """A lane: the agent's uuid, the key of its connector, and the task's number.

    `key` is the connector's id, see `new_connector_id`. Of lanes that stand under a name it is that name: older versions had no ids.
    """

    agent: str
    key: str
    number: int


class Head(NamedTuple):
    """Where a lane is. `nonce` names the start of the agent that took it there.

    This stands in its `OffsetsPartition` at `offset` or behind it; of one that was read, just there. -1 before it is anywhere.
    """

    seq: int = 0
    nonce: str = ""
    offset: int = -1


class Position(NamedTuple):
    """How far a partition is settled, as the transaction that took lane number `lane` to `seq` says; `offset` None: it is forgotten.

    `counts` and `losses` are what that transaction made of it. `nonce` names the start of the agent whose transaction it was.
    `is_last`: nothing later is known of the partition under the same key, nor anything under the connector's own one, if that is
    another; a person may have set it back meanwhile.
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
    """What a batch is told of its lane: it may commit if, and only if, the head is still `head`.

    `driver_rows` are offsets that the driver has changed by itself since the last transaction, None for those it has forgotten: they go
    along.
    """

    lane: LaneId
    head: Head
    place: OffsetsPartition
    driver_rows: tuple[tuple[SourcePartition, SavedRow | None], ...] = ()
    guarantee: ClassVar[str] = "exactly_once"


LaneState = Literal["committed", "idle", "undone", "unknown"]
"""committed: the transaction is, and the head is the outcome's. idle: there was nothing to commit. undone: nothing is committed, nor can
be. unknown: it may be committed, or somebody else has moved the lane: the truth has to be read."""


class LaneOutcome(NamedTuple):
    """What became of a batch's transaction. `head` is where the lane is now, as far as the state says; `why` is in words."""

    state: LaneState
    head: Head
    why: str = ""


class Stretch(NamedTuple):
    """What a task reads of a source whose positions are its own: what lies between two of them, JSON values that only the source compares.

    `name` is for people and templates. `work` is whatever else the source's `read` needs, such as a pickled plan. `whole`: it goes as one,
    in one batch, or not at all, and may then be no larger than `most_bytes` (0: as `delivery.max_batch_bytes` says).
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
    """A bounded stretch of one partition: from `offset.position` up to, not including, byte `end`.

    `path` is the file's name for people and templates (surrogate escapes where it is not UTF-8); `open_path` is what a task
    opens, which may be the driver's descriptor. `final` makes an unfinished last line a record of its own: nobody will
    finish it. `flush` ends an open group of lines: it has been quiet for long enough, what is written later is another record.
    `origins` are offsets of files that this packed one may be the rest of: the task goes on behind the first of them whose bytes
    it holds, and begins at byte 0 when it holds those of none; `origin_sizes` are how many bytes each of these files has, -1 or absent
    where nobody knows: one that holds more was not made of it. `after`: the older generation of the same log, of which what is left
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
    origin_sizes: tuple[int, ...] = ()

    @property
    def goes_as_one(self) -> bool:
        """Whether its records are settled together, or none of them."""
        return self.stretch is not None and self.stretch.whole


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
class SplitResult(Compact):
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
    transaction of a batch that had one (on one result of the batch). `seen_ns`, of a batch that stayed at the end of the file: a time, by
    the clock of its file system, at which the file held everything up to `offset`; 0 for any other.
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
    seen_ns: int = 0


class DeliveryPlan(Protocol):
    """What a connector's delivery tells its half in the task of one batch. A frozen value, picklable."""

    @property
    def guarantee(self) -> str:
        """Names the delivery, as `delivery.guarantee` in a definition does."""


@dataclass(frozen=True, slots=True)
class AtLeastOncePlan:
    """There is nothing to tell: what Kafka acknowledges is settled."""

    guarantee: ClassVar[str] = "at_least_once"


AT_LEAST_ONCE = AtLeastOncePlan()
"""The only one: it has no fields."""


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """There is nothing to tell: how far a partition is written is asked of the store."""

    guarantee: ClassVar[str] = "files"


INTO_FILES = FilesPlan()
"""The only one, as above."""


@dataclass(frozen=True, slots=True)
class Batch(Compact):
    """One task's work for one round trip.

    `definition` is the pickled `options.Definition` (bytes, so that a runner can keep what it compiled from it by its
    value; repr hides it: it may hold secrets). Reading stops after `max_bytes` bytes, `max_records` records (0: no matter how
    many) or `max_seconds` seconds. `samples` asks for so many records as they were sent, `tracked` for where they are in Kafka: that costs
    a call for each record, so only `backfill` asks, and a run to the end whose account is JSON.
    With `follow_seconds` the batch stays at the ends of its files as long as something is added to one of them every so many seconds.
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
    follow_seconds: float = 0.0
