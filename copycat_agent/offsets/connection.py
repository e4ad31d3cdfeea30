"""The connection to the store's file, guarded by one lock. Threads that commit at the same time share a transaction.

The write-ahead log is checkpointed here as well. After an error that is not retriable the connection is not used again in this process.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from copycat_agent import logs
from copycat_agent.errors import CopycatError, DataError, FatalError, FencedError, RetriableError
from copycat_agent.model import Account, Loss, SavedRow, SourceOffset, SourcePartition
from copycat_agent.offsets import agent_identity, ledger, saved_rows
from copycat_agent.offsets.lanes import NOTHING_WRITTEN, LaneCommit, OperatorChange
from copycat_agent.offsets.sqlite_errors import RETRIABLE, is_callers, translate, unsaved
from copycat_agent.offsets.state_dir import DATABASE, StateDir, leave_marker
from copycat_agent.offsets.state_log import IDENTITY_KEY, ChangedRows, Changes, Entries, StateLog, everything
from copycat_agent.offsets.store_file import OpenedStore

_WAL_LIMIT_BYTES = 4 * 2**20  # above this the write-ahead log is checkpointed
_LOOK_ROWS = 64  # rows between two looks at its size: each row writes two pages of 4 KiB, rarely three
_FREE_PAGES_LIMIT = 256  # 1 MiB of unused pages; above this a prune gives them back to the file system

_log = logs.get("offsets")


@dataclass(slots=True)
class Commit:
    """The changes that one thread wants to save, all or nothing. Commits that share a transaction do not share failures.

    `lanes` are changes to exactly-once lanes, None for a connector without them. `is_done` becomes true once it is saved, or refused with
    `error`.
    """

    rows: Mapping[SourcePartition, SavedRow]
    forget: Collection[SourcePartition] = ()
    losses: Collection[Loss] = ()
    accounts: Mapping[SourcePartition, Account] = field(default_factory=dict)
    lanes: LaneCommit | OperatorChange | None = None
    allow_rewind: bool = False
    error: CopycatError | None = None
    is_done: bool = False

    def __bool__(self) -> bool:
        """Returns whether there is anything to save."""
        lanes = self.lanes if isinstance(self.lanes, LaneCommit) else None
        return bool(self.rows or self.forget or self.losses or self.accounts or lanes)

    def save(self, connection: sqlite3.Connection, entries: ledger.Ledger) -> bool:
        """Saves all of it, or nothing and sets `error`. Returns whether rows were deleted. Raises errors of the store itself only.

        Any other error concerns this commit alone, not those that share its transaction.
        """
        connection.execute("SAVEPOINT one")
        try:
            self.error = None if self.allow_rewind else self._backwards(connection)
            deleted = self.error is None and self._save(connection, entries)
        except Exception as error:
            if not (is_callers(error) and connection.in_transaction):
                raise
            self.error, deleted = unsaved(error), False
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return deleted

    def _backwards(self, connection: sqlite3.Connection) -> FatalError | None:
        """Returns an error if a position or a lane would move back. Positions that are not numbers have no order."""
        for partition, row in self.rows.items():
            if (position := saved_rows.further(connection, partition, row)) is not None and isinstance(row, SourceOffset):
                words = f"from {position} to {row.position}"
                msg = f"offset of connector {partition.connector}, partition {partition.key} would move backwards {words}"
                return FatalError(msg, "this is a bug in copycat-agent; to go back on purpose: copycat offsets set")
        return self.lanes.refusal(connection) if self.lanes is not None else None

    def _save(self, connection: sqlite3.Connection, entries: ledger.Ledger) -> bool:
        saved_rows.save(connection, self.rows)
        if self.forget:
            saved_rows.delete(connection, self.forget)
        if self.accounts:
            ledger.add_accounts(connection, self.accounts)
        if self.lanes is not None:
            self.lanes.save(connection, dict.fromkeys((*self.rows, *self.forget)))
        return (bool(self.losses) and entries.enter(connection, self.losses)) or bool(self.forget)


class _Replica(NamedTuple):
    """A log to which changes are also written, and a record of what each transaction changes."""

    log: StateLog
    changed: ChangedRows


class OpenStore:
    """An open store. Thread-safe. After a failure that is not retriable every use raises it."""

    def __init__(self, opened: OpenedStore, directory: StateDir | None, *, rebuilds: bool = False) -> None:
        """`rebuilds`: a new process can go on if the file is removed or replaced."""
        self._connection = opened.connection
        self._kept = opened.kept
        self._directory = directory
        self._rebuilds = rebuilds
        self._lock = threading.RLock()
        self._refusal: FatalError | None = None
        self._failure: FatalError | None = None
        self._path = str(directory.path / DATABASE) if directory else ""
        self._rows_since_look = 0
        self._waiting: deque[Commit] = deque()
        self._replica: _Replica | None = None
        self._ledger = ledger.Ledger()
        self._inode = os.stat(self._path).st_ino if directory else 0  # noqa: PTH116 - a str path

    @property
    def failure(self) -> FatalError | None:
        """The failure after which a new process can open the store and go on; None otherwise. For any thread.

        It is None if the file was removed or replaced: a new process would begin with other offsets, or none, unless `rebuilds` says that
        it can take them from Kafka.
        """
        return self._failure

    @property
    def refusal(self) -> str:
        """Why the store refuses everything; "" while it works. For any thread."""
        return str(self._refusal) if self._refusal else ""

    def close(self) -> None:
        """Checkpoints and closes the database, and frees the lock. Idempotent; later calls of other methods raise FatalError."""
        with self._lock:
            if self._refusal is None:
                self._refusal = FatalError("the offset store is closed")
                with suppress(sqlite3.Error):  # the write-ahead log stays then, and the next open reads it
                    self._connection.close()
            if self._directory:
                self._directory.release()

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection under the lock. Translates errors of SQLite, and remembers fatal ones."""
        with self._lock:
            self._check_usable()
            try:
                yield self._connection
            except sqlite3.Error as error:
                if is_callers(error):
                    raise unsaved(error) from error
                failure = translate(error, self._path)
                if isinstance(failure, FatalError):
                    self._give_up(failure)
                    self._failure = self._failure or failure
                raise failure from error
            except MemoryError as error:  # how Python tells SQLITE_NOMEM
                raise RetriableError(RETRIABLE[sqlite3.SQLITE_NOMEM]) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """As `using`, within a transaction that is committed at the end, or rolled back on any exception."""
        with self.using() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                if self._replica is not None:
                    self._publish(self._replica.changed.changes(), self._kept)
                self._commit(connection)
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except BaseException:
            if self._replica is not None:
                self._replica.log.doubt()
            raise

    def replicate(self, log: StateLog, there: Entries) -> None:
        """Writes all changes to `log` as well from now on, before they count as saved; first what differs from `there`.

        Raises RetriableError if that fails now, FencedError if another process writes there.
        """
        with self._lock:
            entries = everything(self._connection, self._kept)
            log.publish({**dict.fromkeys(there.keys() - entries.keys()), **dict(entries.items() - there.items())}, lambda: entries)
            self._replica = _Replica(log, ChangedRows(self._connection))

    def _publish(self, changes: Changes, kept: agent_identity.StoredIdentity) -> None:
        """Raises RetriableError, and FatalError once another process has taken over."""
        if self._replica is None or not changes:
            return
        try:
            self._replica.log.publish(changes, lambda: everything(self._connection, kept))
        except FencedError as error:
            raise self.mark_fenced(str(error)) from error

    def mark_fenced(self, why: str) -> FatalError:
        """Refuses everything from now on, because another process has taken over this agent's state. Returns the error to raise."""
        failure = FatalError(f"another process has taken over: {why}", "start this one again with --standby, and it takes over in its turn")
        with self._lock:
            self._give_up(failure)
            self._failure = self._failure or failure
        return failure

    def _save_identity(self, kept: agent_identity.StoredIdentity) -> None:
        """Saves the agent's identity durably. Raises RetriableError if that fails now."""
        if self._directory is not None:
            agent_identity.save(self._directory, kept)
        self._publish({IDENTITY_KEY: agent_identity.text_of(kept).encode()}, kept)

    def commit(
        self,
        saved: Mapping[SourcePartition, SavedRow],
        forget: Collection[SourcePartition] = (),
        losses: Collection[Loss] = (),
        accounts: Mapping[SourcePartition, Account] | None = None,
        moved: LaneCommit | None = NOTHING_WRITTEN,
        *,
        allow_rewind: bool = False,
    ) -> bool:
        """Saves rows, deletes `forget`, enters `losses`, adds to `accounts` and saves lanes that `moved`, in one transaction.

        `moved` is None for a connector that runs without lanes after `leave_lanes`. What is in both `saved` and `forget` is deleted.
        Returns whether there was anything to save. Raises FatalError if an offset, or a lane, would move backwards, which is a bug unless
        `allow_rewind`.
        """
        return self._write(Commit(saved, forget, losses, accounts or {}, moved, allow_rewind))

    @property
    def waiting(self) -> int:
        """The number of commits that wait for the one being written; the next transaction takes them all."""
        return len(self._waiting)

    def _check_usable(self) -> None:
        if self._refusal is None and self._directory and not self._is_in_place():
            self._give_up(self._removed(self._directory))
        if self._refusal:
            raise FatalError(self._refusal.message, self._refusal.hint)

    def _removed(self, directory: StateDir) -> FatalError:
        """Returns the error for a file that is no longer the one that was opened. With `rebuilds` a new process can go on."""
        msg = f"{self._path} was removed or replaced while the agent runs: commits would be lost"
        hint = "stop the agent, put the file back, start again; without it every file is read from its start_at again"
        if not self._rebuilds or not (directory.path / agent_identity.NAME).exists():
            return FatalError(msg, hint)
        failure = FatalError(msg, "the next start takes the positions of exactly-once connectors from Kafka")
        if not os.path.lexists(self._path):
            with suppress(OSError):
                leave_marker(directory, Path(self._path), "the offset store was removed while the agent ran")
        self._failure = self._failure or failure
        return failure

    def _is_in_place(self) -> bool:
        try:
            return os.stat(self._path, follow_symlinks=False).st_ino == self._inode  # noqa: PTH116 - a str path
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RetriableError(f"the offset store cannot be reached: {error.strerror}") from error

    def _give_up(self, failure: FatalError) -> None:
        """Refuses everything from now on, and keeps SQLite from touching the file again.

        Closing would checkpoint: retry a failed fsync, and then drop the log that the next start must recover from. The extra reference
        keeps the connection open until the process ends.
        """
        if self._refusal is None:
            self._refusal = failure
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    def _fold_wal(self, limit_bytes: int) -> None:
        """Checkpoints if the write-ahead log exceeds the limit. Called after a commit, which is durable whatever happens here.

        SQLite's automatic checkpoint is off, because it hides its errors and would retry a failed fsync.
        """
        with suppress(FileNotFoundError):
            if self._directory is None or os.stat(f"{self._path}-wal").st_size <= limit_bytes:  # noqa: PTH116 - a str path
                return
            try:
                with self.using() as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except RetriableError as error:
                _log.warning("write-ahead log of the offset store keeps growing", error=error)
            except FatalError as error:
                _log.error("offset store failed; offsets committed so far are safe", error=error)

    def _look_at_wal(self, rows: int) -> None:
        """Counts the rows written, and checks the size of the write-ahead log every `_LOOK_ROWS`."""
        self._rows_since_look += rows
        if self._rows_since_look >= _LOOK_ROWS:
            self._rows_since_look = 0
            self._fold_wal(_WAL_LIMIT_BYTES)

    def _give_back_space(self) -> None:
        """Returns unused pages to the file system. Called after a commit, which is durable whatever happens here."""
        with self.using() as connection:
            (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
            if free_pages > _FREE_PAGES_LIMIT:
                connection.executescript("PRAGMA incremental_vacuum")  # execute() would stop after one page
                self._fold_wal(limit_bytes=0)

    def _write(self, commit: Commit) -> bool:
        """Queues the commit; the first thread to get the lock writes all that wait. Returns whether there was anything to write."""
        if not commit:
            return False
        self._waiting.append(commit)
        with self._lock:
            if not commit.is_done:
                self._write_group([self._waiting.popleft() for _ in range(len(self._waiting))])
        if commit.error:
            # A new exception each time, because several threads may raise for one failure.
            raise type(commit.error)(commit.error.message, commit.error.hint)
        return True

    def _write_group(self, group: list[Commit]) -> None:
        """Writes these in one transaction. A commit that is refused, or cannot be saved, is left out without effect on the others."""
        failure: CopycatError = RetriableError("the commit was interrupted")
        is_written = deleted = False
        try:
            with self.writing() as connection:
                for commit in group:
                    deleted |= commit.save(connection, self._ledger)
            is_written = True
            self._look_at_wal(sum(len(commit.rows) for commit in group))
            if deleted:
                self._give_back_space()
        except DataError as error:
            failure = error
            if len(group) > 1:  # the log refuses one of them
                for commit in group:
                    self._write_group([commit])
        except CopycatError as error:
            failure = error
        finally:
            for commit in group:
                if not (is_written or commit.is_done):
                    commit.error = commit.error or failure
                commit.is_done = True
