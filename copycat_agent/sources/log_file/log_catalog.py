"""All files of one connector: which exist, which are new, which are other files under an old name, which are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.base import Offsets
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.paths.discovery import Discovery, MatchedFile, PassedOver
from copycat_agent.sources.files.paths.regular_files import Opener
from copycat_agent.sources.log_file.beginning.start import StartAt
from copycat_agent.sources.log_file.file_intake import FileIntake
from copycat_agent.sources.log_file.followed import FollowedFiles
from copycat_agent.sources.log_file.rotation import is_newest, is_rotated
from copycat_agent.sources.log_file.succession import similarity
from copycat_agent.sources.log_file.succession.missed_rotations import MissedRotations
from copycat_agent.sources.log_file.succession.newcomers import NOT_COMPARED, Newcomers
from copycat_agent.sources.log_file.succession.unclaimed import UnclaimedRanges, UnclaimedSearch
from copycat_agent.sources.log_file.tracked import TrackedFile
from copycat_agent.sources.log_file.unfollowed_partitions import CUT
from copycat_agent.sources.planner import Changes

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.log_file.log_options import LogFileOptions

LOOKS = 4
"""Most repeats of a scan, and of a whole comparison, while a rotation is in progress.

A directory that never stops changing is then taken as it is."""


class LogCatalog:
    """Compares existing files with those that are `followed`."""

    def __init__(self, connector: str, options: LogFileOptions, offsets: Offsets, log: Log) -> None:
        self.followed = followed = FollowedFiles(connector, options, offsets, log)
        self.opener = Opener(
            options.include,
            follow_symlinks=options.follow_symlinks,
            symlink_roots=options.symlink_roots,
            follow_hard_links=options.follow_hard_links,
        )
        self.passed_over = PassedOver(log)
        self.rotated_files = self.truncated_files = 0
        self.discovery = Discovery(options.include, options.exclude, self.opener)
        self._intake = FileIntake(followed, StartAt(options), self.opener, self.passed_over, log)
        self._log = log
        self.newcomers = Newcomers(followed, self.opener, log)
        self._unclaimed = UnclaimedRanges(followed, self.newcomers, self.opener, self.discovery, self._intake)
        self.missed = MissedRotations(followed, self.opener, self.discovery, self._intake, self.passed_over, log)
        self._search = UnclaimedSearch(followed, self.opener, self.discovery, self._intake, self.passed_over)
        self._is_scanned = False
        self._told_unmatched: set[str] = set()
        if self.followed.descriptors.limit < options.max_open_files:
            self._intake.tell_limit()

    def may_find(self, path: str) -> bool:
        """Returns whether a scan may find a new file at `path`: the name matches, and it was not just passed over."""
        return path not in self.passed_over and self.discovery.may_match(path)

    @property
    def has_trouble(self) -> bool:
        """Whether the last scan could not check something that matches: it may be readable now, and no time stamp shows that."""
        return bool(self.discovery.unlisted) or self.discovery.has_dangling or bool(self.passed_over.unreadable)

    @property
    def has_pending(self) -> bool:
        """Whether another scan may find more though no name and no file has changed: a search or a decision is pending."""
        searches = bool(self._search.why or self.followed.unfollowed.unclaimed) or self.missed.has_pending
        return searches or self.has_trouble or self.newcomers.has_pending or self.followed.expiry.is_due

    def look_again(self, file: TrackedFile, changes: Changes) -> bool:
        """Checks a file under its known name. Returns False if only a scan can tell what has become of it."""
        info = file.found_by_name(follow_symlinks=self.opener.follow_symlinks)
        return info is not None and self._observe(file, MatchedFile(file.path, info), changes) is not None

    def scan(self, changes: Changes) -> None:
        """Compares what exists with what is known; adds to `changes` what has to be saved before anything new is read."""
        first = self.missed.is_first
        self.passed_over.begin_scan()
        self.missed.begin(changes)
        if self.discovery.starved:
            self._intake.shrink()
        for _ in range(LOOKS):
            with self.opener.held_roots():
                present, complete = self._compare(changes, first=first)
            if complete:
                break
        self._note_missing(present, changes)
        self._look_after_draining(changes)
        if self._search.why:
            self._search.look(changes)
            self.followed.descriptors.open_files.looked()
        self.followed.expiry.age(changes)
        self._is_scanned = True
        self.followed.descriptors.make_room(0, unread=True)
        self._tell_unmatched()

    def _compare(self, changes: Changes, *, first: bool) -> tuple[set[TrackedFile], bool]:
        """Returns the existing files, and whether that is all: False if a file was renamed between the listing and its opening."""
        names, strangers = self._look_until_two_agree()
        present: set[TrackedFile] = set()
        for file, found in names.items():
            same = self._observe(file, found, changes)
            if same is None:
                strangers.append(found)
            else:
                present.add(same)
        present |= self._intake.meet_all(strangers, changes, first=first)
        slipped = [
            one for one in strangers if (one.stat.st_dev, one.stat.st_ino) not in self.followed.files and one.path not in self.passed_over
        ]
        return present, not slipped

    def judge(self, changes: Changes, *, at_once: bool) -> None:
        """Decides which new files continue known ones, and what is lost because none does. `at_once`: does not wait for copies.

        `missed.follow` and `decide` may meet more files, which are taken up each time.
        """
        newcomers, begun = self._intake.take_newcomers(), self._intake.take_begun()
        if self._is_scanned:
            self.missed.met([*newcomers, *begun], changes)
        self.newcomers.hold(begun, changes)
        self.newcomers.add(newcomers)
        self.newcomers.judge(changes, at_once=at_once)
        if self._is_scanned:
            awaited = self._unclaimed.awaited()
            self.missed.follow(changes)
            self.newcomers.add(self._intake.take_newcomers())
            self.newcomers.judge(changes, at_once=at_once)
            self._unclaimed.decide(changes, awaited)
            self.missed.end(changes)
            if self.missed.has_unopened:
                self.missed.has_unopened, self._search.why = False, "the file went away before it could be opened"
            self.newcomers.add(self._intake.take_newcomers())
        self._is_scanned = False
        self.newcomers.release(at_once=at_once)

    def begin_anew(self, file: TrackedFile, why: str, changes: Changes) -> TrackedFile:
        """Begins the next generation at byte 0: the file no longer holds what was read from it. It must not be in flight.

        If the file has an excluded name, new content is not read: it is not followed any more.
        """
        self.missed.begun_anew(file)
        self._log.warning("file begun anew, reading from its beginning", path=file.path, why=why, offset=file.offset.position)
        path = file.path if file.draining_since is None else file.remembered(gone=True).path
        seen = file.seen
        if seen.cut is not None and not seen.unseen:
            largest, kept = seen.cut
        else:  # it was not seen to shrink: only its size at the last comparison is known
            largest, kept = file.verified.size, 0
        self.truncated_files += 1
        previous = replace(file.offset, size=file.unread_at(largest) if file.is_packed else largest)
        self.followed.unfollowed.add_previous(
            file.partition,
            previous,
            CUT,
            changes,
            kept=0 if file.offset.position else kept,
            begun_ns=0 if file.draining_since is not None else seen.met_ns,
            read_ns=file.verified.at_ns,
        )
        saved_as, generation = Identity.parse(file.partition.key)[0], file.generation + 1
        if seen.unseen:
            unseen = SourcePartition(self.followed.connector, saved_as.key(generation))
            self.followed.unfollowed.add_previous(unseen, SourceOffset(0, path=path, size=seen.unseen), CUT, changes)
            generation += 1
        self.followed.expiry.bound_previous(file.identity.inode, changes)
        partition = SourcePartition(self.followed.connector, saved_as.key(generation))
        fresh = file.begun_anew(partition, path, why, unpacks=self.followed.unpacks)
        changes.offsets[fresh.partition] = fresh.offset
        self.followed.replace(file, fresh)
        if fresh.draining_since is not None and self.discovery.excludes(path):
            changes.offsets[fresh.partition] = fresh.remembered(gone=True, done=True)
            self.followed.remove(fresh)
        else:
            if is_rotated(path):
                fresh.held_back(NOT_COMPARED)
            self._intake.begun.append(fresh)
        return fresh

    def _look_until_two_agree(self) -> tuple[dict[TrackedFile, MatchedFile], list[MatchedFile]]:
        """Lists until two listings agree, if there are unknown files: during a rotation files are listed twice, or not at all."""
        names, strangers = self._look()
        for _ in range(LOOKS):
            before = dict(self.followed.paths)
            if not strangers:
                break
            names, strangers = self._look()
            if self.followed.paths == before:
                break
        return names, strangers

    def _look(self) -> tuple[dict[TrackedFile, MatchedFile], list[MatchedFile]]:
        """Lists existing files: known files with one name each, the old one if it still leads there, and unknown ones."""
        names: dict[TrackedFile, MatchedFile] = {}
        strangers: list[MatchedFile] = []
        self.followed.paths.clear()
        for found in self.discovery.scan(self.passed_over.warn):
            inode_key = (found.stat.st_dev, found.stat.st_ino)
            self.followed.paths[found.path] = inode_key
            file = self.followed.files.get(inode_key)
            if file is None:
                strangers.append(found)
            elif file not in names or found.path == file.path:
                names[file] = found
        return names, strangers

    def _observe(self, file: TrackedFile, found: MatchedFile, changes: Changes) -> TrackedFile | None:
        """Observes a known file, under its old name or a new one. Returns None if its inode now belongs to another file."""
        if file.path != found.path:
            self._log.debug("file renamed", path=file.path, to=found.path)
            self.rotated_files += is_newest(file.path)
            self.missed.left(file.path)
            before = file.path
            file.renamed(found.path, found.stat.st_ctime_ns)
            self.followed.rotation_order.renamed(file, before)
        file.note_found(found.stat)
        if file.seen.emptied_ns:
            if is_newest(found.path) and not file.is_packed:
                self.missed.filled(file)
            file.copy_sought()
        self.followed.draining.discard(file)
        if file.in_flight:
            return file
        why = similarity.what_changed(file, self.opener, self.passed_over.warn)
        if file.seen.replaced:
            self.missed.left(file.path)
            self.followed.lose_rest(file, changes)
            return None
        if why:
            return self.begin_anew(file, why, changes)
        self._note_cut(file, changes)
        self.followed.note_readable(file)
        return file

    def _note_cut(self, file: TrackedFile, changes: Changes) -> None:
        """Enters the loss of a file that shrank: what was beyond its new end and not read. It must not be in flight."""
        if file.seen.cut is not None:
            largest, smallest = file.seen.cut
            start = max(file.offset.position, 0 if file.is_packed else smallest)
            end = start + file.unread_at(largest) if file.is_packed else largest
            if end > start:
                why = f"{CUT}{packed.words(file.offset)}"
                self.followed.lost.add(file.partition, file.path, start, end, why, changes)
            file.cut_entered()
            self.truncated_files += 1
            changes.offsets[file.partition] = file.remembered(gone=file.draining_since is not None)

    def _note_missing(self, present: set[TrackedFile], changes: Changes) -> None:
        """Handles files that no pattern finds any more. A file is not missing if its directory could not be listed."""
        unlisted = tuple(f"{directory.rstrip('/')}/" for directory in self.discovery.unlisted)
        for file in [one for one in self.followed.files.values() if one not in present]:
            if unlisted and file.path.startswith(unlisted):
                continue
            if file.draining_since is None:
                self.missed.left(file.path)
            if file.fd < 0 and not file.in_flight:
                self.rotated_files += 1
                changes.offsets[file.partition] = file.remembered(gone=True)
                self.followed.remove(file)
                self._search.why = "the file went away while it was closed (see max_open_files)"
            elif file.draining_since is None:
                self.rotated_files += 1
                self.followed.drain(file)
                if not file.in_flight:  # else its offset is about to move, and is saved with its new name then
                    changes.offsets[file.partition] = file.remembered(gone=True)
                self._log.info("file gone from its patterns, still followed", path=file.path, unread_bytes=file.backlog)

    def _look_after_draining(self, changes: Changes) -> None:
        """Begins draining files anew that were overwritten, before it is decided what other files have become of."""
        for file in [one for one in self.followed.draining if one.fd >= 0 and not one.in_flight]:
            file.refresh()
            if why := similarity.what_changed(file, self.opener, self.passed_over.warn):
                self.begin_anew(file, why, changes)

    def _tell_unmatched(self) -> None:
        """Logs once that a pattern matches nothing: it may be wrong, or early."""
        for pattern in sorted(self.discovery.unmatched - self._told_unmatched):
            self._told_unmatched.add(pattern)
            self._log.info("no file matches yet", pattern=pattern)
