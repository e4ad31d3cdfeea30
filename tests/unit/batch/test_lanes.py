"""A batch as one transaction, on a real broker: what is committed together, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException

from copycat_agent import failpoints
from copycat_agent.delivery.exactly_once import task as lanes
from copycat_agent.dev_broker import free_port
from copycat_agent.errors import BlockedError, FencedError, RetriableError
from copycat_agent.executor import run_batch
from copycat_agent.model import Counts, OffsetRange, OffsetsPartition
from copycat_agent.producer import ProducerPool, task_memory
from copycat_agent.producer.kafka_errors import translate
from copycat_agent.producer.lane_producer import LaneProducer
from copycat_agent.producer.transactional import KafkaSteps
from tests.rig.kafka import create_topic, unique_topic, values
from tests.unit.batch.lanes import OneLane, committed, seen
from tests.unit.batch.rig import after, append, batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.model import SplitResult
    from tests.conftest import ProxiedBroker


@pytest.fixture
def lane(broker: DevBroker, make_topic: Callable[..., str]) -> OneLane:
    return OneLane(broker.bootstrap, OffsetsPartition(make_topic(config={"cleanup.policy": "compact"}), 0))


def test_records_positions_and_head_are_committed_together(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, lane: OneLane
) -> None:
    split = split_of(write(tmp_path / "f", b"one", b"two"))
    results = run_batch(lane.batch(definition(broker.bootstrap, topic), split), producers, never)
    outcome = lane.heard(results)
    assert (outcome.state, results[0].error, outcome.why) == ("committed", None, "")
    assert (results[0].offset.position, results[0].counts.acknowledged) == (8, 2)
    assert committed(broker.bootstrap, topic) == [b"one", b"two"]
    found = lane.found()
    assert found.heads[0][:2] == (2, "n")
    assert found.heads[0].offset >= outcome.head.offset >= 0
    (position,) = found.positions
    assert (position.partition, position.lane, position.seq, position.offset) == (split.partition, 0, 2, results[0].offset)
    assert position.counts == results[0].counts


def test_batches_go_on_from_each_other_and_nothing_is_there_twice(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, lane: OneLane
) -> None:
    connector, path = definition(broker.bootstrap, topic, drop="no"), tmp_path / "f"
    path.write_bytes(b"")
    split = split_of(path)
    for number in range(6):
        append(path, b"%d\n" % number if number != 3 else b"no\n")
        for _ in range(1 + number % 2):  # now and then there is nothing to read
            results = run_batch(lane.batch(connector, split), producers, never)
            lane.heard(results)
            split = replace(after(split, results[0].offset), end=path.stat().st_size)
    assert committed(broker.bootstrap, topic) == [b"0", b"1", b"2", b"4", b"5"]
    assert lane.head.seq == 7
    assert [position.offset for position in lane.found().positions][-1] == split.offset


def test_an_error_is_told_without_its_frames_which_hold_clients(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, lane: OneLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = split_of(write(tmp_path / "f", b"one"))
    monkeypatch.setattr(KafkaSteps, "end", unread)
    of_lane = run_batch(lane.batch(definition(broker.bootstrap, topic), split), producers, never)
    of_task = run_batch(batch_of(definition(f"127.0.0.1:{free_port()}", topic), split), producers, lambda: True)
    for (result,) in (of_lane, of_task):
        assert isinstance(result.error, RetriableError)
        assert (result.error.__traceback__, result.error.__context__) == (None, None)


def unread(*_: object) -> int:
    """The end of the topic of positions is not to be had."""
    failure = translate(KafkaError(KafkaError._TRANSPORT), "asking")
    failure.__context__ = KafkaException()
    raise failure


def test_an_undone_batch_leaves_nothing_for_readers_of_what_is_committed(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, lane: OneLane
) -> None:
    connector, split = definition(broker.bootstrap, topic), split_of(write(tmp_path / "f", b"one", b"two"))
    with failpoints.armed("sending:error"):
        assert lane.heard(run_batch(lane.batch(connector, split), producers, never)).state == "undone"
    assert lane.heard(run_batch(lane.batch(connector, split), producers, never)).state == "committed"
    assert committed(broker.bootstrap, topic) == [b"one", b"two"]
    assert values(broker.bootstrap, topic) == [b"one", b"two", b"one", b"two"]
    assert [position.seq for position in lane.found().positions] == [lane.head.seq]


def test_a_batch_that_was_planned_before_the_lanes_were_opened_anew_commits_nothing(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, lane: OneLane
) -> None:
    connector, split = definition(broker.bootstrap, topic), split_of(write(tmp_path / "f", b"one"))
    assert lane.heard(run_batch(lane.batch(connector, split), producers, never)).state == "committed"
    late = lane.batch(connector, split)
    lane.open()
    (result,) = run_batch(late, producers, never)
    assert result.outcome is not None
    assert (result.outcome.state, type(result.error), result.offset) == ("unknown", FencedError, split.offset)
    assert lane.heard(run_batch(lane.batch(connector, split), producers, never)).state == "committed"
    assert committed(broker.bootstrap, topic) == [b"one", b"one"]


def test_a_process_that_takes_over_makes_what_another_one_sends_meanwhile_void(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, lane: OneLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector, split = definition(broker.bootstrap, topic), split_of(write(tmp_path / "f", b"one"))
    other, batch = ProducerPool(), lane.batch(connector, split)
    flush = LaneProducer.flush
    theirs: list[SplitResult] = []
    begun: list[int] = []

    def overtaken(self: LaneProducer) -> None:
        flush(self)
        if not begun:
            begun.append(1)
            theirs.extend(run_batch(batch, other, never))

    monkeypatch.setattr(LaneProducer, "flush", overtaken)
    (mine,) = run_batch(batch, producers, never)
    assert mine.outcome is not None
    assert (mine.outcome.state, mine.offset) == ("unknown", split.offset)
    assert lane.heard(tuple(theirs)).state == "committed"
    assert committed(broker.bootstrap, topic) == [b"one"]
    other.close()


def test_records_that_kafka_refuses_become_dead_letters_in_the_transaction_and_the_order_stays(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, lane: OneLane
) -> None:
    topic, dlq = make_topic(config={"max.message.bytes": "20000"}), make_topic()
    lines = [b"%04d" % number + b"x" * 100 for number in range(400)]
    lines[7] = lines[333] = b"y" * 30_000
    errors = {"tolerance": "all", "dlq": {"topic": dlq}}
    connector = definition(broker.bootstrap, topic, errors=errors, client={"compression.type": "none"})
    split = split_of(write(tmp_path / "f", *lines))
    counts, states = Counts(), []
    while split.offset.position < split.end:
        results = run_batch(lane.batch(connector, split), producers, never)
        states.append(lane.heard(results).state)
        assert results[0].error is None
        counts += results[0].counts
        split = after(split, results[0].offset)
    assert set(states) == {"committed"}
    assert (counts.acknowledged, counts.dead_lettered, counts.read) == (398, 2, 400)
    assert committed(broker.bootstrap, topic) == [line for line in lines if len(line) < 200]
    assert committed(broker.bootstrap, dlq) == [lines[7], lines[333]]


def test_where_records_came_to_lie_is_told_of_what_is_committed_only(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, lane: OneLane
) -> None:
    connector = definition(broker.bootstrap, topic)
    one, two = split_of(write(tmp_path / "1", b"a", b"b")), split_of(write(tmp_path / "2", b"c"))
    results = run_batch(replace(lane.batch(connector, one, two), tracked=True), producers, never)
    assert lane.heard(results).state == "committed"
    assert [result.delivered for result in results] == [(OffsetRange(topic, 0, 0, 1),), (OffsetRange(topic, 0, 2, 2),)]
    assert [record.offset for record in seen(broker.bootstrap, topic)] == [0, 1, 2]


def test_a_topic_that_is_missing_blocks_and_commits_nothing(
    producers: ProducerPool, broker: DevBroker, tmp_path: Path, lane: OneLane
) -> None:
    results = run_batch(lane.batch(definition(broker.bootstrap, "missing"), split_of(write(tmp_path / "f", b"a"))), producers, never)
    assert lane.heard(results).state == "idle"
    assert isinstance(results[0].error, BlockedError)


def test_a_line_that_breaks_while_records_are_under_way_ends_as_undone_and_the_next_batch_sends_them_once(
    producers: ProducerPool, proxied_broker: ProxiedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = proxied_broker.bootstrap
    topic, place = create_topic(bootstrap, unique_topic()), create_topic(bootstrap, unique_topic(), config={"cleanup.policy": "compact"})
    lane = OneLane(bootstrap, OffsetsPartition(place, 0))
    connector, split = definition(bootstrap, topic), split_of(write(tmp_path / "f", b"one", b"two"))
    flush = LaneProducer.flush
    calls: list[int] = []

    def breaks(self: LaneProducer) -> None:
        if not calls:
            proxied_broker.proxy.blackhole()
        calls.append(1)
        flush(self)

    monkeypatch.setattr(lanes, "STOP_PART", 0.0)  # as if the transaction had been open for long
    monkeypatch.setattr(task_memory, "SETTLE_SECONDS", 0.3)
    with monkeypatch.context() as context:
        context.setattr(LaneProducer, "flush", breaks)
        results = run_batch(lane.batch(connector, split), producers, never)
        assert lane.heard(results).state == "undone"
        assert isinstance(results[0].error, RetriableError)
    proxied_broker.proxy.forward()
    monkeypatch.undo()
    states = []
    while "committed" not in states:
        states.append(lane.heard(run_batch(lane.batch(connector, split), producers, never)).state)
        assert len(states) < 20
    assert set(states) <= {"undone", "committed"}
    assert committed(bootstrap, topic) == [b"one", b"two"]
