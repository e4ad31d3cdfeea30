"""A batch that stays at the ends of its files: it sends added data at once, and reports its progress at intervals.

A separate batch for every few lines of a slow log costs a plan, two pickles, a wake-up at each end and a save. A batch that stays learns of
writes from the kernel, checks the sizes of written files at most once in a few milliseconds, and reports about twice a second. Files with
new data join it meanwhile. The batch ends when nothing was added for a while: then events wake the driver when there is something to
read.

inotify(7) is called directly (`GrowthReporter`): watchdog cannot wait in the thread that reads, and waking one thread by another costs as
much again.
"""

from __future__ import annotations

import ctypes
import math
import os
import select
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from copycat_agent.errors import FileError
from copycat_agent.sources.files import clock

if TYPE_CHECKING:
    from copycat_agent.batch.progress import SplitProgress
    from copycat_agent.batch.run import BatchRun
    from copycat_agent.model import Results, Split

T = TypeVar("T")

LOOK_SECONDS = 0.008
"""Least time between two looks after events or added data, each of which costs a produce and a flush."""
FILE_SECONDS = 1e-5
"""Added to `LOOK_SECONDS` for each file, so that one flush serves several of many files."""
UNTOLD_FILE_SECONDS = 1e-4
"""Added instead when there are no events: then each look is at all files."""
CLOSE = 3.0
"""Data added within this multiple of the time between looks is close together: the batch then sleeps, with one wake-up instead of two."""
UNTOLD_SECONDS = 0.2
"""Time between two looks at all files: writes through a mapping cause no event."""
LOOK_SHARE = 50.0
"""Least time between two looks at all files, as a multiple of the time that one takes."""
REPORT_SECONDS = 0.4
"""Time between two reports of settled records. A kill repeats unreported ones, with `at_least_once`."""
STAY_SECONDS = 30.0
"""Longest time that a batch stays, from its beginning."""
BYTES_SHARE = 4
"""A batch that has a quarter of its byte limit to report ends: at such rates separate batches are as fast."""

INSTANCES_MAX = 16
"""Most event queues of one process: the kernel gives a user 128 by default, for all programs."""
_IN_MODIFY = 0x2
_QUEUE_BYTES = 2**16
_EVENT = struct.Struct("iIII")
"""inotify_event: watch descriptor, mask, cookie, length of the name, which is 0 where a file itself is watched."""
_OVERFLOW = -1

_free = threading.BoundedSemaphore(INSTANCES_MAX)

Grown = tuple["SplitProgress", int, int]
"""A file that has grown, its size, and a time at which it was so large, by its file system's clock."""


class BatchChannel:
    """Messages between the driver and a batch that may stay. `set` and `join` are called from other threads, and wake the batch's."""

    def __init__(self, report: Callable[[Results], None]) -> None:
        """`report` is called with what was settled since the last call, or since the batch began. It raises nothing."""
        self.report = report
        self._is_set = False
        self._joining: deque[tuple[Split, ...]] = deque()
        self._lock = threading.Lock()
        self._notify: Callable[[], None] | None = None

    @contextmanager
    def waking(self, notify: Callable[[], None]) -> Iterator[None]:
        """Within this context `set` and `join` call `notify`, from any thread, to end the wait of the batch's thread."""
        with self._lock:
            self._notify = notify
        try:
            yield
        finally:
            with self._lock:
                self._notify = None

    def _wake(self) -> None:
        with self._lock:
            if self._notify is not None:
                self._notify()

    def set(self) -> None:
        """Tells the batch to settle and end."""
        self._is_set = True
        self._wake()

    def join(self, splits: tuple[Split, ...]) -> None:
        """Adds these splits to the batch. Those that it has not taken on when it ends have no result."""
        self._joining.append(splits)
        self._wake()

    def joined(self) -> tuple[Split, ...]:
        """Returns the splits that were passed to `join` since the last call."""
        splits: tuple[Split, ...] = ()
        while self._joining:
            splits += self._joining.popleft()
        return splits

    def __call__(self) -> bool:
        """Returns whether the batch has to settle and end."""
        return self._is_set


