"""One file of a spool directory that is not read to its end: its identity, its progress, and what it waits for."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.planner import BLOCKED_SECONDS, READY, FileBackoff, wait_seconds
from copycat_agent.sources.spool_dir.file_progress import FileProgress, FileRange
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS


@dataclass(frozen=True, slots=True)
class FileKey:
    """The key of a file's rows. `saved_as` is the identity in their keys, None for its own: device numbers change, keys stay."""

    connector: str
    identity: Identity
    generation: int = 0
    saved_as: Identity | None = None

    @property
    def saved(self) -> Identity:
        """The identity in the keys of its rows."""
        return self.saved_as or self.identity

    @property
    def partition(self) -> SourcePartition:
        """The partition of the file's offset."""
        return SourcePartition(self.connector, self.saved.key(self.generation))


@dataclass(frozen=True, slots=True)
class Observation:
    """The last stat. `unchanged_since` (`time.monotonic()`): since when, or longer, size and modification time have been the same."""

    size: int
    mtime_ns: int
    ctime_ns: int
    unchanged_since: float

    @classmethod
    def of(cls, info: os.stat_result) -> Observation:
        """Returns the observation of a file that is new or has changed."""
        return cls(info.st_size, info.st_mtime_ns, info.st_ctime_ns, time.monotonic())

    @property
    def version(self) -> tuple[int, int]:
        """The size and modification time, which must not change while a file is read."""
        return self.size, self.mtime_ns


@dataclass(frozen=True, slots=True)
class Waiting:
    """The file is not complete, or was not checked yet. `has_writer`: somebody had it open for writing when it was last opened."""

    why: str = ""
    has_writer: bool = False


@dataclass(frozen=True, slots=True)
class Complete:
    """The file may be read since `since_ms`, epoch milliseconds. `why`: the error of the last attempt."""

    since_ms: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class SetAside:
    """The file was changed after a part of it was sent, and is not read on: `on_changed_file: stop`."""

    why: str


class FileOrRange(NamedTuple):
    """The input of one split: a file, or one of its ranges."""

    file: SpoolFile
    part: FileRange | None

    @property
    def partition(self) -> SourcePartition:
        """The partition of the split's offset."""
        return self.file.partition if self.part is None else self.part.partition

    @property
    def backoff(self) -> FileBackoff:
        """The backoff of the file: its ranges fail together."""
        return self.file.backoff

    @property
    def unread(self) -> int:
        """Bytes on disk that are not settled, as in `FileProgress.unread`."""
        progress, size = self.file.progress, self.file.size
        return progress.unread(size) if self.part is None else progress.unread_of(self.part, size)

    def split(self) -> Split:
        """Returns a split of all that is left: the batch's budget limits what is read. The file must be open."""
        file, progress = self.file, self.file.progress
        settled = progress.offset if self.part is None else self.part.offset
        plain = not (progress.counts or progress.offset.compression)
        end = self.part.end if self.part is not None else file.size if plain else ENDLESS
        offset = replace(settled, path=file.path, size=file.size, mtime_ns=file.mtime_ns, done=False, trouble="", gone_ms=0)
        return Split(
            self.partition,
            file.path,
            f"/proc/{os.getpid()}/fd/{file.fd}",
            offset,
            end,
            final=True,  # nothing is added to a file, and no record crosses the end of a range
            inode=file.identity.inode,
            mtime_ms=file.mtime_ns // 1_000_000,
            origins=(file.former,) if file.former is not None and self.part is None and not offset.position else (),
        )


