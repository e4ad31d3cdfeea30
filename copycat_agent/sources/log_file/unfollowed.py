"""Saved offsets of files that are not followed: they are recognised when they are met, under any name, and forgotten when they are not.

Device numbers change, keys stay: an offset of another device is the file's when inode and birth time are the same and the fingerprint
holds, and its row keeps its key. So a reboot writes nothing, neither here nor to Kafka.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.log_file.rotation import Heads, log_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.logs import Log
    from copycat_agent.sources.base import Lose, Offsets
    from copycat_agent.sources.files.identity import Whereabouts
    from copycat_agent.sources.planner import Changes

Saved = tuple[SourcePartition, SourceOffset]
CUT = "the file was cut before they were read"
"""Why bytes of a file that stands there still are lost, for people."""


class Recalled(NamedTuple):
    """What is known of a file that was met: its partition, None when it is new, and then the generation to begin."""

    partition: SourcePartition | None
    offset: SourceOffset
    generation: int


class _UnfollowedFile(NamedTuple):
    """What is known of a file that is not followed, beside its offset.

    `is_previous`: it is a previous generation, what its file held before it was cut or rewritten: its bytes are in a copy, or nowhere.
    `begun_ns`: the ctime of its file when it was first seen under its last name, if it has stood there since; 0 when that is not known.
    What was made later, and before the file was found to be cut, was made while that file stood there.
    `found_ns`: when it was found to hold these bytes no more, by the clock of this host's kernel, or later; 0 when that is not known.
    `read_ns`: a time, by the clock of its file system, at which it certainly held everything up to its offset; 0 when that is not known.
    """

    is_previous: bool = False
    begun_ns: int = 0
    read_ns: int = 0
    found_ns: int = 0


class _Unclaimed(NamedTuple):
    """Why the unread rest of a file is lost if no file has it, and how many of its first bytes its own file still has.

    `log`: the log it belongs to, of a file of which nothing was read, so that no hash relates it to others.
    """

    why: str
    kept: int
    log: tuple[str, str] | None


_PLAIN = _UnfollowedFile()


class Unfollowed:
    """Partitions of files that are not being followed. `offsets` is the live view of what is saved.

    `unclaimed` are those whose unread rest is neither found in another file nor entered as lost, in the order in which they came; `fresh`
    are those of them that wait for one more scan.
    """

    def __init__(self, offsets: Offsets, lose: Lose, log: Log) -> None:
        self._offsets = offsets
        self._lose = lose
        self._log = log
        self._by_inode: dict[int, dict[SourcePartition, _UnfollowedFile]] = {}
        self._devices: dict[int, set[int]] = {}  # other numbers that a device of a saved file has by now
        self._heads = Heads()
        self.unclaimed: dict[SourcePartition, _Unclaimed] = {}
        self._unread_of_log: dict[tuple[str, str], dict[SourcePartition, None]] = {}
        self.fresh: set[SourcePartition] = set()

    def load(self, partitions: list[SourcePartition]) -> None:
        """Take in what is saved when the agent starts. All keys are those of files."""
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
        """Have the unread rest of a file looked for that nobody follows any more. `why` it is lost if no file has it.

        Its own file still has the first `kept` bytes.
        """
        log = log_of(offset.path) if not offset.position else None
        if (known := self.unclaimed.get(partition)) is not None:
            log = known.log or log
        self.unclaimed[partition] = _Unclaimed(why, kept, log)
        if log is not None:
            self._unread_of_log.setdefault(log, {})[partition] = None

    def add(self, partition: SourcePartition, offset: SourceOffset, read_ns: int = 0) -> None:
        """Add a partition whose file is not followed, or no longer. `read_ns` as in `_UnfollowedFile`."""
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
        """Add a partition whose file begins anew and holds the bytes of this one no more, or only the first `kept`.

        `why` its rest is lost, if no copy has it. `begun_ns` and `read_ns` as in `_UnfollowedFile`.
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
        """Whether a rotated file that was made then can only be a copy of this previous generation: its own file never left its place."""
        return 0 < self._row(partition).begun_ns < birth_ns

    def was_cut_before(self, partition: SourcePartition, made: Identity, made_ns: int) -> bool:
        """Whether a file was made after this previous generation was found to be cut, so that it is no copy of what that one held.

        `made_ns` by the clock of its file system.
        """
        return 0 < self._row(partition).found_ns < made_ns and clock.is_local(made.device)

    def was_read_after(self, partition: SourcePartition, changed_ns: int) -> bool:
        """Whether it certainly still held what was read of it after this time, by the clock of its file system."""
        return changed_ns < self._row(partition).read_ns

    def is_previous(self, partition: SourcePartition) -> bool:
        """Whether its file has begun anew since."""
        return self._row(partition).is_previous

    def _row(self, partition: SourcePartition) -> _UnfollowedFile:
        return self._by_inode.get(_inode(partition), {}).get(partition, _PLAIN)

    def recall(self, path: str, fd: int, info: os.stat_result, identity: Identity, changes: Changes) -> Recalled:
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
                    return Recalled(partition, offset, saved_generation)
                elif saved == identity:
                    self._drop(partition)
                    self.add_previous(partition, offset, "the file was rewritten while the agent did not run", changes)
                    generation = saved_generation + 1
                    self._log.warning("file begun anew while the agent was away, reading from its beginning", path=offset.path)
        return Recalled(None, SourceOffset(0), generation)

    @property
    def inodes(self) -> tuple[int, ...]:
        """Returns the inodes of which anything is saved."""
        return tuple(self._by_inode)

    def at_inode(self, inode: int) -> tuple[SourcePartition, ...]:
        """Returns what is saved of files with this inode, and of those that had it before."""
        return tuple(self._by_inode.get(inode, ()))

    def is_there(self, partition: SourcePartition, offset: SourceOffset, whereabouts: Whereabouts) -> bool | None:
        """Whether its file is there, under any name in the directory where it was last; None when nobody can say."""
        identity, _ = Identity.parse(partition.key)
        return whereabouts.seen(offset.path, identity, self._devices.get(identity.device, ()))

    def has(self, partition: SourcePartition) -> bool:
        """Whether its file is not followed."""
        return partition in self._by_inode.get(_inode(partition), ())

    def knows(self, identity: Identity, fd: int, size: int, changes: Changes) -> bool:
        """Whether what this open file holds is saved of it, and not only what it held before it was written over. Raises OSError.

        With its birth time it is known on another device too: numbers change by a remount.
        """
        for partition in self._rows_of(identity):
            offset = None if self.is_previous(partition) else self.known(partition, changes)
            if offset is not None and not _was_cut_unread(offset, size) and packed.is_same(fingerprint.reader(fd), size, offset):
                return True
        return False

    def has_row(self, identity: Identity, changes: Changes) -> bool:
        """Whether anything is saved of a file that cannot be opened, whatever it holds by now."""
        return any(self.known(partition, changes) is not None for partition in self._rows_of(identity))

    def _rows_of(self, identity: Identity) -> Iterator[SourcePartition]:
        for partition in self._by_inode.get(identity.inode, ()):
            saved, _ = Identity.parse(partition.key)
            if saved.birth_ns == identity.birth_ns and (saved.birth_ns or saved.device == identity.device):
                yield partition

    def written_over(self, identity: Identity, changes: Changes) -> int:
        """Make what is saved of a file a previous generation: it was written over. Returns the generation it begins with."""
        generation = 0
        for partition in {*self._by_inode.get(identity.inode, ()), *changes.forget}:  # a key that is just given up is not given away again
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
        """Returns offsets whose head a file at `path` has, and whose names are related to its name, the furthest first."""
        saved = [(partition, self.known(partition, changes)) for partition in self._heads.find(path, head)]
        found = [(partition, offset) for partition, offset in saved if offset is not None and offset.position]
        return sorted(found, key=lambda one: (-one[1].position, Identity.parse(one[0].key)[1]))

    def has_family(self, path: str) -> bool:
        """Whether a file at `path` may go on with one of these, as far as names tell."""
        return self._heads.has_family(path) or log_of(path) in self._unread_of_log

    def has_longer(self, path: str, size: int) -> bool:
        """Whether `size` bytes are too few to tell whether a file at `path` goes on with one of these."""
        return self._heads.has_longer(path, size)

    def unread_of(self, path: str, changes: Changes) -> list[Saved]:
        """Returns unclaimed previous generations, oldest first, that nothing was read of, and that are of the same log as `path`."""
        saved = [(partition, self.known(partition, changes)) for partition in self._unread_of_log.get(log_of(path), ())]
        return [(one, offset) for one, offset in saved if offset is not None]

    def forget(self, partition: SourcePartition, changes: Changes) -> None:
        """Give up its offset, which another partition has taken over."""
        self._drop(partition)
        changes.forget.add(partition)
        changes.offsets.pop(partition, None)

    def give_up_rest(self, partition: SourcePartition, offset: SourceOffset, kept: int, changes: Changes) -> None:
        """Enter its rest beyond the first `kept` bytes as lost: no file has it. The offset stays if it proves anything."""
        rest = self.unclaimed[partition]
        self._claim(partition)
        self.lose_rest(partition, offset, max(kept, rest.kept), rest.why, changes)
        if offset.position:
            changes.offsets[partition] = replace(offset, done=True)
        else:
            self.forget(partition, changes)

    def followed_last(self, changes: Changes) -> list[Saved]:
        """Returns those that were followed when the agent last looked: neither let go nor given up, nor previous generations."""
        known = [partition for rows in self._by_inode.values() for partition, row in rows.items() if not row.is_previous]
        saved = [(partition, self.known(partition, changes)) for partition in known]
        return [(partition, offset) for partition, offset in saved if offset is not None and not offset.done]

    def known(self, partition: SourcePartition, changes: Changes | None) -> SourceOffset | None:
        """Returns what is saved of it, or is about to be; None for nothing."""
        return (changes and changes.offsets.get(partition)) or self._offsets.get(partition)

    def lose_rest(self, partition: SourcePartition, offset: SourceOffset, size: int, why: str, changes: Changes) -> None:
        """Enter as lost what was known to be there and not read, beyond the first `size` bytes. A file that is done loses nothing."""
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
        """Look for its rest no more."""
        rest = self.unclaimed.pop(partition, None)
        if rest is not None and rest.log is not None:
            del self._unread_of_log[rest.log][partition]
            if not self._unread_of_log[rest.log]:
                del self._unread_of_log[rest.log]


def _inode(partition: SourcePartition) -> int:
    return Identity.parse(partition.key)[0].inode


def _was_cut_unread(offset: SourceOffset, size: int) -> bool:
    """Whether a file of which nothing was read is shorter than it was: what it held may be in a copy, what it holds is new."""
    return not (offset.position or offset.compression or offset.done) and size < offset.size


def _may_be_same(saved: Identity, met: Identity, offset: SourceOffset, path: str, info: os.stat_result) -> bool:
    """Inodes are equal. On another device it is the same file only with its birth time and something read to prove it.

    Where there is no birth time its name has to be known, and a whole head, or all there is in it, has to have been read.
    """
    if saved.birth_ns != met.birth_ns:
        return False
    if saved.device == met.device:
        return True
    if met.birth_ns:
        return bool(offset.fingerprint.head_bytes or not offset.position)  # of nothing, nothing is repeated
    has_proof = offset.fingerprint.head_bytes == fingerprint.HEAD_BYTES or 0 < info.st_size == offset.position
    return has_proof and log_of(path) == log_of(offset.path)
