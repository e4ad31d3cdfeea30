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

import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.errors import DamageError, FatalError
from copycat_agent.formats import Frames, RecordFormat
from copycat_agent.formats.records import build_format
from copycat_agent.model import SourceOffset, SplitResult
from copycat_agent.sources.base import Changes, Closeup, FileView, Lag, Offsets, Plan, SourceKind
from copycat_agent.sources.planner import Planner, UnsavedChanges
from copycat_agent.sources.spool_dir import ranges
from copycat_agent.sources.spool_dir.admission import Admission
from copycat_agent.sources.spool_dir.catalog import Catalog
from copycat_agent.sources.spool_dir.cleanup.cleaner import Cleaner
from copycat_agent.sources.spool_dir.cleanup.cleanup_queue import CleanupQueue
from copycat_agent.sources.spool_dir.listing import DoneFiles, Listing
from copycat_agent.sources.spool_dir.outcomes import Outcomes
from copycat_agent.sources.spool_dir.ready import Ready, queue
from copycat_agent.sources.spool_dir.rows import KEPT_GONE, Row, Rows
from copycat_agent.sources.spool_dir.settling import saved
from copycat_agent.sources.spool_dir.spool_file import FileOrRange, SpoolFile
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from copycat_agent.sources.spool_dir.spool_stream import LimitedFormat, open_spooled
from copycat_agent.sources.spool_dir.views import LagView, Views

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import DeliveryOptions

HOPELESS_ERRORS = 3
"""A file that failed this often in a row is not waited for when everything else is read."""


