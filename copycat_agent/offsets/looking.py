"""A look at saved offsets that takes no lock and changes nothing, whether an agent runs or not: `plan` and dry runs."""

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
    """Returns the committed offsets and states of all connectors; empty when nothing ever was.

    Raises FatalError when the store cannot be read, RetriableError when it did not keep still.
    """
    with _copy_of(state_dir) as connection:
        return {} if connection is None else saved_rows.every_row(connection, connection.execute("PRAGMA user_version").fetchone()[0])


def store_outline(state_dir: Path) -> dict[str, object]:
    """Describes the store without its contents: tables with their rows counted, offsets counted by connector, its own check.

    Raises what `saved_offsets` raises; empty when there is none.
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
    """A connection to a copy of the store; None when there is none.

    The agent's own connection locks everybody else out, so the copy is made of the database and its write-ahead log as files. The log
    checks itself: a commit that is copied in half is left out. Only a checkpoint meanwhile would spoil the copy, and is seen.
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
    """Returns what is saved of the connector, and what is under earlier names of it where it has none of its own."""
    own: dict[SourcePartition, SavedRow] = {}
    for name in (definition.name, *definition.renamed_from):
        for partition, offset in saved.items():
            if partition.connector == name:
                own.setdefault(SourcePartition(definition.name, partition.key), offset)
    return own


def copy_database(database: Path, copy: Path) -> bool:
    """Copies database and write-ahead log as they were at one moment. False when there is none; raises OSError, and RetriableError."""
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
