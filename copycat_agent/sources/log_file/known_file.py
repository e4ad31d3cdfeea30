"""One generation of one file, as far as it is known: what it is, what is left to read, and how scans and tasks change that.

Nothing here opens or stats a file.
"""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace

from copycat_agent.model import SourceOffset, SourcePartition, SplitResult
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.log_file.file_state import (
    KNOWN_PACKING,
    MATCHED,
    NEVER_READ,
    NEVER_VERIFIED,
    OPEN_ENDED,
    UNKNOWN_PACKING,
    Draining,
    Dropped,
    Ending,
    FileReading,
    FileStat,
    LastVerified,
    Packing,
    Provenance,
    Standing,
)
from copycat_agent.sources.planner import READY, FileBackoff


@dataclass(eq=False, slots=True)
class KnownFile:
    """The state of a file: a few frozen values of `file_state`, which only its own methods replace.

    `unpacks`: whether packed files are unpacked.
    """

    partition: SourcePartition
    identity: Identity
    path: str
    offset: SourceOffset
    _: KW_ONLY
    seen: FileStat = field(default_factory=FileStat)
    verified: LastVerified = NEVER_VERIFIED
    reading: FileReading = NEVER_READ
    ending: Ending = OPEN_ENDED
    packing: Packing = UNKNOWN_PACKING
    backoff: FileBackoff = READY
    provenance: Provenance = field(default_factory=Provenance)
    standing: Standing = MATCHED
    unpacks: InitVar[bool] = True

    # -- what it is -----------------------------------------------------------------------------------------------------------------

    def __post_init__(self, unpacks: bool) -> None:
        """Packing counts as known if nothing is unpacked or something was read.

        An archive that was read to its end is not read again while it keeps that size.
        """
        if not unpacks or self.offset.position > 0 or self.is_packed:
            self.packing = KNOWN_PACKING
        if self.is_packed and self.offset.done:
            self.ending = Ending(stalled_size=self.offset.size)

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
        """Device and inode, which are unique among files that exist now."""
        return self.identity.device, self.identity.inode

    @property
    def made_ns(self) -> int:
        """The earliest time of its present content, epoch nanoseconds by the clock of its file system, 0 if unknown."""
        # An overwritten inode is older than its present content.
        return self.seen.mtime_ns if self.generation else self.identity.birth_ns

    @property
    def size(self) -> int:
        """Its size at the last look, in bytes."""
        return self.seen.size

    @property
    def removed(self) -> bool:
        """Whether it is not followed any more."""
        return self.standing.is_dropped

    @property
    def draining_since(self) -> float | None:
        """Since when no pattern finds it, as `time.monotonic()`; None if one does."""
        return self.standing.since

    @property
    def in_flight(self) -> bool:
        """Whether a task reads it."""
        return self.reading.in_flight

    @property
    def unjudged(self) -> bool:
        """Whether it must not be read yet, because it may be the copy or the rest of another file."""
        return bool(self.provenance.unjudged)

    @property
    def passes_turn(self) -> bool:
        """Whether newer files of its log do not wait for it, because it is not known what it is."""
        return self.unjudged and not self.provenance.keeps_turn

    @property
    def grown_at(self) -> float:
        """When it was last found to be written to, as `time.monotonic()`."""
        return self.seen.grown_at

    # -- what is left to read -------------------------------------------------------------------------------------------------------

    @property
    def unread(self) -> bool:
        """Whether there may be something to read."""
        seen, ending = self.seen, self.ending
        if seen.size <= (0 if self.offset.compression else self.offset.position) or seen.rewritten or seen.replaced or self.is_cut_unread:
            return False
        return ending.stalled_size != seen.size or ending.final or ending.flush

    @property
    def may_be_planned(self) -> bool:
        """Whether there may be something to read that no task reads yet, and it is known what the file is."""
        return self.unread and not (self.in_flight or self.unjudged)

    @property
    def needs_scan(self) -> bool:
        """Whether it no longer holds what was read of it, so that a scan has to begin it anew."""
        is_cut = self.size < (min(1, self.offset.position) if self.is_packed else self.offset.position)
        return self.seen.rewritten or self.seen.replaced or is_cut or self.is_cut_unread

    @property
    def is_cut(self) -> bool:
        """Whether it was just cut: the next scan makes it a previous generation."""
        return self.seen.cut is not None or self.needs_scan

    @property
    def is_cut_unread(self) -> bool:
        """Whether it was cut before anything of it was read. Then a copy may hold its former content, and its present content is new."""
        return self.seen.cut is not None and not (self.offset.position or self.is_packed or self.in_flight)

    @property
    def is_stalled(self) -> bool:
        """Whether all that is unread in it is an incomplete record, as of the last look."""
        is_busy = self.in_flight or self.unread or self.needs_scan
        return not is_busy and not self.is_packed and self.size > self.offset.position

    @property
    def backlog(self) -> int:
        """How many bytes are unread, after the offset.

        For a packed file it counts the packed bytes that were not taken in, or the unpacked ones that wait for their end.
        """
        return self.unread_at(self.size)

    def unread_at(self, size: int) -> int:
        """Returns its backlog at the time when it had `size` bytes."""
        if not self.is_packed:
            return max(0, size - self.offset.position)
        return self.packing.rest if size == self.ending.stalled_size else max(min(1, size), size - self.packing.position)

    @property
    def settled_size(self) -> int:
        """How many bytes of the file on disk are read and settled."""
        return max(0, self.ending.stalled_size) if self.is_packed else self.offset.position

    @property
    def known_size(self) -> int:
        """Its size, or the one before a cut whose losses are not counted yet, so that the next start can count them."""
        return self.size if self.seen.cut is None else max(self.size, self.seen.cut[0])

    def note_unread(self) -> bool:
        """Returns `unread`, and records since when it holds."""
        unread, since_ms = self.unread, self.reading.unread_since_ms
        if unread != bool(since_ms):
            self.reading = replace(self.reading, unread_since_ms=int(time.time() * 1000) if unread else 0)
        return unread

    # -- what a scan found ----------------------------------------------------------------------------------------------------------

    def renamed(self, path: str, ctime_ns: int) -> None:
        """Records its name since `ctime_ns`, epoch nanoseconds by the clock of its file system."""
        self.path, self.seen = path, replace(self.seen, met_ns=ctime_ns)

    def seen_deleted(self, since: float, size: int) -> None:
        """Records since when it has no name, as `time.monotonic()`, and its size then. No pattern finds it."""
        assert isinstance(self.standing, Draining)
        self.standing = replace(self.standing, deleted=(since, size))

    def dropped(self) -> None:
        """Marks it as a file that is not followed any more."""
        self.standing = Dropped(self.standing.since)

    def note_verified(self) -> None:
        """Records that its bytes equal what was read. They are compared again when its modification time differs."""
        self.verified = replace(self.verified, mtime_ns=self.seen.mtime_ns)

    def note_unverified(self) -> None:
        """Records that its bytes could not be compared, so that the next look tries again."""
        self.verified = replace(self.verified, mtime_ns=0)

    def cut_entered(self) -> None:
        """Records that what it lost when it was cut is in the ledger."""
        self.seen = replace(self.seen, cut=None)
        self.verified = replace(self.verified, size=min(self.verified.size, self.size))

    def copy_sought(self) -> None:
        """Records that a scan looks for a copy of what it held since it was empty."""
        self.seen = replace(self.seen, emptied_ns=0)

    # -- whether it is read now -----------------------------------------------------------------------------------------------------

    def held_back(self, why: str, *, keeps_turn: bool = False) -> None:
        """Keeps it from being read until it is known what it is. `why`: why that is not known yet, as a message.

        `keeps_turn`: newer files of its log wait for it meanwhile. Else they do not, since it may turn out to come after them.
        """
        self.provenance = replace(self.provenance, unjudged=why, keeps_turn=keeps_turn)

    def freed(self) -> None:
        """Lets it be read: it is known what it is."""
        self.provenance = replace(self.provenance, unjudged="", keeps_turn=False)

    def back_off(self) -> float:
        """Records that it could not be read. Returns the seconds until the next attempt, more each time."""
        delay, self.backoff = self.backoff.error_seconds, self.backoff.after_error(time.monotonic())
        return delay

    def block(self) -> None:
        """Records that its records cannot be sent until someone repairs something. It is tried again later; other files go on."""
        self.backoff = self.backoff.after_block(time.monotonic())

    def recover(self) -> None:
        """Records that it could be read and sent."""
        self.backoff = READY

    def planned(self, turn: int) -> None:
        """Records that a task reads it from now on. `turn` is the number of its turn."""
        self.reading = replace(self.reading, turn=turn, in_flight=True)

    def note_gone_on(self, result: SplitResult) -> None:
        """Records the progress of a task that stayed at the file's end. Has no effect if it did not stay."""
        if result.seen_ns:
            self.reading = replace(self.reading, size=result.split.end, at_ms=int(time.time() * 1000), at_ns=result.seen_ns)

    def note_task_ended(self) -> None:
        """Records that no task reads it any more."""
        self.reading = replace(self.reading, in_flight=False)

    # -- what a task did ------------------------------------------------------------------------------------------------------------

    def note_progress(self, offset: SourceOffset) -> None:
        """Records that a split is settled up to `offset`. Data that is still unread was written after the split was planned."""
        if offset.position > self.offset.position:
            planned = self.reading
            is_read = offset.done if self.is_packed else offset.position >= planned.size
            since_ms = planned.at_ms if is_read else planned.unread_since_ms
            self.reading = replace(planned, read_at=time.time(), unread_since_ms=since_ms)
            self.verified = replace(self.verified, at_ns=planned.at_ns)
            self.provenance = self.provenance.once_read()
        self.offset = offset

    def note_end(self, result: SplitResult) -> None:
        """Records that a task reached the end of the file, or the limit of its split."""
        size = result.split.end
        is_end = result.at_end and (self.is_packed or size >= self.size)
        if self.is_packed:
            size = result.offset.size
            self.packing = self.packing.after_end(result)
        else:
            self.verified = replace(self.verified, size=max(self.verified.size, size))
        if is_end:
            self.ending = self.ending.after_end(result, size)

    def wait_for_group(self, *, waits: bool) -> None:
        """Records whether an open group of lines at its end waits for its time-out."""
        self.ending = replace(self.ending, timed=waits)

    def end_record(self, *, final: bool) -> None:
        """Makes the rest at its end a record: the last one of the file (`final`), or the end of a group of lines."""
        self.ending = replace(self.ending, final=final, flush=not final)

    def end_last_record(self) -> None:
        """Makes the rest without a delimiter its last record."""
        self.ending = replace(self.ending, final=True)

    def take_size_over(self) -> None:
        """Takes its present size over into its offset, which is about to be saved, though nothing of it could be sent."""
        self.offset = replace(self.offset, size=self.known_size, done=False)

    # -- where it comes from --------------------------------------------------------------------------------------------------------

    def note_copy_of(self, other: SourcePartition) -> None:
        """Records that all its present content is a copy of `other`."""
        self.provenance = replace(self.provenance, copy_of=other, copied=self.size)

    def set_why(self, why: str) -> None:
        """Records the reason for its position, as a message."""
        self.provenance = replace(self.provenance, why=why)

    def continue_from(self, offset: SourceOffset, why: str) -> None:
        """Lets it continue where another file ended. `why` is a message."""
        self.offset = offset
        self.set_why(why)

    def read_only_as_rest(self, offset: SourceOffset) -> None:
        """Lets it be read only if a task finds that it is the rest of another file. `offset` is done: no search looks for it."""
        self.offset, self.ending = offset, replace(self.ending, stalled_size=-1)
        self.packing = replace(self.packing, only_as_rest=True)

    def set_origins(self, origins: tuple[SourceOffset, ...], sizes: tuple[int, ...] = ()) -> None:
        """Records which files a packed file may be the rest of, and their sizes. Its task finds out."""
        self.packing = replace(self.packing, origins=origins, origin_sizes=sizes)
