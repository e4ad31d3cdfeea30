"""When the end of a record that nothing but time can end has come: of an open group of lines, of a last line without its delimiter."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from copycat_agent.sources.files import clock

if TYPE_CHECKING:
    from copycat_agent.sources.log_file.log_options import LogFileOptions
    from copycat_agent.sources.log_file.tracked import TrackedFile

CLOCK_SECONDS = 60.0
"""How far the clock that sets a file's time stamps may be behind: a stamp that is older by this is believed, also of a file just met."""


class Timers:
    """Of one connector's files. One that waits for nothing costs nothing."""

    def __init__(self, options: LogFileOptions, touch: Callable[[TrackedFile], None]) -> None:
        """`touch` is called for each file that has something to read now."""
        after = options.line.flush_partial_after
        self._group_seconds = math.inf if options.multiline is None else options.multiline.timeout
        self._line_seconds = math.inf if after == "never" else after
        self._touch = touch
        self._queue: list[tuple[float, int, TrackedFile]] = []
        self._queued: set[TrackedFile] = set()
        self._numbers = itertools.count()

    def add(self, file: TrackedFile) -> None:
        """A task came to the end of `file`: if something waits there, its time runs."""
        if file not in self._queued and file.is_stalled and (due := self._due(file)) < math.inf:
            file.wait_for_group(waits=self._group_seconds < math.inf)
            self._queued.add(file)
            heapq.heappush(self._queue, (due, next(self._numbers), file))

    def ripen(self, *, at_once: bool) -> float:
        """See `Source.ripen`."""
        while self._queue and (at_once or self._queue[0][0] <= time.monotonic()):
            file = heapq.heappop(self._queue)[2]
            self._queued.discard(file)
            self._end(file, at_once=at_once)
        return self._queue[0][0] if self._queue else math.inf

    def _end(self, file: TrackedFile, *, at_once: bool) -> None:
        """The record at the end of `file` ends here. Who plans its split looks at it once more: growth takes that back."""
        file.wait_for_group(waits=False)
        if file.removed or not file.is_stalled:
            return
        now = time.monotonic()
        if not at_once and self._due(file) > now:
            self.add(file)
        else:
            file.end_record(final=at_once or self._quiet_at(file, self._line_seconds) <= now)
            self._touch(file)

    def _due(self, file: TrackedFile) -> float:
        """When the time of what waits in `file` is over. What was tried once at this size is not tried again."""
        group = (
            math.inf if file.size in (file.ending.flushed_size, file.ending.finished_size) else self._quiet_at(file, self._group_seconds)
        )
        line = math.inf if file.size == file.ending.finished_size else self._quiet_at(file, self._line_seconds)
        return min(group, line)

    def _quiet_at(self, file: TrackedFile, seconds: float) -> float:
        if clock.seconds_since(file.identity.device, file.seen.mtime_ns) > seconds + CLOCK_SECONDS:
            return file.grown_at
        return file.grown_at + seconds
