"""Views of a spool directory: its files, how much is unread, and warnings about columns that differ between files."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.sources.base import FileDetail, FileState, FileView, Lag
from copycat_agent.sources.spool_dir.spool_file import Complete, FileOrRange, SpoolFile, Waiting

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.model import Schema, SourcePartition, Split
    from copycat_agent.sources.planner import Planner
    from copycat_agent.sources.spool_dir.admission import Admission
    from copycat_agent.sources.spool_dir.cleanup.cleanup_queue import CleanupQueue
    from copycat_agent.sources.spool_dir.listing import Listing
    from copycat_agent.sources.spool_dir.rows import FileRow
    from copycat_agent.sources.spool_dir.spool_catalog import SpoolCatalog


class LagView:
    """The lag of a catalog."""

    def __init__(self, catalog: SpoolCatalog, unreadable: Callable[[], int]) -> None:
        """`unreadable`: returns how many paths match and cannot be checked."""
        self._catalog = catalog
        self._unreadable = unreadable
        self._judged: tuple[dict[SourcePartition, FileRow], int] = ({}, 0)
        self._bad = 0

    def add_up(self) -> Lag:
        """Returns the lag as it is now."""
        unread = oldest = troubled = blocked = opened = aside = 0
        for file in self._catalog.files.values():
            opened += file.fd >= 0
            troubled += file.backoff.errors > 0 or file.is_set_aside
            blocked += file.backoff.blocked > 0
            aside += file.is_set_aside
            if not file.is_set_aside:
                unread += file.progress.unread(file.size)
            if isinstance(file.state, Complete) and not 0 < oldest <= file.state.since_ms:
                oldest = file.state.since_ms
        known = len(self._catalog.files) + len(self._catalog.done)
        return Lag(
            bytes=unread,
            files=len(self._catalog.files) - aside,
            known_files=known,
            open_files=opened,
            lost_bytes=self._catalog.lost.bytes,
            troubled_files=troubled + self._bad_ones() + self._unreadable(),
            blocked_files=blocked,
            oldest_unread_ms=oldest,
        )

    def _bad_ones(self) -> int:
        """Returns how many bad files stay in place. Finished files may be many, so they are counted only after a change."""
        done = self._catalog.done
        if self._judged[0] is not done or self._judged[1] != len(done):
            self._judged = done, len(done)
            self._bad = sum(bool(row.offset.trouble) for row in done.values())
        return self._bad


class SpoolViews:
    """The files of a connector, for people."""

    def __init__(
        self,
        catalog: SpoolCatalog,
        listing: Listing,
        cleanup: CleanupQueue,
        admission: Admission,
        planner: Planner[FileOrRange],
        *,
        counts_records: bool,
    ) -> None:
        self._catalog = catalog
        self._listing = listing
        self._cleanup = cleanup
        self._admission = admission
        self._planner = planner
        self._counts_records = counts_records

    def files(self) -> tuple[FileView, ...]:
        """Returns every file, by path: unread ones, finished ones that still exist, and unreadable ones."""
        passed_over = self._listing.passed_over
        why = passed_over.reasons()
        known = {file.path for file in self._catalog.files.values()}
        unreadable = [
            FileView(path, "", 0, 0, 0, "failing", is_open=False, why=why[path]) for path in passed_over.paths() if path not in known
        ]
        done = [self._done(row) for row in self._catalog.done.values()]
        return tuple(sorted([*map(view_of, self._catalog.files.values()), *done, *unreadable]))

    def closeup(self, path: str, most_bytes: int) -> FileDetail | None:
        """Returns the file at `path`, and a split of about `most_bytes` that a task would get next; None if there is no such file."""
        row = next((one for one in self._catalog.done.values() if one.offset.path == path), None)
        if row is not None:
            return FileDetail(self._done(row), (path,), row.offset, None)
        file = next((one for one in self._catalog.files.values() if one.path == path), None)
        if file is None:
            return None
        split = self._split(file, most_bytes)
        return FileDetail(view_of(file), (path,), split.offset if split else file.progress.offset, split)

    def _done(self, row: FileRow) -> FileView:
        return done_view(row, self._cleanup.why(row) or row.offset.trouble, counts_records=self._counts_records)

    def _split(self, file: SpoolFile, most_bytes: int) -> Split | None:
        """Returns the split that a task would get next, of about `most_bytes` if possible; None if it is not the file's turn."""
        progress = file.progress
        part = progress.next_range(self._planner.in_flight)
        is_all_taken = bool(progress.ranges) and part is None
        if not file.size or file.is_set_aside or is_all_taken or not self._admission.open(file):
            return None
        split = FileOrRange(file, part).split()
        if progress.counts or file.progress.offset.compression:
            return split
        end = min(split.end, split.offset.position + most_bytes)
        return replace(split, end=end, final=split.final and end == split.end)


def view_of(file: SpoolFile) -> FileView:
    """Returns the view of a file that is not read to its end."""
    state: FileState = "following"
    if file.backoff.blocked:
        state = "blocked"
    elif file.backoff.errors or file.is_set_aside:
        state = "failing"
    elif isinstance(file.state, Waiting):
        state = "waiting"
    elif file.gone:
        state = "gone"
    progress = file.progress
    where = (file.path, file.partition.key, progress.position, file.size, progress.records, state, file.fd >= 0, file.read_at)
    return FileView(*where, progress.unread(file.size), file.state.why, "", progress.offset.compression, progress.counts)


def done_view(row: FileRow, why: str, *, counts_records: bool) -> FileView:
    """Returns the view of a file that is read, or given up, and still exists. `why`: what keeps it there, or is wrong with it."""
    offset = row.offset
    state: FileState = "failing" if why else "done"
    where = (offset.path, row.partition.key, offset.position, offset.size, offset.records, state)
    return FileView(*where, is_open=False, why=why, compression=offset.compression, counts_records=counts_records)


TELL_SECONDS = 60.0
"""Least time between two warnings of one connector."""
_NAMED = 20
"""How many columns are named."""


class ColumnDrift:
    """Remembers the columns of the last file that was read."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._last: tuple[str, frozenset[str]] | None = None
        self._told_at = -TELL_SECONDS

    def note(self, path: str, schema: Schema | None) -> None:
        """Takes in the schema of a file that was read. Warns if its columns differ from those of the file before it."""
        if schema is None:
            return
        columns = frozenset(column.name for column in schema.columns)
        before, self._last = self._last, (path, columns)
        if before is None or before[1] == columns or self._clock() - self._told_at < TELL_SECONDS:
            return
        self._told_at = self._clock()
        new, missing = sorted(columns - before[1]), sorted(before[1] - columns)
        self._log.warning("columns differ between files", path=path, before=before[0], new=_listed(new), missing=_listed(missing))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" or "none"
