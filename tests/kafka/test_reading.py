"""The source on real topics, without an agent: what is read, in which order, and what is told of what can be read no more."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.extending import Gone
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import partition_reading
from copycat_agent.producer.group_positions import GroupPositions
from copycat_agent.producer.topic_ranges import KnownOffsets, TopicRanges
from copycat_agent.sources.kafka import deleted_topics, kafka_source
from tests.kafka.conftest import DISCOVER_SECONDS, Reading, Sent, Writer, delete_records, numbered, options, send
from tests.rig.kafka import create_topic, delete_topic, unique_topic, wait_for_markers
from tests.rig.threads import held
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from copycat_agent.dev_broker import DevBroker


def values(first: int, count: int) -> list[bytes]:
    return [b"value %d" % one for one in range(first, first + count)]


def values_of(read: Iterable[tuple[Any, int]]) -> list[bytes | None]:
    """The values of all runs of a read."""
    return [value for run, _ in read for value in run.values]


def test_records_are_what_was_sent(broker: DevBroker, topic: str) -> None:
    sent = [
        Sent(b"plain", b"key", (), 1),
        Sent(b"", b"", (), 1_700_000_000_000),
        Sent(None, b"deleted", (("why", b"gone"),), 1_700_000_000_001),
        Sent(None, None, (), 1_700_000_000_002),
        Sent(b"value", None, (("a", None), ("a", b""), ("b", b"\xff\x00"), ("a", b"again"), ("", b"no name")), 1_700_000_000_003),
        Sent(b"\x00" * 1_000_000, b"large", (), 1_700_000_000_004),
        Sent("ü\r\n{}".encode(), b"\xff", (("ü", b"x"),), 1_700_000_000_005),
    ]
    send(broker.bootstrap, topic, sent)
    reading = Reading(options(broker.bootstrap, topic))
    assert reading.records() == sent
    assert reading.offset() == len(sent)
    assert reading.read() == []


def test_reading_goes_on_where_it_ended_in_the_middle_of_a_batch(broker: DevBroker, topic: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 1000))
    reading = Reading(options(broker.bootstrap, topic))
    found = reading.values(300)
    assert found == values(0, 300)
    assert reading.offset() == 300
    assert reading.values(1) == values(300, 1)
    assert reading.values() == values(301, 699)


def test_only_what_is_committed_is_read_and_offsets_pass_what_is_not(broker: DevBroker, topic: str) -> None:
    writer = Writer(broker.bootstrap, topic)
    writer.commit(numbered(0, 3))  # 0-2, control record 3
    writer.abort(numbered(3, 3))  # 4-6, 7
    writer.commit(numbered(6, 2))  # 8-9, 10
    writer.abort(numbered(8, 5))  # 11-15, 16
    wait_for_markers(broker.bootstrap, topic)
    reading = Reading(options(broker.bootstrap, topic))
    assert [position for _, position in reading.read()] == [1, 2, 3, 9, 10]
    assert reading.offset() == 17, "behind the last control record"
    assert reading.look() == []
    uncommitted = Reading(options(broker.bootstrap, topic, isolation="read_uncommitted"))
    assert uncommitted.values() == values(0, 13)
    assert uncommitted.offset() == 17


def test_an_open_transaction_holds_back_what_lies_behind_it_until_it_ends(broker: DevBroker, topic: str) -> None:
    writer = Writer(broker.bootstrap, topic)
    send(broker.bootstrap, topic, numbered(0, 2))
    writer.begin(numbered(2, 2))
    send(broker.bootstrap, topic, numbered(4, 2))
    reading = Reading(options(broker.bootstrap, topic))
    assert reading.values() == values(0, 2)
    assert (reading.offset(), reading.look()) == (2, [])
    writer.commit()
    wait_until(lambda: reading.look() != [], 30)
    assert reading.values() == values(2, 4)
    writer.abort(numbered(6, 2))
    wait_until(lambda: reading.look() != [], 30)
    assert (reading.values(), reading.offset()) == ([], 10)


def test_a_stretch_that_ends_within_a_transaction_that_was_aborted_later_ends(broker: DevBroker, topic: str) -> None:
    """The position is behind the stretch's last record, whatever comes next in the partition."""
    writer = Writer(broker.bootstrap, topic)
    send(broker.bootstrap, topic, numbered(0, 2))
    reading = Reading(options(broker.bootstrap, topic))
    (stretch,) = reading.look()
    writer.abort(numbered(2, 2000))
    assert values_of(reading.source.read(stretch)) == values(0, 2)


