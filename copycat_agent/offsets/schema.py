"""The tables of the offset store, and the migrations between its versions."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from copycat_agent.model import STATE_KEY, connector_id_of, from_earlier_version
from copycat_agent.offsets import saved_rows
from copycat_agent.offsets.saved_rows import checksum

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping

    from copycat_agent.offsets.saved_rows import Row

    Migrations = Mapping[int, Callable[[sqlite3.Connection], None]]

APPLICATION_ID = 0x43504341
"""`CPCA`, in the header of the file."""

_CHECKED = {
    "agent": (1, "uuid, created_ms"),
    "bindings": (6, "connector, cluster, adopt, copied, unused"),
    "places": (6, "connector, agent, name, topic, part"),
    "lanes": (6, "connector, agent, name, number, seq, nonce, position"),
    "unpublished": (6, "connector, key"),
    "names": (8, "connector, id, asks, registered"),
    "connector_state": (9, saved_rows.STATE_COLUMNS),
}
"""Tables that decide what is read again, besides `offsets`: the version that added them, and the columns that their checksums cover."""


def broken_rows(connection: sqlite3.Connection) -> Iterator[str]:
    """Yields a description of each row with a wrong checksum."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for row in connection.execute(saved_rows.select(version)):
        if saved_rows.offset_checksum(row[:-1]) != row[-1]:
            yield "a row does not match its checksum"
    for table, (since, columns) in _CHECKED.items():
        for row in connection.execute(f"SELECT {columns}, checksum FROM {table}") if version >= since else ():  # noqa: S608 - constants
            if checksum(row[:-1]) != row[-1]:
                yield f"a row of {table} does not match its checksum"


