"""Opens the store's file: checks it, moves a damaged one aside and leaves a marker, creates and migrates it."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from copycat_agent import logs
from copycat_agent.errors import FatalError
from copycat_agent.offsets import agent_identity, lanes, ledger, schema
from copycat_agent.offsets.sqlite_errors import is_damage, translate
from copycat_agent.offsets.state_dir import DATABASE, StateDir, leave_marker, marker_of

_CHECK_SECONDS = 20.0  # half a million rows take about 5 s; a slow disk must not keep the agent from starting
_PROGRESS_STEPS = 10_000  # instructions of SQLite's virtual machine between two looks at the clock
_MEANS = {
    "losses": "copycat losses shows fewer entries; its totals are right",
    "loss_totals": "totals of copycat losses were counted again from the entries that are left",
    "targets": "a connector that was paused or stopped by hand runs again",
    "accounts": "the account of a run to the end that is not finished is incomplete",
}

_log = logs.get("offsets")


class OpenedStore(NamedTuple):
    """An open store, and the agent's identity."""

    connection: sqlite3.Connection
    kept: agent_identity.StoredIdentity


def connect(path: str) -> sqlite3.Connection:
    """Opens a connection in autocommit mode. `auto_vacuum` must be set before a new database gets its first table."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def read_only(database: Path) -> sqlite3.Connection:
    """Opens a connection that changes nothing."""
    return sqlite3.connect(f"file:{quote(os.fsencode(database))}?mode=ro", uri=True, isolation_level=None)


def open_checked(directory: StateDir, *, accept_empty: bool, rebuild: bool) -> OpenedStore:
    """Opens, migrates or creates the store, as `OffsetStore.open` describes."""
    database = directory.path / DATABASE
    marker = marker_of(database)
    kept = agent_identity.load(directory.path)
    rebuild = rebuild and kept is not None  # without an identity nothing can be found in Kafka
    if not accept_empty and not rebuild:
        _refuse_undecided(database)
    reason = find_damage(database)
    if reason:
        failure = quarantine(directory, database, reason)
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


def open_existing(directory: StateDir) -> OpenedStore:
    """Opens an existing store for a command. A damaged one stays where it is. Raises FatalError."""
    database = directory.path / DATABASE
    if not database.exists():
        _refuse_undecided(database)
    reason = find_damage(database)
    if reason:
        raise FatalError(f"the offset store is damaged ({reason})", "start the agent: it moves the store aside and says what can be done")
    if not database.exists():
        raise nothing_there(directory.path)
    return _agreed(directory, _up_to_date(database), agent_identity.load(directory.path))


def _agreed(directory: StateDir, connection: sqlite3.Connection, kept: agent_identity.StoredIdentity | None) -> OpenedStore:
    """Compares the identities of file and store. A store from before the agent got a new identity is changed to that."""
    try:
        (stored,) = connection.execute("SELECT uuid FROM agent").fetchone()
        kept = agent_identity.agree(directory.path, kept, stored)
        if stored != kept.uuid:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                schema.set_uuid(connection, kept.uuid)
                lanes.begin_anew(connection)
    except BaseException:
        connection.close()
        raise
    return OpenedStore(connection, kept)


def nothing_there(path: Path) -> FatalError:
    """Returns the error for a command that finds no store."""
    return FatalError(f"there is no offset store in {path}", "name the agent's state directory: --state-dir DIR")


def _refuse_undecided(database: Path) -> None:
    marker = marker_of(database)
    if marker.exists():
        raise FatalError(f"a damaged offset store was moved aside here and nobody has decided yet; see {marker}", recovery_hint(database))


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
    """Drops damaged rows that no offset depends on, and logs that: they need not keep the agent from starting."""
    with connection:
        connection.execute("BEGIN")
        dropped = ledger.repair(connection)
    for table, rows in dropped.items():
        _log.error("damaged rows of the offset store were dropped; offsets are whole", table=table, rows=rows, means=_MEANS[table])


def _create(directory: StateDir, database: Path, kept: agent_identity.StoredIdentity | None) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        schema.migrate(connection)
        if kept is not None:
            schema.set_uuid(connection, kept.uuid)

    create(directory, database, fill)


def create(directory: StateDir, database: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Creates the database under another name and renames it once it is complete. So an empty file with its name is always damage."""
    fresh = database.with_name(database.name + ".new")
    for suffix in ("", "-journal", "-wal", "-shm"):
        Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    connection = connect(str(fresh))
    try:
        fill(connection)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
    finally:
        connection.close()
    with fresh.open("rb") as stream:
        os.fsync(stream.fileno())
    for suffix in ("-wal", "-shm"):  # leftovers of a read-only connection must not be used with the new file
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    fresh.rename(database)
    directory.sync()


