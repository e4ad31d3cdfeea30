"""What one thread wants saved: all of it or nothing, in a transaction that others may share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.model import SourcePartition
from copycat_agent.offsets import accounts, lanes, schema
from copycat_agent.offsets.outcomes import is_callers, unsaved

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping

    from copycat_agent.model import Account, Head, Loss, SourceOffset
    from copycat_agent.offsets.ledger import Ledger
    from copycat_agent.offsets.schema import Row


@dataclass(slots=True)
class Commit:
    """Rows to write, partitions to forget, losses to enter, accounts to add to.

    `heads` are the lanes' of `connector`, to which all of it belongs then, `told` what a transaction has told of it, and `also` what it
    told as it stood when that was planned. `is_lost`: see `lanes.changed`.
    `settled` once it is decided, with `error` when it was not saved.
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

    def save(self, connection: sqlite3.Connection, ledger: Ledger) -> bool:
        """All of it, or nothing and then `error` says why. Returns whether rows were deleted. Raises what is wrong with the store itself.

        Whatever else is raised belongs to who asked for this commit, not to those who share its transaction.
        """
        connection.execute("SAVEPOINT one")
        try:
            self.error = None if self.may_rewind else self.backwards(connection)
            deleted = self.error is None and self._save(connection, ledger)
        except Exception as error:
            if not (is_callers(error) and connection.in_transaction):
                raise
            self.error, deleted = unsaved(error), False
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return deleted

    def _save(self, connection: sqlite3.Connection, ledger: Ledger) -> bool:
        connection.executemany(schema.UPSERT, self.rows)
        if self.forget:
            connection.executemany("DELETE FROM offsets WHERE connector = ? AND key = ?", self.forget)
        accounts.add(connection, self.accounts)
        self._save_lanes(connection)
        return ledger.enter(connection, self.losses) or bool(self.forget)

    def _save_lanes(self, connection: sqlite3.Connection) -> None:
        saved = [SourcePartition(*row[:2]) for row in self.rows]
        untold = [one for one in dict.fromkeys((*saved, *self.forget)) if one not in self.told]
        lanes.changed(connection, untold, wish=self.may_rewind, is_lost=self.is_lost)
        lanes.unmark(connection, self.told)
        lanes.told(connection, self.also)
        if self.heads:
            lanes.save_heads(connection, self.connector, self.heads)
