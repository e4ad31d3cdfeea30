"""The nouns of the pipeline: frozen values without behaviour, all of them picklable.

A *connector* has up to `tasks_max` *tasks*. A task owns *partitions* (here: files). The driver plans *splits* (a stretch of
one partition) from committed *offsets*, sends them to a runner as one *batch* per task, and gets one *split result* for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from copycat_agent.errors import CopycatError

Reduced = tuple[type, tuple[Any, ...]]
"""How a value is pickled: as its class and the arguments that make it anew. What frozen dataclasses with slots do by
themselves takes five times as long, which a log that trickles pays twenty times a second."""


class TaskId(NamedTuple):
    """A task: the connector's name and a number from 0."""

    connector: str
    number: int


class SourcePartition(NamedTuple):
    """What an offset belongs to. `key` names one generation of one file, never a path alone (see `sources.identity`)."""

    connector: str
    key: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Proof that a file still holds the bytes that were read from it.

    `head` hashes the first `head_bytes` bytes and grows with the file up to a limit; `tail` hashes the `tail_bytes` bytes
    just before the offset. Hex digests; lengths of 0 mean "nothing to compare".
    """

    head_bytes: int = 0
    head: str = ""
    tail_bytes: int = 0
    tail: str = ""

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        return Fingerprint, (self.head_bytes, self.head, self.tail_bytes, self.tail)


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """How far a partition is settled.

    `position` is the next byte to read (for formats that cannot seek: the next record's number). `records` counts the
    records before it. `done` means that nothing will ever follow. `skipping` means that `position` lies inside an over-long
    line whose beginning is settled: the rest of that line belongs to it. `path` is the last known name, for people.
    `size` is how large the file was known to be. `gone_ms` is when it was found to be gone (epoch milliseconds), 0 while it is
    there. `compression` is how a packed file is packed (a name in `sources.packing`), "" for all others: then `position` counts
    unpacked bytes and `size` is the packed size on disk; `done` means that everything up to that size is read. Of a spooled file:
    `mtime_ns` is when what was read of it was last changed, and `trouble` says why it cannot be read to its end: `done` means
    then that it is given up, and has to be set aside.
    """

    position: int
    records: int = 0
    done: bool = False
    skipping: bool = False
    path: str = ""
    size: int = 0
    gone_ms: int = 0
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    compression: str = ""
    mtime_ns: int = 0
    trouble: str = ""

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        words = (self.path, self.size, self.gone_ms, self.fingerprint, self.compression, self.mtime_ns, self.trouble)
        return SourceOffset, (self.position, self.records, self.done, self.skipping, *words)


@dataclass(frozen=True, slots=True)
class Split:
    """A bounded stretch of one partition: from `offset.position` up to, not including, byte `end`.

    `path` is the file's name for people and templates (surrogate escapes where it is not UTF-8); `open_path` is what a task
    opens, which may be the driver's descriptor. `final` makes an unfinished last line a record of its own: nobody will
    finish it. `flush` ends an open group of lines: it has been quiet for long enough, what is written later is another record.
    `origins` are offsets of files that this packed one may be the rest of: the task goes on behind the first of them whose bytes
    it holds, and begins at byte 0 when it holds those of none. Replaying a split is always safe.
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

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        file = (self.inode, self.mtime_ms, self.flush, self.origins)
        return Split, (self.partition, self.path, self.open_path, self.offset, self.end, self.final, *file)


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of records, settled ones only: `read` = `acknowledged` + `dead_lettered` + `dropped` + `rejected`.

    `dropped` was dropped on purpose, by a transform or an option. `rejected` could not be made or sent and was passed over,
    because `errors.tolerance` is all and there is no dead-letter topic. `too_long` lines are counted in one of these as well. `kept` are
    acknowledged ones, too: records that went on as they were though a step failed, because its `on_error` is keep.
    """

    read: int = 0
    read_bytes: int = 0
    acknowledged: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    rejected: int = 0
    too_long: int = 0
    kept: int = 0

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        lost = (self.dead_lettered, self.dropped, self.rejected, self.too_long, self.kept)
        return Counts, (self.read, self.read_bytes, self.acknowledged, *lost)

    def __add__(self, other: Counts) -> Counts:
        """Sum, field by field."""
        return Counts(
            self.read + other.read,
            self.read_bytes + other.read_bytes,
            self.acknowledged + other.acknowledged,
            self.dead_lettered + other.dead_lettered,
            self.dropped + other.dropped,
            self.rejected + other.rejected,
            self.too_long + other.too_long,
            self.kept + other.kept,
        )


class Column(NamedTuple):
    """A column of a file. `type` is spelt as Spark SQL does: `string`, `bigint`, `decimal(10,2)`, `array<string>`, `struct<a: int>`."""

    name: str
    type: str = "string"
    nullable: bool = True


class Schema(NamedTuple):
    """What a file says its records look like: from its header, or its own schema. `avro` is that, as JSON, of an Avro file."""

    columns: tuple[Column, ...]
    avro: str = ""


class Delivered(NamedTuple):
    """Where records are in Kafka: the least and the greatest of their offsets in one partition of a topic."""

    topic: str
    partition: int
    first: int
    last: int


AccountState = Literal["", "read", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Account:
    """What became of everything that was read of one file, over all batches so far.

    `path` is its last known name. `state` is "" or "read" for a file that was read, or is being read: "read" where it had failed before.
    `why` says more, in words. `undated` of its records had no time to be chosen by, and were sent.
    """

    counts: Counts = field(default_factory=Counts)
    delivered: tuple[Delivered, ...] = ()
    path: str = ""
    state: AccountState = ""
    why: str = ""
    undated: int = 0

    def __add__(self, later: Account) -> Account:
        """This one, and what became of more of the same file."""
        places: dict[tuple[str, int], Delivered] = {}
        for one in (*self.delivered, *later.delivered):
            known = places.get(one[:2], one)
            places[one[:2]] = Delivered(*one[:2], min(known.first, one.first), max(known.last, one.last))
        return Account(
            self.counts + later.counts,
            tuple(sorted(places.values())),
            later.path or self.path,
            later.state or self.state,
            later.why if later.state else later.why or self.why,
            self.undated + later.undated,
        )


class Rejection(NamedTuple):
    """Where a bad record lies and why it is bad; never its bytes. `record` is its number in the file, from 1.

    `by_record`: `start` and `end` are record numbers from 0, not bytes.
    """

    path: str
    start: int
    end: int
    stage: str
    reason: str
    record: int = 0
    by_record: bool = False


class StepFailure(NamedTuple):
    """A record of which a step failed and that went on as it was (`kept`), or was dropped, as the step's `on_error` says; never its bytes.

    The rest as in `Rejection`.
    """

    path: str
    start: int
    end: int
    reason: str
    record: int
    kept: bool
    by_record: bool = False


LossReason = Literal["destroyed", "too_long", "rejected", "damaged", "hole"]
"""Why bytes were given up. destroyed: gone before they were read. too_long: beyond `line.max_bytes`, cut or dropped by option.
rejected: a bad record, passed over because `errors.tolerance` is all and there is no dead-letter topic, or what its dead
letter could not carry. damaged: the rest of a packed file that cannot be unpacked. hole: a run of NUL bytes that nobody wrote,
left by a truncation under a writer or by a crash of the host."""


class Loss(NamedTuple):
    """An entry of the loss ledger: `size_bytes` bytes in `records` records between `start` and `end` of a file were given up.

    Neighbours with one reason are one entry, so `size_bytes` may be less than the range. `records` is 0 where nobody can
    know: the bytes were destroyed. `detail` says more, in words. `at_ms` is when, in epoch milliseconds.
    """

    partition: SourcePartition
    path: str
    start: int
    end: int
    size_bytes: int
    records: int
    reason: LossReason
    detail: str
    at_ms: int


class LossTotal(NamedTuple):
    """Everything that one connector gave up for one reason."""

    size_bytes: int
    records: int
    entries: int


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
    `step_failures` names the first few records of which a step failed and that nobody else tells of.
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

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        packed = (self.unpacked_size, self.damage, self.origin, self.packed_position)
        told = (self.schema, self.delivered, self.undated, self.step_failures)
        rest = (self.error, self.rejections, self.losses, self.samples, self.client, *packed, *told)
        return SplitResult, (self.split, self.offset, self.counts, self.at_end, self.changed, *rest)


@dataclass(frozen=True, slots=True)
class Batch:
    """One task's work for one round trip.

    `definition` is the pickled `options.Definition` (bytes, so that a runner can keep what it compiled from it by its
    value; repr hides it: it may hold secrets). Reading stops after `max_bytes` bytes, `max_records` records (0: no matter how
    many) or `max_seconds` seconds. `samples` asks for so many records as they were sent, `tracked` for where they are in Kafka.
    """

    task: TaskId
    definition: bytes = field(repr=False)
    splits: tuple[Split, ...]
    max_bytes: int
    max_seconds: float
    max_records: int = 0
    samples: int = 0
    tracked: bool = False

    def __reduce__(self) -> Reduced:
        """See `Reduced`."""
        most = (self.max_bytes, self.max_seconds, self.max_records, self.samples, self.tracked)
        return Batch, (self.task, self.definition, self.splits, *most)


class Record(NamedTuple):
    """One record on its way to Kafka.

    `value` is the framed bytes, or a dict of fields once a transform has made some. `start` and `end` are the bytes it
    covers in its file, delimiter included; `number` counts from 1 within the file. `timestamp_ms` is the event time in
    epoch milliseconds, None when no transform has set one. `partial` marks a last line that was never finished. Of formats that
    count records `start` and `end` are record numbers from 0. `schema` is the file's, where its format has one.
    """

    value: bytes | dict[str, Any]
    start: int
    end: int
    number: int
    key: bytes | None = None
    topic: str = ""
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    partial: bool = False
    schema: Schema | None = None
