"""What the partitions of a source on the contract are: records with positions of their own, or whole files that the agent parses.

`ContractSource` plans, retries and saves for both alike, and asks a `PartitionKind` what its offsets mean.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from copycat_agent.model import Loss, SourceOffset, SourcePartition, Split, SplitResult, Stretch
from copycat_agent.sources.base import FileState, FileView, Saved
from copycat_agent.sources.contract import ENDLESS, as_text, from_text
from copycat_agent.sources.planner import READY, FileBackoff
from copycat_agent.sources.spool_dir.outcomes import damage_loss

if TYPE_CHECKING:
    from copycat_agent.sources.contract import AuthorSource, Found, Position

FILES_PER_BATCH = 128
"""Each may keep some MiB of what was fetched until its records are acknowledged; a batch ends with the one that brings it to its bytes."""


@dataclass(eq=False, slots=True)
class Partition:
    """One that is known. `offset` is saved unless `met`: then where it begins has yet to be. `found`: as the last look has it.

    `next` is what to read next, or what a task reads, and `unread` about how many bytes that stands for.
    `behind`: records up to its end as it was when that was last known, None where nobody knows. `why`: what went wrong last,
    `trouble`: what the source says is wrong with it.
    `unread_since_ms`: since when something is unread, 0 while nothing is. `failing_since`: when it first could not be read, by
    `time.monotonic()`, 0 where it can.
    `is_hopeless`: a run to the end does not wait for it.
    """

    partition: SourcePartition
    offset: SourceOffset
    position: Position
    met: bool = False
    found: Found | None = None
    trouble: str = ""
    next: Stretch | None = None
    unread: int = 0
    behind: int | None = None
    why: str = ""
    backoff: FileBackoff = READY
    failing_since: float = 0.0
    is_hopeless: bool = False
    unread_since_ms: int = 0
    read_at: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether it could not be read when that was tried last, or was another version by then."""
        return self.failing_since > 0

    def forget_next(self) -> None:
        """What to read next has to be found out by another look."""
        self.found = self.next = None
        self.unread = 0


class PartitionKind(Protocol):
    """What offsets of a source's partitions mean."""

    @property
    def most_per_batch(self) -> int | None:
        """Partitions of one batch; None: no matter how many."""

    @property
    def least_seconds(self) -> float:
        """How long a batch may take at least, whatever `delivery.max_batch_time` says."""

    @property
    def tells_lag(self) -> bool:
        """Whether a look says how far behind the end what is settled is, so that looks are of use while all partitions are read."""

    @property
    def takes_turns(self) -> bool:
        """Whether all others are read before a partition that was read, and has more, is read on."""

    def is_position(self, offset: SourceOffset) -> bool:
        """Whether a saved row is one of such a partition."""

    def position_of(self, offset: SourceOffset) -> Position:
        """The position as the source knows it."""

    def shown_to_look(self, known: Partition) -> Position:
        """What the source is given of it when it looks."""

    def has_moved(self, offset: SourceOffset) -> bool:
        """Whether something of the partition was ever settled, were it a stretch without records."""

    def first_offset(self, found: Found) -> SourceOffset:
        """What is saved of a new partition before anything is read of it."""

    def next_of(self, found: Found, offset: SourceOffset, position: Position) -> Stretch | None:
        """What to read next of what was found; None when there is nothing."""

    def unread_of(self, found: Found, offset: SourceOffset) -> int:
        """About how many bytes are unread of what was found."""

    def behind_of(self, found: Found, position: Position) -> int | None:
        """Records up to the end of what was found; None where that is not known."""

    def split_of(self, known: Partition) -> Split:
        """What a task is given: `known.next`."""

    def outcome_of(self, result: SplitResult) -> Saved:
        """The offset to save of a result, and what is given up with it."""

    def losses_of(self, partition: SourcePartition, offset: SourceOffset, why: str) -> Sequence[Loss]:
        """What is lost with a partition that is gone, as far as anybody can know."""

    def view_of(self, known: Partition) -> FileView:
        """It, for people."""