class SpoolDir:
    """See `base.Source`."""

    def __init__(self, connector: str, options: SpoolDirOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> None:
        """`offsets` are the connector's saved ones."""
        self._options = options
        self._delivery = delivery
        self._log = log
        self._form: RecordFormat = build_format(options.format)
        done_files = DoneFiles(options)
        self._rows = Rows(offsets, options.forget_after)
        self._listing = Listing(options, done_files, log)
        self._catalog = Catalog(connector, options, self._rows, self._listing, log, counts=self._form.counts_records)
        self._ready = Ready(options, done_files, log)
        self._queue = queue(options)
        self._planner = Planner[FileOrRange](delivery.max_batch_bytes)
        self._cuts = delivery.ordering == "none"
        self._admission = Admission(options, self._catalog, self._ready, self._queue, self._listing, cuts=self._cuts)
        self._outcomes = Outcomes(options, self._form, self._planner, self._catalog, self._rows, self._admission, log)
        cleaner = Cleaner(connector, options.dir, options.cleanup, log, recursive=options.recursive)
        self._cleanup = CleanupQueue(cleaner, done_files, log, self._want_look, counts_records=self._form.counts_records)
        self._unsaved = UnsavedChanges()
        self._settled_by_scan: list[tuple[Changes, list[SpoolFile]]] = []
        self._is_first = self._needs_look = True
        self._look_anyway = self._has_looked = self._told_early = False
        self._views = Views(self._catalog, self._listing, self._cleanup, self._admission, counts_records=self._form.counts_records)
        self._lag = LagView(self._catalog, lambda: self._listing.passed_over.unreadable + self._cleanup.troubled)

    @property
    def directories(self) -> Collection[str]:
        """See `Source.directories`."""
        return self._listing.directories if self._options.watch == "auto" else ()

    @property
    def scan_seconds(self) -> float:
        """See `Source.scan_seconds`."""
        return self._options.scan_interval

    @property
    def needs_scan(self) -> bool:
        """See `Source.needs_scan`."""
        return self._needs_look or self._admission.needs_look or self._admission.has_news

    def scan(self) -> Changes:
        """See `Source.scan`."""
        changes = Changes()
        self._cleanup.check()
        if self.needs_look or not self._listing.suffices():
            self._needs_look = self._look_anyway = self._admission.needs_look = False
            self._look(changes)
        self._settle_news(changes)
        self._note_cleaned(changes)
        self._cleanup.expire()
        if self._rows.forget_old(changes, self._catalog.is_gone):
            self._tell_early()
        self._rows.note(changes)
        return self._unsaved.add(changes)

    def _want_look(self) -> None:
        self._needs_look = True

    def _tell_early(self) -> None:
        """Once."""
        if not self._told_early:
            self._told_early = True
            why = f"more than {KEPT_GONE:,} files are gone: the oldest offsets are forgotten"
            why = f"{why}; such a file, if it came back, would be sent again"
            hint = "lower forget_after, or split the connector's directory"
            self._log.warning("offsets are forgotten before forget_after", why=why, hint=hint)

    @property
    def needs_look(self) -> bool:
        """Whether the directory has to be listed with the next scan, changed or not."""
        return self._needs_look or self._look_anyway or self._admission.needs_look

    def _note_cleaned(self, changes: Changes) -> None:
        """Rows of files that were cleaned up; they are kept until `forget_after`."""
        for row in self._cleanup.take_cleaned():
            self._catalog.done.pop(row.partition, None)
            if row.partition not in changes.forget:
                self._rows.gone(row, changes)

    def _look(self, changes: Changes) -> None:
        news, gone = self._catalog.scan(self._listing.look(), changes)
        for file in news:
            self._describe(file)
            self._admission.admit(file)
        self._admission.look_for_done_files()
        for row in gone:
            self._catalog.lose(row, changes)
            if row.offset.done and self._is_first:
                self._cleanup.add(row)  # what a crash has left half done is finished
            else:
                self._cleanup.discard(row)
            self._rows.gone(row, changes)
        self._is_first, self._has_looked = False, True

    def _describe(self, file: SpoolFile) -> None:
        """What its format says about how it is read."""
        file.cuttable = self._cuts and not (file.is_begun or file.parts) and file.size >= 2 * ranges.LEAST_BYTES

    def _settle_news(self, changes: Changes) -> None:
        """Files that need a row before anything else is done with them: empty ones, large ones, and those that were changed."""
        admission = self._admission
        empty, large, changed = admission.empty, admission.large, admission.changed
        admission.empty, admission.large, admission.changed = [], [], []
        done = []
        for file in empty:
            if not file.size and self._admission.open(file):
                file.offset = SourceOffset(0, done=True, path=file.path, size=0, mtime_ns=file.mtime_ns)
                changes.offsets[file.partition] = file.offset
                done.append(file)
        for file in large:
            if file.cuttable and self._cut(file):
                changes.offsets.update({part.partition: part.offset for part in file.parts})
                done.append(file)
        for file in changed:
            if self._admission.follows(file):
                self._catalog.put_aside(file, changes)
                self._admission.drop(file)
        if done:
            self._settled_by_scan.append((changes, done))

    def _cut(self, file: SpoolFile) -> bool:
        """Cut it into ranges; False when it is read in one go, or cannot be looked at now."""
        file.cuttable = False
        if not self._admission.open(file):
            return False
        try:
            if not file.offset.compression:
                file.parts = ranges.cut(file, self._form, self._delivery.tasks_max)
        except (OSError, DamageError):
            file.parts = []  # who reads it says what is wrong
        file.close()
        if not file.parts:
            self._queue.add(file)
        return bool(file.parts)

    def wake(self, paths: Collection[str]) -> bool:
        """See `Source.wake`. A file that grows is looked at when its time comes."""
        for path in paths:
            is_known = path in self._catalog.paths
            if path in self._listing.directories or (not is_known and self._listing.may_find(path)):
                self._needs_look = True
        return not self._needs_look

    def plan(self, shares: int) -> Plan:
        """See `Source.plan`."""
        most = min(self._planner.share(len(self._queue), shares), self._admission.room()) if self._queue else 0
        again: list[SpoolFile] = []
        chosen = self._planner.fill(itertools.islice(self._begun(again), most), lambda reading: reading.unread)
        for file in again:
            self._queue.add(file)
        return Plan(tuple(reading.split() for reading in chosen), self._delivery.max_batch_time)

    def _begun(self, again: list[SpoolFile]) -> Iterator[FileOrRange]:
        """What is read next, in order; each is in flight once it is asked for. Files with more ranges to be read go to `again`."""
        for file in self._queue.in_order():
            if not self._admission.open(file):
                continue
            part = file.next_part()
            if file.parts and (part is None or file.has_old_parts):
                continue  # whoever reads the others has it come again
            file.flights += 1
            if part is not None:
                part.in_flight = True
                again += [file] if file.next_part() else []
            self._planner.take(reading := FileOrRange(file, part))
            yield reading

    def settle(self, results: Sequence[SplitResult]) -> Changes:
        """See `Source.settle`."""
        changes = Changes()
        self._outcomes.settle(results, changes)
        return self._unsaved.add(changes)

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """See `Source.finish`. Raises FatalError for a bad file with `on_bad_file: stop`."""
        self._unsaved.confirm(changes)
        failure: FatalError | None = None
        if results:
            self._rows.note(changes)
            done, failure = self._outcomes.finish(results, changes)
        else:
            done = self._finish_scan(changes)
        for file in done:
            self._let_go(file)
        if self._has_looked and not results:
            self._has_looked = False
            self._cleanup.add(*self._catalog.done.values())
        self._cleanup.work()
        if failure is not None:
            raise failure

    def _finish_scan(self, changes: Changes) -> list[SpoolFile]:
        """Rows that a scan asked for are saved: cut files may be read now; empty ones are done."""
        mine = [files for one, files in self._settled_by_scan if one is changes]
        self._settled_by_scan = [entry for entry in self._settled_by_scan if entry[0] is not changes]
        done = []
        for file in itertools.chain.from_iterable(mine):
            if file.parts:
                self._queue.add(file)
            else:
                done.append(file)
        return done

    def _let_go(self, file: SpoolFile) -> None:
        """It is read to its end, and that is saved."""
        self._admission.drop(file)
        if self._catalog.let_go(file) and not file.gone:
            row = Row(file.partition, file.identity, file.key.generation, None, file.offset)
            self._catalog.done[row.partition] = row
            self._cleanup.add(row)
        if file.former is not None and file.offset.fingerprint == file.former.fingerprint:
            self._log.info("file repeats what was sent, it is not sent again", path=file.path, bytes=file.size)
        else:
            self._log.debug("file finished", path=file.path, bytes=file.size, records=file.offset.records)

    def ripen(self, *, at_once: bool) -> float:
        """See `Source.ripen`. A file that is not complete is waited for in a run to the end, too."""
        del at_once
        if self._cleanup.is_busy:
            self._cleanup.work()
        return min(self._admission.ripen(), self._cleanup.next_at)

    def drained(self) -> bool:
        """See `Source.drained`. Not waited for: files without their done file, set aside, or empty and open for writing."""
        if self._planner.in_flight or self.needs_scan or self._queue or self._cleanup.is_busy:
            return False
        waiting = (file for file in self._catalog.files.values() if not file.is_set_aside and file.backoff.errors < HOPELESS_ERRORS)
        if any(not (self._ready.waits_for_done_file(file) or file.is_being_begun) for file in waiting):
            return False
        self._look_anyway = True  # who asks will not look again
        return True

    def finalise(self) -> None:
        """See `Source.finalise`: spooled files are final as they are."""

    def files(self) -> tuple[FileView, ...]:
        """See `Source.files`."""
        return self._views.files()

    def passed_over(self) -> Mapping[str, str]:
        """See `Source.passed_over`."""
        return self._listing.reasons()

    def look_closely(self, path: str, most_bytes: int) -> Closeup | None:
        """See `Source.look_closely`."""
        return self._views.closeup(path, most_bytes)

    def lag(self) -> Lag:
        """See `Source.lag`."""
        return self._lag.now()

    def leave(self) -> Changes:
        """See `Source.leave`. Files that lost their names while they were read are lost with the descriptors."""
        changes = self._unsaved.joined()
        self._rows.note(changes)
        for file in self._catalog.files.values():
            if file.gone and file.is_begun:
                for row in self._rows.at_inode(file.identity.inode):
                    if row.identity == file.key.saved and row.generation == file.key.generation and not row.offset.done:
                        self._catalog.lose(row, changes)
                        now = changes.offsets.get(row.partition, row.offset)
                        changes.offsets[row.partition] = replace(now, gone_ms=int(time.time() * 1000))
        return changes

    def close(self) -> None:
        """See `Source.close`."""
        self._cleanup.close()
        for file in self._catalog.files.values():
            file.close()


def _framing(options: SpoolDirOptions, *, raw: bool) -> Frames | RecordFormat:
    del raw  # a format knows what its values are
    return LimitedFormat(build_format(options.format), options.unpack)


SPOOL_DIR = SourceKind(SpoolDirOptions, SpoolDir, open_spooled, _framing, saved)
