"""Translates errors of SQLite by what the caller can do: try again, give up, or correct its values."""

from __future__ import annotations

import sqlite3

from copycat_agent.errors import CopycatError, FatalError, RetriableError, bug_words

RETRIABLE = {
    sqlite3.SQLITE_FULL: "no space is left for the offset store",
    sqlite3.SQLITE_BUSY: "another program has locked the offset store",
    sqlite3.SQLITE_LOCKED: "another program has locked the offset store",
    sqlite3.SQLITE_READONLY: "the offset store is read-only",
    sqlite3.SQLITE_NOMEM: "no memory is left for the offset store",
    sqlite3.SQLITE_CANTOPEN: "the offset store cannot be opened",
    sqlite3.SQLITE_INTERRUPT: "the offset store was interrupted",
}
"""Primary result codes after which the same commit may be tried again: SQLite has rolled back and nothing is lost.

Everything else is fatal, above all SQLITE_IOERR: after a failed fsync the kernel may have dropped the pages, and a second
fsync that succeeds proves nothing.
"""

_HINTS = {
    sqlite3.SQLITE_FULL: "make room on the file system of {}",
    sqlite3.SQLITE_READONLY: "look whether the file system of {} is mounted read-only, and whether the agent's user may write to it",
    sqlite3.SQLITE_CANTOPEN: "look whether the file system of {} is there, and whether the agent's user may write to it",
}

_DAMAGE = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR})

_OF_STATEMENTS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError)


def is_callers(error: Exception) -> bool:
    """Returns whether the error concerns the caller alone (a value that cannot be stored, or a bug) and not the store."""
    return not isinstance(error, sqlite3.Error | MemoryError) or isinstance(error, _OF_STATEMENTS)


def unsaved(error: Exception) -> CopycatError:
    """Returns the error for a request that failed with an error that `is_callers`."""
    if isinstance(error, CopycatError):
        return error
    return FatalError(f"this cannot be saved: {bug_words(error)}", "this is a bug in copycat-agent: please report it")


def primary(error: sqlite3.Error) -> int:
    """Returns the primary result code; SQLITE_ERROR if Python raised without one, as for a text that is not UTF-8."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Returns whether an error while reading a store means that the file itself is damaged."""
    return primary(error) in _DAMAGE


def translate(error: sqlite3.Error, path: object = "the state directory") -> CopycatError:
    """Returns RetriableError or FatalError, with what to do. `path` is the store's file."""
    words = RETRIABLE.get(primary(error))
    if words is not None:
        return RetriableError(f"{words} ({error})", _HINTS.get(primary(error), "").format(path))
    if is_damage(error):
        hint = "stop the agent and start it again: it checks the store and moves it aside"
        return FatalError(f"the offset store is damaged ({error})", hint)
    return FatalError(f"the offset store failed ({error})", "check the disk (df, dmesg, smartctl); then start the agent again")
