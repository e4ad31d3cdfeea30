"""Plans which files are read next, and how much of each: the longest unserved first, small before large, older files of a log first.

It also times out unfinished records at the ends of files.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from copycat_agent.sources.base import Plan
from copycat_agent.sources.files import clock
from copycat_agent.sources.files.paths.regular_files import why_not
from copycat_agent.sources.log_file.rotation import is_newest
from copycat_agent.sources.planner import PER_BATCH, READY, Planner

if TYPE_CHECKING:
    from copycat_agent.model import SourcePartition, Split
    from copycat_agent.options import DeliveryOptions
    from copycat_agent.sources.log_file.log_catalog import LogCatalog
    from copycat_agent.sources.log_file.log_options import LogFileOptions
    from copycat_agent.sources.log_file.tracked import TrackedFile

SHARED_BYTES = 4 * 2**20
"""Least number of bytes of each file per batch if several have something to read."""
SHARED_SECONDS = 0.5
"""A batch ends after this time if other files are active, so that a quiet file does not wait behind a backlog."""
FOLLOW_SECONDS = 0.5
"""A batch stays at the ends of its files until nothing has been added to any of them for this long."""
FOLLOWED_FILES = 1024
"""No batch stays if more files than these are active, or than may be open: soon another one has something to read that cannot join."""
JOINING_BYTES = 2**18
"""A file with more to read joins no batch that stays: the others would wait."""
UNSEEN_SECONDS = 1.0
"""A file that was empty is first read if a scan was so recent that no rotation can have come between."""
CLOCK_SECONDS = 60.0
"""How far the clock of a file's time stamps may be behind: a stamp that is older by this is believed, also of a file just met."""


