"""One generation of one file, as far as is known: what it is, what is left to read in it, and how reports of scans and tasks change that.

Nothing here opens a file or looks at one.
"""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace

from copycat_agent.model import SourceOffset, SourcePartition, SplitResult
from copycat_agent.sources.files.backoff import READY, FileBackoff
from copycat_agent.sources.files.identity import Identity
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
)


@dataclass(eq=False, slots=True)
class KnownFile:
    """The state of a file: a few frozen values (see `file_state`), which only its own methods replace.

    `unpacks`: whether packed files are unpacked.
    """

    partition: SourcePartition
    identity: Identity
    path: str
    offset: SourceOffset
    _: KW_ONLY
    seen: FileStat = field(default_factory=FileStat)
    proof: HeadProof = UNPROVEN
    schedule: Schedule = NEVER_READ
    ending: Ending = OPEN_ENDED
    packing: Packing = UNTOLD
    backoff: FileBackoff = READY
    provenance: Provenance = field(default_factory=Provenance)
    standing: Standing = MATCHED
    unpacks: InitVar[bool] = True

    # -- what it is -----------------------------------------------------------------------------------------------------------------

    def __post_init__(self, unpacks: bool) -> None:
        """What is read of it says what it is; an archive that was read to its end needs no reading while it is as large."""
        if not unpacks or self.offset.position > 0 or self.is_packed:
            self.packing = TOLD
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

    def note_unread(self) -> bool:
        """Returns `unread`: since when there is something to read in it is kept for who asks for the oldest."""
        unread, since_ms = self.unread, self.schedule.unread_since_ms
        if unread != bool(since_ms):
            self.schedule = replace(self.schedule, unread_since_ms=int(time.time() * 1000) if unread else 0)
        return unread

    # -- what a scan found ----------------------------------------------------------------------------------------------------------

    def renamed(self, path: str, changed_ns: int) -> None:
        """It has another name since `changed_ns`."""
        self.path, self.seen = path, replace(self.seen, met_ns=changed_ns)

    def seen_deleted(self, since: float, size: int) -> None:
        """It has no name since then, and held so much."""
        assert isinstance(self.standing, Draining)
        self.standing = replace(self.standing, deleted=(since, size))

    def dropped(self) -> None:
        """Nobody follows it any more."""
        self.standing = Dropped(self.standing.since)

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

    # -- whether it is read now -----------------------------------------------------------------------------------------------------

    def held_back(self) -> None:
        """It is not known yet what it is: nobody reads it."""
        self.provenance = replace(self.provenance, unjudged=True)

    def freed(self) -> None:
        """It is known what it is."""
        self.provenance = replace(self.provenance, unjudged=False)

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

    def planned(self, turn: int) -> None:
        """It is its turn, which has this number: a task reads it from now on."""
        self.schedule = replace(self.schedule, turn=turn, in_flight=True)

    def landed(self) -> None:
        """The task that read it is over."""
        self.schedule = replace(self.schedule, in_flight=False)

    # -- what a task did ------------------------------------------------------------------------------------------------------------

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

    def wait_for_group(self, *, waits: bool) -> None:
        """A group of lines stands open at its end, and waits for its time, or does no more."""
        self.ending = replace(self.ending, timed=waits)

    def end_record(self, *, final: bool) -> None:
        """What stands at its end is a record, whatever comes: its last one (`final`), or the end of a group of lines."""
        self.ending = replace(self.ending, final=final, flush=not final)

    def finish(self) -> None:
        """What is left of it without a delimiter is its last record."""
        self.ending = replace(self.ending, final=True)

    def size_saved(self) -> None:
        """How large it has become while nothing of it could be sent is saved with its offset."""
        self.offset = replace(self.offset, size=self.known_size, done=False)

    # -- where it comes from --------------------------------------------------------------------------------------------------------

    def copies(self, other: SourcePartition) -> None:
        """All that it holds now is what `other` holds too."""
        self.provenance = replace(self.provenance, copy_of=other, copied=self.size)

    def explained(self, why: str) -> None:
        """What put it at its position, for people."""
        self.provenance = replace(self.provenance, why=why)

    def continued(self, offset: SourceOffset, why: str) -> None:
        """It goes on where another file ended."""
        self.offset = offset
        self.explained(why)

    def expected(self, offset: SourceOffset) -> None:
        """It is read only if a task finds that it is the rest of another file; `offset` says that nobody need look for it."""
        self.offset, self.ending = offset, replace(self.ending, stalled_size=-1)

    def may_continue(self, origins: tuple[SourceOffset, ...]) -> None:
        """These are what a packed file may be the rest of: its task finds out."""
        self.packing = replace(self.packing, origins=origins)
