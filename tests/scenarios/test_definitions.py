"""The three definitions that must work (definitions.md, section 5), on the real command: only places, and the guarantee, are other ones."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.rig.kafka import Consumed, consume
from tests.rig.secured import Login, ScramBroker
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess
    from tests.rig.registry import SchemaRegistry

NGINX = r"""
name: nginx-access
source: {type: log_file, include: [LOGS/*access.log*]}
transforms:
  - regex: '^(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<ts>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+) [^"]*" (?P<status>\d{3}) (?P<bytes>\d+|-)'
  - {timestamp: {field: ts, format: "%d/%b/%Y:%H:%M:%S %z"}, on_error: keep}
  - {convert: {status: int, bytes: int}, on_error: keep}
  - drop_if: {path: {matches: "^/healthz"}}
record: {topic: TOPIC, key: "{client}", timestamp: event, headers: {host: "{@host}"}}
errors: {tolerance: all, dlq: {topic: DLQ}}
tests:
  - input: '10.0.0.1 - - [21/Nov/2026:05:00:00 +0000] "GET /a HTTP/1.1" 200 512 "-" "curl/8"'
    expect: [{key: 10.0.0.1, value: {status: 200, path: /a}}]
"""
PAYMENTS = r"""
name: payments
renamed_from: [pay]
source:
  type: log_file
  include: [LOGS/payments_*/*/*.log]
  multiline: {preset: java, timeout: 3s}
  line: {max_bytes: 2MiB, on_too_long: truncate}
transforms:
  - cri: {}
  - {json: {}, on_error: keep}
  - mask: {card: '\b\d{12}(\d{4})\b'}
  - sql: {query: "SELECT *, upper(level) AS level_uc FROM records WHERE level <> 'DEBUG'", schema: "SCHEMA"}
record: {topic: "pay.{level_uc}", key: "{order_id}", timestamp: event}
converters: {value: {type: avro, subject: pay-value}, schema_registry: {url: "REGISTRY"}}
delivery: {guarantee: at_least_once}
kafka:
  bootstrap_servers: [BROKER]
  security: {protocol: SASL_SSL, mechanism: SCRAM-SHA-512, username: copycat, password: "${cred:kafka_password}", ca_file: CA}
  client: {compression.type: zstd}
"""
ORDERS = """
name: orders-csv
source:
  type: spool_dir
  dir: IN
  pattern: "orders-*.csv*"
  ready: {min_age: 1s, done_file: "{name}.done"}
  format: {type: csv, header: true, delimiter: ";", types: {qty: int, price: decimal}}
  cleanup: {policy: move_by_date, to: DONE, failed_to: FAILED, retain: 14d}
record: {topic: TOPIC, key: "{order_id}", headers: {file: "{@file.name}", row: "{@record.number}"}}
delivery: {guarantee: at_least_once}
errors: {tolerance: all, dlq: {topic: DLQ}}
"""
PAY = {
    "type": "record", "name": "Payment",
    "fields": [{"name": name, "type": ["null", "string"], "default": None} for name in ("level", "order_id", "message", "level_uc")],
}  # fmt: skip
FIELDS = "level string, order_id string, message string"
LOGIN = Login("copycat", "a word that no log may show")
MOMENT_MS = 1_795_237_200_000
"""2026-11-21T05:00:00Z"""


def filled(text: str, **places: object) -> str:
    """The definition with its places put in."""
    for name, place in places.items():
        text = text.replace(name, str(place))
    return text


def headers(record: Consumed) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def test_nginx_access_and_orders_csv(agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path) -> None:
    logs, orders, topics = tmp_path / "nginx", tmp_path / "in", [make_topic() for _ in range(4)]
    logs.mkdir()
    orders.mkdir()
    agent.define("nginx-access", filled(NGINX, LOGS=logs, TOPIC=topics[0], DLQ=topics[1]))
    places = {"IN": orders, "DONE": tmp_path / "done", "FAILED": tmp_path / "failed"}
    agent.define("orders-csv", filled(ORDERS, TOPIC=topics[2], DLQ=topics[3], **places))
    good = '{} - - [21/Nov/2026:05:00:00 +0000] "GET {} HTTP/1.1" 200 {} "-" "curl/8"\n'
    text = (
        good.format("10.0.0.1", "/a", 512) + good.format("10.0.0.2", "/healthz", 1) + "no such line\n" + good.format("10.0.0.3", "/b", "-")
    )
    (logs / "access.log").write_text(text)
    (orders / "orders-1.csv.gz").write_bytes(gzip.compress(b"order_id;qty;price\no1;2;1.10\no2;many;2.20\no3;3;3.30\n"))
    (orders / "orders-1.csv.gz.done").touch()
    (orders / "orders-2.csv").write_text("order_id;qty;price\n")
    agent.start()
    first, second = consume(broker.bootstrap, topics[0], until=2, deadline=180)
    assert json.loads(first.value or b"") == {
        "client": "10.0.0.1", "user": "-", "ts": "2026-11-21T05:00:00+00:00", "method": "GET", "path": "/a", "status": 200, "bytes": 512,
    } | {"ts": json.loads(first.value or b"")["ts"]}  # fmt: skip
    assert (first.key, first.timestamp_ms) == (b"10.0.0.1", MOMENT_MS)
    assert headers(first)["host"]
    assert json.loads(second.value or b"")["bytes"] == "-", "on_error: keep leaves what is no number, and changes what is one"
    assert json.loads(second.value or b"")["status"] == 200
    (letter,) = consume(broker.bootstrap, topics[1], until=1)
    assert letter.value == b"no such line"
    rows = consume(broker.bootstrap, topics[2], until=2, deadline=60)
    assert [(record.key, json.loads(record.value or b"")) for record in rows] == [
        (b"o1", {"order_id": "o1", "qty": 2, "price": 1.10}), (b"o3", {"order_id": "o3", "qty": 3, "price": 3.30}),
    ]  # fmt: skip
    assert [(headers(record)["file"], headers(record)["row"]) for record in rows] == [("orders-1.csv.gz", "1"), ("orders-1.csv.gz", "3")]
    (letter,) = consume(broker.bootstrap, topics[3], until=1)
    assert letter.value == b"o2;many;2.20"
    wait_until(lambda: [path.name for path in (tmp_path / "done").rglob("*.gz")] == ["orders-1.csv.gz"])
    assert (orders / "orders-2.csv").exists(), "it is not said to be done"
    agent.stop()


def pod_line(stamp: str, text: str, *, stream: str = "stdout") -> str:
    return f"2026-11-21T05:00:{stamp}Z {stream} F {text}\n"


@pytest.mark.long
@pytest.mark.timeout(180)
def test_payments(agent: AgentProcess, schema_registry: SchemaRegistry, tmp_path: Path) -> None:
    credentials, pods, broker_dir = tmp_path / "credentials", tmp_path / "pods", tmp_path / "secured"
    for directory in (credentials, pods / "payments_api" / "app", broker_dir):
        directory.mkdir(parents=True)
    (credentials / "kafka_password").write_text(LOGIN.password + "\n")
    records = [
        {"level": "info", "order_id": "o1", "message": "paid", "card": "4111111111111111"},
        {"level": "DEBUG", "order_id": "o2", "message": "looked at"},
        {"level": "error", "order_id": "o3", "message": "refused"},
    ]
    text = pod_line("00.0", "IllegalStateException: no json") + pod_line("00.0", "\tat shop.Pay.pay(Pay.java:1)")
    text += "".join(pod_line(f"0{number}.5", json.dumps(record)) for number, record in enumerate(records))
    (pods / "payments_api/app/0.log").write_text(text)
    with SchemaRegistryClient({"url": schema_registry.url}) as client, ScramBroker(broker_dir, LOGIN) as broker:
        number = client.register_schema("pay-value", Schema(json.dumps(PAY), "AVRO"))
        broker.create_topics("pay.INFO", "pay.ERROR")
        places = {"LOGS": pods, "REGISTRY": schema_registry.url, "BROKER": broker.bootstrap, "CA": broker.ca_file, "SCHEMA": FIELDS}
        agent.define("payments", filled(PAYMENTS, **places))
        agent.start(env={"CREDENTIALS_DIRECTORY": str(credentials)})
        (paid,) = consume(broker.bootstrap, "pay.INFO", until=1, deadline=90, client=broker.client)
        (refused,) = consume(broker.bootstrap, "pay.ERROR", until=1, deadline=90, client=broker.client)
        read = AvroDeserializer(client)

        def fields(record: Consumed) -> Any:
            return read(record.value, SerializationContext("pay", MessageField.VALUE))

        assert fields(paid) == {"level": "info", "order_id": "o1", "message": "paid", "level_uc": "INFO"}
        assert fields(refused) == {"level": "error", "order_id": "o3", "message": "refused", "level_uc": "ERROR"}
        assert (paid.value or b"")[1:5] == number.to_bytes(4, "big")
        assert (paid.key, paid.timestamp_ms) == (b"o1", MOMENT_MS + 500)
        assert (refused.key, refused.timestamp_ms) == (b"o3", MOMENT_MS + 2500)
        agent.stop()
        assert [len(consume(broker.bootstrap, topic, client=broker.client)) for topic in ("pay.INFO", "pay.ERROR")] == [1, 1]
        assert LOGIN.password not in agent.log
