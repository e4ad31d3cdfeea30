"""Is a newly met file the rest of a known one? Copies that copytruncate leaves, files moved over others, archives.

It is when both are of one rotation family, when the known file has the bytes no more (it was cut, or is gone), and when the new
one has them. Equal text alone is no proof: in doubt a file is read from its beginning.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.base import Changes
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, is_at
from copycat_agent.sources.files.paths.opening import Opener
from copycat_agent.sources.log_file.absent import Saved
from copycat_agent.sources.log_file.followed import Followed
from copycat_agent.sources.log_file.generations import is_newest, is_rotated, rotation_family
from copycat_agent.sources.log_file.succession import similarity
from copycat_agent.sources.log_file.succession.archives import Archives
from copycat_agent.sources.log_file.succession.evidence import Evidence, can_prove, claim, claim_unread
from copycat_agent.sources.log_file.tracked import TrackedFile

if TYPE_CHECKING:
    from copycat_agent.logs import Log

YOUNG_SECONDS = 600.0
"""A copy that was not touched for so long is none in the making."""


class Origins:
    """Judges files that were met and of which nothing is read. Until it is known what a file is, it is `unjudged` and not read."""

    def __init__(self, followed: Followed, opener: Opener, log: Log) -> None:
        self._followed = followed
        self._opener = opener
        self._log = log
        self.archives = Archives(followed, opener, self._relatives, self._take_over, log)
        self.needs_scan = False
        self._unjudged: dict[TrackedFile, None] = {}
        self._held: dict[TrackedFile, tuple[SourcePartition, float]] = {}
        self._flights: dict[TrackedFile, dict[TrackedFile, int]] = {}
        self._twins: dict[TrackedFile, tuple[int, float]] = {}
        self._copies: dict[SourcePartition, TrackedFile] = {}

    def add(self, newcomers: list[TrackedFile]) -> None:
        """Take up files that were just met and of which nothing is read. Empties the list. `judge` is called before they are planned."""
        for file in newcomers:
            if file.is_packed or not file.packing.told or self._may_be_rest(file):
                file.held_back()
                self._unjudged[file] = None
        newcomers.clear()

    def hold(self, begun: list[TrackedFile], changes: Changes) -> None:
        """Take up files that were cut or written over and begin anew. Empties the list.

        None is read before it is known whether a copy has what was not read of it, which comes first. One with a rotated name may
        hold what another file held before that was cut, whatever it held itself: it is judged like one that was just made.
        """
        absent, self.needs_scan = self._followed.absent, False
        for fresh in begun:
            saved_as, generation = Identity.parse(fresh.partition.key)
            previous = SourcePartition(fresh.partition.connector, saved_as.key(generation - 1))
            offset = absent.known(previous, changes) if previous in absent.unclaimed else None
            if offset is not None and _has_rest(offset) and fresh.gone_since is None:
                past = max(0.0, time.time() - offset.gone_ms / 1000)
                fresh.held_back()
                self._held[fresh] = previous, time.monotonic() + similarity.QUIET_SECONDS - past
        self.add([fresh for fresh in begun if is_rotated(fresh.path)])
        for fresh in begun:
            self._free(fresh)
        begun.clear()

    def judge(self, changes: Changes, *, at_once: bool) -> None:
        """Decide what can be decided now. `at_once`: a copy is not waited for. `needs_scan`: another scan will decide more."""
        self.archives.let_go(at_once=at_once)
        for file in list(self._unjudged):
            is_begun = file.removed or file.in_flight or file.offset.position > 0
            if is_begun or (self._is_told(file, at_once=at_once) and not self._waits(file, changes, at_once=at_once)):
                del self._unjudged[file]
                self._flights.pop(file, None)
                self._twins.pop(file, None)
                self.archives.judged(file)
                self._free(file)

    def release(self, *, at_once: bool) -> None:
        """Let files be read whose previous generation was found, is lost, or was looked for long enough."""
        for file, (previous, until) in list(self._held.items()):
            if at_once or file.removed or previous not in self._followed.absent.unclaimed or time.monotonic() > until:
                del self._held[file]
                self._free(file)

    @property
    def has_pending(self) -> bool:
        """Whether something is not decided yet, and may be as time goes by."""
        return self.needs_scan or bool(self._unjudged or self._held or self._flights or self.archives.has_pending)

    @property
    def is_releasing(self) -> bool:
        """Whether a file is held whose previous generation is found."""
        return any(previous not in self._followed.absent.unclaimed for previous, _ in self._held.values())

    def _is_told(self, file: TrackedFile, *, at_once: bool) -> bool:
        """Whether there is enough of it to look at."""
        if file.size and not file.packing.told:
            with similarity.opened(file, self._opener), contextlib.suppress(OSError):
                file.tell()
        return file.size > 0 and (file.packing.told or at_once or similarity.is_quiet(file))

    def awaited(self) -> set[str]:
        """Returns the rotation families of files that are not judged yet. Nothing of these families is entered as lost so far."""
        return self.archives.awaited() | {rotation_family(file.path) for file in self._unjudged if file.size}

    def copied(self, partition: SourcePartition) -> int:
        """Returns how much of a previous generation is in a copy of it that is read as a file of its own."""
        file = self._copies.pop(partition, None)
        return 0 if file is None else file.provenance.copied

    def take_rest(self, file: TrackedFile, partition: SourcePartition, offset: SourceOffset, changes: Changes, why: str) -> None:
        """Let `file` go on where another partition ends, which is given up for it. `why`, for people."""
        self._log.info("file continues another one", path=file.path, origin=offset.path, offset=offset.position, why=why)
        self._take_over(partition, offset, file.size, changes)
        packing = file.offset.compression
        here = replace(offset, done=False, gone_ms=0, path=file.path, size=file.size, compression=packing)
        file.continued(here, f"it goes on where {offset.path} ended: {why}")
        changes.offsets[file.partition] = file.offset
        self._followed.put_before_successor(file, Identity.parse(partition.key)[0])
        self._followed.touch(file)

    def _take_over(self, partition: SourcePartition, offset: SourceOffset, kept: int, changes: Changes) -> None:
        end = offset.size if not (offset.done or offset.compression) else 0
        start = max(offset.position, kept)
        if end > start:
            why = "written between a copy of the file and its end"
            self._followed.lost.add(partition, offset.path, start, end, why, changes)
        self._followed.absent.forget(partition, changes)

    def _may_be_rest(self, file: TrackedFile) -> bool:
        """Whether it may be the rest of a known file, by names alone, so that thousands of new files cost nothing."""
        if self._followed.gone_at(file.path):
            return True
        if is_newest(file.offset.path):  # under this name it is known: it was written to, and is no copy
            return False
        return is_rotated(file.path) and (self._followed.absent.has_family(file.path) or bool(self._relatives(file)))

    def _free(self, file: TrackedFile) -> None:
        if file in self._held or file in self._unjudged:
            return
        file.freed()
        self._followed.touch(file)
        if not file.removed:
            self._followed.generations.link(file)

    def _waits(self, file: TrackedFile, changes: Changes, *, at_once: bool) -> bool:
        """Whether nothing can be said about `file` yet. Else it goes on with something, or is new."""
        with similarity.opened(file, self._opener) as is_open:
            if not is_open:
                return False
            try:
                head = similarity.head_of(file)
                if self._is_landing(file) or self._is_unsettled(file):
                    return True
                if file.is_packed:
                    return self.archives.waits(file, head, at_once=at_once)
                if is_rotated(file.path) and (self._goes_on(file, head, changes) or self._follows_unread(file, changes)):
                    return False
                return self._waits_for_copy(file, changes, at_once=at_once)
            except OSError:
                return False  # the task that reads it reports that

    def _is_landing(self, file: TrackedFile) -> bool:
        """Whether a task still reads a relative, as it did when `file` was first looked at: how far it came is not known."""
        flights = self._flights.get(file)
        if flights is None:
            flights = self._flights[file] = {one: one.schedule.turn for one in self._relatives(file) if one.in_flight}
        return any(one.in_flight and one.schedule.turn == turn for one, turn in flights.items())

    def _is_unsettled(self, file: TrackedFile) -> bool:
        """Whether a relative was cut just now."""
        if similarity.unchanged_seconds(file) > YOUNG_SECONDS:
            return False
        return any(self._is_cut(one) for one in self._relatives(file))

    def _is_cut(self, one: TrackedFile) -> bool:
        """Whether it was cut just now: the next scan knows it as a previous generation."""
        is_cut = one.seen.cut is not None or one.needs_scan
        self.needs_scan |= is_cut and not one.in_flight
        return is_cut

    def _goes_on(self, file: TrackedFile, head: bytes, changes: Changes) -> bool:
        """Take over the offset of a file that has its bytes no more. Raises OSError."""
        for partition, offset in self._candidates(file, head, changes):
            found = claim(offset, self._evidence(file, partition, offset))
            if found is not None:
                self.take_rest(file, partition, _shorter(file, offset) if found.is_shorter else offset, changes, found.why)
                return True
        return False

    def _evidence(self, file: TrackedFile, partition: SourcePartition, offset: SourceOffset) -> Evidence:
        """Returns what looks at `file` and at the other one find; looks at no more than is needed. Raises OSError."""
        absent, copied = self._followed.absent, self._copied_of(file, partition)
        is_previous = absent.is_previous(partition)
        proves = can_prove(offset, is_previous=is_previous, copied=copied)
        stands = proves and not is_previous and _stands(offset, partition)
        holds = proves and not stands and similarity.holds(file, offset)
        return Evidence(file.size, is_previous, copied, stands, holds, absent.copied_by(partition, file.made_ns))

    def _candidates(self, file: TrackedFile, head: bytes, changes: Changes) -> list[Saved]:
        """Returns what it may go on with, first what it was seen to be a copy of; not what it held itself before it was written over."""
        absent, original = self._followed.absent, file.provenance.copy_of
        found = [one for one in absent.candidates(file.path, head, changes) if _is_other(one[0], file)]
        if original is not None and absent.has(original) and (offset := absent.known(original, changes)):
            return [(original, offset), *(one for one in found if one[0] != original)]
        return found

    def _follows_unread(self, file: TrackedFile, changes: Changes) -> bool:
        """Take over what a file held that was cut before anything of it was read."""
        for partition, offset in filter(lambda one: _is_other(one[0], file), self._followed.absent.unread_of(file.path, changes)):
            found = claim_unread(offset, file.size, made_after=self._followed.absent.copied_by(partition, file.made_ns))
            if found is not None:
                self.take_rest(file, partition, offset, changes, found.why)
                return True
        return False

    def _waits_for_copy(self, file: TrackedFile, changes: Changes, *, at_once: bool) -> bool:
        """Whether it is the copy of a file that is still there. It waits until that one is cut or gone, or nothing happens for a while."""
        for one in self._relatives(file):
            if one.is_packed:
                continue
            with similarity.opened(one, self._opener) as is_open:
                if not is_open:
                    continue
                one.refresh()
                if one.is_deleted():
                    if self._replaces(file, one, changes):
                        return file.offset.position == 0 and not one.removed
                elif is_rotated(file.path) and self._is_copy(file, one, at_once=at_once):
                    return True
        return False

    def _is_copy(self, file: TrackedFile, one: TrackedFile, *, at_once: bool) -> bool:
        """Whether `file` is so far a copy of `one`, and worth waiting for."""
        is_older = 0 < file.made_ns < one.identity.birth_ns  # made before the other one was
        if is_older or similarity.unchanged_seconds(file) > YOUNG_SECONDS:
            return False
        if self._is_cut(one):
            return True
        if one.offset.position and not (one.in_flight or one.holds()):
            one.note_rewritten()  # cut, and grown beyond its offset since
            self.needs_scan = True
            return True
        if not similarity.begins_like(file, one, file.size):
            one.refresh()
            return self._is_cut(one)
        self._note_copy(file, one)
        if not (at_once or similarity.is_quiet(file) or self._is_twin(file, one)):
            return True
        self._log.info("file holds what another one holds too, is read as one of its own", path=file.path, other=one.path, bytes=file.size)
        return False

    def _is_twin(self, file: TrackedFile, one: TrackedFile) -> bool:
        """Whether it has had all that the other one held when it was met for so long that both are written to: a copy is over by then."""
        size, caught_up = self._twins.setdefault(file, (one.size, math.inf))
        if file.size >= size and caught_up == math.inf:
            self._twins[file] = size, time.monotonic()
        return time.monotonic() - caught_up >= similarity.QUIET_SECONDS

    def _note_copy(self, file: TrackedFile, one: TrackedFile) -> None:
        file.copies(one.partition)
        self._copies[one.partition] = file

    def _copied_of(self, file: TrackedFile, partition: SourcePartition) -> int:
        return file.provenance.copied if file.provenance.copy_of == partition else 0

    def _replaces(self, file: TrackedFile, one: TrackedFile, changes: Changes) -> bool:
        """Whether `file` has all that the deleted `one` held, and came into its place; then it goes on there, or waits till it may."""
        name = similarity.last_name(one)
        moved_over = name == file.path and similarity.was_there_before(file, one)
        was_copied = is_rotated(file.path) and not is_rotated(name)
        if not (moved_over or was_copied) or not one.size or file.size < one.size or not similarity.begins_like(file, one, one.size):
            return False
        if one.in_flight:
            return True
        offset = replace(one.offset, path=name, size=one.known_size)
        self._followed.remove(one)
        self.take_rest(
            file, one.partition, offset, changes, "it came into the place of that file, which is deleted, and has all that it held"
        )
        return True

    def _relatives(self, file: TrackedFile) -> list[TrackedFile]:
        """Returns followed files that `file` may have been copied from, packed from, or moved over."""
        others = [one for one in self._followed.relatives(file.path) if one is not file]
        found = [one for one in others if one not in self._unjudged or is_newest(one.path)]
        return found if file.is_packed else [one for one in found if is_newest(one.path) or one.gone_since is not None]


def _is_other(partition: SourcePartition, file: TrackedFile) -> bool:
    return Identity.parse(partition.key)[0] != file.identity


def _shorter(file: TrackedFile, offset: SourceOffset) -> SourceOffset:
    """The offset at the end of an open file that holds less than was read of the other one. Raises OSError."""
    proof = fingerprint.take(file.read, file.size)
    return replace(offset, position=file.size, fingerprint=proof, size=0, skipping=offset.skipping and not offset.cut, cut="")


def _has_rest(offset: SourceOffset) -> bool:
    return offset.size > offset.position and not (offset.done or offset.compression)


def _stands(offset: SourceOffset, partition: SourcePartition) -> bool:
    """Whether the file still has its last name, so that its bytes are there, though nobody may read it now."""
    try:
        return is_at(offset.path, Identity.parse(partition.key)[0])
    except OSError:
        return False
