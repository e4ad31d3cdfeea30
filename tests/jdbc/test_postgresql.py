"""Source `jdbc` on a real PostgreSQL, read by the agent as a user runs it."""

# ruff: noqa: S608 - the statements are the tests' own

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.jdbc.running import SECONDS, Running
from tests.rig.kafka import consume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rig.agent import AgentProcess
    from tests.rig.postgres import Database, Postgres

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def running(reader: AgentProcess) -> Iterator[Running]:
    own = Running(reader, "postgresql", {"mode": "incrementing"})
    yield own
    own.forget()


def where(database: Database) -> dict[str, Any]:
    """Options of a source."""
    return {"url": database.url, "user": database.user, "password": database.password}


TYPES: dict[str, tuple[str, Any]] = {
    "numeric(10, 2)": ("'1234567.50'", 1234567.5),
    "numeric(38)": (f"'{'9' * 38}'", int("9" * 38)),
    "numeric": ("'NaN'", "NaN"),
    "numeric(50, 10)": ("'1.5'", "1.5000000000"),
    "double precision": ("'1.5e300'", 1.5e300),
    "boolean": ("true", True),
    "date": ("'2024-02-29'", "2024-02-29"),
    "time": ("'12:30:00.123456'", "12:30:00.123456"),
    "timetz": ("'12:30:00+02'", "12:30:00+02"),
    "timestamp": ("'2024-02-29 12:30:00.123456'", "2024-02-29T12:30:00.123456"),
    "timestamptz": ("'2024-02-29 12:30:00.123456+02'", "2024-02-29T10:30:00.123456+00:00"),
    "interval": ("'1 year 2 days 3.5 seconds'", "1 year 2 days 00:00:03.5"),
    "json": ("""'{"a": [1, null]}'""", '{"a": [1, null]}'),
    "jsonb": ("""'{"a": [1, null]}'""", '{"a": [1, null]}'),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "int[]": ("'{1, NULL, 3}'", [1, None, 3]),
    "uuid[]": ("'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11, NULL}'", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None]),
    "mood": ("'so, so'", "so, so"),
    "positive": ("5", "5"),
    "pair": ("ROW(1, 'a b')", '(1,"a b")'),
    "bit(3)": ("B'101'", "101"),
    "inet": ("'10.0.0.0/8'", "10.0.0.0/8"),
    "tsvector": ("'a:1 b:2'", "'a':1 'b':2"),
    "int4range": ("'[1, 5)'", "[1,5)"),
    "char(5)": ("'ab'", "ab   "),
    "text": ("''", ""),
    "varchar(10)": ("NULL", None),
    "money": ("'12.50'", "$12.50"),
}


def test_values_of_all_types_arrive_as_they_are(database: Database, running: Running) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('so, so'); CREATE TYPE pair AS (a int, b text); CREATE DOMAIN positive AS int")
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    generated = "twice bigint GENERATED ALWAYS AS (id * 2) STORED, big text"
    database.execute(f"CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {columns}, {generated})")
    names = ", ".join(f"c{number}" for number in range(len(TYPES)))
    database.execute(f"INSERT INTO item ({names}, big) VALUES ({', '.join(given for given, _ in TYPES.values())}, repeat('ä', 500000))")
    database.execute("INSERT INTO item (big) VALUES (NULL)")
    running.read("types", "public.item", **where(database))
    first, second = running.rows("types", 2)
    found = {kind: first[f"c{number}"] for number, kind in enumerate(TYPES)}
    assert found == {kind: expected for kind, (_, expected) in TYPES.items()}
    assert (first["id"], first["twice"], len(first["big"])) == (1, 2, 500_000)
    assert second == {"id": 2, "twice": 4, "big": None, **{f"c{number}": None for number in range(len(TYPES))}}


NAMES = ["Upper.dot", """quo"te's""", "sp ace \U0001f40d", "under_score%cent#0", 'x"; DROP TABLE "odd"."Upper"; --', "\u00e4" * 30]


