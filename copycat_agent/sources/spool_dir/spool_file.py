"""One file of a spool directory that is not read yet: what it is, what is settled of it, what it waits for."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.sources.files.backoff import BLOCKED_SECONDS, READY, FileBackoff, wait_seconds
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS


@dataclass(eq=False, slots=True)
class Part:
    """A range of a large file, read on its own: from `start` up to, not including, `end`, bytes or record numbers. See `ranges`.

    `brought` is what its last batch settled, from when that is known; it counts as `offset` once it is saved.
    """

    partition: SourcePartition
    start: int
    end: int
    offset: SourceOffset
    in_flight: bool = False
    brought: SourceOffset | None = None


@dataclass(frozen=True, slots=True)
class FileKey:
    """Whose a file's rows are. `saved_as` is the identity in their keys, None for its own: device numbers change, keys stay."""

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
        """What the file's offset belongs to."""
        return SourcePartition(self.connector, self.saved.key(self.generation))


@dataclass(frozen=True, slots=True)
class Observed:
    """What stat said last. `unchanged_since` (`time.monotonic()`): size and time of change are these at least so long."""

    size: int
    mtime_ns: int
    ctime_ns: int
    unchanged_since: float

    @classmethod
    def of(cls, info: os.stat_result) -> Observed:
        """A file that is seen for the first time, or is not what it was."""
        return cls(info.st_size, info.st_mtime_ns, info.st_ctime_ns, time.monotonic())

    @property
    def version(self) -> tuple[int, int]:
        """What must not change while a file is read."""
        return self.size, self.mtime_ns


@dataclass(frozen=True, slots=True)
class Waiting:
    """The file is not complete, or was not looked at yet. `has_writer`: somebody had it open for writing when it was opened last."""

    why: str = ""
    has_writer: bool = False


@dataclass(frozen=True, slots=True)
class Complete:
    """The file may be read since then, epoch milliseconds. `why`: what was wrong when it was tried last."""

    since_ms: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class SetAside:
    """The file was changed after a part of it was sent, and is not read on; see `on_changed_file`."""

    why: str


class FileOrRange(NamedTuple):
    """What one split reads: a file, or one of its ranges."""

    file: SpoolFile
    part: Part | None

    @property
    def partition(self) -> SourcePartition:
        """What the split's offset belongs to."""
        return self.file.partition if self.part is None else self.part.partition

    @property
    def backoff(self) -> FileBackoff:
        """The file's: its ranges fail together."""
        return self.file.backoff

    @property
    def unread(self) -> int:
        """Bytes on the disk that are not settled, as `SpoolFile.unread`."""
        return self.file.unread if self.part is None else self.file.unread_of(self.part)

    def split(self) -> Split:
        """Returns the split. The file is open."""
        return self.file.split(self.part)


class Taken(NamedTuple):
    """What tasks have taken in of a file: packed bytes that are settled, and when one got on last, epoch seconds (0: never)."""

    packed_bytes: int = 0
    at: float = 0.0


NOTHING_TAKEN = Taken()


