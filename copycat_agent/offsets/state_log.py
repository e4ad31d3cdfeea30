"""The store as entries of a compacted log: turns the changes of a transaction into entries, and entries into a store.

An entry is a row. Its key is the table's name and the primary key, its value the row, both as JSON; without a value the row was deleted. So
the latest values of all keys are the store. Two entries are not rows: the schema version, and the agent's identity (`agent_identity`).
Temporary triggers record the rows that a transaction touches, so that no write to the store is missing in the log.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from copycat_agent.errors import FatalError
from copycat_agent.offsets import agent_identity, schema

if TYPE_CHECKING:
    import sqlite3

Entries = Mapping[bytes, bytes]
"""The latest value of each key that has one."""
Changes = Mapping[bytes, bytes | None]
"""Values by key; None deletes the row."""

_VERSION_KEY = b'["schema"]'
IDENTITY_KEY = b'["identity"]'
_BYTES = "base64"
"""Bytes are written as an object with this key. SQLite itself has no objects."""


class StateLog(Protocol):
    """Keeps the entries of one agent's store, so that another process can take over."""

    def take(self) -> Entries:
        """Fences all other writers. Returns the entries that are there."""

    def publish(self, changes: Changes, everything: Callable[[], Entries]) -> None:
        """Writes `changes`, all or nothing. `everything` returns all entries after that, to compare them if an earlier write failed.

        Raises RetriableError if it is not known whether they were written, DataError if an entry can never be, FencedError if another
        process has called `take`.
        """

    def doubt(self) -> None:
        """Notes that the last `publish` was not committed here: the next one must compare first."""


class _StoreTable(NamedTuple):
    """A table and its columns; `key` is empty if the table has one row at most."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def select_one(self) -> str:
        """Returns the query for the row with a given key."""
        where = " AND ".join(f"{column} = ?" for column in self.key) or "TRUE"
        return f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {where}"  # noqa: S608 - names of our tables

    def note(self, image: str) -> str:
        """Returns a trigger's statement to record a row's key; `image` is NEW or OLD."""
        key = ", ".join(f"{image}.{name}" for name in self.key)
        return f" INSERT INTO changed VALUES ('{self.name}', json_array({key}));"  # noqa: S608 - as above

    def entry(self, row: tuple[Any, ...]) -> tuple[bytes, bytes]:
        """Returns the key and the value of a row."""
        values = dict(zip(self.columns, row, strict=True))
        return _text([self.name, *(values[name] for name in self.key)]), _text([_plain(value) for value in row])


class ChangedRows:
    """Records the rows that each transaction of a connection changes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tables = {table.name: table for table in _tables(connection)}
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA recursive_triggers = ON")  # otherwise REPLACE deletes rows without a trigger
        connection.execute("CREATE TEMP TABLE changed (name TEXT, row TEXT)")
        for table in self._tables.values():
            for event, images in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
                notes = "".join(map(table.note, images))
                connection.execute(f"CREATE TEMP TRIGGER {table.name}_{event} AFTER {event} ON main.{table.name} BEGIN{notes} END")

    def changes(self) -> dict[bytes, bytes | None]:
        """Returns what the open transaction has changed since the last call within it."""
        touched = self._connection.execute("SELECT DISTINCT name, row FROM changed").fetchall()
        found: dict[bytes, bytes | None] = {}
        for name, text in touched:
            table, key = self._tables[name], json.loads(text)
            found[_text([name, *key])] = None
            found.update(map(table.entry, self._connection.execute(table.select_one, key)))
        if touched:
            self._connection.execute("DELETE FROM changed")
        return found


def everything(connection: sqlite3.Connection, kept: agent_identity.StoredIdentity) -> dict[bytes, bytes]:
    """Returns all entries of the present store and identity."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    rows = dict(_rows(connection))
    return {_VERSION_KEY: _text(version), IDENTITY_KEY: agent_identity.text_of(kept).encode(), **rows}


def has_rows(connection: sqlite3.Connection) -> bool:
    """Returns whether anything was saved since the store was created."""
    return any(json.loads(key)[0] != "agent" for key, _ in _rows(connection))


def identity(entries: Entries, place: str) -> agent_identity.StoredIdentity:
    """Returns the agent's identity from its log. `place` names the log in messages. Raises FatalError if it cannot be read."""
    try:
        return agent_identity.parse(place, entries[IDENTITY_KEY].decode())
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _unreadable(place) from None


def fill(connection: sqlite3.Connection, entries: Entries, place: str) -> None:
    """Fills an empty database from a log. Raises FatalError if a newer version wrote the log, or it cannot be read."""
    try:
        version = int(json.loads(entries[_VERSION_KEY]))
        if version > schema.VERSION:
            words = f"{place} was written by a newer copycat-agent (schema {version}; this one knows up to {schema.VERSION})"
            raise FatalError(words, "install that version here as well")
        schema.migrate(connection, {number: step for number, step in schema.MIGRATIONS.items() if number < version})
        tables = {table.name: table for table in _tables(connection)}
        connection.execute("BEGIN")
        connection.execute("DELETE FROM agent")
        for key, value in entries.items():
            name, *_ = json.loads(key)
            if name in tables:
                row = [_from_plain(one) for one in json.loads(value)]
                connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - a name of our tables
        connection.execute("COMMIT")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _unreadable(place) from None


def _unreadable(place: str) -> FatalError:
    return FatalError(f"what {place} has of this agent cannot be read", "another program has written there: see what stands in it")


def _tables(connection: sqlite3.Connection) -> list[_StoreTable]:
    found = []
    for (name,) in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
        columns = connection.execute(f"PRAGMA main.table_info({name})").fetchall()
        keys = sorted((place, column) for _, column, _, _, _, place in columns if place)
        found.append(_StoreTable(name, tuple(column[1] for column in columns), tuple(column for _, column in keys)))
    return found


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[bytes, bytes]]:
    for table in _tables(connection):
        yield from map(table.entry, connection.execute(f"SELECT {', '.join(table.columns)} FROM {table.name}"))  # noqa: S608 - as above


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    return {_BYTES: base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _from_plain(value: Any) -> Any:  # noqa: ANN401 - what SQLite takes
    return base64.b64decode(value[_BYTES]) if isinstance(value, dict) else value
