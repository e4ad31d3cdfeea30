"""Files that are done and have to leave: handed to cleanup strictly after their rows are saved, again and again until they are away."""

from __future__ import annotations

import heapq
import itertools
import time
from typing import TYPE_CHECKING

from copycat_agent.sources.spool_dir.cleanup.cleanup import Cleaner, Outcome, Spent
from copycat_agent.sources.spool_dir.rows import parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from copycat_agent.logs import Log
    from copycat_agent.model import SourcePartition
    from copycat_agent.sources.spool_dir.listing import DoneFiles
    from copycat_agent.sources.spool_dir.rows import Row
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

AT_ONCE = 128
"""Files that are handed over at a time."""


class Spending:
    """For one connector, in its thread. `cleaned` are rows whose file is away: a scan saves that.

    `needs_look`: something else is where a file was.
    """

    def __init__(self, connector: str, options: SpoolDirOptions, done_files: DoneFiles, log: Log, *, counts_records: bool) -> None:
        self._cleaner = Cleaner(connector, options.dir, options.cleanup, log, recursive=options.recursive)
        self._done_files = done_files
        self._log = log
        self._counts_records = counts_records
        self._due: dict[SourcePartition, tuple[Row, int]] = {}
        self._turns: list[tuple[float, int, SourcePartition]] = []
        self._numbers = itertools.count()
        self._why: dict[SourcePartition, str] = {}
        self._told = ""
        self.cleaned: list[Row] = []
        self.needs_look = False

    def check(self) -> None:
        """Say what is wrong with the targets, once: files are read all the same, and kept where they are until it is repaired."""
        problem = self._cleaner.check()
        words = str(problem or "")
        if words and words != self._told:
            self._log.error("files cannot be cleaned up, they are kept", why=words)
        self._told = words

    def add(self, row: Row) -> None:
        """It is done, and its row is saved. Without effect when the policy leaves it where it is."""
        if row.partition not in self._due and self._cleaner.does(troubled=bool(row.offset.trouble)):
            self._put(row, 0.0)

    def _put(self, row: Row, until: float) -> None:
        number = next(self._numbers)
        self._due[row.partition] = row, number
        heapq.heappush(self._turns, (until, number, row.partition))

    def _is_over(self, turn: tuple[float, int, SourcePartition]) -> bool:
        return self._due.get(turn[2], (None, -1))[1] != turn[1]

    def add_all(self, rows: Iterable[Row]) -> None:
        """See `add`. Takes no time where nothing ever leaves."""
        if self._cleaner.does(troubled=False) or self._cleaner.does(troubled=True):
            for row in rows:
                self.add(row)

    def discard(self, row: Row) -> None:
        """It is not there any more."""
        self._due.pop(row.partition, None)
        self._why.pop(row.partition, None)

    def why(self, row: Row) -> str:
        """What keeps the file where it is, "" when nothing does."""
        return self._why.get(row.partition, "")

    @property
    def troubled(self) -> int:
        """Files that could not be cleaned up, bad ones apart."""
        return sum(not self._due[one][0].offset.trouble for one in self._why)

    @property
    def is_busy(self) -> bool:
        """Whether more could be done at once."""
        return self.next_at <= time.monotonic()

    @property
    def next_at(self) -> float:
        """When there is something to do, as `time.monotonic()` tells it; infinite for never."""
        while self._turns and self._is_over(self._turns[0]):
            heapq.heappop(self._turns)
        return self._turns[0][0] if self._turns else float("inf")

    def work(self) -> None:
        """Clean up what is due, as much as a short call allows."""
        now = time.monotonic()
        rows: list[Row] = []
        while self.next_at <= now and len(rows) < AT_ONCE:
            rows.append(self._due[heapq.heappop(self._turns)[2]][0])
        if rows:
            for row, outcome in zip(rows, self._cleaner.clean([self._spent(row) for row in rows]), strict=True):
                self._take_in(row, outcome)

    def _take_in(self, row: Row, outcome: Outcome) -> None:
        if outcome.state == "kept":
            self._put(row, time.monotonic() + outcome.retry_seconds)
            if outcome.retry_seconds:
                self._why[row.partition] = outcome.why
            return
        self.discard(row)
        self.needs_look |= outcome.state == "changed"
        if outcome.state in ("cleaned", "gone"):
            self.cleaned.append(row)

    def _spent(self, row: Row) -> Spent:
        offset = row.offset
        return Spent(
            offset.path, row.identity, offset.size, offset.mtime_ns, self._done_files.own(offset.path), offset.trouble,
            offset.position, offset.records, counts_records=self._counts_records,
            saved_as=parse(row.partition.key)[0],
        )  # fmt: skip

    def expire(self) -> None:
        """Delete what was put away long ago, see `cleanup.retain`."""
        self._cleaner.expire()

    def close(self) -> None:
        """End a copy under way."""
        self._cleaner.close()
