"""The store as entries of a compacted log: what a transaction has changed, and the store that a log makes.

An entry is a row. Its key is the table and the primary key, its value the row, both as JSON; no value: the row was deleted. So whoever has
the latest value of each key has the store. Two entries are no rows: the version of the tables, and who the agent is (`agent_identity`).
Temporary triggers note which rows a transaction touches: whatever writes to the store is in the log.
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
"""Values by their keys; None deletes."""

_VERSION_KEY = b'["schema"]'
IDENTITY_KEY = b'["identity"]'
_BYTES = "base64"
"""How a value of bytes is told from others: an object with this name in it. SQLite has no objects."""


class StateLog(Protocol):
    """Where the entries of one agent's store are kept, so that another process can take them over."""

    def take(self) -> Entries:
        """Keep every other process from writing from now on, and return what is there."""

    def publish(self, changes: Changes, everything: Callable[[], Entries]) -> None:
        """Write `changes`, all or nothing. `everything` is what shall be there then: it is compared where a write has failed before.

        RetriableError: it is not known whether it was written. FencedError: another process has called `take`.
        """

    def doubt(self) -> None:
        """What was published last does not hold here: compare before the next."""


class _StoreTable(NamedTuple):
    """Columns of a table; `key` is empty where it has one row at most."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def select_one(self) -> str:
        """The query for the row with a key."""
        where = " AND ".join(f"{column} = ?" for column in self.key) or "TRUE"
        return f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {where}"  # noqa: S608 - names of our tables

    def note(self, image: str) -> str:
        """What a trigger does: note the key of the row that NEW or OLD is."""
        key = ", ".join(f"{image}.{name}" for name in self.key)
        return f" INSERT INTO changed VALUES ('{self.name}', json_array({key}));"  # noqa: S608 - as above

    def entry(self, row: tuple[Any, ...]) -> tuple[bytes, bytes]:
        """Returns the key and the value of a row."""
        values = dict(zip(self.columns, row, strict=True))
        return _text([self.name, *(values[name] for name in self.key)]), _text([_plain(value) for value in row])


class ChangedRows:
    """A connection, watched for the rows that each of its transactions changes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tables = {table.name: table for table in _tables(connection)}
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA recursive_triggers = ON")  # or REPLACE deletes without telling
        connection.execute("CREATE TEMP TABLE changed (name TEXT, row TEXT)")
        for table in self._tables.values():
            for event, images in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
                notes = "".join(map(table.note, images))
                connection.execute(f"CREATE TEMP TRIGGER {table.name}_{event} AFTER {event} ON main.{table.name} BEGIN{notes} END")

    def changes(self) -> dict[bytes, bytes | None]:
        """What the transaction that is open has changed since the last call in it."""
        touched = self._connection.execute("SELECT DISTINCT name, row FROM changed").fetchall()
        found: dict[bytes, bytes | None] = {}
        for name, text in touched:
            table, key = self._tables[name], json.loads(text)
            found[_text([name, *key])] = None
            found.update(map(table.entry, self._connection.execute(table.select_one, key)))
        if touched:
            self._connection.execute("DELETE FROM changed")
        return found


def everything(connection: sqlite3.Connection, kept: agent_identity.Kept) -> dict[bytes, bytes]:
    """All entries of the store as it is now, and who the agent is."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    rows = dict(_rows(connection))
    return {_VERSION_KEY: _text(version), IDENTITY_KEY: agent_identity.text_of(kept).encode(), **rows}


def identity(entries: Entries, place: str) -> agent_identity.Kept:
    """Who the agent is by its log, which is at `place`. FatalError when that cannot be read."""
    try:
        return agent_identity.parse(place, entries[IDENTITY_KEY].decode())
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _unreadable(place) from None


def fill(connection: sqlite3.Connection, entries: Entries, place: str) -> None:
    """Make an empty database the store that the log has. FatalError when a newer version wrote it, or it cannot be read."""
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
