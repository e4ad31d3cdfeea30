"""What becomes of a spooled file once Kafka has every record of it and its offset is on disk.

Every step leaves something that the next call finishes: a kill between any two of them costs nothing. The order is: explanation of a bad
file, done file, the file itself, empty directories, sync. The done file goes first: while its file is there it cannot be mistaken for
that of a new file of the same name.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from copycat_agent import failpoints
from copycat_agent.errors import BlockedError
from copycat_agent.logs import Log
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.paths.matching import normalise
from copycat_agent.sources.spool_dir.cleanup import quarantine
from copycat_agent.sources.spool_dir.cleanup.cleanup_copy import Copies, Put, remove_done_file
from copycat_agent.sources.spool_dir.cleanup.cleanup_folders import Folder, Unsynced, folder, target
from copycat_agent.sources.spool_dir.cleanup.cleanup_moves import (
    ChangedError,
    Item,
    KeptError,
    Seen,
    delete,
    finish_deletion,
    free_name,
    is_written,
    seen,
)
from copycat_agent.sources.spool_dir.cleanup.cleanup_targets import Targets
from copycat_agent.sources.spool_dir.cleanup.retain import Retention
from copycat_agent.sources.spool_dir.cleanup.spent import Outcome, Spent, item_of, moment
from copycat_agent.sources.spool_dir.spool_options import CleanupOptions

__all__ = ["Cleaner", "Outcome", "Spent"]

CALL_SECONDS = 0.25
"""What does not fit into a call waits for the next one, so that reading goes on."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_EXPIRE_SECONDS = 60.0
_REMEMBERED = 1000
"""Files that nobody asks for any more, and whose pauses are remembered all the same."""


class _Wait(NamedTuple):
    """A file that could not be cleaned up: not to be tried again before `until` (monotonic)."""

    until: float
    pause_seconds: float
    outcome: Outcome


