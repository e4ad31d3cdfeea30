"""What existed when a connector last looked: by time, and by content for archives whose age proves nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from copycat_agent.model import SourcePartition, SourceState
from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.paths.discovery import Mark
from copycat_agent.sources.files.paths.regular_files import Opener
from copycat_agent.sources.log_file.followed import FollowedFiles
from copycat_agent.sources.log_file.tracked import OpenedFile
from copycat_agent.sources.planner import Changes

SLACK_NS = 20_000_000
"""The kernel's file times are those of its last tick, up to 10 ms ago."""
_SAVE_SECONDS = 60.0
"""The least time between two saves of the time if a scan saves nothing else."""


class LookTime(NamedTuple):
    """When a directory was last listed. A file born at `at_ns` or later came after that, one born before `doubt_ns` came before it.

    Between the two it is not known, because the clock was set back. Epoch nanoseconds by the clock of the file system, 0 if unknown.
    """

    at_ns: int
    doubt_ns: int


class LastLook:
    """When the connector last looked, by the clocks of the file systems, which are compared with file times only.

    If a server stamps the files, that is the last change of their directory: whatever was in it then is as old, or older. A clock of this
    host that was set back shows in how far it is ahead of the time since the host was booted.

    The connector's state is saved: `first_ms`, `seen_ms` (the first and the last look, 0 before the end of a look), `ahead_ns` and `boot`
    (`clock.ahead_ns` and `clock.boot` then), and `rotations`, how many logs had files that were made since and not taken up yet. `seen_ms`
    is never later than the truth: in doubt a file counts as unseen.
    """

    def __init__(self) -> None:
        self._open_before = 0
        self._has_looked = False
        self._first_ms = self._ahead_ns = 0
        self._usual = LookTime(0, 0)
        self._others: dict[str, LookTime] = {}
        self._blind: dict[str, LookTime] = {}
        self._begun_ns = 0
        self._saved_at = -_SAVE_SECONDS
        self._saved_marks: Mapping[str, Mark] = {}

    def recall(self, state: SourceState) -> None:
        """Takes in the saved state."""
        told = state.values
        self._open_before = _number(told, "rotations")
        self._first_ms = _number(told, "first_ms")
        self._ahead_ns = _number(told, "ahead_ns") if told.get("boot") == clock.boot() else 0
        saved_ns = _number(told, "seen_ms") * 1_000_000
        self._usual = LookTime(saved_ns, saved_ns)

    @property
    def was_open(self) -> bool:
        """Whether files that were made since then were not taken up yet when the agent ended."""
        return self._open_before > 0

    @property
    def is_first(self) -> bool:
        """Whether the connector has never looked before."""
        return not self._first_ms

    @property
    def first_ns(self) -> int:
        """When the connector first looked, epoch nanoseconds by the clock of this host."""
        return self._first_ms * 1_000_000

    def begin(self, changes: Changes) -> None:
        """Begins a look."""
        if self.is_first:
            self._first_ms = int(time.time() * 1000)
            changes.state = self._state(0, 0)
        self._begun_ns = clock.now_ns() - SLACK_NS
        ahead_ns, self._ahead_ns = self._ahead_ns, clock.ahead_ns()
        if ahead_ns - self._ahead_ns > SLACK_NS and ahead_ns:
            by_ns = ahead_ns - self._ahead_ns
            self._usual = _set_back(self._usual, by_ns)
            self._others = {directory: _set_back(since, by_ns) for directory, since in self._others.items()}

    def compare(self, marks: Mapping[str, Mark]) -> None:
        """Compares the saved state with what the first look of this process found. A time in the future proves nothing.

        The last look may then have been at any time since the first one, or at any time at all.
        """
        now_ns = max([clock.now_ns(), *(mark[3] for mark in marks.values() if mark)]) + SLACK_NS
        if self._usual.doubt_ns > now_ns:
            self._usual = LookTime(self._usual.at_ns, self.first_ns if self.first_ns < now_ns else 1)

    def before(self, directory: str) -> LookTime:
        """Returns when this directory was last listed before the present look."""
        return self._others.get(directory, self._usual)

    def end(self, unlisted: Collection[str], open_since_ns: list[int], marks: Mapping[str, Mark], changes: Changes) -> None:
        """Ends a look that could not list the `unlisted` directories. `open_since_ns`: times since which not every file is taken up."""
        self._has_looked = True
        self._blind = {directory: self.before(directory) for directory in unlisted}
        seen = {directory: self._seen(directory, mark) for directory, mark in marks.items() if mark}
        clocks: dict[int, LookTime] = {}
        for directory, since in seen.items():
            mark = marks[directory]
            which = mark[0] if mark and not clock.is_local(mark[0]) else 0
            clocks[which] = max(since, clocks.get(which, since))
        self._usual = min(clocks.values(), default=LookTime(self._begun_ns, self._begun_ns))
        self._others = {directory: since for directory, since in seen.items() if since != self._usual} | self._blind
        is_due = bool(changes.offsets or changes.state) or time.monotonic() - self._saved_at > _SAVE_SECONDS
        if is_due and marks != self._saved_marks:  # if nothing came or went, the time of an earlier look is as good
            self._saved_marks, self._saved_at = dict(marks), time.monotonic()
            self.save(open_since_ns, changes)

    def save(self, open_since_ns: list[int], changes: Changes) -> None:
        """Saves the state now. Has no effect before the end of this process's first look: the saved state is better."""
        if self._has_looked and self._first_ms and self._usual.at_ns:
            known_ns = min([self._usual.doubt_ns, *open_since_ns, *(since.doubt_ns for since in self._blind.values())])
            changes.state = self._state(max(1, known_ns // 1_000_000), len(open_since_ns))

    def _state(self, seen_ms: int, rotations: int) -> SourceState:
        told = {"first_ms": self._first_ms, "seen_ms": seen_ms, "rotations": rotations}
        return SourceState({**told, "ahead_ns": self._ahead_ns, "boot": clock.boot()})

    def _seen(self, directory: str, mark: tuple[int, int, int, int]) -> LookTime:
        """Returns when the present look saw a directory."""
        device, *_, ctime_ns = mark
        if clock.is_local(device):
            is_ahead = ctime_ns > self._begun_ns + 2 * SLACK_NS  # the clock was set back since: files there may be as young as that
            return LookTime(ctime_ns if is_ahead else self._begun_ns, self._begun_ns)
        known = self.before(directory)
        if known.at_ns - ctime_ns not in (0, 1):
            return LookTime(ctime_ns, ctime_ns)  # a file made just now may get the same time
        return LookTime(ctime_ns + 1, ctime_ns + 1 - (known.at_ns - known.doubt_ns))


def as_if_looked(at_ms: int) -> SourceState:
    """Returns the state of a connector that continues where another program stopped, which had seen all files until `at_ms`.

    So `start_at` does not apply to files that came later, nor to those whose positions are not known: they are read from byte 0.
    """
    return SourceState({"first_ms": at_ms, "seen_ms": at_ms, "rotations": 0, "ahead_ns": 0, "boot": ""})


def _number(told: Mapping[str, Any], name: str) -> int:
    """Returns a number of a state, 0 if a person has set one without it."""
    value = told.get(name)
    return value if isinstance(value, int) else 0


def _set_back(since: LookTime, by_ns: int) -> LookTime:
    return LookTime(since.at_ns, max(1, since.doubt_ns - by_ns)) if since.at_ns else since


class KnownArchives(NamedTuple):
    """Device and inode of the archives of one log with known content, and when the newest of them was last changed, 0 for none.

    If archives are copied from name to name, the oldest first, everything changed before that was there before.
    """

    inodes: frozenset[tuple[int, int]]
    newest_ns: int


def known_of(paths: Collection[str], followed: FollowedFiles, opener: Opener, changes: Changes) -> KnownArchives:
    """Returns the known archives among `paths`. The saved row of an overwritten one becomes a previous generation."""
    there: list[tuple[int, str]] = []
    for path in paths:
        with contextlib.suppress(OSError):
            there.append((_note_written_over(path, followed, opener, changes), path))
    claimed: set[SourcePartition] = set()
    known: dict[tuple[int, int], int] = {}
    for mtime_ns, path in sorted(there):
        with contextlib.suppress(OSError), OpenedFile(*opener.open(path)) as opened:
            fd, info = opened.fd, opened.info
            inode = info.st_dev, info.st_ino
            if inode in followed.files or _claims(path, fd, info.st_size, followed, claimed, changes):
                known[inode] = mtime_ns
    return KnownArchives(frozenset(known), max(known.values(), default=0))


def _note_written_over(path: str, followed: FollowedFiles, opener: Opener, changes: Changes) -> int:
    """Makes the row of an overwritten file a previous generation. Returns the file's modification time. Raises OSError."""
    with OpenedFile(*opener.open(path)) as opened:
        fd, info = opened.fd, opened.info
        identity, unfollowed = identify(fd, info), followed.unfollowed
        if identity[:2] not in followed.files and not unfollowed.knows(identity, fd, info.st_size, changes):
            unfollowed.written_over(identity, changes)
        return info.st_mtime_ns


def _claims(path: str, fd: int, size: int, followed: FollowedFiles, claimed: set[SourcePartition], changes: Changes) -> bool:
    """Returns whether the open file holds what was read of another one, and no older one does. Raises OSError.

    Equal text alone is no proof. Returns False for a packed file: a task finds out what it holds.
    """
    read = fingerprint.reader(fd)
    if packed.compression_of(read):
        return False
    for partition, offset in followed.unfollowed.candidates(path, read(0, fingerprint.HEAD_BYTES), changes):
        if partition not in claimed and offset.position <= size and fingerprint.holds(read, offset.fingerprint, offset.position):
            claimed.add(partition)
            return True
    return False