@pytest.mark.timeout(300)
def test_compaction_leaves_gaps_and_offsets_stay_as_they_are(broker: DevBroker, make_topic: Callable[..., str]) -> None:
    quick = {"min.cleanable.dirty.ratio": "0.001", "segment.ms": "100", "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100"}
    topic = make_topic(1, {"cleanup.policy": "compact", "delete.retention.ms": "100", **quick})
    reading = Reading(options(broker.bootstrap, topic))

    def offsets() -> list[int]:
        reading.positions.clear()
        return [position - 1 for _, position in reading.read()]

    deadline = time.monotonic() + 200
    while len(offsets()) == len(set(offsets())) == reading.offset() and time.monotonic() < deadline:
        send(broker.bootstrap, topic, [Sent(b"%d" % one, b"same") for one in range(50)])
        time.sleep(0.5)
    found = offsets()
    assert found == sorted(set(found))
    assert len(found) < reading.offset(), "there are gaps"
    assert reading.lost == [], "and nothing of that is lost"


def test_what_retention_deleted_is_told_with_its_count_and_reading_goes_on(broker: DevBroker, topic: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 20))
    reading = Reading(options(broker.bootstrap, topic))
    assert reading.values(5) == values(0, 5)
    delete_records(broker.bootstrap, topic, 12)
    assert reading.values() == values(12, 8)
    (lost,) = reading.lost
    assert (lost.records, lost.damaged) == (7, False)
    assert f"7 records were deleted from {topic}/0" in lost.why
    send(broker.bootstrap, topic, numbered(20, 5))
    delete_records(broker.bootstrap, topic, 25)
    assert (reading.values(), reading.offset(), reading.lost[1].records) == ([], 25, 5)
    assert reading.read() == []
    fresh = Reading(options(broker.bootstrap, topic))
    assert (fresh.values(), fresh.lost, fresh.offset()) == ([], [], 25), "who comes later has lost nothing"


def test_retention_that_overtakes_a_read_under_way_is_told(broker: DevBroker, topic: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 20))
    reading = Reading(options(broker.bootstrap, topic))
    (stretch,) = reading.look()
    delete_records(broker.bootstrap, topic, 15)
    send(broker.bootstrap, topic, numbered(20, 10))
    (lost, position), *runs = reading.source.read(stretch)
    assert (lost.records, position) == (15, 15)  # type: ignore[union-attr]
    assert [end for run, _ in runs for end in run.ends] == list(range(16, 21))  # type: ignore[union-attr]


def test_a_topic_of_a_pattern_that_is_deleted_once_it_was_read_is_not_missed(broker: DevBroker, topic: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 5))
    reading = Reading(options(broker.bootstrap, f"{topic}.*"))
    assert len(reading.read()) == 5
    assert reading.look() == []
    delete_topic(broker.bootstrap, topic)
    wait_until(lambda: _is_gone(broker, topic), 30)
    assert reading.look() == []
    assert reading.troubles == {}


