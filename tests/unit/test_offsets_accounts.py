"""Accounts in the store: saved with the offsets they belong to or not at all, and never in the way of an agent."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.model import Account, Counts, Loss, LossTotal, OffsetRange, SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.ledger import ACCOUNT_COLUMNS
from copycat_agent.offsets.saved_rows import checksum

if TYPE_CHECKING:
    from pathlib import Path

FILE, OTHER = SourcePartition("app", "1:2:3:0"), SourcePartition("app", "1:3:3:0")
FIRST = Account(Counts(3, 30, 2, 1), (OffsetRange("t", 0, 4, 5),), "/log/café\udce9", undated=1)
MORE = Account(Counts(2, 20, 2), (OffsetRange("t", 1, 0, 1),), "/log/new")


def test_accounts_add_up_and_survive_a_restart(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "s") as store:
        store.commit({FILE: SourceOffset(30)}, accounts={FILE: FIRST})
        store.commit({FILE: SourceOffset(50)}, accounts={FILE: MORE, OTHER: Account(state="skipped", why="why", path="/x")})
    with OffsetStore.open(tmp_path / "s") as store:
        assert store.accounts("app") == {FILE: FIRST + MORE, OTHER: Account(state="skipped", why="why", path="/x")}
        store.begin_accounts("app")
        assert store.accounts("app") == {}
        assert store.read("app") == {FILE: SourceOffset(50)}


def test_what_is_not_saved_is_not_counted() -> None:
    with OffsetStore.in_memory() as store:
        store.commit({FILE: SourceOffset(30)}, accounts={FILE: FIRST})
        with pytest.raises(FatalError, match="backwards"):
            store.commit({FILE: SourceOffset(10)}, accounts={FILE: MORE})
        assert store.accounts("app") == {FILE: FIRST}


def test_accounts_go_with_their_connector_when_it_is_renamed() -> None:
    with OffsetStore.in_memory() as store:
        store.commit({FILE: SourceOffset(30)}, accounts={FILE: FIRST})
        store.rename("app", "new")
        assert store.accounts("app") == {}
        assert store.accounts("new") == {SourcePartition("new", FILE.key): FIRST}


def test_losses_of_a_run_are_those_of_all_of_its_parts(tmp_path: Path) -> None:
    def loss(name: str, size_bytes: int) -> Loss:
        return Loss(SourcePartition(name, FILE.key), "/log", 0, size_bytes, size_bytes, 1, "destroyed", "", 1)

    with OffsetStore.open(tmp_path / "s") as store:
        store.commit({}, losses=[loss("app", 1), loss("new", 2), loss("other", 3)])
        store.open_accounts("app")
        store.commit({}, losses=[loss("app", 10)])
    with OffsetStore.open(tmp_path / "s") as store:
        store.open_accounts("app")
        store.commit({}, losses=[loss("app", 20), loss("other", 30)])
        assert store.account_losses("app") == {"destroyed": LossTotal(30, 2, 2)}
        store.rename("app", "new")
        assert store.account_losses("new") == {"destroyed": LossTotal(30, 2, 2)}
        store.begin_accounts("new")
        store.open_accounts("new")
        assert store.account_losses("new") == {}


def test_a_damaged_account_is_dropped_and_the_offsets_stay(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "s") as store:
        store.commit({FILE: SourceOffset(30)}, accounts={FILE: FIRST, OTHER: MORE})
    with closing(sqlite3.connect(tmp_path / "s/offsets.db", isolation_level=None)) as connection:
        connection.execute("UPDATE accounts SET undated = 99 WHERE key = ?", (FILE.key,))
    with OffsetStore.open(tmp_path / "s") as store:
        assert store.accounts("app") == {OTHER: MORE}
        assert store.read("app") == {FILE: SourceOffset(30)}


def test_an_account_of_an_earlier_version_counts_on(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "s") as store:
        store.commit({FILE: SourceOffset(30)}, accounts={FILE: FIRST})
    with closing(sqlite3.connect(tmp_path / "s/offsets.db", isolation_level=None)) as connection:
        *row, _ = connection.execute(f"SELECT {ACCOUNT_COLUMNS}, checksum FROM accounts").fetchone()  # noqa: S608 - a constant
        row[5] = "[3, 30, 2, 1, 0, 0, 0]"
        connection.execute("UPDATE accounts SET counts = ?, checksum = ?", (row[5], checksum(tuple(row))))
    with OffsetStore.open(tmp_path / "s") as store:
        store.commit({FILE: SourceOffset(50)}, accounts={FILE: Account(Counts(1, 5, 1, kept=1))})
        assert store.accounts("app")[FILE].counts == Counts(4, 35, 3, 1, kept=1)