@dataclass(eq=False, slots=True)
class SpoolFile:
    """Driver's state of a file; only its own methods change it. The planner knows whether a task reads it.

    `former` is the offset of a file of the same size that was read under its name before: this one may be a repeat. `read_at`: when a task
    last made progress with it, epoch seconds (0: never). `gone`: no name leads to it any more.
    """

    key: FileKey
    path: str
    seen: Observation
    progress: FileProgress
    state: Waiting | Complete | SetAside = Waiting()
    backoff: FileBackoff = READY
    former: SourceOffset | None = None
    read_at: float = 0.0
    fd: int = -1
    gone: bool = False
    told_future: bool = False

    @property
    def partition(self) -> SourcePartition:
        """The partition of its offset."""
        return self.key.partition

    @property
    def partitions(self) -> Sequence[SourcePartition]:
        """The partitions of its splits."""
        return [one.partition for one in self.progress.ranges] or [self.partition]

    @property
    def identity(self) -> Identity:
        """The file's own identity, as it is now."""
        return self.key.identity

    @property
    def inode_key(self) -> tuple[int, int]:
        """Device and inode: unique among files that exist now."""
        return self.identity.device, self.identity.inode

    @property
    def size(self) -> int:
        """The last seen size, in bytes."""
        return self.seen.size

    @property
    def mtime_ns(self) -> int:
        """The last seen modification time."""
        return self.seen.mtime_ns

    @property
    def is_set_aside(self) -> bool:
        """Whether the file is not read on."""
        return isinstance(self.state, SetAside)

    @property
    def is_being_begun(self) -> bool:
        """Whether it is empty and somebody has it open for writing."""
        return isinstance(self.state, Waiting) and self.state.has_writer and not self.size

    @property
    def was_changed(self) -> bool:
        """Whether it has changed since its first part was settled."""
        return self.progress.is_begun and not self.progress.is_of(self.seen.version)

    @property
    def has_old_ranges(self) -> bool:
        """Whether it was changed since it was split."""
        return self.progress.has_other_ranges(self.seen.version)

    def found(self, path: str) -> None:
        """Takes in the path under which a scan has found it."""
        self.path, self.gone = path, False

    def went(self) -> None:
        """Records that no name leads to it any more."""
        self.gone = True

    def observe(self, info: os.stat_result) -> bool:
        """Takes in a stat. Returns whether the file is unchanged."""
        same = self.seen.version == (info.st_size, info.st_mtime_ns)
        self.seen = replace(self.seen, ctime_ns=info.st_ctime_ns) if same else Observation.of(info)
        return same

    def opened(self, fd: int) -> None:
        """Takes over the descriptor, which `close` closes."""
        self.fd = fd

    def close(self) -> None:
        """Closes the file; may be called again."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def may_repeat(self, former: SourceOffset | None) -> None:
        """Takes in the offset of a file that was read under its name before."""
        self.former = former

    def go_on(self, progress: FileProgress) -> None:
        """Takes in progress that is saved."""
        self.progress = progress

    def got_on(self, progress: FileProgress) -> None:
        """Takes in progress that a task has made."""
        self.progress, self.read_at = progress, time.time()

    def begin_anew(self) -> None:
        """Begins the next generation at the beginning: the file does not hold what was read of it any more."""
        self.key = replace(self.key, generation=self.key.generation + 1)
        compression = self.progress.offset.compression
        self.progress = FileProgress(SourceOffset(0, path=self.path, compression=compression), self.progress.counts)

    def set_aside(self, why: str) -> None:
        """Sets the file aside: it is not read on."""
        self.state, self.former = SetAside(why), None

    def wait(self, why: str, *, has_writer: bool = False) -> None:
        """Sets the state to waiting: the file is not complete."""
        self.state = Waiting(why, has_writer=has_writer)

    def complete(self) -> None:
        """Sets the state to complete, unless it is already: nothing keeps the file from being read."""
        since_ms = self.state.since_ms if isinstance(self.state, Complete) else int(time.time() * 1000)
        self.state = Complete(since_ms)

    def is_to_be_told(self) -> bool:
        """Returns True once: whether to log that its modification time is in the future."""
        was_told, self.told_future = self.told_future, True
        return not was_told

    def fail(self, why: str) -> float:
        """Takes in a failed read. Returns the seconds to wait, more each time."""
        seconds = self.backoff.error_seconds
        self.state, self.backoff = replace(self.state, why=why), self.backoff.after_error(time.monotonic())
        return seconds

    def block(self) -> float:
        """Takes in that its records cannot be sent until someone repairs something. Returns the seconds to wait, more each time."""
        seconds = wait_seconds(BLOCKED_SECONDS, self.backoff.blocked)
        self.backoff = self.backoff.after_block(time.monotonic())
        return seconds

    def recover(self) -> None:
        """Resets the backoff after a success."""
        self.backoff = READY