class FollowingBatch:
    """Keeps one batch at the ends of its files. `results` returns the present results of some of its splits."""

    def __init__(
        self, run: BatchRun, seconds: float, stopping: BatchChannel, results: Callable[[Sequence[SplitProgress]], Results]
    ) -> None:
        """Called when the batch begins. It ends `seconds` after data was last added to any file, or to one that ends within a record."""
        self._run = run
        self._seconds = seconds
        self._stopping = stopping
        self._results = results
        self._begun = time.monotonic()
        self._added_at = self._look_all_at = self._found_at = self._woken_at = self._reported_at = 0.0
        self._open_since: dict[SplitProgress, float] = {}  # those that end within a record, and when they were added to last
        self._unreported = dict.fromkeys(run.progresses)  # those of which there may be something to report

    def stay(self) -> None:
        """Returns when nothing is added any more, a file was replaced or cannot be read to its end, or the batch has to end.

        Raises what ends the whole batch. Settled records that were not reported are left to the batch's results.
        """
        if not all(map(_may_stay, self._run.progresses)):
            return
        growth: GrowthReporter[SplitProgress] = GrowthReporter()
        with growth, self._stopping.waking(growth.notify):
            self._follow(growth)

    def _follow(self, growth: GrowthReporter[SplitProgress]) -> None:
        new = list(self._run.progresses)
        self._added(new)
        self._report()  # what it was made for
        while not self._stopping():
            if splits := self._stopping.joined():
                new = self._run.join(splits)
                self._added(new)
                if not all(map(_may_stay, new)):
                    return
            for one in new:
                assert one.stream is not None
                growth.add(one.stream.fd, one)
            grown = self._look(growth.take(), new)
            if grown is None or not self._go_on(grown) or time.monotonic() >= self._quiet_at():
                return
            new = []
            if time.monotonic() - self._reported_at >= REPORT_SECONDS:
                self._report()
            self._rest(growth, has_grown=bool(grown))

    def _rest(self, growth: GrowthReporter[SplitProgress], *, has_grown: bool) -> None:
        """Waits until the next look."""
        seconds = LOOK_SECONDS + (FILE_SECONDS if growth.is_notified else UNTOLD_FILE_SECONDS) * len(self._run.progresses)
        now = time.monotonic()
        is_close = has_grown and now - self._found_at < CLOSE * seconds
        if has_grown:
            self._found_at = now
        if is_close or not growth.is_notified:
            time.sleep(seconds)
        elif growth.wait(max(0.0, min(now + UNTOLD_SECONDS, self._quiet_at(), self._report_at()) - now)):
            time.sleep(max(0.0, self._woken_at + seconds - time.monotonic()))  # also after a write that did not extend a file
            self._woken_at = time.monotonic()

    def _go_on(self, grown: list[Grown]) -> bool:
        """Sends and settles added data. Returns whether the batch may stay."""
        if not grown:
            return True
        if not self._run.go_on(grown):
            return False
        self._added([one for one, _, _ in grown])
        unreported = sum(one.settled_position - one.split.offset.position for one in self._unreported)
        return unreported <= self._run.max_bytes // BYTES_SHARE

    def _added(self, some: Iterable[SplitProgress]) -> None:
        """Called when data was added to these files and is settled."""
        self._added_at = now = time.monotonic()
        for one in some:
            self._unreported[one] = None
            if one.settled_position < one.limit.end:
                self._open_since[one] = now
            else:
                self._open_since.pop(one, None)

    def _quiet_at(self) -> float:
        """Returns when it ends if nothing more is added to any file.

        It waits no longer for a file that ends within a record: the driver ends that one when its time is over.
        """
        since = min(self._open_since.values(), default=self._added_at)
        return min(since + self._seconds, self._begun + STAY_SECONDS)

    def _look(self, written: list[SplitProgress] | None, new: list[SplitProgress]) -> list[Grown] | None:
        """Returns the files that have grown; None when one was replaced or cut, for the driver. `written`: from `GrowthReporter.take`."""
        begun = time.monotonic()
        if written is not None and begun < self._look_all_at:
            return _grown(dict.fromkeys([*written, *new]))
        grown = _grown(self._run.progresses)
        end = time.monotonic()
        self._look_all_at = end + max(UNTOLD_SECONDS, LOOK_SHARE * (end - begun))
        return grown

    def _report_at(self) -> float:
        return self._reported_at + REPORT_SECONDS if self._unreported else math.inf

    def _report(self) -> None:
        moved = [one for one in self._unreported if one.has_moved]
        self._unreported.clear()
        if moved:
            self._reported_at = time.monotonic()
            self._stopping.report(self._results(moved))
            for one in moved:
                one.reported()