def find_damage(database: Path) -> str:
    """Returns why the store cannot be trusted, or "". It does not change the file. Raises FatalError for a newer version.

    Large stores are checked for at most `_CHECK_SECONDS`.
    """
    try:
        status = database.lstat()
    except FileNotFoundError:
        wal = database.with_name(database.name + "-wal")
        return "the database is gone but its write-ahead log is there" if wal.exists() and wal.stat().st_size else ""
    if not stat.S_ISREG(status.st_mode):
        raise FatalError(f"{database} is not a regular file", "move it away")
    if status.st_size == 0:
        return "the file is empty"
    try:
        with closing(read_only(database)) as connection:
            return _examine(connection, database)
    except UnicodeDecodeError:  # SQLite's error message quotes the damaged text
        return "it holds text that is not UTF-8"
    except sqlite3.Error as error:
        if is_damage(error):
            return str(error)
        raise translate(error, database) from error


def _examine(connection: sqlite3.Connection, database: Path) -> str:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != schema.APPLICATION_ID or version < 1:
        return "the file is not an offset store"
    if version > schema.VERSION:
        msg = f"{database} was written by a newer copycat-agent (schema {version}; this one knows up to {schema.VERSION})"
        raise FatalError(msg, "install that version again, or restore the state directory from before the upgrade")
    deadline = time.monotonic() + _CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _PROGRESS_STEPS)
    try:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            return str(verdict)
        return next(schema.broken_rows(connection), "")  # these tables are the same in every version
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            return ""
        raise


def quarantine(directory: StateDir, database: Path, reason: str) -> FatalError:
    """Moves the store aside, and returns the error to raise. Nothing is overwritten or deleted.

    The marker is durable before the first rename, so that after a crash the next start does not begin with an empty store.
    """
    target = _free_name(database)
    try:
        leave_marker(directory, database, f"the offset store was damaged ({reason}) and moved to {target}")
        for suffix in ("", "-wal", "-shm"):
            _move(Path(f"{database}{suffix}"), Path(f"{target}{suffix}"))
        directory.sync()
    except OSError as error:
        msg = f"the offset store {database} is damaged ({reason}) and could not be moved aside: {error.strerror}"
        return FatalError(msg, f"move {database}* away by hand, then restore a backup")
    msg = f"the offset store is damaged ({reason}); it was moved to {target}"
    return FatalError(msg, recovery_hint(database))


def recovery_hint(database: Path) -> str:
    """Returns a hint what to do about a quarantined store."""
    marker = marker_of(database)
    return (
        f"restore a backup as {database}, with no {database.name}-wal beside it, and remove {marker}; or remove only {marker} to start"
        " without offsets: every file is then read from its start_at again, which repeats what was delivered"
    )


def _free_name(database: Path) -> Path:
    """Returns an unused name with the time in seconds, and a number if that is taken."""
    stem = f"{database.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    taken = {entry.name for entry in database.parent.iterdir()}
    names = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3)))
    return database.with_name(next(name for name in names if not any(f"{name}{suffix}" in taken for suffix in ("", "-wal", "-shm"))))


def _move(source: Path, target: Path) -> None:
    """Syncs the file, then renames it: in this order a power cut cannot leave an empty file."""
    if not os.path.lexists(source):
        return
    with suppress(OSError):  # a file on a failing disk is still worth keeping
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    source.rename(target)
