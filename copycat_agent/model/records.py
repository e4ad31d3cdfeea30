"""Records and where they come from: who owns what, how far it is settled, what became of it, and what was given up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import add, attrgetter
from typing import Any, Literal, NamedTuple, overload


class Compact:
    """A frozen dataclass that is pickled as its class and the arguments that make it anew.

    What frozen dataclasses with slots do by themselves takes five times as long, which a log that trickles pays twenty times a second.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Class and arguments."""
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
    """The owner of an offset. `key` names one generation of one file (`sources.files.identity`), never a path alone."""

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

    `position` is the next byte to read (for formats that cannot seek: the next record's number). `records` counts the
    records before it. `done` means that nothing will ever follow. `skipping` means that `position` lies inside an over-long
    line whose beginning is settled: the rest of that line belongs to it. `path` is the last saved name: for people, and it tells which log
    the file belongs to; it may lag behind a rename until the next save.
    `size` is how large the file was known to be. `gone_ms` is when its file left its patterns, was found deleted, or was begun anew,
    whichever this row is about (epoch milliseconds), 0 while it is there. `compression` is how a packed file is packed (a name in
    `sources.files.packing`), "" for all others: then `position` counts unpacked bytes and `size` is the packed size on disk; `done` means
    that everything up to that size is read. Of a spooled file:
    `mtime_ns` is when what was read of it was last changed, and `trouble` says why it cannot be read to its end: `done` means
    then that it is given up, and has to be set aside. `cut`: `position` lies between two parts of a record that goes in parts, and this
    is what its format has to know of it (`formats.model`); `skipping` then, too. `cursor` is where the source itself says it is, any JSON
    value as text, which only the source compares; `position` then counts the records before it, and `mtime_ns` is when something of the
    partition was last settled, 0 while it is where it begins. "" for files.
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
    """What a source remembers of its connector besides positions, as a small JSON object that only the source reads."""

    values: Mapping[str, Any]


SavedRow = SourceOffset | SourceState
"""A row of what is saved for a connector: the offset of a partition, or its `SourceState`, whose partition has the key `STATE_KEY`."""
STATE_KEY = ""
"""No partition of a source has it."""
EARLIER_STATE_KEY = "started"


def state_partition(connector: str) -> SourcePartition:
    """The partition with which a connector's state goes among its offsets."""
    return SourcePartition(connector, STATE_KEY)


def offsets_in(saved: Mapping[SourcePartition, SavedRow]) -> dict[SourcePartition, SourceOffset]:
    """The offsets among what is saved."""
    return {partition: row for partition, row in saved.items() if isinstance(row, SourceOffset)}


@overload
def from_earlier_version(partition: SourcePartition, offset: SourceOffset) -> tuple[SourcePartition, SavedRow]: ...
@overload
def from_earlier_version(partition: SourcePartition, offset: SourceOffset | None) -> tuple[SourcePartition, SavedRow | None]: ...
def from_earlier_version(partition: SourcePartition, offset: SourceOffset | None) -> tuple[SourcePartition, SavedRow | None]:
    """Returns the row as it is saved now. Versions up to 8 of the offset store kept the state of log files as an offset named "started"."""
    if partition.key != EARLIER_STATE_KEY or (offset is not None and offset.cursor):
        return partition, offset
    state = None if offset is None else SourceState({name: getattr(offset, where) for name, where in _EARLIER_FIELDS.items()})
    return state_partition(partition.connector), state


def as_earlier_version(state: SourceState) -> SourceOffset | None:
    """Returns a state as versions before have it among the offsets; None for one that they do not know."""
    if state.values.keys() != _EARLIER_FIELDS.keys():
        return None
    return SourceOffset(**{where: state.values[name] for name, where in _EARLIER_FIELDS.items()})


_EARLIER_FIELDS = {"first_ms": "position", "seen_ms": "size", "rotations": "records", "ahead_ns": "mtime_ns", "boot": "trouble"}


class Column(NamedTuple):
    """A column of a file. `type` is spelt as Spark SQL does: `string`, `bigint`, `decimal(10,2)`, `array<string>`, `struct<a: int>`."""

    name: str
    type: str = "string"
    nullable: bool = True


class Schema(NamedTuple):
    """What a file says its records look like: from its header, or its own schema. `avro` is that, as JSON, of an Avro file."""

    columns: tuple[Column, ...]
    avro: str = ""


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
    envelope: Any = None


@dataclass(frozen=True, slots=True)
class Counts(Compact):
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

    def __add__(self, other: Counts) -> Counts:
        """Sum, field by field."""
        return Counts(*map(add, _COUNTED(self), _COUNTED(other)))


_COUNTED = attrgetter(*(one.name for one in fields(Counts)))


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
    """Where a bad record lies and why it is bad; never its bytes. `record` is its number in the file, from 1, 0 where `path` names it.

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
