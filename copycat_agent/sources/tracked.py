"""One generation of one file, as the driver knows it: what it is, how far it is settled, how large it is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.sources import fingerprint
from copycat_agent.sources.identity import Identity, identify
from copycat_agent.sources.opening import Opener

_BLOCKED_SECONDS = 60.0
"""Longest wait before a file whose topic is missing or forbidden is tried again."""
_F_SETSIG = 10  # fcntl.h; Python's fcntl does not name it
_RETRY_SECONDS = (0.5, 60.0)
"""First and longest wait before a file that could not be read is tried again."""


@dataclass(eq=False, slots=True)
class TrackedFile:
    """Driver's state of a file. Sizes in bytes, times from `time.monotonic()`.

    `opened` are all open files of the connector. `stalled_size`: no complete line lies between the offset and this size.
    `proven_size`: so large was it when it still was what had been read. `cut`: it was seen to shrink, from the first to the
    second size. `gone_since`: no pattern matches it any more. `rewritten`: a task found other bytes than were read;
    `replaced`: its inode is another file's now; the next scan sorts both out. `removed`: nobody follows it any more.
    `unread_since_ms`: when the oldest of what is unread was first seen, epoch milliseconds, 0 when nothing is; `seen_size` and
    `seen_ms`: how large it was when its last split was planned, and when. `read_at`: when it last got on, epoch seconds.
    `family` and `age`: see `generations`. `after` and `barrier`: the file it was rotated from, and how much of that one goes
    first.
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
    planned_at: int = 0
    rewritten: bool = False
    replaced: bool = False
    removed: bool = False
    cut: tuple[int, int] | None = None
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

    @property
    def inode_key(self) -> tuple[int, int]:
        """Device and inode: unique among files that exist now."""
        return self.identity.device, self.identity.inode

    @property
    def unread(self) -> bool:
        """Whether there may be something to read."""
        changed = self.rewritten or self.replaced
        return self.size > self.offset.position and not changed and (self.final or self.stalled_size != self.size)

    @property
    def needs_scan(self) -> bool:
        """Whether it is not what was read any more, which a scan sorts out."""
        return self.rewritten or self.replaced or self.size < self.offset.position

    @property
    def backlog(self) -> int:
        """Bytes beyond the offset."""
        return max(0, self.size - self.offset.position)

    @property
    def known_size(self) -> int:
        """Its size, or what it was before a cut whose losses are not counted yet: the next start counts them by it."""
        return self.size if self.cut is None else max(self.size, self.cut[0])

    def observe(self, info: os.stat_result) -> None:
        """Take over what stat says."""
        if info.st_size == self.size and info.st_mtime_ns == self.mtime_ns:
            return
        if info.st_size < self.size:
            largest, smallest = self.cut or (self.size, info.st_size)
            self.cut = max(largest, self.size), min(smallest, info.st_size)
        if info.st_size == self.size:
            self.stalled_size = -1  # written to in place: there may be a whole line now
        self.final = False  # someone writes to it still
        self.size, self.mtime_ns = info.st_size, info.st_mtime_ns
        self.grown_at = time.monotonic()

    def refresh(self) -> None:
        """Look at the open file. No effect when it is closed, or cannot be looked at: who reads it will say why."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self.observe(os.fstat(self.fd))

    def waits(self) -> bool:
        """Whether the file it was rotated from still has lines that go first. An ailing predecessor is not waited for."""
        before = self.after
        if before is None:
            return False
        if not before.removed and not before.errors and before.offset.position < self.barrier:
            before.refresh()
            if before.in_flight or before.unread:
                return True
        self.after = None
        return False

    def adopt(self, fd: int) -> None:
        """`fd` is open on this file and belongs to it from now on."""
        self.fd = fd
        self.opened.add(self)

    def hand_over(self) -> int:
        """Give its descriptor, perhaps -1, to the caller."""
        fd, self.fd = self.fd, -1
        self.opened.discard(self)
        return fd

    def open(self, opener: Opener) -> bool:
        """Open it by its path, if it is not open. False when another file is there now. Raises OSError."""
        if self.fd >= 0:
            return True
        fd, info = opener.open(self.path)
        found = identify(fd, info)
        if found != self.identity:
            os.close(fd)
            self.replaced = (found.device, found.inode) == self.inode_key
            return False
        self.adopt(fd)
        self.observe(info)
        return True

    def holds(self) -> bool:
        """Whether the open file still has what was read from it. Raises OSError."""
        return self.size >= self.offset.position and fingerprint.holds(self.read, self.offset.fingerprint, self.offset.position)

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the open file. Raises OSError."""
        return os.pread(self.fd, size, position)

    def split(self, limit: int) -> Split:
        """The next stretch, at most `limit` bytes. The file is open."""
        end = min(self.size, self.offset.position + limit)
        self.seen_size, self.seen_ms = self.size, int(time.time() * 1000)
        return Split(
            self.partition,
            self.path,
            f"/proc/{os.getpid()}/fd/{self.fd}",
            self.offset,
            end,
            final=self.final and end == self.size,
            inode=self.identity.inode,
            mtime_ms=self.mtime_ns // 1_000_000,
        )

    def back_off(self) -> float:
        """It could not be read: try again later, more slowly each time. Returns seconds to wait."""
        first, longest = _RETRY_SECONDS
        delay = min(longest, first * 2.0 ** min(self.errors, 10))
        self.errors += 1
        self.retry_at = time.monotonic() + delay
        return delay

    def block(self) -> None:
        """Its records cannot be sent until someone repairs something: try again later, and let others go on."""
        self.retry_at = time.monotonic() + min(_BLOCKED_SECONDS, 2.0 ** min(self.blocked, 10))
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
            self.read_at = time.time()
            if offset.position >= self.seen_size:
                self.unread_since_ms = self.seen_ms
        self.offset = offset

    def is_deleted(self) -> bool:
        """Whether no name leads to the open file any more."""
        return self.fd >= 0 and os.fstat(self.fd).st_nlink == 0

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
