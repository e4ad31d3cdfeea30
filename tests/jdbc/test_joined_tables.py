"""Rows that came into a PostgreSQL table with another one that was attached or renamed, without being written, are read like all others."""

# ruff: noqa: S608 - the statements are the tests' own

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sources.jdbc import snapshot_reader, snapshots
from copycat_agent.sources.jdbc.database import TableError, TableInfo
from copycat_agent.sources.jdbc.snapshots import SnapshotSql, window_of
from copycat_agent.sources.jdbc.statements import Dialect
from tests.jdbc.histories import OverPsycopg, Reader

if TYPE_CHECKING:
    import random

    from tests.rig.postgres import Database

COLUMNS = "(id bigint PRIMARY KEY, v bigint, ts timestamptz DEFAULT now())"
PARTITIONED = f"""CREATE TABLE item {COLUMNS} PARTITION BY RANGE (id);
    CREATE TABLE low PARTITION OF item FOR VALUES FROM (0) TO (100)"""
ATTACH = "ALTER TABLE item ATTACH PARTITION other FOR VALUES FROM (100) TO (200)"
INHERIT = "ALTER TABLE other INHERIT item"
OTHER = "CREATE TABLE other (id bigint, v bigint) PARTITION BY RANGE (id)"
SWAP = "ALTER TABLE item RENAME TO old; ALTER TABLE other RENAME TO item"
INCREMENTING: dict[str, Any] = {"mode": "incrementing", "batch_rows": 20}
TIMESTAMP: dict[str, Any] = {"mode": "timestamp", "columns": {"timestamp": "ts"}, "batch_rows": 20}
OLD, JOINED = list(range(1, 5)), list(range(100, 150))


def _insert(database: Database, *numbers: int, table: str = "item") -> None:
    """Each in a transaction of its own."""
    with database.connect(autocommit=True) as connection:
        for number in numbers:
            connection.execute(f"INSERT INTO {table} (id, v) VALUES (%s, %s)".encode(), [number, number])


def _filled(database: Database, *, table: str = PARTITIONED) -> None:
    """The table, and another one whose rows were written before the last of the table's."""
    database.execute(f"{table}; CREATE TABLE other {COLUMNS}; INSERT INTO other SELECT n, n FROM generate_series(100, 149) n")
    _insert(database, *OLD)


@pytest.mark.parametrize("options", [INCREMENTING, TIMESTAMP], ids=["incrementing", "timestamp"])
@pytest.mark.parametrize(
    ("table", "join"),
    [(PARTITIONED, ATTACH), (f"CREATE TABLE item {COLUMNS}", INHERIT), (f"CREATE TABLE item {COLUMNS}", SWAP)],
    ids=["attached", "inherits", "renamed"],
)
def test_rows_of_a_table_that_joins_come_once(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], table: str, join: str
) -> None:
    _filled(database, table=table)
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, options, "item")
        reader.drain(rng, monkeypatch)
        database.execute(join)
        _insert(database, 170)
        reader.drain(rng, monkeypatch) if join != ATTACH else _read_by_quick_looks(reader, rng, monkeypatch)
        assert sorted(reader.delivered) == [*OLD, *JOINED, 170]
        _insert(database, 171)
        reader.drain(rng, monkeypatch)
        assert sorted(reader.delivered) == [*OLD, *JOINED, 170, 171]


