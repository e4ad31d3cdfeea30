"""`OffsetStore`: read and commit the offsets of all connectors."""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.model import STATE_KEY, Account, SavedRow, SourceOffset, SourcePartition
from copycat_agent.offsets import agent_identity, connector_names, lane_rows, lanes, ledger, saved_rows, schema
from copycat_agent.offsets.connection import is_callers, translate, unsaved
from copycat_agent.offsets.lane_store import LaneStore
from copycat_agent.offsets.state_dir import StateDir
from copycat_agent.offsets.store_file import OpenedStore, connect, open_checked, open_existing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Self

    from copycat_agent.model import Head, Loss, LossReason, LossTotal

TARGETS = ("running", "paused", "stopped")
"""What a person may ask a connector to be."""


@dataclass(frozen=True, slots=True)
class LaneCommit:
    """What the transaction of a batch, or of the driver, has made of a connector's lanes in Kafka.

    `heads` are those of the lanes that it moved. `told` are partitions of which it told what is saved with it; others that are saved are
    `unpublished` from then on. `also` is a `LanePlan`'s: rows that it told besides, which stay unpublished where something else is saved
    by now.
    """

    connector: str
    heads: Mapping[int, Head] = field(default_factory=dict)
    told: Collection[SourcePartition] = ()
    also: Mapping[SourcePartition, SavedRow | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to save of it."""
        return bool(self.heads or self.told or self.also)


_NO_LANES = LaneCommit("")


@dataclass(slots=True)
class _Commit:
    """What one thread wants saved, all or nothing, in a transaction that others may share but not its failures.

    `settled` is True once it is saved, or refused with `error`. `is_lost` is that of `lane_rows.changed`.
    """

    rows: Mapping[SourcePartition, SavedRow]
    forget: Collection[SourcePartition] = ()
    losses: Collection[Loss] = ()
    accounts: Mapping[SourcePartition, Account] = field(default_factory=dict)
    lanes: LaneCommit = _NO_LANES
    may_rewind: bool = False
    is_lost: bool = False
    error: CopycatError | None = None
    settled: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to save."""
        return bool(self.rows or self.forget or self.losses or self.accounts or self.lanes)

    def save(self, connection: sqlite3.Connection, entries: ledger.Ledger) -> bool:
        """Save all of it, or nothing and set `error`. Returns whether rows were deleted. Raises what is wrong with the store itself.

        Any other error belongs to the caller of this commit, not to those who share its transaction.
        """
        connection.execute("SAVEPOINT one")
        try:
            self.error = None if self.may_rewind else self._backwards(connection)
            deleted = self.error is None and self._save(connection, entries)
        except Exception as error:
            if not (is_callers(error) and connection.in_transaction):
                raise
            self.error, deleted = unsaved(error), False
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return deleted

    def _backwards(self, connection: sqlite3.Connection) -> FatalError | None:
        """The refusal when a position or a lane would go back. Positions that are not numbers have no order."""
        for partition, row in self.rows.items():
            if (position := saved_rows.further(connection, partition, row)) is not None and isinstance(row, SourceOffset):
                words = f"from {position} to {row.position}"
                msg = f"offset of connector {partition.connector}, partition {partition.key} would move backwards {words}"
                return FatalError(msg, "this is a bug in copycat-agent; to go back on purpose: copycat offsets set")
        return lanes.backwards(connection, self.lanes.connector, self.lanes.heads) if self.lanes.heads else None

    def _save(self, connection: sqlite3.Connection, entries: ledger.Ledger) -> bool:
        saved_rows.save(connection, self.rows)
        saved_rows.delete(connection, self.forget)
        ledger.add_accounts(connection, self.accounts)
        told = self.lanes.told
        untold = [one for one in dict.fromkeys((*self.rows, *self.forget)) if one not in told]
        lane_rows.changed(connection, untold, wish=self.may_rewind, is_lost=self.is_lost)
        lane_rows.unmark(connection, told)
        lane_rows.told(connection, self.lanes.also)
        if self.lanes.heads:
            lanes.save_heads(connection, self.lanes.connector, self.lanes.heads)
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
        self._waiting: deque[_Commit] = deque()

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
        """The committed offsets of one connector; empty for one that is not known."""
        with self.using() as connection:
            return saved_rows.offsets_of(connection, connector)

    def saved(self, connector: str) -> dict[SourcePartition, SavedRow]:
        """Its offsets, and its state under `model.state_partition` where it has one."""
        with self.using() as connection:
            return saved_rows.all_of(connection, connector)

    def offsets(self, connector: str) -> dict[SourcePartition, SavedRow]:
        """`saved`, by the name under which an agent answers the same question."""
        return self.saved(connector)

    def connectors(self) -> tuple[str, ...]:
        """Names of all connectors that have offsets or a state, sorted."""
        with self.using() as connection:
            return tuple(saved_rows.named(connection))

    def commit(
        self,
        saved: Mapping[SourcePartition, SavedRow],
        forget: Collection[SourcePartition] = (),
        losses: Collection[Loss] = (),
        accounts: Mapping[SourcePartition, Account] | None = None,
        moved: LaneCommit = _NO_LANES,
    ) -> bool:
        """Save these rows, delete `forget`, enter `losses`, add to `accounts` and note what `moved` in one transaction, all or none.

        Returns whether there was anything to save. What is in both `saved` and `forget` is deleted. FatalError when an offset, or a lane,
        would move backwards: that is a bug.
        """
        return self._write(_Commit(saved, forget, losses, accounts or {}, moved))

    def reset(self, saved: Mapping[SourcePartition, SavedRow], forget: Collection[SourcePartition] = ()) -> None:
        """Like `commit`, but on a person's request: positions may move backwards."""
        self._write(_Commit(saved, forget, may_rewind=True, is_lost=bool(self._kept.nonces)))

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
            ours, kept = saved_rows.rename(connection, old, new)
            ledger.rename(connection, old, new)
            ledger.rename_accounts(connection, old, new)
            connector_names.rename(connection, old, new, ours, kept, is_lost=bool(self._kept.nonces))
        return sum(one.key != STATE_KEY for one in ours)

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

    def _write(self, commit: _Commit) -> bool:
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

    def _write_group(self, group: list[_Commit]) -> None:
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
