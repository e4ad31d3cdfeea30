"""`OffsetStore`: read and commit the offsets of all connectors."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent.errors import FatalError
from copycat_agent.model import STATE_KEY, Account, SavedRow, SourceOffset, SourcePartition
from copycat_agent.offsets import agent_identity, connector_names, ledger, saved_rows, schema
from copycat_agent.offsets.connection import Commit
from copycat_agent.offsets.lane_store import LaneStore
from copycat_agent.offsets.lanes import Wish
from copycat_agent.offsets.sqlite_errors import translate
from copycat_agent.offsets.state_dir import StateDir
from copycat_agent.offsets.store_copy import refuse_copy, restore
from copycat_agent.offsets.store_file import OpenedStore, connect, open_checked, open_existing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Self

    from copycat_agent.model import Loss, LossReason, LossTotal
    from copycat_agent.offsets.state_log import StateLog

TARGETS = ("running", "paused", "stopped")
"""What a person may ask a connector to be."""


class OffsetStore(LaneStore):
    """All methods are thread-safe and serialised; connectors that commit at the same time share one transaction.

    A write that returns is on disk (WAL, synchronous=FULL). Writes raise `RetriableError` when nothing was written and the
    same call may be repeated (disk full, read-only), `FatalError` when the store can no longer be trusted: then every later
    call raises it too, and only a new process may look at the file again.
    """

    @classmethod
    def open(cls, state_dir: str | os.PathLike[str], *, accept_empty: bool = False, rebuild: bool = False) -> OffsetStore:
        """Lock `state_dir` and open its store, made anew when there is none.

        FatalError, with what to do: the directory is not private, another agent holds it, a newer version wrote it, or the
        store is damaged. A damaged store is moved aside and a marker is left, so that later starts refuse as well, until a
        person removes the marker or passes `accept_empty`, which means: go on with an empty store. With `rebuild`, since there are
        exactly-once connectors, a new store is begun while the marker stands: see `damaged`.
        """
        directory = StateDir.acquire(Path(state_dir))

        def opened() -> OpenedStore:
            refuse_copy(directory)
            return open_checked(directory, accept_empty=accept_empty, rebuild=rebuild)

        return cls._open(directory, opened, rebuilds=rebuild)

    @classmethod
    def open_replicated(cls, state_dir: str | os.PathLike[str], log: StateLog, agent_id: str, *, rebuild: bool = False) -> OffsetStore:
        """As `open`, for the agent with this id, whose state is in `log`: what is there counts, the file is a copy that is made anew.

        Where nothing is there, what the directory has goes there. FatalError also when the directory is another agent's.
        """
        directory = StateDir.acquire(Path(state_dir))
        try:
            there = log.take()
            restore(directory, agent_id, there)
        except BaseException:
            directory.release()
            raise
        store = cls._open(directory, lambda: open_checked(directory, accept_empty=False, rebuild=rebuild), rebuilds=rebuild)
        try:
            store.replicate(log, there)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open_existing(cls, state_dir: str | os.PathLike[str]) -> OffsetStore:
        """For commands while no agent runs: lock and open what is there; nothing is created and nothing moved aside.

        A command asks the agent, or holds its lock: the two never write at once.

        FatalError as for `open`, also when there is no store. An older one is migrated, as the agent would.
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

    def reset(self, saved: Mapping[SourcePartition, SavedRow], forget: Collection[SourcePartition] = ()) -> None:
        """Like `commit`, but on a person's request: positions may move backwards."""
        self._write(Commit(saved, forget, lanes=Wish(is_lost=bool(self._kept.nonces)), may_rewind=True))

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

    def __enter__(self) -> Self:
        """Return the store; `close` follows."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