class Cleaner:
    """Cleans up one connector's files. Used by its thread only; raises nothing for files.

    `recursive`: directories below `directory` are read too, so no target may lie there. `clock` is time.time.
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
        self._targets = Targets(self._directory, options, recursive=recursive)
        self._retain = {path: Retention(connector, options.retain, clock) for path in self._targets.paths} if options.retain else {}
        self._copies = Copies(connector)
        self._swept: set[str] = set()
        self._waiting: dict[tuple[str, Identity], _Wait] = {}
        self._unsynced = Unsynced()
        self._next_expiry = 0.0
        self._was_good = False

    def check(self) -> BlockedError | None:
        """What a person has to change before this can work; None when it can. Makes targets that are missing.

        Once all was well it is not looked at again: `clean` says what goes wrong later.
        """
        problem = None if self._was_good else self._targets.check()
        self._was_good = problem is None
        return problem

    def does(self, *, troubled: bool) -> bool:
        """Whether anything is to be done with such files at all."""
        return self._targets.path_of(troubled=troubled) is not None or (not troubled and self._options.policy == "delete")

    def clean(self, files: Sequence[Spent]) -> list[Outcome]:
        """Do what is to be done, in order, for `CALL_SECONDS` at most. What is cleaned or gone stays so after a power cut."""
        until = time.monotonic() + CALL_SECONDS
        self._copies.keep_only({item_of(file) for file in files})
        if len(self._waiting) > len(files) + _REMEMBERED:
            asked = {file[:2] for file in files}
            self._waiting = {key: wait for key, wait in self._waiting.items() if key in asked}
        outcomes = [self._clean(file) if time.monotonic() < until else self._put_off(file) for file in files]
        try:
            self._unsynced.flush()
        except OSError as error:
            why = f"the disk did not confirm it: {error.strerror}"
            return [Outcome("kept", why=why, retry_seconds=_PAUSE_SECONDS) if one.state in ("cleaned", "gone") else one for one in outcomes]
        if any(one.state == "cleaned" for one in outcomes):
            failpoints.hit("cleaned")
        return outcomes

    def expire(self) -> None:
        """Delete what was put into the targets `retain` ago. Call it with every scan; it looks once a minute, at a bounded number."""
        if not self._retain or time.monotonic() < self._next_expiry:
            return
        self._next_expiry = time.monotonic() + _EXPIRE_SECONDS
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
        """The connector stops. A copy under way is begun anew by the next one."""
        self._copies.close()

    def _put_off(self, file: Spent) -> Outcome:
        wait = self._waiting.get(file[:2])
        return wait.outcome if wait else Outcome("kept", why="waits for its turn")

    def _clean(self, file: Spent) -> Outcome:
        wait = self._waiting.get(file[:2])
        now = time.monotonic()
        if wait is not None and now < wait.until:
            return wait.outcome._replace(retry_seconds=wait.until - now)
        try:
            outcome = self._settle(file)
        except ChangedError as error:
            outcome = Outcome("changed", why=str(error))
        except KeptError as error:
            return self._keep(file, error.why, error.retry_seconds)
        except OSError as error:
            return self._keep(file, self._targets.words(error, troubled=bool(file.trouble)), None)
        self._waiting.pop(file[:2], None)
        if outcome.state == "changed":
            self._log.warning("a file has changed since it was read; it is not cleaned up", path=file.path, why=outcome.why)
        return outcome

    def _keep(self, file: Spent, why: str, retry_seconds: float | None) -> Outcome:
        if retry_seconds is not None:
            return Outcome("kept", why=why, retry_seconds=retry_seconds)
        before = self._waiting.get(file[:2])
        pause = min(before.pause_seconds * 2, _LONGEST_PAUSE_SECONDS) if before else _PAUSE_SECONDS
        outcome = Outcome("kept", why=why, retry_seconds=pause)
        self._waiting[file[:2]] = _Wait(time.monotonic() + pause, pause, outcome)
        self._log.warning("a file that is done cannot be cleaned up; it is not read again", path=file.path, why=why)
        return outcome

    def _settle(self, file: Spent) -> Outcome:
        """One file, once. Raises ChangedError, KeptError, OSError."""
        troubled = bool(file.trouble)
        if not self.does(troubled=troubled) or not file.path.startswith(self._directory.rstrip("/") + "/"):
            return Outcome("stays")
        item = item_of(file)
        with ExitStack() as held:
            top = held.enter_context(folder(self._directory))
            above = file.path[len(self._directory.rstrip("/")) + 1 :].rpartition("/")[0]
            try:
                home = held.enter_context(top.below(above))
            except FileNotFoundError:
                return self._gone(file, item)
            self._unsynced.add(home)
            outcome = self._settle_in(home, above, file, item)
            if outcome.state == "cleaned":
                failpoints.hit("moved")
            if outcome.state in ("cleaned", "gone") and not self._options.keep_directories:
                top.prune(above)
            return outcome

    def _settle_in(self, home: Folder, above: str, file: Spent, item: Item) -> Outcome:
        state = seen(home, item.name, item)
        if state is not Seen.IT and finish_deletion(home, item):
            self._forget_copy(file, item)
            return Outcome("cleaned")
        if state is Seen.NOTHING:
            return self._gone(file, item)
        if state is Seen.OTHER:
            self._forget_copy(file, item)
            return Outcome("changed", why="it was replaced or written to since it was read")
        if is_written(home, item.name):  # what is written to it when it is away would never be read
            raise KeptError("a program has it open for writing")
        path = self._targets.path_of(troubled=bool(file.trouble))
        if path is None:
            remove_done_file(file.done_file, self._unsynced)
            delete(home, item, unless_written=True)
            self._log.debug("deleted a file", path=file.path)
            return Outcome("cleaned")
        return self._set_aside(home, above, file, item, path)

    def _set_aside(self, home: Folder, above: str, file: Spent, item: Item, path: str) -> Outcome:
        with target(path) as root:
            self._targets.refuse(root, home)
            if path not in self._swept:
                self._copies.sweep(root)
                self._swept.add(path)
            dated = self._options.policy == "move_by_date" and not file.trouble
            rest = "/".join(filter(None, (f"{moment(file.mtime_ns):%Y-%m-%d}" if dated else "", above)))
            with root.made(rest) as goal:
                self._unsynced.add(goal)
                put = Put(root, rest, goal, self._retain.get(path), self._copies)
                put.done_file(file.done_file, self._unsynced)
                name = put.file(home, item, lambda: self._choose(put, file, item))
                self._unsynced.add(goal)
        where = f"{goal.path}/{name}"
        if file.trouble:
            self._log.error("a bad file is set aside", path=file.path, target=where, why=file.trouble)
        else:
            self._log.debug("moved a file", path=file.path, target=where)
        return Outcome("cleaned", where)

    def _choose(self, put: Put, file: Spent, item: Item) -> str:
        """A free name; beside that of a bad file its explanation stands from now on."""
        if not file.trouble:
            return free_name(put.goal, item.name)
        while True:
            name = quarantine.free_pair(put.goal, item)
            try:
                quarantine.write_explanation(put.goal, name, item, quarantine.explanation(self._facts(file), item, file.trouble))
            except FileExistsError:
                continue
            put.note(name + quarantine.SUFFIX)
            return name

    def _facts(self, file: Spent) -> dict[str, object]:
        reached = {"record_reached": file.records, "byte_reached": None if file.counts_records else file.position}
        counts = file.counts
        became = (
            {name: getattr(counts, name) for name in ("read", "acknowledged", "dead_lettered", "dropped", "rejected")} if counts else None
        )
        printable = os.fsencode(file.path).decode("utf-8", "backslashreplace")
        return {"connector": self._connector, "file": printable, **reached, "records": became, "digest": file.digest}

    def _gone(self, file: Spent, item: Item) -> Outcome:
        self._forget_copy(file, item)
        return Outcome("gone")

    def _forget_copy(self, file: Spent, item: Item) -> None:
        path = self._targets.path_of(troubled=bool(file.trouble))
        if path is not None and self._options.across_devices == "copy":
            try:
                with target(path, make=False) as root:
                    self._copies.forget(root, item)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ELOOP):
                    raise
