"""Data that the store keeps besides offsets: losses, accounts of runs to the end, and the state that a person asked of each connector.

A loss is a range of bytes that was given up, with place, reason and time. Only the newest entries are kept, but totals count all of them.
An account says what a run to the end did with one file: counts, and places in Kafka. What its connector gave up in all parts of the run is
what it gave up since its accounts were opened. Losses and accounts are written in the transaction
that saves the offsets they belong to, so that after a kill none is counted twice or left out. An account's counts are added up batch by
batch; other connectors write none.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import astuple
from typing import TYPE_CHECKING, cast

from copycat_agent.model import Account, Counts, Loss, LossReason, LossTotal, OffsetRange, SourcePartition
from copycat_agent.offsets.saved_rows import bounded, checksum

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from copycat_agent.offsets.saved_rows import Row

KEPT = 10_000
"""Entries kept of each connector, the newest; up to `_SLACK` more between two prunes."""
_SLACK = 500

Totals = dict[tuple[str, LossReason], LossTotal]

_COLUMNS = "connector, key, path, start, stop, size_bytes, records, reason, detail, at_ms"
_SELECT = f"SELECT {_COLUMNS}, checksum FROM losses"  # noqa: S608 - constants
_INSERT = f"INSERT INTO losses ({_COLUMNS}, checksum) VALUES ({', '.join('?' * 11)})"  # noqa: S608

ACCOUNT_COLUMNS = "connector, key, path, state, why, counts, undated, delivered"
_SELECT_ACCOUNT = f"SELECT {ACCOUNT_COLUMNS}, checksum FROM accounts"  # noqa: S608 - constants
_UPSERT_ACCOUNT = f"INSERT OR REPLACE INTO accounts ({ACCOUNT_COLUMNS}, checksum) VALUES ({', '.join('?' * 9)})"  # noqa: S608


class Ledger:
    """Enters losses, within the caller's transaction. It remembers only when to prune."""

    def __init__(self) -> None:
        self._added: dict[str, int] = {}

    def enter(self, connection: sqlite3.Connection, losses: Collection[Loss]) -> bool:
        """Adds entries, and counts them in the totals. Returns whether old entries were dropped."""
        if not losses:
            return False
        connection.executemany(_INSERT, [_encode(loss) for loss in losses])
        known = totals(connection)
        added: Totals = {}
        for loss in losses:
            _count(added, (loss.partition.connector, loss.reason), LossTotal(loss.size_bytes, loss.records, 1))
        for key, total in added.items():
            _count(known, key, total)
        _save_totals(connection, {key: known[key] for key in added})
        return sum(self._prune(connection, name, losses) for name in {name for name, _ in added}) > 0

    def _prune(self, connection: sqlite3.Connection, connector: str, losses: Collection[Loss]) -> bool:
        """Drops the oldest entries of a connector, at its first loss and then every `_SLACK` entries. Returns whether any were."""
        added = self._added.get(connector, _SLACK) + sum(loss.partition.connector == connector for loss in losses)
        self._added[connector] = added % _SLACK
        if added < _SLACK:
            return False
        oldest = connection.execute(
            "SELECT number FROM losses WHERE connector = ? ORDER BY number DESC LIMIT 1 OFFSET ?", (connector, KEPT - 1)
        ).fetchone()
        return (
            bool(oldest) and connection.execute("DELETE FROM losses WHERE connector = ? AND number < ?", (connector, *oldest)).rowcount > 0
        )


def entries(connection: sqlite3.Connection, connector: str | None, limit: int) -> tuple[Loss, ...]:
    """Returns the newest entries, newest first; with `connector` None those of all connectors."""
    where, values = ("", ()) if connector is None else (" WHERE connector = ?", (connector,))
    rows = connection.execute(f"{_SELECT}{where} ORDER BY number DESC LIMIT ?", (*values, limit))
    return tuple(map(_decode, rows))


def totals(connection: sqlite3.Connection) -> Totals:
    """Returns everything ever given up, by connector and reason."""
    rows = connection.execute("SELECT connector, reason, size_bytes, records, entries FROM loss_totals")
    return {(name, cast("LossReason", reason)): LossTotal(*numbers) for name, reason, *numbers in rows}


