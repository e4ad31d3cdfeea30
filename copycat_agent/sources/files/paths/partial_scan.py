"""Scans of a part of the files: if no directory has changed, the names in it have not, and only contents may have.

A scan of 100,000 files takes nearly a second; every few seconds that is a tenth of a core for nothing. A partial scan checks the
directories, the files that are active, and a slice of all others, so that each is checked every `ROUND_SECONDS`: 5 ms. The idea that an
unchanged directory need not be listed again, and the distrust of time stamps that are too young, come from git's index (racy-git).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from copycat_agent.sources.files import clock
from copycat_agent.sources.files.paths.discovery import Mark, mark

WORTH_SECONDS = 0.02
"""A scan that takes less is not replaced by a partial scan; it is left out only if no file has changed either."""
ROUND_SECONDS = 240.0
"""Partial scans check every quiet file once in this time. Writes to it also cause events, if there are events."""
FULL_SECONDS = 60.0
"""A full scan is due after this time, whatever directories say, or after `FULL_COST` times its own duration, whichever is later."""
FULL_COST = 300.0
COVERED_SECONDS = 240.0
"""As `FULL_SECONDS`, if every file is checked in between."""
ACTIVE_SECONDS = 60.0
"""A file that was written to so recently is checked in every partial scan."""
YOUNG_NS = 2_000_000_000
"""A directory that changed so shortly before it was listed may change again without a visible time stamp."""


class ScannedFile(Protocol):
    """The interface of a file for partial scans."""

    @property
    def grown_at(self) -> float:
        """When it was last seen to be written to, `time.monotonic()`."""

    @property
    def unread(self) -> bool:
        """Whether there may be something to read."""

    @property
    def removed(self) -> bool:
        """Whether it is not followed any more."""


_File = TypeVar("_File", bound=ScannedFile)


class PartialScan(Generic[_File]):
    """Decides whether a partial scan suffices, and which files it checks. For one connector, one call at a time."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        worth_seconds: float = WORTH_SECONDS,
        round_seconds: float = ROUND_SECONDS,
        young_ns: int = YOUNG_NS,
        is_local: Callable[[int], bool] = clock.is_local,
    ) -> None:
        self._clock = clock
        self._worth_seconds = worth_seconds
        self._round_seconds = round_seconds
        self._young_ns = young_ns
        self._is_host_local = is_local
        self._marks: dict[str, Mark] = {}
        self._trusted = self._is_worth = self._is_local = False
        self._scan_seconds = 0.0
        self._scanned_at = self._looked_at = 0.0
        self._round: Iterator[_File] = iter(())

    def scanned(self, marks: Mapping[str, Mark], begun_ns: int, seconds: float) -> None:
        """Takes in a full scan that began at `begun_ns` (`time.time_ns()`), took `seconds`, and found these marks of directories."""
        self._scan_seconds = seconds
        self._scanned_at = self._looked_at = self._clock()
        self._is_worth = seconds >= self._worth_seconds
        self._marks = dict(marks)
        self._trusted = all(one is None or max(one[2:]) < begun_ns - self._young_ns for one in self._marks.values())
        # A server may show changes late, with time stamps of another clock; some file systems in user space stamp no directory.
        self._is_local = all(one is None or self._is_host_local(one[0]) for one in self._marks.values())

    def suffices(self) -> bool:
        """Returns whether a partial scan can replace a full one: that takes long, and names have not changed since the last one."""
        return self._is_worth and self._has_same_names(max(FULL_SECONDS, FULL_COST * self._scan_seconds))

    def covers_all(self) -> bool:
        """Returns whether names have not changed since the last scan, and all files, few and on local disks, can be checked."""
        return not self._is_worth and self._is_local and self._has_same_names(COVERED_SECONDS)

    def _has_same_names(self, seconds: float) -> bool:
        """Returns whether no name can have changed since the last scan, which was less than `seconds` ago."""
        if not self._trusted or self._clock() - self._scanned_at > seconds:
            return False
        return all(mark(directory) == known for directory, known in self._marks.items())

    def choose(self, files: Collection[_File], active: Iterable[_File]) -> list[_File]:
        """Returns the files to check now: those `active`, and the next of all `files`."""
        now = self._clock()
        due = 1 + int(len(files) * min(1.0, (now - self._looked_at) / self._round_seconds))
        self._looked_at = now
        chosen = dict.fromkeys(itertools.islice(self._round, due))
        if len(chosen) < due:
            self._round = iter(list(files))
        recent = now - ACTIVE_SECONDS
        chosen.update((file, None) for file in active if file.grown_at > recent or file.unread)
        return [file for file in chosen if not file.removed]
