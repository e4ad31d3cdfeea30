"""Finished files that have to leave: handed to cleanup strictly after their rows are saved, and retried until they are gone."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.sources.planner import wait_seconds
from copycat_agent.sources.spool_dir.cleanup.cleaner import Cleaner, CleanupOutcome, FinishedFile
from copycat_agent.sources.spool_dir.rows import FileRow, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.logs import Log
    from copycat_agent.model import SourcePartition
    from copycat_agent.sources.spool_dir.listing import DoneFiles

AT_ONCE = 128
"""How many files are handed over at a time."""
PAUSE_SECONDS = (1.0, 60.0)
"""First and longest pause between two attempts for a file that cannot be cleaned up."""


class _DueFile(NamedTuple):
    """A file to clean up. `number` is its latest turn; `why` is the reason of the last of its `failures`."""

    row: FileRow
    number: int
    why: str = ""
    failures: int = 0


class CleanupQueue:
    """The cleanup queue of one connector, for one call at a time."""

    def __init__(
        self,
        cleaner: Cleaner,
        done_files: DoneFiles,
        log: Log,
        changed: Callable[[], None],
        clock: Callable[[], float],
        *,
        counts_records: bool,
    ) -> None:
        """`changed` is called when a file's path has other content."""
        self._cleaner = cleaner
        self._done_files = done_files
        self._log = log
        self._changed = changed
        self._clock = clock
        self._counts_records = counts_records
        self._due: dict[SourcePartition, _DueFile] = {}
        self._turns: list[tuple[float, int, SourcePartition]] = []
        self._numbers = itertools.count()
        self._reported = ""
        self._cleaned: list[FileRow] = []

    def check(self) -> None:
        """Logs a problem with the targets once: files are still read, and stay in place until it is repaired."""
        problem = self._cleaner.check()
        words = str(problem or "")
        if words and words != self._reported:
            self._log.error("files cannot be cleaned up, they are kept", why=words)
        self._reported = words

    def add(self, *rows: FileRow) -> None:
        """Queues the files of saved, done rows. Has no effect for files that the policy leaves in place.

        A new row replaces the queued one of its partition: its file was read on, or renamed.
        """
        does = {troubled: self._cleaner.does(troubled=troubled) for troubled in (False, True)}
        for row in rows if any(does.values()) else ():
            if row.partition in self._due:
                self._due[row.partition] = self._due[row.partition]._replace(row=row)
            elif does[bool(row.offset.trouble)]:
                self._put(_DueFile(row, 0), 0.0)

    def _put(self, due: _DueFile, at: float) -> None:
        number = next(self._numbers)
        self._due[due.row.partition] = due._replace(number=number)
        heapq.heappush(self._turns, (at, number, due.row.partition))

    def discard(self, row: FileRow) -> None:
        """Removes a row whose file does not exist any more."""
        self._due.pop(row.partition, None)

    def why(self, row: FileRow) -> str:
        """Returns why the file could not be cleaned up yet, "" if there is no reason."""
        due = self._due.get(row.partition)
        return due.why if due else ""

    @property
    def troubled(self) -> int:
        """How many files could not be cleaned up, without bad ones."""
        return sum(bool(due.why) and not due.row.offset.trouble for due in self._due.values())

    @property
    def is_busy(self) -> bool:
        """Whether more could be done now."""
        return self.next_at <= self._clock()

    @property
    def next_at(self) -> float:
        """When the next file is due, by `time.monotonic()`; infinite if none is."""
        while self._turns and self._is_over(*self._turns[0]):
            heapq.heappop(self._turns)
        return self._turns[0][0] if self._turns else float("inf")

    def _is_over(self, _: float, number: int, partition: SourcePartition) -> bool:
        due = self._due.get(partition)
        return due is None or due.number != number

    def work(self) -> None:
        """Cleans up the files that are due, as many as fit into a short call."""
        now = self._clock()
        tried: list[_DueFile] = []
        while self.next_at <= now and len(tried) < AT_ONCE:
            tried.append(self._due[heapq.heappop(self._turns)[2]])
        if tried:
            for due, outcome in zip(tried, self._cleaner.clean([self._finished(due.row) for due in tried]), strict=True):
                self._take_in(due, outcome)

    def _take_in(self, due: _DueFile, outcome: CleanupOutcome) -> None:
        if outcome.state == "kept":
            self._keep(due, outcome)
            return
        self.discard(due.row)
        if outcome.state == "changed":
            self._changed()
        elif outcome.state != "stays":
            self._cleaned.append(due.row)

    def _keep(self, due: _DueFile, outcome: CleanupOutcome) -> None:
        seconds = outcome.retry_seconds
        if seconds is None:
            seconds = wait_seconds(PAUSE_SECONDS, due.failures)
            due = due._replace(failures=due.failures + 1, why=outcome.why)
            path = due.row.offset.path
            self._log.warning("a file that is done cannot be cleaned up; it is not read again", path=path, why=outcome.why)
        self._put(due, self._clock() + seconds)

    def _finished(self, row: FileRow) -> FinishedFile:
        offset = row.offset
        return FinishedFile(
            offset.path,
            row.identity,
            offset.size,
            offset.mtime_ns,
            self._done_files.own(offset.path),
            offset.trouble,
            offset.position,
            offset.records,
            counts_records=self._counts_records,
            saved_as=parse(row.partition.key)[0],
        )

    def take_cleaned(self) -> list[FileRow]:
        """Returns the rows whose files were removed since the last call: the next scan saves that."""
        cleaned, self._cleaned = self._cleaned, []
        return cleaned

    def expire(self) -> None:
        """Deletes files that were moved away longer than `retain` ago."""
        self._cleaner.expire()

    def close(self) -> None:
        """Ends an unfinished copy."""
        self._cleaner.close()