def rename(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Moves entries, totals and the target of `old` to `new`. A target that `new` has already stays."""
    _rename_losses_before(connection, old, new)
    for number, *row in connection.execute("SELECT number, * FROM losses WHERE connector = ?", (old,)).fetchall():
        moved = (new, *row[2:-1])
        connection.execute("UPDATE losses SET connector = ?, checksum = ? WHERE number = ?", (new, checksum(moved), number))
    known = totals(connection)
    for name, reason in list(known):
        if name == old:
            _count(known, (new, reason), known.pop((old, reason)))
    connection.execute("DELETE FROM loss_totals WHERE connector = ?", (old,))
    _save_totals(connection, {key: total for key, total in known.items() if key[0] == new})
    wishes = targets(connection)
    if old in wishes and new not in wishes:
        set_target(connection, new, wishes[old])
    connection.execute("DELETE FROM targets WHERE connector = ?", (old,))


def targets(connection: sqlite3.Connection) -> dict[str, str]:
    """Returns the state that a person last asked of each connector."""
    return dict(connection.execute("SELECT connector, target FROM targets"))


def set_target(connection: sqlite3.Connection, connector: str, target: str) -> None:
    """Saves the state that a person asks of a connector."""
    row = (connector, target)
    connection.execute("INSERT OR REPLACE INTO targets VALUES (?, ?, ?)", (*row, checksum(row)))


def repair(connection: sqlite3.Connection) -> Mapping[str, int]:
    """Drops rows that do not match their checksum. Returns their number by table. Offsets do not depend on any of them.

    Totals that were dropped are counted again from the entries that are left, which is less than the truth.
    """
    tables = ("losses", "loss_totals", "targets", "accounts", "losses_before")
    dropped = {table: count for table in tables if (count := _repair(connection, table))}
    if "loss_totals" in dropped:
        known = totals(connection)
        counted: Totals = {}
        for name, reason, *sums in connection.execute("SELECT connector, reason, size_bytes, records, 1 FROM losses"):
            _count(counted, (name, reason), LossTotal(*sums))  # SQLite's own sum fails beyond 64 bits
        _save_totals(connection, {key: total for key, total in counted.items() if key not in known})
    return dropped


def _repair(connection: sqlite3.Connection, table: str) -> int:
    key = {"losses": "number", "loss_totals": "connector, reason", "accounts": "connector, key"}.get(table, "connector")
    columns = key.count(",") + 1
    try:
        broken = [row[:columns] for row in connection.execute(f"SELECT {key}, * FROM {table}") if _is_broken(row[columns:], table)]  # noqa: S608
    except sqlite3.OperationalError:  # a text is no longer UTF-8; SQLite does not tell which
        return connection.execute(f"DELETE FROM {table}").rowcount  # noqa: S608
    connection.executemany(f"DELETE FROM {table} WHERE ({key}) = ({', '.join('?' * columns)})", broken)  # noqa: S608
    return len(broken)


def _is_broken(row: Row, table: str) -> bool:
    values = row[1:-1] if table == "losses" else row[:-1]  # the checksum does not cover the number, which is only for order
    return bool(checksum(tuple(values)) != row[-1])


def _count(sums: Totals, key: tuple[str, LossReason], more: LossTotal) -> None:
    before = sums.get(key, LossTotal(0, 0, 0))
    sums[key] = LossTotal(*(bounded(one + other) for one, other in zip(before, more, strict=True)))


def _save_totals(connection: sqlite3.Connection, sums: Totals) -> None:
    rows = [(*key, *total) for key, total in sums.items()]
    connection.executemany("INSERT OR REPLACE INTO loss_totals VALUES (?, ?, ?, ?, ?, ?)", [(*row, checksum(row)) for row in rows])


def _encode(loss: Loss) -> Row:
    path = loss.path.encode("utf-8", "surrogateescape")
    detail = loss.detail.encode("utf-8", "backslashreplace").decode()
    numbers = map(bounded, (loss.start, loss.end, loss.size_bytes, loss.records))
    row = (*loss.partition, path, *numbers, loss.reason, detail, bounded(loss.at_ms))
    return (*row, checksum(row))


def _decode(row: Row) -> Loss:
    connector, key, path, start, end, size_bytes, records, reason, detail, at_ms, _ = row
    partition = SourcePartition(connector, key)
    return Loss(partition, path.decode("utf-8", "surrogateescape"), start, end, size_bytes, records, reason, detail, at_ms)


def add_accounts(connection: sqlite3.Connection, accounts: Mapping[SourcePartition, Account]) -> None:
    """Adds to the accounts of these files."""
    for partition, account in accounts.items():
        row = connection.execute(f"{_SELECT_ACCOUNT} WHERE connector = ? AND key = ?", partition).fetchone()
        known = _decode_account(row)[1] if row else Account()
        connection.execute(_UPSERT_ACCOUNT, _encode_account(partition, known + account))


def accounts_of(connection: sqlite3.Connection, connector: str) -> dict[SourcePartition, Account]:
    """Returns all accounts of a connector."""
    return dict(map(_decode_account, connection.execute(f"{_SELECT_ACCOUNT} WHERE connector = ?", (connector,))))


def open_accounts(connection: sqlite3.Connection, connector: str) -> None:
    """Notes what was given up of the connector so far, unless its accounts are open: what is given up from now on belongs to them."""
    if _losses_before(connection, connector) is None:
        _save_losses_before(connection, connector, _totals_of(connection, connector))


def account_losses(connection: sqlite3.Connection, connector: str) -> dict[LossReason, LossTotal]:
    """Returns what was given up of the connector since its accounts were opened; everything if nobody knows when that was."""
    before, none = _losses_before(connection, connector) or {}, LossTotal(0, 0, 0)
    return {
        reason: LossTotal(*(now - earlier for now, earlier in zip(total, before.get(reason, none), strict=True)))
        for reason, total in _totals_of(connection, connector).items()
        if total.entries > before.get(reason, none).entries
    }


def forget_accounts(connection: sqlite3.Connection, connector: str) -> None:
    """Deletes the connector's accounts. They are not open any more."""
    connection.execute("DELETE FROM accounts WHERE connector = ?", (connector,))
    connection.execute("DELETE FROM losses_before WHERE connector = ?", (connector,))


def _totals_of(connection: sqlite3.Connection, connector: str) -> dict[LossReason, LossTotal]:
    return {reason: total for (name, reason), total in totals(connection).items() if name == connector}


def _losses_before(connection: sqlite3.Connection, connector: str) -> dict[LossReason, LossTotal] | None:
    row = connection.execute("SELECT totals FROM losses_before WHERE connector = ?", (connector,)).fetchone()
    return {reason: LossTotal(*numbers) for reason, numbers in json.loads(row[0]).items()} if row else None


def _save_losses_before(connection: sqlite3.Connection, connector: str, sums: Mapping[LossReason, LossTotal]) -> None:
    row = (connector, json.dumps(sums))
    connection.execute("INSERT OR REPLACE INTO losses_before VALUES (?, ?, ?)", (*row, checksum(row)))


def _rename_losses_before(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Adds up what both had given up, before their totals are: of one without open accounts that is all it has given up so far."""
    noted = {name: _losses_before(connection, name) for name in (old, new)}
    if any(sums is not None for sums in noted.values()):
        both: Totals = {}
        for name, sums in noted.items():
            for reason, total in (_totals_of(connection, name) if sums is None else sums).items():
                _count(both, (new, reason), total)
        _save_losses_before(connection, new, {reason: total for (_, reason), total in both.items()})
        connection.execute("DELETE FROM losses_before WHERE connector = ?", (old,))


def rename_accounts(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Adds the accounts of `old` to those of `new`."""
    add_accounts(connection, {SourcePartition(new, partition.key): account for partition, account in accounts_of(connection, old).items()})
    forget_accounts(connection, old)


def _encode_account(partition: SourcePartition, account: Account) -> Row:
    why = account.why.encode("utf-8", "backslashreplace").decode()
    path = account.path.encode("utf-8", "surrogateescape")
    row = (*partition, path, account.state, why, json.dumps(astuple(account.counts)), account.undated, json.dumps(account.delivered))
    return (*row, checksum(row))


def _decode_account(row: Row) -> tuple[SourcePartition, Account]:
    connector, key, path, state, why, counts, undated, delivered, _ = row
    places = tuple(OffsetRange(*one) for one in json.loads(delivered))
    account = Account(Counts(*json.loads(counts)), places, path.decode("utf-8", "surrogateescape"), state, why, undated)
    return SourcePartition(connector, key), account
