"""Finds out whether a newly met archive is the rest of a known file. Only a task can tell, which unpacks it.

Offsets count unpacked bytes, so verifying one costs unpacking. The driver therefore only names candidates, by the first KiB
(`Split.origins`); the task unpacks, compares the bytes before their offsets, and reports which one the archive continues.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from copycat_agent.logs import Log
from copycat_agent.model import SourceOffset, SourcePartition, SplitResult
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, is_at
from copycat_agent.sources.files.paths.regular_files import Opener
from copycat_agent.sources.log_file.followed import FollowedFiles
from copycat_agent.sources.log_file.rotation import rotation_family
from copycat_agent.sources.log_file.succession import similarity
from copycat_agent.sources.log_file.succession.rules import Evidence, LongerHead, Newcomer, Original
from copycat_agent.sources.log_file.tracked import TrackedFile
from copycat_agent.sources.log_file.unfollowed_partitions import Saved
from copycat_agent.sources.planner import Changes

Relatives = Callable[[TrackedFile], list[TrackedFile]]
TakeOver = Callable[[SourcePartition, SourceOffset, int, Changes], None]
"""`take_over(partition, offset, kept, changes)`: an archive has the partition's first `kept` bytes, and continues in its place."""


class _ArchiveOrigin(NamedTuple):
    """A file that an archive may be the rest of: its offset, and its size in unpacked bytes, -1 if that is not known.

    `is_there`: it still has what was read of it.
    """

    saved: Saved
    size: int = -1
    is_there: bool = False

    @property
    def rank(self) -> tuple[bool, int]:
        """The order of preference: what archives were made of before existing archives, then the furthest offset."""
        offset = self.saved[1]
        return self.is_there and bool(offset.compression), -offset.position


