"""From a locked directory to a connection: marker, check, quarantine, creation, migration."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent import logs
from copycat_agent.errors import FatalError
from copycat_agent.offsets import damage, identity, lanes, ledger, schema

if TYPE_CHECKING:
    from copycat_agent.offsets.state_dir import StateDir

DATABASE = "offsets.db"

_MEANS = {
    "losses": "copycat losses shows fewer entries; its totals are right",
    "loss_totals": "totals of copycat losses were counted again from the entries that are left",
    "targets": "a connector that was paused or stopped by hand runs again",
    "accounts": "the account of a run to the end that is not finished is incomplete",
}

_log = logs.get("offsets")


class Opened(NamedTuple):
    """A store, and who the agent is."""

    connection: sqlite3.Connection
    kept: identity.Kept


def connect(path: str) -> sqlite3.Connection:
    """A connection in autocommit mode. Pragmas that a new database needs before its first table come first."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def open_checked(directory: StateDir, *, accept_empty: bool, rebuild: bool) -> Opened:
    """A store that is whole and up to date, made anew when there is none. For `accept_empty` and `rebuild` see `OffsetStore.open`."""
    database = directory.path / DATABASE
    marker = damage.marker_of(database)
    kept = identity.load(directory.path)
    rebuild = rebuild and kept is not None  # without an identity Kafka would be asked about nobody
    if not accept_empty and not rebuild:
        _refuse_undecided(database)
    reason = damage.find_damage(database)
    if reason:
        failure = damage.quarantine(directory, database, reason)
        if not (accept_empty or rebuild) or os.path.lexists(database):
            raise failure
        goes_on = "exactly-once connectors take theirs from Kafka" if rebuild else "going on with an empty one"
        _log.error(f"offset store was damaged; {goes_on}", error=failure)
    if accept_empty:
        marker.unlink(missing_ok=True)
    if not database.exists():
        if kept is not None:
            _log.warning("there is no offset store; a new one is begun for the agent that identity.json names", agent=kept.uuid)
        _create(directory, database, kept)
    return _agreed(directory, _up_to_date(database), kept)


def open_existing(directory: StateDir) -> Opened:
    """The same for a command: a store that is not there is not made, and a damaged one stays where it is."""
    database = directory.path / DATABASE
    if not database.exists():
        _refuse_undecided(database)
    reason = damage.find_damage(database)
    if reason:
        msg = f"the offset store is damaged ({reason})"
        raise FatalError(msg, "start the agent: it moves the store aside and says what can be done")
    if not database.exists():
        raise nothing_there(directory.path)
    return _agreed(directory, _up_to_date(database), identity.load(directory.path))


def _agreed(directory: StateDir, connection: sqlite3.Connection, kept: identity.Kept | None) -> Opened:
    """Both say who the agent is. A store from before it got an identity of its own follows it."""
    try:
        (stored,) = connection.execute("SELECT uuid FROM agent").fetchone()
        kept = identity.agree(directory.path, kept, stored)
        if stored != kept.uuid:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                schema.set_uuid(connection, kept.uuid)
                lanes.begin_anew(connection)
    except BaseException:
        connection.close()
        raise
    return Opened(connection, kept)


def nothing_there(path: Path) -> FatalError:
    """The error for a command that finds no store."""
    return FatalError(f"there is no offset store in {path}", "name the agent's state directory: --state-dir DIR")


def _refuse_undecided(database: Path) -> None:
    marker = damage.marker_of(database)
    if marker.exists():
        msg = f"a damaged offset store was moved aside here and nobody has decided yet; see {marker}"
        raise FatalError(msg, damage.way_out(database))


def _up_to_date(database: Path) -> sqlite3.Connection:
    connection = connect(str(database))
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        schema.migrate(connection)
        _repair_ledger(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _repair_ledger(connection: sqlite3.Connection) -> None:
    """Damaged rows beside the offsets do not keep anything from starting: they are dropped, and that is told."""
    with connection:
        connection.execute("BEGIN")
        dropped = ledger.repair(connection)
    for table, rows in dropped.items():
        _log.error("damaged rows of the offset store were dropped; offsets are whole", table=table, rows=rows, means=_MEANS[table])


def _create(directory: StateDir, database: Path, kept: identity.Kept | None) -> None:
    """Make the database under another name and rename it whole: an empty file with its name is then always damage."""
    fresh = database.with_name(database.name + ".new")
    for suffix in ("", "-journal", "-wal", "-shm"):
        Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    connection = connect(str(fresh))
    schema.migrate(connection)
    if kept is not None:
        schema.set_uuid(connection, kept.uuid)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.close()
    with fresh.open("rb") as stream:
        os.fsync(stream.fileno())
    for suffix in ("-wal", "-shm"):  # an empty leftover of a read-only look must not meet the new file
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    fresh.rename(database)
    directory.sync()
