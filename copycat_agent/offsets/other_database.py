"""Reads a table of another program's SQLite file from a copy. The file is not trusted: time and sizes are limited."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

from copycat_agent.errors import CopycatError
from copycat_agent.offsets.store_reader import copy_database

_HEADER = b"SQLite format 3\0"
_SECONDS = 20.0
"""Time limit of the query: a hostile schema can make any query endless."""
_VALUE_BYTES_MAX = 2**20
"""Size limit of a value, or a row."""
_STEPS = 10_000
"""Instructions of SQLite's virtual machine between two looks at the clock."""


def is_database(path: Path) -> bool:
    """Returns whether a file has the header of an SQLite database. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_HEADER)) == _HEADER


def rows_of(database: Path, table: str, columns: tuple[str, ...], *, bytes_max: int) -> list[tuple[object, ...]]:
    """Returns these columns of a table in order of row id: texts as bytes, None for a missing column; [] if there is no such table.

    Raises CopycatError for a file that is too large, damaged, or no database, and RetriableError while somebody writes to it.
    """
    with tempfile.TemporaryDirectory(prefix="copycat-look-") as directory:
        copy = Path(directory) / "copy.db"
        try:
            for path in (database, Path(f"{database}-wal"), Path(f"{database}-journal")):
                _check_size(path, bytes_max, is_needed=path is database)
            if not copy_database(database, copy):
                raise CopycatError(f"{database}: there is no such file")
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{database}-journal", f"{copy}-journal")
            with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                return _read(connection, table, columns)
        except OSError as error:
            raise CopycatError(f"{database}: {error.strerror}", "run this as a user who may read it") from None
        except (sqlite3.Error, OverflowError) as error:
            raise CopycatError(f"{database} cannot be read: {error}") from None


def _check_size(path: Path, bytes_max: int, *, is_needed: bool) -> None:
    """Raises CopycatError for a file that is too large or not regular, and OSError."""
    if not is_needed and not path.exists():
        return
    info = path.stat()
    if not stat.S_ISREG(info.st_mode):
        raise CopycatError(f"{path}: not a regular file")
    if info.st_size > bytes_max:
        raise CopycatError(f"{path}: {info.st_size:,} bytes are more than {bytes_max:,}")


def _read(connection: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> list[tuple[object, ...]]:
    end = time.monotonic() + _SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    connection.text_factory = bytes
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES_MAX)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone():
        return []
    there = {bytes(row[1]).decode("utf-8", "replace") for row in connection.execute(f'PRAGMA table_info("{table}")')}
    wanted = ", ".join(f'"{column}"' if column in there else "NULL" for column in columns)
    return connection.execute(f'SELECT {wanted} FROM "{table}" ORDER BY rowid').fetchall()  # noqa: S608 - our own names
