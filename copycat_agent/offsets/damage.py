"""Is the store whole? And if not: out of the way, untouched, and nobody goes on as if nothing had been."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from copycat_agent.errors import FatalError
from copycat_agent.offsets import schema
from copycat_agent.offsets.outcomes import is_damage, translate

if TYPE_CHECKING:
    from copycat_agent.offsets.state_dir import StateDir

_CHECK_SECONDS = 20.0  # half a million rows take about 5 s; a slow disk must not keep the agent from starting
_PROGRESS_STEPS = 10_000  # SQLite's virtual machine instructions between two looks at the clock


def marker_of(database: Path) -> Path:
    """The file that keeps an agent from starting with an empty store after a quarantine."""
    return database.with_name(database.name + ".quarantined")


def marker_text(database: Path) -> str:
    """What the marker says, "" when there is none."""
    try:
        return marker_of(database).read_text("utf-8", "replace").strip() or "the offset store was damaged"
    except FileNotFoundError:
        return ""


def find_damage(database: Path) -> str:
    """Why the store cannot be trusted, or "". Reads only: the evidence stays as it is. FatalError for a newer version.

    Large stores are checked for at most `_CHECK_SECONDS`.
    """
    try:
        status = database.lstat()
    except FileNotFoundError:
        wal = database.with_name(database.name + "-wal")
        return "the database is gone but its write-ahead log is there" if wal.exists() and wal.stat().st_size else ""
    if not stat.S_ISREG(status.st_mode):
        msg = f"{database} is not a regular file"
        raise FatalError(msg, "move it away")
    if status.st_size == 0:
        return "the file is empty"
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(database))}?mode=ro", uri=True, isolation_level=None)) as connection:
            return _examine(connection, database)
    except UnicodeDecodeError:  # SQLite's own words about what it found hold a piece of it
        return "it holds text that is not UTF-8"
    except sqlite3.Error as error:
        if is_damage(error):
            return str(error)
        raise translate(error) from error


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
    """Move the store aside and return the error to raise. Nothing is overwritten and nothing deleted.

    The marker is durable before the first rename: wherever a crash falls, the next start does not find a clean slate.
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
    return FatalError(msg, way_out(database))


def leave_marker(directory: StateDir, database: Path, why: str) -> None:
    """From now on nothing starts without the offsets that were there, until a person decides. OSError when it cannot be left."""
    with marker_of(database).open("w") as stream:
        stream.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {why}\n")
        stream.flush()
        os.fsync(stream.fileno())
    directory.sync()


def way_out(database: Path) -> str:
    """What a person can do once a store is quarantined."""
    marker = marker_of(database)
    return (
        f"restore a backup as {database}, with no {database.name}-wal beside it, and remove {marker}; or remove only {marker} to start"
        " without offsets: every file is then read from its start_at again, which repeats what was delivered"
    )


def _free_name(database: Path) -> Path:
    """A name nobody has: seconds, and a number when two fall into one second."""
    stem = f"{database.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    taken = {entry.name for entry in database.parent.iterdir()}
    names = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3)))
    return database.with_name(next(name for name in names if not any(f"{name}{suffix}" in taken for suffix in ("", "-wal", "-shm"))))


def _move(source: Path, target: Path) -> None:
    """fsync, then rename: the order in which a power cut cannot leave an empty file."""
    if not os.path.lexists(source):
        return
    with suppress(OSError):  # a file on a failing disk is still worth keeping
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    source.rename(target)
