"""Source `spool_dir`: whole files that are dropped into a directory, read once, and cleaned up once Kafka has them.

This is the driver's part. A file waits until it is complete (`ready`), then in a queue until a task is idle; its settled offset is a row
per file, or per range of a split file. A file whose row says done is never read again.

A renamed file is the same file, whether it is renamed before or while it is read. Another file under the same name is another file, unless
its content is byte for byte what was last read under that name: then it is a repeat, which is logged once, not sent, and cleaned up. In
doubt (a file over 8 GiB, one that was split into ranges, one whose row is forgotten) it is sent again.

`on_changed_file: stop` stops the reading of that file, not the connector (as Flume's source does): a bad file never stops what does not
depend on it. Its row remembers that.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from copycat_agent.formats import RecordFormat
from copycat_agent.logs import Log
from copycat_agent.model import SplitResult
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources.base import FileDetail, FileView, Lag, Offsets, Plan
from copycat_agent.sources.planner import CachedSum, Changes, Planner, UnsavedChanges
from copycat_agent.sources.spool_dir.admission import Admission
from copycat_agent.sources.spool_dir.cleanup.cleaner import Cleaner
from copycat_agent.sources.spool_dir.cleanup.cleanup_queue import CleanupQueue
from copycat_agent.sources.spool_dir.listing import DoneFiles, Listing
from copycat_agent.sources.spool_dir.outcomes import SpoolResults
from copycat_agent.sources.spool_dir.preparation import Preparation
from copycat_agent.sources.spool_dir.ready import ReadyFiles
from copycat_agent.sources.spool_dir.rows import FileRows
from copycat_agent.sources.spool_dir.spool_catalog import SpoolCatalog
from copycat_agent.sources.spool_dir.spool_file import FileOrRange, SpoolFile
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from copycat_agent.sources.spool_dir.spool_stream import LimitedFormat
from copycat_agent.sources.spool_dir.views import LagView, SpoolViews

HOPELESS_ERRORS = 3
"""A file that failed this often in a row is not waited for when everything else is read."""
RANGES_PER_TASK = 4
"""The most ranges per task that a file is split into: some ranges take longer than others."""


class SpoolDirSource:
    """A `base.Source`, called by one thread at a time. It connects the parts that scan, admit, take in results and clean up."""

    def __init__(self, connector: str, options: SpoolDirOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> None:
        """`offsets` are the saved offsets of the connector."""
        form: RecordFormat = LimitedFormat(options.format, options.unpack)
        counts = form.counts_records
        done_files = DoneFiles(options)
        cleaner = Cleaner(connector, options.dir, options.cleanup, log, recursive=options.recursive)
        self._options = options
        self._batch_seconds = delivery.max_batch_time
        self._log = log
        self._rows = FileRows(offsets, options.forget_after, log)
        self._listing = Listing(options, done_files, log)
        self._planner = Planner[FileOrRange](delivery.max_batch_bytes, clock=time.monotonic)
        self._unsaved = UnsavedChanges()
        self._catalog = SpoolCatalog(connector, options, self._rows, self._listing, self._planner, log, counts=counts)
        most_ranges = RANGES_PER_TASK * delivery.tasks_max if delivery.ordering == "none" else 0
        ready = ReadyFiles(options, done_files, log, time.monotonic)
        self._admission = Admission(options, self._catalog, ready, self._listing, self._planner, most_ranges)
        self._preparation = Preparation(self._catalog, self._admission, form)
        self._outcomes = SpoolResults(options, self._planner, self._unsaved, self._catalog, self._admission, log, counts_records=counts)
        self._cleanup = CleanupQueue(cleaner, done_files, log, self._listing.ask, time.monotonic, counts_records=counts)
        self._views = SpoolViews(self._catalog, self._listing, self._cleanup, self._admission, self._planner, counts_records=counts)
        lag = LagView(self._catalog, lambda: self._listing.passed_over.unreadable + self._cleanup.troubled)
        self._lag = CachedSum(lambda: len(self._catalog.files), lag.add_up)
        self._has_looked = False

    @property
    def directories(self) -> Collection[str]:
        return self._listing.directories if self._options.watch == "auto" else ()

    @property
    def scan_seconds(self) -> float:
        return self._options.scan_interval

    @property
    def needs_scan(self) -> bool:
        """Whether a scan may find something, or files wait for rows that a scan gives them."""
        return self._listing.is_asked or self._admission.has_unprepared

    def scan(self) -> Changes:
        """Scans the directory if that may find something. Returns the rows to save of new, missing and cleaned files."""
        changes = Changes()
        is_last = self._listing.is_bounded and self.drained()  # the caller that asks whether all is read makes no further scan
        self._cleanup.check()
        if self._listing.is_due or is_last:
            self._look(changes)
        self._preparation.prepare(changes)
        for row in self._cleanup.take_cleaned():
            self._catalog.cleaned(row, changes)
        self._cleanup.expire()
        self._rows.forget_old(changes, self._catalog.is_gone)
        self._rows.note(changes)
        return self._unsaved.add(changes)

    def _look(self, changes: Changes) -> None:
        news, gone = self._catalog.scan(self._listing.look(), changes)
        for file in news:
            self._admission.admit(file)
        self._admission.look_for_done_files()
        for row in gone:
            self._catalog.lose(row, changes)
            if row.offset.done and self._listing.looks == 1:
                self._cleanup.add(row)  # finishes a cleanup that a crash interrupted
            else:
                self._cleanup.discard(row)
            self._rows.gone(row, changes)
        self._has_looked = True

    def wake(self, paths: Collection[str]) -> bool:
        """Takes in events at `paths`. Returns False if only a scan shows what they mean; a growing file is checked when it is due."""
        for path in paths:
            if path in self._listing.directories or (not self._catalog.knows(path) and self._listing.may_find(path)):
                self._listing.ask()
        return not self._listing.is_asked

    def plan(self, shares: int) -> Plan:
        """Returns work for one of `shares` idle tasks. Its files are open until `finish`."""
        chosen = self._admission.plan(shares)
        return Plan(tuple(reading.split() for reading in chosen), self._batch_seconds)

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        """Returns the changes to save for the results. They take effect in `finish`."""
        return self._unsaved.add(self._outcomes.changes_of(results))

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """Takes in `changes`, of a scan or of `results`, once saved. Raises FatalError for a bad file with `on_bad_file: stop`."""
        self._unsaved.confirm(changes)
        if results:
            self._rows.note(changes)
            done, failure = self._outcomes.finish(results, changes)
        else:
            done, failure = self._preparation.finish(changes), None
        for file in done:
            self._finish(file)
        if self._has_looked and not results:
            self._has_looked = False
            self._cleanup.add(*self._catalog.done.values())
        self._cleanup.work()
        if failure is not None:
            raise failure

    def _finish(self, file: SpoolFile) -> None:
        """Finishes a file that is read to its end and saved."""
        self._admission.drop(file)
        if (row := self._catalog.finish(file)) is not None:
            self._cleanup.add(row)
        offset = file.progress.offset
        if file.former is not None and offset.fingerprint == file.former.fingerprint:
            self._log.info("file repeats what was sent, it is not sent again", path=file.path, bytes=file.size)
        else:
            self._log.debug("file finished", path=file.path, bytes=file.size, records=offset.records)

    def end_timed_out(self, *, at_once: bool) -> float:
        """Checks files that are due, and cleans up. Incomplete files are waited for in a run to the end, too."""
        self._listing.is_bounded = at_once
        if self._cleanup.is_busy:
            self._cleanup.work()
        return min(self._admission.end_timed_out(), self._cleanup.next_at)

    def drained(self) -> bool:
        """Returns whether all is read. Does not wait for files without their done file, set aside, or empty and open for writing."""
        if self._planner.in_flight or self.needs_scan or self._admission.has_ready or self._cleanup.is_busy:
            return False
        waiting = (file for file in self._catalog.files.values() if not file.is_set_aside and file.backoff.errors < HOPELESS_ERRORS)
        return not any(map(self._admission.is_waited_for, waiting))

    def finalise(self) -> None:
        """Does nothing: spooled files are final as they are."""

    def files(self) -> tuple[FileView, ...]:
        return self._views.files()

    def passed_over(self) -> Mapping[str, str]:
        return self._listing.reasons()

    def look_closely(self, path: str, most_bytes: int) -> FileDetail | None:
        return self._views.closeup(path, most_bytes)

    def lag(self) -> Lag:
        """Returns how much is known to be unread; for very many files it may be a little old."""
        return self._lag.now()

    def leave(self) -> Changes:
        """Returns the changes to save at the end. Files that lost their names while they were read are lost with the descriptors."""
        changes = self._unsaved.joined()
        self._rows.note(changes)
        self._catalog.leave(changes)
        return changes

    def close(self) -> None:
        """Closes every file, and ends an unfinished copy."""
        self._cleanup.close()
        for file in self._catalog.files.values():
            file.close()