@dataclass(eq=False, slots=True)
class SpoolFile:
    """Driver's state of a file. Sizes in bytes.

    `offset` is what is settled of it; `parts` are its ranges when it is cut, and their offsets count then. `former` is what was read
    under its name before, of the same size: it may be a repeat. `counts`: its positions are record numbers. `flights`: splits of it in
    flight. `gone`: no name leads to it any more. `cuttable`: nobody has tried to cut it yet.
    """

    key: FileKey
    path: str
    seen: Observed
    offset: SourceOffset
    counts: bool = False
    state: Waiting | Complete | SetAside = Waiting()
    backoff: FileBackoff = READY
    former: SourceOffset | None = None
    parts: list[Part] = field(default_factory=list)
    taken: Taken = NOTHING_TAKEN
    fd: int = -1
    flights: int = 0
    gone: bool = False
    cuttable: bool = False
    told_future: bool = False

    @property
    def partition(self) -> SourcePartition:
        """What its offset belongs to."""
        return self.key.partition

    @property
    def identity(self) -> Identity:
        """The file's own, as it is now."""
        return self.key.identity

    @property
    def size(self) -> int:
        """As it was seen last."""
        return self.seen.size

    @property
    def mtime_ns(self) -> int:
        """When it was last changed, as it was seen."""
        return self.seen.mtime_ns

    @property
    def version(self) -> tuple[int, int]:
        """What must not change while it is read."""
        return self.seen.version

    @property
    def is_set_aside(self) -> bool:
        """Whether it is not read on."""
        return isinstance(self.state, SetAside)

    @property
    def is_being_begun(self) -> bool:
        """Whether it is empty and somebody has it open for writing."""
        return isinstance(self.state, Waiting) and self.state.has_writer and not self.size

    @property
    def inode_key(self) -> tuple[int, int]:
        """Device and inode: unique among files that exist now."""
        return self.identity.device, self.identity.inode

    @property
    def is_begun(self) -> bool:
        """Whether something of it is settled."""
        return self.offset.position > 0 or any(part.offset.position > part.start for part in self.parts)

    @property
    def has_old_parts(self) -> bool:
        """Whether its ranges are those of what it was before it was changed: they do not cover what it is now."""
        return any((part.offset.size, part.offset.mtime_ns) != self.version for part in self.parts)

    @property
    def unread(self) -> int:
        """Bytes on the disk that are not settled; of packed files and those that count records an estimate."""
        if self.parts:
            return sum(map(self.unread_of, self.parts))
        if self.offset.compression or self.counts:
            return max(0, self.size - self.taken.packed_bytes)
        return max(0, self.size - self.offset.position)

    def unread_of(self, part: Part) -> int:
        """The share of `unread` that is one range's; where positions are record numbers all of it or nothing."""
        if self.counts:
            return 0 if part.offset.done else self.size // len(self.parts)
        return part.end - part.offset.position

    @property
    def position(self) -> int:
        """How far it is settled; of a file that is cut the sum over its ranges."""
        return sum(part.offset.position - part.start for part in self.parts) if self.parts else self.offset.position

    @property
    def records(self) -> int:
        """How many records of it are settled."""
        if self.parts and self.counts:
            return self.position
        return sum(part.offset.records for part in self.parts) if self.parts else self.offset.records

    def observe(self, info: os.stat_result) -> bool:
        """Take over what stat says. Returns whether it is what it was."""
        same = self.version == (info.st_size, info.st_mtime_ns)
        self.seen = replace(self.seen, ctime_ns=info.st_ctime_ns) if same else Observed.of(info)
        return same

    def next_part(self) -> Part | None:
        """A range that nobody reads and that is not read yet. Of a file whose ranges are all read, and nobody has said so, the last."""
        if self.parts and not self.flights and all(part.offset.done for part in self.parts):
            return self.parts[-1]
        return next((part for part in self.parts if not (part.in_flight or part.offset.done)), None)

    def split(self, part: Part | None = None) -> Split:
        """All that is left of it, or of one of its ranges: the batch's budget bounds what is read. The file is open."""
        partition, settled = (self.partition, self.offset) if part is None else (part.partition, part.offset)
        plain = not (self.counts or self.offset.compression)
        end = part.end if part is not None else self.size if plain else ENDLESS
        offset = replace(settled, path=self.path, size=self.size, mtime_ns=self.mtime_ns, done=False, trouble="", gone_ms=0)
        return Split(
            partition,
            self.path,
            f"/proc/{os.getpid()}/fd/{self.fd}",
            offset,
            end,
            final=not plain or end == self.size,
            inode=self.identity.inode,
            mtime_ms=self.mtime_ns // 1_000_000,
            origins=(self.former,) if self.former is not None and not offset.position else (),
        )

    def begin_anew(self) -> None:
        """It does not hold what was read of it any more: its next generation begins at its beginning."""
        self.key = replace(self.key, generation=self.key.generation + 1)
        self.offset = SourceOffset(0, path=self.path, compression=self.offset.compression)
        self.parts, self.taken = [], Taken(0, self.taken.at)

    def wait(self, why: str, *, has_writer: bool = False) -> None:
        """It is not complete."""
        self.state = Waiting(why, has_writer=has_writer)

    def complete(self) -> None:
        """Nothing keeps it from being read; it is so since then, or was before."""
        since_ms = self.state.since_ms if isinstance(self.state, Complete) else int(time.time() * 1000)
        self.state = Complete(since_ms)

    def back_off(self, why: str) -> float:
        """It could not be read: seconds to wait, more each time."""
        delay = self.backoff.error_seconds
        self.fail(why)
        return delay

    def fail(self, why: str) -> None:
        """It could not be read once more."""
        self.state, self.backoff = replace(self.state, why=why), self.backoff.after_error(time.monotonic())

    def block(self) -> float:
        """Its records cannot be sent until someone repairs something: seconds to wait, more each time."""
        delay = wait_seconds(BLOCKED_SECONDS, self.backoff.blocked)
        self.backoff = self.backoff.after_block(time.monotonic())
        return delay

    def close(self) -> None:
        """Close it; once is enough."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
