"""The state of a followed file, as values: what scans found, what tasks did with it, and what it waits for.

All are frozen; only `KnownFile` and `TrackedFile` replace them. Sizes are in bytes; of a packed file they are packed bytes, and positions
unpacked ones.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import ClassVar

from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition, SplitResult


@dataclass(frozen=True, slots=True)
class FileStat:
    """The result of looks at the file.

    Times ending in `_ns` are epoch nanoseconds by the clock of its file system, 0 before the first look. A scan handles files that were
    `rewritten` or `replaced`.
    """

    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    """Time of its last change (ctime)."""
    met_ns: int = 0
    """Its ctime when it was first seen under its present name: a file made later was made while this one had the name."""
    grown_at: float = field(default_factory=time.monotonic)
    """When it was last found to be written to, `time.monotonic()`."""
    cut: tuple[int, int] | None = None
    """It was seen to shrink, from the first to the second size."""
    unseen: int = 0
    """Size of content that was written and cut between two looks, so that it was never read."""
    rewritten: bool = False
    """It was found to hold other bytes than were read."""
    replaced: bool = False
    """Its inode is another file's now."""
    emptied_ns: int = 0
    """It was empty at an earlier look, and last changed then. If it was filled, copied and cut since, no byte shows that to a scan."""

    def has_other_content(self, info: os.stat_result) -> bool:
        """Returns whether size or modification time differ from the last look."""
        return info.st_size != self.size or info.st_mtime_ns != self.mtime_ns


def observe(seen: FileStat, info: os.stat_result, now: float, *, is_packed: bool) -> FileStat:
    """Returns the state after a look at `now` (`time.monotonic()`).

    An archive that became smaller is not marked as cut: a task finds out what it is.
    """
    met_ns = seen.met_ns or info.st_ctime_ns
    if not seen.has_other_content(info):
        return replace(seen, ctime_ns=info.st_ctime_ns, met_ns=met_ns)
    cut, unseen = seen.cut, seen.unseen
    if info.st_size < seen.size and (not is_packed or not info.st_size):
        if seen.rewritten and cut is None:
            unseen = seen.size
        largest, smallest = cut or (seen.size, info.st_size)  # once cut, its later growth is not part of what it held
        cut = largest, min(smallest, info.st_size)
    emptied_ns = seen.emptied_ns or (0 if seen.size else seen.ctime_ns)
    return FileStat(info.st_size, info.st_mtime_ns, info.st_ctime_ns, met_ns, now, cut, unseen, seen.rewritten, seen.replaced, emptied_ns)


@dataclass(frozen=True, slots=True)
class LastVerified:
    """When the file was last verified to be what had been read.

    `mtime_ns`: its modification time when its bytes were last compared, 0 if the next look has to compare them. `size`: its size then.
    `at_ns`: a time by the clock of its file system.
    """

    mtime_ns: int = 0
    size: int = 0
    at_ns: int = 0


NEVER_VERIFIED = LastVerified()


@dataclass(frozen=True, slots=True)
class FileReading:
    """When the file was read, and since when data waits.

    `turn` is the number of its last turn. `size`, `at_ms` and `at_ns` are its size when its last split was planned, and when that was:
    epoch milliseconds, and a time before it by the clock of its file system. `read_at`: time of the last progress, epoch seconds.
    `unread_since_ms`: when the oldest unread data was first seen, epoch milliseconds, 0 if nothing is unread. `in_flight`: a task reads it.
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
    """The unfinished end of the file: part of a line, a group of lines, the last bytes of an archive.

    `stalled_size`: no complete record lies between the offset and this size, -1 if that is not known. `final`, `flush`: its next split is
    one, see `Split`; `finished_size`, `flushed_size`: its size when a task had read one. `timed`: an open group of lines waits there for
    its time-out, see `file_planner.RecordTimers`, or for the end of its archive, see `FileCloser`.
    """

    stalled_size: int = -1
    flushed_size: int = -1
    finished_size: int = -1
    final: bool = False
    flush: bool = False
    timed: bool = False

    def after_change(self, size: int) -> Ending:
        """Returns the state for a file that is still written to and has `size` bytes now.

        A size that was reached before means nothing any more: the file was written to in place, or cut and may grow to it again.
        """
        stalled_size = -1 if size <= self.stalled_size else self.stalled_size
        flushed_size = -1 if size < self.flushed_size else self.flushed_size
        finished_size = -1 if size < self.finished_size else self.finished_size
        return Ending(stalled_size, flushed_size, finished_size, timed=self.timed)

    def after_end(self, result: SplitResult, size: int) -> Ending:
        """Returns the state after a task reached the end of the file, at `size`."""
        flushed_size = size if result.split.flush else self.flushed_size
        return Ending(size, flushed_size, size if result.split.final else self.finished_size, timed=self.timed)


OPEN_ENDED = Ending()


@dataclass(frozen=True, slots=True)
class Packing:
    """How the file is packed; the codec is in its offset.

    `is_known`: whether it is packed is known, or does not matter because nothing is unpacked. For a packed file whose present end was
    reached, `is_whole` says that it ends with a member's end, `rest` that there is something after the offset; `position` is how much of it
    a task has taken in; `origins`, `origin_sizes`: see `Split`; `only_as_rest`: it is read as the rest of one of these, or not at all.
    """

    is_known: bool = False
    position: int = 0
    rest: int = 0
    is_whole: bool = False
    origins: tuple[SourceOffset, ...] = ()
    origin_sizes: tuple[int, ...] = ()
    only_as_rest: bool = False

    def after_end(self, result: SplitResult) -> Packing:
        """Returns the state after a task reached the end, or the limit of its split."""
        is_whole = result.unpacked_size >= 0
        unread = result.unpacked_size - result.offset.position if is_whole else 1
        return replace(self, position=result.packed_position, is_whole=is_whole, rest=0 if result.damage else unread)


UNKNOWN_PACKING, KNOWN_PACKING = Packing(), Packing(is_known=True)


_NO_FINGERPRINT = Fingerprint()


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of the file, as far as it is known.

    `why`: the reason for its first position, as a message. `unjudged`: why it is not known yet what it is, "" if it is known. `keeps_turn`:
    though it is not read yet, newer files of its log wait for it. `copy_of`: its first `copied` bytes are that partition's.
    `first_fingerprint`: its first bytes when it was first seen, as long as nothing of it is read.
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
        """Returns the state once something is read: from now on its offset proves what it is."""
        return replace(self, first_fingerprint=_NO_FINGERPRINT) if self.first_fingerprint.head_bytes else self


@dataclass(frozen=True, slots=True)
class Matched:
    """A pattern finds the file."""

    since: ClassVar[None] = None
    is_dropped: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Draining:
    """No pattern finds the file since then (`time.monotonic()`): it is read to its end, then closed.

    `deleted`: since when it is held open though deleted, and its size then. `file_closer` closes it.
    """

    since: float
    deleted: tuple[float, int] | None = None
    is_dropped: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """The file is not followed any more. `since`: when it left its patterns, None if it had not."""

    since: float | None
    is_dropped: ClassVar[bool] = True


Standing = Matched | Draining | Dropped
MATCHED = Matched()