class RecordPartitions:
    """Records with positions of their own."""

    most_per_batch: int | None = None
    least_seconds = 0.0
    takes_turns = True
    tells_lag = False

    def __init__(self, source: AuthorSource, most_bytes: int = 0) -> None:
        """`most_bytes`: of what goes as one, in one batch, where the source says nothing else."""
        self._source = source
        self._most_bytes = most_bytes

    def is_position(self, offset: SourceOffset) -> bool:
        return bool(offset.cursor)

    def position_of(self, offset: SourceOffset) -> Position:
        return from_text(offset.cursor)

    def shown_to_look(self, known: Partition) -> Position:
        return known.position

    def has_moved(self, offset: SourceOffset) -> bool:
        return bool(offset.records or offset.mtime_ns)

    def first_offset(self, found: Found) -> SourceOffset:
        return SourceOffset(0, path=found.name or found.key, cursor=as_text(found.start))

    def next_of(self, found: Found, offset: SourceOffset, position: Position) -> Stretch | None:
        del offset
        stretch = self._source.plan(found, position)
        is_open = stretch is not None and stretch.whole and not stretch.most_bytes
        return stretch._replace(most_bytes=self._most_bytes) if stretch is not None and is_open else stretch

    def unread_of(self, found: Found, offset: SourceOffset) -> int:
        del offset
        return found.unread

    def behind_of(self, found: Found, position: Position) -> int | None:
        del found, position
        return None

    def split_of(self, known: Partition) -> Split:
        assert known.next is not None
        return Split(known.partition, known.next.name, "", known.offset, ENDLESS, stretch=known.next)

    def outcome_of(self, result: SplitResult) -> Saved:
        return result.offset, result.losses

    def losses_of(self, partition: SourcePartition, offset: SourceOffset, why: str) -> Sequence[Loss]:
        del partition, offset, why
        return ()

    def view_of(self, known: Partition) -> FileView:
        why = known.why or known.trouble
        state: FileState = "failing" if why else "following"
        offset = known.offset
        view = FileView(offset.path, known.partition.key, offset.position, 0, offset.records, state, is_open=False)
        return view._replace(
            read_at=known.read_at, unread=known.unread, why=why, counts_records=True, cursor=offset.cursor, behind=known.behind
        )


class OffsetPartitions(RecordPartitions):
    """Partitions of Kafka: what counts as position is the offset itself."""

    tells_lag = True

    def behind_of(self, found: Found, position: Position) -> int | None:
        return None if found.end is None else max(0, found.end - position["offset"])

    def split_of(self, known: Partition) -> Split:
        split = super().split_of(known)
        assert split.stretch is not None
        return replace(split, offset=replace(split.offset, position=split.stretch.start))


class FilePartitions:
    """Whole files, each of one version that never changes. A replaced file is another partition."""

    most_per_batch = FILES_PER_BATCH
    least_seconds = 0.0
    takes_turns = False
    tells_lag = False

    def __init__(self, *, counts_records: bool) -> None:
        """`counts_records`: positions are numbers of records, as the format has it."""
        self._counts_records = counts_records

    def is_position(self, offset: SourceOffset) -> bool:
        return not offset.cursor

    def position_of(self, offset: SourceOffset) -> Position:
        return {"position": offset.position, "done": offset.done, "damaged": bool(offset.trouble)}

    def shown_to_look(self, known: Partition) -> Position:
        return {**known.position, "name": known.offset.path, "failed": known.failed}

    def has_moved(self, offset: SourceOffset) -> bool:
        return bool(offset.position or offset.done)

    def first_offset(self, found: Found) -> SourceOffset:
        return SourceOffset(0, path=found.name or found.key, size=found.size, mtime_ns=found.mtime_ms * 1_000_000, done=not found.size)

    def next_of(self, found: Found, offset: SourceOffset, position: Position) -> Stretch | None:
        return None if offset.done else Stretch(found.key, offset.path, position, work=found.work)

    def unread_of(self, found: Found, offset: SourceOffset) -> int:
        """Of a packed file, or one whose records are counted, that is all until it is read."""
        counts_other = self._counts_records or bool(offset.compression)
        return found.size if counts_other else max(0, found.size - offset.position)

    def behind_of(self, found: Found, position: Position) -> int | None:
        del found, position
        return None

    def split_of(self, known: Partition) -> Split:
        assert known.next is not None
        mtime_ms = known.offset.mtime_ns // 1_000_000
        return Split(known.partition, known.next.name, "", known.offset, ENDLESS, final=True, mtime_ms=mtime_ms, stretch=known.next)

    def outcome_of(self, result: SplitResult) -> Saved:
        """What is done is read to its end, or to where it is damaged: what lies behind that is lost."""
        if not result.damage:
            is_over = result.at_end and result.error is None and not result.changed
            return replace(result.offset, done=is_over), result.losses
        offset = replace(result.offset, done=True, trouble=result.damage)
        loss = damage_loss(replace(result, offset=offset), counts_records=self._counts_records)
        return offset, result.losses if loss is None else (*result.losses, loss)

    def losses_of(self, partition: SourcePartition, offset: SourceOffset, why: str) -> Sequence[Loss]:
        if offset.done:
            return ()
        if self._counts_records or offset.compression:
            unit = "record" if self._counts_records else "unpacked byte"
            words = f"{why}; it had {offset.size} bytes, and was read up to {unit} {offset.position}"
            start, end = offset.position, offset.position + offset.size
        else:
            words, start, end = why, offset.position, max(offset.position, offset.size)
            if start == end:  # all of it was delivered: only that this is its end was not saved yet
                return ()
        return (Loss(partition, offset.path, start, end, end - start, 0, "destroyed", words, int(time.time() * 1000)),)

    def view_of(self, known: Partition) -> FileView:
        offset = known.offset
        why = known.why or known.trouble or offset.trouble
        state: FileState = "failing" if why else "done" if offset.done else "following"
        view = FileView(offset.path, known.partition.key, offset.position, offset.size, offset.records, state, is_open=False)
        view = view._replace(read_at=known.read_at, unread=known.unread, why=why, compression=offset.compression)
        return view._replace(counts_records=self._counts_records)
