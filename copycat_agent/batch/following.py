"""A batch that stays at the ends of its files: it sends what is added at once, and reports now and then how far it came.

A batch for each few lines of a log that trickles costs a plan, two pickles, a wake-up at each end and a save. One that stays is told of
writes by the kernel, looks at the size of each file once in a few milliseconds at most, and reports about twice a second. When nothing has
come for a while the batch ends: then events wake the driver when there is something to read.

inotify(7) is called directly (`Growth`): watchdog has no way to wait in the thread that reads, and to wake one thread by another costs
as much again.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from copycat_agent.errors import FileError
from copycat_agent.sources.files import clock

if TYPE_CHECKING:
    from collections.abc import Collection

    from copycat_agent.batch.progress import Progress
    from copycat_agent.batch.run import BatchRun
    from copycat_agent.model import SplitResult

LOOK_SECONDS = 0.008
"""Time after a look that an event has led to, or that finds something, which costs a produce and a flush. Where no events can be had, after
every look."""
ASKED_SECONDS = 0.05
"""Time between two looks at whether the batch shall end, while nothing is written."""
REPORT_SECONDS = 0.4
"""What is settled is reported so soon. A kill repeats what was not, with `at_least_once`."""
STAY_SECONDS = 30.0
"""So long after it began, a batch stays no longer."""
BYTES_SHARE = 4
"""A batch that has a quarter of what it may read to report ends: where so much is written, batch after batch is saved as fast."""

INSTANCES_MAX = 16
"""Queues of events of one process: the kernel gives a user 128 by default, and others want some, too."""
_IN_MODIFY = 0x2
_QUEUE_BYTES = 2**16

_free = threading.BoundedSemaphore(INSTANCES_MAX)

Results = tuple["SplitResult", ...]


class Reporting:
    """A `stopping` of a batch whose reports are heard."""

    def __init__(self, stop: threading.Event, report: Callable[[Results], None]) -> None:
        """`report` is told what has been settled since the last time, or since the batch began. It raises nothing."""
        self._stop = stop
        self.report = report

    def __call__(self) -> bool:
        """Whether the batch shall settle and end."""
        return self._stop.is_set()


class Following:
    """Keeps one batch at the ends of its files. `results` makes the results of some of its splits as they stand."""

    def __init__(self, run: BatchRun, seconds: float, stopping: Reporting, results: Callable[[Sequence[Progress]], Results]) -> None:
        """The batch begins now. `seconds`: it ends when nothing was added for so long to any file, or to one that ends within a record."""
        self._run = run
        self._seconds = seconds
        self._stopping = stopping
        self._results = results
        self._begun = time.monotonic()

    def stay(self) -> None:
        """Returns when nothing comes any more, when a file is no longer what it was, cannot be read to its end, or when asked to.

        Raises what ends the whole batch. What was settled and not reported is for the batch's results to tell.
        """
        if not all(one.at_end and not (one.changed or one.error or one.damage) for one in self._run.progresses):
            return
        with Growth([one.stream.fd for one in self._run.progresses if one.stream is not None]) as growth:
            self._follow(growth)

    def _follow(self, growth: Growth) -> None:
        added_at = dict.fromkeys(self._run.progresses, time.monotonic())
        quiet_at = self._quiet_at(added_at)
        self._report()  # what it was made for
        reported_at = time.monotonic()
        is_woken = False
        while not self._stopping():
            growth.forget()
            grown = self._look()
            now = time.monotonic()
            if grown:
                if not self._run.go_on(grown) or self._unreported() > self._run.max_bytes // BYTES_SHARE:
                    return
                added_at.update((one, now) for one, _, _ in grown)
                quiet_at = self._quiet_at(added_at)
            if grown is None or now >= quiet_at:
                return
            if now - reported_at >= REPORT_SECONDS and self._report():
                reported_at = now
            if grown or is_woken or not growth.is_told:  # also after a write that made no file larger
                time.sleep(LOOK_SECONDS)
                is_woken = False
            else:
                is_woken = growth.wait(ASKED_SECONDS)

    def _quiet_at(self, added_at: dict[Progress, float]) -> float:
        """Returns when it ends if nothing more is added to any file.

        It waits no longer for a file that ends within a record: the driver ends that one when its time is over.
        """
        whole = [at for one, at in added_at.items() if one.settled_position == one.limit.end]
        open_at = (at for one, at in added_at.items() if one.settled_position < one.limit.end)
        return min(min(open_at, default=max(whole, default=0.0)) + self._seconds, self._begun + STAY_SECONDS)

    def _look(self) -> list[tuple[Progress, int, int]] | None:
        """Files that have grown, with their sizes and when that was; None when one is not what it was: the driver finds out why."""
        grown = []
        for one in self._run.progresses:
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

    def _unreported(self) -> int:
        return sum(one.settled_position - one.split.offset.position for one in self._run.progresses)

    def _report(self) -> bool:
        """Returns whether there was anything to report."""
        moved = [one for one in self._run.progresses if one.has_moved]
        if moved:
            self._stopping.report(self._results(moved))
            for one in moved:
                one.reported()
        return bool(moved)


class Growth:
    """The files of one batch, by their descriptors. For one thread."""

    def __init__(self, fds: Collection[int]) -> None:
        """Where events cannot be had of all of them, `wait` lets the time pass."""
        self._queue = -1
        if all(clock.is_local(os.fstat(fd).st_dev) for fd in fds) and _free.acquire(blocking=False):
            self._queue = queue_of(fds)
            if self._queue < 0:
                _free.release()
        self._poll = select.poll()
        if self.is_told:
            self._poll.register(self._queue, select.POLLIN)

    @property
    def is_told(self) -> bool:
        """Whether `wait` returns as soon as something is written."""
        return self._queue >= 0

    def forget(self) -> None:
        """What was written until now ends no `wait`."""
        if self.is_told:
            with suppress(BlockingIOError):
                os.read(self._queue, _QUEUE_BYTES)

    def wait(self, seconds: float) -> bool:
        """Until something has been written since the last `forget`, at most so long. Returns whether it is known to have been."""
        if self.is_told:
            return bool(self._poll.poll(seconds * 1000))
        time.sleep(seconds)
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_told:
            os.close(self._queue)
            self._queue = -1
            _free.release()


def queue_of(fds: Collection[int]) -> int:
    """Returns a queue that is told of writes to these files, -1 where there is none to be had."""
    queue: int = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if queue >= 0 and any(_libc().inotify_add_watch(queue, f"/proc/self/fd/{fd}".encode(), _IN_MODIFY) < 0 for fd in fds):
        os.close(queue)
        return -1
    return queue


@cache
def _libc() -> Any:  # noqa: ANN401 - its functions are made as they are asked for
    return ctypes.CDLL(None)
