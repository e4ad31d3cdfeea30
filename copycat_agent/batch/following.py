"""A batch that stays at the ends of its files: it sends what is added at once, and reports now and then how far it came.

A batch for each few lines of a log that trickles costs a plan, two pickles, a wake-up at each end and a save. One that stays is told of
writes by the kernel, looks at the size of each file once in a few milliseconds at most, and reports about twice a second. When nothing has
come for a while the batch ends: then events wake the driver when there is something to read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from copycat_agent.batch.growth import Growth
from copycat_agent.errors import FileError

if TYPE_CHECKING:
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
