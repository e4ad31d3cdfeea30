"""One file of a spool directory that is not read yet: what it is, what is settled of it, what it waits for."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace

from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.sources.files.backoff import BLOCKED_SECONDS, RETRY_SECONDS, wait_seconds
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


@dataclass(eq=False, slots=True)
class SpoolFile:
    """Driver's state of a file. Sizes in bytes, times from `time.monotonic()`.

    `saved_as` is the identity in the keys of its rows, None for its own: device numbers change, keys stay.
    `offset` is what is settled of it; `parts` are its ranges when it is cut, and their offsets count then. `former` is what was read
    under its name before, of the same size: it may be a repeat. `unchanged_since`: its size and times have been what they are at least
    so long. `why`: what it waits for or what is wrong. `counts`: its positions are record numbers. `taken`: packed bytes that are
    settled. `ready_ms`: when it became ready, epoch milliseconds, 0 while it is not. `flights`: splits of it under way. `gone`: no
    name leads to it any more. `set_aside`: it is not read on, see `on_changed_file`. `cuttable`: nobody has tried to cut it yet.
    `written`: somebody had it open for writing when it was opened last.
    """

    connector: str
    identity: Identity
    generation: int
    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    offset: SourceOffset
    former: SourceOffset | None = None
    parts: list[Part] = field(default_factory=list)
    unchanged_since: float = field(default_factory=time.monotonic)
    fd: int = -1
    flights: int = 0
    gone: bool = False
    set_aside: bool = False
    why: str = ""
    errors: int = 0
    blocked: int = 0
    counts: bool = False
    cuttable: bool = False
    written: bool = False
    taken: int = 0
    ready_ms: int = 0
    read_at: float = 0.0
    told_future: bool = False
    saved_as: Identity | None = None

    @property
    def partition(self) -> SourcePartition:
        """What its offset belongs to."""
        return SourcePartition(self.connector, (self.saved_as or self.identity).key(self.generation))

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
    def version(self) -> tuple[int, int]:
        """What must not change while it is read."""
        return self.size, self.mtime_ns

    @property
    def unread(self) -> int:
        """Bytes on the disk that are not settled; of packed files and those that count records an estimate."""
        if self.parts:
            return sum(map(self.unread_of, self.parts))
        if self.offset.compression or self.counts:
            return max(0, self.size - self.taken)
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
        if not same:
            self.size, self.mtime_ns = info.st_size, info.st_mtime_ns
            self.unchanged_since = time.monotonic()
        self.ctime_ns = info.st_ctime_ns
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
        self.generation += 1
        self.offset = SourceOffset(0, path=self.path, compression=self.offset.compression)
        self.parts, self.taken = [], 0

    def back_off(self) -> float:
        """It could not be read: seconds to wait, more each time."""
        delay = wait_seconds(RETRY_SECONDS, self.errors)
        self.errors += 1
        return delay

    def block(self) -> float:
        """Its records cannot be sent until someone repairs something: seconds to wait, more each time."""
        delay = wait_seconds(BLOCKED_SECONDS, self.blocked)
        self.blocked += 1
        return delay

    def close(self) -> None:
        """Close it; once is enough."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
