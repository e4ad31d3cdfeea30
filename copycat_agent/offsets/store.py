"""`OffsetStore`: read and commit the offsets of all connectors."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.model import SourcePartition
from copycat_agent.offsets import accounts as books
from copycat_agent.offsets import ledger, schema
from copycat_agent.offsets.commits import Commit
from copycat_agent.offsets.opening import DATABASE, connect, open_checked, open_existing
from copycat_agent.offsets.outcomes import translate
from copycat_agent.offsets.state_dir import StateDir

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from typing import Self

    from copycat_agent.model import Account, Loss, LossReason, LossTotal, SourceOffset

_WAL_LIMIT_BYTES = 4 * 2**20  # above this the write-ahead log is folded into the database
_LOOK_ROWS = 64  # rows between two looks at its size: each writes two pages of 4 KiB, seldom three
_FREE_PAGES_LIMIT = 256  # 1 MiB of unused pages; above this a prune gives them back to the file system

TARGETS = ("running", "paused", "stopped")
"""What a person may ask a connector to be."""

_log = logs.get("offsets")


class OffsetStore:
    """All methods are thread-safe and serialised; connectors that commit at the same time share one transaction.

    A write that returns is on disk (WAL, synchronous=FULL). Writes raise `RetriableError` when nothing was written and the
    same call may be repeated (disk full, read-only), `FatalError` when the store can no longer be trusted: then every later
    call raises it too, and only a new process may look at the file again.
    """

    def __init__(self, connection: sqlite3.Connection, directory: StateDir | None = None) -> None:
        """For `open` and `in_memory`."""
        self._connection = connection
        self._directory = directory
        self._lock = threading.RLock()
        self._waiting: deque[Commit] = deque()
        self._ledger = ledger.Ledger()
        self._refusal: FatalError | None = None
        self._failure: FatalError | None = None
        self._path = str(directory.path / DATABASE) if directory else ""
        self._rows_since_look = 0
        self._inode = os.stat(self._path).st_ino if directory else 0  # noqa: PTH116 - a str path
        (self.agent_uuid,) = connection.execute("SELECT uuid FROM agent").fetchone()

    @classmethod
    def open(cls, state_dir: str | os.PathLike[str], *, accept_empty: bool = False) -> OffsetStore:
        """Lock `state_dir` and open its store, made anew when there is none.

        FatalError, with what to do: the directory is not private, another agent holds it, a newer version wrote it, or the
        store is damaged. A damaged store is moved aside and a marker is left, so that later starts refuse as well, until a
        person removes the marker or passes `accept_empty`, which means: go on with an empty store.
        """
        return cls._open(StateDir.acquire(Path(state_dir)), lambda directory: open_checked(directory, accept_empty=accept_empty))

    @classmethod
    def open_existing(cls, state_dir: str | os.PathLike[str]) -> OffsetStore:
        """For commands while no agent runs: lock and open what is there; nothing is created and nothing moved aside.

        FatalError as for `open`, also when there is no store. An older one is migrated, as the agent would.
        """
        return cls._open(StateDir.acquire(Path(state_dir), create=False), open_existing)

    @classmethod
    def _open(cls, directory: StateDir, connection_to: Callable[[StateDir], sqlite3.Connection]) -> OffsetStore:
        try:
            return cls(connection_to(directory), directory)
        except sqlite3.Error as error:
            directory.release()
            raise translate(error) from error
        except OSError as error:
            directory.release()
            msg = f"the offset store in {directory.path} cannot be opened: {error.strerror}"
            raise FatalError(msg) from error
        except BaseException:
            directory.release()
            raise

    @classmethod
    def in_memory(cls) -> OffsetStore:
        """A store without a file, for dry runs and tests."""
        connection = connect(":memory:")
        schema.migrate(connection)
        return cls(connection)

    def read(self, connector: str) -> dict[SourcePartition, SourceOffset]:
        """Everything committed for one connector; empty for one that is not known."""
        with self._using() as connection:
            return dict(map(schema.decode, connection.execute(f"{schema.SELECT} WHERE connector = ?", (connector,))))

    def offsets(self, connector: str) -> dict[SourcePartition, SourceOffset]:
        """`read`, by the name under which an agent answers the same question."""
        return self.read(connector)

    def connectors(self) -> tuple[str, ...]:
        """Names of all connectors that have offsets, sorted."""
        with self._using() as connection:
            return tuple(name for (name,) in connection.execute("SELECT DISTINCT connector FROM offsets ORDER BY connector"))

    def commit(
        self,
        offsets: Mapping[SourcePartition, SourceOffset],
        forget: Collection[SourcePartition] = (),
        losses: Collection[Loss] = (),
        accounts: Mapping[SourcePartition, Account] | None = None,
    ) -> None:
        """Save `offsets`, delete `forget`, enter `losses` and add to `accounts` in one transaction, all or none.

        What is in both `offsets` and `forget` is deleted. FatalError when an offset would move backwards: that is a bug.
        """
        rows = [schema.encode(*item) for item in offsets.items()]
        self._write(Commit(rows, list(forget), list(losses), may_rewind=False, accounts=accounts or {}))

    def reset(self, offsets: Mapping[SourcePartition, SourceOffset], forget: Collection[SourcePartition] = ()) -> None:
        """Like `commit`, but on a person's request: positions may move backwards."""
        self._write(Commit([schema.encode(*item) for item in offsets.items()], list(forget), [], may_rewind=True))

    def forget(self, partitions: Iterable[SourcePartition]) -> None:
        """Delete the offsets of exactly these partitions; unknown ones are ignored. Space goes back to the file system."""
        self.commit({}, forget=list(partitions))

    def losses(self, connector: str | None, limit: int) -> tuple[Loss, ...]:
        """The newest entries of the loss ledger, newest first; of all connectors with None.

        Of each connector about the newest `ledger.KEPT` entries are there; `loss_totals` holds all that ever was.
        """
        with self._using() as connection:
            return ledger.entries(connection, connector, limit)

    def loss_totals(self) -> dict[tuple[str, LossReason], LossTotal]:
        """By connector and reason, everything ever given up."""
        with self._using() as connection:
            return ledger.totals(connection)

    def accounts(self, connector: str) -> dict[SourcePartition, Account]:
        """What runs to the end did with each file since the last `begin_accounts`."""
        with self._using() as connection:
            return books.entries(connection, connector)

    def begin_accounts(self, connector: str) -> None:
        """The next run to the end begins its account with nothing."""
        with self._writing() as connection:
            books.forget(connection, connector)

    def targets(self) -> dict[str, str]:
        """What a person last asked each connector to be: running, paused or stopped. Others were never asked."""
        with self._using() as connection:
            return ledger.targets(connection)

    def set_target(self, name: str, target: str) -> None:
        """Remember that a person wants connector `name` running, paused or stopped."""
        assert target in TARGETS, target
        with self._writing() as connection:
            ledger.set_target(connection, name, target)

    def rename(self, old: str, new: str) -> int:
        """Give all that is saved for connector `old` to `new`, in one transaction; returns how many offsets moved.

        Partitions that `new` has already keep the offset they have there, and so does its target; losses are added up. Nothing
        to move is no error, so that a definition may say `renamed_from` for ever.
        """
        if old == new:
            return 0
        with self._writing() as connection:
            rows = connection.execute(f"{schema.SELECT} WHERE connector = ?", (old,)).fetchall()
            known = {key for (key,) in connection.execute("SELECT key FROM offsets WHERE connector = ?", (new,))}
            moved = [schema.decode(row) for row in rows if row[1] not in known]
            connection.executemany(schema.UPSERT, [schema.encode(SourcePartition(new, part.key), offset) for part, offset in moved])
            connection.execute("DELETE FROM offsets WHERE connector = ?", (old,))
            ledger.rename(connection, old, new)
            books.rename(connection, old, new)
        return len(moved)

    @property
    def failure(self) -> FatalError | None:
        """Why the store refuses everything, when a new process that opens it helps; else None. For any thread.

        Not when its file was removed or replaced: a new process would begin with other offsets, or none.
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

    def __enter__(self) -> Self:
        """Return the store; `close` follows."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _write(self, commit: Commit) -> None:
        """Queue it; whoever gets the lock first writes those of everyone who waits."""
        if not (commit.rows or commit.forget or commit.losses or commit.accounts):
            return
        self._waiting.append(commit)
        with self._lock:
            if not commit.settled:
                self._write_group([self._waiting.popleft() for _ in range(len(self._waiting))])
        if commit.error:
            # a new one each time: several threads raise for one failure
            raise type(commit.error)(commit.error.message, commit.error.hint)

    def _write_group(self, group: list[Commit]) -> None:
        """One transaction. A commit that must be refused is left out; the others in the group do not suffer from it."""
        failure: CopycatError = RetriableError("the commit was interrupted")
        written = deleted = False
        try:
            with self._writing() as connection:
                for commit in group:
                    commit.error = None if commit.may_rewind else commit.backwards(connection)
                    if commit.error is None:
                        deleted |= commit.save(connection, self._ledger)
            written = True
            self._look_at_wal(sum(len(commit.rows) for commit in group))
            if deleted:
                self._give_back_space()
        except CopycatError as error:
            failure = error
        finally:
            for commit in group:
                commit.error = commit.error if written or commit.error else failure
                commit.settled = True

    def _look_at_wal(self, rows: int) -> None:
        """Fold the write-ahead log when it is over its limit; a few rows more cannot have made it so."""
        self._rows_since_look += rows
        if self._rows_since_look >= _LOOK_ROWS:
            self._rows_since_look = 0
            self._fold_wal(_WAL_LIMIT_BYTES)

    def _give_back_space(self) -> None:
        """Unused pages go back to the file system. After a commit: that one is durable whatever happens here."""
        with self._using() as connection:
            (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
            if free_pages > _FREE_PAGES_LIMIT:
                connection.executescript("PRAGMA incremental_vacuum")  # execute() would stop after one page
                self._fold_wal(limit_bytes=0)

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The connection, locked; errors of SQLite translated, the fatal ones remembered."""
        with self._lock:
            self._check_usable()
            try:
                yield self._connection
            except sqlite3.Error as error:
                failure = translate(error)
                if isinstance(failure, FatalError):
                    self._give_up(failure)
                    self._failure = self._failure or failure
                raise failure from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """`_using` with a transaction around it: committed at the end, rolled back on any exception."""
        with self._using() as connection:
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
            self._give_up(
                FatalError(
                    f"{self._path} was removed or replaced while the agent runs: commits would be lost",
                    "stop the agent, put the file back, start again; without it every file is read from its start_at again",
                )
            )
        if self._refusal:
            raise FatalError(self._refusal.message, self._refusal.hint)

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
                with self._using() as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except RetriableError as error:
                _log.warning("write-ahead log of the offset store keeps growing", error=error)
            except FatalError as error:
                _log.error("offset store failed; offsets committed so far are safe", error=error)
