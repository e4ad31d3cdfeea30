"""Tables, rows and versions of the offset store."""

from __future__ import annotations

import json
import time
import uuid
import zlib
from typing import TYPE_CHECKING, Any

from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition, connector_id_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping

    Row = tuple[Any, ...]
    Migrations = Mapping[int, Callable[[sqlite3.Connection], None]]

APPLICATION_ID = 0x43504341
"""`CPCA`: marks the file as ours in its header."""

LARGEST = 2**63 - 1
"""The largest number that SQLite takes."""

COLUMNS = (
    "connector",
    "key",
    "position",
    "records",
    "done",
    "skipping",
    "path",
    "size",
    "gone_ms",
    "head_bytes",
    "head",
    "tail_bytes",
    "tail",
    "updated_ms",
    "compression",
    "mtime_ns",
    "trouble",
    "cut",
)
"""Columns of a row before its checksum, in the order of `encode` and `decode`."""

_ALL = ", ".join((*COLUMNS, "checksum"))
SELECT = f"SELECT {_ALL} FROM offsets"  # noqa: S608 - constants
_SINCE = {3: (("compression", "''"),), 4: (("mtime_ns", "0"), ("trouble", "''")), 7: (("cut", "''"),)}
"""Columns that came later, by version, with what they hold where nothing is known."""
_OF_LANES = {
    "bindings": "connector, cluster, adopt, copied, unused",
    "places": "connector, agent, name, topic, part",
    "lanes": "connector, agent, name, number, seq, nonce, position",
    "unpublished": "connector, key",
}
"""Tables of lanes, with the columns that their checksums are of: what is read again is decided by them, as by offsets."""
_OF_NAMES = {"names": "connector, id, asks, registered"}
"""Tables of names, with the columns that their checksums are of."""
_LANES_SINCE, _NAMES_SINCE = 6, 8
_ALWAYS = len(COLUMNS) - sum(map(len, _SINCE.values()))
UPSERT = f"INSERT OR REPLACE INTO offsets ({_ALL}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"  # noqa: S608


_CURSOR = "cursor:"
"""Column `cut` of a source that has positions of its own holds one, as JSON behind this word: its records never go in parts."""


def bounded(number: int) -> int:
    """`number`, or the nearest one that SQLite takes."""
    return min(max(number, -LARGEST - 1), LARGEST)


def _time_in_full(time_ns: int) -> int | bytes:
    """A file's time, exactly, because a file whose time differs from the saved one counts as changed: as digits from the year 2262 on."""
    return time_ns if time_ns == bounded(time_ns) else b"%d" % time_ns


def encode(partition: SourcePartition, offset: SourceOffset) -> Row:
    """A row with its checksum. The path is stored as bytes: a file name need not be UTF-8."""
    print_ = offset.fingerprint
    row = (
        partition.connector,
        partition.key,
        json.dumps(offset.position),
        bounded(offset.records),
        int(offset.done),
        int(offset.skipping),
        offset.path.encode("utf-8", "surrogateescape"),
        bounded(offset.size),
        bounded(offset.gone_ms),
        bounded(print_.head_bytes),
        print_.head,
        bounded(print_.tail_bytes),
        print_.tail,
        time.time_ns() // 1_000_000,
        offset.compression,
        _time_in_full(offset.mtime_ns),
        offset.trouble.encode("utf-8", "backslashreplace").decode(),  # words about a file may quote what is no text in it
        f"{_CURSOR}{offset.cursor}" if offset.cursor else offset.cut,
    )
    return (*row, offset_checksum(row))


def decode(row: Row) -> tuple[SourcePartition, SourceOffset]:
    """The reverse of `encode`."""
    connector, key, position, records, done, skipping, path, size, gone_ms, head_bytes, head, tail_bytes, tail, _, *later = row
    offset = SourceOffset(
        position=int(position) if position.isdecimal() else json.loads(position),
        records=records,
        done=bool(done),
        skipping=bool(skipping),
        path=path.decode("utf-8", "surrogateescape"),
        size=size,
        gone_ms=gone_ms,
        fingerprint=Fingerprint(head_bytes, head, tail_bytes, tail),
        compression=later[0],
        mtime_ns=int(later[1]),
        trouble=later[2],
        **_of_cut(later[3]),
    )
    return SourcePartition(connector, key), offset


def _of_cut(text: str) -> dict[str, str]:
    """Reads column `cut`: a format's note about a record that goes in parts, or a source's own position."""
    return {"cursor": text[len(_CURSOR) :]} if text.startswith(_CURSOR) else {"cut": text}


def select(connection: sqlite3.Connection) -> str:
    """`SELECT` for a store of any version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    query = SELECT
    for since, columns in _SINCE.items():
        if version < since:
            for name, nothing in columns:
                query = query.replace(name, f"{nothing} AS {name}")
    return query


def offset_checksum(row: Row) -> int:
    """Returns the checksum of an offset's `COLUMNS`, without empty later ones at the end: older versions had no such columns."""
    size = len(row)
    while size > _ALWAYS and not row[size - 1]:
        size -= 1
    return checksum(row[:size])


