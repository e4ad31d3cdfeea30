"""What is known of a followed file, as values: what looks at it found, what tasks did with it, what it waits for.

All are frozen; only `KnownFile` and `TrackedFile` replace them. Sizes are in bytes; of a packed file they are packed
bytes, and positions unpacked ones.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import ClassVar

from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition, SplitResult


@dataclass(frozen=True, slots=True)
class FileStat:
    """What looks at the file found.

    Times ending in `_ns` are epoch nanoseconds by the clock of its file system, 0 before the first look. A scan sorts out what was
    `rewritten` or `replaced`.
    """

    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    """Time of its last change (ctime)."""
    met_ns: int = 0
    """Its ctime when it was first seen under its present name: what was made later was made while this file stood there."""
    grown_at: float = field(default_factory=time.monotonic)
    """When it was last found to be written to, `time.monotonic()`."""
    cut: tuple[int, int] | None = None
    """It was seen to shrink, from the first to the second size."""
    unseen: int = 0
    """Size of content that came and was cut away again between two looks, so that nobody read it."""
    rewritten: bool = False
    """It was found to hold other bytes than were read."""
    replaced: bool = False
    """Its inode is another file's now."""

    def has_other_content(self, info: os.stat_result) -> bool:
        """Whether size or time of last write (mtime) are others than in the last look."""
        return info.st_size != self.size or info.st_mtime_ns != self.mtime_ns


def observe(seen: FileStat, info: os.stat_result, now: float, *, is_packed: bool) -> FileStat:
    """What is known after a look at `now` (`time.monotonic()`).

    An archive that became smaller is not marked as cut: a task finds out what it is.
    """
    met_ns = seen.met_ns or info.st_ctime_ns
    if not seen.has_other_content(info):
        return replace(seen, ctime_ns=info.st_ctime_ns, met_ns=met_ns)
    cut, unseen = seen.cut, seen.unseen
    if info.st_size < seen.size and (not is_packed or not info.st_size):
        if seen.rewritten and cut is None:
            unseen = seen.size
        largest, smallest = cut or (seen.size, info.st_size)  # once cut, what it grows to is not what it held
        cut = largest, min(smallest, info.st_size)
    return FileStat(info.st_size, info.st_mtime_ns, info.st_ctime_ns, met_ns, now, cut, unseen, seen.rewritten, seen.replaced)


@dataclass(frozen=True, slots=True)
class LastVerified:
    """When the file was what had been read, for certain.

    `mtime_ns`: its time of last write (mtime) when its bytes were last compared, 0 when the next look has to compare them. `size`: so large
    was it. `at_ns`: a time by the clock of its file system.
    """

    mtime_ns: int = 0
    size: int = 0
    at_ns: int = 0


NEVER_VERIFIED = LastVerified()


@dataclass(frozen=True, slots=True)
class FileReading:
    """When it was read, and what waits.

    `turn` is the number of its last turn. `size`, `at_ms` and `at_ns` are how large it was when its last split was planned, and when: epoch
    milliseconds, and a time before it by the clock of its file system. `read_at`: when it last got on, epoch seconds. `unread_since_ms`:
    when the oldest of what is unread was first seen, epoch milliseconds, 0 when nothing is. `in_flight`: a task reads it.
    """

    turn: int = 0
    size: int = 0
    at_ms: int = 0
    at_ns: int = 0
    read_at: float = 0.0
    unread_since_ms: int = 0
    in_flight: bool = False


NEVER_READ = FileReading()


@dataclass(frozen=True, slots=True)
class Ending:
    """What stands at the end of the file without an end of its own: part of a line, a group of lines, the last bytes of an archive.

    `stalled_size`: no complete record lies between the offset and this size, -1 when that is not known. `final`, `flush`: its next split
    is one, see `Split`; `finished_size`, `flushed_size`: so large was it when a task had read one. `timed`: a group of lines stands open
    there and waits for its time, see `endings.Timers`.
    """

    stalled_size: int = -1
    flushed_size: int = -1
    finished_size: int = -1
    final: bool = False
    flush: bool = False
    timed: bool = False

    def after_change(self, size: int) -> Ending:
        """Someone writes to the file still, which has `size` bytes now.

        A size that was reached before says nothing any more: the file was written to in place, or cut and may grow to it again.
        """
        stalled_size = -1 if size <= self.stalled_size else self.stalled_size
        flushed_size = -1 if size < self.flushed_size else self.flushed_size
        finished_size = -1 if size < self.finished_size else self.finished_size
        return Ending(stalled_size, flushed_size, finished_size, timed=self.timed)

    def after_end(self, result: SplitResult, size: int) -> Ending:
        """A task came to what was the end of the file, at `size`."""
        flushed_size = size if result.split.flush else self.flushed_size
        return Ending(size, flushed_size, size if result.split.final else self.finished_size, timed=self.timed)


OPEN_ENDED = Ending()


@dataclass(frozen=True, slots=True)
class Packing:
    """What is known of how the file is packed; the codec stands in its offset.

    `is_known`: whether it is packed is known, or nobody asks because nothing is unpacked. Of a packed file whose present end was reached,
    `is_whole` says that it ends with a member's end, `rest` that there is something behind the offset; `position` is how much of it a task
    has taken in; `origins`, `origin_sizes`: see `Split`; `only_as_rest`: it is read as the rest of one of these, or not at all.
    """

    is_known: bool = False
    position: int = 0
    rest: int = 0
    is_whole: bool = False
    origins: tuple[SourceOffset, ...] = ()
    origin_sizes: tuple[int, ...] = ()
    only_as_rest: bool = False

    def after_end(self, result: SplitResult) -> Packing:
        """A task came to the end, or to the limit it was given."""
        is_whole = result.unpacked_size >= 0
        unread = result.unpacked_size - result.offset.position if is_whole else 1
        return replace(self, position=result.packed_position, is_whole=is_whole, rest=0 if result.damage else unread)


UNKNOWN_PACKING, KNOWN_PACKING = Packing(), Packing(is_known=True)


_NO_FINGERPRINT = Fingerprint()


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the file comes from, as far as is known.

    `why`: what put it at its position when it was met, for people. `unjudged`: why it is not known yet what it is, "" when it is known.
    `keeps_turn`: though it is not read yet, newer files of its log wait for it.
    `copy_of`: its first `copied` bytes are that one's. `first_fingerprint`: how it began when it was first seen, as long as nothing of it
    is read.
    """

    why: str = ""
    unjudged: str = ""
    keeps_turn: bool = False
    copy_of: SourcePartition | None = None
    copied: int = 0
    first_fingerprint: Fingerprint = _NO_FINGERPRINT

    def copied_of(self, other: SourcePartition) -> int:
        """Returns how many bytes of `other` the file was seen to hold."""
        return self.copied if self.copy_of == other else 0

    def once_read(self) -> Provenance:
        """Something of it is read: from now on its offset proves what it is."""
        return replace(self, first_fingerprint=_NO_FINGERPRINT) if self.first_fingerprint.head_bytes else self


@dataclass(frozen=True, slots=True)
class Matched:
    """A pattern finds the file."""

    since: ClassVar[None] = None
    is_dropped: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Draining:
    """No pattern finds the file since then (`time.monotonic()`): it is read to its end, then let go.

    `deleted`: since when it is held open though deleted, and how large it was then. `endings` lets it go.
    """

    since: float
    deleted: tuple[float, int] | None = None
    is_dropped: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """Nobody follows the file any more. `since`: when it left its patterns, None when it had not."""

    since: float | None
    is_dropped: ClassVar[bool] = True


Standing = Matched | Draining | Dropped
MATCHED = Matched()
