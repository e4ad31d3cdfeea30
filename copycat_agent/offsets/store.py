"""`OffsetStore` reads and commits the offsets of all connectors."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Self

from copycat_agent.errors import FatalError
from copycat_agent.model import STATE_KEY, Account, Loss, LossReason, LossTotal, SavedRow, SourceOffset, SourcePartition
from copycat_agent.offsets import agent_identity, connector_names, ledger, saved_rows, schema
from copycat_agent.offsets.connection import Commit
from copycat_agent.offsets.lane_store import LaneStore
from copycat_agent.offsets.lanes import OperatorChange
from copycat_agent.offsets.sqlite_errors import translate
from copycat_agent.offsets.state_dir import DATABASE, StateDir
from copycat_agent.offsets.state_log import StateLog
from copycat_agent.offsets.store_copy import refuse_copy, restore
from copycat_agent.offsets.store_file import OpenedStore, connect, open_checked, open_existing

TARGETS = ("running", "paused", "stopped")
"""The states that a person may ask of a connector."""


class OffsetStore(LaneStore):
    """The store. All methods are thread-safe and serialised; connectors that commit at the same time share one transaction.

    A write is on disk when it returns (WAL, synchronous=FULL). Writes raise RetriableError if nothing was written and the same call may be
    repeated (disk full, read-only), and FatalError if the store can no longer be trusted: then every later call raises it, too, and only a
    new process may use the file again.
    """

    @classmethod
    def open(cls, state_dir: str | os.PathLike[str], *, accept_empty: bool = False, rebuild: bool = False) -> OffsetStore:
        """Locks `state_dir` and opens its store, or creates one.

        Raises FatalError if the directory is not private, another agent holds it, a newer version wrote it, or the store is damaged. A
        damaged store is moved aside and a marker is left: later starts fail as well until a person removes the marker, or passes
        `accept_empty` to go on with an empty store. `rebuild` is for agents with exactly-once connectors: a new store is begun while the
        marker stays (`damaged`).
        """
        directory = StateDir.acquire(Path(state_dir))

        def opened() -> OpenedStore:
            refuse_copy(directory)
            return open_checked(directory, accept_empty=accept_empty, rebuild=rebuild)

        return cls._open(directory, opened, rebuilds=rebuild)

    @classmethod
    def open_replicated(cls, state_dir: str | os.PathLike[str], log: StateLog, agent_id: str, *, rebuild: bool = False) -> OffsetStore:
        """As `open`, for an agent whose state is in `log`. The file is a copy that is made anew from the log.

        If the log is empty, it gets the directory's state. Raises FatalError also if the directory belongs to another agent.
        """
        directory = StateDir.acquire(Path(state_dir))
        there: dict[bytes, bytes] = {}

        def opened() -> OpenedStore:
            there.update(log.take())
            restore(directory, agent_id, there)
            return open_checked(directory, accept_empty=False, rebuild=rebuild)

        store = cls._open(directory, opened, rebuilds=rebuild)
        try:
            store.replicate(log, there)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open_existing(cls, state_dir: str | os.PathLike[str]) -> OffsetStore:
        """Locks and opens an existing store, for commands while no agent runs. Nothing is created or moved aside.

        A command asks the agent, or holds its lock, so that the two never write at the same time. Raises FatalError as `open` does, also if
        there is no store. An older one is migrated.
        """
        directory = StateDir.acquire(Path(state_dir), create=False)

        def opened() -> OpenedStore:
            refuse_copy(directory)
            return open_existing(directory)

        return cls._open(directory, opened)

    @classmethod
    def _open(cls, directory: StateDir, opened: Callable[[], OpenedStore], *, rebuilds: bool = False) -> OffsetStore:
        try:
            return cls(opened(), directory, rebuilds=rebuilds)
        except sqlite3.Error as error:
            directory.release()
            raise translate(error, directory.path / DATABASE) from error
        except OSError as error:
            directory.release()
            raise FatalError(f"the offset store in {directory.path} cannot be opened: {error.strerror}") from error
        except BaseException:
            directory.release()
            raise

    @classmethod
    def in_memory(cls) -> OffsetStore:
        """Returns a store without a file, for dry runs and tests."""
        connection = connect(":memory:")
        schema.migrate(connection)
        kept = agent_identity.fresh()
        schema.set_uuid(connection, kept.uuid)
        return cls(OpenedStore(connection, kept))

    def read(self, connector: str) -> dict[SourcePartition, SourceOffset]:
        """Returns the committed offsets of one connector; {} for an unknown one."""
        with self.using() as connection:
            return saved_rows.offsets_of(connection, connector)

    def saved(self, connector: str) -> dict[SourcePartition, SavedRow]:
        """Returns a connector's offsets, and its state under `model.state_partition` if it has one."""
        with self.using() as connection:
            return saved_rows.all_of(connection, connector)

    def offsets(self, connector: str) -> dict[SourcePartition, SavedRow]:
        """`saved`, by the name under which an agent answers the same question."""
        return self.saved(connector)

    def connectors(self) -> tuple[str, ...]:
        """Names of all connectors that have offsets or a state, sorted."""
        with self.using() as connection:
            return tuple(saved_rows.named(connection))

    def reset(self, saved: Mapping[SourcePartition, SavedRow], forget: Collection[SourcePartition] = ()) -> None:
        """As `commit`, on a person's request: positions may move backwards."""
        self._write(Commit(saved, forget, lanes=OperatorChange(is_lost=bool(self._kept.nonces)), allow_rewind=True))

    def forget(self, partitions: Iterable[SourcePartition]) -> None:
        """Deletes the offsets of these partitions, on a person's request. Unknown ones are ignored."""
        self.reset({}, forget=list(partitions))

    def losses(self, connector: str | None, limit: int) -> tuple[Loss, ...]:
        """Returns the newest entries of the loss ledger, newest first; with `connector` None those of all connectors.

        About `ledger.KEPT` entries of each connector are kept; `loss_totals` counts all.
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

    def open_accounts(self, connector: str) -> None:
        """Has what is given up from now on belong to the connector's accounts, unless they are open since an earlier part of its run."""
        with self.writing() as connection:
            ledger.open_accounts(connection, connector)

    def account_losses(self, connector: str) -> dict[LossReason, LossTotal]:
        """Returns what was given up since the connector's accounts were opened."""
        with self.using() as connection:
            return ledger.account_losses(connection, connector)

    def begin_accounts(self, connector: str) -> None:
        """Deletes the connector's accounts, after a run to the end."""
        with self.writing() as connection:
            ledger.forget_accounts(connection, connector)

    def targets(self) -> dict[str, str]:
        """Returns the state that a person last asked of each connector: running, paused or stopped. Others are missing."""
        with self.using() as connection:
            return ledger.targets(connection)

    def set_target(self, name: str, target: str) -> None:
        """Saves that a person wants connector `name` running, paused or stopped."""
        assert target in TARGETS, target
        with self.writing() as connection:
            ledger.set_target(connection, name, target)

    def rename(self, old: str, new: str) -> int:
        """Moves all that is saved for connector `old` to `new`, in one transaction. Returns the number of offsets moved.

        Offsets and the target that `new` has already stay; losses are added up. It is no error if there is nothing to move, so that a
        definition may keep `renamed_from`.
        """
        if old == new:
            return 0
        with self.writing() as connection:
            ours, kept = saved_rows.rename(connection, old, new)
            ledger.rename(connection, old, new)
            ledger.rename_accounts(connection, old, new)
            connector_names.rename(connection, old, new, ours, kept, is_lost=bool(self._kept.nonces))
        return sum(one.key != STATE_KEY for one in ours)

    def __enter__(self) -> Self:
        """Returns the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the store."""
        self.close()
