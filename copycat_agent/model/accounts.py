"""What became of records, and what was given up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from copycat_agent.model.offsets import Reduced, SourcePartition


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