def _grown(some: Iterable[SplitProgress]) -> list[Grown] | None:
    """Returns the files that have grown; None when one was replaced, cut, or cannot be read."""
    grown = []
    for one in some:
        assert one.stream is not None
        try:
            size, seen_ns = one.stream.size_now(one.limit.end)
            if size > one.limit.end and one.holds():
                grown.append((one, size, seen_ns))
            elif size != one.limit.end:
                return None
        except FileError:
            return None
    return grown


def _may_stay(one: SplitProgress) -> bool:
    """Returns whether all of the file is read, without an error, and it is still the same."""
    return one.stream is not None and one.at_end and not (one.changed or one.error or one.damage)


class GrowthReporter(Generic[T]):
    """Reports which of some open files are written to. Used from one thread, `notify` from any."""

    def __init__(self) -> None:
        """If a file cannot be watched, there are no events, and `wait` only lets the time pass."""
        self._files: dict[int, T] = {}  # by watch descriptor
        self._queue = -1
        self._poll = select.poll()
        self._eventfd = _new_eventfd()
        if self._eventfd >= 0:
            self._poll.register(self._eventfd, select.POLLIN)
        if _free.acquire(blocking=False):
            self._queue = new_queue()
            if self._queue < 0:
                _free.release()
            else:
                self._poll.register(self._queue, select.POLLIN)

    @property
    def is_notified(self) -> bool:
        """Returns whether `wait` returns as soon as something is written."""
        return self._queue >= 0

    def add(self, fd: int, file: T) -> None:
        """Watches `file`, open as `fd`, from now on. The caller has to look for what was written before."""
        if self.is_notified:
            watch = watch_of(self._queue, fd)
            if watch < 0:
                self._close_queue()
            else:
                self._files[watch] = file

    def take(self) -> list[T] | None:
        """Returns the files written to since the last call; None when any of them may have been."""
        if not self.is_notified:
            return None
        try:
            events = os.read(self._queue, _QUEUE_BYTES)
        except BlockingIOError:
            return []
        watches = {watch for watch, *_ in _EVENT.iter_unpack(events)}
        return None if _OVERFLOW in watches else [self._files[watch] for watch in watches]

    def wait(self, seconds: float) -> bool:
        """Waits for a write since the last `take`, for `notify`, or for `seconds`. Returns whether there was a write."""
        ready = {fd for fd, _ in self._poll.poll(seconds * 1000)}
        if self._eventfd in ready:
            os.eventfd_read(self._eventfd)
        return self._queue in ready

    def notify(self) -> None:
        """Ends a wait, or the next one. Called from any thread. Has no effect if no descriptor was available."""
        if self._eventfd >= 0:
            os.eventfd_write(self._eventfd, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_queue()
        if self._eventfd >= 0:
            os.close(self._eventfd)

    def _close_queue(self) -> None:
        if self.is_notified:
            self._poll.unregister(self._queue)
            os.close(self._queue)
            self._queue = -1
            _free.release()


def _new_eventfd() -> int:
    """Returns a descriptor that any thread can make readable, -1 if none is available."""
    try:
        return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except OSError:
        return -1


def new_queue() -> int:
    """Returns a queue for events, -1 if none is available."""
    queue: int = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    return queue


def watch_of(queue: int, fd: int) -> int:
    """Adds a watch for writes to an open file to `queue`. Returns the watch's number, -1 if none is available."""
    try:
        is_local = clock.is_local(os.fstat(fd).st_dev)
    except OSError:
        is_local = False
    if not is_local:
        return -1  # others may write to it from elsewhere
    watch: int = _libc().inotify_add_watch(queue, f"/proc/self/fd/{fd}".encode(), _IN_MODIFY)
    return watch


@cache
def _libc() -> Any:  # noqa: ANN401 - its functions are made as they are asked for
    return ctypes.CDLL(None)
