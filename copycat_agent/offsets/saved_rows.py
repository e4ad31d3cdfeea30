"""Reads, writes and deletes rows of offsets and of connectors' states, each with a checksum.

A connector's state is passed around together with its offsets (under `model.STATE_KEY`), but has a table of its own.
"""

from __future__ import annotations

import json
import time
import zlib
from typing import TYPE_CHECKING, Any

from copycat_agent.model import (
    STATE_KEY,
    Fingerprint,
    SavedRow,
    SourceOffset,
    SourcePartition,
    SourceState,
    from_earlier_version,
    state_partition,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping

    Row = tuple[Any, ...]

LARGEST = 2**63 - 1
"""The largest integer of SQLite."""

COLUMNS = (
    "connector", "key", "position", "records", "done", "skipping", "path", "size", "gone_ms", "head_bytes", "head", "tail_bytes", "tail",
    "updated_ms", "compression", "mtime_ns", "trouble", "cut",
)  # fmt: skip
"""Columns of an offset before its checksum, in the order of `encode` and `decode`."""

_ALL = ", ".join((*COLUMNS, "checksum"))
SELECT = f"SELECT {_ALL} FROM offsets"  # noqa: S608 - constants
_UPSERT = f"INSERT OR REPLACE INTO offsets ({_ALL}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"  # noqa: S608
STATE_COLUMNS = "connector, state, updated_ms"
"""Columns of a state before its checksum."""
_UPSERT_STATE = f"INSERT OR REPLACE INTO connector_state ({STATE_COLUMNS}, checksum) VALUES (?, ?, ?, ?)"  # noqa: S608
_SINCE = {3: (("compression", "''"),), 4: (("mtime_ns", "0"), ("trouble", "''")), 7: (("cut", "''"),)}
"""Columns that later versions added, with their values for older rows."""
_ALWAYS = len(COLUMNS) - sum(map(len, _SINCE.values()))
_STATES_SINCE = 9

_CURSOR = "cursor:"
"""Prefix in column `cut` of a source's own position, as JSON. Such a source never sends a record in parts, and needs no `cut`."""


def bounded(number: int) -> int:
    """Returns `number`, or the nearest integer of SQLite."""
    return min(max(number, -LARGEST - 1), LARGEST)


def checksum(row: Row) -> int:
    """Returns the CRC-32 of a row. SQLite's own checks find broken pages, but no flipped bit within a value."""
    return zlib.crc32(ascii(row).encode())


def _time_in_full(time_ns: int) -> int | bytes:
    """Returns a file's exact time, as digits from the year 2262 on. A file whose time differs from the saved one counts as changed."""
    return time_ns if time_ns == bounded(time_ns) else b"%d" % time_ns


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def encode(partition: SourcePartition, offset: SourceOffset) -> Row:
    """Returns an offset's row with its checksum. The path is stored as bytes: a file name need not be UTF-8."""
    print_ = offset.fingerprint
    row = (
        partition.connector,
        partition.key,
        json.dumps(offset.position),
        bounded(offset.records),
        int(offset.done),
        int(offset.skipping),
        offset.path.encode("utf-8", "surrogateescape"),
        bounded(offset.size),
        bounded(offset.gone_ms),
        bounded(print_.head_bytes),
        print_.head,
        bounded(print_.tail_bytes),
        print_.tail,
        _now_ms(),
        offset.compression,
        _time_in_full(offset.mtime_ns),
        offset.trouble.encode("utf-8", "backslashreplace").decode(),  # it may quote bytes of a file that are not UTF-8
        f"{_CURSOR}{offset.cursor}" if offset.cursor else offset.cut,
    )
    return (*row, offset_checksum(row))


def decode(row: Row) -> tuple[SourcePartition, SourceOffset]:
    """Returns partition and offset of a row."""
    connector, key, position, records, done, skipping, path, size, gone_ms, head_bytes, head, tail_bytes, tail, _, *later = row
    offset = SourceOffset(
        position=int(position) if position.isdecimal() else json.loads(position),
        records=records,
        done=bool(done),
        skipping=bool(skipping),
        path=path.decode("utf-8", "surrogateescape"),
        size=size,
        gone_ms=gone_ms,
        fingerprint=Fingerprint(head_bytes, head, tail_bytes, tail),
        compression=later[0],
        mtime_ns=int(later[1]),
        trouble=later[2],
        **_of_cut(later[3]),
    )
    return SourcePartition(connector, key), offset


def _of_cut(text: str) -> dict[str, str]:
    """Returns the field of column `cut`: a format's note about a record sent in parts, or a source's own position."""
    return {"cursor": text[len(_CURSOR) :]} if text.startswith(_CURSOR) else {"cut": text}


def offset_checksum(row: Row) -> int:
    """Returns the checksum of an offset's `COLUMNS`, without later columns at the end that are empty: older versions did not have them."""
    size = len(row)
    while size > _ALWAYS and not row[size - 1]:
        size -= 1
    return checksum(row[:size])


def select(version: int) -> str:
    """Returns `SELECT` for a store of this version."""
    query = SELECT
    for since, columns in _SINCE.items():
        if version < since:
            for name, nothing in columns:
                query = query.replace(name, f"{nothing} AS {name}")
    return query


def _encode_state(connector: str, state: SourceState) -> Row:
    row = (connector, json.dumps(dict(state.values), separators=(",", ":")), _now_ms())
    return (*row, checksum(row))


def offsets_of(connection: sqlite3.Connection, connector: str) -> dict[SourcePartition, SourceOffset]:
    """Returns the offsets of a connector."""
    return dict(map(decode, connection.execute(f"{SELECT} WHERE connector = ?", (connector,))))


def state_of(connection: sqlite3.Connection, connector: str) -> SourceState | None:
    """Returns the state of a connector; None while it has none."""
    row = connection.execute("SELECT state FROM connector_state WHERE connector = ?", (connector,)).fetchone()
    return SourceState(json.loads(row[0])) if row else None


def all_of(connection: sqlite3.Connection, connector: str) -> dict[SourcePartition, SavedRow]:
    """Returns all rows of a connector: its state, if it has one, and its offsets."""
    state = state_of(connection, connector)
    return ({} if state is None else {state_partition(connector): state}) | offsets_of(connection, connector)


def every_row(connection: sqlite3.Connection, version: int) -> dict[SourcePartition, SavedRow]:
    """Returns all rows of all connectors, from a store of this version or an earlier one."""
    offsets = map(decode, connection.execute(select(version)))
    if version < _STATES_SINCE:
        return dict(from_earlier_version(*one) for one in offsets)
    states = connection.execute("SELECT connector, state FROM connector_state")
    return {state_partition(name): SourceState(json.loads(text)) for name, text in states} | dict(offsets)


def row_of(connection: sqlite3.Connection, partition: SourcePartition) -> SavedRow | None:
    """Returns the saved offset of a partition, or the connector's state for the partition of its state; None if there is none."""
    if partition.key == STATE_KEY:
        return state_of(connection, partition.connector)
    row = connection.execute(f"{SELECT} WHERE connector = ? AND key = ?", partition).fetchone()
    return decode(row)[1] if row else None


def keys_of(connection: sqlite3.Connection, connector: str) -> list[SourcePartition]:
    """Returns the partitions of all rows of a connector."""
    query = "SELECT connector, key FROM offsets WHERE connector = ? UNION ALL SELECT connector, ? FROM connector_state WHERE connector = ?"
    return [SourcePartition(*row) for row in connection.execute(query, (connector, STATE_KEY, connector))]


def named(connection: sqlite3.Connection) -> list[str]:
    """Returns the connectors that have rows, sorted."""
    query = "SELECT connector FROM offsets UNION SELECT connector FROM connector_state ORDER BY connector"
    return [name for (name,) in connection.execute(query)]


def further(connection: sqlite3.Connection, partition: SourcePartition, row: SavedRow) -> int | None:
    """Returns the saved position of the partition if it is ahead of that of `row`, else None. States have no order."""
    found = connection.execute("SELECT position FROM offsets WHERE connector = ? AND key = ?", partition).fetchone()
    position = int(found[0]) if found and found[0].isdigit() else 0
    return position if isinstance(row, SourceOffset) and row.position < position else None


def save(connection: sqlite3.Connection, rows: Mapping[SourcePartition, SavedRow]) -> None:
    """Saves rows, and replaces older ones."""
    offsets = [encode(one, row) for one, row in rows.items() if isinstance(row, SourceOffset)]
    states = [_encode_state(one.connector, row) for one, row in rows.items() if isinstance(row, SourceState)]
    connection.executemany(_UPSERT, offsets)
    connection.executemany(_UPSERT_STATE, states)


def delete(connection: sqlite3.Connection, partitions: Collection[SourcePartition]) -> None:
    """Deletes the rows of these partitions."""
    connection.executemany("DELETE FROM offsets WHERE connector = ? AND key = ?", partitions)
    states = [(one.connector,) for one in partitions if one.key == STATE_KEY]
    connection.executemany("DELETE FROM connector_state WHERE connector = ?", states)


def rename(connection: sqlite3.Connection, old: str, new: str) -> tuple[list[SourcePartition], list[SourcePartition]]:
    """Moves the rows of `old` to `new`, which keeps the rows it has. Returns the partitions that `new` got, and those that both had."""
    theirs, known = all_of(connection, old), set(keys_of(connection, new))
    moved = {now: row for one, row in theirs.items() if (now := SourcePartition(new, one.key)) not in known}
    save(connection, moved)
    delete(connection, theirs.keys())
    return list(moved), [now for one in theirs if (now := SourcePartition(new, one.key)) in known]
