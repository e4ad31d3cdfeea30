"""Records with schemas, from files to consumers: a real registry, a real broker, the consumers' own deserializers."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.rig.kafka import consume
from tests.rig.registry import RegistryFront, SchemaRegistry
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.rig.shipping import Shipping

EVENT = {"type": "record", "name": "Event", "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}]}
NUMBERED: list[Any] = [{"json": {}}]


def lines(*numbers: int) -> str:
    return "".join(json.dumps({"id": number, "text": f"line {number}"}) + "\n" for number in numbers)


def reader(registry_client: SchemaRegistryClient, topic: str) -> Callable[[bytes | None], Any]:
    read = AvroDeserializer(registry_client)
    return lambda data: read(data, SerializationContext(topic, MessageField.VALUE))


def avro(url: str, **more: Any) -> dict[str, Any]:
    return {"value": {"type": "avro", **more}, "schema_registry": {"url": url}}


def test_each_files_columns_become_a_version_of_the_schema_until_one_cannot(
    shipping: Shipping, registry_client: SchemaRegistryClient, schema_registry: SchemaRegistry, logs_dir: Path
) -> None:
    source = {
        "type": "spool_dir", "ready": {"min_age": "0s"}, "order_by": "name",
        "format": {"type": "csv", "types": {"qty": "int", "price": "decimal(10,2)"}},
    }  # fmt: skip
    (logs_dir / "1.csv").write_text("id,qty\na,1\nb,2\n")
    shipping.start(source=source, converters=avro(schema_registry.url, auto_register=True))
    read = reader(registry_client, shipping.topic)
    assert [read(record.value) for record in shipping.records(2)] == [{"id": "a", "qty": 1}, {"id": "b", "qty": 2}]
    (logs_dir / ".2.csv").write_text("id,qty,price\nc,3,1.50\n")
    (logs_dir / ".2.csv").rename(logs_dir / "2.csv")
    assert read(shipping.records(3)[2].value) == {"id": "c", "qty": 3, "price": Decimal("1.50")}
    registry_client.set_compatibility(f"{shipping.topic}-value", "FULL")
    shipping.stop()
    source["format"] = {"type": "csv"}
    (logs_dir / "3.csv").write_text("id,qty\nd,many\n")
    shipping.start(source=source, converters=avro(schema_registry.url, auto_register=True))
    wait_until(lambda: shipping.status.state == "failed", message=lambda: f"{shipping.status}")
    assert "refuses the schema" in shipping.status.reason
    assert "HTTP 409" in shipping.status.reason


def test_while_the_registry_is_down_nothing_is_lost_and_afterwards_everything_flows(
    shipping: Shipping, registry_client: SchemaRegistryClient, registry_front: RegistryFront, logs_dir: Path
) -> None:
    registry_client.register_schema(f"{shipping.topic}-value", Schema(json.dumps(EVENT), "AVRO"))
    registry_front.stop()
    (logs_dir / "app").write_text(lines(*range(50)))
    shipping.start(transforms=NUMBERED, converters=avro(registry_front.url))
    wait_until(lambda: shipping.status.state == "retrying", message=lambda: f"{shipping.status}")
    assert "the schema registry at http://127.0.0.1" in shipping.status.reason
    with (logs_dir / "app").open("a") as file:
        file.write(lines(*range(50, 100)))
    registry_front.start()
    read = reader(registry_client, shipping.topic)
    assert [read(record.value)["id"] for record in shipping.records(100)] == list(range(100))
    shipping.wait_caught_up()
    assert len(shipping.records()) == 100
    assert len(registry_front.requests) <= 2 * 2, "at most once for each process, and not once a record"


def test_a_subject_that_is_missing_blocks_until_somebody_registers_it(
    shipping: Shipping, registry_client: SchemaRegistryClient, schema_registry: SchemaRegistry, logs_dir: Path
) -> None:
    (logs_dir / "app").write_text(lines(1))
    shipping.start(transforms=NUMBERED, converters=avro(schema_registry.url))
    wait_until(lambda: shipping.status.state == "blocked", message=lambda: f"{shipping.status}")
    assert f"does not have subject '{shipping.topic}-value'" in shipping.status.reason
    registry_client.register_schema(f"{shipping.topic}-value", Schema(json.dumps(EVENT), "AVRO"))
    assert reader(registry_client, shipping.topic)(shipping.records(1)[0].value) == {"id": 1, "text": "line 1"}


def test_a_record_that_does_not_fit_goes_to_the_dlq_with_its_field(
    shipping: Shipping,
    registry_client: SchemaRegistryClient,
    schema_registry: SchemaRegistry,
    logs_dir: Path,
    make_topic: Callable[..., str],
) -> None:
    dlq = make_topic()
    registry_client.register_schema(f"{shipping.topic}-value", Schema(json.dumps(EVENT), "AVRO"))
    registry_client.register_schema(f"{shipping.topic}-key", Schema('"long"', "AVRO"))
    bad = '{"id": "3", "text": "s3cret"}\n'
    (logs_dir / "app").write_text(lines(1) + bad + lines(2))
    converters = {**avro(schema_registry.url), "key": "avro"}
    errors = {"tolerance": "all", "dlq": {"topic": dlq}}
    shipping.start(transforms=NUMBERED, converters=converters, record={"key": "{id}"}, errors=errors)
    records = shipping.records(2)
    assert [reader(registry_client, shipping.topic)(record.value)["id"] for record in records] == [1, 2]
    assert [AvroDeserializer(registry_client)(record.key, SerializationContext("t", MessageField.KEY)) for record in records] == [1, 2]
    (letter,) = consume(shipping.bootstrap, dlq, until=1)
    headers = {name: (value or b"").decode() for name, value in letter.headers}
    assert any("field 'id': a whole number is needed, not text" in value for value in headers.values()), headers
    assert letter.value == bad.encode().rstrip(b"\n")


def test_a_missing_subject_of_one_topic_lets_all_before_it_through_and_nothing_is_sent_twice(
    shipping: Shipping,
    registry_client: SchemaRegistryClient,
    schema_registry: SchemaRegistry,
    logs_dir: Path,
    make_topic: Callable[..., str],
) -> None:
    other = make_topic()
    registry_client.register_schema(f"{shipping.topic}-value", Schema(json.dumps(EVENT), "AVRO"))
    (logs_dir / "app").write_text(
        "".join(json.dumps({"id": number, "text": other if number == 150 else shipping.topic}) + "\n" for number in range(200))
    )
    record = {"topic": "{text}", "allowed_topics": [shipping.topic, other]}
    shipping.start(transforms=NUMBERED, converters=avro(schema_registry.url), record=record)
    read = reader(registry_client, shipping.topic)
    assert [read(one.value)["id"] for one in shipping.records(150)] == list(range(150))
    wait_until(lambda: shipping.status.state == "blocked", message=lambda: f"{shipping.status}")
    assert f"does not have subject '{other}-value'" in shipping.status.reason
    registry_client.register_schema(f"{other}-value", Schema(json.dumps(EVENT), "AVRO"))
    shipping.wait_caught_up()
    assert [read(one.value)["id"] for one in shipping.records(199)] == [*range(150), *range(151, 200)]
    assert [read(one.value)["id"] for one in consume(shipping.bootstrap, other, until=1)] == [150]


@pytest.mark.long  # 5 s, the time-out of a connection
def test_a_stop_does_not_wait_for_a_registry_that_hangs_and_nothing_tells_its_password(
    shipping: Shipping, registry_front: RegistryFront, logs_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    registry_front.hold_seconds = 30.0
    (logs_dir / "app").write_text(lines(1))
    converters = avro(registry_front.url)
    converters["schema_registry"]["basic_auth"] = {"username": "me", "password": "s3cret-word"}
    shipping.start(transforms=NUMBERED, converters=converters)
    wait_until(lambda: bool(registry_front.requests))
    status = shipping.stop()
    assert status.state == "stopped"
    assert "s3cret" not in f"{caplog.text} {status}"
    assert "HTTP Request" not in caplog.text
