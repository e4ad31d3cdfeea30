"""Reads saved offsets from a copy of the store, without a lock, while an agent may be running. For `plan` and dry runs."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.model import SavedRow, SourcePartition
from copycat_agent.offsets import saved_rows
from copycat_agent.offsets.state_dir import DATABASE
from copycat_agent.options import Definition

_TRIES = 5


def saved_offsets(state_dir: Path) -> dict[SourcePartition, SavedRow]:
    """Returns the committed offsets and states of all connectors; {} if there is no store.

    Raises FatalError if the store cannot be read, RetriableError if it changed during each attempt to copy it.
    """
    with _copy_of(state_dir) as connection:
        return {} if connection is None else saved_rows.every_row(connection, connection.execute("PRAGMA user_version").fetchone()[0])


def store_outline(state_dir: Path) -> dict[str, object]:
    """Returns a description without contents: tables with their row counts, offsets per connector, and SQLite's quick check.

    Returns {} if there is no store. Raises what `saved_offsets` raises.
    """
    with _copy_of(state_dir) as connection:
        if connection is None:
            return {}
        tables = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return {
            "version": connection.execute("PRAGMA user_version").fetchone()[0],
            "check": [row[0] for row in connection.execute("PRAGMA quick_check(20)")],
            "tables": [{"name": name, "sql": sql, "rows": _rows(connection, name)} for name, sql in tables],
            "offsets": dict(connection.execute("SELECT connector, count(*) FROM offsets GROUP BY connector")),
        }


@contextmanager
def _copy_of(state_dir: Path) -> Iterator[sqlite3.Connection | None]:
    """Yields a connection to a copy of the store; None if there is no store.

    The agent holds an exclusive lock on the database, so its files are copied. The write-ahead log has checksums: a partial commit is
    ignored. Only a checkpoint during the copy would spoil it, and that is detected.
    """
    with tempfile.TemporaryDirectory(prefix="copycat-look-") as directory:
        copy = Path(directory) / DATABASE
        try:
            if not copy_database(state_dir / DATABASE, copy):
                yield None
                return
            with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                yield connection
        except OSError as error:
            raise FatalError(f"the saved offsets in {state_dir} cannot be read: {error.strerror}", "run it as the agent's user") from None
        except sqlite3.Error as error:
            hint = "start the agent: it says what is wrong with the store, and what to do"
            raise FatalError(f"the saved offsets in {state_dir} cannot be read: {error}", hint) from None


def _rows(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608 - a name out of the file itself


def offsets_of(definition: Definition, saved: Mapping[SourcePartition, SavedRow]) -> dict[SourcePartition, SavedRow]:
    """Returns the connector's rows, and those under its earlier names for partitions that it has no row of."""
    own: dict[SourcePartition, SavedRow] = {}
    for name in (definition.name, *definition.renamed_from):
        for partition, offset in saved.items():
            if partition.connector == name:
                own.setdefault(SourcePartition(definition.name, partition.key), offset)
    return own


def copy_database(database: Path, copy: Path) -> bool:
    """Copies database and write-ahead log of one moment. Returns False if there is no database. Raises OSError and RetriableError."""
    for _ in range(_TRIES):
        before = _state(database)
        if before is None:
            return False
        shutil.copyfile(database, copy)
        try:
            shutil.copyfile(f"{database}-wal", f"{copy}-wal")
        except FileNotFoundError:
            Path(f"{copy}-wal").unlink(missing_ok=True)
        if _state(database) == before:
            return True
    raise RetriableError(f"{database} does not keep still", "try again")


def _state(database: Path) -> tuple[int, int, int] | None:
    try:
        info = os.stat(database)  # noqa: PTH116 - beside the others
    except FileNotFoundError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns
