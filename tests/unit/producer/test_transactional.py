"""The steps of a lane, on a real broker: what is committed, who is fenced, and what is known when answers are lost."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError

from copycat_agent import failpoints
from copycat_agent.dev_broker import free_port
from copycat_agent.errors import BlockedError, FencedError, RefusedError, RetriableError
from copycat_agent.model import Head, LanePlan
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import RefusedRecordError, lane_producer, task_memory
from copycat_agent.producer.lane_producer import LaneProducer
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.transactions.lane_writer import LaneWriter
from copycat_agent.transactions.opening import LaneGroup, OpeningPlan, open_lanes
from copycat_agent.transactions.protocol import Entry, perform
from tests.rig.kafka import consume, create_topic, unique_topic, values
from tests.rig.proxy import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from tests.rig.requests import FENCED, is_commit
from tests.rig.threads import NewThreads, held
from tests.rig.waiting import wait_until
from tests.unit.producer.lanes_rig import World, never, world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.producer.task_memory import TopicMetadata
    from tests.conftest import ProxiedBroker


@pytest.fixture
def here(broker: DevBroker) -> Iterator[World]:
    """A world on the shared broker."""
    with world(broker.bootstrap) as made:
        yield made


def committed(where: World, count: int | None = None) -> list[bytes | None]:
    """Readers see so many a moment after the commit: markers are written after the answer to it."""
    return [record.value for record in consume(where.bootstrap, where.topic, "read_committed", until=count)]


def head(number: int) -> list[Entry]:
    return [Entry(b"head", b"%d" % number)]


def test_records_and_entries_are_there_for_readers_once_the_transaction_is_committed_and_not_before(here: World) -> None:
    handle = here.begun()
    handle.send(here.topic, [b"a", b"b"], ())
    handle.send_each([(here.topic, b"c", b"key")])
    handle.flush()
    here.steps.send(handle, here.place, [Entry(b"position", b"3"), *head(1)])
    here.steps.flush(handle)
    assert values(here.bootstrap, here.topic) == [b"a", b"b", b"c"]
    assert committed(here) == []
    here.steps.commit(handle)
    assert committed(here, 3) == [b"a", b"b", b"c"]
    assert here.read() == [Entry(b"position", b"3", 0), Entry(b"head", b"1", 1)]


def test_a_transaction_of_entries_alone_is_committed(here: World) -> None:
    handle = here.begun()
    here.steps.send(handle, here.place, [Entry(b"gone", None), *head(1)])
    here.steps.flush(handle)
    here.steps.commit(handle)
    assert here.read() == [Entry(b"gone", None, 0), Entry(b"head", b"1", 1)]


def test_many_batches_of_a_lane_follow_each_other_and_the_head_counts_them(here: World) -> None:
    lanes = LaneGroup("app", here.place)
    truth = perform(open_lanes(OpeningPlan(here.lane.agent, lanes, (0,), "n", frozenset("n"))), here.steps)
    writer, now = LaneWriter(), truth.heads[0]
    for number in range(5):
        plan = LanePlan(here.lane, now, here.place)
        handle = perform(writer.begin(plan), here.steps)
        handle.send(here.topic, [b"%d" % number], ())
        handle.flush()
        outcome = perform(writer.finish(plan, handle, []), here.steps)
        assert outcome.state == "committed", outcome.why
        assert outcome.head[:2] == (now.seq + 1, "n")
        now = outcome.head
    perform(writer.rest(), here.steps)
    again = OpeningPlan(here.lane.agent, LaneGroup("app", here.place, {0: now}), (0,), "n", frozenset("n"))
    assert perform(open_lanes(again), here.steps).heads[0].seq == now.seq + 1
    assert committed(here, 5) == [b"%d" % number for number in range(5)]


def test_what_was_sent_and_not_flushed_is_told(here: World) -> None:
    handle = here.begun()
    assert (handle.is_flushed, handle.has_sent, handle.sent) == (True, False, 0)
    handle.send(here.topic, [b"a", b"b"], ())
    assert (handle.is_flushed, handle.has_sent, handle.sent) == (False, True, 2)
    handle.flush()
    assert (handle.is_flushed, handle.sent) == (True, 2)
    with pytest.raises(RefusedRecordError) as caught:
        handle.send(here.topic, [b"c", b"x" * 20_000_000, b"d"], ())
    assert caught.value.sent == 1
    assert (handle.is_flushed, handle.sent, handle.broken) == (False, 3, False)
    handle.flush()
    handle.commit()
    assert committed(here, 3) == [b"a", b"b", b"c"]


def zombie_is_told(zombie: LaneProducer) -> Callable[[], bool]:
    """While it is looked after by somebody else, who is not to be bothered with it."""

    def look() -> bool:
        zombie.poll_idle()
        return bool(zombie.reports.failures)

    return look


def test_a_new_producer_undoes_what_the_one_before_it_had_open_and_fences_it(here: World) -> None:
    zombie = here.begun()
    zombie.send(here.topic, [b"zombie"], ())
    zombie.flush()
    handle = here.begun()
    handle.send(here.topic, [b"alive"], ())
    handle.flush()
    zombie.send(here.topic, [b"late"], ())
    wait_until(zombie_is_told(zombie), 60, "the zombie was not told")
    with pytest.raises(FencedError, match="another producer has taken"):
        zombie.flush()
    assert zombie.broken
    here.steps.commit(handle)
    assert committed(here, 1) == [b"alive"]


def test_a_producer_that_was_ready_and_is_fenced_meanwhile_begins_nothing(here: World) -> None:
    zombie = here.begun()
    here.begun()
    here.steps.send(zombie, here.place, head(1))
    with pytest.raises(FencedError):
        here.steps.flush(zombie)


def test_a_fenced_producer_cannot_commit(here: World) -> None:
    zombie = here.begun()
    here.steps.send(zombie, here.place, head(1))
    here.steps.flush(zombie)
    here.begun()
    with pytest.raises(FencedError):
        here.steps.commit(zombie)
    assert here.seqs() == []


def test_a_record_that_kafka_refuses_is_told_with_its_reason_and_nothing_is_committed(here: World, broker: DevBroker) -> None:
    with world(broker.bootstrap, here.place, here.topic, **{"message.max.bytes": "5000000"}) as small:
        handle = small.begun()
        handle.send(small.topic, [b"good", os.urandom(2_000_000), b"good too"], ())
        with pytest.raises(RefusedError) as caught:
            handle.flush()
        assert "message.max.bytes" in str(caught.value) or "larger" in str(caught.value).lower()
        assert "max.message.bytes" in caught.value.reason.hint
        assert handle.broken
        assert not handle.is_flushed
        with pytest.raises(RefusedError):
            handle.send(small.topic, [b"more"], ())
        handle.smaller_batches()
        assert handle.next_batch_bytes == 250_000
        small.begun()
        assert committed(small) == []


def test_a_lost_answer_to_a_commit_is_asked_for_again(proxied_broker: ProxiedBroker) -> None:
    with world(proxied_broker.bootstrap) as there:
        handle = there.begun()
        there.steps.send(handle, there.place, head(1))
        there.steps.flush(handle)
        proxied_broker.proxy.drop_response(END_TXN)
        there.steps.commit(handle)
        assert proxied_broker.proxy.dropped == 1
        assert there.seqs() == [b"1"]


def test_without_an_answer_to_a_commit_nobody_knows_and_fencing_tells(
    proxied_broker: ProxiedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_producer, "COMMIT_SECONDS", 2.0)
    with world(proxied_broker.bootstrap) as there:
        handle = there.begun()
        there.steps.send(handle, there.place, head(1))
        there.steps.flush(handle)
        proxied_broker.proxy.drop_response(END_TXN, close=False)
        with pytest.raises(RetriableError, match="committing transaction"):
            there.steps.commit(handle)
        wait_until(lambda: proxied_broker.proxy.dropped == 1, message="the answer is lost")
        there.begun()
        assert there.seqs() == [b"1"]


def test_a_request_to_commit_that_comes_late_ends_nobody_elses_transaction(proxied_broker: ProxiedBroker) -> None:
    with world(proxied_broker.bootstrap) as there:
        first = there.begun()
        there.steps.send(first, there.place, head(1))
        there.steps.flush(first)
        caught = proxied_broker.proxy.catch(END_TXN, wanted=is_commit)
        there.steps.commit(first)
        second = there.begun()
        there.steps.send(second, there.place, head(2))
        there.steps.flush(second)
        assert caught.send_again() in FENCED
        assert [record.value for record in consume(there.bootstrap, there.place.topic, "read_committed")] == [b"1"]
        there.steps.commit(second)
        assert there.seqs() == [b"1", b"2"]


def test_answers_that_are_lost_on_the_way_to_a_transaction_cost_time_only(proxied_broker: ProxiedBroker) -> None:
    with world(proxied_broker.bootstrap) as there:
        proxied_broker.proxy.drop_response(INIT_PRODUCER_ID)
        proxied_broker.proxy.drop_response(ADD_PARTITIONS_TO_TXN)
        handle = there.begun()
        there.steps.send(handle, there.place, head(1))
        there.steps.flush(handle)
        there.steps.commit(handle)
        assert proxied_broker.proxy.dropped == 2
        assert there.seqs() == [b"1"]


def test_closing_an_open_transaction_sends_nothing(proxied_broker: ProxiedBroker) -> None:
    with world(proxied_broker.bootstrap) as there:
        handle = there.begun()
        there.steps.send(handle, there.place, head(1))
        there.steps.flush(handle)
        there.steps.close(handle)
        there.steps.close(handle)
        assert proxied_broker.proxy.requests[END_TXN] == 0
        there.begun()
        assert there.seqs() == []


def test_without_a_broker_getting_ready_ends_retriable_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_producer, "INIT_SECONDS", 5.0)
    steps = KafkaSteps(KafkaOptions(bootstrap_servers=(f"127.0.0.1:{free_port()}",)), "test")
    with pytest.raises(RetriableError, match="Connection refused") as caught:
        steps.ready(steps.prepare("copycat.u.app.0.0"))
    assert not isinstance(caught.value, BlockedError)
    steps.close()


def test_a_stop_request_ends_getting_ready() -> None:
    steps = KafkaSteps(KafkaOptions(bootstrap_servers=(f"127.0.0.1:{free_port()}",)), "test", stopping=lambda: True)
    with pytest.raises(RetriableError, match="stopped"):
        steps.ready(steps.prepare("copycat.u.app.0.0"))
    steps.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_while_an_id_is_fenced_does_not_count_as_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(lane_producer, "classify", fail)
    steps = KafkaSteps(KafkaOptions(bootstrap_servers=(f"127.0.0.1:{free_port()}",)), "test")
    with pytest.raises(RetriableError, match="MemoryError"):
        steps.ready(steps.prepare("copycat.u.app.0.0"))
    steps.close()


def test_closing_does_not_wait_for_a_network_that_is_silent(proxied_broker: ProxiedBroker) -> None:
    with world(proxied_broker.bootstrap) as there:
        handle = there.begun()
        handle.send(there.topic, [b"a"], ())
        there.read()
        proxied_broker.proxy.blackhole()
        handle.send(there.topic, [b"b"], ())
        fencing = there.steps.prepare(there.id(1))
        for one in (handle, fencing, None):
            begun = time.monotonic()
            there.steps.close(one)
            assert time.monotonic() - begun < 15, one  # far below any time-out of a request


def grow(where: World, transactions: int) -> None:
    for number in range(transactions):
        handle = where.begun(number)
        where.steps.send(handle, where.place, head(number))
        where.steps.flush(handle)
        where.steps.commit(handle)
        where.steps.close(handle)


def test_producers_that_were_used_leave_no_threads_and_no_connections(here: World) -> None:
    threads = NewThreads()
    grow(here, 3)
    before = held()
    grow(here, 20)
    wait_until(lambda: held() <= before, 60, f"threads and files: {before} before")
    wait_until(lambda: not threads.named("fencing"), 60, "a closed producer needs nobody to fence others")


def resident_kbytes() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_a_stop_request_long_ago_leaves_time_to_commit(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_memory, "SETTLE_SECONDS", 0.0)
    handle = here.begun(stopping=lambda: True)
    here.steps.send(handle, here.place, head(1))
    here.steps.flush(handle)
    here.steps.commit(handle)
    assert here.seqs() == [b"1"]


@pytest.mark.parametrize("action", ["committing:error", "committing:99:error"])
def test_the_failpoint_of_a_commit_is_between_request_and_answer(here: World, action: str) -> None:
    handle = here.begun()
    here.steps.send(handle, here.place, head(1))
    here.steps.flush(handle)
    fails = pytest.raises(RetriableError, match="failpoint committing") if "99" not in action else contextlib.nullcontext()
    with failpoints.armed(action), fails:
        here.steps.commit(handle)
    if "99" in action:
        assert here.seqs() == [b"1"]


@pytest.mark.long
def test_hundreds_of_transactions_leave_nothing_in_memory(here: World) -> None:
    grow(here, 100)
    before, memory, objects = held(), resident_kbytes(), len(gc.get_objects())
    grow(here, 300)
    wait_until(lambda: held() <= before, 60, f"threads and files: {before} before")
    assert len(gc.get_objects()) < objects + 150
    assert resident_kbytes() < memory + 40_000  # a client is more than one megabyte


def test_what_a_producer_says_about_itself_is_heard_though_it_lives_for_one_transaction_only(here: World) -> None:
    handle = here.begun()

    def view() -> object:
        here.steps.poll_idle()
        return here.steps.take_view()

    wait_until(view, 60, "no statistics")
    handle.close()
    here.steps.poll_idle()


def test_topics_that_one_producer_knows_need_not_be_asked_for_by_the_next(here: World) -> None:
    first = here.begun()
    assert first.topics.partitions(here.topic) == 1
    second = here.begun(1)
    assert here.steps.shared.partitions == {here.topic: 1}
    second.on_delivery(KafkaError(KafkaError._UNKNOWN_TOPIC), None)
    with pytest.raises(BlockedError):
        second.flush()
    assert not here.steps.shared.partitions


def test_a_topic_that_was_missing_is_not_waited_for_by_every_transaction(here: World) -> None:
    topic, other = unique_topic(), unique_topic()
    with pytest.raises(BlockedError, match="does not exist"):
        here.begun().topics.partitions(topic)
    following = here.begun(1).topics
    assert [following.missing_timeout_seconds(one, created=False) > 0 for one in (topic, other)] == [False, True]
    create_topic(here.bootstrap, topic)
    wait_until(lambda: _is_there(following, topic), 60, "the topic is there")


def _is_there(topics: TopicMetadata, topic: str) -> bool:
    with contextlib.suppress(BlockedError):
        return topics.partitions(topic) == 1
    return False


def test_a_plan_from_before_somebody_else_took_the_step_is_refused(here: World) -> None:
    handle = here.begun()
    here.steps.send(handle, here.place, [Entry(b'["u"]', b"{}")])
    here.steps.flush(handle)
    here.steps.commit(handle)
    plan = LanePlan(here.lane, Head(7, "n", 0), here.place)
    with pytest.raises(FencedError, match="planned at 7"):
        perform(LaneWriter().begin(plan), here.steps)


def test_a_tracked_producer_tells_where_records_came_to_lie(broker: DevBroker, topic: str) -> None:
    steps = KafkaSteps(KafkaOptions(bootstrap_servers=(broker.bootstrap,)), "test", tracked=True)
    handle: LaneProducer = steps.prepare(f"copycat.{topic}.app.0.0")
    steps.ready(handle)
    steps.begin(handle)
    handle.begin(never)
    places: list[tuple[str, int, int]] = []
    handle.attribute(lambda *place: places.append(place))
    handle.send(topic, [b"a", b"b"], ())
    handle.flush()
    assert places == [(topic, 0, 0), (topic, 0, 1)]
    steps.close()
