"""Ends files that left their patterns or were deleted, and archives: each is read to its end and closed."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.paths.regular_files import Opener, has_no_writer
from copycat_agent.sources.log_file.file_state import Draining
from copycat_agent.sources.log_file.removal import FileRemoval
from copycat_agent.sources.log_file.tracked import OpenedFile, TrackedFile

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.model import SourceOffset, SourcePartition, SplitResult
    from copycat_agent.sources.base import Lose
    from copycat_agent.sources.log_file.followed import FollowedFiles
    from copycat_agent.sources.log_file.log_options import LogFileOptions
    from copycat_agent.sources.planner import Changes


LAST_LINE_SECONDS = 5.0
"""A whole archive that is unchanged this long gets no further member: its last line counts as finished."""
UNFINISHED_SECONDS = 60.0
"""An archive without its end marker that is unchanged this long is damaged; `rotate_wait` may shorten this, down to `LAST_LINE_SECONDS`."""
_SIZES = 1000
"""How many files' sizes are saved at a time."""
_REMEMBERED = 1000
"""How many closed files are still checked for appended data; each costs a stat per scan."""
BeginAnew = Callable[["TrackedFile", str, "Changes"], "TrackedFile"]
"""`begin_anew(file, why, changes)` returns the next generation of `file`."""


def give_up(file: TrackedFile, limit: float | Literal["forever"], lose: Lose, changes: Changes) -> bool:
    """Gives up a deleted file whose unread bytes did not shrink for `limit` seconds: they are entered as lost. Returns whether it did.

    No pattern finds it, and it is not in flight.
    """
    if limit == "forever" or not file.is_deleted():
        return False
    now = time.monotonic()
    assert isinstance(file.standing, Draining), "a pattern finds it"
    since, size = file.standing.deleted or (now, file.size)
    if file.settled_size >= size:  # all bytes of that time are read: a writer goes on writing, and the agent keeps up
        since, size = now, file.size
    file.seen_deleted(since, size)
    if now - since < limit or not file.backlog:
        return False
    why = f"the file was deleted and not read within hold_deleted{packed.words(file.offset)}"
    start = file.offset.position
    lose(file.partition, file.path, start, start + file.backlog, why, changes)
    changes.offsets[file.partition] = file.remembered(gone=True, done=True)
    return True


def remember_sizes(unread: Iterable[TrackedFile], changes: Changes) -> None:
    """Saves the sizes of files that grow while nothing of them can be sent, so that losses can be counted if they are destroyed.

    A saved size is the largest seen size that is not accounted for yet. So a start after kill -9 counts what the agent had seen and not
    entered; possibly too much, if a copy of the bytes is read later. For a file in flight it may be too small: its size and name are saved
    with what the batch settles.
    """
    grown = (file for file in unread if not file.in_flight and file.known_size > file.offset.size)
    for file in itertools.islice(grown, _SIZES):
        file.take_size_over()
        changes.offsets[file.partition] = file.offset


def enter_damage(result: SplitResult, changes: Changes, log: Log) -> None:
    """Enters and logs that a packed file cannot be unpacked to its end. Called once for each of its sizes and modification times."""
    offset, path = result.offset, result.split.path
    changes.losses.append(packed.damage_loss(result))
    hint = "repair or replace it: it is read on when its size or time changes, and never deleted"
    log.error("packed file is damaged, what comes before is sent", path=path, offset=offset.position, why=result.damage, hint=hint)


def is_over(file: TrackedFile, rotate_wait: float) -> bool:
    """Returns whether a packed file that was read to its present end is complete: no more will be added."""
    quiet = time.monotonic() - file.grown_at
    if file.packing.is_whole or quiet < LAST_LINE_SECONDS:
        return quiet >= LAST_LINE_SECONDS
    return max(quiet, clock.seconds_since(file.identity.device, file.seen.mtime_ns)) >= min(rotate_wait, UNFINISHED_SECONDS)


class ClosedFiles:
    """The last files that were closed at their end. `lose` is called for data that is appended to them."""

    def __init__(self, lose: Lose, opener: Opener) -> None:
        self._lose = lose
        self._opener = opener
        self._files: dict[str, tuple[tuple[int, int], int, SourcePartition, SourceOffset]] = {}

    def add(self, file: TrackedFile) -> str:
        """Adds an open file that is read and unchanged for long enough. Returns its present name."""
        name = os.fsdecode(Path(f"/proc/self/fd/{file.fd}").readlink())
        if not file.is_deleted():
            self._files[name] = (file.inode_key, file.settled_size, file.partition, file.offset)
            if len(self._files) > _REMEMBERED:
                del self._files[next(iter(self._files))]
        return name

    def are_quiet(self, followed: Container[tuple[int, int]]) -> bool:
        """Returns whether `look` would find nothing."""
        for name, (inode_key, position, _, _) in self._files.items():
            try:
                info = os.lstat(name)
            except OSError:
                return False
            if (info.st_dev, info.st_ino) != inode_key or inode_key in followed or info.st_size > position:
                return False
        return True

    def look(self, followed: Container[tuple[int, int]], changes: Changes) -> None:
        """Checks whether data was appended to them; drops those that are `followed` again, gone, or overwritten."""
        for name, (inode_key, position, partition, offset) in list(self._files.items()):
            try:
                info = Path(name).lstat()
            except OSError:
                del self._files[name]
                continue
            is_other = (info.st_dev, info.st_ino) != inode_key or inode_key in followed
            if is_other or (info.st_size > position and not self._still_holds(name, offset)):
                del self._files[name]
            elif info.st_size > position:
                why = "written after rotate_wait to a file that no pattern matches"
                self._lose(partition, name, position, info.st_size, why, changes)
                self._files[name] = (inode_key, info.st_size, partition, offset)

    def _still_holds(self, name: str, offset: SourceOffset) -> bool:
        """Returns whether the file holds what was read; True if it cannot be opened."""
        try:
            with OpenedFile(*self._opener.open(name)) as opened:
                return packed.is_same(fingerprint.reader(opened.fd), opened.info.st_size, offset)
        except OSError:
            return True


