"""Records that cannot be delivered, records dropped on purpose, and what a record looks like in Kafka."""

from __future__ import annotations

import json
import socket
import string
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.rig.kafka import consume, create_topic, unique_topic, wait_for_markers
from tests.rig.shipping import origin
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.model import Loss
    from tests.rig.kafka import Consumed
    from tests.rig.shipping import Shipping

SMALL = {"max.message.bytes": "3000"}
BIG = bytes(range(97, 123)) * 400
"""Bigger than SMALL, smaller than the client's limit; incompressible it need not be: compression is off where it is used."""


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def position(shipping: Shipping) -> int:
    """The committed position of the only file."""
    return sum(offset.position for offset in shipping.offsets.values())


def wait_position(shipping: Shipping, wanted: int) -> None:
    wait_until(lambda: position(shipping) == wanted, message=lambda: f"{wanted}: {shipping.offsets} {shipping.status}")


def wait_counts(shipping: Shipping, **wanted: int) -> None:
    """Wait for these counts: they are told a moment after the position that they belong to is saved."""
    wait_until(lambda: wanted.items() <= asdict(shipping.status.counts).items(), message=lambda: f"{wanted}: {shipping.status}")


def wait_failed(shipping: Shipping) -> str:
    """Wait for FAILED; returns the reason."""
    wait_until(lambda: shipping.status.state == "failed", message=lambda: f"{shipping.status}")
    return shipping.status.reason


def ledger(shipping: Shipping) -> tuple[Loss, ...]:
    """The connector's entries in the loss ledger."""
    assert shipping._store is not None
    return shipping._store.losses(shipping.name, 100)


def headers(record: Consumed) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def uncompressed(**client: object) -> dict[str, object]:
    return {"client": {"compression.type": "none", **client}}


