"""Cleans up a spooled file once Kafka has every record of it and its offset is on disk.

Every step leaves a state that the next call can finish: a kill between any two of them costs nothing. The order is: explanation of a bad
file, done file, the file itself, empty directories, sync. The done file goes first: while its file exists it cannot be mistaken for that of
a new file of the same name.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Literal, NamedTuple

from copycat_agent import failpoints
from copycat_agent.errors import BlockedError
from copycat_agent.logs import Log
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.paths.matching import normalise
from copycat_agent.sources.spool_dir.cleanup import target_notes
from copycat_agent.sources.spool_dir.cleanup.copies import Copies, FilePlacement, remove_done_file
from copycat_agent.sources.spool_dir.cleanup.folders import (
    ChangedError,
    CleanupDelayedError,
    CleanupTargets,
    Folder,
    Unsynced,
    folder,
    target,
)
from copycat_agent.sources.spool_dir.cleanup.moves import CleanupItem, NameState, delete, finish_deletion, free_name, is_written, seen
from copycat_agent.sources.spool_dir.cleanup.target_notes import Retention
from copycat_agent.sources.spool_dir.spool_options import CleanupOptions

CALL_SECONDS = 0.25
"""The time limit of one call; the remaining files wait for the next call, so that reading goes on."""
EXPIRE_SECONDS = 60.0
"""Time between two searches for files that are past `retain`."""


class FinishedFile(NamedTuple):
    """A file that is done, and whose row says so on disk.

    `path` is in or below the source's directory; `identity`, `size` and `mtime_ns` are those of the file that was read, `saved_as` is the
    identity in its row's key. `done_file` is the path of the done file that belongs to this file alone; "" for none. `trouble` is why it
    could not be read to its end; "": it was delivered. The rest is for the explanation of a bad file: `position` is the byte reached, or
    with `counts_records` the record.
    """

    path: str
    identity: Identity
    size: int
    mtime_ns: int
    done_file: str = ""
    trouble: str = ""
    position: int = 0
    records: int = 0
    counts_records: bool = False
    saved_as: Identity | None = None

    @property
    def item(self) -> CleanupItem:
        """The file in the form that the steps take."""
        return CleanupItem(self.path.rpartition("/")[2], self.identity, self.size, self.mtime_ns, self.saved_as)

    @property
    def is_bad(self) -> bool:
        """Whether it could not be read to its end."""
        return bool(self.trouble)


class CleanupOutcome(NamedTuple):
    """The result of the cleanup of one file.

    cleaned: done as the policy says, durably; `target` is its new path, "" if it was deleted. gone: somebody else removed it. changed: its
    path has content that was not read; it is left alone. kept: not possible now, for the reason `why`; retry after `retry_seconds`, or with
    growing pauses if that is None. stays: the policy leaves it in place.
    """

    state: Literal["cleaned", "gone", "changed", "kept", "stays"]
    target: str = ""
    why: str = ""
    retry_seconds: float | None = 0.0


class Cleaner:
    """Cleans up one connector's files. Used by one caller at a time; file errors become outcomes and are not raised.

    `recursive`: directories below `directory` are read too, so no target may be there. `clock` is time.time.
    """

    def __init__(
        self,
        connector: str,
        directory: str,
        options: CleanupOptions,
        log: Log,
        *,
        recursive: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connector = connector
        self._directory = normalise(directory)
        self._options = options
        self._log = log
        self._targets = CleanupTargets(self._directory, options, recursive=recursive)
        self._retain = {path: Retention(connector, options.retain, clock) for path in self._targets.paths} if options.retain else {}
        self._copies = Copies(connector)
        self._swept: set[str] = set()
        self._unsynced = Unsynced()
        self._next_expiry = 0.0
        self._was_good = False

    def check(self) -> BlockedError | None:
        """Returns what a person has to change before cleanup can work; None if it can. Creates missing targets.

        After the first success it checks nothing: `clean` reports later problems.
        """
        problem = None if self._was_good else self._targets.check()
        self._was_good = problem is None
        return problem

    def does(self, *, troubled: bool) -> bool:
        """Returns whether the policy does anything with such files."""
        return self._targets.path_of(troubled=troubled) is not None or (not troubled and self._options.policy == "delete")

    def clean(self, files: Sequence[FinishedFile]) -> list[CleanupOutcome]:
        """Cleans up files in order, for `CALL_SECONDS` at most. Those that are cleaned or gone are synced to disk."""
        until = time.monotonic() + CALL_SECONDS
        self._copies.keep_only({file.item for file in files})
        outcomes = [self._clean(file) if time.monotonic() < until else CleanupOutcome("kept", why="waits for its turn") for file in files]
        try:
            self._unsynced.flush()
        except OSError as error:
            unsure = CleanupOutcome("kept", why=f"the disk did not confirm it: {error.strerror}", retry_seconds=None)
            return [unsure if one.state in ("cleaned", "gone") else one for one in outcomes]
        if any(one.state == "cleaned" for one in outcomes):
            failpoints.hit("cleaned")
        return outcomes

    def expire(self) -> None:
        """Deletes files that were put into the targets longer than `retain` ago. Called with every scan; works once a minute."""
        if not self._retain or time.monotonic() < self._next_expiry:
            return
        self._next_expiry = time.monotonic() + EXPIRE_SECONDS
        for path, retention in self._retain.items():
            try:
                with target(path, make=False) as root:
                    deleted = retention.expire(root)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._log.warning("cannot delete files that are past retain", path=path, error=error)
            else:
                if deleted:
                    self._log.info("deleted files that are past retain", path=path, files=deleted)

    def close(self) -> None:
        """Called when the connector stops. The next one begins an unfinished copy anew."""
        self._copies.close()

    def _clean(self, file: FinishedFile) -> CleanupOutcome:
        try:
            return self._clean_up(file)
        except ChangedError as error:
            self._log.warning("a file has changed since it was read; it is not cleaned up", path=file.path, why=error)
            return CleanupOutcome("changed", why=str(error))
        except CleanupDelayedError as error:
            return CleanupOutcome("kept", why=error.why, retry_seconds=error.retry_seconds)
        except OSError as error:
            return CleanupOutcome("kept", why=self._targets.words(error, troubled=file.is_bad), retry_seconds=None)

    def _clean_up(self, file: FinishedFile) -> CleanupOutcome:
        """Cleans up one file. Raises ChangedError, CleanupDelayedError, OSError."""
        below = f"{self._directory.rstrip('/')}/"
        if not self.does(troubled=file.is_bad) or not file.path.startswith(below):
            return CleanupOutcome("stays")
        item, above = file.item, file.path.removeprefix(below).rpartition("/")[0]
        with ExitStack() as held:
            top = held.enter_context(folder(self._directory))
            try:
                home = held.enter_context(top.below(above))
            except FileNotFoundError:
                outcome = self._gone(file, item)
            else:
                self._unsynced.add(home)
                outcome = self._clean_in(home, above, file, item)
            if outcome.state == "cleaned":
                failpoints.hit("moved")
            if outcome.state in ("cleaned", "gone") and not self._options.keep_directories:
                top.prune(above)
            return outcome

    def _clean_in(self, home: Folder, above: str, file: FinishedFile, item: CleanupItem) -> CleanupOutcome:
        state = seen(home, item.name, item)
        if state is not NameState.IT and finish_deletion(home, item):
            self._forget_copy(file, item)
            return CleanupOutcome("cleaned")
        if state is NameState.NOTHING:
            return self._gone(file, item)
        if state is NameState.OTHER:
            self._forget_copy(file, item)
            raise ChangedError("it was replaced or written to since it was read")
        if is_written(home, item.name):  # data written to it after it was removed would never be read
            raise CleanupDelayedError("a program has it open for writing")
        path = self._targets.path_of(troubled=file.is_bad)
        if path is None:
            remove_done_file(file.done_file, self._unsynced)
            delete(home, item, unless_written=True)
            self._log.debug("deleted a file", path=file.path)
            return CleanupOutcome("cleaned")
        return self._set_aside(home, above, file, item, path)

    def _set_aside(self, home: Folder, above: str, file: FinishedFile, item: CleanupItem, path: str) -> CleanupOutcome:
        with target(path) as root:
            self._targets.refuse(root, home)
            if path not in self._swept:
                self._copies.sweep(root)
                self._swept.add(path)
            dated = self._options.policy == "move_by_date" and not file.is_bad
            rest = "/".join(filter(None, (f"{target_notes.moment(file.mtime_ns):%Y-%m-%d}" if dated else "", above)))
            with root.made(rest) as goal:
                self._unsynced.add(goal)
                put = FilePlacement(root, rest, goal, self._retain.get(path), self._copies)
                put.done_file(file.done_file, self._unsynced)
                name = put.file(home, item, lambda: self._choose(put, file, item))
                self._unsynced.add(goal)
        where = f"{goal.path}/{name}"
        if file.is_bad:
            self._log.error("a bad file is set aside", path=file.path, target=where, why=file.trouble)
        else:
            self._log.debug("moved a file", path=file.path, target=where)
        return CleanupOutcome("cleaned", where)

    def _choose(self, put: FilePlacement, file: FinishedFile, item: CleanupItem) -> str:
        """Returns a free name; for a bad file it also writes the explanation beside it."""
        if not file.is_bad:
            return free_name(put.goal, item.name)
        name = target_notes.explain(put.goal, item, target_notes.explanation(self._facts(file), item, file.trouble))
        put.note(name + target_notes.SUFFIX)
        return name

    def _facts(self, file: FinishedFile) -> dict[str, object]:
        reached = {"record_reached": file.records, "byte_reached": None if file.counts_records else file.position}
        printable = os.fsencode(file.path).decode("utf-8", "backslashreplace")
        return {"connector": self._connector, "file": printable, **reached}

    def _gone(self, file: FinishedFile, item: CleanupItem) -> CleanupOutcome:
        self._forget_copy(file, item)
        return CleanupOutcome("gone")

    def _forget_copy(self, file: FinishedFile, item: CleanupItem) -> None:
        path = self._targets.path_of(troubled=file.is_bad)
        if path is not None and self._options.across_devices == "copy":
            try:
                with target(path, make=False) as root:
                    self._copies.forget(root, item)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ELOOP):
                    raise
