"""Finds files of a log that were made and rotated out of the patterns between two scans: they were never seen, and have to be read.

A scan shows that a log was rotated: a known file has left its name, was cut, or was replaced. The first scan of a process takes a log for
rotated, too, if no file has its name: perhaps none did at the last look, and one has had it since. Only then is its directory listed for
names of the same log that no pattern matches. Such a file has to be read if it was made, and last written to, after the scan before; older
archives were sent, or never wanted. (Being younger than the live file is no criterion: with `copytruncate` that is older than every
archive.) Times do not show this for an archive that a copy has overwritten, which keeps its inode, nor if a clock was set back: such a file
has to be read if its content is not known (`last_look`). If it is the rest of a known file, `unclaimed` and `archives` decide, and files
that they take are ignored here.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from copycat_agent.formats import Reader
from copycat_agent.logs import Log
from copycat_agent.model import SourceOffset, SourcePartition, SourceState
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, identify, identify_by_name, is_at
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.paths.discovery import Discovery, PassedOver
from copycat_agent.sources.files.paths.regular_files import Opener, PassedOverError, why_not
from copycat_agent.sources.log_file.file_intake import FileIntake
from copycat_agent.sources.log_file.followed import FollowedFiles
from copycat_agent.sources.log_file.rotation import is_newest, log_of, logs_of, rotation_family, unpacked_name
from copycat_agent.sources.log_file.succession import last_look, similarity
from copycat_agent.sources.log_file.succession.last_look import SLACK_NS, LastLook, LookTime
from copycat_agent.sources.log_file.succession.rules import OutsideContent, UnseenFile, must_read, why_must_read
from copycat_agent.sources.log_file.succession.unclaimed import NOBODY_LOOKED, members
from copycat_agent.sources.log_file.tracked import OpenedFile, TrackedFile
from copycat_agent.sources.log_file.unfollowed_partitions import Saved
from copycat_agent.sources.planner import Changes

WHY = "it was made and rotated out of the patterns while nobody looked: from its beginning"


@dataclass(slots=True)
class _MissedRotation:
    """A log that was rotated since then.

    `cut` are those of its files that were cut in place, and `copied` those of them whose copies are found; `may_be_cut`: one may have been,
    without proof. `there` are device and inode of the files that existed when it was found; a file that comes later is not among the missed
    ones. `known`: the unfollowed content of those files, if their times prove nothing. `written_ns`: they may have been last written to
    before `since`, but not before this.
    """

    since: LookTime
    written_ns: float = math.inf
    cut: set[SourcePartition] = field(default_factory=set)
    copied: set[SourcePartition] = field(default_factory=set)
    may_be_cut: bool = False
    there: set[tuple[int, int]] | None = None
    known: last_look.KnownArchives | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Whether files that are older than the scan before may be missed ones."""
        return bool(self.cut) or self.may_be_cut or self.since.doubt_ns < self.since.at_ns