def test_topics_that_were_deleted_long_ago_are_forgotten_if_all_of_them_was_read(
    broker: DevBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique_topic()
    reading = Reading(options(broker.bootstrap, f"{name}.*", start_at="end"))
    topics = [create_topic(broker.bootstrap, f"{name}-{number}") for number in range(4)]
    assert reading.look() == []
    for one in topics:
        send(broker.bootstrap, one, numbered(0, 5))
    assert len(reading.read()) == 20
    reading.look()
    _, _, unread, kept = topics
    send(broker.bootstrap, unread, numbered(5, 1))
    assert len(reading.look()) == 1
    for one in (*topics[:2], unread):
        delete_topic(broker.bootstrap, one)
    wait_until(lambda: [one for one in topics if not _is_gone(broker, one)] == [kept], 30)

    def gone() -> list[str]:
        time.sleep(DISCOVER_SECONDS)
        return [one.key for one in reading.source.look(reading.positions, to_the_end=False) if isinstance(one, Gone)]

    assert [gone(), gone()] == [[], []], "a day is not over"
    monkeypatch.setattr(deleted_topics, "FORGET_SECONDS", 0.0)
    assert sorted(gone()) == [f"{one}/0" for one in topics[:2]]
    for one in topics[:2]:
        del reading.positions[f"{one}/0"]
    assert [one for one in topics if one in str(vars(reading.source))] == topics[2:], "nothing of them takes memory"
    assert gone() == []
    create_topic(broker.bootstrap, topics[0])
    send(broker.bootstrap, topics[0], numbered(0, 3))
    assert len(reading.read()) == 3


@pytest.mark.parametrize("pattern", ["", ".*"])
def test_a_topic_that_was_made_anew_ends_with_words(broker: DevBroker, topic: str, pattern: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 5))
    reading = Reading(options(broker.bootstrap, f"{topic}{pattern}"))
    assert len(reading.read()) == 5
    send(broker.bootstrap, topic, numbered(5, 1))
    assert len(reading.look()) == 1
    delete_topic(broker.bootstrap, topic)
    wait_until(lambda: _is_gone(broker, topic), 30)
    wait_until(
        lambda: reading.look() == [] and reading.troubles == {topic: f"topic {topic} is not there"}, 60, lambda: f"{reading.troubles}"
    )
    create_topic(broker.bootstrap, topic)
    with pytest.raises(FatalError, match="deleted and made again") as raised:
        wait_until(lambda: reading.look() and False, 60, "it is not noticed")  # the broker may answer before it knows of the topic
    assert "copycat offsets reset NAME" in raised.value.hint


def test_a_topic_that_was_made_anew_between_two_looks_is_noticed_before_it_is_read(broker: DevBroker, topic: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 10))
    reading = Reading(options(broker.bootstrap, topic, discover_interval=3600.0))
    assert len(reading.read()) == 10
    delete_topic(broker.bootstrap, topic)
    wait_until(lambda: _is_gone(broker, topic), 30)
    create_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, numbered(0, 20))
    with pytest.raises(FatalError, match="deleted and made again"):
        reading.look()


def test_what_is_missing_is_told_to_a_reader(broker: DevBroker, topic: str) -> None:
    ranges = TopicRanges(KafkaOptions(bootstrap_servers=(broker.bootstrap,)), committed=True)
    (error,) = ranges.ends([(topic, 0), ("missing", 0)]).errors.values()
    ranges.close()
    assert error.hint == "create the topic, or correct source.topics"


