"""What databases hold that nobody expects, each in a connector of one agent: none holds up another, and people are told which it is.

The last test ends the agent that the files of this directory share: it comes behind those that read.
"""

# ruff: noqa: S608 - the statements are the tests' own

from __future__ import annotations

import json
import time
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from copycat_agent.api import AgentClient
from tests.jdbc.running import SECONDS, Running
from tests.rig.kafka import create_topic, unique_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.schema_registry import SchemaRegistryClient

    from tests.rig.agent import AgentProcess
    from tests.rig.postgres import Database, Postgres
    from tests.rig.registry import SchemaRegistry

pytestmark = pytest.mark.timeout(900)
CANARY = "c4n4ry-Jw7"
MEMORY_MOST = 1600 * 2**20
"""Of all processes of the agent, which has other connectors, too. Unbounded fetches use up the JVM's 512 MiB, and it stands still."""

TIMES = "CREATE TABLE times (id bigint PRIMARY KEY, t timestamp, z timestamptz, d date, n numeric(10, 2), big numeric, a numeric(4, 1)[])"
TIMES_ROWS = """INSERT INTO times VALUES
    (1, 'infinity', 'infinity', 'infinity', 'NaN', 'Infinity', '{1.5, NULL}'),
    (2, '-infinity', '-infinity', '-infinity', 0, 'NaN', '{}'),
    (3, '294276-12-31 23:59', '294276-12-31 23:59+00', '5874897-12-31', -1.50, 1e-20, NULL),
    (4, '0044-03-15 12:00 BC', '1883-11-18 12:00 America/New_York', '0044-03-15 BC', 1, 1, '{NaN}')"""
NAMES = ["Id", "id", "ID", "select", "a.b", 'a"b', "a AS b", "x" * 63, "\U0001f40d", ";DROP TABLE names;--", "?", "$1", "%s"]
HUGE = "SELECT generate_series(1::bigint, 9223372036854775807) AS id"
LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 50000) i)"  # which does not compress well


class Connectors(Running):
    """Those of this file, and their database."""

    def __init__(self, agent: AgentProcess, database: Database) -> None:
        own = {"url": database.url, "user": database.user, "password": database.password}
        super().__init__(agent, "odd", {**own, "mode": "incrementing", "poll_interval": "500ms"})
        self.database = database


@pytest.fixture(scope="module")
def all_of(postgres: Postgres, reader: AgentProcess, schema_registry: SchemaRegistry) -> Iterator[Connectors]:
    """A connector for each case, which all begin at once."""
    with postgres.database() as database:
        made = Connectors(reader, database)
        _define(made, schema_registry)
        made.start()
        yield made
        made.forget()


def _define(made: Connectors, schema_registry: SchemaRegistry) -> None:
    database, once = made.database, {"mode": "bulk", "poll_interval": "1h"}
    letters = {"tolerance": "all", "dlq": {"topic": made.topics.setdefault("dlq", create_topic(made.agent.bootstrap, unique_topic("dlq")))}}
    database.execute(f"{TIMES}; {TIMES_ROWS}")
    made.define("times", {"tables": ["public.times"]})
    columns = ", ".join('"{}" int'.format(name.replace('"', '""')) for name in NAMES)
    database.execute(f'CREATE TABLE names ({columns}, PRIMARY KEY ("a AS b"))')
    database.execute(f"INSERT INTO names VALUES ({', '.join(map(str, range(len(NAMES))))})")
    made.define("names", {"tables": ["public.names"], "key_field": "_key", **once})
    database.execute("CREATE TABLE keys (n numeric PRIMARY KEY); INSERT INTO keys SELECT generate_series(1, 30)")
    made.define("keys", {"tables": ["public.keys"], "batch_rows": 7, **once})
    database.execute("CREATE TABLE money (id bigint PRIMARY KEY, price numeric(12, 4)); INSERT INTO money VALUES (1, 12.5)")
    avro = {"value": {"type": "avro", "auto_register": True}, "schema_registry": {"url": schema_registry.url}}
    made.define("avro", {"tables": ["public.money"]}, converters=avro)
    database.execute(f"CREATE TABLE bad (id bigint PRIMARY KEY, n text); INSERT INTO bad VALUES (1, '1'), (2, '{CANARY}'), (3, {LARGE})")
    made.define("bad", {"tables": ["public.bad"]}, errors=letters, transforms=[{"convert": {"n": "int"}}])
    made.define("number", {"tables": ["public.money"], "mode": "timestamp", "columns": {"timestamp": "price"}})
    made.define("value", {"query": "SELECT id, n::int AS n FROM bad", **once})
    made.define("twice", {"query": "SELECT 1 AS a, 2 AS a", **once})
    made.define("nowhere", {"tables": ["*"], "url": f"{database.url}_"})
    made.define("refused", {"tables": ["*"], "password": CANARY})
    made.define("huge", {"query": HUGE, **once}, delivery={"max_batch_bytes": "1MiB"})