class FileCloser:
    """Ends files of one connector, one call at a time: those that left their patterns, archives, and all files when a run is to end.

    `begin_anew` is `LogCatalog.begin_anew`. `removal` deletes those that are read.
    """

    def __init__(
        self,
        followed: FollowedFiles,
        opener: Opener,
        options: LogFileOptions,
        begin_anew: BeginAnew,
        want_scan: Callable[[], None],
        log: Log,
    ) -> None:
        self.removal = FileRemoval(followed, opener, options, want_scan, log)
        self._followed = followed
        self._options = options
        self._begin_anew = begin_anew
        self._log = log
        self._released = ClosedFiles(followed.lost.add, opener)
        self._unfinished: set[TrackedFile] = set()  # archives that were read to their present end, and have an unfinished rest

    def follow(self, changes: Changes) -> None:
        """Called after a scan: reads on the files that left their patterns, and checks those that were closed."""
        for file in list(self._followed.draining):
            self._followed.descriptors.open_files.keep_first(file)
            self._follow_to_its_end(file, changes)
        self._released.look(self._followed.files, changes)

    @property
    def has_pending(self) -> bool:
        """Whether archives have an unfinished rest, which ends with time."""
        return bool(self._unfinished)

    def are_quiet(self) -> bool:
        """Returns whether nothing was appended to the closed files."""
        return self._released.are_quiet(self._followed.files)

    def note_archive_read(self, file: TrackedFile) -> None:
        """Records that a task has read a packed file. An open group of lines at the end of a whole one goes before newer files."""
        has_rest = file.packing.rest > 0
        if has_rest:
            self._unfinished.add(file)
        is_open = has_rest and file.packing.is_whole and file.ending.finished_size != file.size
        file.wait_for_group(waits=is_open and self._options.multiline is not None)

    def finish_archives(self, *, with_groups: bool = False) -> None:
        """Finishes archives that are complete: a last line without its delimiter is a record, and a missing end marker is damage.

        `with_groups`: ends open groups of lines at the ends of whole ones at once.
        """
        self._unfinished = {file for file in self._unfinished if file.packing.rest and not file.removed}
        for file in self._unfinished:
            if (with_groups and file.ending.timed) or is_over(file, self._options.rotate_wait):
                self._finish(file)

    def finish_all(self) -> None:
        """Finishes all files: nothing will be added to any of them."""
        for file in self._followed.files.values():
            self._finish(file)

    def _finish(self, file: TrackedFile) -> None:
        """Makes the rest of the file without a delimiter its last record."""
        if file.backlog and not file.in_flight and file.ending.stalled_size == file.size:
            file.end_last_record()
            self._followed.note_readable(file)

    def _follow_to_its_end(self, file: TrackedFile, changes: Changes) -> None:
        """Follows a file that was renamed away or deleted: reads it, waits for late writes, then closes it."""
        if file.in_flight or file.fd < 0:
            return
        file.refresh()
        if file.needs_scan:
            file = self._begin_anew(file, "it was cut after it was renamed or deleted", changes)
        if file.removed:
            return
        self._followed.note_readable(file)
        if give_up(file, self._options.hold_deleted, self._followed.lost.add, changes):
            self._followed.remove(file)
            return
        assert file.draining_since is not None
        quiet = time.monotonic() - max(file.grown_at, file.draining_since)
        over = quiet >= self._options.rotate_wait or (file.is_deleted() and has_no_writer(file.fd))
        file.refresh()  # the last writer may have written once more before it closed the file
        self._followed.note_readable(file)
        is_being_packed = file.packing.rest > 0 and not file.packing.is_whole and not is_over(file, self._options.rotate_wait)
        if file.unread or is_being_packed or not over:
            return
        if file.backlog:
            self._finish(file)
            return
        changes.offsets[file.partition] = file.remembered(gone=True, done=True)
        now = self._released.add(file)
        self._log.info("file finished and closed", path=file.path, now=now, bytes=file.offset.position)
        self._followed.remove(file)