class Archives:
    """The packed files that were met. A task is told which offsets a file may continue, and finds out which one it does."""

    def __init__(self, followed: FollowedFiles, opener: Opener, relatives: Relatives, take_over: TakeOver, log: Log) -> None:
        self._followed = followed
        self._opener = opener
        self._relatives = relatives
        self._take_over = take_over
        self._log = log
        self._barriers: dict[TrackedFile, tuple[TrackedFile, int, float]] = {}
        self._asked: dict[SourcePartition, tuple[TrackedFile, tuple[Saved, ...]]] = {}
        self._askers: dict[SourcePartition, TrackedFile] = {}
        self._expected: set[TrackedFile] = set()

    @property
    def has_pending(self) -> bool:
        """Whether anything is undecided, and may be decided as time goes by."""
        return bool(self._barriers or self._expected)

    def awaited(self) -> set[str]:
        """Returns the rotation families of archives that no task has examined. Nothing of these families is entered as lost yet."""
        self._expected = {file for file in self._expected if not file.removed}
        return {rotation_family(file.path) for file in itertools.chain(self._expected, self._asking()) if file.size}

    def _asking(self) -> Iterator[TrackedFile]:
        return (file for file in self._followed.dirty if file.is_packed and not file.offset.position and not file.offset.done)

    def expect(self, file: TrackedFile, changes: Changes) -> None:
        """Follows a packed file that no pattern matches. It is read only if it is the rest of a known one, which a task finds out."""
        self._expected.add(file)
        file.read_only_as_rest(replace(file.offset, done=True, gone_ms=int(time.time() * 1000)))
        changes.offsets[file.partition] = file.offset
        self._followed.note_readable(file)

    def let_go(self, *, at_once: bool) -> None:
        """Stops following files that are read only as the rest of another one if a task has found that they are not.

        Forgets what was asked of files that are gone.
        """
        for file in [one for one in self._expected if _is_no_rest(one, at_once=at_once)]:
            self._expected.discard(file)
            self._followed.remove(file)
        if any(map(_is_gone, (file for file, _ in self._asked.values()))):
            self._asked = {partition: asked for partition, asked in self._asked.items() if not _is_gone(asked[0])}
            self._askers = {partition: file for partition, file in self._askers.items() if not _is_gone(file)}

    def ask(self, file: TrackedFile) -> bool:
        """Lets the task of its next split find out what a packed file is the rest of. Has no effect on other files.

        Returns False while a task checks another file that may be the rest of the same one: only one of them is.
        """
        if not file.is_packed or file.offset.position:
            return True
        try:
            origins = self._of(file)
        except OSError:
            file.set_origins(())  # the task reports why it cannot be read
            return True
        asking = (self._askers.get(one.saved[0], file) for one in origins)
        if any(other is not file and other.in_flight for other in asking):
            return False
        self._asked[file.partition] = file, tuple(one.saved for one in origins)
        self._askers.update((one.saved[0], file) for one in origins if not one.is_there)
        file.set_origins(tuple(one.saved[1] for one in origins), tuple(one.size for one in origins))
        return True

    def _of(self, file: TrackedFile) -> list[_ArchiveOrigin]:
        """Returns what the file may be the rest of now, in order of preference. Raises OSError."""
        head = similarity.head_of(file)
        saved = self._followed.unfollowed.candidates(file.path, head, None)
        found = [self._saved_origin(one) for one in saved]
        found += [_followed_origin(one) for one in self._relatives(file) if _has_head(one.offset, head)]
        return sorted(found, key=lambda one: one.rank)

    def _saved_origin(self, saved: Saved) -> _ArchiveOrigin:
        """Returns the origin for a file that is not followed. If it still exists, it has all that was read, and what was added since."""
        partition, offset = saved
        if not self._followed.unfollowed.is_previous(partition):
            with contextlib.suppress(OSError):
                size = os.lstat(offset.path).st_size
                if is_at(offset.path, Identity.parse(partition.key)[0]):
                    return _origin_there(saved, size)
        return _ArchiveOrigin(saved)

    def answered(self, file: TrackedFile, result: SplitResult, changes: Changes) -> None:
        """Takes in what a task found a packed file to be the rest of. `changes` hold its progress. Has no effect on other files."""
        _, asked = self._asked.get(file.partition, (file, ()))
        kept = result.unpacked_size if result.unpacked_size >= 0 else -1
        if 0 <= result.origin < len(asked):
            partition, offset = asked[result.origin]
            self._log.info("file continues another one", path=file.path, origin=offset.path, offset=offset.position)
            if self._followed.unfollowed.has(partition):
                self._take_over(partition, offset, offset.size if kept < 0 else kept, changes)
        elif file.is_packed and not file.offset.position and result.offset.position and not result.changed:
            self._takes_unread(file, max(kept, result.offset.position), changes)
        if result.error is None and not result.changed and (result.origin >= 0 or result.offset.position):
            self._asked.pop(file.partition, None)
            self._askers = {partition: one for partition, one in self._askers.items() if one is not file}
            self._expected.discard(file)
            file.set_origins(())

    def _takes_unread(self, file: TrackedFile, kept: int, changes: Changes) -> None:
        """Takes over the row of an unread file that this archive was made of. The archive holds `kept` bytes, or more."""
        unfollowed = self._followed.unfollowed
        for partition, offset in unfollowed.unread_of(file.path, changes):
            if unfollowed.copied_by(partition, file.made_ns) or kept >= offset.size:
                self._take_over(partition, offset, offset.size, changes)
                return

    def look(self, file: TrackedFile, newcomer: Newcomer, head: bytes) -> Iterator[Evidence]:
        """Compares an open archive, whose unpacked bytes begin with `head`, with files it may be made of. Raises OSError."""
        if self._followed.unfollowed.has_longer(file.path, len(head)):
            yield LongerHead()
        for relative in self._relatives(file):
            if not (relative.backoff.errors or relative.is_packed) and (found := self._compare(file, relative, newcomer, head)):
                yield found

    def _compare(self, file: TrackedFile, relative: TrackedFile, newcomer: Newcomer, head: bytes) -> Original | None:
        is_short = len(head) < relative.offset.fingerprint.head_bytes
        if relative.offset.position and not is_short and not _has_head(relative.offset, head):
            return None
        with similarity.kept_open(relative, self._opener) as is_open:
            if not is_open:
                return None
            relative.refresh()
            size = min(len(head), relative.size)
            if relative.read(0, size) != head[:size] or not relative.size:
                return None
        is_short = is_short or not head
        has_barrier = bool(size) and not (is_short and newcomer.may_grow)  # else its barrier is not known yet
        goes_first = has_barrier and (relative.in_flight or (relative.unread and relative.offset.position < self._barrier(file, relative)))
        return Original(relative.path, is_short, goes_first)

    def _barrier(self, file: TrackedFile, relative: TrackedFile) -> int:
        """Returns up to which size `relative` is read before `file` is. While `file` grows, it may get more of the other one."""
        known, barrier, at = self._barriers.get(file, (file, 0, 0.0))
        if known is not relative or file.grown_at > at:
            barrier = relative.size
            self._barriers[file] = relative, barrier, time.monotonic()
        return barrier

    def judged(self, file: TrackedFile) -> None:
        """Forgets the barrier of a file that does not wait any more."""
        self._barriers.pop(file, None)


def _followed_origin(file: TrackedFile) -> _ArchiveOrigin:
    """Returns the origin for a followed file. A replaced archive may have less than the new one; the file it was made of has everything."""
    file.refresh()
    saved = file.partition, file.offset
    if file.is_cut or (file.is_packed and file.is_deleted()):
        return _ArchiveOrigin(saved)
    if file.fd >= 0:
        return _origin_there(saved, file.size)
    info = file.found_by_name(follow_symlinks=True)
    return _ArchiveOrigin(saved) if info is None else _origin_there(saved, info.st_size)


def _origin_there(saved: Saved, disk_size: int) -> _ArchiveOrigin:
    """Returns the origin for an existing file of this size on disk. An archive's unpacked size is known once all of it is read."""
    offset = saved[1]
    if not offset.compression:
        return _ArchiveOrigin(saved, disk_size, is_there=True) if disk_size >= offset.position else _ArchiveOrigin(saved)
    is_read = offset.done and offset.size == disk_size
    return _ArchiveOrigin(saved, offset.position if is_read else -1, is_there=True)


def _is_no_rest(file: TrackedFile, *, at_once: bool) -> bool:
    is_looked_at = not (file.removed or file.in_flight or file.offset.position) and file.ending.stalled_size == file.size
    return is_looked_at and (at_once or similarity.is_quiet(file))


def _is_gone(file: TrackedFile) -> bool:
    return file.removed and not file.in_flight


def _has_head(offset: SourceOffset, head: bytes) -> bool:
    proof = offset.fingerprint
    return bool(offset.position and proof.head_bytes) and fingerprint.digest(head[: proof.head_bytes]) == proof.head
