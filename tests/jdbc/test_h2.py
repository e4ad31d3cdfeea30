"""Source `jdbc` on H2, read by one agent as a user runs it."""

# ruff: noqa: S608 - the statements are the tests' own

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.jdbc.running import SECONDS, Running
from tests.rig.h2 import H2Database, fresh_h2
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rig.agent import AgentProcess

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> H2Database:
    own = fresh_h2(tmp_path_factory.mktemp("h2"))
    return H2Database(f"{own.url};AUTO_SERVER=TRUE")


@pytest.fixture
def running(shop: H2Database, reader: AgentProcess) -> Iterator[Running]:
    own = Running(reader, "h2", {"url": shop.url, "user": shop.user, "password": shop.password})
    yield own
    own.forget()


TYPES: dict[str, tuple[str, Any]] = {
    "decimal(10, 2)": ("1234567.50", 1234567.5),
    "decimal(38)": ("9" * 38, int("9" * 38)),
    "numeric(60, 10)": ("1.5", "1.5000000000"),
    "decfloat": ("1.5", "1.5"),
    "double precision": ("1.5e300", 1.5e300),
    "boolean": ("true", True),
    "date": ("'2024-02-29'", "2024-02-29"),
    "time(6)": ("'12:30:00.123456'", "12:30:00.123456"),
    "timestamp": ("'2024-03-31 02:30:00.123456'", "2024-03-31T02:30:00.123456"),
    "timestamp with time zone": ("'2024-02-29 12:30:00.123456+02'", "2024-02-29T10:30:00.123456+00:00"),
    "interval year to month": ("INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '1-2' YEAR TO MONTH"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "json": ("""JSON '{"a": [1, null]}'""", '{"a":[1,null]}'),
    "enum('so, so', 'b')": ("'so, so'", "so, so"),
    "int array": ("ARRAY[1, NULL, 3]", "[1, null, 3]"),
    "varbinary(10)": ("X'00ff'", "AP8="),
    "blob": ("X'00ff'", "AP8="),
    "clob": ("repeat('\u00e4', 500000)", "\u00e4" * 500_000),
    "char(5)": ("'ab'", "ab   "),
    "varchar(10)": ("''", ""),
}


def test_values_of_all_types_arrive_as_they_are(shop: H2Database, running: Running) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    shop.execute(
        f"CREATE TABLE item (id bigint PRIMARY KEY, {columns})",
        f"INSERT INTO item VALUES (1, {', '.join(given for given, _ in TYPES.values())})",
        "INSERT INTO item (id) VALUES (2)",
    )
    running.read("types", "PUBLIC.ITEM", mode="incrementing")
    first, second = running.rows("types", 2)
    assert {kind: first[f"C{number}"] for number, kind in enumerate(TYPES)} == {kind: expected for kind, (_, expected) in TYPES.items()}
    assert second == {"ID": 2, **{f"C{number}": None for number in range(len(TYPES))}}


NAMES = ["Upper.dot", "quo`te's", "sp ace", "per%cent_#", "back\\slash", '"', '"" DROP TABLE item', "\u00e4" * 30]
KEYS = {
    "text": ("varchar(40)", ["''", "''''", "'\\'", "'a\\'", "'%_'", "'\u00e4'", "'\U0001f40d'", "'Z'"]),
    "bytes": ("varbinary(16)", ["X'00ff27'", "X'5c'", "X''"]),
    "enum": ("enum('z', 'a', 'm')", ["'z'", "'a'", "'m'"]),
    "decimal": ("numeric(60, 2)", ["9", "10", "100", "-5.25"]),
    "time": ("time(3)", ["'09:00:00'", "'10:00:00.5'", "'23:00:00'"]),
    "moment": ("timestamp", ["'2024-03-31 02:30:00.000001'", "'2024-03-31 02:30:00.000002'", "'1999-01-01 00:00:00'"]),
    "zoned": ("timestamp with time zone", ["'2024-03-31 02:30:00.000001+02'", "'2024-03-31 02:30:00.000002+01'"]),
    "uuid": ("uuid", ["random_uuid()", "random_uuid()", "'ffffffff-0000-0000-0000-000000000000'"]),
    "flag": ("boolean", ["true", "false"]),
}


def test_tables_of_all_names_come_whole_in_parts_by_keys_of_all_types(shop: H2Database, running: Running) -> None:
    expected, statements = [f"part {number}" for number in range(1, 10)], ["CREATE SCHEMA odd"]
    for number, name in enumerate(NAMES):
        quoted = '"{}"'.format(name.replace('"', '""'))
        statements += [f"CREATE TABLE odd.{quoted} ({quoted} int PRIMARY KEY, v varchar(20))"]
        statements += [f"INSERT INTO odd.{quoted} VALUES (1, 'name {number}')"]
        expected += [f"name {number}"]
    for name, (kind, values) in KEYS.items():
        rows = [f"({value}, {n}, '{name} {number} {n}')" for number, value in enumerate(values) for n in (0, 1)]
        statements += [f"CREATE TABLE odd.{name} (k {kind}, n int, v varchar(20), PRIMARY KEY (k, n))"]
        statements += [f"INSERT INTO odd.{name} VALUES {', '.join(rows)}"]
        expected += [f"{name} {number} {n}" for number in range(len(values)) for n in (0, 1)]
    statements += ["CREATE TABLE odd.parts (k bigint PRIMARY KEY, v varchar(20))"]
    statements += ["INSERT INTO odd.parts SELECT x, 'part ' || x FROM system_range(1, 9)"]
    shop.execute(*statements)
    running.read("odd", "ODD.*", mode="bulk", batch_rows=3, partitions=3, poll_interval="1h", key_field="_key")
    found = running.rows("odd", len(expected))
    assert sorted(one["V"] for one in found) == sorted(expected)
    assert {one["_key"] for one in found if one["V"].startswith("decimal 3")} == {"-5.25|0", "-5.25|1"}


def test_numbers_and_times_that_come_late_arrive_and_those_that_never_come_are_in_the_ledger(shop: H2Database, running: Running) -> None:
    at = "at timestamp DEFAULT localtimestamp, zoned timestamp with time zone DEFAULT current_timestamp"
    shop.execute(f"CREATE TABLE late (id bigint AUTO_INCREMENT PRIMARY KEY, v varchar(20), {at})", "INSERT INTO late (v) VALUES ('first')")
    running.read("gaps", "LATE", mode="incrementing", gap_timeout="1h")
    running.read("zoned", "LATE", mode="timestamp", columns={"timestamp": "zoned"}, delay="1s")
    query: dict[str, Any] = {
        "query": "SELECT id AS number, upper(v) AS v, zoned AS at FROM late -- all",
        "columns": {"incrementing": "number", "timestamp": "at"},
    }
    running.read("query", mode="timestamp_and_incrementing", delay="1s", **query)
    names = ("gaps", "zoned", "query")
    for name in names:
        running.rows(name, 1)
    with shop.session() as late:
        late("INSERT INTO late (v) VALUES ('late')")
        shop.execute("INSERT INTO late (v) VALUES ('early')")
        for name in names:
            running.rows(name, 2)
        late("COMMIT")
        for name in names:
            assert [one["V"].lower() for one in running.rows(name, 3)] == ["first", "early", "late"]
        running.read("impatient", "LATE", mode="incrementing", gap_timeout="1s")
        running.rows("impatient", 3)
        late("INSERT INTO late (v) VALUES ('undone')")
        late("ROLLBACK")
        shop.execute("INSERT INTO late (v) VALUES ('last')")
    for name in (*names, "impatient"):
        running.rows(name, 4)
    wait_until(lambda: "no rows with ID 4 came in time" in running.losses("impatient"), SECONDS, lambda: running.losses("impatient"))
