"""Records, their partitions and offsets, and the counts and losses that account for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import add, attrgetter
from typing import Any, Literal, NamedTuple, overload


class Compact:
    """A frozen dataclass that is pickled as its class and constructor arguments.

    The default pickling of frozen dataclasses with slots takes five times as long, and a log that trickles pays that twenty times a second.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Returns the class and its arguments."""
        return type(self), values_of(self)


def values_of(value: Compact) -> tuple[Any, ...]:
    """Returns all fields in order."""
    return _getter(type(value))(value)  # type: ignore[arg-type] # mypy knows of no hash of a class


@cache
def _getter(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    names = [one.name for one in fields(kind)]
    return attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)


class TaskId(NamedTuple):
    """A task: the connector's name and a number from 0."""

    connector: str
    number: int


class SourcePartition(NamedTuple):
    """What an offset belongs to: one generation of one file, named by `key` (`sources.files.identity`), or a source's own partition.

    `key` is never a path alone.
    """

    connector: str
    key: str


@dataclass(frozen=True, slots=True)
class Fingerprint(Compact):
    """Proof that a file still holds the bytes that were read from it.

    `head` hashes the first `head_bytes` bytes and grows with the file up to a limit; `tail` hashes the `tail_bytes` bytes
    just before the offset. Hex digests; lengths of 0 mean "nothing to compare".
    """

    head_bytes: int = 0
    head: str = ""
    tail_bytes: int = 0
    tail: str = ""


@dataclass(frozen=True, slots=True)
class SourceOffset(Compact):
    """How far a partition is settled.

    `position` is the next byte to read (for formats that cannot seek: the next record's number). `records` counts the records before it.
    `done` means that nothing will ever follow. `skipping` means that `position` lies inside an over-long line whose beginning is settled:
    the rest of that line belongs to it. `path` is the last saved name: it is for people and tells which log the file belongs to; it may lag
    behind a rename until the next save. `size` is the last known size of the file. `gone_ms` is when its file left its patterns, was found
    deleted, or was begun anew, whichever applies to this row (epoch milliseconds), 0 while it is there. `compression` is how a packed file
    is packed (a name in `sources.files.packing`), "" for all others: then `position` counts unpacked bytes, `size` is the packed size on
    disk, and `done` means that everything up to that size is read. Of a spooled file: `mtime_ns` is the last change of what was read of it,
    and `trouble` says why it cannot be read to its end: `done` then means that it is given up and has to be set aside. `cut`: `position`
    lies between two parts of a record that is sent in parts, and `cut` holds what its format needs to continue it (`formats.model`);
    `skipping` is then set, too. `cursor` is the source's own position, any JSON value as text, which only the source compares; `position`
    then counts the records before it, and `mtime_ns` is when something of the partition was last settled, 0 at its beginning. "" for files.
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
    cut: str = ""
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class SourceState(Compact):
    """A source's memory of its connector besides positions: a small JSON object that only the source reads."""

    values: Mapping[str, Any]


SavedRow = SourceOffset | SourceState
"""A saved row of a connector: the offset of a partition, or its `SourceState`, whose partition has the key `STATE_KEY`."""
STATE_KEY = ""
"""The key of the state's partition. No partition of a source has this key."""
EARLIER_STATE_KEY = "started"


def state_partition(connector: str) -> SourcePartition:
    """Returns the partition under which a connector's state is saved among its offsets."""
    return SourcePartition(connector, STATE_KEY)


def offsets_in(saved: Mapping[SourcePartition, SavedRow]) -> dict[SourcePartition, SourceOffset]:
    """Returns the offsets among the saved rows."""
    return {partition: row for partition, row in saved.items() if isinstance(row, SourceOffset)}


@overload
def from_earlier_version(partition: SourcePartition, offset: SourceOffset) -> tuple[SourcePartition, SavedRow]: ...
@overload
def from_earlier_version(partition: SourcePartition, offset: SourceOffset | None) -> tuple[SourcePartition, SavedRow | None]: ...
def from_earlier_version(partition: SourcePartition, offset: SourceOffset | None) -> tuple[SourcePartition, SavedRow | None]:
    """Returns the row in its current form. Offset stores up to version 8 kept the state of log files as an offset named "started"."""
    if partition.key != EARLIER_STATE_KEY or (offset is not None and offset.cursor):
        return partition, offset
    state = None if offset is None else SourceState({name: getattr(offset, where) for name, where in _EARLIER_FIELDS.items()})
    return state_partition(partition.connector), state


def as_earlier_version(state: SourceState) -> SourceOffset | None:
    """Returns a state as an offset, as earlier versions kept it; None for a state that they do not know."""
    if state.values.keys() != _EARLIER_FIELDS.keys():
        return None
    return SourceOffset(**{where: state.values[name] for name, where in _EARLIER_FIELDS.items()})


