"""Records of many kinds: schemas that evolve, new fields, nulls, aborted and open transactions, bad ones."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyarrow import parquet

from copycat_agent.producer import partition_reading
from tests.kafka.conftest import Sent as Aborted
from tests.kafka.conftest import Writer
from tests.lake.conftest import BEGIN_MS, Lake, Sent, as_json, number_of
from tests.rig.kafka import consume, wait_for_markers
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.schema_registry import SchemaRegistryClient

    from tests.rig.registry import SchemaRegistry

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "raw", "type": "bytes"},
        {"name": "ratio", "type": "float"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "inner",
            "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]},
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "marks", "type": {"type": "map", "values": "double"}},
    ],
}
LATER = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "extra", "type": ["null", "string"], "default": None}]}
BEGIN = datetime(2026, 9, 21, 14, 13, 20, 123456, tzinfo=UTC)


def order(number: int) -> dict[str, Any]:
    return {
        "n": number,
        "price": Decimal(number * 1001) / 1000 - 50,
        "at": BEGIN + timedelta(microseconds=number),
        "local": datetime(2026, 3, 29, 2, 30, number % 60),  # noqa: DTZ001 - what it says
        "day": date(2026, 1, 1) + timedelta(days=number),
        "raw": bytes([number % 256, 0, 255]),
        "ratio": number / 4,
        "kind": "AB"[number % 2],
        "note": None if number % 3 else f"note {number}",
        "inner": {"x": number, "y": f"é{number}"},
        "tags": [f"t{number}"] * (number % 3),
        "marks": {"a": number / 2},
    }


@pytest.fixture
def orders(lake: Lake, registry_client: SchemaRegistryClient) -> Lake:
    """100 records of the first schema, 100 with a new field, 50 of the first again."""
    writers = {name: AvroSerializer(registry_client, json.dumps(one)) for name, one in (("old", SCHEMA), ("new", LATER))}
    where = SerializationContext(lake.topic, MessageField.VALUE)
    rows = [("new" if 100 <= number < 200 else "old", order(number)) for number in range(250)]
    lake.send(Sent(writers[kind]({**row, "extra": f"e{row['n']}"} if kind == "new" else row, where)) for kind, row in rows)
    return lake


def expected(number: int) -> dict[str, Any]:
    return {**order(number), **({"extra": f"e{number}"} if 100 <= number < 200 else {})}


def test_avro_records_keep_their_types_and_a_new_field_begins_another_file(orders: Lake, schema_registry: SchemaRegistry) -> None:
    converters = {"value": "avro", "schema_registry": {"url": schema_registry.url}}
    found = orders.run(sink={"format": "parquet", "path": "{@topic}"}, converters=converters)
    rows = {row["n"]: row for file in found for row in file.rows}
    assert len(found) == 2, "one for each schema"
    assert sorted(len(one.rows) for one in found) == [100, 150]
    assert {number: {**row, "marks": dict(row["marks"])} for number, row in rows.items()} == {one: expected(one) for one in range(250)}
    older = parquet.read_schema(max(found, key=lambda one: len(one.rows)).path)
    assert [(one.name, one.type) for one in older] == [
        ("n", pa.int64()), ("price", pa.decimal128(12, 3)), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
        ("day", pa.date32()), ("raw", pa.binary()), ("ratio", pa.float32()), ("kind", pa.string()), ("note", pa.string()),
        ("inner", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])), ("tags", pa.list_(pa.field("element", pa.string()))),
        ("marks", older.field("marks").type),
    ]  # fmt: skip
    assert pa.types.is_map(older.field("marks").type)


def test_avro_records_as_avro_files(orders: Lake, schema_registry: SchemaRegistry) -> None:
    converters = {"value": "avro", "schema_registry": {"url": schema_registry.url}}
    found = orders.run(sink={"format": "avro", "compression": "zstd"}, converters=converters)
    rows = {row["n"]: row for file in found for row in file.rows}
    assert rows == {one: expected(one) for one in range(250)}
    with found[0].path.open("rb") as file:
        schema: Any = fastavro.reader(file).writer_schema
    kinds = {one["name"]: json.dumps(one["type"]) for one in schema["fields"]}
    assert "timestamp-micros" in kinds["at"]
    assert '"scale": 3' in kinds["price"]


EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "what", "type": [{"type": "record", "name": one, "fields": [{"name": "id", "type": "int"}]} for one in ("Made", "Gone")]},
    ],
}


@pytest.mark.parametrize("transforms", [[], [{"drop_if": {"n": 99}}]])
def test_avro_files_have_what_a_converter_would_change(
    transforms: list[Any], lake: Lake, schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient
) -> None:
    writer, where = AvroSerializer(registry_client, json.dumps(EVENT)), SerializationContext(lake.topic, MessageField.VALUE)
    sent = [{"n": number, "at": 10**18 + number, "what": (["Made", "Gone"][number % 2], {"id": number})} for number in range(20)]
    lake.send(Sent(writer(one, where)) for one in sent)
    converters = {"value": "avro", "schema_registry": {"url": schema_registry.url}}
    (found,) = lake.run(sink={"format": "avro", "path": "x"}, converters=converters, transforms=transforms)
    with found.path.open("rb") as file:
        assert list(fastavro.reader(file, return_record_name=True)) == sent


def test_steps_work_on_avro_records_and_times_stay_times(orders: Lake, schema_registry: SchemaRegistry) -> None:
    converters = {"value": "avro", "schema_registry": {"url": schema_registry.url}}
    found = orders.run(sink={"format": "parquet"}, converters=converters, transforms=[{"set": {"more": "x{n}"}}, {"drop_fields": ["raw"]}])
    rows = {row["n"]: row for file in found for row in file.rows}
    assert sorted(rows) == list(range(250))
    assert rows[7]["more"] == "x7"
    assert "raw" not in rows[7]
    assert rows[7]["price"] == order(7)["price"]


def test_a_registry_that_is_away_is_waited_for(orders: Lake, registry_front: Any) -> None:
    registry_front.stop()
    orders.start(
        sink={"format": "parquet", "roll": {"age": "200ms"}},
        converters={"value": "avro", "schema_registry": {"url": registry_front.url}},
        errors={"retry_max_delay": "300ms"},
    )
    wait_until(lambda: orders.status.state == "retrying", 60, lambda: f"{orders.status}")
    registry_front.start()
    assert sorted(row["n"] for file in orders.wait_written(250) for row in file.rows) == list(range(250))


def test_a_record_whose_schema_the_registry_does_not_have_is_a_bad_one(
    orders: Lake, schema_registry: SchemaRegistry, make_topic: Callable[..., str]
) -> None:
    unknown, dlq = b"\0\0\0\xff\xff\x01\x02", make_topic()
    orders.send([Sent(unknown), Sent(unknown)])
    sections: Any = {"converters": {"value": "avro", "schema_registry": {"url": schema_registry.url}}, "sink": {"roll": {"age": "200ms"}}}
    orders.start(**sections)
    wait_until(lambda: orders.status.state == "failed", 60, lambda: f"{orders.status}")
    assert f"{orders.topic}/0@250, stage parse: schema 65535: the schema registry at " in orders.status.reason
    orders.stop()
    found = orders.run(**sections, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    assert sorted(row["n"] for file in found for row in file.rows) == list(range(250))
    letters = consume(orders.bootstrap, dlq)
    assert [(one.value, dict(one.headers)["copycat.offset"]) for one in letters] == [(unknown, b"250"), (unknown, b"251")]


def test_fields_that_come_later_are_columns_from_there_on(lake: Lake) -> None:
    count = 20_000
    lake.send(as_json({"n": number, **({"late": f"l{number}"} if number >= 10_000 else {})} for number in range(count)))
    found = lake.run(sink={"format": "parquet", "path": "all"})
    lake.assert_each_once(found)
    rows = {row["n"]: row.get("late") for file in found for row in file.rows}
    assert rows == {number: f"l{number}" if number >= 10_000 else None for number in range(count)}
    assert 1 < len(found) <= 3


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_nulls_are_in_no_file_and_counted(lake: Lake, kind: str) -> None:
    rows = as_json({"n": number} for number in range(100))
    lake.send(one._replace(value=None) if number % 4 == 0 else one for number, one in enumerate(rows))
    found = lake.run(sink={"format": kind})
    lake.assert_each_once(found)
    counts = lake.last.counts
    assert (counts.read, counts.acknowledged, counts.dropped) == (100, 75, 25)


def test_a_topic_of_nulls_alone_is_passed_and_makes_no_file(lake: Lake) -> None:
    lake.send(Sent(None, b"key") for _ in range(50))
    assert lake.run() == []
    assert lake.last.counts.dropped == 50
    lake.send(as_json([{"n": 1}]))
    (file,) = lake.run()
    assert (file.name.first, file.name.last) == (50, 50)


def test_what_holds_only_aborted_records_is_passed_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reading, "STALL_SECONDS", 60.0)
    monkeypatch.setattr(partition_reading, "REPORTS_PER_STALL", 3000)  # one in 20 ms
    monkeypatch.setattr(partition_reading, "POLL_SECONDS", 0.005)
    lake.send(as_json({"n": number} for number in range(5)))
    lake.run()
    Writer(lake.bootstrap, lake.topic).abort([Aborted(b"x" * 1000)] * 100_000)
    wait_for_markers(lake.bootstrap, lake.topic)
    lake.run()
    assert lake.last.lag.records == 0
    lake.send(as_json({"n": number} for number in range(5, 10)))
    lake.assert_each_once(lake.run())
    assert len(list((lake.root / "_copycat").rglob("claims/*/*/*"))) > 3, "passed in more than one step"


def test_what_was_aborted_or_is_open_is_not_written(lake: Lake) -> None:
    stays_open = {"transaction.timeout.ms": 600_000}  # the broker ends those that take longer
    producer = Producer({"bootstrap.servers": lake.bootstrap, "transactional.id": lake.topic, "log_level": 0, **stays_open})
    producer.init_transactions()

    def transact(numbers: range, end: Callable[[], object] | None) -> None:
        producer.begin_transaction()
        for number in numbers:
            producer.produce(lake.topic, json.dumps({"n": number}).encode(), timestamp=BEGIN_MS)
        producer.flush()
        if end is not None:
            end()

    for begin in range(0, 500, 50):
        transact(range(begin, begin + 50), producer.abort_transaction if begin % 100 else producer.commit_transaction)
    transact(range(1000, 1010), None)
    lake.start(sink={"format": "parquet", "roll": {"age": "200ms"}})
    found = lake.wait_written(250)
    lake.stop()
    lake.assert_each_once(found)
    assert sorted(row["n"] // 50 for file in found for row in file.rows)[::50] == [0, 2, 4, 6, 8]
    producer.abort_transaction()
    transact(range(2000, 2010), producer.commit_transaction)
    wait_for_markers(lake.bootstrap, lake.topic)
    lake.assert_each_once(lake.run(sink={"format": "parquet"}))


BAD = {
    30: (b"{no json", "parse"),
    31: (b'["no", "object"]', "parse"),
    60: (b'{"n": 60, "text": {"is": "an object"}}', "send"),
    61: (b'{"n": "sixty-one"}', "send"),
    99: (b'{"n": 99, "text": [1]}', "send"),
}


def bad_and_good(count: int = 100) -> list[Sent]:
    good = as_json({"n": number, "text": f"t{number}"} for number in range(count))
    return [one._replace(value=BAD[number][0]) if number in BAD else one for number, one in enumerate(good)]


def test_bad_records_are_dead_letters_with_all_that_they_were_in_kafka(lake: Lake, make_topic: Callable[..., str]) -> None:
    dlq = make_topic()
    sent = [one._replace(headers=(("h", b"%d" % number),)) for number, one in enumerate(bad_and_good())]
    lake.send(sent)
    found = lake.run(sink={"format": "parquet"}, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    assert sorted(row["n"] for file in found for row in file.rows) == [number for number in range(100) if number not in BAD]
    letters = consume(lake.bootstrap, dlq)
    assert len(letters) == len(BAD), "each once"
    for one in letters:
        headers = {name: (value or b"").decode() for name, value in one.headers}
        offset = int(headers["copycat.offset"])
        assert (one.value, headers["copycat.stage"]) == BAD[offset]
        assert (one.key, headers["h"]) == (sent[offset].key, str(offset))
        assert headers["copycat.file"] == f"{lake.topic}/0"
    counts = lake.last.counts
    assert (counts.read, counts.acknowledged, counts.dead_lettered) == (100, 100 - len(BAD), len(BAD))


@pytest.mark.parametrize("refused_by", ["client", "broker"])
def test_a_refused_dead_letter_is_sent_without_its_raw_bytes_and_the_records_before_it_are_in_files_once(
    lake: Lake, make_topic: Callable[..., str], refused_by: str
) -> None:
    dlq = make_topic(1, {} if refused_by == "client" else {"max.message.bytes": "3000"})
    noise = Random(1).randbytes(4000).hex()  # that no compression makes small enough
    wrong = ["wrong"] * 10  # so many in a row that the records after them are sent one by one
    lake.send(as_json({"n": number, "x": x} for number, x in enumerate([*wrong, *"12345", "wrong" + noise, *"6789"])))
    client = {"kafka": {"client": {"message.max.bytes": 3000}}} if refused_by == "client" else {}
    found = lake.run(transforms=[{"convert": {"x": "int"}}], errors={"tolerance": "all", "dlq": {"topic": dlq}}, **client)
    assert sorted(row["n"] for file in found for row in file.rows) == [*range(10, 15), *range(16, 20)]
    letters = consume(lake.bootstrap, dlq)
    offsets = [int(dict(one.headers)["copycat.offset"] or b"") for one in letters]
    assert sorted(set(offsets)) == [*range(10), 15]
    assert refused_by == "broker" or offsets == [*range(10), 15], "no letter again"
    assert dict(letters[-1].headers).get("copycat.raw") == b"omitted: refused by the topic"


def test_offsets_of_dead_letters_are_those_of_the_records_behind_gaps_too(lake: Lake, make_topic: Callable[..., str]) -> None:
    dlq = make_topic()
    producer = Producer({"bootstrap.servers": lake.bootstrap, "transactional.id": lake.topic, "log_level": 0})
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.produce(lake.topic, b"{bad" if number % 2 else b'{"n": %d}' % number)
        producer.commit_transaction()
    wait_for_markers(lake.bootstrap, lake.topic)
    lake.run(errors={"tolerance": "all", "dlq": {"topic": dlq}})
    bad = [one.offset for one in lake.sent() if one.value == b"{bad"]
    assert bad == [2, 6, 10], "each transaction takes an offset more"
    assert [int(dict(one.headers)["copycat.offset"] or b"") for one in consume(lake.bootstrap, dlq)] == bad


def test_without_tolerance_a_bad_record_stops_the_connector_and_nothing_is_lost_after_the_mend(lake: Lake) -> None:
    lake.send(bad_and_good())
    lake.start(sink={"format": "parquet", "roll": {"age": "200ms"}})
    wait_until(lambda: lake.status.state == "failed", 60, lambda: f"{lake.status}")
    assert f"{lake.topic}/0@30, stage parse: not JSON" in lake.status.reason, lake.status.reason
    lake.stop()
    found = lake.run(sink={"format": "parquet"}, errors={"tolerance": "all"})
    assert sorted(row["n"] for file in found for row in file.rows) == [number for number in range(100) if number not in BAD]
    assert len({(one.name.first, one.name.last) for one in found}) == len({one.name.first for one in found})


def test_a_range_in_which_all_is_filtered_is_passed(lake: Lake) -> None:
    lake.send(as_json({"n": number, "kind": "test" if number < 300 else "real"} for number in range(400)))
    found = lake.run(transforms=[{"drop_if": {"kind": "test"}}], sink={"path": "a", "roll": {"records": 100}})
    (file,) = found
    assert [row["n"] for row in file.rows] == list(range(300, 400))
    assert lake.last.counts.dropped == 300
    assert number_of(file.rows[0]) == 300