class FilePlanner:
    """Plans splits for one connector, one call at a time. `in_flight` are the files that a task reads, by their partitions.

    `want_scan` is called if only a scan can tell what has become of a file.
    """

    def __init__(self, catalog: LogCatalog, options: LogFileOptions, delivery: DeliveryOptions, want_scan: Callable[[], None]) -> None:
        self._planner: Planner[TrackedFile] = Planner()
        self.in_flight = self._planner.in_flight
        self._catalog = catalog
        self._followed = catalog.followed
        self._delivery = delivery
        self._keeps_groups = options.multiline is not None
        group_bytes = 0 if options.multiline is None else options.multiline.max_bytes
        self._least_bytes = max(SHARED_BYTES, 2 * options.line.max_bytes + group_bytes + 2**16)
        waits = [FOLLOW_SECONDS] if options.multiline is None else [FOLLOW_SECONDS, options.multiline.timeout]
        if options.line.flush_partial_after != "never":
            waits.append(options.line.flush_partial_after)
        self._follow_seconds = min(waits)  # the driver ends what ends by time
        self._want_scan = want_scan
        self._turn = 0
        self._scanned_at = time.monotonic()
        self._served: set[TrackedFile] = set()  # had something to read lately, and may have been closed for room since

    def scanned(self, at: float) -> None:
        """Records that a scan began at `at` (`time.monotonic()`)."""
        self._scanned_at = at

    def forget_quiet(self, recent: float) -> None:
        """Forgets files that were not written to since `recent` (`time.monotonic()`): they are not active any more."""
        self._served = {file for file in self._served if file.grown_at > recent and not file.removed}

    def active(self) -> set[TrackedFile]:
        """Returns files that are open, or had something to read lately."""
        return {*self._followed.descriptors.open_files, *self._served}

    def note_task_ended(self, partition: SourcePartition) -> TrackedFile:
        """Records that the task that read the file of `partition` has ended. Returns the file."""
        file = self._planner.release(partition)
        file.note_task_ended()
        return file

    def take_note(self, file: TrackedFile) -> bool:
        """Stats an open file, and notes whether there is something to read. Returns False if a scan has to find out what it is now."""
        file.refresh()
        self._followed.note_readable(file)
        return file.in_flight or not file.needs_scan

    def plan(self, shares: int) -> Plan:
        """Returns splits for the next batch of one of as many tasks as there are `shares`."""
        successors = self._successors()
        ready = self._planner.ready(self._unserved(), shares)
        chosen = self._have_open(ready if all(file.fd >= 0 for file in ready) else ready[: self._most()])
        chosen.sort(key=self._precedence)
        if successors and not self._keeps_groups:  # else an open group may be at the end of the file that goes first
            chosen = self._with_successors(chosen, successors, min(PER_BATCH, self._most()))
        limit = self._delivery.max_batch_bytes
        if len(chosen) > 1:
            limit = max(self._least_bytes, limit // len(chosen))
        taken: list[TrackedFile] = []
        for file in chosen:
            is_behind = file.waits_for is not None and file.waits_for not in taken
            if is_behind or not self._catalog.newcomers.archives.ask(file):
                continue
            taken.append(file)
            self._take(file)
        alone = len(self._followed.files) == 1
        seconds = self._delivery.max_batch_time if alone else min(self._delivery.max_batch_time, SHARED_SECONDS)
        splits = tuple(file.split(max(limit, self._least_bytes)) for file in taken)
        return Plan(splits, seconds, self._follow_seconds if self._may_stay(taken, splits) else 0.0)

    def _take(self, file: TrackedFile) -> None:
        self._turn += 1
        file.planned(self._turn)
        self._followed.dirty.served(file)
        self._planner.take(file)
        self._served.add(file)

    def joining(self, followed: int) -> tuple[Split, ...]:
        """Returns splits for a batch that stays at the ends of `followed` files: of quiet ones that have a little new data."""
        if len(self._served) > self._most_followed():
            return ()
        room = min(FOLLOWED_FILES - followed, self._most())
        ready = [file for file in self._planner.ready(self._unserved(), 1) if _may_join(file)]
        splits = []
        for file in self._have_open(ready[:room]):
            split = file.split(JOINING_BYTES)
            if _stays(file, split):
                self._take(file)
                splits.append(split)
        return tuple(splits)

    def _may_stay(self, files: list[TrackedFile], splits: tuple[Split, ...]) -> bool:
        """Returns whether a batch may stay at the ends of these files: nothing else has to be read that could not join it."""
        return len(self._served) <= self._most_followed() and all(map(_stays, files, splits))

    def _most_followed(self) -> int:
        return min(FOLLOWED_FILES, self._followed.descriptors.limit)

    def is_held_up(self, *, for_good: bool) -> bool:
        """Returns whether a file that no task reads has something to read. `for_good`: one that cannot join a batch that stays."""
        now = time.monotonic()
        waiting = (one for one in self._followed.dirty if not one.in_flight and one.unread and one.backoff.retry_at <= now)
        return not all(map(_may_join, waiting)) if for_good else any(waiting)

    def next_split(self, file: TrackedFile, most_bytes: int) -> Split | None:
        """Returns the next split of `file`, whether it is its turn or not; None if nothing can be read."""
        try:
            is_decided = not file.unjudged or file.is_packed  # a packed file's task finds out what it is the rest of
            if not (file.unread and is_decided and file.open(self._catalog.opener)):
                return None
            self._catalog.newcomers.archives.ask(file)
            return file.split(most_bytes)
        except OSError:
            return None

    def _most(self) -> int:
        """Returns how many files a batch may have open, beside those in flight."""
        most = self._followed.descriptors.limit - len(self.in_flight)
        return max(0, most) if self.in_flight else max(1, most)

    def _successors(self) -> dict[TrackedFile, TrackedFile]:
        """Returns, by the file that goes first, one of those that wait for it; others come with a later batch."""
        successors: dict[TrackedFile, TrackedFile] = {}
        dirty, order = self._followed.dirty, self._followed.rotation_order
        if not order.waiting:
            return successors
        order.stop_waiting(dirty)
        for file in [one for one in order.waiting if one in dirty]:
            assert file.waits_for is not None
            self._followed.note_readable(file.waits_for)  # its new data is read now, without waiting for an event
            if not (file.unjudged or file.in_flight):
                successors[file.waits_for] = file
        return successors

    def _unserved(self) -> Iterator[TrackedFile]:
        """Returns files that wait for no other one, the longest unserved first."""
        return (file for file in self._followed.dirty if file.waits_for is None and file.may_be_planned)

    def _precedence(self, file: TrackedFile) -> tuple[bool, float]:
        """Sorts small backlogs first. A large one may take the whole batch: of these, the one without progress for longest is first."""
        is_much = file.backlog > self._least_bytes
        return is_much, file.reading.read_at if is_much else file.backlog

    def _with_successors(self, chosen: list[TrackedFile], successors: dict[TrackedFile, TrackedFile], most: int) -> list[TrackedFile]:
        """Inserts after each file those that wait for it, as far as one batch reaches."""
        kept = list(chosen)

        def successor(file: TrackedFile) -> TrackedFile | None:
            next_one = successors.get(file)
            if next_one is None or not (self._reaches(file, next_one.rotation.barrier) and self._planner.may_follow(next_one)):
                return None
            if not self._have_open([next_one], keep=kept):
                return None
            kept.append(next_one)
            return next_one

        return self._planner.fill(chosen, lambda _: 0, successor, most - len(chosen))

    def _reaches(self, file: TrackedFile, position: int) -> bool:
        return file.offset.position + self._least_bytes >= position

    def _have_open(self, files: list[TrackedFile], keep: Collection[TrackedFile] = ()) -> list[TrackedFile]:
        """Returns those of `files` that are open, or can be opened now, and have something to read."""
        room = 0
        if closed := sum(file.fd < 0 for file in files):
            room = self._followed.descriptors.make_room(closed, [*files, *keep], unread=True)
            if not self.in_flight and not keep:
                room = max(1, room)
        usable = []
        for file in files:
            if file.fd < 0:
                if room <= 0:
                    continue
                room -= 1
            if self._open(file):
                usable.append(file)
        return usable

    def _open(self, file: TrackedFile) -> bool:
        """Ensures that `file` is open for its turn. Returns False if it cannot be, or is not what it was."""
        is_unseen = not (file.offset.position or file.is_packed or file.provenance.first_fingerprint.head_bytes)
        try:
            if is_unseen and time.monotonic() - self._scanned_at > UNSEEN_SECONDS:
                self._want_scan()  # it was empty: since then it may have been filled, copied and cut, and the copy goes first
                return False
            if file.open(self._catalog.opener):
                self.take_note(file)
                if file.begins_otherwise():
                    file.note_rewritten()
                if file.needs_scan:
                    self._want_scan()
                return file.unread
        except FileNotFoundError:
            pass
        except OSError as error:
            if not file.backoff.errors:  # else it was logged, and is tried again ever more slowly
                self._catalog.passed_over.warn(file.path, why_not(error))
            file.back_off()
            return False
        self._followed.dirty.discard(file)
        self._want_scan()  # a scan finds out where it went
        return False


def _stays(file: TrackedFile, split: Split) -> bool:
    """Returns whether the file may be written to after the end of this split."""
    return _is_live(file) and split.end == file.size and not (split.final or split.flush)


def _is_live(file: TrackedFile) -> bool:
    return is_newest(file.path) and file.draining_since is None and not file.is_packed


def _may_join(file: TrackedFile) -> bool:
    """Returns whether a batch that stays may take the file on: nothing comes before it, nothing is wrong with it, and it is short."""
    is_free = file.waits_for is None and file.may_be_planned and file.backoff == READY
    return is_free and _is_live(file) and not (file.ending.final or file.ending.flush) and file.backlog <= JOINING_BYTES


class RecordTimers:
    """Ends records of one connector's files by time. A file that waits for nothing costs nothing.

    Only the driver has the timers: once a file was quiet for long enough, it plans a split that ends the record (`Split.flush`).
    """

    def __init__(self, options: LogFileOptions, note_readable: Callable[[TrackedFile], None]) -> None:
        """`note_readable` is called for each file that has something to read now."""
        after = options.line.flush_partial_after
        self._group_seconds = math.inf if options.multiline is None else options.multiline.timeout
        self._line_seconds = math.inf if after == "never" else after
        self._note_readable = note_readable
        self._queue: list[tuple[float, int, TrackedFile]] = []
        self._queued: set[TrackedFile] = set()
        self._numbers = itertools.count()

    def add(self, file: TrackedFile) -> None:
        """Starts the time-out of the rest at the end of `file`, if there is one. A task reached that end."""
        if file not in self._queued and file.is_stalled and (due := self._due(file)) < math.inf:
            file.wait_for_group(waits=self._group_seconds < math.inf)
            self._queued.add(file)
            heapq.heappush(self._queue, (due, next(self._numbers), file))

    def end_timed_out(self, *, at_once: bool) -> float:
        """Ends records that have timed out, or all if `at_once`. Returns when the next is due (`time.monotonic()`), inf for never."""
        while self._queue and (at_once or self._queue[0][0] <= time.monotonic()):
            file = heapq.heappop(self._queue)[2]
            self._queued.discard(file)
            self._end(file, at_once=at_once)
        return self._queue[0][0] if self._queue else math.inf

    def _end(self, file: TrackedFile, *, at_once: bool) -> None:
        """Ends the record at the end of `file`. When its split is planned the file is checked once more: growth undoes this."""
        file.wait_for_group(waits=False)
        if file.removed or not file.is_stalled:
            return
        now = time.monotonic()
        if not at_once and self._due(file) > now:
            self.add(file)
        else:
            file.end_record(final=at_once or self._quiet_at(file, self._line_seconds) <= now)
            self._note_readable(file)

    def _due(self, file: TrackedFile) -> float:
        """Returns when the time-out of the rest in `file` is over. A rest that was tried at this size is not tried again."""
        group = (
            math.inf if file.size in (file.ending.flushed_size, file.ending.finished_size) else self._quiet_at(file, self._group_seconds)
        )
        line = math.inf if file.size == file.ending.finished_size else self._quiet_at(file, self._line_seconds)
        return min(group, line)

    def _quiet_at(self, file: TrackedFile, seconds: float) -> float:
        if clock.seconds_since(file.identity.device, file.seen.mtime_ns) > seconds + CLOCK_SECONDS:
            return file.grown_at
        return file.grown_at + seconds