def _is_gone(broker: DevBroker, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return topic not in admin.list_topics(timeout=60).topics


@pytest.mark.parametrize(("into", "hint"), [("", "copycat offsets reset NAME"), ("file:///lake/#a", "another name, without renamed_from")])
def test_a_position_behind_the_end_ends_with_words(
    broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch, into: str, hint: str
) -> None:
    """As after an unclean election, or where a person has set it. `into`: of a files sink."""
    send(broker.bootstrap, topic, numbered(0, 5))
    asked = options(broker.bootstrap, topic)
    asked._into = into
    reading = Reading(asked)
    (stretch,) = reading.look()
    with pytest.raises(FatalError, match="ends before offset 100") as raised:
        list(reading.source.read(stretch._replace(start=100, end=110)))
    assert hint in raised.value.hint
    reading.positions[stretch.key] = {"offset": 100, "topic_id": ""}
    with pytest.raises(RetriableError, match="ends at offset 5, before offset 100"):
        reading.look()
    monkeypatch.setattr(kafka_source, "CUT_SECONDS", 0.0)
    with pytest.raises(FatalError, match="ends before offset 100") as raised:
        reading.look()
    assert hint in raised.value.hint
    reading.positions[stretch.key] = {"offset": 3, "topic_id": ""}
    assert reading.values() == values(3, 2)


def test_a_position_behind_the_begin_of_an_open_transaction_waits_for_its_end(
    broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is set to the end that tools of Kafka show."""
    monkeypatch.setattr(kafka_source, "CUT_SECONDS", 0.0)
    send(broker.bootstrap, topic, numbered(0, 5))
    writer = Writer(broker.bootstrap, topic)
    writer.begin(numbered(5, 3))
    reading = Reading(options(broker.bootstrap, topic))
    reading.positions[f"{topic}/0"] = {"offset": 7, "topic_id": ""}
    assert reading.look() == []
    assert reading.look(to_the_end=True) == []
    writer.commit()
    later = Reading(options(broker.bootstrap, topic))
    later.positions = reading.positions
    wait_until(lambda: later.values() == values(7, 1), 30, "the last record of the transaction")


@pytest.mark.parametrize("position", [5, None, {}, {"offset": "5"}, {"offset": True}, {"offset": 5, "other": 1}, {"offset": -1}])
def test_a_position_that_is_none_is_told(broker: DevBroker, topic: str, position: Any) -> None:
    reading = Reading(options(broker.bootstrap, topic))
    reading.look()
    reading.positions = dict.fromkeys(reading.positions, position)
    with pytest.raises(FatalError, match=re.escape(f"position of {topic}/0 is none of source kafka: {json.dumps(position)}")) as raised:
        reading.look()
    assert f"copycat offsets set NAME --key {topic}/0 --position '{{\"offset\": 1200}}' --force" in raised.value.hint
    with pytest.raises(FatalError, match=f"saved position of {topic}/0"):
        reading.source.committed(reading.positions)
    reading.source.close()


def test_new_partitions_and_new_topics_are_found(broker: DevBroker) -> None:
    begin = unique_topic("p")
    first = create_topic(broker.bootstrap, f"{begin}.one")
    create_topic(broker.bootstrap, f"{begin}.not")
    create_topic(broker.bootstrap, f"other.{begin}.one")
    reading = Reading(options(broker.bootstrap, f"{begin}[.].*", exclude=(f"{begin}[.]n.*",)))
    reading.look()
    assert list(reading.positions) == [f"{first}/0"]
    second = create_topic(broker.bootstrap, f"{begin}.two", 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(first, 2)])[first].result(30)
    send(broker.bootstrap, second, numbered(0, 3, partition=1))

    def found() -> set[str]:
        reading.look()
        return set(reading.positions)

    wait_until(lambda: found() == {f"{first}/0", f"{first}/1", f"{second}/0", f"{second}/1"}, 30)
    assert reading.values() == values(0, 3)


@pytest.mark.parametrize("start_at", ["end", "2026-11-21T05:00:00Z"])
def test_partitions_and_topics_that_are_made_later_are_read_from_their_beginning(broker: DevBroker, start_at: str) -> None:
    """What is written before they are found would be missed."""
    begin = unique_topic("p")
    first = create_topic(broker.bootstrap, f"{begin}.one")
    send(broker.bootstrap, first, numbered(0, 3))
    reading = Reading(options(broker.bootstrap, f"{begin}.*", start_at=start_at))
    assert reading.look() == []
    second = create_topic(broker.bootstrap, f"{begin}.two")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(first, 2)])[first].result(30)
    for one, number in ((second, 0), (first, 1)):
        wait_until(lambda: _has(broker, one, number), 30)  # noqa: B023 - called at once
        send(broker.bootstrap, one, numbered(3, 2, partition=number))
    assert sorted(reading.values()) == sorted(values(3, 2) * (2 if start_at == "end" else 0))


def _has(broker: DevBroker, topic: str, number: int) -> bool:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return number in admin.list_topics(timeout=60).topics[topic].partitions


def test_it_begins_at_the_end_or_at_a_time(broker: DevBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic(2)
    send(broker.bootstrap, topic, [Sent(b"%d" % one, None, (), 1_700_000_000_000 + 1000 * one) for one in range(10)])
    at_end = Reading(options(broker.bootstrap, topic, start_at="end"))
    assert at_end.values() == []
    at_time = Reading(options(broker.bootstrap, topic, start_at="2023-11-14T22:13:27Z"))
    assert at_time.values() == [b"7", b"8", b"9"]
    later = Reading(options(broker.bootstrap, topic, start_at="2023-11-14T23:13:27+01:00"))
    assert later.values() == [b"7", b"8", b"9"]
    never = Reading(options(broker.bootstrap, topic, start_at="2026-01-01T00:00:00Z"))
    assert never.values() == []
    send(broker.bootstrap, topic, [Sent(b"new", None, (), 1_700_000_000_000)])
    assert [one.values() for one in (at_end, at_time, later, never)] == [[b"new"]] * 4


def test_a_run_to_the_end_ends_where_that_was_when_it_began(broker: DevBroker, topic: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 5))
    reading = Reading(options(broker.bootstrap, topic))
    assert len(reading.look(to_the_end=True)) == 1
    send(broker.bootstrap, topic, numbered(5, 5))
    assert len(reading.read(to_the_end=True)) == 5
    assert reading.look(to_the_end=True) == []


def _ends_with(monkeypatch: pytest.MonkeyPatch, change: Callable[[KnownOffsets], KnownOffsets]) -> None:
    """What brokers say of the ends is changed."""
    for name in ("ends", "log_ends"):
        said = getattr(TopicRanges, name)
        monkeypatch.setattr(TopicRanges, name, lambda self, places, said=said: change(said(self, places)))


def test_a_partition_that_has_no_leader_at_the_first_look_begins_at_the_end_like_the_others(
    broker: DevBroker, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(2)
    for number in range(2):
        send(broker.bootstrap, topic, numbered(0, 3, number))
    reading = Reading(options(broker.bootstrap, topic, start_at="end"))

    def without_the_second(said: KnownOffsets) -> KnownOffsets:
        found = {place: end for place, end in said.found.items() if place[1] == 0}
        return KnownOffsets(found, dict.fromkeys(said.found.keys() - found.keys(), RetriableError("it has no leader")))

    with monkeypatch.context() as patch:
        _ends_with(patch, without_the_second)
        reading.look()
    assert list(reading.positions) == [f"{topic}/0"]
    assert reading.values() == []
    for number in range(2):
        send(broker.bootstrap, topic, numbered(3, 2, number))
    assert sorted(reading.values()) == sorted(values(3, 2) * 2)


def test_a_run_to_the_end_survives_a_leader_that_does_not_know_the_end_yet(
    broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker.bootstrap, topic, numbered(0, 5))
    reading = Reading(options(broker.bootstrap, topic))
    reading.positions[f"{topic}/0"] = {"offset": 3, "topic_id": ""}
    with monkeypatch.context() as patch:
        _ends_with(patch, lambda said: said._replace(found=dict.fromkeys(said.found, 1)))
        with pytest.raises(RetriableError, match="ends at offset 1, before offset 3"):
            reading.look(to_the_end=True)
    monkeypatch.setattr(kafka_source, "CUT_SECONDS", 0.0)
    assert [one.value for one, _ in reading.read(to_the_end=True)] == values(3, 2)


def test_a_position_of_another_source_that_had_the_name_is_passed_over(broker: DevBroker, topic: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 2))
    reading = Reading(options(broker.bootstrap, topic))
    reading.positions["stream"] = {"offset": 7}
    assert reading.values() == values(0, 2)


def test_topics_of_kafkas_own_are_read_by_their_names_only(broker: DevBroker) -> None:
    name = create_topic(broker.bootstrap, f"__{unique_topic('own')}")
    reading = Reading(options(broker.bootstrap, f".*{name[5:]}"))
    reading.look()
    assert reading.positions == {}
    named = Reading(options(broker.bootstrap, name))
    named.look()
    assert list(named.positions) == [f"{name}/0"]


def test_a_client_of_a_read_that_nobody_ends_is_closed(broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reading, "IDLE_SECONDS", 0.2)
    send(broker.bootstrap, topic, numbered(0, 5))
    reading = Reading(options(broker.bootstrap, topic))
    (stretch,) = reading.look()
    under_way: Any = reading.source.read(stretch)
    with contextlib.closing(under_way):
        assert next(under_way)
        most, _ = held()
    wait_until(lambda: held()[0] < most, 30)
    assert reading.values() == values(0, 5)


def test_many_reads_keep_one_timer_between_them(broker: DevBroker, topic: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 5))
    reading, before = Reading(options(broker.bootstrap, topic)), {*threading.enumerate()}
    for _ in range(5):
        assert len(reading.values(1)) == 1
    begun: list[Any] = [one.function for one in threading.enumerate() if isinstance(one, threading.Timer) and one not in before]
    timers = Counter(getattr(one, "__self__", one) for one in begun)
    assert {*timers.values()} == {1}, "readers of other tests may have one, too"


def test_an_aborted_stretch_that_takes_long_to_pass_is_passed_step_by_step(
    broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reading, "STALL_SECONDS", 60.0)
    monkeypatch.setattr(partition_reading, "REPORTS_PER_STALL", 2400)  # one in 25 ms
    monkeypatch.setattr(partition_reading, "POLL_SECONDS", 0.005)
    writer = Writer(broker.bootstrap, topic)
    send(broker.bootstrap, topic, numbered(0, 3))
    writer.abort([Sent(b"x" * 1000)] * 100_000)
    send(broker.bootstrap, topic, numbered(3, 1))
    slow = KafkaOptions(bootstrap_servers=(broker.bootstrap,), client={"fetch.message.max.bytes": "50000"})
    reading = Reading(options(broker.bootstrap, topic, kafka=slow))
    found, steps = list[bytes](), list[int]()
    while len(found) < 4:
        found += reading.values()
        steps.append(reading.offset())
    assert found == values(0, 4)
    assert len(steps) > 1
    assert steps == sorted(set(steps)), "each read gets further"


def test_a_position_that_was_set_by_hand_learns_which_topic_it_is_of(broker: DevBroker, topic: str) -> None:
    send(broker.bootstrap, topic, numbered(0, 5))
    reading = Reading(options(broker.bootstrap, topic))
    reading.positions[f"{topic}/0"] = {"offset": 2}
    assert reading.values() == values(2, 3)
    assert reading.positions[f"{topic}/0"]["topic_id"]


def test_nobody_answers() -> None:
    reading = Reading(options("127.0.0.1:1", "any"))
    with pytest.raises(RetriableError, match=r"asking 127[.]0[.]0[.]1:1: .*Connection refused"):
        reading.look()


def test_a_group_is_left_while_another_thread_saves_its_positions() -> None:
    group = GroupPositions(KafkaOptions(bootstrap_servers=("127.0.0.1:1",)), "left")

    def is_over() -> bool:
        group.close()
        return saving.done()

    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(group.commit, {("any", 0): 1}, 60)
        wait_until(is_over, 30, "the commit ends")
        with pytest.raises(RetriableError, match="saving positions of group left"):
            saving.result(30)
