"""The connection to the store's file: one lock around it, SQLite's errors translated, the write-ahead log folded.

After an error that is not retriable the connection is given up for the life of the process.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.errors import CopycatError, FatalError, RetriableError, bug_words
from copycat_agent.offsets import agent_identity
from copycat_agent.offsets.state_dir import DATABASE, leave_marker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.offsets.state_dir import StateDir

_WAL_LIMIT_BYTES = 4 * 2**20  # above this the write-ahead log is folded into the database
_LOOK_ROWS = 64  # rows between two looks at its size: each writes two pages of 4 KiB, seldom three
_FREE_PAGES_LIMIT = 256  # 1 MiB of unused pages; above this a prune gives them back to the file system

_log = logs.get("offsets")

RETRIABLE = {
    sqlite3.SQLITE_FULL: "no space is left for the offset store",
    sqlite3.SQLITE_BUSY: "another program has locked the offset store",
    sqlite3.SQLITE_LOCKED: "another program has locked the offset store",
    sqlite3.SQLITE_READONLY: "the offset store is read-only",
    sqlite3.SQLITE_NOMEM: "no memory is left for the offset store",
    sqlite3.SQLITE_CANTOPEN: "the offset store cannot be opened",
    sqlite3.SQLITE_INTERRUPT: "the offset store was interrupted",
}
"""Primary result codes after which the same commit may be tried again: SQLite has rolled back and nothing is lost.

Everything else is fatal, above all SQLITE_IOERR: after a failed fsync the kernel may have dropped the pages, and a second
fsync that succeeds proves nothing.
"""

_DAMAGE = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR})

_OF_STATEMENTS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError)


class HeldFile:
    """Thread-safe. After a failure that is not retriable every use raises it."""

    def __init__(self, connection: sqlite3.Connection, directory: StateDir | None, *, rebuilds: bool = False) -> None:
        """`rebuilds`: should the file be removed or replaced, a new process can go on."""
        self._connection = connection
        self._directory = directory
        self._rebuilds = rebuilds
        self._lock = threading.RLock()
        self._refusal: FatalError | None = None
        self._failure: FatalError | None = None
        self._path = str(directory.path / DATABASE) if directory else ""
        self._rows_since_look = 0
        self._inode = os.stat(self._path).st_ino if directory else 0  # noqa: PTH116 - a str path

    @property
    def failure(self) -> FatalError | None:
        """Why the store refuses everything, when a new process that opens it helps; else None. For any thread.

        Not when its file was removed or replaced: a new process would begin with other offsets, or none. But with `rebuilds`, when
        it can take them from Kafka.
        """
        return self._failure

    @property
    def refusal(self) -> str:
        """Why it refuses everything, in words; "" while it works. For any thread."""
        return str(self._refusal) if self._refusal else ""

    def close(self) -> None:
        """Fold the write-ahead log into the database, close it, free the lock. Idempotent; later calls raise FatalError."""
        with self._lock:
            if self._refusal is None:
                self._refusal = FatalError("the offset store is closed")
                with suppress(sqlite3.Error):  # the log stays, and the next open reads it
                    self._connection.close()
            if self._directory:
                self._directory.release()

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """The connection, locked; errors of SQLite translated, the fatal ones remembered."""
        with self._lock:
            self._check_usable()
            try:
                yield self._connection
            except sqlite3.Error as error:
                if is_callers(error):
                    raise unsaved(error) from error
                failure = translate(error)
                if isinstance(failure, FatalError):
                    self._give_up(failure)
                    self._failure = self._failure or failure
                raise failure from error
            except MemoryError as error:  # how Python tells SQLITE_NOMEM
                raise RetriableError(RETRIABLE[sqlite3.SQLITE_NOMEM]) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """`using` with a transaction around it: committed at the end, rolled back on any exception."""
        with self.using() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def _check_usable(self) -> None:
        if self._refusal is None and self._directory and not self._is_in_place():
            self._give_up(self._removed(self._directory))
        if self._refusal:
            raise FatalError(self._refusal.message, self._refusal.hint)

    def _removed(self, directory: StateDir) -> FatalError:
        """The refusal when the file is not the one that was opened; with `rebuilds` a new process goes on."""
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
            msg = f"the offset store cannot be reached: {error.strerror}"
            raise RetriableError(msg) from error

    def _give_up(self, failure: FatalError) -> None:
        """Refuse everything from now on, and keep SQLite from touching the file again.

        Closing would checkpoint, which is to retry a failed fsync and then drop the log that the next start recovers from.
        Hence one reference too many: the connection lives until the process ends.
        """
        if self._refusal is None:
            self._refusal = failure
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    def _fold_wal(self, limit_bytes: int) -> None:
        """Checkpoint when the log is over the limit. Called after a commit: that one is durable whatever happens here.

        Not SQLite's automatic checkpoint: that one swallows its errors and would retry a failed fsync.
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
        """Fold the write-ahead log when it is over its limit; a few rows more cannot have made it so."""
        self._rows_since_look += rows
        if self._rows_since_look >= _LOOK_ROWS:
            self._rows_since_look = 0
            self._fold_wal(_WAL_LIMIT_BYTES)

    def _give_back_space(self) -> None:
        """Unused pages go back to the file system. After a commit: that one is durable whatever happens here."""
        with self.using() as connection:
            (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
            if free_pages > _FREE_PAGES_LIMIT:
                connection.executescript("PRAGMA incremental_vacuum")  # execute() would stop after one page
                self._fold_wal(limit_bytes=0)


def is_callers(error: Exception) -> bool:
    """Whether it belongs to who asked for this: a value that cannot be stored, or a bug. The store is as good as before."""
    return not isinstance(error, sqlite3.Error | MemoryError) or isinstance(error, _OF_STATEMENTS)


def unsaved(error: Exception) -> CopycatError:
    """The refusal of what somebody asked for, when that `is_callers`."""
    if isinstance(error, CopycatError):
        return error
    return FatalError(f"this cannot be saved: {bug_words(error)}", "this is a bug in copycat-agent: please report it")


def primary(error: sqlite3.Error) -> int:
    """Primary result code; SQLITE_ERROR when Python raised without one (a text that is not UTF-8)."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Whether `error`, met while reading a store, says that the file itself is broken (not its surroundings)."""
    return primary(error) in _DAMAGE


def translate(error: sqlite3.Error) -> CopycatError:
    """The error of this package that says what the caller can do."""
    words = RETRIABLE.get(primary(error))
    if words is not None:
        return RetriableError(f"{words} ({error})")
    if is_damage(error):
        hint = "stop the agent and start it again: it checks the store and moves it aside"
        return FatalError(f"the offset store is damaged ({error})", hint)
    return FatalError(f"the offset store failed ({error})", "check the disk (dmesg, smartctl); then start the agent again")
