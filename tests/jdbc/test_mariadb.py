"""Source `jdbc` on a real MariaDB, by MariaDB's driver and by MySQL's, read by one agent as a user runs it."""

# ruff: noqa: S608 - the statements are the tests' own

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.jdbc.running import SECONDS, Running
from tests.rig.kafka import consume
from tests.rig.mariadb import MariaDatabase, MariaDB, has_mariadb
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.rig.agent import AgentProcess

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(not has_mariadb(), reason="mariadb-server is not installed")]


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    with MariaDB() as server:
        yield server


@pytest.fixture(scope="module")
def shop(mariadb: MariaDB) -> Iterator[MariaDatabase]:
    with mariadb.database("shop") as database:
        yield database


@pytest.fixture
def running(shop: MariaDatabase, reader: AgentProcess) -> Iterator[Running]:
    where = {"url": shop.url, "user": shop.user, "password": shop.password, "properties": {"sslMode": "disable"}}
    own = Running(reader, "maria", where)
    yield own
    own.forget()


def with_mysql_driver(database: MariaDatabase) -> dict[str, Any]:
    """Options of a source."""
    return {"url": database.url.replace("jdbc:mariadb", "jdbc:mysql"), "properties": {}}


TYPES: dict[str, tuple[str, Any]] = {
    "decimal(10, 2)": ("1234567.50", 1234567.5),
    "decimal(38)": ("9" * 38, int("9" * 38)),
    "decimal(65, 30)": (f"'{'1' * 20}.{'2' * 30}'", f"{'1' * 20}.{'2' * 30}"),
    "bigint unsigned": ("18446744073709551615", 18446744073709551615),
    "int unsigned zerofill": ("4294967295", 4294967295),
    "tinyint(1)": ("7", 7),
    "double": ("1.5e300", 1.5e300),
    "datetime": ("'2024-03-31 02:30:00'", "2024-03-31T02:30:00"),
    "datetime(6)": ("'2024-02-29 12:30:00.123456'", "2024-02-29T12:30:00.123456"),
    "timestamp(6) null": ("'2024-02-29 12:30:00.123456'", "2024-02-29T10:30:00.123456+00:00"),
    "timestamp null": ("'2024-10-27 02:30:00'", "2024-10-27T00:30:00+00:00"),
    "date": ("'0001-01-01'", "0001-01-01"),
    "date default null": ("'0000-00-00'", None),
    "datetime default null": ("'2024-00-00 00:00:00'", None),
    "time(6)": ("'12:30:00.123456'", "12:30:00.123456"),
    "time": ("'-838:59:59'", "-838:59:59"),
    "year": ("2024", 2024),
    "bit": ("b'1'", True),
    "bit(64)": (f"b'{'1' * 64}'", 2**64 - 1),
    "blob": ("x'00ff'", "AP8="),
    "binary(4)": ("x'00ff'", "AP8AAA=="),
    "json": ("""'{"a": [1, null]}'""", '{"a": [1, null]}'),
    "enum('so, so', 'b')": ("'so, so'", "so, so"),
    "set('a', 'b')": ("'a,b'", "a,b"),
    "char(5)": ("'ab'", "ab"),
    "varchar(10)": ("''", ""),
    "text": ("'\U0001f40d'", "\U0001f40d"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "inet6": ("'::1'", "::1"),
}


def test_values_of_all_types_arrive_as_they_are_by_both_drivers(shop: MariaDatabase, running: Running) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    values = ", ".join(given for given, _ in TYPES.values())
    shop.execute(
        f"CREATE TABLE item (id bigint AUTO_INCREMENT PRIMARY KEY, {columns}, big longtext, twice bigint AS (id * 2)); SET sql_mode = '';"
        f"INSERT INTO item SELECT 1, {values}, repeat('ä', 500000), NULL; INSERT INTO item (id) VALUES (2)"
    )
    running.read("types", "shop.item", mode="incrementing")
    running.read("mysql", "item", mode="incrementing", **with_mysql_driver(shop))
    for name in ("types", "mysql"):
        first, second = running.rows(name, 2)
        assert {kind: first[f"c{number}"] for number, kind in enumerate(TYPES)} == {kind: expected for kind, (_, expected) in TYPES.items()}
        assert (first["id"], first["twice"], len(first["big"])) == (1, 2, 500_000)
        assert second == {"id": 2, "twice": 4, "big": None, **{f"c{number}": None for number in range(len(TYPES))}}


NAMES = ["Upper.dot", "quo`te's", 'dou"ble', "sp ace \u20ac", "per%cent_#", "back\\slash", "`; DROP TABLE shop.item; --", "\u00e4" * 30]


def test_tables_and_columns_of_all_names_are_read(shop: MariaDatabase, running: Running) -> None:
    for number, name in enumerate(NAMES):
        quoted = f"`{name.replace('`', '``')}`"
        table = f"`odd_{quoted[1:]}"
        shop.execute(f"CREATE TABLE {table} ({quoted} int PRIMARY KEY, `a`` AS b` uuid, v int)")
        shop.execute(f"INSERT INTO {table} VALUES (1, '00000000-0000-0000-0000-00000000000{number}', {number})")
    shop.execute("CREATE TABLE odd_left_out (id int PRIMARY KEY); INSERT INTO odd_left_out VALUES (1)")
    running.read("names", "shop.odd_*", mode="incrementing", exclude=["*_left_*"], key_field="_key", record={"key": "{_key}"})
    found = running.rows("names", len(NAMES))
    expected = [
        {name: 1, "a` AS b": f"00000000-0000-0000-0000-00000000000{number}", "v": number, "_key": 1, "key of record": "1"}
        for number, name in enumerate(NAMES)
    ]
    assert sorted(found, key=lambda one: int(one["v"])) == expected


TEXTS = ["", "'", "\\", "\\'", "a\\\nb", "a\tb", "%_", "\x00", "\u00e4", "\U0001f40d", "\ufffd", "'; DROP TABLE item; --", "Z"]
KEYS = {
    "text_bin": ("varchar(40) COLLATE utf8mb4_bin", [f"_utf8mb4 X'{one.encode().hex()}'" for one in TEXTS]),
    "text_latin": ("varchar(40) CHARACTER SET latin1", ["'a'", "'\u00e4z'", "'b'", "'\u20ac'", "'c''c'"]),
    "text_utf8": ("varchar(40) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci", ["'a'", "'B'", "'\u00e4z'", "'c'"]),
    "bytes": ("binary(16)", [f"X'{number:02x}00ff27{'5c' * 12}'" for number in (0, 1, 39, 92, 255)]),
    "enum": ("enum('z', 'a', 'm')", ["'z'", "'a'", "'m'"]),
    "decimal": ("decimal(65, 2)", ["9", "10", "100", "-5.25", "9" * 60]),
    "unsigned": ("bigint unsigned", ["1", "18446744073709551615", "9223372036854775808"]),
    "time": ("time(3)", ["'9:00:00'", "'-10:00:00'", "'100:00:00.5'", "'10:00:00'"]),
    "datetime": ("datetime(6)", ["'2024-03-31 02:30:00.000001'", "'2024-03-31 02:30:00.000002'", "'1999-01-01'"]),
    "timestamp": ("timestamp(6)", ["'2024-10-27 02:30:00.000001'", "'2024-10-27 01:30:00'", "'1999-01-01'"]),
    "date": ("date", ["'2024-03-31'", "'1000-01-01'", "'9999-12-31'"]),
    "year": ("year", ["1999", "2024"]),
    "bit": ("bit(9)", ["b'0'", "b'111111111'", "b'1'"]),
    "uuid": ("uuid", ["uuid()", "uuid()", "'ffffffff-0000-0000-0000-000000000000'", "uuid()"]),
}


def test_all_rows_come_in_parts_by_keys_of_all_types_under_any_sql_mode(shop: MariaDatabase, running: Running, mariadb: MariaDB) -> None:
    expected = [f"part {number}" for number in range(1, 10)]
    for name, (kind, values) in KEYS.items():
        rows = [f"({value}, {n}, '{name} {number} {n}')" for number, value in enumerate(values) for n in (0, 1)]
        shop.execute(
            f"CREATE TABLE key_{name} (k {kind}, n bit, v varchar(20), PRIMARY KEY (k, n)); INSERT INTO key_{name} VALUES {', '.join(rows)}"
        )
        expected += [f"{name} {number} {n}" for number in range(len(values)) for n in (0, 1)]
    shop.execute(
        "CREATE TABLE key_parts (k int unsigned PRIMARY KEY, v varchar(20)) SELECT seq AS k, concat('part ', seq) AS v FROM seq_1_to_9"
    )
    mariadb.execute("SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'")
    running.read("keys", "key_*", mode="bulk", batch_rows=3, partitions=3, poll_interval="1h", key_field="_key")
    found = running.rows("keys", len(expected))
    mariadb.execute("SET GLOBAL sql_mode = DEFAULT")
    assert sorted(one["v"] for one in found) == sorted(expected)
    assert {name for one in found for name in one} == {"k", "n", "v", "_key"}
    keys = {one["v"]: one["_key"] for one in found}
    assert (keys["decimal 3 0"], keys["decimal 3 1"], keys["bytes 1 0"]) == ("-5.25|0", "-5.25|1", f"0100FF27{'5C' * 12}|0")


def test_rows_of_different_lengths_come_in_order(shop: MariaDatabase, running: Running) -> None:
    pad = "repeat('x', 3000 * (seq % 3))"
    shop.execute(f"CREATE TABLE pads (id int PRIMARY KEY, pad longtext); INSERT INTO pads SELECT seq, {pad} FROM seq_1_to_300")
    running.read("pads", "pads", mode="incrementing")
    assert [one["id"] for one in running.rows("pads", 300)] == list(range(1, 301))


def test_numbers_that_come_late_arrive_and_those_that_never_come_are_in_the_ledger(shop: MariaDatabase, running: Running) -> None:
    shop.execute("CREATE TABLE gaps (id bigint AUTO_INCREMENT PRIMARY KEY, v varchar(20)); INSERT INTO gaps VALUES (1, 'first')")
    running.read("gaps", "gaps", mode="incrementing", gap_timeout="1h")
    running.rows("gaps", 1)
    with shop.transaction() as late, shop.transaction() as undone:
        late("INSERT INTO gaps (v) VALUES ('late')")
        undone("INSERT INTO gaps (v) VALUES ('undone')")
        shop.execute("INSERT INTO gaps (v) VALUES ('early')")
        running.rows("gaps", 2)
        late("COMMIT")
        assert [one["v"] for one in running.rows("gaps", 3)] == ["first", "early", "late"]
        undone("ROLLBACK")
    running.read("impatient", "gaps", mode="incrementing", gap_timeout="1s")
    running.rows("impatient", 3)
    with shop.transaction() as undone:
        undone("INSERT INTO gaps (v) VALUES ('undone, too')")
        undone("ROLLBACK")
    shop.execute("INSERT INTO gaps (v) VALUES ('last')")
    wait_until(lambda: "no rows with id 5 came in time" in running.losses("impatient"), SECONDS, lambda: running.losses("impatient"))
    assert [one["v"] for one in running.rows("gaps", 4)] == ["first", "early", "late", "last"]


@pytest.mark.parametrize("kind", ["timestamp(6)", "datetime(6)"])
def test_new_changed_and_late_rows_come_by_their_time(shop: MariaDatabase, running: Running, kind: str) -> None:
    """By both drivers, of a table and of a query, on a host of another zone than the server's."""
    table = kind.partition("(")[0]
    at = f"at {kind} NOT NULL DEFAULT current_timestamp(6) ON UPDATE current_timestamp(6)"
    shop.execute(f"CREATE TABLE t_{table} (id bigint AUTO_INCREMENT PRIMARY KEY, v varchar(20), {at}, INDEX (at))")
    shop.execute(f"INSERT INTO t_{table} (v) VALUES ('a'), ('b'); SET sql_mode = ''; INSERT INTO t_{table} (v, at) VALUES ('never', 0)")
    by: dict[str, Any] = {"mode": "timestamp", "columns": {"timestamp": "at"}}
    both: dict[str, Any] = {"mode": "timestamp_and_incrementing", "columns": {"timestamp": "at", "incrementing": "number"}}
    running.read(f"{table}-table", f"t_{table}", delay="1s", **by)
    running.read(f"{table}-mysql", f"t_{table}", delay="0s", **by, **with_mysql_driver(shop))
    running.read(
        f"{table}-query", query=f"SELECT id AS number, upper(v) AS v, at FROM t_{table} WHERE v <> 'none' -- not all", delay="1s", **both
    )
    names = [f"{table}-{one}" for one in ("table", "mysql", "query")]
    for name in names:
        running.rows(name, 2)
    with shop.transaction() as late:
        late(f"INSERT INTO t_{table} (v) VALUES ('late')")
        shop.execute(f"UPDATE t_{table} SET v = 'changed' WHERE id = 1; INSERT INTO t_{table} (v) VALUES ('none')")
        for name in names:
            running.rows(name, 3)
        late("COMMIT")
    for name in names:
        nones = [] if name.endswith("query") else ["none"]
        found = running.rows(name, 4 + len(nones))
        assert sorted(one["v"].lower() for one in found) == sorted(["a", "b", "changed", "late", *nones])
        assert all(one["at"].endswith("+00:00") == (table == "timestamp") for one in found)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("driver", ["mariadb", "mysql"])
def test_each_row_comes_once_through_kills_crashes_of_the_server_and_new_tables(
    mariadb: MariaDB, agent: AgentProcess, make_topic: Callable[..., str], driver: str
) -> None:
    rows = "(id bigint AUTO_INCREMENT PRIMARY KEY, v int, at timestamp(6) DEFAULT current_timestamp(6), INDEX (at), pad longtext)"
    topics = {"bulk": make_topic(), "numbers": make_topic(), "times": make_topic()}
    with mariadb.database() as database:
        url = database.url.replace("jdbc:mariadb", f"jdbc:{driver}")
        where: dict[str, Any] = {"type": "jdbc", "url": url, "user": database.user, "password": database.password, "poll_interval": "200ms"}
        where |= {"properties": {"sslMode": "disable"} if driver == "mariadb" else {}, "batch_rows": 100, "fetch_rows": 20}
        database.execute(f"CREATE TABLE item {rows}; INSERT INTO item (v, pad) SELECT seq, repeat('x', 2000) FROM seq_1_to_1500")
        modes: dict[str, dict[str, Any]] = {
            "bulk": {"mode": "bulk", "partitions": 3, "poll_interval": "1d", "tables": ["item"]},
            "numbers": {"mode": "incrementing", "tables": ["item*"]},
            "times": {"mode": "timestamp", "columns": {"timestamp": "at"}, "delay": "1s", "tables": ["item*"]},
        }
        for name, options in modes.items():
            exactly = {"delivery": {"guarantee": "exactly_once"}}
            agent.define(name, {"source": {**where, **options}, "record": {"topic": topics[name]}, **exactly})

        def values(name: str, count: int | None) -> list[int]:
            found = consume(agent.bootstrap, topics[name], "read_committed", count, 240)
            return sorted(json.loads(one.value or b"")["v"] for one in found)

        for kills in range(2):
            agent.start()
            values("numbers", 300 + 400 * kills)
            agent.kill()
        agent.start()
        assert values("bulk", 1500) == list(range(1, 1501))
        mariadb.stop(signal.SIGKILL)
        mariadb.start()
        database.execute(f"INSERT INTO item (v) VALUES (1501); CREATE TABLE item_two {rows}; INSERT INTO item_two (v) VALUES (1502)")
        for name in ("numbers", "times"):
            assert values(name, 1502) == list(range(1, 1503))
        agent.stop(240)
        everything = {name: values(name, None) for name in modes}
        assert everything["numbers"] == everything["times"] == list(range(1, 1503))
        assert everything["bulk"] in (list(range(1, 1501)), list(range(1, 1502)))  # its last look may be one after the crash