_EARLIER_FIELDS = {"first_ms": "position", "seen_ms": "size", "rotations": "records", "ahead_ns": "mtime_ns", "boot": "trouble"}


class Column(NamedTuple):
    """A column of a file. `type` is spelt as in Spark SQL: `string`, `bigint`, `decimal(10,2)`, `array<string>`, `struct<a: int>`."""

    name: str
    type: str = "string"
    nullable: bool = True


class Schema(NamedTuple):
    """The columns of a file's records, from its header or its own schema. `avro` is the schema of an Avro file, as JSON."""

    columns: tuple[Column, ...]
    avro: str = ""


class Record(NamedTuple):
    """One record on its way to Kafka.

    `value` is the framed bytes, or a dict of fields once a transform has made some. `start` and `end` are the bytes it covers in its file,
    delimiter included (record numbers from 0 for formats that count records); `number` counts from 1 within the file. `timestamp_ms` is the
    event time in epoch milliseconds, None when no transform has set one. `partial` marks a last line that was never finished. `schema` is
    the file's, if its format has one.
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
    envelope: Any = None


@dataclass(frozen=True, slots=True)
class Counts(Compact):
    """Counts settled records by outcome: `read` = `acknowledged` + `dead_lettered` + `dropped` + `rejected`.

    `dropped` were dropped on purpose, by a transform or an option. `rejected` could not be made or sent and were passed over, because
    `errors.tolerance` is all and there is no dead-letter topic. `too_long` lines are counted in one of these as well. `kept` are also
    counted as acknowledged: records that were sent unchanged although a step failed, because its `on_error` is keep.
    """

    read: int = 0
    read_bytes: int = 0
    acknowledged: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    rejected: int = 0
    too_long: int = 0
    kept: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Returns the sum, field by field."""
        return Counts(*map(add, _COUNTED(self), _COUNTED(other)))


_COUNTED = attrgetter(*(one.name for one in fields(Counts)))


class OffsetRange(NamedTuple):
    """The lowest and the highest offset of records in one partition of a topic."""

    topic: str
    partition: int
    first: int
    last: int


AccountState = Literal["", "read", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Account:
    """Accounts for everything that was read of one file, over all batches so far.

    `path` is its last known name. `state` is "" or "read" for a file that was read, or is being read: "read" if it had failed before. `why`
    explains in words. `undated` records had no time to be selected by, and were sent.
    """

    counts: Counts = field(default_factory=Counts)
    delivered: tuple[OffsetRange, ...] = ()
    path: str = ""
    state: AccountState = ""
    why: str = ""
    undated: int = 0

    def __add__(self, later: Account) -> Account:
        """Returns this account plus a later one of the same file."""
        places: dict[tuple[str, int], OffsetRange] = {}
        for one in (*self.delivered, *later.delivered):
            known = places.get(one[:2], one)
            places[one[:2]] = OffsetRange(*one[:2], min(known.first, one.first), max(known.last, one.last))
        return Account(
            self.counts + later.counts,
            tuple(sorted(places.values())),
            later.path or self.path,
            later.state or self.state,
            later.why if later.state else later.why or self.why,
            self.undated + later.undated,
        )


class Rejection(NamedTuple):
    """Tells where a bad record lies and why it is bad, never its bytes. `record` is its number in the file, from 1; 0 if `path` names it.

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
    """A record for which a step failed and that was sent unchanged (`kept`) or dropped, as the step's `on_error` says; never its bytes.

    All other fields are as in `Rejection`.
    """

    path: str
    start: int
    end: int
    reason: str
    record: int
    kept: bool
    by_record: bool = False


LossReason = Literal["destroyed", "too_long", "rejected", "damaged", "hole"]
"""Why bytes were given up. destroyed: gone before they were read. too_long: beyond `line.max_bytes`, cut or dropped by option. rejected: a
bad record, passed over because `errors.tolerance` is all and there is no dead-letter topic, or the part that its dead letter could not
carry. damaged: the rest of a packed file that cannot be unpacked. hole: a run of NUL bytes that nobody wrote, left by a truncation under a
writer or by a crash of the host."""


class Loss(NamedTuple):
    """An entry of the loss ledger: `size_bytes` bytes in `records` records between `start` and `end` of a file were given up.

    Neighbours with one reason are one entry, so `size_bytes` may be less than the range. `records` is 0 if nobody can know it: the bytes
    were destroyed. `detail` explains in words. `at_ms` is in epoch milliseconds.
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
    """The total of what one connector gave up for one reason."""

    size_bytes: int
    records: int
    entries: int