class MissedRotations:
    """Used by one catalog: `begin` before a scan, `left` for its findings, then `met`, `follow` and `end`."""

    def __init__(
        self, followed: FollowedFiles, opener: Opener, discovery: Discovery, intake: FileIntake, passed_over: PassedOver, log: Log
    ) -> None:  # fmt: skip
        self._followed = followed
        self._opener = opener
        self._discovery = discovery
        self._intake = intake
        self._passed_over = passed_over
        self._log = log
        self._last_look = LastLook()
        self._rotations: dict[tuple[str, str], _MissedRotation] = {}
        self._before: list[tuple[SourcePartition, SourceOffset]] | None = None
        self._has_looked = False
        self._gone: set[SourcePartition] = set()
        self.has_unopened = False
        """Whether a missed file could not be opened: it has a row, and has to be searched for."""

    @property
    def is_first(self) -> bool:
        """Whether the connector has never looked before."""
        return self._last_look.is_first

    def recall(self, state: SourceState) -> None:
        """Takes in the saved state of the last look."""
        self._last_look.recall(state)

    def begin(self, changes: Changes) -> None:
        """Begins a scan."""
        self._last_look.begin(changes)
        if not self._has_looked:
            self._has_looked = True
            unfollowed = self._followed.unfollowed
            self._before = [*unfollowed.followed_last(changes), *((one, self._followed.offsets[one]) for one in unfollowed.unclaimed)]

    @property
    def has_pending(self) -> bool:
        """Whether a rotation is open: not all of its files are found yet."""
        return bool(self._rotations) or self._before is not None

    def begun_anew(self, file: TrackedFile) -> None:
        """Records that a file was cut in place: since the last scan or, if a task found that, some scans ago."""
        self.left(file.path, file.partition, file.verified.at_ns if file.seen.rewritten else 0)

    def filled(self, file: TrackedFile) -> None:
        """Records that a file is written to that was empty. If it was copied and cut since, the copy is younger than that emptiness."""
        self.left(file.path, earliest_ns=file.seen.emptied_ns + 1)

    def left(
        self,
        path: str,
        cut: SourcePartition | None = None,
        since_ns: int = 0,
        *,
        earliest_ns: int = 0,
        written_ns: int = 0,
        may_be_cut: bool = False,
    ) -> None:
        """Records that the file at `path` has left its name, or was cut there. Then `cut` is the partition of its former content.

        `since_ns`: it may have happened since then, epoch nanoseconds, 0 for since the last scan, or since `earliest_ns` if that is later.
        `written_ns`: what was made then may have been last written to since this earlier time, 0 if not.
        """
        since = self._last_look.before(path.rpartition("/")[0])
        if not since.at_ns:
            return  # files outside the patterns from before the first scan are not wanted
        if since.doubt_ns == since.at_ns < earliest_ns:
            since = LookTime(earliest_ns, earliest_ns)
        rotation = self._rotations.setdefault(log_of(path), _MissedRotation(since))
        earlier = LookTime(since_ns - SLACK_NS, since_ns - SLACK_NS) if since_ns else since
        rotation.since = LookTime(*map(min, rotation.since, since, earlier))
        rotation.written_ns = min(rotation.written_ns, written_ns or math.inf)
        rotation.there = rotation.known = None
        rotation.may_be_cut |= may_be_cut
        if cut is not None:
            rotation.cut.add(cut)

    def met(self, newcomers: Iterable[TrackedFile], changes: Changes) -> None:
        """Ends a scan that has met these files. Each may have replaced files that were never seen."""
        for file in newcomers:
            if is_newest(file.path):
                self.left(file.path)
        if self._before is not None:
            before, self._before = self._before, None
            self._last_look.compare(self._discovery.marks)
            files = {file.partition: file for file in self._followed.files.values()}
            for partition, offset in before:
                known = files.get(partition)
                has_left = self._has_left(partition, offset, known)
                if has_left or self._last_look.was_open:
                    cut = partition if self._followed.unfollowed.is_previous(partition) else None
                    self.left(offset.path, cut, may_be_cut=has_left and known is not None and known.path == offset.path)
            for log in {log for offset in self._followed.offsets.values() for log in logs_of(offset.path)}:
                newest = "/".join(log)
                if self._followed.at(newest) is None and self._discovery.may_match(newest):
                    self.left(newest)  # no file shows whether another one has had this name
        self._note_gone_unread(changes)

    def _note_gone_unread(self, changes: Changes) -> None:
        """Records that unread files are gone. No hash relates an archive to one, and it has the time of a line that was seen."""
        unfollowed, gone = self._followed.unfollowed, self._gone
        self._gone = {one for one in unfollowed.unclaimed if not unfollowed.is_previous(one)}
        for partition in self._gone - gone:
            offset = unfollowed.known(partition, changes)
            if offset is not None and offset.size > offset.position == 0:
                birth_ns = Identity.parse(partition.key)[0].birth_ns
                since_ns = max(birth_ns, self._last_look.first_ns) if birth_ns else 0  # older archives were never wanted
                self.left(offset.path, since_ns=since_ns, written_ns=birth_ns)

    def follow(self, changes: Changes) -> None:
        """Takes up missed files as far as possible before unclaimed ranges are decided on."""
        if self._rotations:
            self._rotations = self._still_open(changes)

    def end(self, changes: Changes) -> None:
        """Takes up the remaining missed files after unclaimed ranges are decided on, and ends the look."""
        self.follow(changes)
        self._last_look.end(self._discovery.unlisted, self._open(), self._discovery.marks, changes)

    def leave(self, changes: Changes) -> None:
        """Saves when the connector last looked: the agent stops in order."""
        self._last_look.save(self._open(), changes)

    def _open(self) -> list[int]:
        return [one.since.doubt_ns for one in self._rotations.values()]

    def _has_left(self, partition: SourcePartition, offset: SourceOffset, file: TrackedFile | None) -> bool:
        """Returns whether a file of the agent's last run has changed, or may have: nothing proves a file that was not read."""
        if file is not None:
            is_as_it_was = file.path == offset.path and file.draining_since is None and file.size >= offset.size
            return not is_as_it_was or offset.size > offset.position == 0
        if self._followed.unfollowed.is_previous(partition):
            return True
        try:
            return not is_at(offset.path, Identity.parse(partition.key)[0])
        except OSError:
            return True

    def _still_open(self, changes: Changes) -> dict[tuple[str, str], _MissedRotation]:
        """Takes up missed files. Returns the rotations with files that could not be decided on yet."""
        open_still, listings = {}, members(self._rotations)
        for name, rotation in self._rotations.items():
            outside = self._outside(listings.get(name, ()))
            found = sorted(self._unknown(outside, rotation))
            if found and rotation.known is None and rotation.is_in_doubt:
                rotation.known = last_look.known_of(outside, self._followed, self._opener, changes)
            is_decided = [self._take_up(path, rotation, changes) for _, path in found]
            if not all(is_decided):
                open_still[name] = rotation
        return open_still

    def _outside(self, paths: Iterable[str]) -> list[str]:
        """Returns the paths that no pattern matches or excludes. Leaves out an archive beside the unpacked file: that has everything."""
        there = {path for path in paths if not self._discovery.excludes(path)}
        is_double = {path for path in there if unpacked_name(path) != path and unpacked_name(path) in there}
        return [path for path in there - is_double if not self._discovery.may_match(path)]

    def _unknown(self, paths: Iterable[str], rotation: _MissedRotation) -> Iterator[tuple[int, str]]:
        """Yields files that are not followed and young enough to be missed ones, with their times."""
        inodes: set[tuple[int, int]] = set()
        oldest_ns = min(rotation.since.doubt_ns, rotation.written_ns)
        for path in paths:
            try:
                info = os.lstat(path)
            except OSError:
                continue
            inode = info.st_dev, info.st_ino
            inodes.add(inode)
            is_young = info.st_mtime_ns >= oldest_ns and (rotation.there is None or inode in rotation.there)
            if is_young and stat.S_ISREG(info.st_mode) and inode not in self._followed.files:
                yield info.st_mtime_ns, path
        rotation.there = inodes if rotation.there is None else rotation.there

    def _take_up(self, path: str, rotation: _MissedRotation, changes: Changes) -> bool:
        """Follows the file if it has to be read. Returns False if that is not known yet, or it cannot be read now."""
        try:
            opened = OpenedFile(*self._opener.open(path))
        except FileNotFoundError:
            return True
        except OSError as error:
            self._passed_over.warn(path, f"{why_not(error)}; {NOBODY_LOOKED}")
            if isinstance(error, PassedOverError):
                return True
            return isinstance(error, PermissionError) and self._leave_for_later(path, rotation, changes)
        with opened:
            try:
                why = self._why_must_read(opened, rotation, changes)
                if why and self._is_cut_unnoticed(path):
                    return False
                return not why or self._take(path, opened, rotation, why, changes)
            except OSError as error:
                self._passed_over.warn(path, f"{why_not(error)}; {NOBODY_LOOKED}")
                return False

    def _leave_for_later(self, path: str, rotation: _MissedRotation, changes: Changes) -> bool:
        """Saves a row for a file that may not be opened, which a later search finds: the rotation need not stay open for it.

        Returns False if it is not known whether it has to be read.
        """
        try:
            info = os.lstat(path)
        except OSError:
            return False
        identity = identify_by_name(path, info, follow_symlinks=False)
        if identity is None:
            return False
        partition = SourcePartition(self._followed.connector, identity.key(0))
        is_new = not identity.birth_ns or identity.birth_ns >= rotation.since.at_ns
        if is_new and partition not in changes.offsets and not self._followed.unfollowed.has_row(identity, changes):
            changes.offsets[partition] = offset = SourceOffset(0, path=path, size=info.st_size, gone_ms=time.time_ns() // 1_000_000)
            self._followed.unfollowed.add(partition, offset)
            self.has_unopened = True
            return True
        return partition in changes.offsets or not rotation.is_in_doubt

    def _why_must_read(self, opened: OpenedFile, rotation: _MissedRotation, changes: Changes) -> str:
        """Returns why the open file has to be read, as a message; "" if it has not. Raises OSError."""
        identity, info = identify(opened.fd, opened.info), opened.info
        if self._followed.unfollowed.knows(identity, opened.fd, info.st_size, changes):
            return ""
        known, since = rotation.known, rotation.since
        found = UnseenFile(
            birth_ns=identity.birth_ns,
            mtime_ns=info.st_mtime_ns,
            looked_ns=since.at_ns,
            doubt_ns=since.doubt_ns,
            may_be_cut=bool(rotation.cut) or rotation.may_be_cut,
            is_known=None if known is None else identity[:2] in known.inodes,
            newest_ns=0 if known is None else known.newest_ns,
        )
        return why_must_read(found)

    def _is_cut_unnoticed(self, path: str) -> bool:
        """Returns whether a file of the log may be cut, and is not begun anew yet: that shows what of a copy was read. Raises OSError.

        That is one that a task reads, or the live one, which no scan compares while it grows.
        """
        newest = self._followed.at("/".join(log_of(path)))
        if newest is not None and not newest.is_packed:
            if newest.in_flight and not newest.offset.position:
                return True
            with similarity.kept_open(newest, self._opener) as is_open:
                if is_open and not newest.holds():
                    return True
        reading = [one for one in self._followed.relatives(path) if one.in_flight]
        return any(one.is_cut or not (one.is_packed or one.holds()) for one in reading)

    def _take(self, path: str, opened: OpenedFile, rotation: _MissedRotation, why: str, changes: Changes) -> bool:
        """Follows the file if its content has to be read, too. Returns False if that is not known yet. Raises OSError before any change."""
        read, size = fingerprint.reader(opened.fd), opened.info.st_size
        is_packed = bool(packed.compression_of(read))
        is_rest = not is_packed and self._may_be_rest(path, read, size, changes)
        copied = None if is_packed or is_rest else self._copied(rotation, read, size, changes)
        if copied is not None:
            rotation.copied.add(copied[0])
        is_decided = is_rest or (copied is not None and copied[1].position > 0)
        is_in_live = not is_decided and self._is_in_live(path, opened, rotation)
        owed = must_read(OutsideContent(is_rest, None if copied is None else copied[1], is_in_live))
        if owed and (file := self._intake.follow_missed(path, opened, changes)):
            self._begin(file, rotation, why, changes)
            if copied is not None:
                self._followed.unfollowed.forget(copied[0], changes)
        return owed is not None

    def _begin(self, file: TrackedFile, rotation: _MissedRotation, why: str, changes: Changes) -> None:
        """Begins a missed file. Its row keeps a second start from reading it again; if its log was cut, it is older than the live file."""
        file.set_why(f"{WHY} ({why})")
        changes.offsets[file.partition] = file.remembered(gone=True)
        for partition in rotation.cut:
            self._followed.put_before_successor(file, Identity.parse(partition.key)[0])
        self._log.info("file was made and rotated out while nobody looked, is read", path=file.path, why=why, unread_bytes=file.backlog)

    def _may_be_rest(self, path: str, read: Reader, size: int, changes: Changes) -> bool:
        """Returns whether it has the bytes read of a file with a missing rest: `unclaimed` takes it, or loses the rest. Raises OSError."""
        unfollowed, name = self._followed.unfollowed, rotation_family(path)
        saved = (unfollowed.known(one, changes) for one in unfollowed.unclaimed)
        offsets = [one for one in saved if one is not None and rotation_family(one.path) == name and one.fingerprint.head_bytes]
        return any(0 < one.position <= size and fingerprint.holds(read, one.fingerprint, one.position) for one in offsets)

    def _is_in_live(self, path: str, opened: OpenedFile, rotation: _MissedRotation) -> bool:
        """Returns whether it is younger than the live file of its log, which was not cut, and begins like it. Raises OSError."""
        newest = self._followed.at("/".join(log_of(path)))
        if newest is None or rotation.cut or newest.is_packed or newest.identity.birth_ns > identify(opened.fd, opened.info).birth_ns:
            return False
        with similarity.kept_open(newest, self._opener) as is_open:
            size = opened.info.st_size
            return is_open and 0 < size <= newest.size and similarity.agree(fingerprint.reader(opened.fd), newest.read, size)

    def _copied(self, rotation: _MissedRotation, read: Reader, size: int, changes: Changes) -> Saved | None:
        """Returns the row that the file is a copy of, if no rest of it is missing; the oldest copy wins. Raises OSError.

        The original was cut before anything of it was read; or it was written to, and read, between the copy and the cut, and nothing in
        the copy has to be read.
        """
        unfollowed = self._followed.unfollowed
        for partition in rotation.cut - rotation.copied:
            offset = unfollowed.known(partition, changes) if unfollowed.has(partition) else None
            if offset is None:
                continue
            if not offset.position and not offset.done and offset.size <= size:
                return partition, offset
            proof = offset.fingerprint
            if 0 < proof.head_bytes <= size < offset.position and fingerprint.digest(read(0, proof.head_bytes)) == proof.head:
                return partition, offset
        return None
