"""No row of a PostgreSQL table is missed or repeated, whoever writes when: the source against a real server, without Spark."""

# ruff: noqa: S608 - the statements are the tests' own

from __future__ import annotations

import contextlib
import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import BlockedError, FatalError
from copycat_agent.sources.jdbc import snapshot_reader, snapshots
from tests.jdbc.histories import Reader, Writer, play

if TYPE_CHECKING:
    import psycopg

    from tests.rig.postgres import Database, Postgres

_WRITERS = 3


def _play(database: Database, seed: int, count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Histories one after the other. Returns how many rows were delivered."""
    numbers, delivered = itertools.count(1), 0
    with contextlib.ExitStack() as stack:
        reading, *sessions = [stack.enter_context(database.connect(autocommit=True)) for _ in range(_WRITERS + 1)]
        writers = [Writer(one, "item", numbers) for one in sessions]
        for number in range(count):
            rng = random.Random(seed + number)
            try:
                delivered += len(play(writers, reading, rng, monkeypatch).delivered)
            except BaseException as error:
                error.add_note(f"history --seed {seed + number}")
                raise
    return delivered


@pytest.mark.parametrize("count", [40, pytest.param(20_000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])])
def test_random_histories_lose_nothing_and_repeat_nothing(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    assert _play(database, seed, count, monkeypatch) > count


ITEM = "CREATE TABLE item (id bigserial PRIMARY KEY, v bigint, ts timestamptz DEFAULT now())"
INCREMENTING: dict[str, Any] = {"mode": "incrementing"}
TIMESTAMP: dict[str, Any] = {"mode": "timestamp", "columns": {"timestamp": "ts"}}


def _insert(database: Database, *numbers: int) -> None:
    """Each in a transaction of its own."""
    with database.connect(autocommit=True) as connection:
        for number in numbers:
            connection.execute("INSERT INTO item (v) VALUES (%s)", [number])


@pytest.mark.parametrize("drains", [False, True], ids=["at once", "one by one"])
def test_behind_too_many_transactions_rows_wait_for_the_oldest_and_all_come_then(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch, drains: bool
) -> None:
    monkeypatch.setattr(snapshots, "ALSO_MOST", 20)
    database.execute(ITEM)
    with database.connect(autocommit=True) as reading, database.connect() as late:
        reader = Reader(reading, INCREMENTING, "item")
        _insert(database, 1, 2)
        reader.drain(rng, monkeypatch)
        late.execute("INSERT INTO item (v) VALUES (3)")
        for number in range(4, 104):
            _insert(database, number)
            if drains:
                reader.drain(rng, monkeypatch)
        reader.drain(rng, monkeypatch)
        assert any("has been open for long" in one for one in reader.troubles)
        assert len(reader.saved["public.item"]["recent"]["also"]) <= 20
        assert sorted(reader.delivered) == ([1, 2, *range(4, 24)] if drains else [1, 2])
        late.commit()
        reader.drain(rng, monkeypatch)
        assert sorted(reader.delivered) == list(range(1, 104))
        assert reader.troubles == []


def test_rows_below_the_floor_wait_with_the_others_of_their_transaction(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quick look reads some rows of a transaction; the full one behind it is held back, and must not take the others for read."""
    database.execute(ITEM)
    with database.connect(autocommit=True) as reading, database.connect() as late:
        reader = Reader(reading, TIMESTAMP, "item")
        _insert(database, 1, 2, 3)
        reader.drain(rng, monkeypatch)
        late.execute("INSERT INTO item (v) VALUES (4)")
        monkeypatch.setattr(snapshots, "ALSO_MOST", 5)
        database.execute("INSERT INTO item (v, ts) VALUES (5, now()), (6, now() - interval '1 day')")
        reader.read_quickly(rng, monkeypatch)
        assert sorted(reader.delivered) == [1, 2, 3, 5]
        _insert(database, *range(7, 20))
        reader.drain(rng, monkeypatch)
        late.commit()
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == list(range(1, 20))


@pytest.mark.parametrize("options", [INCREMENTING, TIMESTAMP], ids=["incrementing", "timestamp"])
def test_a_row_that_commits_beside_the_first_batch_of_a_window_is_read_though_its_key_is_passed(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """A look that begins before the batch is saved, and ends after it, finds a window of its own."""
    monkeypatch.setattr(snapshot_reader, "FULL_SHARE", 0)
    database.execute(ITEM)
    with database.connect(autocommit=True) as reading, database.connect() as late:
        reader = Reader(reading, {**options, "batch_rows": 10}, "item")
        reader.drain(rng, monkeypatch)
        late.execute("INSERT INTO item (v) VALUES (1)")
        _insert(database, *range(2, 32))
        reader.read_beside_a_look(late.commit, rng)
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == list(range(1, 32))


def test_a_row_that_changes_while_partitions_read_the_first_rows_is_sent_behind_them(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions go out side by side: what is read later is planned once the earlier ones are done."""
    monkeypatch.setattr(snapshot_reader, "FULL_SHARE", 0)
    database.execute(ITEM)
    _insert(database, *range(1, 11))
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, {**INCREMENTING, "partitions": 2}, "item")
        for _ in range(3):
            reader.look()
        assert reader.readable() == ["public.item#0", "public.item#1"]
        reading.execute("UPDATE item SET v = 20 WHERE id = 2")
        reader.look()
        assert reader.readable() == ["public.item#0", "public.item#1"]
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == [1, *range(3, 11), 20]
    assert reader.delivered[-1] == 20


@pytest.mark.parametrize(
    ("options", "first"),
    [pytest.param(INCREMENTING, 0, marks=pytest.mark.long, id="incrementing"), pytest.param(TIMESTAMP, 3, id="timestamp")],
)
def test_nothing_is_repeated_or_missed_when_transaction_ids_wrap_around(
    own_postgres: Postgres, rng: random.Random, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], first: int
) -> None:
    """Over more than 2^32 transactions, so that the numbers of rows which were read come again."""
    with own_postgres.database() as database:
        database.execute(ITEM)
        saved: dict[str, Any] = {}
        delivered: list[int] = []
        numbers = itertools.count(1)
        for xid, epoch in [(2**32 - 30, 0), (2**30, 1), (2**31, 1), (3 * 2**30, 1), (2**32 - 20, 1), (2**30, 2)]:
            own_postgres.stop()
            own_postgres.reset_xid(xid, first + epoch)
            own_postgres.start()
            with database.connect(autocommit=True) as reading:
                reader = Reader(reading, options, "item")
                reader.saved, reader.delivered = saved, delivered
                for _ in range(3):
                    _insert(database, *itertools.islice(numbers, 15))
                    reader.drain(rng, monkeypatch)
            assert sorted(delivered) == list(range(1, len(delivered) + 1))
        assert len(delivered) == next(numbers) - 1
    assert saved["public.item"]["marks"]


@pytest.mark.parametrize("options", [INCREMENTING, TIMESTAMP], ids=["incrementing", "timestamp"])
def test_a_value_that_no_other_exceeds_does_not_hide_new_rows(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    database.execute(ITEM)
    database.execute(f"INSERT INTO item VALUES ({2**63 - 1}, 1, 'infinity')")
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, options, "item")
        for number in range(2, 8):
            reader.drain(rng, monkeypatch)
            _insert(database, number)
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == list(range(1, 8))
    assert reader.saved["public.item"]["top"] != "infinity"


def test_another_tracked_column_begins_no_table_anew(database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was noted of the values of one column is not held against those of another."""
    database.execute(ITEM)
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, INCREMENTING, "item")
        for number, options in enumerate([INCREMENTING, TIMESTAMP, INCREMENTING, TIMESTAMP]):
            _insert(database, number)
            after = Reader(reading, options, "item")
            after.saved, after.delivered = reader.saved, reader.delivered
            after.drain(rng, monkeypatch)
            reader = after
    assert reader.delivered == [0, 1, 2, 3]


TWO_TIMES = "CREATE TABLE item (id bigint PRIMARY KEY, v bigint, ts timestamptz, made timestamptz)"
TWO_TIMES_ROWS = "INSERT INTO item SELECT n, n, to_timestamp(n), to_timestamp(-n) FROM generate_series(1, 100) n"
MADE: dict[str, Any] = {"mode": "timestamp", "columns": {"timestamp": "made"}}


def _begun(reading: psycopg.Connection[Any], options: dict[str, Any], rng: random.Random) -> Reader:
    """A reader that has read a part of the first window."""
    reader = Reader(reading, {**options, "batch_rows": 10}, "item")
    while len(reader.delivered) < 30:
        reader.look()
        reader.read(rng)
    assert len(reader.delivered) < 60
    return reader


def _go_on(reader: Reader, options: dict[str, Any], reading: psycopg.Connection[Any]) -> Reader:
    """A reader of another definition, behind this one."""
    after = Reader(reading, {**options, "batch_rows": 10}, "item")
    after.saved, after.delivered = reader.saved, reader.delivered
    return after


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("old", [TIMESTAMP, INCREMENTING], ids=["timestamp", "incrementing"])
def test_another_order_in_the_middle_of_a_window_repeats_rows_and_loses_none(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch, old: dict[str, Any], partitions: int
) -> None:
    """The first of one order are the last of the other."""
    database.execute(f"{TWO_TIMES}; {TWO_TIMES_ROWS}")
    with database.connect(autocommit=True) as reading:
        reader = _begun(reading, {**old, "partitions": partitions}, rng)
        begun = len(reader.delivered)
        after = _go_on(reader, {**MADE, "partitions": partitions}, reading)
        after.drain(rng, monkeypatch)
    assert set(after.delivered) == set(range(1, 101))
    assert len(after.delivered) <= 100 + begun


def test_another_column_of_the_same_order_in_the_middle_of_a_window_repeats_nothing(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(f"{TWO_TIMES}; {TWO_TIMES_ROWS}")
    with database.connect(autocommit=True) as reading:
        reader = _go_on(_begun(reading, INCREMENTING, rng), {**INCREMENTING, "columns": {"incrementing": "v"}}, reading)
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == list(range(1, 101))


@pytest.mark.parametrize(("old", "new", "repeats"), [(TIMESTAMP, TIMESTAMP, 0), (INCREMENTING, INCREMENTING, 0), (TIMESTAMP, MADE, 1)])
def test_windows_of_earlier_versions_go_on_in_the_same_order_alone(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch, old: dict[str, Any], new: dict[str, Any], repeats: int
) -> None:
    """They have the names of the key, and the column."""
    database.execute(f"{TWO_TIMES}; {TWO_TIMES_ROWS}")
    with database.connect(autocommit=True) as reading:
        reader = _begun(reading, old, rng)
        begun = len(reader.delivered)
        position = reader.saved["public.item"]
        del position["order"], position["window"]["tables"]
        position["window"]["key"] = ["id"]
        after = _go_on(reader, new, reading)
        after.drain(rng, monkeypatch)
    assert set(after.delivered) == set(range(1, 101))
    assert len(after.delivered) == 100 + begun * repeats


def test_rows_that_vacuum_full_moves_in_the_middle_of_a_window_are_not_passed_over(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE item (id bigserial, v bigint); INSERT INTO item (v) SELECT generate_series(1, 100)")
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, {"mode": "incrementing", "columns": {"incrementing": "id"}, "batch_rows": 10}, "item")
        for _ in range(20):
            reader.look()
            reader.read(rng)
            if len(reader.delivered) >= 40:
                break
        database.execute("DELETE FROM item WHERE v <= 30")
        database.execute("VACUUM FULL item")
        reader.drain(rng, monkeypatch)
    assert set(range(31, 101)) <= set(reader.delivered)


@pytest.mark.parametrize("kind", ["uuid", "text", "numeric"])
def test_a_key_of_any_type_orders_a_window(database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    value = "gen_random_uuid()" if kind == "uuid" else f"'{'1.5e3' if kind == 'numeric' else chr(39) * 2}'::{kind}"
    database.execute(f"CREATE TABLE item (id {kind} PRIMARY KEY, v bigint)")
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, {"mode": "incrementing", "batch_rows": 3}, "item")
        for number in range(20):
            key = value if kind == "uuid" else f"{value} || {number}" if kind == "text" else f"{value} + {number}"
            database.execute(f"INSERT INTO item VALUES ({key}, {number})")
            if not number % 7:
                reader.drain(rng, monkeypatch)
        reader.drain(rng, monkeypatch)
    assert sorted(reader.delivered) == list(range(20))


def test_the_next_rows_of_a_window_are_found_by_the_index_of_the_key(
    database: Database, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(ITEM)
    database.execute("INSERT INTO item (v) SELECT generate_series(1, 20000)")
    database.execute("ANALYZE item")
    with database.connect(autocommit=True) as reading:
        reader = Reader(reading, {**INCREMENTING, "batch_rows": 100}, "item")
        while not reader.delivered:
            reader.look()
            reader.read(rng)
        query = reader.next_query()
        plan = "\n".join(line for (line,) in reading.execute(b"EXPLAIN " + query))
    assert "Index Cond" in plan, plan
    assert "Seq Scan" not in plan, plan


def test_positions_of_another_mode_are_refused_with_the_way_out(database: Database) -> None:
    database.execute(ITEM)
    with database.connect(autocommit=True) as connection:
        reader = Reader(connection, INCREMENTING, "item")
        reader.look()
        reader.options = reader.options.model_copy(update={"mode": "bulk"})
        reader.restart()
        with pytest.raises(FatalError, match=r"public.item is of another source.mode") as refused:
            reader.look()
    assert "copycat offsets reset" in refused.value.hint


def test_a_table_that_gets_the_column_it_lacked_is_read_from_then_on(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.execute("CREATE TABLE item (id bigserial PRIMARY KEY, v bigint)")
    _insert(database, 1)
    with database.connect(autocommit=True) as connection:
        reader = Reader(connection, TIMESTAMP, "item")
        with pytest.raises(BlockedError, match="has no column ts"):
            reader.look()
        database.execute("ALTER TABLE item ADD COLUMN ts timestamptz DEFAULT now()")
        reader.drain(random.Random(0), monkeypatch)
    assert reader.delivered == [1]


def test_columns_that_are_added_just_after_tables_were_listed_are_read(database: Database) -> None:
    database.execute(ITEM)
    with database.connect(autocommit=True) as connection:
        reader = Reader(connection, INCREMENTING, "item")
        reader.look()
        assert reader.look()
        reader.read(random.Random(0), crashes=0)  # the table is empty
        database.execute("ALTER TABLE item ADD COLUMN added text")
        _insert(database, 1)
        assert b'"added"' in reader.next_query()
