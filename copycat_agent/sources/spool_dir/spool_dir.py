"""Source `spool_dir`: whole files that are dropped into a directory, read once, and cleaned up once Kafka has them.

The driver's half. A file waits until it is complete (`ready`), then in line until a task is idle; what is settled of it is a
row per file, or per range of one that is cut. What a row says is done is never read again.

It is the same file under another name: a rename, before it is read or meanwhile, changes nothing. Another file under the same name is
another one, unless the whole of it is, byte for byte, what was last read under that name: then it is a repeat, is told once, is not
sent, and is cleaned up. In doubt (a file over 8 GiB, one that was cut into ranges, one whose row is forgotten) it is sent again.

`on_changed_file: stop` stops the reading of that file, not the connector (as Flume's source does): a bad file never stops what does
not depend on it. Its row remembers.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from copycat_agent.formats import RecordFormat
from copycat_agent.formats.records import build_format
from copycat_agent.model import SplitResult
from copycat_agent.sources.base import Closeup, FileView, Lag, Offsets, Plan
from copycat_agent.sources.planner import Changes, CrowdSum, Planner, UnsavedChanges
from copycat_agent.sources.spool_dir.admission import Admission
from copycat_agent.sources.spool_dir.catalog import Catalog
from copycat_agent.sources.spool_dir.cleanup.cleaner import Cleaner
from copycat_agent.sources.spool_dir.cleanup.cleanup_queue import CleanupQueue
from copycat_agent.sources.spool_dir.listing import DoneFiles, Listing
from copycat_agent.sources.spool_dir.outcomes import Outcomes
from copycat_agent.sources.spool_dir.preparation import Preparation
from copycat_agent.sources.spool_dir.ready import Ready
from copycat_agent.sources.spool_dir.rows import Rows
from copycat_agent.sources.spool_dir.spool_file import FileOrRange, SpoolFile
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from copycat_agent.sources.spool_dir.spool_stream import LimitedFormat
from copycat_agent.sources.spool_dir.views import LagView, Views

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import DeliveryOptions

HOPELESS_ERRORS = 3
"""A file that failed this often in a row is not waited for when everything else is read."""
RANGES_PER_TASK = 4
"""Of a file that is cut, at most: some ranges take longer than others."""


class SpoolDir:
    """A `base.Source`, called by one thread at a time: it hands on between those who look, admit, take in results and clean up."""

    def __init__(self, connector: str, options: SpoolDirOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> None:
        """`offsets` are the connector's saved ones."""
        form: RecordFormat = LimitedFormat(build_format(options.format), options.unpack)
        counts = form.counts_records
        done_files = DoneFiles(options)
        cleaner = Cleaner(connector, options.dir, options.cleanup, log, recursive=options.recursive)
        self._options = options
        self._batch_seconds = delivery.max_batch_time
        self._log = log
        self._rows = Rows(offsets, options.forget_after, log)
        self._listing = Listing(options, done_files, log)
        self._planner = Planner[FileOrRange](delivery.max_batch_bytes, clock=time.monotonic)
        self._unsaved = UnsavedChanges()
        self._catalog = Catalog(connector, options, self._rows, self._listing, self._planner, log, counts=counts)
        most_ranges = RANGES_PER_TASK * delivery.tasks_max if delivery.ordering == "none" else 0
        ready = Ready(options, done_files, log, time.monotonic)
        self._admission = Admission(options, self._catalog, ready, self._listing, self._planner, most_ranges)
        self._preparation = Preparation(self._catalog, self._admission, form)
        self._outcomes = Outcomes(options, self._planner, self._unsaved, self._catalog, self._admission, log, counts_records=counts)
        self._cleanup = CleanupQueue(cleaner, done_files, log, self._listing.ask, time.monotonic, counts_records=counts)
        self._views = Views(self._catalog, self._listing, self._cleanup, self._admission, self._planner, counts_records=counts)
        lag = LagView(self._catalog, lambda: self._listing.passed_over.unreadable + self._cleanup.troubled)
        self._lag = CrowdSum(lambda: len(self._catalog.files), lag.add_up)
        self._has_looked = False

    @property
    def directories(self) -> Collection[str]:
        return self._listing.directories if self._options.watch == "auto" else ()

    @property
    def scan_seconds(self) -> float:
        return self._options.scan_interval

    @property
    def needs_scan(self) -> bool:
        """Whether a look may find something, or files wait for rows that a scan gives them."""
        return self._listing.is_asked or self._admission.has_unprepared

    def scan(self) -> Changes:
        """Look at the directory where that may find something. Returns rows of new, gone and cleaned files that have to be saved."""
        changes = Changes()
        is_last = self._listing.is_bounded and self.drained()  # who asks whether all is read will not look again
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
                self._cleanup.add(row)  # what a crash has left half done is finished
            else:
                self._cleanup.discard(row)
            self._rows.gone(row, changes)
        self._has_looked = True

    def wake(self, paths: Collection[str]) -> bool:
        """Something happened at `paths`. False when only a scan can tell what; a file that grows is looked at when its time comes."""
        for path in paths:
            if path in self._listing.directories or (not self._catalog.knows(path) and self._listing.may_find(path)):
                self._listing.ask()
        return not self._listing.is_asked

    def plan(self, shares: int) -> Plan:
        """Work for one of `shares` idle tasks. Its files are open until `finish`."""
        chosen = self._admission.plan(shares)
        return Plan(tuple(reading.split() for reading in chosen), self._batch_seconds)

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        """What the results ask to be saved. Nothing of it counts before `finish`."""
        return self._unsaved.add(self._outcomes.changes_of(results))

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """`changes`, of a scan or of `results`, are saved. Raises FatalError for a bad file with `on_bad_file: stop`."""
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
        """It is read to its end, and that is saved."""
        self._admission.drop(file)
        if (row := self._catalog.finish(file)) is not None:
            self._cleanup.add(row)
        offset = file.progress.offset
        if file.former is not None and offset.fingerprint == file.former.fingerprint:
            self._log.info("file repeats what was sent, it is not sent again", path=file.path, bytes=file.size)
        else:
            self._log.debug("file finished", path=file.path, bytes=file.size, records=offset.records)

    def ripen(self, *, at_once: bool) -> float:
        """Look at files whose time has come, and clean up. A file that is not complete is waited for in a run to the end, too."""
        self._listing.is_bounded = at_once
        if self._cleanup.is_busy:
            self._cleanup.work()
        return min(self._admission.ripen(), self._cleanup.next_at)

    def drained(self) -> bool:
        """Whether all is read. Not waited for: files without their done file, set aside, or empty and open for writing."""
        if self._planner.in_flight or self.needs_scan or self._admission.has_ready or self._cleanup.is_busy:
            return False
        waiting = (file for file in self._catalog.files.values() if not file.is_set_aside and file.backoff.errors < HOPELESS_ERRORS)
        return not any(map(self._admission.is_waited_for, waiting))

    def finalise(self) -> None:
        """Spooled files are final as they are."""

    def files(self) -> tuple[FileView, ...]:
        return self._views.files()

    def passed_over(self) -> Mapping[str, str]:
        return self._listing.reasons()

    def look_closely(self, path: str, most_bytes: int) -> Closeup | None:
        return self._views.closeup(path, most_bytes)

    def lag(self) -> Lag:
        """What is known to be unread; that of very many files may be a little old."""
        return self._lag.now()

    def leave(self) -> Changes:
        """What to save at the end. Files that lost their names while they were read are lost with the descriptors."""
        changes = self._unsaved.joined()
        self._rows.note(changes)
        self._catalog.leave(changes)
        return changes

    def close(self) -> None:
        """Close every file, and end a copy under way."""
        self._cleanup.close()
        for file in self._catalog.files.values():
            file.close()
