"""How far a spooled file is settled: it is read as one, or split into ranges that are read side by side (`delivery.ordering: none`).

Each range has a row of its own, whose key holds its bounds. All rows are saved in one transaction before the first byte is read, so that a
start finds the same ranges, whatever was killed when. When all are read, the file's own row replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.spool_dir.rows import FileRow
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS

CHANGED = "it was changed after a part of it was sent"
_CHANGED_HINT = "drop it again under another name, or set on_changed_file: continue"


def set_aside(offset: SourceOffset) -> SourceOffset:
    """Returns the offset to save for a file that was changed while it was read, and is not read on."""
    return replace(offset, done=False, trouble=f"{CHANGED}; {_CHANGED_HINT}")


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of a large file: from `start` up to, not including, `end`, in bytes or record numbers."""

    partition: SourcePartition
    start: int
    end: int
    offset: SourceOffset


def ranges_of(rows: Sequence[FileRow]) -> tuple[FileRange, ...]:
    """Returns the saved ranges of one file, in order."""
    found = [FileRange(row.partition, *row.bounds, row.offset) for row in rows if row.bounds is not None]
    return tuple(sorted(found, key=lambda one: one.start))


@dataclass(frozen=True, slots=True)
class FileProgress:
    """How far a file is settled: by its `offset`, or by the offsets of its `ranges` if there are any.

    `counts`: positions are record numbers. `packed_bytes`: settled bytes of the file on disk, if positions count something else.
    """

    offset: SourceOffset
    counts: bool = False
    ranges: tuple[FileRange, ...] = ()
    packed_bytes: int = 0

    @property
    def first(self) -> FileRange | None:
        """The range whose row keeps the file's first version, and whether it is set aside; None: the file's own row does."""
        return self.ranges[0] if self.ranges else None

    @property
    def first_offset(self) -> SourceOffset:
        """The offset in that row."""
        return self.ranges[0].offset if self.ranges else self.offset

    @property
    def is_begun(self) -> bool:
        """Whether anything is settled."""
        return self.offset.position > 0 or any(one.offset.position > one.start for one in self.ranges)

    @property
    def position(self) -> int:
        """How far the file is settled; the sum over its ranges if it is split."""
        return sum(one.offset.position - one.start for one in self.ranges) if self.ranges else self.offset.position

    @property
    def records(self) -> int:
        """How many records are settled."""
        if self.ranges and self.counts:
            return self.position
        return sum(one.offset.records for one in self.ranges) if self.ranges else self.offset.records

    def is_of(self, version: tuple[int, int]) -> bool:
        """Returns whether the file had this size and modification time when it was begun."""
        return (self.first_offset.size, self.first_offset.mtime_ns) == version

    def has_other_ranges(self, version: tuple[int, int]) -> bool:
        """Returns whether the ranges are of an earlier version of the file: they do not cover the present one."""
        return any((one.offset.size, one.offset.mtime_ns) != version for one in self.ranges)

    @property
    def is_of_other_unit(self) -> bool:
        """Whether the saved position is a record number and the format counts bytes, or the other way round.

        Before a record number there are no bytes, so such rows have hashes of the head only. Rows that a person has set have none.
        """
        if self.ranges:
            return self.counts != (self.ranges[-1].end == ENDLESS)
        proof = self.offset.fingerprint
        return self.counts if proof.tail_bytes else bool(proof.head_bytes) and not self.counts

    def unread(self, size: int) -> int:
        """Returns how many bytes on disk, of `size`, are not settled; an estimate for packed files and those that count records."""
        if self.ranges:
            return sum(self.unread_of(one, size) for one in self.ranges)
        is_estimate = self.offset.compression or self.counts
        return max(0, size - (self.packed_bytes if is_estimate else self.offset.position))

    def unread_of(self, one: FileRange, size: int) -> int:
        """Returns the part of `unread` that belongs to one range; all of it or nothing if positions are record numbers."""
        if self.counts:
            return 0 if one.offset.done else size // len(self.ranges)
        return one.end - one.offset.position

    def next_range(self, in_flight: Container[SourcePartition]) -> FileRange | None:
        """Returns a range that is unread and that no task reads. If all are read and the file's row is not saved yet, the last one."""
        free = [one for one in self.ranges if one.partition not in in_flight]
        if len(free) == len(self.ranges) and all(one.offset.done for one in free):
            return free[-1] if free else None
        return next((one for one in free if not one.offset.done), None)

    def with_offset(self, one: FileRange | None, offset: SourceOffset, packed_bytes: int = 0) -> FileProgress:
        """Returns the progress with this offset of the file, or of one of its ranges."""
        packed_bytes = max(self.packed_bytes, packed_bytes)
        if one is None:
            return replace(self, offset=offset, packed_bytes=packed_bytes)
        ranges = tuple(replace(each, offset=offset) if each.partition == one.partition else each for each in self.ranges)
        return replace(self, ranges=ranges, packed_bytes=packed_bytes)

    def cut_into(self, ranges: Sequence[FileRange]) -> FileProgress:
        """Returns the progress of the file split into these ranges."""
        return replace(self, ranges=tuple(ranges))

    def packed_as(self, codec: str) -> FileProgress:
        """Returns the progress with a known compression, "" for none."""
        return replace(self, offset=replace(self.offset, compression=codec))

    def joined(self, asked_for: Callable[[SourcePartition], SourceOffset | None]) -> SourceOffset | None:
        """Returns the file's own offset, which replaces its ranges' rows, once all ranges are read; None before that.

        `asked_for` returns the offset of a range that is not saved yet, and will be before this one is.
        """
        offsets = [asked_for(one.partition) or one.offset for one in self.ranges]
        if not offsets or not all(offset.done for offset in offsets):
            return None
        trouble = next((offset.trouble for offset in offsets if offset.trouble), "")
        last = offsets[-1]
        records = last.records if self.counts else sum(offset.records for offset in offsets)
        position = last.position if self.counts else last.size
        return SourceOffset(position, records, done=True, path=last.path, size=last.size, mtime_ns=last.mtime_ns, trouble=trouble)
