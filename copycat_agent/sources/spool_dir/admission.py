"""Decides which files a task may read: a file has to be complete, it has to be unchanged since then, and it has to be opened."""

from __future__ import annotations

import itertools
import os
import resource
from typing import TYPE_CHECKING

from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.files.packing.compressions import MAGIC_BYTES
from copycat_agent.sources.files.packing.unpacking import codec_of
from copycat_agent.sources.files.paths.regular_files import SPARE, why_not
from copycat_agent.sources.spool_dir.ready import ReadyFiles, queue
from copycat_agent.sources.spool_dir.spool_file import FileOrRange, SpoolFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.sources.planner import Planner
    from copycat_agent.sources.spool_dir.listing import Listing
    from copycat_agent.sources.spool_dir.spool_catalog import SpoolCatalog
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

AGAIN_SECONDS = 0.5
"""Time until a missing file is checked again; a scan usually finds it earlier under another name, or forgets it."""
MOST_OPEN = 512
"""How many files one connector holds open at a time."""
LEAST_BYTES = 16 * 2**20
"""The least size of a range; smaller ranges cost more than they gain."""
FEWEST_RANGES = 2


class Admission:
    """Admits one connector's files, one call at a time. A file is queued, waits, has to be prepared (`preparation`), or none of these."""

    def __init__(
        self,
        options: SpoolDirOptions,
        catalog: SpoolCatalog,
        ready: ReadyFiles,
        listing: Listing,
        planner: Planner[FileOrRange],
        most_ranges: int,
    ) -> None:
        """Large files may be split into up to `most_ranges` ranges; 0: they are not split."""
        self._options = options
        self._catalog = catalog
        self._ready = ready
        self._listing = listing
        self._planner = planner
        self._most_ranges = most_ranges
        self._queue = queue(options)
        self._awaiting: dict[SpoolFile, None] = {}
        self._unprepared: dict[SpoolFile, None] = {}
        self._opened: set[SpoolFile] = set()

    @property
    def has_ready(self) -> bool:
        """Whether files are queued."""
        return bool(self._queue)

    @property
    def has_unprepared(self) -> bool:
        """Whether files have to be prepared before they may be read."""
        return bool(self._unprepared)

    def take_unprepared(self) -> list[SpoolFile]:
        """Returns and removes the files that have to be prepared; the caller decides what happens to each."""
        taken, self._unprepared = list(self._unprepared), {}
        return taken

    def is_waited_for(self, file: SpoolFile) -> bool:
        """Returns whether waiting alone completes the file: not if its done file is missing, or a writer has only opened it."""
        return not (self._ready.waits_for_done_file(file) or file.is_being_begun)

    def admit(self, file: SpoolFile) -> None:
        """Sorts a file that is not in flight: queues it if it is complete, else schedules another check."""
        self._take_out(file)
        if file.is_set_aside or not self.follows(file):
            self._ready.forget(file)
        elif file.was_changed and self._options.on_changed_file == "stop":
            self._unprepared[file] = None
        elif why := self._ready.why_not(file):
            file.wait(why)
            if left := self._ready.seconds_left(file):
                self._ready.look_at(file, left)
            else:
                self._awaiting[file] = None
        else:
            file.complete()
            self._enter(file)

    def _take_out(self, file: SpoolFile) -> None:
        self._queue.discard(file)
        self._awaiting.pop(file, None)
        self._unprepared.pop(file, None)

    def _enter(self, file: SpoolFile) -> None:
        if file.has_old_ranges and not self._planner.reads_any(file.partitions):
            file.begin_anew()
        is_empty = not (file.size or file.progress.is_begun)
        if is_empty or self.ranges_of(file):
            self._unprepared[file] = None
        else:
            self._queue.add(file)

    def ranges_of(self, file: SpoolFile) -> int:
        """Returns how many ranges to split a file into that is large and not begun; 0: it is read as one."""
        progress, wanted = file.progress, min(self._most_ranges, file.size // LEAST_BYTES)
        return 0 if progress.is_begun or progress.ranges or progress.offset.compression or wanted < FEWEST_RANGES else wanted

    def enqueue(self, file: SpoolFile) -> None:
        """Queues a file that may be read as it is."""
        self._queue.add(file)

    def look_for_done_files(self) -> None:
        """Checks the files that wait for a done file; called after a directory has changed."""
        for file in list(self._awaiting):
            self.admit(file)

    def end_timed_out(self) -> float:
        """Checks the files that are due. Returns when to call this again, by `time.monotonic()`."""
        for file in self._ready.due():
            if self.follows(file) and not self._planner.reads_any(file.partitions):
                self._look_again(file)
        return self._ready.next_at

    def follows(self, file: SpoolFile) -> bool:
        """Returns whether the file still has its inode in the catalog: one that went away does not, whatever has its name or inode now."""
        return self._catalog.files.get(file.inode_key) is file

    def later(self, file: SpoolFile, seconds: float) -> None:
        """Takes the file out of the queue and checks it again after `seconds`."""
        self._queue.discard(file)
        self._ready.look_at(file, seconds)

    def drop(self, file: SpoolFile) -> None:
        """Removes the file from all queues and closes it: nothing is to be done for it any more."""
        self._take_out(file)
        self._ready.forget(file)
        file.close()

    def _look_again(self, file: SpoolFile) -> None:
        try:
            info = os.fstat(file.fd) if file.fd >= 0 else os.lstat(file.path)
        except OSError:
            info = None
        if info is None or (info.st_dev, info.st_ino) != file.inode_key:
            self._seek(file)
            return
        file.observe(info)
        self.admit(file)

    def _seek(self, file: SpoolFile) -> None:
        """Asks for a scan, which finds a file that is not at its path any more, or forgets it.

        If its whole directory is gone no scan can tell, so this counts as an error: a run to the end does not wait for it for ever.
        """
        self._listing.ask()
        file.fail("it is not where it was, and its directory cannot be listed")
        self._ready.look_at(file, AGAIN_SECONDS)

    def plan(self, shares: int) -> list[FileOrRange]:
        """Returns what one of `shares` idle tasks reads next, in order; all files are open and in flight from now on."""
        if not self._queue:
            return []
        most = min(self._planner.share(len(self._queue), shares), self._room())
        again: list[SpoolFile] = []
        chosen = self._planner.fill(itertools.islice(self._begun(again), most), lambda reading: reading.unread)
        for file in again:
            self._queue.add(file)
        return chosen

    def _begun(self, again: list[SpoolFile]) -> Iterator[FileOrRange]:
        """Yields files and ranges in order. Adds files with more ranges to be read to `again`."""
        for file in self._queue.in_order():
            if not self.open(file):
                continue
            part = file.progress.next_range(self._planner.in_flight)
            if file.progress.ranges and (part is None or file.has_old_ranges):
                continue  # the file is queued again when the results of its other ranges are taken in
            self._planner.take(reading := FileOrRange(file, part))
            if part is not None and file.progress.next_range(self._planner.in_flight):
                again.append(file)
            yield reading

    def _room(self) -> int:
        """Returns how many more files may be opened, at least 1. If that is none, it first closes those that no task reads."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        allowed = MOST_OPEN if soft == resource.RLIM_INFINITY else min(MOST_OPEN, soft - SPARE)
        self._opened = {file for file in self._opened if file.fd >= 0}
        if len(self._opened) >= allowed:
            for file in [one for one in self._opened if not (one.gone or self._planner.reads_any(one.partitions))]:
                file.close()
                self._opened.discard(file)
        return max(1, allowed - len(self._opened))

    def open(self, file: SpoolFile) -> bool:
        """Ensures that the file is open for its turn. Returns False if it cannot be, or is not ready: it is then scheduled again."""
        if not self.follows(file):
            return False
        try:
            return self._is_as_it_was(file) if file.fd >= 0 else self._open(file)
        except OSError as error:
            why = why_not(error)
            self._listing.passed_over.warn(file.path, why)
            self._ready.look_at(file, file.fail(why))
            return False

    def _open(self, file: SpoolFile) -> bool:
        """Opens the file. Returns False if it cannot be read now. Raises OSError, with the file closed or unchanged."""
        try:
            fd, info = self._listing.opener.open(file.path, is_known=True)
        except FileNotFoundError:
            self._seek(file)
            return False
        if identify(fd, info) != file.identity:
            os.close(fd)
            self._listing.ask()
            self.drop(file)
            self._catalog.vanish(file)
            return False
        file.opened(fd)
        self._opened.add(file)
        try:
            if self._is_as_it_was(file) and self._has_no_writer(file):
                self._recognise(file)
                return True
        except OSError:
            file.close()
            raise
        file.close()
        return False

    def _is_as_it_was(self, file: SpoolFile) -> bool:
        """Returns whether the file is unchanged since it was found complete; if not, it is admitted again. Raises OSError."""
        if file.observe(os.fstat(file.fd)):
            return True
        self.admit(file)
        return False

    def _has_no_writer(self, file: SpoolFile) -> bool:
        """Returns whether no program has the file open for writing; if one has, schedules another check."""
        if not self._ready.has_writer(file):
            return True
        file.wait("somebody has it open for writing", has_writer=True)
        self._ready.look_at(file, min(1.0, self._ready.min_age))
        return False

    def _recognise(self, file: SpoolFile) -> None:
        """Sets the compression, from the first bytes or by definition. A wrong one shows when the file is unpacked. Raises OSError."""
        progress = file.progress
        if not (progress.is_begun or progress.ranges):
            file.go_on(progress.packed_as(codec_of(os.pread(file.fd, MAGIC_BYTES, 0), self._options)))
