"""One generation of one file, as the driver knows it: what it is, how far it is settled, how large it is."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path

from copycat_agent.model import SourceOffset, SourcePartition, Split, SplitResult
from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.backoff import READY, FileBackoff
from copycat_agent.sources.files.identity import Identity, identify
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.paths.opening import Opener
from copycat_agent.sources.log_file.file_state import (
    MATCHED,
    NEVER_READ,
    OPEN_ENDED,
    TOLD,
    UNPROVEN,
    UNTOLD,
    Draining,
    Dropped,
    Ending,
    FileStat,
    HeadProof,
    Packing,
    Provenance,
    Schedule,
    Standing,
    observe,
)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Its place among the generations of its log: `family` and `age`, see `generations`.

    `after` and `barrier`: the file it was rotated from, and how much of that one goes first (-1: what it has when this one has its first
    bytes).
    """

    family: tuple[str, str] = ("", "")
    age: tuple[int, int] = (0, 0)
    after: TrackedFile | None = None
    barrier: int = 0


_ALONE = Rotation()


@dataclass(eq=False, slots=True)
class TrackedFile:
    """The driver's state of a file: a few frozen values (see `file_state`), which nobody but its own methods replaces.

    `opened` are all open files of the connector; `fd` is -1 while this one is closed. `unpacks`: whether packed files are unpacked.
    """

    partition: SourcePartition
    identity: Identity
    path: str
    offset: SourceOffset
    opened: set[TrackedFile] = field(repr=False)
    fd: int = -1
    seen: FileStat = field(default_factory=FileStat)
    proof: HeadProof = UNPROVEN
    schedule: Schedule = NEVER_READ
    ending: Ending = OPEN_ENDED
    packing: Packing = UNTOLD
    rotation: Rotation = _ALONE
    backoff: FileBackoff = READY
    provenance: Provenance = field(default_factory=Provenance)
    standing: Standing = MATCHED
    unpacks: InitVar[bool] = True

    def __post_init__(self, unpacks: bool) -> None:
        """What is read of it says what it is; an archive that was read to its end needs no reading while it is as large."""
        if not unpacks or self.offset.position > 0 or self.is_packed:
            self.packing = TOLD
        if self.is_packed and self.offset.done:
            self.ending = Ending(stalled_size=self.offset.size)

    # -- what it is ------------------------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """How often the file was begun anew before."""
        return Identity.parse(self.partition.key)[1]

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
        return self.seen.mtime_ns if self.generation else self.identity.birth_ns

    @property
    def size(self) -> int:
        """As of the last look."""
        return self.seen.size

    @property
    def removed(self) -> bool:
        """Whether nobody follows it any more."""
        return self.standing.is_dropped

    @property
    def gone_since(self) -> float | None:
        """Since when no pattern finds it, `time.monotonic()`; None when one does."""
        return self.standing.since

    @property
    def in_flight(self) -> bool:
        """Whether a task reads it."""
        return self.schedule.in_flight

    @property
    def unjudged(self) -> bool:
        """Whether it is not known yet what it is, so that nobody reads it."""
        return self.provenance.unjudged

    @property
    def grown_at(self) -> float:
        """When it was last found to be written to, `time.monotonic()`."""
        return self.seen.grown_at

    @property
    def after(self) -> TrackedFile | None:
        """The file that goes first, None when none does."""
        return self.rotation.after

    @property
    def unread(self) -> bool:
        """Whether there may be something to read."""
        seen, ending = self.seen, self.ending
        if seen.size <= (0 if self.offset.compression else self.offset.position) or seen.rewritten or seen.replaced or self.is_cut_unread:
            return False
        return ending.stalled_size != seen.size or ending.final or ending.flush

    @property
    def may_be_planned(self) -> bool:
        """Whether there may be something to read that nobody reads yet, and it is known what it is."""
        return self.unread and not (self.in_flight or self.unjudged)

    @property
    def needs_scan(self) -> bool:
        """Whether it is not what was read any more, which a scan sorts out."""
        is_cut = self.size < (min(1, self.offset.position) if self.is_packed else self.offset.position)
        return self.seen.rewritten or self.seen.replaced or is_cut or self.is_cut_unread

    @property
    def is_cut_unread(self) -> bool:
        """Whether it was cut before anything of it was read: nobody knows what it holds now, and what it held may be in a copy."""
        return self.seen.cut is not None and not (self.offset.position or self.is_packed or self.in_flight)

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
        return self.packing.rest if size == self.ending.stalled_size else max(min(1, size), size - self.packing.position)

    @property
    def settled_size(self) -> int:
        """How much of the file, as it lies on the disk, is read and settled."""
        return max(0, self.ending.stalled_size) if self.is_packed else self.offset.position

    @property
    def known_size(self) -> int:
        """Its size, or what it was before a cut whose losses are not counted yet: the next start counts them by it."""
        return self.size if self.seen.cut is None else max(self.size, self.seen.cut[0])

    # -- looks ----------------------------------------------------------------------------------------------------------------------

    def observe(self, info: os.stat_result) -> None:
        """Take over what stat says."""
        before = self.seen
        if before.has_other_content(info):
            self.ending = self.ending.after_growth(is_as_large=info.st_size == before.size)
        elif info.st_ctime_ns == before.changed_ns and before.met_ns:
            return
        self.seen = observe(before, info, time.monotonic(), is_packed=self.is_packed)
        if not before.met_ns:
            self.proof = replace(self.proof, at_ns=clock.seen_ns(info.st_dev, info.st_ctime_ns))

    def refresh(self) -> None:
        """Look at the open file. No effect when it is closed, or cannot be looked at: who reads it will say why."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self.observe(os.fstat(self.fd))

    def met(self, info: os.stat_result) -> None:
        """It is followed from now on: what it holds is what was read of it, or what nobody has read."""
        self.observe(info)
        self.proof = replace(self.proof, mtime_ns=self.seen.mtime_ns, size=self.size)

    def found(self, info: os.stat_result) -> None:
        """A pattern finds it."""
        if self.standing is not MATCHED:
            self.standing = Dropped(None) if self.removed else MATCHED
        self.observe(info)

    def renamed(self, path: str, changed_ns: int) -> None:
        """It has another name since `changed_ns`."""
        self.path, self.seen = path, replace(self.seen, met_ns=changed_ns)

    def left_patterns(self) -> None:
        """No pattern finds it from now on."""
        self.standing = Draining(time.monotonic())

    def seen_deleted(self, since: float, size: int) -> None:
        """It has no name since then, and held so much."""
        assert isinstance(self.standing, Draining)
        self.standing = replace(self.standing, deleted=(since, size))

    def dropped(self) -> None:
        """Nobody follows it any more."""
        self.standing = Dropped(self.standing.since)

    def note_rewritten(self) -> None:
        """It holds other bytes than were read of it. What it was cut from by now had been read: only a later cut takes what nobody saw."""
        self.refresh()
        self.seen = replace(self.seen, rewritten=True)

    def compared(self, *, is_other: bool) -> None:
        """A task has compared what it holds with what was read of it."""
        if self.seen.rewritten:
            self.seen = replace(self.seen, rewritten=False)
        if is_other:
            self.note_rewritten()

    def proven(self) -> None:
        """Its bytes are about to be compared with what was read: they need not be again while its time of change is the same."""
        self.proof = replace(self.proof, mtime_ns=self.seen.mtime_ns)

    def unproven(self) -> None:
        """They could not be compared: the next look asks again."""
        self.proof = replace(self.proof, mtime_ns=0)

    def cut_entered(self) -> None:
        """What it lost when it was cut has been entered."""
        self.seen = replace(self.seen, cut=None)
        self.proof = replace(self.proof, size=min(self.proof.size, self.size))

    def begun_anew(self, partition: SourcePartition, path: str, why: str, *, unpacks: bool) -> TrackedFile:
        """Its next generation: the same file, of which nothing is read."""
        seen = self.seen
        return TrackedFile(
            partition,
            self.identity,
            path,
            SourceOffset(0, path=path, size=seen.size),
            self.opened,
            seen=FileStat(seen.size, seen.mtime_ns, seen.changed_ns, seen.changed_ns),
            proof=HeadProof(0, seen.size, clock.seen_ns(self.identity.device, seen.changed_ns)),
            provenance=Provenance(f"it begins anew: {why}"),
            standing=MATCHED if self.gone_since is None else Draining(self.gone_since),
            unpacks=unpacks,
        )

    # -- waiting --------------------------------------------------------------------------------------------------------------------

    def joined(self, family: tuple[str, str], age: tuple[int, int]) -> None:
        """It has its place among the generations of its log."""
        self.rotation = replace(self.rotation, family=family, age=age)

    def wait_for(self, before: TrackedFile | None, barrier: int = 0) -> None:
        """It is not read until `before` is, up to `barrier`; None: it waits for nobody."""
        self.rotation = replace(self.rotation, after=before, barrier=barrier)

    def waits(self) -> bool:
        """Whether the file it was rotated from still has lines that go first. An ailing predecessor is not waited for.

        Nor one that nobody reads until it is known what it is: it may itself wait for this one. What that waits for goes first.
        """
        while self.after is not None and self.after.unjudged and not self.after.removed:
            self.wait_for(self.after.after, -1)
        before = self.after
        if before is None:
            return False
        if not (before.removed or before.backoff.errors) and self._goes_first(before):
            return True
        self.wait_for(None)
        return False

    def _goes_first(self, before: TrackedFile) -> bool:
        """Whoever writes had `before` until this one got its first bytes: what it holds then goes first."""
        barrier = self.rotation.barrier
        if barrier >= 0 and not before.is_packed and before.offset.position >= barrier:
            return False
        before.refresh()
        if barrier < 0:
            self.wait_for(before, before.size)
        return before.in_flight or before.unread or before.ending.timed

    def back_off(self) -> float:
        """It could not be read: try again later, more slowly each time. Returns seconds to wait."""
        delay, self.backoff = self.backoff.error_seconds, self.backoff.after_error(time.monotonic())
        return delay

    def block(self) -> None:
        """Its records cannot be sent until someone repairs something: try again later, and let others go on."""
        self.backoff = self.backoff.after_block(time.monotonic())

    def recover(self) -> None:
        """It could be read and sent."""
        self.backoff = READY

    def held_back(self) -> None:
        """It is not known yet what it is: nobody reads it."""
        self.provenance = replace(self.provenance, unjudged=True)

    def freed(self) -> None:
        """It is known what it is."""
        self.provenance = replace(self.provenance, unjudged=False)

    def copies(self, other: SourcePartition) -> None:
        """All that it holds now is what `other` holds too."""
        self.provenance = replace(self.provenance, copy_of=other, copied=self.size)

    def explained(self, why: str) -> None:
        """What put it at its position, for people."""
        self.provenance = replace(self.provenance, why=why)

    # -- the open file --------------------------------------------------------------------------------------------------------------

    def adopt(self, fd: int) -> None:
        """`fd` is open on this file and belongs to it from now on."""
        self.fd = fd
        self.opened.add(self)
        with contextlib.suppress(OSError):  # who opens it for its turn tries again
            self.tell()

    def tell(self) -> None:
        """Find out from the first bytes of the open file whether it is packed, as soon as there are enough. Raises OSError."""
        self._note_beginning()
        if self.packing.told or not self.size:
            return
        codec = packed.recognise(self.read(0, packed.MAGIC_BYTES), whole=self.ending.final)
        if codec is None:
            self.ending = replace(self.ending, stalled_size=self.size)
            return
        self.packing = TOLD if self.packing is UNTOLD else replace(self.packing, told=True)
        self.ending = replace(self.ending, stalled_size=-1)
        if codec:
            self.offset = replace(self.offset, compression=codec)

    def _note_beginning(self) -> None:
        if self.size and not (self.provenance.first_fingerprint.head_bytes or self.offset.position or self.is_packed):
            first = fingerprint.of(self.read(0, min(self.size, fingerprint.HEAD_BYTES)), b"")
            self.provenance = replace(self.provenance, first_fingerprint=first)

    def begins_otherwise(self) -> bool:
        """Whether the open file, of which nothing is read, does not begin as it did: it was cut, and has grown since. Raises OSError."""
        is_unread = not (self.offset.position or self.is_packed or self.in_flight)
        return is_unread and not fingerprint.holds(self.read, self.provenance.first_fingerprint, 0)

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
            self.seen = replace(self.seen, replaced=(found.device, found.inode) == self.inode_key)
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

    def close(self) -> None:
        """Close it; the offset stays known."""
        fd = self.hand_over()
        if fd >= 0:
            os.close(fd)

    # -- reading --------------------------------------------------------------------------------------------------------------------

    def planned(self, turn: int) -> None:
        """It is its turn, which has this number: a task reads it from now on."""
        self.schedule = replace(self.schedule, turn=turn, in_flight=True)

    def landed(self) -> None:
        """The task that read it is over."""
        self.schedule = replace(self.schedule, in_flight=False)

    def split(self, limit: int) -> Split:
        """The next stretch, at most `limit` bytes. The file is open."""
        end = self.offset.position + limit
        if not self.is_packed:
            end = min(self.size, end)
        at_ns = clock.seen_ns(self.identity.device, self.seen.changed_ns)
        self.schedule = replace(self.schedule, size=self.size, at_ms=int(time.time() * 1000), at_ns=at_ns)
        offset = replace(self.offset, done=False) if self.offset.done and not self.packing.origins else self.offset
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
            after=None if self.after is None else self.after.partition,
        )

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

    def note_unread(self) -> bool:
        """Returns `unread`: since when there is something to read in it is kept for who asks for the oldest."""
        unread, since_ms = self.unread, self.schedule.unread_since_ms
        if unread != bool(since_ms):
            self.schedule = replace(self.schedule, unread_since_ms=int(time.time() * 1000) if unread else 0)
        return unread

    def note_progress(self, offset: SourceOffset) -> None:
        """A split is settled up to `offset`. What was there when it was planned is read: the rest came later."""
        if offset.position > self.offset.position:
            planned = self.schedule
            is_read = offset.done if self.is_packed else offset.position >= planned.size
            since_ms = planned.at_ms if is_read else planned.unread_since_ms
            self.schedule = replace(planned, read_at=time.time(), unread_since_ms=since_ms)
            self.proof = replace(self.proof, at_ns=planned.at_ns)
            self.provenance = self.provenance.once_read()
        self.offset = offset

    def note_end(self, result: SplitResult) -> None:
        """A task came to what was the end, or the limit it was given."""
        size = result.split.end
        is_end = result.at_end and (self.is_packed or size >= self.size)
        if self.is_packed:
            size = result.offset.size
            self.packing = self.packing.after_end(result)
        else:
            self.proof = replace(self.proof, size=max(self.proof.size, size))
        if is_end:
            self.ending = self.ending.after_end(result, size)

    def continued(self, offset: SourceOffset, why: str) -> None:
        """It goes on where another file ended."""
        self.offset = offset
        self.explained(why)

    def expected(self, offset: SourceOffset) -> None:
        """It is read only if a task finds that it is the rest of another file; `offset` says that nobody need look for it."""
        self.offset, self.ending = offset, replace(self.ending, stalled_size=-1)

    def size_saved(self) -> None:
        """How large it has become while nothing of it could be sent is saved with its offset."""
        self.offset = replace(self.offset, size=self.known_size, done=False)

    def may_continue(self, origins: tuple[SourceOffset, ...]) -> None:
        """These are what a packed file may be the rest of: its task finds out."""
        self.packing = replace(self.packing, origins=origins)

    def wait_for_group(self, *, waits: bool) -> None:
        """A group of lines stands open at its end, and waits for its time, or does no more."""
        self.ending = replace(self.ending, timed=waits)

    def end_record(self, *, final: bool) -> None:
        """What stands at its end is a record, whatever comes: its last one (`final`), or the end of a group of lines."""
        self.ending = replace(self.ending, final=final, flush=not final)

    def finish(self) -> None:
        """What is left of it without a delimiter is its last record."""
        self.ending = replace(self.ending, final=True)