def _read_by_quick_looks(reader: Reader, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next full look is not due."""
    monkeypatch.setattr(snapshot_reader, "FULL_SHARE", 10**9)
    while reader.look():
        reader.read(rng, crashes=0)


@pytest.mark.parametrize("join", [ATTACH, None], ids=["attached", "none"])
def test_positions_of_earlier_versions_know_the_tables_that_are_there(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch, join: str | None
) -> None:
    _filled(database)
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, INCREMENTING, "item")
        reader.drain(rng, monkeypatch)
        del reader.saved["public.item"]["tables"]
        reader.drain(rng, monkeypatch)
        if join is not None:
            database.execute(join)
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == [*OLD, *(JOINED if join is not None else [])]


def test_a_table_that_joins_while_a_window_is_read_comes_once(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(database)
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, {**INCREMENTING, "batch_rows": 1}, "item")
        while len(reader.delivered) < 2:
            reader.look()
            reader.read(rng)
        database.execute(ATTACH)
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == [*OLD, *JOINED]


@pytest.mark.parametrize("most", [5000, 5], ids=["named", "held back"])
def test_rows_of_transactions_that_were_read_come_with_the_table_that_joins(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A transaction wrote to both tables. It is among those that are named one by one, because an older one runs."""
    _filled(database)
    with database.connect(autocommit=True) as reading, database.connect() as late:
        reader = Reader(reading, INCREMENTING, "item")
        late.execute("SELECT txid_current()")
        database.execute("INSERT INTO item (id, v) VALUES (5, 5); INSERT INTO other (id, v) VALUES (150, 150)")
        reader.drain(rng, monkeypatch)
        monkeypatch.setattr(snapshots, "ALSO_MOST", most)
        database.execute(ATTACH)
        _insert(database, *range(6, 16))
        reader.drain(rng, monkeypatch)
        late.commit()
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == [*OLD, *range(5, 16), *JOINED, 150]


def test_a_partition_that_leaves_and_comes_back_is_read_again_with_what_was_written_meanwhile(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(database)
    database.execute(ATTACH)
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, INCREMENTING, "item")
        reader.drain(rng, monkeypatch)
        database.execute("ALTER TABLE item DETACH PARTITION other")
        _insert(database, 150, table="other")
        _insert(database, 5)
        reader.drain(rng, monkeypatch)
        database.execute(ATTACH)
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == sorted([*OLD, 5, *JOINED, *JOINED, 150])


def test_a_table_that_joins_waits_where_full_looks_fail_and_holds_up_nothing(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = OverPsycopg.rows

    def quick_only(self: OverPsycopg, query: str) -> list[list[str | None]]:
        if "IS NOT TRUE" in query:
            raise TableError("the query took too long", "it is tried again")
        return rows(self, query)

    _filled(database)
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, INCREMENTING, "item")
        reader.drain(rng, monkeypatch)
        database.execute(ATTACH)
        with monkeypatch.context() as patched:
            patched.setattr(OverPsycopg, "rows", quick_only)
            patched.setattr(snapshot_reader, "FULL_SHARE", 10**9)
            with pytest.raises(TableError):
                reader.look()
            _insert(database, 5)
            while reader.look():
                reader.read(rng, crashes=0)
            assert sorted(reader.delivered) == [*OLD, 5]
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == [*OLD, 5, *JOINED]


FOREIGN = "CREATE FOREIGN DATA WRAPPER none; CREATE SERVER far FOREIGN DATA WRAPPER none"
ARCHIVE = "CREATE FOREIGN TABLE archive PARTITION OF other FOR VALUES FROM (100) TO (200) SERVER far"


@pytest.mark.parametrize("below", [f"{OTHER}; {ATTACH}; {ARCHIVE}", "CREATE FOREIGN TABLE archive () INHERITS (item) SERVER far"])
def test_a_table_with_foreign_tables_below_it_is_refused(database: Database, below: str) -> None:
    """Their rows have no transaction: new ones would never be seen. The server's wrapper is none, so the look cannot be run as a whole."""
    partitioned = "PARTITION OF" in below
    database.execute(f"{FOREIGN}; CREATE TABLE item (id bigint, v bigint) {'PARTITION BY RANGE (id)' if partitioned else ''}")
    sql = SnapshotSql(Dialect("postgresql"), TableInfo(("public", "item"), (), ()), None, by_time=False)
    answer = ["9", "0", "0", None, None, "", "1"]
    with database.connect(autocommit=True) as reading:
        ((nothing,),) = reading.execute(sql.foreign().encode())
        assert window_of([*answer, nothing], None).tables == [1]
        database.execute(below)
        ((foreign,),) = reading.execute(sql.foreign().encode())
    assert sql.look({"seen": None}, full=True).count(sql.foreign()) == 1
    with pytest.raises(TableError, match="wrote them: archive;"):
        window_of([*answer, foreign], None)