def test_times_and_numbers_without_an_end_arrive_and_hold_up_nothing(all_of: Connectors) -> None:
    ends, begins, far, old = all_of.rows("times", 4)
    assert (ends["t"], ends["d"], ends["n"], ends["big"]) == ("9999-12-31T23:59:59.999999", "9999-12-31", None, "Infinity")
    assert ends["z"] == "9999-12-31T23:59:59.999999+00:00"
    assert (begins["t"], begins["z"], begins["big"]) == ("0001-01-01T00:00:00", "0001-01-01T00:00:00+00:00", "NaN")
    assert (far["t"], far["z"], far["n"]) == (ends["t"], ends["z"], -1.5)
    assert (old["z"], old["a"], ends["a"]) == ("1883-11-18T17:00:00+00:00", ["NaN"], ["1.5", None])


def test_columns_of_all_names_are_fields_where_they_differ_by_case_alone(all_of: Connectors) -> None:
    (row,) = all_of.rows("names", 1)
    assert row == {**{name: number for number, name in enumerate(NAMES)}, "_key": NAMES.index("a AS b")}


def test_a_key_that_is_sent_as_text_is_ordered_as_what_it_is(all_of: Connectors) -> None:
    assert [int(one["n"]) for one in all_of.rows("keys", 30)] == list(range(1, 31))


def test_schemas_of_a_table_follow_its_columns(all_of: Connectors, registry_client: SchemaRegistryClient) -> None:
    read, topic = AvroDeserializer(registry_client), all_of.topics["avro"]

    def last(count: int) -> Any:
        return read(all_of.raw("avro", count)[-1].value, SerializationContext(topic, MessageField.VALUE))

    assert last(1) == {"id": 1, "price": Decimal("12.5000")}
    all_of.database.execute("ALTER TABLE money ADD COLUMN note text; INSERT INTO money VALUES (2, 1.25, 'two')")
    assert last(2) == {"id": 2, "price": Decimal("1.2500"), "note": "two"}
    all_of.database.execute("ALTER TABLE money DROP COLUMN note; INSERT INTO money VALUES (3, NULL)")
    assert last(3) == {"id": 3, "price": None}


def test_dead_letters_name_the_table_and_hold_the_row_and_say_nothing_of_its_values(all_of: Connectors) -> None:
    text, *_, large = all_of.raw("dlq", 2)  # what the broker refused was looked for by sending again what stands before it
    assert json.loads(text.value) == {"id": 2, "n": CANARY}
    assert large.value.startswith(b'{"id":3,')
    headers = {name: value.decode() for name, value in text.headers}
    assert (headers["copycat.file"], headers["copycat.message"]) == ("public.bad", "transforms[0] convert: field 'n': not a whole number")
    assert {one["n"] for one in all_of.rows("bad", 1)} == {1}


def test_what_nobody_can_read_is_told_with_the_next_step(all_of: Connectors) -> None:
    all_of.is_told("number", "blocked", "column price of table public.money is of type numeric, which holds no times", "source.columns")
    all_of.is_told("value", "blocked", "the database says 22P02; correct the value in the row")
    all_of.is_told("twice", "blocked", "several columns have the same name")
    all_of.is_told("nowhere", "blocked", "does not exist", "correct source.url")
    all_of.is_told("refused", "blocked", "source.user and source.password")


def test_a_query_of_any_size_takes_no_more_memory_than_a_batch(all_of: Connectors) -> None:
    all_of.is_told("huge", "failed", "more than delivery.max_batch_bytes (1,048,576 bytes)")
    assert sum(map(_memory, [psutil.Process(all_of.agent.pid), *all_of.agent.descendants()])) < MEMORY_MOST
    assert "Spark is started again" not in all_of.agent.log
    running = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'copycat' AND state <> 'idle'"
    wait_until(lambda: not all_of.database.execute(f"{running} AND query LIKE '%generate_series(1::%'"), SECONDS, "the query is read on")


def test_the_agent_ends_beside_a_silent_server_and_has_told_nobody_a_password_or_a_value(all_of: Connectors, postgres: Postgres) -> None:
    agent = all_of.agent
    client = AgentClient(agent.state_dir / "agent.sock")
    shown = [json.dumps(client.get(f"/v1/connectors/{all_of.name(name)}")) for name in all_of.topics if name != "dlq"]
    server = psutil.Process(postgres.pid)
    processes = [server, *server.children()]
    try:
        for one in processes:
            one.suspend()
        time.sleep(2)  # a look has begun, which is not answered
        agent.stop(SECONDS)
        asked, stopped = (_moment(agent, word) for word in ('"agent is asked to stop"', '"state": "stopped"'))
        assert 0 <= stopped - asked < 120  # 5 s, on a machine that has nothing else to do; the driver itself gives up after minutes
    finally:
        for one in processes:
            one.resume()
    assert not [one for one in [*shown, agent.log, agent.stdout] if CANARY in one or all_of.database.password in one]


def _memory(process: psutil.Process) -> int:
    """Bytes; none of a process that has just ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _moment(agent: AgentProcess, word: str) -> float:
    """When the log last says it, in seconds."""
    line = next(line for line in reversed(agent.log.splitlines()) if word in line)
    return datetime.fromisoformat(json.loads(line)["ts"]).timestamp()
