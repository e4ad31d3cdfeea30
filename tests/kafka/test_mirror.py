"""Topics as a connector of the real worker, on a real broker: what a read_committed consumer sees of the copy, and what is told."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from copycat_agent.dlq import Replay
from copycat_agent.errors import BusyError
from copycat_agent.sources.kafka import deleted_topics, kafka_source
from tests.kafka.conftest import Sent, Writer, delete_records, numbered, of, send, whole
from tests.rig.kafka import consume, create_topic, delete_topic, unique_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from tests.kafka.conftest import Mirror


def with_each(quick: str) -> pytest.MarkDecorator:
    """This guarantee in every run of the tests, the other one in the long lane."""
    each = [pytest.param(one, marks=() if one == quick else pytest.mark.long) for one in ("at_least_once", "exactly_once")]
    return pytest.mark.parametrize("guarantee", each)


ODD = [
    Sent(b"", b"", (), 1_700_000_000_000),
    Sent(None, b"deleted", (("why", b"gone"),), 1_700_000_000_001),
    Sent(None, None, (), 1_700_000_000_002, 1),
    Sent(b"value", None, (("a", None), ("a", b""), ("b", b"\xff\x00"), ("a", b"again"), ("", b"no name")), 1_700_000_000_003, 1),
    Sent(b"\x00" * 1_000_000, b"large", (), 1_700_000_000_004, 2),
    Sent("ü\r\n{}".encode(), b"\xff", (("ü", b"x"),), 1_700_000_000_005, 2),
    Sent(b"text\n", b"key", (), 1),
    Sent(b"before 1970", None, (), -86_400_000),
]


@with_each("exactly_once")
def test_a_copy_is_the_same_record_for_record(guarantee: str, shipping: Mirror) -> None:
    shipping.make()
    shipping.send([*ODD, *numbered(0, 500, 0), *numbered(500, 500, 1), *ODD, *numbered(1000, 500, 2)])
    shipping.mirror(guarantee)
    assert shipping.is_same(1500 + 2 * len(ODD))
    shipping.stop()
    shipping.send([*ODD, *numbered(1500, 10)])
    shipping.mirror(guarantee)
    assert shipping.is_same(1510 + 3 * len(ODD))
    shipping.wait_caught_up()
    shipping.stop()
    assert shipping.is_same(1510 + 3 * len(ODD)), "nothing twice"


def test_a_record_without_a_time_gets_that_of_sending(shipping: Mirror) -> None:
    shipping.make(1)
    shipping.send([Sent(b"a", timestamp_ms=-1), Sent(b"b", timestamp_ms=1_700_000_000_000)])
    assert [one.timestamp_ms for one in shipping.original()] == [-1, 1_700_000_000_000]
    before_ms = time.time() * 1000
    shipping.mirror()
    a, b = shipping.arrived(2)
    assert (a.value, b.value, b.timestamp_ms) == (b"a", b"b", 1_700_000_000_000)
    assert a.timestamp_ms is not None
    assert a.timestamp_ms >= before_ms - 1


@with_each("at_least_once")
def test_transactions_of_others_are_copied_once_they_are_committed(guarantee: str, shipping: Mirror) -> None:
    topic = shipping.make(1)
    writer = Writer(shipping.bootstrap, topic)
    writer.commit(numbered(0, 30))
    writer.abort(numbered(30, 30))
    writer.begin(numbered(60, 30))
    shipping.send(numbered(90, 10))
    shipping.mirror(guarantee)
    assert len(shipping.arrived(30)) == 30
    wait_until(lambda: shipping.status.lag.records == 0, 30, lambda: f"{shipping.status}")
    assert len(shipping.arrived()) == 30, "what an open transaction holds back"
    writer.commit()
    assert shipping.is_same(70)
    writer.abort(numbered(100, 10))
    wait_until(lambda: _positions(shipping) == [114], 30, lambda: f"{shipping.offsets}")
    assert shipping.is_same(70)
    assert [one.position for one in shipping.offsets.values()] == [114], "shown is the offset"
    # Positions are saved before the lag is told.
    wait_until(lambda: (shipping.status.lag.bytes, shipping.status.lag.files) == (0, 0), 30, lambda: f"{shipping.status}")


def _positions(shipping: Mirror) -> list[int]:
    return sorted(one.position for partition, one in shipping.offsets.items() if "/" in partition.key)


@with_each("exactly_once")
def test_random_transactions_and_compaction_are_copied_while_they_are_written(guarantee: str, shipping: Mirror, rng: random.Random) -> None:
    topic = shipping.make(3)
    writers = [Writer(shipping.bootstrap, topic) for _ in range(2)]
    shipping.mirror(guarantee, delivery={"max_batch_bytes": "64KiB"})
    totals = [0, 0]

    def write(number: int, dice: random.Random) -> None:
        writer = writers[number]
        for burst in range(25):
            records = [one._replace(partition=dice.randrange(3)) for one in numbered(burst * 1000, dice.randrange(1, 120))]
            writer.begin(records)
            time.sleep(dice.choice((0.0, 0.02, 0.1)))
            if dice.random() < 0.4:
                writer.abort()
            else:
                writer.commit()
                totals[number] += len(records)

    writing = [threading.Thread(target=write, args=(one, random.Random(rng.random()))) for one in range(2)]
    for one in writing:
        one.start()
    for one in writing:
        one.join()
    assert shipping.is_same(sum(totals))
    shipping.wait_caught_up()
    shipping.stop()
    assert shipping.is_same(sum(totals))


@with_each("at_least_once")
def test_what_retention_took_is_in_the_ledger_once(guarantee: str, shipping: Mirror) -> None:
    topic = shipping.make(1)
    shipping.send(numbered(0, 20))
    shipping.mirror(guarantee)
    assert len(shipping.arrived(20)) == 20
    wait_until(lambda: _positions(shipping) == [20], 30)
    shipping.stop()
    shipping.send(numbered(20, 20))
    delete_records(shipping.bootstrap, topic, 33)
    shipping.mirror(guarantee)
    found = shipping.arrived(27)
    assert [one.value for one in found] == [b"value %d" % one for one in [*range(20), *range(33, 40)]]
    wait_until(lambda: len(shipping.losses) == 1, 30, "the ledger")
    (loss,) = shipping.losses
    assert (loss.reason, loss.records, loss.start) == ("destroyed", 13, 20)
    assert f"13 records were deleted from {topic}/0" in loss.detail
    shipping.stop()
    shipping.send(numbered(40, 5))
    delete_records(shipping.bootstrap, topic, 45)
    shipping.mirror(guarantee)
    wait_until(lambda: _positions(shipping) == [45], 30, lambda: f"{shipping.offsets}")
    assert [loss.records for loss in shipping.losses] == [5, 13] or [loss.records for loss in shipping.losses] == [13, 5]
    shipping.send(numbered(45, 1))
    assert len(shipping.arrived(28)) == 28
    assert len(shipping.losses) == 2


def test_a_topic_made_anew_ends_the_connector_with_words(shipping: Mirror) -> None:
    topic = shipping.make(1)
    shipping.send(numbered(0, 5))
    shipping.mirror()
    assert len(shipping.arrived(5)) == 5
    wait_until(lambda: _positions(shipping) == [5], 30)
    delete_topic(shipping.bootstrap, topic)
    wait_until(lambda: "is not there" in _troubles(shipping), 60, lambda: f"{shipping.status}")
    create_topic(shipping.bootstrap, topic)
    wait_until(lambda: shipping.status.state == "failed", 60, lambda: f"{shipping.status}")
    assert "it was deleted and made again" in shipping.status.reason


@with_each("exactly_once")
def test_positions_of_deleted_topics_are_not_kept_for_ever(guarantee: str, shipping: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_topics, "FORGET_SECONDS", 1.0)
    other = create_topic(shipping.bootstrap, f"{shipping.make(1)}-other")
    for number, topic in enumerate((shipping.origin, other)):
        send(shipping.bootstrap, topic, numbered(number * 5, 5))
    shipping.mirror(guarantee, source={"topics": [f"{shipping.origin}.*"]})
    assert len(shipping.arrived(10)) == 10
    wait_until(lambda: _positions(shipping) == [5, 5], 30)
    delete_topic(shipping.bootstrap, other)
    wait_until(lambda: f"{other}/0" not in {one.key for one in shipping.offsets}, 30, lambda: f"{shipping.offsets}")
    create_topic(shipping.bootstrap, other)
    send(shipping.bootstrap, other, numbered(10, 5))
    assert len(shipping.arrived(15)) == 15
    assert shipping.status.state == "running"


def _troubles(shipping: Mirror) -> str:
    worker = shipping._worker
    assert worker is not None

    def answer() -> list[str]:
        with contextlib.suppress(BusyError):
            return [" ".join(one.why for one in worker.files(shipping.name))]
        return []

    return wait_until(answer, 60, "the connector is busy")[0]


def test_a_missing_topic_is_told_and_read_once_it_is_there(shipping: Mirror) -> None:
    shipping.make(1)
    missing = unique_topic("missing")
    shipping.send(numbered(0, 5))
    shipping.mirror(source={"topics": [shipping.origin, missing]})
    assert len(shipping.arrived(5)) == 5
    wait_until(lambda: f"topic {missing} is not there" in _troubles(shipping) and shipping.status.state == "running", 60)
    create_topic(shipping.bootstrap, missing)
    send(shipping.bootstrap, missing, numbered(5, 5))
    assert len(shipping.arrived(10)) == 10
    wait_until(lambda: not _troubles(shipping).strip(), 30)


def test_a_topic_that_is_deleted_holds_up_no_other(shipping: Mirror) -> None:
    shipping.make(1)
    other = create_topic(shipping.bootstrap, unique_topic())
    send(shipping.bootstrap, other, numbered(0, 5))
    shipping.mirror(source={"topics": [shipping.origin, other], "discover_interval": "1h"})
    assert len(shipping.arrived(5)) == 5
    delete_topic(shipping.bootstrap, other)
    shipping.send(numbered(5, 5))
    assert len(shipping.arrived(10)) == 10
    wait_until(lambda: f"topic {other} is not there" in _troubles(shipping), 60, lambda: _troubles(shipping))


@with_each("exactly_once")
def test_topics_go_to_topics_of_their_own_as_a_template_says(guarantee: str, shipping: Mirror) -> None:
    begin = unique_topic("p")
    names = [create_topic(shipping.bootstrap, f"{begin}.{one}", 2) for one in "ab"]
    for one in names:
        send(shipping.bootstrap, one, [*numbered(0, 20), *numbered(20, 20, 1)])
    shipping.mirror(
        guarantee, source={"topics": [f"{begin}.*"]}, record={"topic": "copy.{@topic}"}, kafka={"create_topics": {"partitions": 2}}
    )
    for one in names:
        found = consume(shipping.bootstrap, f"copy.{one}", "read_committed", 40, 90.0)
        assert whole(found) == whole(consume(shipping.bootstrap, one))


def test_a_run_to_the_end_ends_while_a_producer_goes_on(shipping: Mirror) -> None:
    shipping.make(2)
    shipping.send([*numbered(0, 2000), *numbered(2000, 2000, 1)])
    stop, written = threading.Event(), [4000]

    def write() -> None:
        while not stop.is_set():
            shipping.send(numbered(written[0], 50, written[0] // 50 % 2))
            written[0] += 50

    writing = threading.Thread(target=write)
    writing.start()
    try:
        shipping.mirror(until_idle=True)
        shipping.wait_idle()
        at_its_end = written[0]
        wait_until(lambda: written[0] > at_its_end + 50, 60, "the producer goes on")
    finally:
        stop.set()
        writing.join()
    found, original = whole(shipping.arrived()), whole(shipping.original())
    assert all(found[one] == original[one][: len(found[one])] for one in (0, 1))
    assert 4000 <= sum(map(len, found.values())) < sum(map(len, original.values()))


def test_a_group_knows_the_positions_for_tools_that_show_a_lag(shipping: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "COMMIT_SECONDS", 0.2)
    shipping.make(2)
    shipping.send([*numbered(0, 5), *numbered(5, 7, 1)])
    shipping.mirror()
    assert len(shipping.arrived(12)) == 12
    wait_until(lambda: _positions(shipping) == [5, 7], 30)
    wait_until(lambda: _committed(shipping, "copycat-app") == {0: 5, 1: 7}, 30)
    shipping.stop()
    shipping.send(numbered(12, 5))
    shipping.mirror(source={"group": "lag of it"})
    wait_until(lambda: _positions(shipping) == [7, 10], 30)
    wait_until(lambda: _committed(shipping, "lag of it") == {0: 10, 1: 7}, 30)


def test_a_backlog_is_known_in_records_while_it_grows(shipping: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.sources.contract_source.LAG_SECONDS", 0.3)
    shipping.make(1)
    shipping.send(numbered(0, 800))
    shipping.mirror(source={"group": "of a backlog"}, limits={"records_per_second": 20})
    wait_until(lambda: 0 < shipping.status.counts.acknowledged < 800, 30)
    shipping.send(numbered(800, 4000))
    wait_until(lambda: (shipping.status.lag.records or 0) > 900, 60, lambda: f"{shipping.status}")
    wait_until(lambda: 0 < _committed(shipping, "of a backlog").get(0, 0) < 4800, 60)
    assert shipping.status.lag.waiting_records == 0


def _committed(shipping: Mirror, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": shipping.bootstrap})
    asked = ConsumerGroupTopicPartitions(group)
    answer = admin.list_consumer_group_offsets([asked])[group].result(30)
    return {one.partition: one.offset for one in answer.topic_partitions if one.topic == shipping.origin and one.offset >= 0}


def test_a_pause_and_other_topics_go_on_where_they_were(shipping: Mirror) -> None:
    shipping.make()
    other = create_topic(shipping.bootstrap, unique_topic())
    send(shipping.bootstrap, other, numbered(100, 10))
    shipping.send(numbered(0, 10))
    shipping.mirror()
    assert len(shipping.arrived(10)) == 10
    assert shipping._worker is not None
    worker = shipping._worker
    worker.pause(shipping.name)
    wait_until(lambda: shipping.status.state == "paused", 30)
    shipping.send(numbered(10, 10))
    wait_until(lambda: shipping.status.lag.records == 10, 30, lambda: f"{shipping.status}")
    assert len(shipping.arrived()) == 10
    worker.resume(shipping.name)
    assert len(shipping.arrived(20)) == 20
    record = {"partition": "source", "origin_headers": False}
    worker.apply([shipping.definition(source=of(shipping.origin, other), record=record)], earlier={})
    assert len(shipping.arrived(30)) == 30
    worker.apply([shipping.definition(source=of(other), record=record)], earlier={})
    send(shipping.bootstrap, other, numbered(110, 1))
    assert len(shipping.arrived(31)) == 31
    shipping.send(numbered(20, 10))
    worker.apply([shipping.definition(source=of(shipping.origin), record=record)], earlier={})
    assert len(shipping.arrived(41)) == 41


def test_bad_records_are_dead_letters_that_keep_all_there_was_and_are_sent_again(shipping: Mirror) -> None:
    shipping.make(2)
    writer = Writer(shipping.bootstrap, shipping.origin)
    writer.abort(numbered(0, 5))
    bad = [
        Sent(b"{bad", b"key", (("a", None), ("copycat.file", b"its own")), 1_700_000_000_000),
        Sent(b"", None, (), 1_700_000_000_001),
        Sent(None, b"gone", (("b", b"1"),), 1_700_000_000_002),
    ]
    writer.commit([*bad, Sent(b'{"id": 1}', b"good")])
    letters = create_topic(shipping.bootstrap, unique_topic("dlq"))
    record = {"topic": shipping.topic, "headers": {"from": "{@topic}/{@partition}/{@offset}"}}
    errors: dict[str, Any] = {"tolerance": "all", "dlq": {"topic": letters}}
    shipping.mirror(transforms=[{"json": {}}], record={**record, "key": "{id}"}, errors=errors)
    found = consume(shipping.bootstrap, letters, "read_committed", 3, 90.0)
    assert [(one.value, one.key) for one in found] == [(b"{bad", b"key"), (b"", None), (None, b"gone")]
    assert [dict(one.headers)["copycat.offset"] for one in found] == [b"6", b"7", b"8"]
    assert [dict(one.headers)["copycat.end"] for one in found] == [b"7", b"8", b"9"]
    assert {dict(one.headers)["copycat.file"] for one in found} == {f"{shipping.origin}/0".encode()}
    (good,) = shipping.arrived(1)
    assert (good.key, good.headers) == (b"1", (("from", f"{shipping.origin}/0/9".encode()),))
    wait_until(lambda: _positions(shipping) == [0, 11], 30)
    assert shipping.losses == (), "letters have all there was"
    shipping.stop()
    mended_record: dict[str, Any] = {**record, "partition": "source", "origin_headers": False}
    mended = shipping.definition(source=of(shipping.origin), record=mended_record, errors=errors)
    assert Replay(mended).run().sent == 3
    again = shipping.arrived(4)[1:]
    froms = [("from", f"{shipping.origin}/0/{offset}".encode()) for offset in (6, 7, 8)]
    wanted = [(one.value, one.key, (*one.headers, each), one.timestamp_ms) for one, each in zip(bad, froms, strict=True)]
    assert whole(again) == {0: wanted}


def test_steps_and_filters_see_offsets_and_keys_and_nulls_pass_them_by(shipping: Mirror) -> None:
    shipping.make(1)
    writer = Writer(shipping.bootstrap, shipping.origin)
    writer.commit([Sent(b'{"n": 1}', b"a"), Sent(b'{"n": 2}', b"b"), Sent(None, b"c"), Sent(b'{"n": 3}', None, (("h", b"x"),))])
    writer.commit([Sent(b'{"n": 4}', b"\xff")])
    steps = [
        {"json": {}},
        {"drop_if": {"n": "2"}},
        {"set": {"o": "{@offset}", "p": "{@topic}/{@partition}"}},
        {"keep_fields": ["n", "o", "p"]},
    ]
    shipping.mirror(transforms=steps)
    found = shipping.arrived(4)
    name = f"{shipping.origin}/0"
    assert [None if one.value is None else json.loads(one.value) for one in found] == [
        {"n": 1, "o": 0, "p": name},
        None,
        {"n": 3, "o": 3, "p": name},
        {"n": 4, "o": 5, "p": name},
    ]
    assert [(one.key, one.headers) for one in found] == [(b"a", ()), (b"c", ()), (None, (("h", b"x"),)), (b"\xff", ())]
