"""Decides which files are complete (unchanged for a while, or by their done files), and which is next.

A modification time proves nothing: `cp -p` sets it back, and a server's clock may differ. A file is complete when the agent itself has seen
it unchanged.
"""

from __future__ import annotations

import heapq
import itertools
import os
import time
from collections.abc import Callable
from functools import total_ordering
from typing import TYPE_CHECKING, Any

from copycat_agent.errors import DataError
from copycat_agent.patterns import compile_pattern
from copycat_agent.sources.files.paths.regular_files import is_open_for_writing
from copycat_agent.sources.planner import TurnQueue
from copycat_agent.sources.spool_dir.spool_options import OrderByPart, SpoolDirOptions

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.spool_dir.listing import DoneFiles
    from copycat_agent.sources.spool_dir.spool_file import SpoolFile


def sort_key(options: SpoolDirOptions, path: str, size: int, mtime_ns: int) -> tuple[Any, str]:
    """Returns the sort key of a file; the least goes first. With `order_by: none` only the paths differ."""
    name = path.rpartition("/")[2]
    if isinstance(options.order_by, OrderByPart):
        part = _part(options.order_by.regex, name)
        return (part is None, _Reversed(part) if options.descending and part else part), path
    values: dict[str, int | str] = {"mtime": mtime_ns, "size": size, "name": name}
    value = values.get(options.order_by, 0)
    return (_Reversed(value) if options.descending else value), path


def _part(regex: str, name: str) -> tuple[bool, int, str] | None:
    """Returns the match in a name, numbers before texts; None if there is none."""
    pattern = compile_pattern(regex)
    try:
        match = pattern.search(name)
    except DataError:  # it took too long
        return None
    text: str | None = match[1 if pattern.groups else 0] if match else None
    if text is None:
        return None
    is_number = text.isascii() and text.isdecimal()
    return not is_number, int(text) if is_number else 0, text


@total_ordering
class _Reversed:
    """Sorts in reverse order."""

    __slots__ = ("value",)

    def __init__(self, value: int | str | tuple[bool, int, str] | None) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.value == other.value

    def __lt__(self, other: _Reversed) -> bool:
        return other.value < self.value  # type: ignore[operator]  # both of one kind

    def __hash__(self) -> int:
        return hash(self.value)


def queue(options: SpoolDirOptions) -> TurnQueue[SpoolFile]:
    """Returns a queue of ready files in the order in which they are begun. Begun ones go first, but with `order_by: none` to the end."""
    if options.order_by == "none":
        return TurnQueue(lambda _: ())
    return TurnQueue(lambda file: (not file.progress.is_begun, *sort_key(options, file.path, file.size, file.mtime_ns)))


MIN_AGE = 5.0
"""`ready.min_age` if neither that nor a done file is given."""
TOGETHER_SECONDS = 0.05
"""Files that were dropped at once become complete a moment apart: those due within this time are begun together, in order."""
WRITER_SECONDS = 60.0
"""How long an unchanged file waits because a program has it open for writing; a program that never closes it blocks nothing."""
TRUSTED_SECONDS = 86400.0
"""A file whose times are all older than this, and `min_age`, is complete at the first check. Younger ones have to be seen unchanged: a copy
may carry a modification time of long ago, and a file server's clock may differ from this host's."""


class ReadyFiles:
    """Decides for one connector, one call at a time; keeps the waiting files, each with the time of its next check."""

    def __init__(self, options: SpoolDirOptions, done_files: DoneFiles, log: Log, clock: Callable[[], float]) -> None:
        wanted = options.ready.min_age
        self.min_age = wanted if wanted is not None else 0.0 if done_files else MIN_AGE
        self._done_files = done_files
        self._log = log
        self._clock = clock
        self._due: list[tuple[float, int, SpoolFile]] = []
        self._latest: dict[SpoolFile, int] = {}
        self._numbers = itertools.count()

    def look_at(self, file: SpoolFile, seconds: float) -> None:
        """Schedules the file to be checked after `seconds`, not before."""
        number = self._latest[file] = next(self._numbers)
        heapq.heappush(self._due, (self._clock() + seconds + (TOGETHER_SECONDS if seconds else 0.0), number, file))

    def forget(self, file: SpoolFile) -> None:
        """Removes the file: it waits for nothing any more."""
        self._latest.pop(file, None)

    def due(self) -> list[SpoolFile]:
        """Returns and removes the files that are due. When the first is due, so are those within `TOGETHER_SECONDS` after it."""
        now, found = self._clock(), []
        until = now + TOGETHER_SECONDS if self._due and self._due[0][0] <= now else now
        while self._due and self._due[0][0] <= until:
            _, number, file = heapq.heappop(self._due)
            if self._latest.get(file) == number:
                del self._latest[file]
                found.append(file)
        return found

    @property
    def next_at(self) -> float:
        """When the next file is due, by the clock; infinite if none waits."""
        while self._due and self._latest.get(self._due[0][2]) != self._due[0][1]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else float("inf")

    def seconds_left(self, file: SpoolFile) -> float:
        """Returns how long its size and times still have to stay the same; 0 if it is old enough."""
        if self._is_old(file):
            return 0.0
        return max(0.0, file.seen.unchanged_since + self.min_age - self._clock())

    def has_writer(self, file: SpoolFile) -> bool:
        """Returns whether an open file has to wait because somebody has it open for writing, according to the kernel.

        Not checked if the definition says to wait for nothing, or uses a done file alone. An empty file waits as long as the writer has it
        open, which loses nothing: a report generator creates the file first, and may first write much later.
        """
        quiet = self._clock() - file.seen.unchanged_since
        is_over = file.size and quiet > self.min_age + WRITER_SECONDS
        return not is_over and self.min_age > 0 and is_open_for_writing(file.fd)

    def why_not(self, file: SpoolFile) -> str:
        """Returns what the file waits for, as a message; "" if it is complete."""
        if self.waits_for_done_file(file):
            return f"it waits for its done file {self._done_files.of(file.path)}"
        if self.seconds_left(file) > 0:
            self._tell_future(file)
            return f"it waits until its size and time have been the same for {self.min_age:g} s"
        return ""

    def waits_for_done_file(self, file: SpoolFile) -> bool:
        """Returns whether the file waits for its done file, which does not exist yet."""
        done_file = self._done_files.of(file.path)
        return bool(done_file) and not os.path.lexists(done_file)

    def _is_old(self, file: SpoolFile) -> bool:
        return time.time() - max(file.mtime_ns, file.seen.ctime_ns) / 1e9 >= max(self.min_age, TRUSTED_SECONDS)

    def _tell_future(self, file: SpoolFile) -> None:
        if file.mtime_ns / 1e9 > time.time() + 1.0 and file.is_to_be_told():
            why = "its time of change lies in the future; it is read once size and time have been the same for min_age"
            self._log.warning("file waits", path=file.path, why=why)
