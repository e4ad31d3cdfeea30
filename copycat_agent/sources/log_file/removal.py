"""Deletes log files that are read, if `cleanup.policy` says so.

A file is deleted when all its content is settled and saved, it was not written to for `cleanup.after`, and the kernel says that nobody has
it open for writing. A program that opened it by name just before that writes to a file that the agent still holds open: that data is read
too, as for any deleted file (see `file_closer`).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from copycat_agent.formats import LineFrames
from copycat_agent.sources.files import clock
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.paths.regular_files import Opener, has_no_writer, is_open_for_writing
from copycat_agent.sources.planner import READY
from copycat_agent.sources.spool_dir.cleanup.folders import ChangedError, CleanupDelayedError, Folder, folder
from copycat_agent.sources.spool_dir.cleanup.moves import CleanupItem, NameState, aside_name, delete, seen

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.log_file.followed import FollowedFiles
    from copycat_agent.sources.log_file.log_options import LogFileOptions
    from copycat_agent.sources.log_file.tracked import TrackedFile

_CALL_SECONDS = 0.25
"""The time limit of one call; the remaining files wait for the next call, so that reading goes on."""
_AT_ONCE = 100
LOOKS = (1.0, 60.0)
"""Least and most seconds between two checks of all files; in between, a tenth of `after`."""
AGAIN_SECONDS = 60.0
"""When deletion of a file is retried after a failure."""
_WRITER = "a program has it open for writing"
_NOBODY_KNOWS = "whether a program has it open for writing cannot be told: the agent's user does not own it and has no CAP_LEASE"


class FileRemoval:
    """Deletes for one connector, one call at a time. `want_scan` is called once a file is deleted: a scan finds it gone."""

    def __init__(self, followed: FollowedFiles, opener: Opener, options: LogFileOptions, want_scan: Callable[[], None], log: Log) -> None:
        self._followed = followed
        self._opener = opener
        self._after = options.cleanup.after
        self._lines = LineFrames(options.line, encoding=options.encoding)
        self._is_on = options.cleanup.policy == "delete"
        self._want_scan = want_scan
        self._log = log
        self._next_at = 0.0
        self._kept: dict[TrackedFile, tuple[float, str]] = {}

    @property
    def is_due(self) -> bool:
        """Whether it is time to check the files."""
        return self._is_on and time.monotonic() >= self._next_at

    @property
    def troubled(self) -> int:
        """How many files are read and old enough, and could not be deleted."""
        return sum(not file.removed for file in self._kept)

    def work(self) -> None:
        """Deletes the files that are due. Called when everything known of the files is saved. Raises nothing for files."""
        now = time.monotonic()
        self._next_at = now + min(max(self._after / 10, LOOKS[0]), LOOKS[1])
        self._kept = {file: kept for file, kept in self._kept.items() if not file.removed}
        deleted = 0
        for file in self._due(now):
            deleted += self._remove(file)
            if deleted >= _AT_ONCE or time.monotonic() > now + _CALL_SECONDS:
                self._next_at = now
                break
        if deleted:
            self._want_scan()

    def _due(self, now: float) -> Iterator[TrackedFile]:
        """Yields files that were read and old enough at their last look."""
        for file in list(self._followed.files.values()):
            retry_at, _ = self._kept.get(file, (0.0, ""))
            if retry_at <= now and _is_read(file) and self.is_old(file):
                yield file

    def is_old(self, file: TrackedFile) -> bool:
        """Returns whether it was not written to or renamed for `cleanup.after`, as of the last look."""
        return clock.seconds_since(file.identity.device, max(file.seen.mtime_ns, file.seen.ctime_ns)) >= self._after

    def _remove(self, file: TrackedFile) -> bool:
        """Deletes the file, if it is unchanged. Returns whether it is deleted."""
        try:
            was_open = file.fd >= 0
            if not file.open(self._opener):
                return False
            file.refresh()
            if _is_read(file) and self.is_old(file) and (file.is_packed or (file.holds() and self._ends_with_line(file))):
                self._delete(file)
                self._kept.pop(file, None)
                self._log.info("deleted a log file that is read", path=file.path, offset=file.offset.position, records=file.offset.records)
                return True
            if not was_open:
                file.close()
        except ChangedError:
            self._want_scan()
        except CleanupDelayedError as error:
            self._keep(file, error.why)
        except OSError as error:
            self._keep(file, "it is or leads through a symbolic link" if error.errno == errno.ELOOP else str(error.strerror))
        return False

    def _ends_with_line(self, file: TrackedFile) -> bool:
        """Returns whether the last line of the open file has its end: of one over the limit, what is there so far is passed over."""
        return not file.offset.skipping or self._lines.is_line_start(file.read, file.offset.position)

    def _keep(self, file: TrackedFile, why: str) -> None:
        if self._kept.get(file, (0.0, ""))[1] != why:
            self._log.warning("a log file that is read cannot be deleted; it is tried again", path=file.path, why=why)
        self._kept[file] = time.monotonic() + AGAIN_SECONDS, why

    def _delete(self, file: TrackedFile) -> None:
        """Deletes the file. Raises ChangedError, CleanupDelayedError, OSError."""
        info = os.fstat(file.fd)
        item = CleanupItem(
            file.path.rpartition("/")[2], file.identity, info.st_size, info.st_mtime_ns, Identity.parse(file.partition.key)[0]
        )
        if info.st_nlink > 1:  # it would free nothing, and the other names lead to a file that is known by this one
            raise CleanupDelayedError("it has several hard links")
        if not has_no_writer(file.fd):
            raise CleanupDelayedError(_WRITER if is_open_for_writing(file.fd) else _NOBODY_KNOWS)
        with ExitStack() as held:
            home = self._home_of(file.path, held)
            if seen(home, item.name, item) is not NameState.IT:
                raise ChangedError("another file has its name")
            if item.name == aside_name(item):  # a kill came between the steps of its deletion
                home.remove(item.name)
            else:
                delete(home, item, unless_written=True)
            home.sync()

    def _home_of(self, path: str, held: ExitStack) -> Folder:
        """Opens the directory of the file, following no link below the fixed part of a pattern. Raises OSError."""
        directory = path.rpartition("/")[0] or "/"
        trouble: OSError | None = None
        for root in self._opener.roots_of(path):
            try:
                top = held.enter_context(folder(root))
                return held.enter_context(top.below(directory.removeprefix(root).strip("/")))
            except OSError as error:
                trouble = error
        assert trouble is not None, "there is always a root"
        raise trouble


def _is_read(file: TrackedFile) -> bool:
    """Returns whether all its content, as of the last look, is settled. False for an empty file: it may be about to be written.

    For a packed file a task must have reached its end marker since the agent began: damage also ends a file.
    """
    if file.removed or file.in_flight or file.unjudged or file.needs_scan or file.is_cut or file.backoff is not READY or not file.size:
        return False
    if file.draining_since is not None and not _is_aside(file):
        return False
    if not file.is_packed:
        return file.offset.position == file.size
    packing, offset = file.packing, file.offset
    return packing.is_whole and not packing.rest and not packing.only_as_rest and offset.done and offset.size == file.size


def _is_aside(file: TrackedFile) -> bool:
    """Returns whether it has the name that a file gets for the moment before it is deleted."""
    saved_as = Identity.parse(file.partition.key)[0]
    return file.path.rpartition("/")[2] == aside_name(CleanupItem("", file.identity, 0, 0, saved_as))