@pytest.mark.parametrize("bulk", [True, False])
def test_a_record_that_the_topic_refuses_goes_to_the_dlq_and_the_rest_flows(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path, bulk: bool
) -> None:
    shipping, dlq = make_shipping(topic=make_topic(config=SMALL)), make_topic()
    before, after = [f"before {n}" for n in range(150)], [f"after {n}" for n in range(150)]
    data = "\n".join([*before, BIG.decode(), *after, ""]).encode()
    append(logs_dir / "app", data)
    shipping.start(
        kafka=uncompressed(),
        errors={"tolerance": "all", "dlq": {"topic": dlq}},
        record={"origin_headers": not bulk},
    )
    wait_position(shipping, len(data))
    arrived = shipping.lines()
    assert list(dict.fromkeys(arrived)) == before + after
    (letter,) = consume(shipping.bootstrap, dlq)
    assert letter.value == BIG
    start = data.index(BIG)
    assert headers(letter) == {
        "copycat.connector": "app",
        "copycat.file": str(logs_dir / "app"),
        "copycat.offset": str(start),
        "copycat.end": str(start + len(BIG) + 1),
        "copycat.length": str(len(BIG) + 1),
        "copycat.record": "151",
        "copycat.host": socket.gethostname(),
        "copycat.file_key": next(iter(shipping.offsets)).key,
        "copycat.file_time": str((logs_dir / "app").stat().st_mtime_ns // 1_000_000),
        "copycat.stage": "send",
        "copycat.error": "DataError",
        "copycat.message": headers(letter)["copycat.message"],
    }
    assert "size" in headers(letter)["copycat.message"].lower()
    wait_counts(shipping, read=301, acknowledged=300, dead_lettered=1)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_records_of_one_batch_whose_times_kafka_refuses_go_to_the_dlq_and_their_neighbours_arrive(
    shipping: Shipping, make_topic: Callable[..., str], logs_dir: Path, guarantee: str
) -> None:
    dlq, bad = make_topic(), {2, 4, 5, 60}
    lines = [json.dumps({"i": i, "ts": f"{2999 if i in bad else 2026}-01-01T00:00:00Z"}) for i in range(100)]
    data = "".join(f"{line}\n" for line in lines).encode()
    append(logs_dir / "app", data)
    steps = [{"json": {}}, {"timestamp": {"field": "ts", "format": "iso8601"}}]
    shipping.start(
        transforms=steps,
        record={"timestamp": "event"},
        errors={"tolerance": "all", "dlq": {"topic": dlq}},
        delivery={"guarantee": guarantee},
    )
    wait_position(shipping, len(data))
    arrived = [json.loads(line)["i"] for line in shipping.lines()]
    assert sorted(arrived) == [i for i in range(100) if i not in bad]
    wait_for_markers(shipping.bootstrap, dlq)
    letters = [one for one in consume(shipping.bootstrap, dlq, "read_committed") if "copycat.message" in headers(one)]
    assert [json.loads(one.value or b"")["i"] for one in letters] == sorted(bad)
    for letter in letters:
        assert "PID" not in headers(letter)["copycat.message"]


def test_a_record_that_the_topic_refuses_stops_the_connector_just_before_it(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path
) -> None:
    shipping = make_shipping(topic=make_topic(config=SMALL))
    append(logs_dir / "app", b"one\ntwo\n" + BIG + b"\nthree\n")
    shipping.start(kafka=uncompressed())
    reason = wait_failed(shipping)
    assert "bytes 8 to 10409" in reason
    assert "max.message.bytes" in reason or "tolerance" in reason
    assert BIG[:26].decode() not in reason
    assert position(shipping) == 8
    shipping.stop()
    assert shipping.lines() == ["one", "two"]


def test_a_record_over_the_clients_limit_is_dead_lettered_without_its_bytes_where_they_do_not_fit(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path
) -> None:
    shipping, dlq = make_shipping(), make_topic()
    append(logs_dir / "app", b"one\n" + BIG + b"\nthree\n")
    shipping.start(kafka={"client": {"message.max.bytes": 2000, "batch.size": 2000}}, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    wait_position(shipping, 10 + len(BIG) + 1)
    assert shipping.lines() == ["one", "three"]
    (letter,) = consume(shipping.bootstrap, dlq)
    assert letter.value is None
    assert headers(letter)["copycat.raw"].startswith("omitted")
    assert headers(letter)["copycat.length"] == str(len(BIG) + 1)
    wait_counts(shipping, acknowledged=2, dead_lettered=1)


def test_without_a_dlq_a_refused_record_is_counted_and_passed(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"one\n" + BIG + b"\nthree\n")
    shipping.start(kafka={"client": {"message.max.bytes": 2000, "batch.size": 2000}}, errors={"tolerance": "all"})
    assert shipping.lines(until=2) == ["one", "three"]
    wait_position(shipping, 10 + len(BIG) + 1)
    wait_counts(shipping, acknowledged=2, rejected=1)


def test_a_dlq_that_refuses_even_the_empty_letter_stops_the_connector_before_the_record(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path
) -> None:
    shipping, dlq = make_shipping(), make_topic(config={"max.message.bytes": "50"})
    append(logs_dir / "app", b"one\n" + b"x" * 20 + b"\n")
    shipping.start(source={"line": {"max_bytes": "10B"}}, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    assert dlq in wait_failed(shipping)
    assert position(shipping) == 4


def test_with_tolerance_none_a_long_line_stops_the_connector_just_before_it(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"one\n" + b"secret-word-" * 3 + b"\n")
    shipping.start(source={"line": {"max_bytes": "10B"}})
    reason = wait_failed(shipping)
    assert "bytes 4 to 41" in reason
    assert "line.max_bytes" in reason
    assert "secret" not in reason
    assert position(shipping) == 4
    assert shipping.stop().state == "failed"
    assert shipping.lines() == ["one"]


def test_failed_says_where_why_and_what_to_do(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"one\ntwo\n")
    shipping.start(record={"key": "{missing}"})
    reason = wait_failed(shipping)
    assert f"'{logs_dir / 'app'}', bytes 0 to 4, stage record: field 'missing' is missing" in reason
    assert reason.endswith("correct the definition, or set errors.tolerance: all; then: copycat ctl restart app")


def test_a_missing_dead_letter_topic_blocks_before_the_record_until_it_is_there(
    make_shipping: Callable[..., Shipping], broker: DevBroker, logs_dir: Path
) -> None:
    shipping, dlq = make_shipping(), unique_topic()
    append(logs_dir / "app", b"one\n" + b"x" * 20 + b"\nthree\n")
    sections: dict[str, Any] = {"source": {"line": {"max_bytes": "10B"}}, "errors": {"tolerance": "all", "dlq": {"topic": dlq}}}
    shipping.start(**sections)
    wait_until(lambda: shipping.status.state == "blocked", message=lambda: f"{shipping.status}")
    assert f"topic {dlq} does not exist" in shipping.status.reason
    assert position(shipping) == 4
    create_topic(broker.bootstrap, dlq)
    shipping.stop()
    shipping.start(**sections)  # it would go on by itself too, a little later
    wait_position(shipping, 31)
    assert [letter.value for letter in consume(shipping.bootstrap, dlq)] == [b"x" * 10]
    assert list(dict.fromkeys(shipping.lines())) == ["one", "three"]


def test_a_dead_letter_without_raw_bytes_says_so_and_its_bytes_are_in_the_ledger(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path
) -> None:
    shipping, dlq = make_shipping(), make_topic()
    append(logs_dir / "app", b"one\ntwo\n")
    shipping.start(record={"key": "{missing}"}, errors={"tolerance": "all", "dlq": {"topic": dlq, "include_raw": False}})
    wait_position(shipping, 8)
    letters = consume(shipping.bootstrap, dlq)
    assert [letter.value for letter in letters] == [None, None]
    assert {headers(letter)["copycat.raw"] for letter in letters} == {"omitted: errors.dlq.include_raw is false"}
    (loss,) = ledger(shipping)
    assert (loss.start, loss.end, loss.size_bytes, loss.records, loss.reason) == (0, 8, 8, 2, "rejected")


def test_what_is_lost_is_in_the_ledger_once_however_often_the_agent_starts(shipping: Shipping, logs_dir: Path) -> None:
    source = {"line": {"max_bytes": "10B", "on_too_long": "drop"}}
    append(logs_dir / "app", b"one\n" + b"x" * 20 + b"\n")
    shipping.start(source=source, errors={"tolerance": "all"})
    wait_position(shipping, 25)
    shipping.stop()
    append(logs_dir / "app", b"two\n" + b"y" * 30 + b"\n")
    shipping.start(source=source, errors={"tolerance": "all"})
    wait_position(shipping, 60)
    found = sorted((loss.start, loss.size_bytes, loss.records, loss.reason, loss.path) for loss in ledger(shipping))
    assert found == [(4, 21, 1, "too_long", str(logs_dir / "app")), (29, 31, 1, "too_long", str(logs_dir / "app"))]


def test_a_failed_connector_leaves_the_others_alone(make_shipping: Callable[..., Shipping], logs_dir: Path) -> None:
    bad, good = make_shipping("bad"), make_shipping("good")
    append(logs_dir / "app", b"x" * 20 + b"\n")
    bad.start(source={"line": {"max_bytes": "10B"}})
    good.start()
    wait_failed(bad)
    append(logs_dir / "app", b"more\n")
    assert good.lines(until=2) == ["x" * 20, "more"]
    assert good.status.state == "running"


def test_retry_timeout_ends_in_failed_with_the_cause(make_shipping: Callable[..., Shipping], logs_dir: Path) -> None:
    shipping = make_shipping(topic=unique_topic())
    append(logs_dir / "app", b"a\n")
    shipping.start(errors={"retry_timeout": "0s"})
    reason = wait_failed(shipping)
    assert shipping.topic in reason
    assert position(shipping) == 0


def test_dropped_records_move_the_offset(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"keep 1\ndrop 2\nkeep 3\ndrop 4\ndrop 5\n")
    shipping.start(transforms=[{"drop_if": {"message": {"matches": "^drop"}}}])
    wait_position(shipping, 35)
    assert shipping.lines() == ["keep 1", "keep 3"]
    wait_counts(shipping, read=5, acknowledged=2, dropped=3)


def test_a_file_of_dropped_records_only_is_not_read_again(shipping: Shipping, logs_dir: Path) -> None:
    transforms = [{"drop_if": {"message": {"matches": "^drop"}}}]
    append(logs_dir / "app", b"drop\n" * 100)
    shipping.start(transforms=transforms)
    wait_position(shipping, 500)
    shipping.stop()
    shipping.start(transforms=transforms)
    append(logs_dir / "app", b"keep\n")
    assert shipping.lines(until=1) == ["keep"]
    wait_position(shipping, 505)
    wait_counts(shipping, read=1)


@pytest.mark.parametrize(("partition", "numbers"), [("key", 1), ("file", 1), (2, 1)])
def test_partition_keeps_a_file_together(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path, partition: str | int, numbers: int
) -> None:
    shipping, names = make_shipping(topic=make_topic(3)), string.ascii_lowercase  # so many are not in one partition by chance
    for name in names:
        append(logs_dir / name, b"x\n" * 5)
    shipping.start(record={"partition": partition, "key": "{@file.path}"})
    records = shipping.records(until=5 * len(names))
    by_file = {name: {record.partition for record in records if origin(record)[0] == name} for name in names}
    assert {len(found) for found in by_file.values()} == {numbers}
    assert set.union(*by_file.values()) == {2} if partition == 2 else len(set.union(*by_file.values())) > 1


def test_partition_sticky_ignores_the_key_and_spreads_runs(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path
) -> None:
    shipping = make_shipping(topic=make_topic(3))
    shipping.start(record={"partition": "sticky", "key": "same"})
    records: list[Consumed] = []

    def spreads() -> bool:
        """Each process counts its runs, and Spark says which process has the next one."""
        append(logs_dir / "app", b"x\n")
        records[:] = shipping.records(until=len(records) + 1)
        return len(records) >= 6 and len({record.partition for record in records}) > 1

    wait_until(spreads, message=lambda: f"{records}")
    assert {record.key for record in records} == {b"same"}


def test_a_partition_that_the_topic_does_not_have_blocks(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"x\n")
    shipping.start(record={"partition": 7})
    wait_until(lambda: shipping.status.state == "blocked", message=lambda: f"{shipping.status}")
    assert "partition" in shipping.status.reason.lower()
    assert position(shipping) == 0


def test_timestamp_file_is_the_files_modification_time(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"x\n")
    shipping.start(record={"timestamp": "file"})
    (record,) = shipping.records(until=1)
    assert record.timestamp_ms == (logs_dir / "app").stat().st_mtime_ns // 1_000_000


def test_timestamp_read_is_the_time_of_sending(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"x\n")
    written_ms = (logs_dir / "app").stat().st_mtime_ns // 1_000_000
    shipping.start()
    (record,) = shipping.records(until=1)
    assert record.timestamp_ms is not None
    assert record.timestamp_ms >= written_ms


def test_headers_and_key_are_rendered_for_each_record(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"one\ntwo\n")
    record = {"key": "{@file.name}:{@offset}", "headers": {"fixed": 7, "name": "{@file.name}", "number": "{@record.number}"}}
    shipping.start(record={**record, "origin_headers": False})
    one, two = shipping.records(until=2)
    assert (one.key, two.key) == (b"app:0", b"app:4")
    assert [headers(record) for record in (one, two)] == [
        {"fixed": "7", "name": "app", "number": "1"},
        {"fixed": "7", "name": "app", "number": "2"},
    ]


def test_a_file_name_that_is_not_utf8_is_shipped_under_a_readable_name(shipping: Shipping, logs_dir: Path) -> None:
    with open(bytes(logs_dir) + b"/caf\xe9.log", "ab") as file:  # noqa: PTH123 - the name is bytes
        file.write(b"x\n")
    shipping.start(record={"key": "{@file.name}", "headers": {"name": "{@file.name}"}})
    (record,) = shipping.records(until=1)
    assert record.key == rb"caf\xe9.log"
    assert headers(record)["name"] == r"caf\xe9.log"
    assert headers(record)["copycat.file"].endswith(r"/caf\xe9.log")


@pytest.mark.parametrize(("converter", "expected"), [
    (None, b"gr\xfc\xdfe"), ("bytes", b"gr\xfc\xdfe"), ("string", "gr��e".encode()), ("json", '{"message":"gr��e"}'.encode()),
])  # fmt: skip
def test_converters_make_the_value(shipping: Shipping, logs_dir: Path, converter: str | None, expected: bytes) -> None:
    append(logs_dir / "app", b"gr\xfc\xdfe\n")
    shipping.start(converters={"value": converter} if converter else {})
    (record,) = shipping.records(until=1)
    assert record.value == expected
    if converter == "json":
        json.loads(expected)


def test_a_run_to_the_end_sends_the_unfinished_last_line_flagged_and_stops(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"one\nunfinished")
    shipping.start(until_idle=True)
    shipping.wait_idle()
    one, last = shipping.records()
    assert (one.value, last.value) == (b"one", b"unfinished")
    assert "copycat.partial" not in headers(one)
    assert headers(last)["copycat.partial"] == "true"
    assert shipping.stop().state == "stopped"