def checksum(row: Row) -> int:
    """CRC-32 over a row: SQLite's own checks see broken pages, but not a flipped bit inside a value."""
    return zlib.crc32(ascii(row).encode())


def broken_rows(connection: sqlite3.Connection) -> Iterator[str]:
    """Yields in words what is wrong with rows; nothing when all checksums are right."""
    for identity in connection.execute("SELECT uuid, created_ms, checksum FROM agent"):
        if checksum(identity[:-1]) != identity[-1]:
            yield "the agent's identity does not match its checksum"
    for row in connection.execute(select(connection)):
        if offset_checksum(row[:-1]) != row[-1]:
            yield "a row does not match its checksum"
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = (_OF_LANES if version >= _LANES_SINCE else {}) | (_OF_NAMES if version >= _NAMES_SINCE else {})
    for table, columns in tables.items():
        for row in connection.execute(f"SELECT {columns}, checksum FROM {table}"):  # noqa: S608 - constants
            if checksum(row[:-1]) != row[-1]:
                yield f"a row of {table} does not match its checksum"


def set_uuid(connection: sqlite3.Connection, agent: str) -> None:
    """Saves whose store this is."""
    row = (agent, time.time_ns() // 1_000_000)
    connection.execute("DELETE FROM agent")
    connection.execute("INSERT INTO agent VALUES (?, ?, ?)", (*row, checksum(row)))


def migrate(connection: sqlite3.Connection, migrations: Migrations | None = None) -> None:
    """Bring the schema up to date, each version in one transaction: a kill leaves the version before or the one after.

    `migrations[n]` turns version n into n + 1; 0 is an empty file.
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
    """The loss ledger and what a person asked of each connector (see `ledger`); offsets are not touched."""
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
    """Adds how packed files are packed; none were read before."""
    connection.execute("ALTER TABLE offsets ADD COLUMN compression TEXT NOT NULL DEFAULT ''")


def _add_spooled(connection: sqlite3.Connection) -> None:
    """Adds what is known of spooled files; none were read before."""
    connection.execute("ALTER TABLE offsets ADD COLUMN mtime_ns INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE offsets ADD COLUMN trouble TEXT NOT NULL DEFAULT ''")


def _add_accounts(connection: sqlite3.Connection) -> None:
    """Adds what runs to the end did with each file (see `ledger`); offsets are not touched."""
    connection.execute(
        "CREATE TABLE accounts (connector TEXT NOT NULL, key TEXT NOT NULL, path BLOB NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,"
        " counts TEXT NOT NULL, undated INTEGER NOT NULL, delivered TEXT NOT NULL, checksum INTEGER NOT NULL,"
        " PRIMARY KEY (connector, key)) WITHOUT ROWID",
    )


def _add_lanes(connection: sqlite3.Connection) -> None:
    """Adds what is known of exactly-once lanes (see `lanes`); offsets are not touched."""
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
    """Adds where offsets lie between two parts of a record; no record went in parts before."""
    connection.execute("ALTER TABLE offsets ADD COLUMN cut TEXT NOT NULL DEFAULT ''")


def _add_names(connection: sqlite3.Connection) -> None:
    """Each connector that Kafka may know gets an id (see `names`); offsets are not touched.

    It is made from the name: a backup of the version before that is put back later has to come to the same one.
    Its lanes stand in Kafka under its name, or an earlier one. So they are not its own any more: its next opening takes them over once.
    Kafka is not asked what it knows of a name where the store knows: because there are lanes of it, or because what stands there was
    another connector's ("moved", which nothing but this said).
    """
    connection.execute(
        "CREATE TABLE names (connector TEXT NOT NULL PRIMARY KEY, id TEXT NOT NULL UNIQUE, asks INTEGER NOT NULL,"
        " registered TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID",
    )
    places = connection.execute("SELECT connector FROM places WHERE agent = '' AND name = connector AND part >= 0").fetchall()
    bindings = connection.execute("SELECT connector, cluster, adopt, copied, unused FROM bindings").fetchall()
    known = {name for (name,) in places} | {row[0] for row in bindings if row[2] == "moved"}
    there = {row[0] for row in bindings} | {name for (name,) in connection.execute("SELECT connector FROM places")}
    rows: list[Row] = [(name, connector_id_of(name), int(name not in known), "") for name in sorted(there)]
    connection.executemany("INSERT INTO names VALUES (?, ?, ?, ?, ?)", [(*row, checksum(row)) for row in rows])
    decided: list[Row] = [(name, cluster, "", *others) for name, cluster, adopt, *others in bindings if adopt == "moved"]
    connection.executemany("INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?, ?)", [(*row, checksum(row)) for row in decided])


MIGRATIONS: Migrations = {
    0: _create, 1: _add_ledger, 2: _add_compression, 3: _add_spooled, 4: _add_accounts, 5: _add_lanes, 6: _add_cut, 7: _add_names,
}  # fmt: skip
VERSION = len(MIGRATIONS)
"""The schema version this agent writes."""
