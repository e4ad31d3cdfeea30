"""The kinds of a source's partitions and offsets: records with positions of their own, Kafka partitions, or whole files.

`ContractSource` plans, retries and saves for all of them alike, and calls a `PartitionKind` where they differ.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from copycat_agent.model import Loss, SourceOffset, SourcePartition, Split, SplitResult, Stretch
from copycat_agent.sources.base import FileState, FileView, Saved
from copycat_agent.sources.contract import ENDLESS, AuthorSource, Found, Position, as_text, from_text
from copycat_agent.sources.planner import READY, FileBackoff
from copycat_agent.sources.spool_dir.outcomes import damage_loss

FILES_PER_BATCH = 128
"""Most files of one batch. Each may keep some MiB of fetched data until its records are acknowledged."""


@dataclass(eq=False, slots=True)
class KnownPartition:
    """A known partition.

    `offset` is the saved offset; while `met` is true, the partition is new and its first offset is not saved yet. `found` is the partition
    as the last look found it. `next` is what to read next, or what a task is reading; `unread` is about how many bytes that is. `behind`
    is the number of records up to its end, as last known; None if unknown. `why` is what went wrong last, `trouble` what the source
    itself reports. `unread_since_ms` is since when something is unread (epoch milliseconds), 0 while nothing is. `failing_since` is when
    reading first failed (`time.monotonic()`), 0 while it works. `is_hopeless`: a run to the end does not wait for it.
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
        """Whether the last attempt could not read it, or met another version."""
        return self.failing_since > 0

    def forget_next(self) -> None:
        """Forgets what to read next: the next look finds it out."""
        self.found = self.next = None
        self.unread = 0


class PartitionKind(Protocol):
    """How the offsets of one kind of partition are made and interpreted."""

    most_per_batch: int | None = None
    """Most partitions in one batch; None for no limit."""
    least_seconds: float = 0.0
    """Seconds that a batch may take even if `delivery.max_batch_time` is shorter."""
    tells_lag: bool = False
    """Whether a look yields the lag, and is useful even while all partitions have something to read."""
    takes_turns: bool = True
    """Whether a partition that was read and has more goes behind all others."""

    def is_position(self, offset: SourceOffset) -> bool:
        """Returns whether a saved row belongs to a partition of this kind."""

    def position_of(self, offset: SourceOffset) -> Position:
        """Returns the position in the source's own form."""

    def shown_to_look(self, known: KnownPartition) -> Position:
        """Returns the value that `look` gets for this partition."""

    def has_moved(self, offset: SourceOffset) -> bool:
        """Returns whether anything of the partition was ever settled, even if it was a stretch without records."""

    def first_offset(self, found: Found) -> SourceOffset:
        """Returns the offset to save for a new partition before anything of it is read."""

    def next_of(self, found: Found, offset: SourceOffset, position: Position) -> Stretch | None:
        """Returns what to read next; None if there is nothing."""

    def unread_of(self, found: Found, offset: SourceOffset) -> int:
        """Returns about how many bytes are unread."""

    def behind_of(self, found: Found, position: Position) -> int | None:
        """Returns the number of records from `position` to the end; None if unknown."""
        del found, position
        return None

    def split_of(self, known: KnownPartition) -> Split:
        """Returns a split for a task to read `known.next`."""

    def outcome_of(self, result: SplitResult) -> Saved:
        """Returns the offset to save for a result, and the losses to enter with it."""

    def losses_of(self, partition: SourcePartition, offset: SourceOffset, why: str) -> Sequence[Loss]:
        """Returns what is lost with a partition that is gone, as far as it is known."""

    def view_of(self, known: KnownPartition) -> FileView:
        """Returns the partition as it is shown to people."""


