"""Source `log_file`: files that grow, are rotated, cut and deleted.

The driver's part: plans splits of files that have new data, and closes files that are finished.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path

from copycat_agent.errors import BlockedError, FileError
from copycat_agent.logs import Log
from copycat_agent.model import SourceState, Split, SplitResult
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources.base import DescriptorStore, FileDetail, FileView, Lag, Offsets, Plan
from copycat_agent.sources.files.paths.partial_scan import ACTIVE_SECONDS, PartialScan
from copycat_agent.sources.log_file.descriptors import close_if_stale
from copycat_agent.sources.log_file.file_closer import FileCloser, enter_damage, remember_sizes
from copycat_agent.sources.log_file.file_planner import FilePlanner, RecordTimers
from copycat_agent.sources.log_file.followed import unread_of, view_of
from copycat_agent.sources.log_file.log_catalog import LogCatalog
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.sources.log_file.tracked import TrackedFile
from copycat_agent.sources.planner import CachedSum, Changes, UnsavedChanges

SIZES_SECONDS = 60.0
"""How often the sizes of unread files are saved."""
HOPELESS_ERRORS = 3
"""A file that failed this often in a row is not waited for when everything else is read."""


class _EventOutcome(Enum):
    """The result of an event at a path: it is taken in, only a scan can tell, or no file of this connector has or may have that name."""

    NOTED = auto()
    NEEDS_SCAN = auto()
    NOT_OURS = auto()


class LogFileSource:
    """The log files of one connector, a `sources.base.Source`. One thread calls it at a time."""

    def __init__(self, connector: str, options: LogFileOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> None:
        """`offsets` are the saved offsets of the connector."""
        self._catalog = LogCatalog(connector, options, offsets, log)
        self._followed = self._catalog.followed
        self._planner = FilePlanner(self._catalog, options, delivery, self._want_scan)
        self._closer = FileCloser(self._followed, self._catalog.opener, options, self._catalog.begin_anew, self._want_scan, log)
        self._options = options
        self._log = log
        self._unsaved = UnsavedChanges()
        self._sizes_at = time.monotonic()
        self._is_final = False
        self._is_bounded = False  # this is a run to the end
        self._needs_scan = False
        self._is_quiet = False  # no event and no task has reported anything since the last scan
        self.partial_scan = PartialScan[TrackedFile]()
        self._unread = CachedSum(lambda: len(self._followed.dirty), lambda: unread_of(self._followed.dirty))
        self._timers = RecordTimers(options, self._followed.note_readable)

    def keep_with(self, keeper: DescriptorStore) -> None:
        """Lets `keeper` keep open files for the next process of the agent."""
        self._followed.descriptors.open_files.keeper = keeper

    def recall(self, state: SourceState) -> None:
        self._catalog.missed.recall(state)

    @property
    def directories(self) -> Collection[str]:
        """The directories that are worth watching: none with `watch: poll`."""
        return self._catalog.discovery.directories if self._options.watch == "auto" else ()

    @property
    def scan_seconds(self) -> float:
        """The seconds between two scans that nothing asks for."""
        return self._options.scan_interval

    def scan(self) -> Changes:
        """Checks all files, or those that may have changed if no directory has. Returns what has to be saved before `plan`."""
        changes = Changes()
        if self._closer.removal.is_due and not self._unsaved:
            self._closer.removal.work()
        is_last = self._is_bounded and self.drained()  # the caller makes no further scan: check every file
        if self._needs_scan or is_last or not self._scan_partly(changes):
            self._scan(changes)
        self._needs_scan = False
        self._catalog.judge(changes, at_once=self._is_final)
        self._needs_scan |= self._catalog.newcomers.needs_scan
        self._planner.forget_quiet(time.monotonic() - ACTIVE_SECONDS)
        self._closer.follow(changes)
        if time.monotonic() - self._sizes_at > SIZES_SECONDS and not self._unsaved:  # else they would accumulate on a full disk
            self._sizes_at = time.monotonic()
            remember_sizes(self._followed.dirty, changes)
        self._closer.finish_archives()
        if self._is_final:
            self._closer.finish_all()
        self._followed.note(changes)
        self._is_quiet = not self._planner.in_flight
        return self._unsaved.add(changes)

    def _scan(self, changes: Changes) -> None:
        begun_ns, begun = time.time_ns(), time.monotonic()
        self._planner.scanned(begun)
        self._catalog.scan(changes)
        self.partial_scan.scanned(self._catalog.discovery.marks, begun_ns, time.monotonic() - begun)

    def _scan_partly(self, changes: Changes) -> bool:
        """Checks the files that may have changed if no directory has. Returns False if a scan is needed."""
        catalog = self._catalog
        if catalog.has_trouble or not self.partial_scan.suffices():
            return False
        chosen = self.partial_scan.choose(self._followed.files.values(), self._planner.active())
        return all(catalog.look_again(file, changes) for file in chosen if file.draining_since is None)

    def unchanged(self) -> bool:
        """Returns whether every file is as the last scan saw it, and nothing is pending, so that another scan would find nothing."""
        followed = self._followed
        pending = (
            followed.dirty
            or followed.draining
            or self._planner.in_flight
            or self._unsaved
            or self._closer.has_pending
            or self._catalog.has_pending
            or self._closer.removal.is_due
        )
        if pending or self.needs_scan or not self._is_quiet or self._is_bounded or self._is_final or not self.partial_scan.covers_all():
            return False
        follow_symlinks = self._options.follow_symlinks
        return all(followed.is_as_seen(path, follow_symlinks=follow_symlinks) for path in followed.paths) and self._closer.are_quiet()

    def wake(self, paths: Collection[str]) -> bool:
        """Takes in events at `paths`. Returns False if only a scan shows what they mean: a write may be to a file that was renamed."""
        self._is_quiet = False
        heard = [self._look_at(path) for path in paths]
        if _EventOutcome.NOT_OURS in heard:
            heard += [self._take_note(file) for file in self._followed.draining]
        self._needs_scan |= _EventOutcome.NEEDS_SCAN in heard or not self._catalog.discovery.directories.isdisjoint(paths)
        return not self._needs_scan

    def _look_at(self, path: str) -> _EventOutcome:
        """Checks the file with this name, and notes whether there is something to read."""
        file = self._followed.at(path)
        if file is None:
            return _EventOutcome.NEEDS_SCAN if self._catalog.may_find(path) else _EventOutcome.NOT_OURS
        if file.unjudged and not file.size:
            return _EventOutcome.NEEDS_SCAN  # a scan decides what its first bytes are: with logrotate's `create`, each new log begins empty
        if file.fd >= 0 and not file.in_flight:
            return self._take_note(file)  # by its descriptor; another file under this name has an event of its own
        try:
            info = Path(path).stat(follow_symlinks=self._options.follow_symlinks)
        except OSError:
            return _EventOutcome.NEEDS_SCAN
        if (info.st_dev, info.st_ino) != file.inode_key:
            return _EventOutcome.NEEDS_SCAN
        file.observe(info)
        return self._take_note(file)

    def _take_note(self, file: TrackedFile) -> _EventOutcome:
        return _EventOutcome.NOTED if self._planner.take_note(file) else _EventOutcome.NEEDS_SCAN

    def _want_scan(self) -> None:
        self._needs_scan = True

    @property
    def needs_scan(self) -> bool:
        """Whether a scan will find out what has become of a file, or of bytes that were cut away."""
        return self._needs_scan or self._next_scan_decides_ranges

    @property
    def _next_scan_decides_ranges(self) -> bool:
        newcomers = self._catalog.newcomers
        return bool(self._followed.unfollowed.fresh or (newcomers.undecided and newcomers.is_releasing))

    def plan(self, shares: int) -> Plan:
        """Returns splits for the next batch of one of as many tasks as there are `shares`.

        None after a batch that a new file was waiting for: the next scan decides what that file is, and later files then wait for it.
        """
        return Plan((), 0.0) if self._catalog.newcomers.is_due else self._planner.plan(shares)

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        """Returns what the results change: offsets that moved, damage and losses. They take effect in `finish`."""
        changes = Changes()
        for result in results:
            file = self._planner.in_flight[result.split.partition]
            if file.is_packed:
                self._catalog.newcomers.archives.answered(file, result, changes)
            if result.damage:
                enter_damage(result, changes, self._log)
                result = replace(result, offset=replace(result.offset, done=True))  # noqa: PLW2901
            is_draining = file.draining_since is not None
            if is_draining or result.offset != result.split.offset:
                assert result.offset.position >= result.split.offset.position, "an offset never moves back"
                now = file.remembered(gone=True) if is_draining else replace(result.offset, size=file.known_size, gone_ms=0)
                size = result.offset.size if result.offset.done else now.size  # an archive is read up to the size it had then
                changes.offsets[result.split.partition] = replace(result.offset, path=now.path, size=size, gone_ms=now.gone_ms)
            changes.losses.extend(result.losses)
        return self._unsaved.add(changes)

    def leave(self) -> Changes:
        """Returns what the next start has to know of the files. The agent stops in order."""
        changes = self._unsaved.joined()
        cut = [file for file in self._followed.files.values() if file.seen.cut is not None]
        for file in {*self._followed.dirty, *cut}:
            self._leave_behind(file, changes)
        self._catalog.missed.leave(changes)
        return changes

    def _leave_behind(self, file: TrackedFile, changes: Changes) -> None:
        """Prepares `file` for the end of the process: the next start finds it, or an archive of it, by its name, or enters what is lost."""
        now = file.remembered(gone=file.draining_since is not None)
        known = changes.offsets.get(file.partition, file.offset)
        is_read = known.done and known.size == now.size
        changes.offsets[file.partition] = replace(known, path=now.path, size=now.size, gone_ms=now.gone_ms, done=is_read)
        if file.is_deleted():  # perhaps no scan has noticed yet
            self._followed.descriptors.open_files.keep_first(file)

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """Takes over the results of tasks, once `changes` are saved."""
        self._unsaved.confirm(changes)
        self._is_quiet &= not results
        if results:  # a scan has noted its own
            self._followed.note(changes)
        newcomers = self._catalog.newcomers
        for result in results:
            file = self._planner.note_task_ended(result.split.partition)
            file.note_gone_on(result)
            if not result.changed or result.split.partition in changes.offsets:  # else the offset stays as it was
                file.note_progress(changes.offsets.get(result.split.partition, result.offset))
            self._note_outcome(file, result)
            file.note_compared(is_other=result.changed)
            if newcomers.undecided:
                newcomers.note_batch_returned(file)
            self._needs_scan |= file.needs_scan or newcomers.is_due
            self._followed.note_readable(file)

    def advance(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """Takes over the results of tasks that stay at the ends of their files, once `changes` are saved."""
        self._unsaved.confirm(changes)
        self._followed.note(changes)
        for result in results:
            file = self._planner.in_flight[result.split.partition]
            file.note_gone_on(result)
            file.note_progress(changes.offsets.get(result.split.partition, result.offset))
            self._followed.note_readable(file)

    def joining(self, followed: int) -> tuple[Split, ...]:
        """Returns splits of quiet files that have new data."""
        return () if self._catalog.newcomers.is_due else self._planner.joining(followed)

    def is_held_up(self, *, for_good: bool = False) -> bool:
        """Returns whether a file that no task reads has something to read, or a new one waits for another file's task."""
        return self._planner.is_held_up(for_good=for_good)

    def _note_outcome(self, file: TrackedFile, result: SplitResult) -> None:
        if isinstance(result.error, FileError):
            delay = file.back_off()
            self._needs_scan |= close_if_stale(file) and file.draining_since is not None
            self._log.warning("file cannot be read, the others go on", path=file.path, why=result.error.message, retry_s=delay)
        elif isinstance(result.error, BlockedError):
            file.block()
        elif result.error is None:
            file.recover()
            if not result.changed:
                file.note_end(result)
                if file.is_stalled:
                    self._timers.add(file)
            if file.is_packed:
                self._closer.note_archive_read(file)

    def end_timed_out(self, *, at_once: bool) -> float:
        """Ends records that have timed out, or all if `at_once`. Returns when the next is due (`time.monotonic()`), inf for never."""
        self._is_bounded = at_once
        if at_once:
            self._closer.finish_archives(with_groups=True)
        return self._timers.end_timed_out(at_once=at_once)

    def drained(self) -> bool:
        """Returns whether everything that can be read is read."""
        waiting = [file for file in self._followed.dirty if file.backoff.errors < HOPELESS_ERRORS and (self._is_final or not file.unjudged)]
        return not (waiting or self._planner.in_flight or self._next_scan_decides_ranges)

    def finalise(self) -> None:
        """Makes the rests at the ends of files their last records: nothing will be added to any of them."""
        self._is_final = self._needs_scan = True
        self._closer.finish_all()

    def files(self) -> tuple[FileView, ...]:
        """Returns a view of each file that is followed, or that matches and cannot be read."""
        why = self._catalog.passed_over.reasons()
        unreadable = [FileView(path, "", 0, 0, 0, "failing", is_open=False, why=why[path]) for path in self._catalog.passed_over.paths()]
        return tuple(sorted([*map(view_of, self._followed.files.values()), *unreadable]))

    def passed_over(self) -> Mapping[str, str]:
        """Returns why files that match are not read, by path."""
        return self._catalog.passed_over.reasons()

    def look_closely(self, path: str, most_bytes: int) -> FileDetail | None:
        """Returns the file at `path` with its next split of at most `most_bytes`; None if it is not followed."""
        followed = self._followed
        file = followed.at(path) or next(iter(followed.draining_at(path)), None)
        if file is None:
            return None
        return FileDetail(view_of(file), followed.names_of(file), file.offset, self._planner.next_split(file, most_bytes))

    def lag(self) -> Lag:
        """Returns what is unread, a little old if very many files have something to read."""
        unread, followed, catalog = self._unread.now(), self._followed, self._catalog
        return Lag(
            bytes=unread.bytes,
            files=len(followed.dirty),
            known_files=len(followed.files),
            open_files=len(followed.descriptors.open_files),
            lost_bytes=followed.lost.bytes,
            troubled_files=catalog.passed_over.unreadable + unread.troubled_files + self._closer.removal.troubled,
            blocked_files=unread.blocked_files,
            oldest_unread_ms=unread.oldest_ms,
            rotated_files=catalog.rotated_files,
            truncated_files=catalog.truncated_files,
        )

    def close(self) -> None:
        """Closes all files."""
        for file in self._followed.files.values():
            file.close()
