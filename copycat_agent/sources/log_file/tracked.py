"""One generation of one file that the driver follows: it is observed, held open while it is active, and read in turn."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.paths.regular_files import Opener
from copycat_agent.sources.log_file.file_state import (
    KNOWN_PACKING,
    MATCHED,
    UNKNOWN_PACKING,
    Draining,
    Dropped,
    FileStat,
    LastVerified,
    Provenance,
    observe,
)
from copycat_agent.sources.log_file.known_file import KnownFile


class OpenedFile:
    """A file that was just opened, and its fstat. It is closed at the end of the `with` block unless its descriptor is taken over."""

    def __init__(self, fd: int, info: os.stat_result) -> None:
        self.fd, self.info = fd, info

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def take(self) -> int:
        """Returns the descriptor, which the caller owns from now on."""
        fd, self.fd = self.fd, -1
        return fd


@dataclass(frozen=True, slots=True)
class Rotation:
    """The position of a file in its log: `log` (directory and base name) and `age`, by which `RotationOrder` orders it.

    `waits_for`: the next older file of the log, which is read first up to byte `barrier` (-1: up to its size when this one gets its first
    bytes).
    """

    log: tuple[str, str] = ("", "")
    age: tuple[int, int] = (0, 0)
    waits_for: TrackedFile | None = None
    barrier: int = 0


_ALONE = Rotation()


@dataclass(eq=False, slots=True)
class TrackedFile(KnownFile):
    """A followed file. `open_files` are all open files of the connector; `fd` is -1 while this one is closed."""

    open_files: set[TrackedFile] = field(repr=False)
    fd: int = -1
    rotation: Rotation = _ALONE

    # -- looks ----------------------------------------------------------------------------------------------------------------------

    def observe(self, info: os.stat_result) -> None:
        """Takes in a stat of the file."""
        before = self.seen
        if before.has_other_content(info):
            if before.met_ns:  # else the saved state already applies to this size
                self.ending = self.ending.after_change(info.st_size)
        elif info.st_ctime_ns == before.ctime_ns and before.met_ns:
            return
        self.seen = observe(before, info, time.monotonic(), is_packed=self.is_packed)
        if not before.met_ns:
            self.verified = replace(self.verified, at_ns=clock.seen_ns(info.st_dev, info.st_ctime_ns))

    def refresh(self) -> None:
        """Stats the open file. Has no effect if it is closed, or on an error: the task that reads it reports that."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self.observe(os.fstat(self.fd))

    def note_met(self, info: os.stat_result) -> None:
        """Takes in the first look. Its content is what was read of it, or nothing was read."""
        self.observe(info)
        self.verified = replace(self.verified, mtime_ns=self.seen.mtime_ns, size=self.size)

    def note_found(self, info: os.stat_result) -> None:
        """Takes in a look under a name that a pattern finds."""
        if self.standing is not MATCHED:
            self.standing = Dropped(None) if self.removed else MATCHED
            self.offset = replace(self.offset, gone_ms=0)
        self.observe(info)

    def left_patterns(self) -> None:
        """Records that no pattern finds it from now on; whenever it is saved, so that the next start searches for it."""
        self.standing = Draining(time.monotonic())
        self.offset = replace(self.offset, gone_ms=int(time.time() * 1000))

    def note_rewritten(self) -> None:
        """Records that it holds other bytes than were read of it.

        Bytes of earlier cuts had been read. Only a later cut removes bytes that were never seen.
        """
        self.refresh()
        self.seen = replace(self.seen, rewritten=True)

    def note_compared(self, *, is_other: bool) -> None:
        """Records the result of a task's comparison of the file with what was read of it."""
        if self.seen.rewritten:
            self.seen = replace(self.seen, rewritten=False)
        if is_other:
            self.note_rewritten()

    def begun_anew(self, partition: SourcePartition, path: str, why: str, *, unpacks: bool) -> TrackedFile:
        """Returns its next generation: the same file, of which nothing is read. `why` is a message."""
        seen = self.seen
        return TrackedFile(
            partition,
            self.identity,
            path,
            SourceOffset(0, path=path, size=seen.size, gone_ms=0 if self.draining_since is None else self.offset.gone_ms),
            self.open_files,
            seen=FileStat(seen.size, seen.mtime_ns, seen.ctime_ns, seen.ctime_ns),
            verified=LastVerified(0, seen.size, clock.seen_ns(self.identity.device, seen.ctime_ns)),
            provenance=Provenance(f"it begins anew: {why}"),
            standing=MATCHED if self.draining_since is None else Draining(self.draining_since),
            unpacks=unpacks,
        )

    # -- waiting --------------------------------------------------------------------------------------------------------------------

    @property
    def waits_for(self) -> TrackedFile | None:
        """The file that is read before it, None if there is none."""
        return self.rotation.waits_for

    def set_place(self, log: tuple[str, str], age: tuple[int, int]) -> None:
        """Records its position among the files of its log."""
        self.rotation = replace(self.rotation, log=log, age=age)

    def wait_for(self, before: TrackedFile | None, barrier: int = 0) -> None:
        """Keeps it from being read until `before` is, up to `barrier`. None: it waits for no file."""
        self.rotation = replace(self.rotation, waits_for=before, barrier=barrier)

    def stop_waiting(self) -> None:
        """Ends its wait (`waits_for` is None then) if the older file has no more lines that go first. Stats that one.

        It does not wait for a file that cannot be read, nor for one that is not read until it is known what it is, which may itself wait
        for this one. Then it waits for the file that that one waits for.
        """
        while self.waits_for is not None and self.waits_for.passes_turn and not self.waits_for.removed:
            self.wait_for(self.waits_for.waits_for, -1)
        before = self.waits_for
        if before is None:
            return
        barrier = self.rotation.barrier
        is_read = 0 <= barrier <= before.offset.position and not before.is_packed
        if not (before.removed or before.backoff.errors or is_read):
            before.refresh()
            if barrier < 0:  # its writer used it until this file got its first bytes
                self.wait_for(before, before.size)
            if before.in_flight or before.unread or before.ending.timed:
                return
        self.wait_for(None)

    # -- the open file --------------------------------------------------------------------------------------------------------------

    def adopt(self, fd: int) -> None:
        """Takes over `fd`, which is open on this file."""
        self.fd = fd
        self.open_files.add(self)
        with contextlib.suppress(OSError):  # the planner, which opens it for its turn, tries again
            self.detect_packing()

    def detach_fd(self) -> int:
        """Passes its descriptor to the caller, -1 if it is closed."""
        fd, self.fd = self.fd, -1
        self.open_files.discard(self)
        return fd

    def open(self, opener: Opener) -> bool:
        """Opens it by its path, if it is not open. Returns False if another file is there now. Raises OSError."""
        if self.fd >= 0:
            self.detect_packing()
            return True
        fd, info = opener.open(self.path, is_known=True)
        found = identify(fd, info)
        if found != self.identity:
            os.close(fd)
            self.seen = replace(self.seen, replaced=(found.device, found.inode) == self.inode_key)
            return False
        self.adopt(fd)
        self.observe(info)
        self.detect_packing()
        return True

    def close(self) -> None:
        """Closes it; the offset stays known."""
        fd = self.detach_fd()
        if fd >= 0:
            os.close(fd)

    def read(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes of the open file from `position`. Raises OSError."""
        return os.pread(self.fd, size, position)

    def holds(self) -> bool:
        """Returns whether the open file still has what was read from it. Raises OSError."""
        return self.size >= self.offset.position and fingerprint.holds(self.read, self.offset.fingerprint, self.offset.position)

    def detect_packing(self) -> None:
        """Detects from the first bytes of the open file whether it is packed, once there are enough of them. Raises OSError."""
        self._note_beginning()
        if self.packing.is_known or not self.size:
            return
        codec = compressions.recognise(self.read(0, compressions.MAGIC_BYTES), whole=self.ending.final)
        if codec is None:
            self.ending = replace(self.ending, stalled_size=self.size)
            return
        self.packing = KNOWN_PACKING if self.packing is UNKNOWN_PACKING else replace(self.packing, is_known=True)
        self.ending = replace(self.ending, stalled_size=-1)
        if codec:
            self.offset = replace(self.offset, compression=codec)

    def _note_beginning(self) -> None:
        if self.size and not (self.provenance.first_fingerprint.head_bytes or self.offset.position or self.is_packed):
            first = fingerprint.of(self.read(0, min(self.size, fingerprint.HEAD_BYTES)), b"")
            self.provenance = replace(self.provenance, first_fingerprint=first)

    def begins_otherwise(self) -> bool:
        """Returns whether the first bytes of the open, unread file have changed: it was cut, and has grown since. Raises OSError."""
        is_unread = not (self.offset.position or self.is_packed or self.in_flight)
        return is_unread and not fingerprint.holds(self.read, self.provenance.first_fingerprint, 0)

    def is_deleted(self) -> bool:
        """Returns whether no name leads to the open file any more. Also False if it cannot be examined."""
        try:
            return self.fd >= 0 and os.fstat(self.fd).st_nlink == 0
        except OSError:
            return False

    def has_its_name(self) -> bool:
        """Returns whether `path` leads to the open file now, so that it could be opened again."""
        return self.found_by_name(follow_symlinks=True) is not None

    def found_by_name(self, *, follow_symlinks: bool) -> os.stat_result | None:
        """Returns the stat of its name; None if nothing, or another file, has that name now."""
        try:
            info = os.stat(self.path, follow_symlinks=follow_symlinks)  # noqa: PTH116 - a hot path: thousands per partial scan
        except OSError:
            return None
        return info if (info.st_dev, info.st_ino) == self.inode_key else None

    # -- reading --------------------------------------------------------------------------------------------------------------------

    def split(self, limit: int) -> Split:
        """Returns its next split, of at most `limit` bytes. The file must be open."""
        end = self.offset.position + limit
        if not self.is_packed:
            end = min(self.size, end)
        at_ns = clock.seen_ns(self.identity.device, self.seen.ctime_ns)
        self.reading = replace(self.reading, size=self.size, at_ms=int(time.time() * 1000), at_ns=at_ns)
        only_as_rest = self.packing.only_as_rest and not self.offset.position
        offset = replace(self.offset, done=False) if self.offset.done and not only_as_rest else self.offset
        if self.provenance.first_fingerprint.head_bytes and not (offset.position or self.is_packed):
            offset = replace(offset, fingerprint=self.provenance.first_fingerprint)  # a task that begins late finds out that it was cut
        return Split(
            self.partition,
            self.path,
            f"/proc/{os.getpid()}/fd/{self.fd}",
            offset,
            end,
            final=self.ending.final and (self.is_packed or end == self.size),
            flush=self.ending.flush and end == self.size,
            inode=self.identity.inode,
            mtime_ms=self.seen.mtime_ns // 1_000_000,
            origins=self.packing.origins if self.is_packed and not self.offset.position else (),
            origin_sizes=self.packing.origin_sizes if self.is_packed and not self.offset.position else (),
            after=None if self.waits_for is None else self.waits_for.partition,
        )

    def remembered(self, *, gone: bool = False, done: bool = False) -> SourceOffset:
        """Returns its offset with its present name and size, by which the next start finds it. Stats the open file, and its name.

        `gone`: it has left its patterns, as it has, too, if its name does not lead to it any more. `done`: no search looks for it.
        """
        self.refresh()
        path, gone = self.path, gone or not self.has_its_name()
        if gone and self.fd >= 0 and not self.is_deleted():
            with contextlib.suppress(OSError):
                path = os.fsdecode(Path(f"/proc/self/fd/{self.fd}").readlink())
        done = done or (self.is_packed and self.offset.done and self.offset.size == self.known_size)
        return replace(self.offset, path=path, size=self.known_size, gone_ms=int(time.time() * 1000) if gone else 0, done=done)
