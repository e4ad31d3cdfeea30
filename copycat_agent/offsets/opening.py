"""From a locked directory to a connection: marker, check, quarantine, creation, migration."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.errors import FatalError
from copycat_agent.offsets import damage, schema

if TYPE_CHECKING:
    from copycat_agent.offsets.state_dir import StateDir

DATABASE = "offsets.db"

_log = logs.get("offsets")


def connect(path: str) -> sqlite3.Connection:
    """A connection in autocommit mode. Pragmas that a new database needs before its first table come first."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def open_checked(directory: StateDir, *, accept_empty: bool) -> sqlite3.Connection:
    """The connection to a store that is whole and up to date."""
    database = directory.path / DATABASE
    marker = damage.marker_of(database)
    if marker.exists() and not accept_empty:
        msg = f"a damaged offset store was moved aside here and nobody has decided yet; see {marker}"
        raise FatalError(msg, damage.way_out(database))
    reason = damage.find_damage(database)
    if reason:
        failure = damage.quarantine(directory, database, reason)
        if not accept_empty or os.path.lexists(database):
            raise failure
        _log.error("offset store was damaged; going on with an empty one", error=failure)
    marker.unlink(missing_ok=True)
    if not database.exists():
        _create(directory, database)
    connection = connect(str(database))
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        schema.migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(directory: StateDir, database: Path) -> None:
    """Make the database under another name and rename it whole: an empty file with its name is then always damage."""
    fresh = database.with_name(database.name + ".new")
    for suffix in ("", "-journal", "-wal", "-shm"):
        Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    connection = connect(str(fresh))
    schema.migrate(connection)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.close()
    with fresh.open("rb") as stream:
        os.fsync(stream.fileno())
    for suffix in ("-wal", "-shm"):  # an empty leftover of a read-only look must not meet the new file
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    fresh.rename(database)
    directory.sync()