class RecordPartitions(PartitionKind):
    """Partitions of records with positions of their own."""

    def __init__(self, source: AuthorSource, most_bytes: int = 0) -> None:
        """`most_bytes` limits a stretch that must go in one batch, unless the source sets its own limit."""
        self._source = source
        self._most_bytes = most_bytes

    def is_position(self, offset: SourceOffset) -> bool:
        return bool(offset.cursor)

    def position_of(self, offset: SourceOffset) -> Position:
        return from_text(offset.cursor)

    def shown_to_look(self, known: KnownPartition) -> Position:
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

    def split_of(self, known: KnownPartition) -> Split:
        assert known.next is not None
        return Split(known.partition, known.next.name, "", known.offset, ENDLESS, stretch=known.next)

    def outcome_of(self, result: SplitResult) -> Saved:
        return result.offset, result.losses

    def losses_of(self, partition: SourcePartition, offset: SourceOffset, why: str) -> Sequence[Loss]:
        del partition, offset, why
        return ()

    def view_of(self, known: KnownPartition) -> FileView:
        why = known.why or known.trouble
        state: FileState = "failing" if why else "following"
        offset = known.offset
        view = FileView(offset.path, known.partition.key, offset.position, 0, offset.records, state, is_open=False)
        return view._replace(
            read_at=known.read_at, unread=known.unread, why=why, counts_records=True, cursor=offset.cursor, behind=known.behind
        )


class OffsetPartitions(RecordPartitions):
    """Kafka partitions: the position that is counted and shown is the offset."""

    tells_lag = True

    def behind_of(self, found: Found, position: Position) -> int | None:
        return None if found.end is None else max(0, found.end - position["offset"])

    def split_of(self, known: KnownPartition) -> Split:
        split = super().split_of(known)
        assert split.stretch is not None
        return replace(split, offset=replace(split.offset, position=split.stretch.start))


class FilePartitions(PartitionKind):
    """Whole files, which never change. A replaced file is another partition."""

    most_per_batch = FILES_PER_BATCH
    takes_turns = False

    def __init__(self, *, counts_records: bool) -> None:
        """`counts_records`: the format's positions are record numbers, not bytes."""
        self._counts_records = counts_records

    def is_position(self, offset: SourceOffset) -> bool:
        return not offset.cursor

    def position_of(self, offset: SourceOffset) -> Position:
        return {"position": offset.position, "done": offset.done, "damaged": bool(offset.trouble)}

    def shown_to_look(self, known: KnownPartition) -> Position:
        return {**known.position, "name": known.offset.path, "failed": known.failed}

    def has_moved(self, offset: SourceOffset) -> bool:
        return bool(offset.position or offset.done)

    def first_offset(self, found: Found) -> SourceOffset:
        return SourceOffset(0, path=found.name or found.key, size=found.size, mtime_ns=found.mtime_ms * 1_000_000, done=not found.size)

    def next_of(self, found: Found, offset: SourceOffset, position: Position) -> Stretch | None:
        return None if offset.done else Stretch(found.key, offset.path, position, work=found.work)

    def unread_of(self, found: Found, offset: SourceOffset) -> int:
        """Returns the whole size for a packed file, or one with record numbers, until it is read to its end."""
        counts_other = self._counts_records or bool(offset.compression)
        return found.size if counts_other else max(0, found.size - offset.position)

    def split_of(self, known: KnownPartition) -> Split:
        assert known.next is not None
        mtime_ms = known.offset.mtime_ns // 1_000_000
        return Split(known.partition, known.next.name, "", known.offset, ENDLESS, final=True, mtime_ms=mtime_ms, stretch=known.next)

    def outcome_of(self, result: SplitResult) -> Saved:
        """Marks the file as done if it is read to its end, or to where it is damaged: the rest after the damage is a loss."""
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
            if start == end:  # all of it was delivered, but `done` was not saved yet
                return ()
        return (Loss(partition, offset.path, start, end, end - start, 0, "destroyed", words, int(time.time() * 1000)),)

    def view_of(self, known: KnownPartition) -> FileView:
        offset = known.offset
        why = known.why or known.trouble or offset.trouble
        state: FileState = "failing" if why else "done" if offset.done else "following"
        view = FileView(offset.path, known.partition.key, offset.position, offset.size, offset.records, state, is_open=False)
        view = view._replace(read_at=known.read_at, unread=known.unread, why=why, compression=offset.compression)
        return view._replace(counts_records=self._counts_records)