def set_uuid(connection: sqlite3.Connection, agent: str) -> None:
    """Saves the uuid of the agent that owns the store."""
    row = (agent, time.time_ns() // 1_000_000)
    connection.execute("DELETE FROM agent")
    connection.execute("INSERT INTO agent VALUES (?, ?, ?)", (*row, checksum(row)))


def migrate(connection: sqlite3.Connection, migrations: Migrations | None = None) -> None:
    """Brings the schema up to date, one transaction per version, so that a kill leaves a complete version.

    `migrations[n]` turns version n into n + 1; version 0 is an empty file.
    """
    steps = MIGRATIONS if migrations is None else migrations
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number in range(version, len(steps)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            steps[number](connection)
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("CREATE TABLE agent (uuid TEXT NOT NULL, created_ms INTEGER NOT NULL, checksum INTEGER NOT NULL)")
    connection.execute(
        "CREATE TABLE offsets (connector TEXT NOT NULL, key TEXT NOT NULL, position TEXT NOT NULL, records INTEGER NOT NULL,"
        " done INTEGER NOT NULL, skipping INTEGER NOT NULL, path BLOB NOT NULL, size INTEGER NOT NULL, gone_ms INTEGER NOT NULL,"
        " head_bytes INTEGER NOT NULL, head TEXT NOT NULL, tail_bytes INTEGER NOT NULL, tail TEXT NOT NULL,"
        " updated_ms INTEGER NOT NULL, checksum INTEGER NOT NULL,"
        " PRIMARY KEY (connector, key)) WITHOUT ROWID",
    )
    set_uuid(connection, str(uuid.uuid4()))


def _add_ledger(connection: sqlite3.Connection) -> None:
    """Adds the loss ledger and the states that a person asked for (`ledger`)."""
    connection.execute(
        "CREATE TABLE losses (number INTEGER PRIMARY KEY, connector TEXT NOT NULL, key TEXT NOT NULL, path BLOB NOT NULL,"
        " start INTEGER NOT NULL, stop INTEGER NOT NULL, size_bytes INTEGER NOT NULL, records INTEGER NOT NULL,"
        " reason TEXT NOT NULL, detail TEXT NOT NULL, at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL)",
    )
    connection.execute("CREATE INDEX losses_by_connector ON losses (connector, number)")
    connection.execute(
        "CREATE TABLE loss_totals (connector TEXT NOT NULL, reason TEXT NOT NULL, size_bytes INTEGER NOT NULL,"
        " records INTEGER NOT NULL, entries INTEGER NOT NULL, checksum INTEGER NOT NULL,"
        " PRIMARY KEY (connector, reason)) WITHOUT ROWID",
    )
    connection.execute(
        "CREATE TABLE targets (connector TEXT NOT NULL PRIMARY KEY, target TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID",
    )


def _add_compression(connection: sqlite3.Connection) -> None:
    """Adds the compression of packed files; earlier versions read none."""
    connection.execute("ALTER TABLE offsets ADD COLUMN compression TEXT NOT NULL DEFAULT ''")


def _add_spooled(connection: sqlite3.Connection) -> None:
    """Adds columns for spooled files; earlier versions read none."""
    connection.execute("ALTER TABLE offsets ADD COLUMN mtime_ns INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE offsets ADD COLUMN trouble TEXT NOT NULL DEFAULT ''")


def _add_accounts(connection: sqlite3.Connection) -> None:
    """Adds accounts of runs to the end (`ledger`)."""
    connection.execute(
        "CREATE TABLE accounts (connector TEXT NOT NULL, key TEXT NOT NULL, path BLOB NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,"
        " counts TEXT NOT NULL, undated INTEGER NOT NULL, delivered TEXT NOT NULL, checksum INTEGER NOT NULL,"
        " PRIMARY KEY (connector, key)) WITHOUT ROWID",
    )


def _add_lanes(connection: sqlite3.Connection) -> None:
    """Adds tables for exactly-once lanes (`lanes`)."""
    connection.execute(
        "CREATE TABLE bindings (connector TEXT NOT NULL PRIMARY KEY, cluster TEXT NOT NULL, adopt TEXT NOT NULL,"
        " copied INTEGER NOT NULL, unused INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID",
    )
    connection.execute(
        "CREATE TABLE places (connector TEXT NOT NULL, agent TEXT NOT NULL, name TEXT NOT NULL, topic TEXT NOT NULL,"
        " part INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (connector, agent, name)) WITHOUT ROWID",
    )
    connection.execute(
        "CREATE TABLE lanes (connector TEXT NOT NULL, agent TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL,"
        " seq INTEGER NOT NULL, nonce TEXT NOT NULL, position INTEGER NOT NULL, checksum INTEGER NOT NULL,"
        " PRIMARY KEY (connector, agent, name, number)) WITHOUT ROWID",
    )
    connection.execute(
        "CREATE TABLE unpublished (number INTEGER PRIMARY KEY, connector TEXT NOT NULL, key TEXT NOT NULL, wish INTEGER NOT NULL,"
        " checksum INTEGER NOT NULL, UNIQUE (connector, key))",
    )
    connection.execute("CREATE INDEX unpublished_by_age ON unpublished (connector, number)")


def _add_cut(connection: sqlite3.Connection) -> None:
    """Adds a column for offsets between two parts of a record; earlier versions sent no record in parts."""
    connection.execute("ALTER TABLE offsets ADD COLUMN cut TEXT NOT NULL DEFAULT ''")


def _add_names(connection: sqlite3.Connection) -> None:
    """Gives each connector that Kafka may know an id.

    The id is derived from the name, so that a backup of the previous version, if it is restored later, comes to the same one. The lanes are
    in Kafka under the connector's name, or an earlier one, so its next opening takes them over once. Kafka is not asked about a name if the
    store has lanes of it, or knows that what Kafka has belongs to another connector ("moved").
    """
    connection.execute(
        "CREATE TABLE names (connector TEXT NOT NULL PRIMARY KEY, id TEXT NOT NULL UNIQUE, asks INTEGER NOT NULL,"
        " registered TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID",
    )
    places = connection.execute("SELECT connector FROM places WHERE agent = '' AND name = connector AND part >= 0").fetchall()
    bindings = connection.execute("SELECT connector, cluster, adopt, copied, unused FROM bindings").fetchall()
    known = {name for (name,) in places} | {row[0] for row in bindings if row[2] == "moved"}
    there = {row[0] for row in bindings} | {name for (name,) in connection.execute("SELECT connector FROM places")}
    names: list[Row] = [(name, connector_id_of(name), int(name not in known), "") for name in sorted(there)]
    connection.executemany("INSERT INTO names VALUES (?, ?, ?, ?, ?)", [(*row, checksum(row)) for row in names])
    decided: list[Row] = [(name, cluster, "", *others) for name, cluster, adopt, *others in bindings if adopt == "moved"]
    connection.executemany("INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?, ?)", [(*row, checksum(row)) for row in decided])


def _add_connector_state(connection: sqlite3.Connection) -> None:
    """Moves the state of connectors to a table of its own. Before, it was an offset with key "started" and a time as its position."""
    connection.execute(
        "CREATE TABLE connector_state (connector TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, updated_ms INTEGER NOT NULL,"
        " checksum INTEGER NOT NULL) WITHOUT ROWID",
    )
    earlier = [saved_rows.decode(row) for row in connection.execute(f"{saved_rows.SELECT} WHERE key = 'started'").fetchall()]
    states = [(before, *from_earlier_version(before, row)) for before, row in earlier]
    saved_rows.delete(connection, [before for before, now, _ in states if now != before])
    saved_rows.save(connection, {now: row for before, now, row in states if now != before})
    marks = connection.execute(
        "SELECT number, connector FROM unpublished AS mark WHERE key = 'started'"
        " AND NOT EXISTS (SELECT 1 FROM offsets WHERE connector = mark.connector AND key = mark.key)"
    ).fetchall()
    for number, connector in marks:
        mark = (connector, STATE_KEY)
        connection.execute("UPDATE unpublished SET key = ?, checksum = ? WHERE number = ?", (STATE_KEY, checksum(mark), number))


def _add_losses_before(connection: sqlite3.Connection) -> None:
    """Adds what had been given up of connectors before their present accounts (`ledger`)."""
    connection.execute(
        "CREATE TABLE losses_before (connector TEXT NOT NULL PRIMARY KEY, totals TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID"
    )


MIGRATIONS: Migrations = {
    0: _create, 1: _add_ledger, 2: _add_compression, 3: _add_spooled, 4: _add_accounts, 5: _add_lanes, 6: _add_cut, 7: _add_names,
    8: _add_connector_state, 9: _add_losses_before,
}  # fmt: skip
VERSION = len(MIGRATIONS)
"""The schema version this agent writes."""
