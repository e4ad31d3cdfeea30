"""One generation of one file, as the driver knows it: what it is, how far it is settled, how large it is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition, Split, SplitResult
from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.backoff import BLOCKED_SECONDS, RETRY_SECONDS, wait_seconds
from copycat_agent.sources.files.identity import Identity, identify
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.paths.opening import Opener

_F_SETSIG = 10  # fcntl.h; Python's fcntl does not name it


@dataclass(eq=False, slots=True)
class TrackedFile:
    """Driver's state of a file. Sizes in bytes, times from `time.monotonic()`.

    `opened` are all open files of the connector. `stalled_size`: no complete line lies between the offset and this size.
    `proven_size`: so large was it when it still was what had been read. `cut`: it was seen to shrink, from the first to the
    second size; `unseen`: it held so many bytes then that nobody had read, and that were not what had been read before. `gone_since`: no
    pattern matches it any more. `rewritten`: a task found other bytes than were read; `replaced`: its inode is another file's now; the
    next scan sorts both out. `removed`: nobody follows it any more.
    `unread_since_ms`: when the oldest of what is unread was first seen, epoch milliseconds, 0 when nothing is; `seen_size` and
    `seen_ms`: how large it was when its last split was planned, and when. `read_at`: when it last got on, epoch seconds.
    `final`, `flush`: its next split is one, see `Split`; `finished_size`, `flushed_size`: so large was it when a task had read one.
    `timed`: a group of lines stands open at its end and waits for its time, see `timers`.
    `deleted`: since when it is held open though deleted, and how large it was then; see `held`.
    `why`: what put it at its position when it was met, for people. `family` and `age`: see `generations`. `after` and `barrier`: the
    file it was rotated from, and how much of that one goes first (-1: what it has when this one has its first bytes). `unjudged`: `origins`
    does not know yet what it is; `copy_of`: its first `copied` bytes are that one's. `glimpse`: how it began when it was first seen, as
    long as nothing of it is read. By the clock of its file system, epoch nanoseconds: `changed_ns`: its last change, as last seen;
    `met_ns`: the one before this generation of it was met; `seen_ns`, `proven_ns`: a time before its last split was planned, and one
    when it was what had been read for certain.
    `told`: whether it is packed is known, or nobody asks because
    nothing is unpacked (`unpacks`). Of a packed file whose present end was reached at `stalled_size`, `is_whole` says that it ends
    with a member's end, `rest` that there is something behind the offset; `packed_position` is how much of it a task has taken in;
    `origins`: see `Split.origins`.
    """

    partition: SourcePartition
    identity: Identity
    generation: int
    path: str
    offset: SourceOffset
    opened: set[TrackedFile] = field(repr=False)
    size: int = 0
    mtime_ns: int = 0
    verified_mtime_ns: int = 0
    fd: int = -1
    stalled_size: int = -1
    proven_size: int = 0
    grown_at: float = field(default_factory=time.monotonic)
    gone_since: float | None = None
    in_flight: bool = False
    final: bool = False
    flush: bool = False
    timed: bool = False
    flushed_size: int = -1
    finished_size: int = -1
    planned_at: int = 0
    rewritten: bool = False
    replaced: bool = False
    removed: bool = False
    cut: tuple[int, int] | None = None
    unseen: int = 0
    family: tuple[str, str] = ("", "")
    age: tuple[int, int] = (0, 0)
    after: TrackedFile | None = None
    barrier: int = 0
    unread_since_ms: int = 0
    seen_size: int = 0
    seen_ms: int = 0
    read_at: float = 0.0
    errors: int = 0
    blocked: int = 0
    retry_at: float = 0.0
    why: str = ""
    unjudged: bool = False
    copy_of: SourcePartition | None = None
    copied: int = 0
    changed_ns: int = 0
    met_ns: int = 0
    seen_ns: int = 0
    proven_ns: int = 0
    glimpse: Fingerprint = field(default_factory=Fingerprint)
    deleted: tuple[float, int] | None = None
    unpacks: bool = True
    told: bool = False
    origins: tuple[SourceOffset, ...] = ()
    packed_position: int = 0
    rest: int = 0
    is_whole: bool = False

    def __post_init__(self) -> None:
        """What is read of it says what it is; an archive that was read to its end needs no reading while it is as large."""
        self.told = not self.unpacks or self.offset.position > 0 or self.is_packed
        if self.is_packed and self.offset.done:
            self.stalled_size = self.offset.size

    @property
    def is_packed(self) -> bool:
        """Whether it is an archive: then sizes are packed bytes, and positions unpacked ones."""
        return bool(self.offset.compression)

    @property
    def inode_key(self) -> tuple[int, int]:
        """Device and inode: unique among files that exist now."""
        return self.identity.device, self.identity.inode

    @property
    def made_ns(self) -> int:
        """Since when it may hold what it holds, by the clock of its file system: an inode that was written over is not as old as that."""
        return self.mtime_ns if self.generation else self.identity.birth_ns

    @property
    def unread(self) -> bool:
        """Whether there may be something to read."""
        changed = self.rewritten or self.replaced or self.is_cut_unread
        is_more = self.size > (0 if self.is_packed else self.offset.position)
        return is_more and not changed and (self.final or self.flush or self.stalled_size != self.size)

    @property
    def may_be_planned(self) -> bool:
        """Whether there may be something to read that nobody reads yet, and it is known what it is."""
        return self.unread and not (self.in_flight or self.unjudged)

    @property
    def needs_scan(self) -> bool:
        """Whether it is not what was read any more, which a scan sorts out."""
        is_cut = self.size < (min(1, self.offset.position) if self.is_packed else self.offset.position)
        return self.rewritten or self.replaced or is_cut or self.is_cut_unread

    @property
    def is_cut_unread(self) -> bool:
        """Whether it was cut before anything of it was read: nobody knows what it holds now, and what it held may be in a copy."""
        return self.cut is not None and not (self.offset.position or self.is_packed or self.in_flight)

    @property
    def is_stalled(self) -> bool:
        """Whether something at its end is no complete record yet, as of the last look."""
        is_busy = self.in_flight or self.unread or self.needs_scan
        return not is_busy and not self.is_packed and self.size > self.offset.position

    @property
    def backlog(self) -> int:
        """Bytes beyond the offset; of a packed file the packed ones that were not taken in, or what was and waits for its end."""
        return self.unread_at(self.size)

    def unread_at(self, size: int) -> int:
        """The backlog it had when it was `size` bytes long."""
        if not self.is_packed:
            return max(0, size - self.offset.position)
        return self.rest if size == self.stalled_size else max(min(1, size), size - self.packed_position)

    @property
    def settled_size(self) -> int:
        """How much of the file, as it lies on the disk, is read and settled."""
        return max(0, self.stalled_size) if self.is_packed else self.offset.position

    @property
    def known_size(self) -> int:
        """Its size, or what it was before a cut whose losses are not counted yet: the next start counts them by it."""
        return self.size if self.cut is None else max(self.size, self.cut[0])

    def observe(self, info: os.stat_result) -> None:
        """Take over what stat says."""
        self.changed_ns = info.st_ctime_ns
        if not self.met_ns:
            self.met_ns, self.proven_ns = self.changed_ns, clock.seen_ns(info.st_dev, self.changed_ns)
        if info.st_size == self.size and info.st_mtime_ns == self.mtime_ns:
            return
        if info.st_size < self.size and (not self.is_packed or not info.st_size):  # of a smaller archive a task sees what it is
            if self.rewritten and self.cut is None:
                self.unseen = self.size
            largest, smallest = self.cut or (self.size, info.st_size)  # once cut, what it grows to is not what it held
            self.cut = largest, min(smallest, info.st_size)
        if info.st_size == self.size:
            self.stalled_size = -1  # written to in place: there may be a whole line now
        self.final = self.flush = False  # someone writes to it still
        self.size, self.mtime_ns = info.st_size, info.st_mtime_ns
        self.grown_at = time.monotonic()

    def refresh(self) -> None:
        """Look at the open file. No effect when it is closed, or cannot be looked at: who reads it will say why."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self.observe(os.fstat(self.fd))

    def note_rewritten(self) -> None:
        """It holds other bytes than were read of it. What it was cut from by now had been read: only a later cut takes what nobody saw."""
        self.refresh()
        self.rewritten = True

    def waits(self) -> bool:
        """Whether the file it was rotated from still has lines that go first. An ailing predecessor is not waited for.

        Nor one that nobody reads until it is known what it is: it may itself wait for this one. What that waits for goes first.
        """
        while self.after is not None and self.after.unjudged and not self.after.removed:
            self.after, self.barrier = self.after.after, -1
        before = self.after
        if before is None:
            return False
        if not (before.removed or before.errors) and self._goes_first(before):
            return True
        self.after = None
        return False

    def _goes_first(self, before: TrackedFile) -> bool:
        """Whoever writes had `before` until this one got its first bytes: what it holds then goes first."""
        if self.barrier >= 0 and not before.is_packed and before.offset.position >= self.barrier:
            return False
        before.refresh()
        if self.barrier < 0:
            self.barrier = before.size
        return before.in_flight or before.unread or before.timed

    def adopt(self, fd: int) -> None:
        """`fd` is open on this file and belongs to it from now on."""
        self.fd = fd
        self.opened.add(self)
        with contextlib.suppress(OSError):  # who opens it for its turn tries again
            self.tell()

    def tell(self) -> None:
        """Find out from the first bytes of the open file whether it is packed, as soon as there are enough. Raises OSError."""
        self._see()
        if self.told or not self.size:
            return
        codec = packed.recognise(self.read(0, packed.MAGIC_BYTES), whole=self.final)
        if codec is None:
            self.stalled_size = self.size
            return
        self.told, self.stalled_size = True, -1
        if codec:
            self.offset = replace(self.offset, compression=codec)

    def _see(self) -> None:
        if self.size and not (self.glimpse.head_bytes or self.offset.position or self.is_packed):
            self.glimpse = fingerprint.of(self.read(0, min(self.size, fingerprint.HEAD_BYTES)), b"")

    def begins_otherwise(self) -> bool:
        """Whether the open file, of which nothing is read, does not begin as it did: it was cut, and has grown since. Raises OSError."""
        is_unread = not (self.offset.position or self.is_packed or self.in_flight)
        return is_unread and not fingerprint.holds(self.read, self.glimpse, 0)

    def hand_over(self) -> int:
        """Give its descriptor, perhaps -1, to the caller."""
        fd, self.fd = self.fd, -1
        self.opened.discard(self)
        return fd

    def open(self, opener: Opener) -> bool:
        """Open it by its path, if it is not open. False when another file is there now. Raises OSError."""
        if self.fd >= 0:
            self.tell()
            return True
        fd, info = opener.open(self.path, is_known=True)
        found = identify(fd, info)
        if found != self.identity:
            os.close(fd)
            self.replaced = (found.device, found.inode) == self.inode_key
            return False
        self.adopt(fd)
        self.observe(info)
        self.tell()
        return True

    def holds(self) -> bool:
        """Whether the open file still has what was read from it. Raises OSError."""
        return self.size >= self.offset.position and fingerprint.holds(self.read, self.offset.fingerprint, self.offset.position)

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the open file. Raises OSError."""
        return os.pread(self.fd, size, position)

    def split(self, limit: int) -> Split:
        """The next stretch, at most `limit` bytes. The file is open."""
        end = self.offset.position + limit
        if not self.is_packed:
            end = min(self.size, end)
        self.seen_size, self.seen_ms, self.seen_ns = (
            self.size,
            int(time.time() * 1000),
            clock.seen_ns(self.identity.device, self.changed_ns),
        )
        offset = replace(self.offset, done=False) if self.offset.done and not self.origins else self.offset
        if self.glimpse.head_bytes and not (offset.position or self.is_packed):
            offset = replace(offset, fingerprint=self.glimpse)  # a task that begins late finds out when it was cut meanwhile
        return Split(
            self.partition,
            self.path,
            f"/proc/{os.getpid()}/fd/{self.fd}",
            offset,
            end,
            final=self.final and (self.is_packed or end == self.size),
            flush=self.flush and end == self.size,
            inode=self.identity.inode,
            mtime_ms=self.mtime_ns // 1_000_000,
            origins=self.origins if self.is_packed and not self.offset.position else (),
            after=None if self.after is None else self.after.partition,
        )

    def back_off(self) -> float:
        """It could not be read: try again later, more slowly each time. Returns seconds to wait."""
        delay = wait_seconds(RETRY_SECONDS, self.errors)
        self.errors += 1
        self.retry_at = time.monotonic() + delay
        return delay

    def block(self) -> None:
        """Its records cannot be sent until someone repairs something: try again later, and let others go on."""
        self.retry_at = time.monotonic() + wait_seconds(BLOCKED_SECONDS, self.blocked)
        self.blocked += 1

    def recover(self) -> None:
        """It could be read and sent."""
        self.errors, self.blocked, self.retry_at = 0, 0, 0.0

    def remembered(self, *, gone: bool = False, done: bool = False) -> SourceOffset:
        """Its offset with the name and size it has now, for an agent that has to find it again. Looks at the open file.

        `gone`: it has left its patterns. `done`: and nobody need look for it.
        """
        self.refresh()
        path = self.path
        if self.fd >= 0 and not self.is_deleted():
            with contextlib.suppress(OSError):
                path = os.fsdecode(Path(f"/proc/self/fd/{self.fd}").readlink())
        done = done or (self.is_packed and self.offset.done and self.offset.size == self.known_size)
        return replace(self.offset, path=path, size=self.known_size, gone_ms=int(time.time() * 1000) if gone else 0, done=done)

    def note_unread(self) -> None:
        """There is something to read in it, or nothing (more): since when is kept for who asks for the oldest."""
        if not self.unread:
            self.unread_since_ms = 0
        elif not self.unread_since_ms:
            self.unread_since_ms = int(time.time() * 1000)

    def note_progress(self, offset: SourceOffset) -> None:
        """A split is settled up to `offset`. What was there when it was planned is read: the rest came later."""
        if offset.position > self.offset.position:
            self.read_at, self.proven_ns = time.time(), self.seen_ns
            if offset.done if self.is_packed else offset.position >= self.seen_size:
                self.unread_since_ms = self.seen_ms
        self.offset = offset

    def note_end(self, result: SplitResult) -> None:
        """A task came to what was the end, or the limit it was given."""
        end = result.split.end
        if not self.is_packed:
            self.proven_size = max(self.proven_size, end)
            is_end = result.at_end and end >= self.size
        else:
            self.packed_position, is_end, end = result.packed_position, result.at_end, result.offset.size
            self.is_whole = result.unpacked_size >= 0
            unread = result.unpacked_size - result.offset.position if self.is_whole else 1
            self.rest = 0 if result.damage else unread
        if is_end:
            self.stalled_size, self.final, self.flush = end, False, False
            self.flushed_size = end if result.split.flush else self.flushed_size
            self.finished_size = end if result.split.final else self.finished_size

    def is_deleted(self) -> bool:
        """Whether no name leads to the open file any more. False as well when it cannot be looked at."""
        try:
            return self.fd >= 0 and os.fstat(self.fd).st_nlink == 0
        except OSError:
            return False

    def has_its_name(self) -> bool:
        """Whether `path` leads to the open file now, so that it could be opened again. Looks at its size as well."""
        self.refresh()
        return self.found_by_name(follow_symlinks=True) is not None

    def found_by_name(self, *, follow_symlinks: bool) -> os.stat_result | None:
        """What is known of it under its name; None when nothing, or another file, has that name now."""
        try:
            info = os.stat(self.path, follow_symlinks=follow_symlinks)  # noqa: PTH116 - a hot path: thousands per glance
        except OSError:
            return None
        return info if (info.st_dev, info.st_ino) == self.inode_key else None

    def has_no_writer(self) -> bool:
        """Whether no process has the open file open for writing, as far as the kernel tells: a read lease is granted only then.

        False also when a lease may not be asked for (neither owner nor CAP_LEASE, or a file system without leases).
        """
        try:
            fcntl.fcntl(self.fd, _F_SETSIG, signal.SIGURG)  # breaking a lease sends SIGIO, which kills; SIGURG is ignored
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close it; the offset stays known."""
        fd = self.hand_over()
        if fd >= 0:
            os.close(fd)
