"""How far a spooled file is settled: read in one go, or cut into ranges that are read side by side (`delivery.ordering: none`).

Each range has a row of its own, whose key says where it begins and ends. All rows are saved in one transaction before the first
byte is read, so that a start finds the same ranges whatever was killed when. When all are read, the file's own row takes their place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from copycat_agent.sources.spool_dir.rows import Row

CHANGED = "it was changed after a part of it was sent"
_CHANGED_HINT = "drop it again under another name, or set on_changed_file: continue"


def set_aside(offset: SourceOffset) -> SourceOffset:
    """Returns the offset to save of a file that was changed while it was read, and is not read on."""
    return replace(offset, done=False, trouble=f"{CHANGED}; {_CHANGED_HINT}")


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of a large file: from `start` up to, not including, `end`, bytes or record numbers."""

    partition: SourcePartition
    start: int
    end: int
    offset: SourceOffset


def ranges_of(rows: Sequence[Row]) -> tuple[FileRange, ...]:
    """The ranges that are saved of one file, in order."""
    found = [FileRange(row.partition, *row.bounds, row.offset) for row in rows if row.bounds is not None]
    return tuple(sorted(found, key=lambda one: one.start))


@dataclass(frozen=True, slots=True)
class FileProgress:
    """What is settled of a file. `offset` counts, or the offsets of its `ranges` when there are any.

    `counts`: positions are record numbers. `packed_bytes`: settled bytes as they stand on the disk, where positions count something else.
    """

    offset: SourceOffset
    counts: bool = False
    ranges: tuple[FileRange, ...] = ()
    packed_bytes: int = 0

    @property
    def first(self) -> FileRange | None:
        """The range whose row says what the file was when it was begun, and that it is set aside; None: the file's own row does."""
        return self.ranges[0] if self.ranges else None

    @property
    def first_offset(self) -> SourceOffset:
        """The offset in that row."""
        return self.ranges[0].offset if self.ranges else self.offset

    @property
    def is_begun(self) -> bool:
        """Whether something is settled."""
        return self.offset.position > 0 or any(one.offset.position > one.start for one in self.ranges)

    @property
    def position(self) -> int:
        """How far the file is settled; of one that is cut the sum over its ranges."""
        return sum(one.offset.position - one.start for one in self.ranges) if self.ranges else self.offset.position

    @property
    def records(self) -> int:
        """How many records are settled."""
        if self.ranges and self.counts:
            return self.position
        return sum(one.offset.records for one in self.ranges) if self.ranges else self.offset.records

    def is_of(self, version: tuple[int, int]) -> bool:
        """Whether the file had this size and time of change when it was begun."""
        return (self.first_offset.size, self.first_offset.mtime_ns) == version

    def has_other_ranges(self, version: tuple[int, int]) -> bool:
        """Whether the ranges are those of what the file was before it was changed: they do not cover what it is now."""
        return any((one.offset.size, one.offset.mtime_ns) != version for one in self.ranges)

    @property
    def is_of_other_unit(self) -> bool:
        """Whether what is settled is a record's number and the format wants a byte, or the other way round.

        There are no bytes before a record's number, so such rows have hashes of the head only. Those that a person has set have none.
        """
        if self.ranges:
            return self.counts != (self.ranges[-1].end == ENDLESS)
        proof = self.offset.fingerprint
        return self.counts if proof.tail_bytes else bool(proof.head_bytes) and not self.counts

    def unread(self, size: int) -> int:
        """Bytes on the disk, of `size`, that are not settled; of packed files and those that count records an estimate."""
        if self.ranges:
            return sum(self.unread_of(one, size) for one in self.ranges)
        is_estimate = self.offset.compression or self.counts
        return max(0, size - (self.packed_bytes if is_estimate else self.offset.position))

    def unread_of(self, one: FileRange, size: int) -> int:
        """The share of `unread` that is one range's; where positions are record numbers all of it or nothing."""
        if self.counts:
            return 0 if one.offset.done else size // len(self.ranges)
        return one.end - one.offset.position

    def next_range(self, in_flight: Container[SourcePartition]) -> FileRange | None:
        """A range that nobody reads and that is not read yet. When all are read, and nobody has said so, the last."""
        free = [one for one in self.ranges if one.partition not in in_flight]
        if len(free) == len(self.ranges) and all(one.offset.done for one in free):
            return free[-1] if free else None
        return next((one for one in free if not one.offset.done), None)

    def with_offset(self, one: FileRange | None, offset: SourceOffset, packed_bytes: int = 0) -> FileProgress:
        """The same with this offset of the file, or of one of its ranges."""
        packed_bytes = max(self.packed_bytes, packed_bytes)
        if one is None:
            return replace(self, offset=offset, packed_bytes=packed_bytes)
        ranges = tuple(replace(each, offset=offset) if each.partition == one.partition else each for each in self.ranges)
        return replace(self, ranges=ranges, packed_bytes=packed_bytes)

    def cut_into(self, ranges: Sequence[FileRange]) -> FileProgress:
        """The same, to be read range by range."""
        return replace(self, ranges=tuple(ranges))

    def packed_as(self, codec: str) -> FileProgress:
        """The same of a file whose compression is known, "" for none."""
        return replace(self, offset=replace(self.offset, compression=codec))

    def joined(self, asked_for: Callable[[SourcePartition], SourceOffset | None]) -> SourceOffset | None:
        """The file's own offset once all of its ranges are read, whose rows it replaces; None while some are not.

        `asked_for` gives the offset of a range that is not saved yet, and will be before this one is.
        """
        offsets = [asked_for(one.partition) or one.offset for one in self.ranges]
        if not offsets or not all(offset.done for offset in offsets):
            return None
        trouble = next((offset.trouble for offset in offsets if offset.trouble), "")
        last = offsets[-1]
        records = last.records if self.counts else sum(offset.records for offset in offsets)
        position = last.position if self.counts else last.size
        return SourceOffset(position, records, done=True, path=last.path, size=last.size, mtime_ns=last.mtime_ns, trouble=trouble)
