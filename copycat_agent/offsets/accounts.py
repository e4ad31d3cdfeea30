"""What runs to the end did with each file: counts and places in Kafka, written in the transaction that saves the offsets they belong to.

So an account survives a kill as the offsets do: no record is counted twice, and none that an offset has passed is left out.
"""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import TYPE_CHECKING

from copycat_agent.model import Account, Counts, Delivered, SourcePartition
from copycat_agent.offsets.schema import checksum

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from copycat_agent.offsets.schema import Row

_COLUMNS = "connector, key, path, state, why, counts, undated, delivered"
_SELECT = f"SELECT {_COLUMNS}, checksum FROM accounts"  # noqa: S608 - constants
_UPSERT = f"INSERT OR REPLACE INTO accounts ({_COLUMNS}, checksum) VALUES ({', '.join('?' * 9)})"  # noqa: S608


def add(connection: sqlite3.Connection, accounts: Mapping[SourcePartition, Account]) -> None:
    """Add to what is known of these files."""
    for partition, account in accounts.items():
        row = connection.execute(f"{_SELECT} WHERE connector = ? AND key = ?", partition).fetchone()
        known = _decode(row)[1] if row else Account()
        connection.execute(_UPSERT, _encode(partition, known + account))


def entries(connection: sqlite3.Connection, connector: str) -> dict[SourcePartition, Account]:
    """All accounts of a connector."""
    return dict(map(_decode, connection.execute(f"{_SELECT} WHERE connector = ?", (connector,))))


def forget(connection: sqlite3.Connection, connector: str) -> None:
    """Begin the connector's accounts anew."""
    connection.execute("DELETE FROM accounts WHERE connector = ?", (connector,))


def rename(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Accounts of `old` become `new`'s, added to what that has."""
    add(connection, {SourcePartition(new, partition.key): account for partition, account in entries(connection, old).items()})
    forget(connection, old)


def _encode(partition: SourcePartition, account: Account) -> Row:
    why = account.why.encode("utf-8", "backslashreplace").decode()
    path = account.path.encode("utf-8", "surrogateescape")
    row = (*partition, path, account.state, why, json.dumps(astuple(account.counts)), account.undated, json.dumps(account.delivered))
    return (*row, checksum(row))


def _decode(row: Row) -> tuple[SourcePartition, Account]:
    connector, key, path, state, why, counts, undated, delivered, _ = row
    places = tuple(Delivered(*one) for one in json.loads(delivered))
    account = Account(Counts(*json.loads(counts)), places, path.decode("utf-8", "surrogateescape"), state, why, undated)
    return SourcePartition(connector, key), account
