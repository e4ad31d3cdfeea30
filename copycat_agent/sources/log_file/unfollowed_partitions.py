"""Saved offsets of files that are not followed: recognised when a file is met, under any name, and forgotten if it never is.

Device numbers change, keys stay: an offset of another device is the file's if inode and birth time are the same and the fingerprint holds,
and its row keeps its key. So a reboot writes nothing, neither here nor to Kafka.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from copycat_agent.logs import Log
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.base import Lose, Offsets
from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.identity import Identity, InodeFinder
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.log_file.rotation import OffsetsByHead, log_of, logs_of
from copycat_agent.sources.planner import Changes

Saved = tuple[SourcePartition, SourceOffset]
CUT = "the file was cut before they were read"
"""Why bytes of an existing file are lost, as a message."""


class RecalledFile(NamedTuple):
    """What is known of a file that was met: its partition, None if it is new, and then the generation to begin."""

    partition: SourcePartition | None
    offset: SourceOffset
    generation: int


class _UnfollowedFile(NamedTuple):
    """What is known of a file that is not followed, beside its offset.

    `is_previous`: it is a previous generation, the content of its file before it was cut or rewritten: its bytes are in a copy, or nowhere.
    `begun_ns`: the ctime of its file when it was first seen under its last name, if it has kept that since; 0 if that is not known. A file
    made later, and before this one was found to be cut, was made while this one was in its place. `found_ns`: when it was found not to hold
    these bytes any more, by the clock of this host's kernel, or later; 0 if that is not known. `read_ns`: a time, by the clock of its file
    system, at which it certainly held everything up to its offset; 0 if that is not known.
    """

    is_previous: bool = False
    begun_ns: int = 0
    read_ns: int = 0
    found_ns: int = 0


class _UnclaimedLoss(NamedTuple):
    """Why the unread rest of a file is lost if no file has it, and how many of its first bytes its own file still has.

    `log`: the log of a file of which nothing was read, so that no hash relates it to others.
    """

    why: str
    kept: int
    log: tuple[str, str] | None


_PLAIN = _UnfollowedFile()


class UnfollowedPartitions:
    """Partitions of files that are not followed. `offsets` is the live view of what is saved.

    `unclaimed` are those whose unread rest is neither found in another file nor entered as lost, in the order in which they came; `fresh`
    are those of them that wait for one more scan.
    """

    def __init__(self, offsets: Offsets, lose: Lose, log: Log) -> None:
        self._offsets = offsets
        self._lose = lose
        self._log = log
        self._by_inode: dict[int, dict[SourcePartition, _UnfollowedFile]] = {}
        self._devices: dict[int, set[int]] = {}  # other numbers that the device of a saved file has now
        self._heads = OffsetsByHead()
        self.unclaimed: dict[SourcePartition, _UnclaimedLoss] = {}
        self._unread_of_log: dict[tuple[str, str], dict[SourcePartition, None]] = {}
        self.fresh: set[SourcePartition] = set()

    def load(self, partitions: list[SourcePartition]) -> None:
        """Takes in the saved rows when the agent starts. All keys are those of files."""
        newest: dict[Identity, int] = {}
        for partition in partitions:
            identity, generation = Identity.parse(partition.key)
            newest[identity] = max(generation, newest.get(identity, 0))
        previous = _UnfollowedFile(is_previous=True, found_ns=clock.now_ns())
        for partition in partitions:
            identity, generation = Identity.parse(partition.key)
            offset = self._offsets[partition]
            is_previous = generation < newest[identity]
            self._add(partition, offset, previous if is_previous else _PLAIN)
            if is_previous and not offset.done:
                self.note_unclaimed(partition, offset, CUT)

    def note_unclaimed(self, partition: SourcePartition, offset: SourceOffset, why: str, kept: int = 0) -> None:
        """Makes the unread rest of an unfollowed file unclaimed, so that it is searched for. `why` it is lost if no file has it.

        Its own file still has the first `kept` bytes.
        """
        log = log_of(offset.path) if not offset.position else None
        if (known := self.unclaimed.get(partition)) is not None:
            log = known.log or log
        self.unclaimed[partition] = _UnclaimedLoss(why, kept, log)
        if log is not None:
            self._unread_of_log.setdefault(log, {})[partition] = None

    def add(self, partition: SourcePartition, offset: SourceOffset, read_ns: int = 0) -> None:
        """Adds a partition whose file is not followed, or not any more. `read_ns` is as in `_UnfollowedFile`."""
        self._add(partition, offset, _UnfollowedFile(read_ns=read_ns) if read_ns else _PLAIN)

    def _add(self, partition: SourcePartition, offset: SourceOffset, row: _UnfollowedFile) -> None:
        self._by_inode.setdefault(_inode(partition), {})[partition] = row
        self._heads.add(partition, offset)

    def add_previous(
        self,
        partition: SourcePartition,
        offset: SourceOffset,
        why: str,
        changes: Changes,
        *,
        kept: int = 0,
        begun_ns: int = 0,
        read_ns: int = 0,
    ) -> None:
        """Adds a partition whose file begins anew and does not hold its bytes any more, or only the first `kept`.

        `why` its rest is lost, if no copy has it. `begun_ns` and `read_ns` are as in `_UnfollowedFile`.
        """
        if not offset.position and not offset.size:
            changes.forget.add(partition)
            changes.offsets.pop(partition, None)
            return
        changes.offsets[partition] = offset = replace(offset, gone_ms=int(time.time() * 1000))
        self._add(partition, offset, _UnfollowedFile(True, begun_ns, read_ns, clock.now_ns()))
        self.note_unclaimed(partition, offset, why, kept)
        self.fresh.add(partition)

    def copied_by(self, partition: SourcePartition, birth_ns: int) -> bool:
        """Returns whether a rotated file made then can only be a copy of this previous generation, whose own file kept its name."""
        return 0 < self._row(partition).begun_ns < birth_ns

    def was_cut_before(self, partition: SourcePartition, made: Identity, made_ns: int) -> bool:
        """Returns whether a file was made after this previous generation was found to be cut, so that it is no copy of it.

        `made_ns` is by the clock of its file system.
        """
        return 0 < self._row(partition).found_ns < made_ns and clock.is_local(made.device)

    def was_read_after(self, partition: SourcePartition, changed_ns: int) -> bool:
        """Returns whether it certainly still held what was read of it after this time, by the clock of its file system."""
        return changed_ns < self._row(partition).read_ns

    def is_previous(self, partition: SourcePartition) -> bool:
        """Returns whether its file has begun anew since."""
        return self._row(partition).is_previous

    def _row(self, partition: SourcePartition) -> _UnfollowedFile:
        return self._by_inode.get(_inode(partition), {}).get(partition, _PLAIN)

    def recall(self, path: str, fd: int, info: os.stat_result, identity: Identity, changes: Changes) -> RecalledFile:
        """Returns the saved offset of this very file, if it still holds what was read from it. Raises OSError; then nothing has changed."""
        generation = 0
        for partition, row in list(self._by_inode.get(identity.inode, {}).items()):
            saved, saved_generation = Identity.parse(partition.key)
            offset = self.known(partition, changes)
            if row.is_previous:
                generation = max(generation, saved_generation + 1) if saved == identity else generation
            elif offset is None:
                self._drop(partition)
            elif _may_be_same(saved, identity, offset, path, info):
                if _was_cut_unread(offset, info.st_size):
                    self._drop(partition)
                    self.add_previous(partition, offset, "the file was cut while the agent did not run", changes)
                    generation = saved_generation + 1 if saved == identity else 0
                elif packed.is_same(fingerprint.reader(fd), info.st_size, offset):
                    self._drop(partition)
                    self._devices.setdefault(saved.device, set()).add(identity.device)
                    self.lose_rest(partition, offset, info.st_size, "the file was cut while the agent did not run", changes)
                    if offset != (offset := packed.recalled(offset, info.st_size)):
                        changes.offsets[partition] = offset
                    return RecalledFile(partition, offset, saved_generation)
                elif saved == identity:
                    self._drop(partition)
                    self.add_previous(partition, offset, "the file was rewritten while the agent did not run", changes)
                    generation = saved_generation + 1
                    self._log.warning("file begun anew while the agent was away, reading from its beginning", path=offset.path)
        return RecalledFile(None, SourceOffset(0), generation)

    @property
    def inodes(self) -> tuple[int, ...]:
        """The inodes with saved rows."""
        return tuple(self._by_inode)

    def at_inode(self, inode: int) -> tuple[SourcePartition, ...]:
        """Returns the rows of files with this inode, and of its former files."""
        return tuple(self._by_inode.get(inode, ()))

    def is_there(self, partition: SourcePartition, offset: SourceOffset, whereabouts: InodeFinder) -> bool | None:
        """Returns whether its file exists, under any name in its last directory; None if that is not known."""
        identity, _ = Identity.parse(partition.key)
        return whereabouts.seen(offset.path, identity, self._devices.get(identity.device, ()))

    def has(self, partition: SourcePartition) -> bool:
        """Returns whether its file is not followed."""
        return partition in self._by_inode.get(_inode(partition), ())

    def knows(self, identity: Identity, fd: int, size: int, changes: Changes) -> bool:
        """Returns whether a row has the present content of this open file, not only that before it was overwritten. Raises OSError.

        With its birth time it is known on another device too: numbers change by a remount.
        """
        for partition in self._rows_of(identity):
            offset = None if self.is_previous(partition) else self.known(partition, changes)
            if offset is not None and not _was_cut_unread(offset, size) and packed.is_same(fingerprint.reader(fd), size, offset):
                return True
        return False

    def has_row(self, identity: Identity, changes: Changes) -> bool:
        """Returns whether a file that cannot be opened has any row, whatever its content is now."""
        return any(self.known(partition, changes) is not None for partition in self._rows_of(identity))

    def _rows_of(self, identity: Identity) -> Iterator[SourcePartition]:
        for partition in self._by_inode.get(identity.inode, ()):
            saved, _ = Identity.parse(partition.key)
            if saved.birth_ns == identity.birth_ns and (saved.birth_ns or saved.device == identity.device):
                yield partition

    def written_over(self, identity: Identity, changes: Changes) -> int:
        """Makes the row of an overwritten file a previous generation. Returns the generation that the file begins with."""
        generation = 0
        for partition in {*self._by_inode.get(identity.inode, ()), *changes.forget}:  # a key that was just given up is not reused
            saved, saved_generation = Identity.parse(partition.key)
            if saved != identity:
                continue
            generation = max(generation, saved_generation + 1)
            offset = self.known(partition, changes)
            if offset is not None and not self.is_previous(partition) and partition not in changes.forget:
                self._drop(partition)
                self.add_previous(partition, offset, "the file was written over before they were read", changes)
        return generation

    def candidates(self, path: str, head: bytes, changes: Changes | None) -> list[Saved]:
        """Returns offsets with the head of a file at `path`, and with names related to its name, the furthest first."""
        saved = [(partition, self.known(partition, changes)) for partition in self._heads.find(path, head)]
        found = [(partition, offset) for partition, offset in saved if offset is not None and offset.position]
        return sorted(found, key=lambda one: (-one[1].position, Identity.parse(one[0].key)[1]))

    def has_family(self, path: str) -> bool:
        """Returns whether a file at `path` may continue one of these, judging by names."""
        return self._heads.has_family(path) or any(log in self._unread_of_log for log in logs_of(path))

    def has_unread(self, path: str) -> bool:
        """Returns whether a file at `path` may hold what one of these held, of which nothing was read, judging by names."""
        return self._heads.has_unread(path)

    def has_longer(self, path: str, size: int) -> bool:
        """Returns whether `size` bytes are too few to tell whether a file at `path` continues one of these."""
        return self._heads.has_longer(path, size)

    def unread_of(self, path: str, changes: Changes) -> list[Saved]:
        """Returns unclaimed previous generations, oldest first, of which nothing was read, of the same log as `path`."""
        found = [partition for log in logs_of(path) for partition in self._unread_of_log.get(log, ())]
        saved = [(partition, self.known(partition, changes)) for partition in found]
        return [(one, offset) for one, offset in saved if offset is not None]

    def forget(self, partition: SourcePartition, changes: Changes) -> None:
        """Gives up its offset, which another partition has taken over."""
        self._drop(partition)
        changes.forget.add(partition)
        changes.offsets.pop(partition, None)

    def give_up_rest(self, partition: SourcePartition, offset: SourceOffset, kept: int, changes: Changes) -> None:
        """Enters its rest beyond the first `kept` bytes as lost: no file has it. The offset is kept if it proves anything."""
        rest = self.unclaimed[partition]
        self._claim(partition)
        self.lose_rest(partition, offset, max(kept, rest.kept), rest.why, changes)
        if offset.position:
            changes.offsets[partition] = replace(offset, done=True)
        else:
            self.forget(partition, changes)

    def followed_last(self, changes: Changes) -> list[Saved]:
        """Returns those that were followed when the agent last looked: neither closed nor given up, nor previous generations."""
        known = [partition for rows in self._by_inode.values() for partition, row in rows.items() if not row.is_previous]
        saved = [(partition, self.known(partition, changes)) for partition in known]
        return [(partition, offset) for partition, offset in saved if offset is not None and not offset.done]

    def known(self, partition: SourcePartition, changes: Changes | None) -> SourceOffset | None:
        """Returns its offset as saved, or about to be; None if it has none."""
        return (changes and changes.offsets.get(partition)) or self._offsets.get(partition)

    def lose_rest(self, partition: SourcePartition, offset: SourceOffset, size: int, why: str, changes: Changes) -> None:
        """Enters as lost the known, unread data beyond the first `size` bytes. A file that is done loses nothing."""
        start, end, words = packed.rest(offset, size)
        if end > start:
            self._lose(partition, offset.path, start, end, why + words, changes)

    def _drop(self, partition: SourcePartition) -> None:
        inode = _inode(partition)
        rows = self._by_inode[inode]
        del rows[partition]
        if not rows:
            del self._by_inode[inode]
        self._claim(partition)
        self.fresh.discard(partition)
        self._heads.discard(partition)

    def _claim(self, partition: SourcePartition) -> None:
        """Ends the search for its rest."""
        rest = self.unclaimed.pop(partition, None)
        if rest is not None and rest.log is not None:
            del self._unread_of_log[rest.log][partition]
            if not self._unread_of_log[rest.log]:
                del self._unread_of_log[rest.log]


def _inode(partition: SourcePartition) -> int:
    return Identity.parse(partition.key)[0].inode


def _was_cut_unread(offset: SourceOffset, size: int) -> bool:
    """Returns whether an unread file is shorter than it was: its former content may be in a copy, its present one is new."""
    return not (offset.position or offset.compression or offset.done) and size < offset.size


def _may_be_same(saved: Identity, met: Identity, offset: SourceOffset, path: str, info: os.stat_result) -> bool:
    """Returns whether files of equal inode may be the same. On another device that takes its birth time and read data as proof.

    Without birth time it takes a name of the same log, and a whole head, or all of its content, must have been read.
    """
    if saved.birth_ns != met.birth_ns:
        return False
    if saved.device == met.device:
        return True
    if met.birth_ns:
        return bool(offset.fingerprint.head_bytes or not offset.position)  # if nothing was read, nothing is repeated
    has_proof = offset.fingerprint.head_bytes == fingerprint.HEAD_BYTES or 0 < info.st_size == offset.position
    return has_proof and log_of(path) == log_of(offset.path)
