"""Meets files that were found and are not followed: opens them, recognises or begins them, and follows them from then on.

Each has a row from the moment it is met, with its name and size, even while nothing of it is read, or if it cannot be opened. So a file
that was renamed out of its patterns is found again after any restart, and one that is gone is counted with its range.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import replace

from copycat_agent.logs import Log
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, identify, identify_by_name
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.paths.discovery import NO_DESCRIPTORS, MatchedFile, PassedOver
from copycat_agent.sources.files.paths.regular_files import Opener, open_again, why_not
from copycat_agent.sources.log_file.beginning.start import StartAt, UnopenedFiles
from copycat_agent.sources.log_file.file_state import Provenance
from copycat_agent.sources.log_file.followed import FollowedFiles
from copycat_agent.sources.log_file.rotation import is_rotated
from copycat_agent.sources.log_file.tracked import OpenedFile, TrackedFile
from copycat_agent.sources.planner import Changes

KNOWN = "it was read up to here, and still holds the bytes before"
ANEW = "it begins anew: it no longer holds what was read from it while the agent ran last"
MAYBE_REST = "it may be the rest of a file that is known"
UNOPENED = "it could not be opened when this connector first looked, and ended here then"
"""Reasons for the position of a file that is met."""


class FileIntake:
    """Takes in files that a scan, or a search, has found. Adds them to `followed`."""

    def __init__(self, followed: FollowedFiles, start: StartAt, opener: Opener, passed_over: PassedOver, log: Log) -> None:
        self._followed = followed
        self._start = start
        self._unopened = UnopenedFiles(followed, start, follow_symlinks=opener.follow_symlinks)
        self._old_files = 0
        self._opener = opener
        self._passed_over = passed_over
        self._log = log
        self._newcomers: list[TrackedFile] = []
        self.begun: list[TrackedFile] = []

    def take_newcomers(self) -> list[TrackedFile]:
        """Returns the files met since the last call of which nothing is read, without those that begin anew."""
        taken, self._newcomers = self._newcomers, []
        return taken

    def take_begun(self) -> list[TrackedFile]:
        """Returns the files that began anew since the last call."""
        taken, self.begun = self.begun, []
        return taken

    def meet_all(self, strangers: Iterable[MatchedFile], changes: Changes, *, first: bool) -> set[TrackedFile]:
        """Meets files that are not followed, oldest first; as many stay open as there is room for. Returns them.

        `first`: this is the connector's first scan. Files that cannot be opened are passed over.
        """
        ordered = sorted(strangers, key=lambda one: (one.stat.st_mtime_ns, one.path))
        descriptors = self._followed.descriptors
        descriptors.make_room(len(ordered), unread=False)
        met: set[TrackedFile] = set()
        for found in ordered:
            known = (found.stat.st_dev, found.stat.st_ino) in self._followed.files  # another name of a file that was just met
            file = self._meet(found, changes, first=first)
            if file is None:
                continue
            met.add(file)
            if not known and len(descriptors.open_files) > descriptors.limit:
                file.close()
        self._tell_old()
        return met

    def follow_left(self, name: str, opened: OpenedFile, changes: Changes) -> None:
        """Follows a file that has left its patterns between two scans. Raises OSError, and then nothing has changed."""
        there = self._followed.paths.get(name)  # another file, where this one was deleted
        file = self._take_up(name, opened, changes, first=False)
        self._followed.paths.pop(name, None)
        if there is not None:
            self._followed.paths[name] = there
        self._followed.drain(file)
        changes.offsets[file.partition] = file.remembered(gone=True)
        self._log.info("file has left its patterns, is followed to its end", path=name, unread_bytes=file.backlog)

    def follow_kept(self, identity: Identity, path: str, changes: Changes, *, named: bool) -> bool:
        """Follows a file by the descriptor that an earlier process had of it. `named`: even if it still has a name.

        Returns False if there is no such descriptor, or the file cannot be read.
        """
        kept = self._followed.descriptors.open_files.left(identity)
        if kept is None or identity[:2] in self._followed.files:
            return False
        try:
            again = open_again(kept)
        except OSError as error:
            self._passed_over.warn(path, why_not(error))
            return False
        with OpenedFile(*again) as opened:
            try:
                if identify(opened.fd, opened.info) == identity and (named or not opened.info.st_nlink):
                    self.follow_left(path, opened, changes)
                    return True
            except OSError as error:
                self._passed_over.warn(path, f"cannot be read: {error.strerror}")
        return False

    def follow_rest(self, path: str, opened: OpenedFile, changes: Changes) -> TrackedFile | None:
        """Follows a file that no pattern matches, from where another one ended and to its end.

        Returns None if it is known. Raises OSError, and then nothing has changed.
        """
        identity, unfollowed, size = identify(opened.fd, opened.info), self._followed.unfollowed, opened.info.st_size
        if identity[:2] in self._followed.files or unfollowed.knows(identity, opened.fd, size, changes):
            return None
        partition = SourcePartition(self._followed.connector, identity.key(unfollowed.written_over(identity, changes)))
        file = self._follow(
            TrackedFile(
                partition,
                identity,
                path,
                SourceOffset(0, path=path, size=size),
                self._followed.descriptors.open_files,
                unpacks=self._followed.unpacks,
            ),
            opened,
        )
        del self._followed.paths[path]
        self._followed.drain(file)
        return file

    def follow_missed(self, path: str, opened: OpenedFile, changes: Changes) -> TrackedFile | None:
        """Follows a file as `follow_rest`, from its beginning. Returns None, too, if it is older than the connector's files may be."""
        if self._start.begin(opened.fd, opened.info, path, first=False).is_old and not self._followed.unfollowed.has_unread(path):
            return None
        file = self.follow_rest(path, opened, changes)
        if file is not None and file.is_packed:  # it may be the rest of a known file
            self._newcomers.append(file)
        return file

    def shrink(self) -> bool:
        """Closes other files because the process may open no more. Returns whether any was closed."""
        made_room = self._followed.descriptors.shrink()
        self.tell_limit()
        return made_room

    def tell_limit(self) -> None:
        """Warns that fewer files are held open than asked for: one that is deleted while it is closed is lost."""
        hint = "raise LimitNOFILE (ulimit -n) and restart the agent, or lower max_open_files"
        held = self._followed.descriptors.limit
        self._log.warning("the process may open too few files, fewer are held open", held=held, hint=hint)

    def _meet(self, found: MatchedFile, changes: Changes, *, first: bool) -> TrackedFile | None:
        """Meets a file that is not followed: a known one, or a new one. Returns None if it cannot be read."""
        try:
            opened = self._open(found)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._pass_over(found, error, why_not(error), changes, first=first)
            return None
        with opened:
            try:
                return self._take_up(found.path, opened, changes, first=first)
            except OSError as error:
                self._pass_over(found, error, f"cannot be read: {error.strerror}", changes, first=first)
                return None

    def _pass_over(self, found: MatchedFile, error: OSError, why: str, changes: Changes, *, first: bool) -> None:
        self._passed_over.warn(found.path, why)
        if first:
            self._unopened.note(found, error, changes)

    def _open(self, found: MatchedFile) -> OpenedFile:
        """Opens a file that a scan has found. If the process may open no more, closes others first. Raises OSError."""
        is_known = self._is_known(found)
        try:
            opened = OpenedFile(*self._opener.open(found.path, is_known=is_known))
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not self.shrink():
                raise
            opened = OpenedFile(*self._opener.open(found.path, is_known=is_known))
        if is_known and not os.path.samestat(opened.info, found.stat):
            os.close(opened.take())
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), found.path)  # the next scan finds out
        return opened

    def _is_known(self, found: MatchedFile) -> bool:
        """Returns whether a file with several links was followed before it got them."""
        if found.stat.st_nlink == 1:
            return False
        identity = identify_by_name(found.path, found.stat, follow_symlinks=self._opener.follow_symlinks)
        return identity is not None and identity.birth_ns > 0 and self._followed.unfollowed.has_row(identity, Changes())

    def _take_up(self, path: str, opened: OpenedFile, changes: Changes, *, first: bool) -> TrackedFile:
        """Returns the file that was opened, which is followed from now on.

        Raises OSError; then at most a former file of this inode has been entered as lost.
        """
        followed, (fd, info) = self._followed, (opened.fd, opened.info)
        identity = identify(fd, info)
        known = followed.files.get((identity.device, identity.inode))
        if known is not None and known.identity == identity:  # another name of it, or it was just renamed to this one
            return known
        if known is not None:  # it was closed, or the kernel would not have reused its inode
            followed.lose_rest(known, changes)
        partition, offset, generation = followed.unfollowed.recall(path, fd, info, identity, changes)
        why = KNOWN
        if partition is None:
            partition = SourcePartition(followed.connector, identity.key(generation))
            offset, why = self._begin(path, fd, info, generation, first=first)
            changes.offsets[partition] = offset  # saved at once, so that it is known even if it is renamed before anything is read
        elif offset != (offset := self._start.opened(fd, offset)):
            changes.offsets[partition], why = offset, UNOPENED
        files, provenance = followed.descriptors.open_files, Provenance(why)
        file = self._follow(TrackedFile(partition, identity, path, offset, files, provenance=provenance, unpacks=followed.unpacks), opened)
        if not offset.position:
            (self.begun if generation else self._newcomers).append(file)
        return file

    def _follow(self, file: TrackedFile, opened: OpenedFile) -> TrackedFile:
        file.note_met(opened.info)
        file.adopt(opened.take())
        self._followed.add(file)
        return file

    def _begin(self, path: str, fd: int, info: os.stat_result, generation: int, *, first: bool) -> tuple[SourceOffset, str]:
        """Returns the first offset of a file that is not known, or does not hold its known content any more. Raises OSError."""
        if generation:
            return SourceOffset(0, path=path, size=info.st_size), ANEW
        begun = self._start.begin(fd, info, path, first=first or self._unopened.was_there(info))
        if (begun.offset.position or begun.offset.done) and self._begins_like_known(fd, path, begun.offset):
            return SourceOffset(0, path=path, size=info.st_size), MAYBE_REST
        self._old_files += begun.is_old
        self._log.debug("new file", path=path, position=begun.offset.position, why=begun.why)
        return replace(begun.offset, size=info.st_size), begun.why

    def _begins_like_known(self, fd: int, path: str, offset: SourceOffset) -> bool:
        """Returns whether a file that would be left out may be the rest of a known one, which is never left out. Raises OSError."""
        unfollowed, read = self._followed.unfollowed, fingerprint.reader(fd)
        if not (is_rotated(path) or offset.compression):
            return False
        if unfollowed.has_unread(path):
            return True
        if not unfollowed.has_family(path):
            return False
        size = fingerprint.HEAD_BYTES
        head = compressions.head_of(read, offset.compression, size) if offset.compression else read(0, size)
        return bool(unfollowed.candidates(path, head, None))

    def _tell_old(self) -> None:
        """Logs how many files were begun at their end because of their age."""
        if self._old_files:
            self._log.info("old files begun at their end, see ignore_older", files=self._old_files)
        self._old_files = 0