def test_tables_of_all_names_are_read_and_no_row_twice_where_one_table_has_anothers(database: Database, running: Running) -> None:
    """Partitions, and tables that inherit, are read with the table above them."""
    database.execute("CREATE SCHEMA odd")
    for number, name in enumerate(NAMES):
        quoted = '"odd"."{}"'.format(name.replace('"', '""'))
        database.execute(f'CREATE TABLE {quoted} (id bigint PRIMARY KEY, "C.x" text, v int)')
        database.execute(f"INSERT INTO {quoted.replace('%', '%%')} VALUES (1, %s, {number})", name)
    database.execute("CREATE TABLE odd.above (id bigint, v int, PRIMARY KEY (id)) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE odd.low PARTITION OF odd.above FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE odd.lowest PARTITION OF odd.low FOR VALUES FROM (0) TO (5)")
    database.execute("CREATE TABLE odd.high PARTITION OF odd.above FOR VALUES FROM (10) TO (20)")
    database.execute("INSERT INTO odd.above VALUES (1, 101), (11, 102)")
    database.execute(
        "CREATE TABLE odd.parent (id bigint PRIMARY KEY, v int); CREATE TABLE odd.child (PRIMARY KEY (id)) INHERITS (odd.parent)"
    )
    database.execute("INSERT INTO odd.parent VALUES (1, 103); INSERT INTO odd.child VALUES (1, 104)")
    database.execute("CREATE TABLE odd.wide (id bigint PRIMARY KEY, v int, " + ", ".join(f"c{one} int" for one in range(300)) + ")")
    database.execute("INSERT INTO odd.wide (id, v, c299) VALUES (1, 105, 7)")
    running.read("odd", "odd.*", batch_rows=1, **where(database))
    expected = [*range(len(NAMES)), 101, 102, 103, 104, 105]
    arrived = running.rows("odd", len(expected))
    assert sorted(one["v"] for one in arrived) == expected
    assert {one["v"]: one["C.x"] for one in arrived if "C.x" in one} == dict(enumerate(NAMES))
    (wide,) = [one for one in arrived if one["v"] == 105]
    assert (len(wide), wide["c299"]) == (302, 7)
    database.execute("INSERT INTO odd.lowest VALUES (2, 106); INSERT INTO odd.child VALUES (2, 107)")
    arrived = running.rows("odd", len(expected) + 2)
    assert sorted(one["v"] for one in arrived) == [*expected, 106, 107]


def test_rows_come_once_through_restarts_ended_sessions_and_changes_of_the_table(own_postgres: Postgres, running: Running) -> None:
    database = own_postgres
    database.execute("CREATE TABLE item (id bigserial PRIMARY KEY, v int); CREATE TABLE closed (id bigint PRIMARY KEY)")
    database.execute("CREATE USER reader PASSWORD 'first'; GRANT SELECT ON item TO reader")
    reader = {"tables": ["public.item", "public.closed"], "url": database.url, "user": "reader", "password": "first"}
    running.define("item", reader, delivery={"guarantee": "exactly_once"})
    running.start()
    sent: list[int] = []

    def goes_on(columns: str = "") -> dict[str, Any]:
        """A row more arrives, and each once: what it has. The table that may not be read holds nothing up."""
        sent.append(len(sent))
        database.execute(f"INSERT INTO item (v{columns and f', {columns}'}) VALUES ({len(sent) - 1}{columns and ', 7'})")
        arrived = running.rows("item", len(sent))
        assert [one["v"] for one in arrived] == sent
        return {name: value for name, value in arrived[-1].items() if name != "id"}  # a crash leaves a gap in a sequence

    goes_on()
    own_postgres.restart("fast")
    goes_on()
    own_postgres.restart("immediate")
    goes_on()
    own_postgres.terminate_sessions()
    goes_on()
    database.execute("ALTER TABLE item ADD COLUMN added int")
    assert goes_on("added") == {"v": 4, "added": 7}
    database.execute("ALTER TABLE item RENAME COLUMN added TO renamed")
    assert goes_on("renamed") == {"v": 5, "renamed": 7}
    database.execute("ALTER TABLE item DROP COLUMN renamed")
    assert goes_on() == {"v": 6}
    database.execute("DROP TABLE item; CREATE TABLE item (id bigserial PRIMARY KEY, v int); GRANT SELECT ON item TO reader")
    assert goes_on() == {"v": 7}
    database.execute("ALTER USER reader PASSWORD 'second'")
    own_postgres.terminate_sessions()
    running.is_told("item", "blocked")
    database.execute("ALTER USER reader PASSWORD 'first'")
    goes_on()


@pytest.mark.long
def test_an_initial_load_in_parts_survives_kills_and_what_is_written_meanwhile_comes_too(
    database: Database, agent: AgentProcess, topic: str
) -> None:
    database.execute("CREATE TABLE item (id bigserial PRIMARY KEY, v int); INSERT INTO item (v) SELECT generate_series(1, 2000)")
    source = {"type": "jdbc", **where(database), "tables": ["public.item"], "mode": "incrementing", "poll_interval": "200ms"}
    options = {**source, "partitions": 3, "batch_rows": 200}
    agent.define("item", {"source": options, "record": {"topic": topic}, "delivery": {"guarantee": "exactly_once"}})

    def numbers(count: int | None = None) -> list[int]:
        return sorted(json.loads(one.value or b"")["v"] for one in consume(agent.bootstrap, topic, "read_committed", count, SECONDS))

    for kills in range(2):
        agent.start()
        numbers(kills * 600 + 1)
        agent.kill()
        database.execute(f"INSERT INTO item (v) SELECT generate_series({kills * 100 + 2001}, {kills * 100 + 2100})")
    agent.start()
    assert numbers(2200) == list(range(1, 2201))
    agent.stop(SECONDS)
    assert len(numbers()) == 2200
