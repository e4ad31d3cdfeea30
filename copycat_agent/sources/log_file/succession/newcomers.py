"""Newly met files of which nothing is read: it is decided what they are before they are read.

Each is held back, compared with the files it may come from, and then treated as `match` says: it continues another one, is read as a file
of its own, or waits for the next scan.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from copycat_agent.logs import Log
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, is_at
from copycat_agent.sources.files.paths.regular_files import Opener
from copycat_agent.sources.log_file.followed import FollowedFiles
from copycat_agent.sources.log_file.rotation import dated_family, is_newest, is_rotated, rotation_family
from copycat_agent.sources.log_file.succession import rules, similarity
from copycat_agent.sources.log_file.succession.archives import Archives
from copycat_agent.sources.log_file.tracked import TrackedFile
from copycat_agent.sources.log_file.unfollowed_partitions import Saved
from copycat_agent.sources.planner import Changes

NOT_COMPARED = "it was not compared with other files yet"
PREVIOUS = "what was not read of it before it was begun anew is looked for, and comes first"
"""Reasons why a file is not read yet."""


@dataclass(slots=True)
class _PendingNewcomer:
    """The state of a file that is not read yet.

    `is_unjudged`: it may be the copy or the rest of another file. `previous`: the unread rest of this generation of it comes first, if it
    is found before `held_until` (`time.monotonic()`). `batches` are the files it may come from that a task read when it was first compared,
    with the number of that turn. `original_size`: the size of the file that it is a copy of; `complete_at`: when it had that size.
    """

    is_unjudged: bool = False
    previous: SourcePartition | None = None
    held_until: float = 0.0
    batches: dict[TrackedFile, int] | None = None
    original_size: int = -1
    complete_at: float = math.inf


class Newcomers:
    """Decides what the new files of one connector are. Until that is known, a file is `unjudged` and not read."""

    def __init__(self, followed: FollowedFiles, opener: Opener, log: Log) -> None:
        self._followed = followed
        self._opener = opener
        self._log = log
        self.archives = Archives(followed, opener, self._relatives, self._take_over, log)
        self.needs_scan = False
        self.is_due = False
        """Whether a batch that a file was waiting for has returned, and `judge` has not run since."""
        self.undecided: dict[TrackedFile, _PendingNewcomer] = {}
        """The files that must not be read yet."""
        self._copies: dict[SourcePartition, TrackedFile] = {}

    def add(self, newcomers: list[TrackedFile]) -> None:
        """Takes up files that were just met and of which nothing is read. `judge` is called before they are planned."""
        for file in newcomers:
            if file.is_packed or not file.packing.is_known or self._may_be_rest(file):
                file.held_back(NOT_COMPARED)
                self.undecided.setdefault(file, _PendingNewcomer()).is_unjudged = True

    def hold(self, begun: list[TrackedFile], changes: Changes) -> None:
        """Takes up files that were cut or overwritten and begin anew.

        None is read before it is known whether a copy has its unread rest, which comes first. One with a rotated name may hold what another
        file held before that was cut, whatever it held itself: it is judged like one that was just made.
        """
        unfollowed, self.needs_scan = self._followed.unfollowed, False
        for fresh in begun:
            saved_as, generation = Identity.parse(fresh.partition.key)
            previous = SourcePartition(fresh.partition.connector, saved_as.key(generation - 1))
            offset = unfollowed.known(previous, changes) if previous in unfollowed.unclaimed else None
            if offset is not None and _has_unread_text(offset) and fresh.draining_since is None:
                past = max(0.0, time.time() - offset.gone_ms / 1000)
                self.undecided[fresh] = _PendingNewcomer(previous=previous, held_until=time.monotonic() + rules.QUIET_SECONDS - past)
        self.add([fresh for fresh in begun if is_rotated(fresh.path)])
        for fresh in begun:
            self._free(fresh)

    def judge(self, changes: Changes, *, at_once: bool) -> None:
        """Decides what can be decided now. `at_once`: does not wait for copies. Sets `needs_scan` if another scan will decide more."""
        self.is_due = False
        self.archives.let_go(at_once=at_once)
        for file, state in list(self.undecided.items()):
            if not state.is_unjudged:
                continue
            is_begun = file.removed or file.in_flight or file.offset.position > 0
            if is_begun or self._is_decided(file, changes, at_once=at_once):
                self.undecided[file] = _PendingNewcomer(previous=state.previous, held_until=state.held_until)
                self.archives.judged(file)
                self._free(file)

    def release(self, *, at_once: bool) -> None:
        """Releases files whose previous generation was found, is lost, or was searched for long enough."""
        for file, state in list(self.undecided.items()):
            is_over = at_once or file.removed or time.monotonic() > state.held_until
            if state.previous is not None and (is_over or state.previous not in self._followed.unfollowed.unclaimed):
                state.previous = None
                self._free(file)

    @property
    def has_pending(self) -> bool:
        """Whether anything is undecided, and may be decided as time goes by."""
        return self.needs_scan or bool(self.undecided) or self.archives.has_pending

    def note_batch_returned(self, file: TrackedFile) -> None:
        """Records that the batch that read `file` has returned: what was undecided because of it is due now."""
        self.is_due |= any(file in (state.batches or ()) for state in self.undecided.values())

    @property
    def is_releasing(self) -> bool:
        """Whether a file is held although its previous generation has been found, so that the next scan releases it."""
        unclaimed = self._followed.unfollowed.unclaimed
        return any(state.previous is not None and state.previous not in unclaimed for state in self.undecided.values())

    def _has_enough(self, file: TrackedFile, *, at_once: bool) -> bool:
        """Returns whether the file has enough bytes to be compared."""
        if file.size and not file.packing.is_known:
            with similarity.kept_open(file, self._opener), contextlib.suppress(OSError):
                file.detect_packing()
        return file.size > 0 and (file.packing.is_known or at_once or similarity.is_quiet(file))

    def awaited(self) -> set[str]:
        """Returns the rotation families of files that are not judged yet. Nothing of these families is entered as lost so far."""
        return self.archives.awaited() | {
            rotation_family(file.path) for file, state in self.undecided.items() if file.size and state.is_unjudged
        }

    def copied(self, partition: SourcePartition) -> int:
        """Returns how many bytes of a previous generation are in a copy that is read as a file of its own."""
        file = self._copies.pop(partition, None)
        return 0 if file is None else file.provenance.copied_of(partition)

    def take_rest(self, file: TrackedFile, partition: SourcePartition, offset: SourceOffset, changes: Changes, why: str) -> None:
        """Lets `file` continue where another partition ends, which is given up for it. `why` is a message."""
        self._log.info("file continues another one", path=file.path, origin=offset.path, offset=offset.position, why=why)
        self._take_over(partition, offset, file.size, changes)
        packing = file.offset.compression
        here = replace(offset, done=False, gone_ms=file.offset.gone_ms, path=file.path, size=file.size, compression=packing)
        file.continue_from(here, f"it goes on where {offset.path} ended: {why}")
        changes.offsets[file.partition] = file.offset
        self._followed.put_before_successor(file, Identity.parse(partition.key)[0])
        self._followed.note_readable(file)

    def _take_over(self, partition: SourcePartition, offset: SourceOffset, kept: int, changes: Changes) -> None:
        end = offset.size if not (offset.done or offset.compression) else 0
        start = max(offset.position, kept)
        if end > start:
            why = "written between a copy of the file and its end"
            self._followed.lost.add(partition, offset.path, start, end, why, changes)
        self._copies.pop(partition, None)
        self._followed.unfollowed.forget(partition, changes)

    def _may_be_rest(self, file: TrackedFile) -> bool:
        """Returns whether it may be the rest of a known file, judging by names alone, so that thousands of new files cost nothing."""
        if self._followed.draining_at(file.path):
            return True
        if is_newest(file.offset.path) and not dated_family(file.offset.path):  # it was written to under this name, and is no copy
            return False
        return is_rotated(file.path) and (self._followed.unfollowed.has_family(file.path) or bool(self._relatives(file)))

    def _free(self, file: TrackedFile) -> None:
        state = self.undecided.get(file)
        if state is not None:
            if state.is_unjudged:
                return
            if state.previous is not None:
                file.held_back(PREVIOUS, keeps_turn=True)
                return
            del self.undecided[file]
        file.freed()
        self._followed.note_readable(file)
        if not file.removed:
            self._followed.rotation_order.link(file)

    def _is_decided(self, file: TrackedFile, changes: Changes, *, at_once: bool) -> bool:
        """Applies the verdict of `match` to `file`. Returns whether it is known now what the file is."""
        if not self._has_enough(file, at_once=at_once):
            return self._apply(file, rules.match(rules.Newcomer(file.size, has_enough=False), ()), changes)
        with similarity.kept_open(file, self._opener) as is_open:
            if not is_open:
                return True
            try:
                may_grow = not (at_once or similarity.is_quiet(file))
                newcomer = rules.Newcomer(file.size, True, may_grow, similarity.unchanged_seconds(file), file.made_ns)
                return self._apply(file, rules.match(newcomer, self._look(file, newcomer, changes)), changes)
            except OSError:
                return True  # the task that reads it reports the error

    def _apply(self, file: TrackedFile, verdict: rules.Verdict, changes: Changes) -> bool:
        """Applies a verdict. Returns whether it is final. Raises OSError."""
        if isinstance(verdict, rules.Undecided):
            self.needs_scan |= verdict.needs_scan
            file.held_back(verdict.why)
            return False
        if isinstance(verdict, rules.Continuation):
            offset = _shorter(file, verdict.offset) if verdict.is_shorter else verdict.offset
            for relative in self._relatives(file):
                if relative.partition == verdict.partition:  # it is deleted, and only its descriptor leads to it
                    self._followed.remove(relative)
            self.take_rest(file, verdict.partition, offset, changes, verdict.why)
        elif verdict.other:
            words = "file holds what another one holds too, is read as one of its own"
            self._log.info(words, path=file.path, other=verdict.other, bytes=file.size)
        return True

    # -- looks ----------------------------------------------------------------------------------------------------------------------

    def _look(self, file: TrackedFile, newcomer: rules.Newcomer, changes: Changes) -> Iterator[rules.Evidence]:
        """Yields the evidence on an open file, comparing one thing after the other. Raises OSError."""
        head, relatives = similarity.head_of(file), self._relatives(file)
        state = self.undecided[file]
        if state.batches is None:
            state.batches = {one: one.reading.turn for one in relatives if one.in_flight}
        yield from (rules.BeingRead(one.path) for one, turn in state.batches.items() if one.in_flight and one.reading.turn == turn)
        if newcomer.unchanged_seconds <= rules.YOUNG_SECONDS:
            yield from (rules.JustCut(one.path, one.in_flight) for one in relatives if one.is_cut)
        if file.is_packed:
            yield from self.archives.look(file, newcomer, head)
            return
        if is_rotated(file.path):
            yield from (self._saved_row(file, *row) for row in self._candidates(file, head, changes))
            unfollowed = self._followed.unfollowed
            yield from (
                rules.UnreadRow(partition, offset, unfollowed.copied_by(partition, file.made_ns))
                for partition, offset in unfollowed.unread_of(file.path, changes)
                if _is_other(partition, file) and not unfollowed.was_cut_before(partition, file.identity, file.made_ns)
            )
        yield from filter(None, (self._compare(file, newcomer, relative) for relative in relatives if not relative.is_packed))

    def _saved_row(self, file: TrackedFile, partition: SourcePartition, offset: SourceOffset) -> rules.UnfollowedRow:
        """Returns the evidence of a saved row, reading no more of both files than is needed. Raises OSError."""
        unfollowed = self._followed.unfollowed
        copied, is_previous = file.provenance.copied_of(partition), unfollowed.is_previous(partition)
        proves = rules.can_prove(offset, is_previous=is_previous, copied=copied)
        stands = proves and not is_previous and _stands(offset, partition)
        holds = proves and not stands and similarity.holds(file, offset)
        made_after = unfollowed.copied_by(partition, file.made_ns) and not unfollowed.was_cut_before(partition, file.identity, file.made_ns)
        was_read_later = unfollowed.was_read_after(partition, max(file.made_ns, file.seen.mtime_ns))
        return rules.UnfollowedRow(partition, offset, is_previous, copied, stands, holds, made_after, was_read_later)

    def _candidates(self, file: TrackedFile, head: bytes, changes: Changes) -> list[Saved]:
        """Returns the rows it may continue, first the one it was seen to be a copy of; not its own, from before it was overwritten."""
        unfollowed, original = self._followed.unfollowed, file.provenance.copy_of
        found = [one for one in unfollowed.candidates(file.path, head, changes) if _is_other(one[0], file)]
        if original is not None and unfollowed.has(original) and (offset := unfollowed.known(original, changes)):
            return [(original, offset), *(one for one in found if one[0] != original)]
        return found

    def _compare(self, file: TrackedFile, newcomer: rules.Newcomer, relative: TrackedFile) -> rules.Evidence | None:
        """Compares an open file, which is not packed, with a relative that it may be a copy of, or have replaced. Raises OSError."""
        with similarity.kept_open(relative, self._opener) as is_open:
            if not is_open:
                return None
            relative.refresh()
            if relative.is_deleted():
                return similarity.replaced(file, relative)
            if not (is_rotated(file.path) and rules.may_be_copy(newcomer, relative.identity.birth_ns)):
                return None
            if not relative.is_cut:
                if relative.offset.position and not relative.holds():  # cut, and grown beyond its offset since
                    if relative.in_flight:  # its task is about to find out
                        return rules.JustCut(relative.path, in_flight=True)
                    relative.note_rewritten()
                elif similarity.begins_like(file, relative, file.size):
                    return self._copy(file, relative)
                else:
                    relative.refresh()
            return rules.JustCut(relative.path, relative.in_flight) if relative.is_cut else None

    def _copy(self, file: TrackedFile, original: TrackedFile) -> rules.StandingFile:
        file.note_copy_of(original.partition)
        self._copies[original.partition] = file
        state = self.undecided[file]
        if state.original_size < 0:
            state.original_size = original.size
        if file.size >= state.original_size:
            state.complete_at = min(state.complete_at, time.monotonic())
        return rules.StandingFile(original.path, time.monotonic() - state.complete_at)

    def _is_unjudged(self, file: TrackedFile) -> bool:
        return file in self.undecided and self.undecided[file].is_unjudged

    def _relatives(self, file: TrackedFile) -> list[TrackedFile]:
        """Returns followed files that `file` may have been copied from, packed from, or moved over."""
        others = [one for one in self._followed.relatives(file.path) if one is not file]
        found = [one for one in others if is_newest(one.path) or not self._is_unjudged(one)]
        return found if file.is_packed else [one for one in found if is_newest(one.path) or one.draining_since is not None]


def _is_other(partition: SourcePartition, file: TrackedFile) -> bool:
    return Identity.parse(partition.key)[0] != file.identity


def _shorter(file: TrackedFile, offset: SourceOffset) -> SourceOffset:
    """Returns the offset at the end of an open file that holds less than was read of the other one. Raises OSError."""
    proof = fingerprint.take(file.read, file.size)
    return replace(offset, position=file.size, fingerprint=proof, size=0, skipping=offset.skipping and not offset.cut, cut="")


def _has_unread_text(offset: SourceOffset) -> bool:
    return offset.size > offset.position and not (offset.done or offset.compression)


def _stands(offset: SourceOffset, partition: SourcePartition) -> bool:
    """Returns whether the file still has its last name, so that its bytes exist, though they may not be readable now."""
    try:
        return is_at(offset.path, Identity.parse(partition.key)[0])
    except OSError:
        return False
