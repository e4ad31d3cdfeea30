"""What an error of SQLite means for the caller: try again, give up, or look at the caller's own values."""

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

_DAMAGE = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR})

_OF_STATEMENTS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError)


def is_callers(error: Exception) -> bool:
    """Whether it belongs to who asked for this: a value that cannot be stored, or a bug. The store is as good as before."""
    return not isinstance(error, sqlite3.Error | MemoryError) or isinstance(error, _OF_STATEMENTS)


def unsaved(error: Exception) -> CopycatError:
    """The refusal of what somebody asked for, when that `is_callers`."""
    if isinstance(error, CopycatError):
        return error
    return FatalError(f"this cannot be saved: {bug_words(error)}", "this is a bug in copycat-agent: please report it")


def primary(error: sqlite3.Error) -> int:
    """Primary result code; SQLITE_ERROR when Python raised without one (a text that is not UTF-8)."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Whether `error`, met while reading a store, says that the file itself is broken (not its surroundings)."""
    return primary(error) in _DAMAGE


def translate(error: sqlite3.Error) -> CopycatError:
    """The error of this package that says what the caller can do."""
    words = RETRIABLE.get(primary(error))
    if words is not None:
        return RetriableError(f"{words} ({error})")
    if is_damage(error):
        hint = "stop the agent and start it again: it checks the store and moves it aside"
        return FatalError(f"the offset store is damaged ({error})", hint)
    return FatalError(f"the offset store failed ({error})", "check the disk (dmesg, smartctl); then start the agent again")
