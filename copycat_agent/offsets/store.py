"""`OffsetStore`: read and commit the offsets of all connectors."""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.model import Account, SourcePartition
from copycat_agent.offsets import agent_identity, connector_names, lane_rows, lanes, ledger, schema
from copycat_agent.offsets.connection import is_callers, translate, unsaved
from copycat_agent.offsets.lane_store import LaneStore
from copycat_agent.offsets.state_dir import StateDir
from copycat_agent.offsets.store_file import OpenedStore, connect, open_checked, open_existing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Self

    from copycat_agent.model import Head, Loss, LossReason, LossTotal, SourceOffset
    from copycat_agent.offsets.schema import Row

TARGETS = ("running", "paused", "stopped")
"""What a person may ask a connector to be."""


@dataclass(slots=True)
class Commit:
    """Holds what one thread wants saved, all or nothing, in a transaction that others may share but not its failures.

    With `heads`, all of it belongs to `connector`. `settled` is True once it is saved, or refused with `error`. The others are those of
    `OffsetStore.commit`; `is_lost` is that of `lane_rows.changed`.
    """

    rows: list[Row]
    forget: list[SourcePartition]
    losses: list[Loss]
    may_rewind: bool
    error: CopycatError | None = None
    settled: bool = False
    accounts: Mapping[SourcePartition, Account] = field(default_factory=dict)
    heads: Mapping[int, Head] = field(default_factory=dict)
    connector: str = ""
    told: Collection[SourcePartition] = ()
    also: Mapping[SourcePartition, SourceOffset | None] = field(default_factory=dict)
    is_lost: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to save."""
        return bool(self.rows or self.forget or self.losses or self.accounts or self.heads or self.told or self.also)

    def backwards(self, connection: sqlite3.Connection) -> FatalError | None:
        """The refusal when a position or a lane would go back. Positions that are not numbers have no order."""
        for connector, key, position, *_ in self.rows:
            found = connection.execute("SELECT position FROM offsets WHERE connector = ? AND key = ?", (connector, key)).fetchone()
            if found and found[0].isdigit() and position.isdigit() and int(position) < int(found[0]):
                msg = f"offset of connector {connector}, partition {key} would move backwards from {found[0]} to {position}"
                return FatalError(msg, "this is a bug in copycat-agent; to go back on purpose: copycat offsets set")
        return lanes.backwards(connection, self.connector, self.heads) if self.heads else None

    def save(self, connection: sqlite3.Connection, entries: ledger.Ledger) -> bool:
        """Save all of it, or nothing and set `error`. Returns whether rows were deleted. Raises what is wrong with the store itself.

        Any other error belongs to the caller of this commit, not to those who share its transaction.
        """
        connection.execute("SAVEPOINT one")
        try:
            self.error = None if self.may_rewind else self.backwards(connection)
            deleted = self.error is None and self._save(connection, entries)
        except Exception as error:
            if not (is_callers(error) and connection.in_transaction):
                raise
            self.error, deleted = unsaved(error), False
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return deleted

    def _save(self, connection: sqlite3.Connection, entries: ledger.Ledger) -> bool:
        connection.executemany(schema.UPSERT, self.rows)
        if self.forget:
            connection.executemany("DELETE FROM offsets WHERE connector = ? AND key = ?", self.forget)
        if self.accounts:
            ledger.add_accounts(connection, self.accounts)
        saved = [SourcePartition(*row[:2]) for row in self.rows]
        untold = [one for one in dict.fromkeys((*saved, *self.forget)) if one not in self.told]
        lane_rows.changed(connection, untold, wish=self.may_rewind, is_lost=self.is_lost)
        if self.told or self.also:
            lane_rows.unmark(connection, self.told)
            lane_rows.told(connection, self.also)
        if self.heads:
            lanes.save_heads(connection, self.connector, self.heads)
        return (bool(self.losses) and entries.enter(connection, self.losses)) or bool(self.forget)


class OffsetStore(LaneStore):
    """All methods are thread-safe and serialised; connectors that commit at the same time share one transaction.

    A write that returns is on disk (WAL, synchronous=FULL). Writes raise `RetriableError` when nothing was written and the
    same call may be repeated (disk full, read-only), `FatalError` when the store can no longer be trusted: then every later
    call raises it too, and only a new process may look at the file again.
    """

    def __init__(self, opened: OpenedStore, directory: StateDir | None = None, *, rebuilds: bool = False) -> None:
        """For `open` and `in_memory`."""
        super().__init__(opened, directory, rebuilds=rebuilds)
        self._waiting: deque[Commit] = deque()

    @classmethod
    def open(cls, state_dir: str | os.PathLike[str], *, accept_empty: bool = False, rebuild: bool = False) -> OffsetStore:
        """Lock `state_dir` and open its store, made anew when there is none.

        FatalError, with what to do: the directory is not private, another agent holds it, a newer version wrote it, or the
        store is damaged. A damaged store is moved aside and a marker is left, so that later starts refuse as well, until a
        person removes the marker or passes `accept_empty`, which means: go on with an empty store. With `rebuild`, since there are
        exactly-once connectors, a new store is begun while the marker stands: see `damaged`.
        """
        directory = StateDir.acquire(Path(state_dir))
        return cls._open(directory, lambda: open_checked(directory, accept_empty=accept_empty, rebuild=rebuild), rebuilds=rebuild)

    @classmethod
    def open_existing(cls, state_dir: str | os.PathLike[str]) -> OffsetStore:
        """For commands while no agent runs: lock and open what is there; nothing is created and nothing moved aside.

        A command asks the agent, or holds its lock: the two never write at once.

        FatalError as for `open`, also when there is no store. An older one is migrated, as the agent would.
        """
        directory = StateDir.acquire(Path(state_dir), create=False)
        return cls._open(directory, lambda: open_existing(directory))

    @classmethod
    def _open(cls, directory: StateDir, opened: Callable[[], OpenedStore], *, rebuilds: bool = False) -> OffsetStore:
        try:
            return cls(opened(), directory, rebuilds=rebuilds)
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
        kept = agent_identity.fresh()
        schema.set_uuid(connection, kept.uuid)
        return cls(OpenedStore(connection, kept))

    def read(self, connector: str) -> dict[SourcePartition, SourceOffset]:
        """Everything committed for one connector; empty for one that is not known."""
        with self.using() as connection:
            return dict(map(schema.decode, connection.execute(f"{schema.SELECT} WHERE connector = ?", (connector,))))

    def offsets(self, connector: str) -> dict[SourcePartition, SourceOffset]:
        """`read`, by the name under which an agent answers the same question."""
        return self.read(connector)

    def connectors(self) -> tuple[str, ...]:
        """Names of all connectors that have offsets, sorted."""
        with self.using() as connection:
            return tuple(name for (name,) in connection.execute("SELECT DISTINCT connector FROM offsets ORDER BY connector"))

    def commit(  # noqa: PLR0913 - one transaction
        self,
        offsets: Mapping[SourcePartition, SourceOffset],
        forget: Collection[SourcePartition] = (),
        losses: Collection[Loss] = (),
        accounts: Mapping[SourcePartition, Account] | None = None,
        *,
        heads: Mapping[int, Head] | None = None,
        told: Collection[SourcePartition] = (),
        also: Iterable[tuple[SourcePartition, SourceOffset | None]] = (),
        connector: str = "",
    ) -> bool:
        """Save `offsets`, delete `forget`, enter `losses` and add to `accounts` in one transaction, all or none.

        Returns whether there was anything to save.

        What is in both `offsets` and `forget` is deleted. FatalError when an offset, or a lane, would move backwards: that is a bug.
        `heads` are those of lanes whose transaction is committed, all of one connector, which has to be named where it has no
        offset in this. `told` are partitions of which it told how far they are; others of a connector with lanes are `unpublished`
        from now on. `also` is a `LanePlan`'s: what the transaction told besides, which stays unpublished where something else is saved
        by now.
        """
        rows = [schema.encode(*item) for item in offsets.items()]
        commit = Commit(rows, list(forget), list(losses), may_rewind=False, accounts=accounts or {})
        commit.heads, commit.told, commit.also = heads or {}, frozenset(told), dict(also)
        if heads:
            names = {connector or None, *(one.connector for one in (*offsets, *forget, *commit.told, *commit.also))} - {None}
            assert len(names) == 1, "heads are saved with offsets of one connector"
            commit.connector = str(names.pop())
        return self._write(commit)

    def reset(self, offsets: Mapping[SourcePartition, SourceOffset], forget: Collection[SourcePartition] = ()) -> None:
        """Like `commit`, but on a person's request: positions may move backwards."""
        commit = Commit([schema.encode(*item) for item in offsets.items()], list(forget), [], may_rewind=True)
        commit.is_lost = bool(self._kept.nonces)
        self._write(commit)

    def forget(self, partitions: Iterable[SourcePartition]) -> None:
        """Delete the offsets of exactly these partitions, on a person's request; unknown ones are ignored."""
        self.reset({}, forget=list(partitions))

    def losses(self, connector: str | None, limit: int) -> tuple[Loss, ...]:
        """The newest entries of the loss ledger, newest first; of all connectors with None.

        Of each connector about the newest `ledger.KEPT` entries are there; `loss_totals` holds all that ever was.
        """
        with self.using() as connection:
            return ledger.entries(connection, connector, limit)

    def loss_totals(self) -> dict[tuple[str, LossReason], LossTotal]:
        """Returns everything ever given up, by connector and reason."""
        with self.using() as connection:
            return ledger.totals(connection)

    def accounts(self, connector: str) -> dict[SourcePartition, Account]:
        """Returns what runs to the end did with each file since the last `begin_accounts`."""
        with self.using() as connection:
            return ledger.accounts_of(connection, connector)

    def begin_accounts(self, connector: str) -> None:
        """The next run to the end begins its account with nothing."""
        with self.writing() as connection:
            ledger.forget_accounts(connection, connector)

    def targets(self) -> dict[str, str]:
        """Returns what a person last asked each connector to be: running, paused or stopped. Others were never asked."""
        with self.using() as connection:
            return ledger.targets(connection)

    def set_target(self, name: str, target: str) -> None:
        """Remember that a person wants connector `name` running, paused or stopped."""
        assert target in TARGETS, target
        with self.writing() as connection:
            ledger.set_target(connection, name, target)

    def rename(self, old: str, new: str) -> int:
        """Give all that is saved for connector `old` to `new`, in one transaction; returns how many offsets moved.

        Partitions that `new` has already keep the offset they have there, and so does its target; losses are added up. Nothing
        to move is no error, so that a definition may say `renamed_from` for ever.
        """
        if old == new:
            return 0
        with self.writing() as connection:
            rows = connection.execute(f"{schema.SELECT} WHERE connector = ?", (old,)).fetchall()
            known = {key for (key,) in connection.execute("SELECT key FROM offsets WHERE connector = ?", (new,))}
            moved = [schema.decode(row) for row in rows if row[1] not in known]
            connection.executemany(schema.UPSERT, [schema.encode(SourcePartition(new, part.key), offset) for part, offset in moved])
            connection.execute("DELETE FROM offsets WHERE connector = ?", (old,))
            ledger.rename(connection, old, new)
            ledger.rename_accounts(connection, old, new)
            kept = [SourcePartition(new, row[1]) for row in rows if row[1] in known]
            ours = [SourcePartition(new, part.key) for part, _ in moved]
            connector_names.rename(connection, old, new, ours, kept, is_lost=bool(self._kept.nonces))
        return len(moved)

    @property
    def waiting(self) -> int:
        """The number of commits that wait for the one that is being written; the next transaction takes them all."""
        return len(self._waiting)

    def __enter__(self) -> Self:
        """Return the store; `close` follows."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _write(self, commit: Commit) -> bool:
        """Queue it; whoever gets the lock first writes those of everyone who waits. Returns whether there was anything to write."""
        if not commit:
            return False
        self._waiting.append(commit)
        with self._lock:
            if not commit.settled:
                self._write_group([self._waiting.popleft() for _ in range(len(self._waiting))])
        if commit.error:
            # a new one each time: several threads raise for one failure
            raise type(commit.error)(commit.error.message, commit.error.hint)
        return True

    def _write_group(self, group: list[Commit]) -> None:
        """One transaction. A commit that must be refused, or cannot be saved, is left out; the others do not suffer from it."""
        failure: CopycatError | None = None
        written = deleted = False
        try:
            with self.writing() as connection:
                for commit in group:
                    deleted |= commit.save(connection, self._ledger)
            written = True
            self._look_at_wal(sum(len(commit.rows) for commit in group))
            if deleted:
                self._give_back_space()
        except CopycatError as error:
            failure = error
        finally:
            for commit in group:
                if not written:
                    commit.error = commit.error or failure or RetriableError("the commit was interrupted")
                commit.settled = True
