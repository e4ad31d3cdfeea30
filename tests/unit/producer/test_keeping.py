"""What a process keeps between batches: somebody looks after it whatever happened before, and names come and go without a trace."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import ProducerPool, producer_pool
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = KafkaOptions(bootstrap_servers=("127.0.0.1:1",))
NAMES = 10_000


class FakeClient:
    """A producer, or the steps of a lane, as far as keeping goes."""

    broken = True  # it is not kept itself
    batch_bytes, next_batch_bytes, run_bytes, tracked, has_unflushed = 0, 1, 1, False, False

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def poll_idle(self) -> None:
        """Nothing to serve."""

    def close(self, *_: object) -> None:
        """Nothing to free."""


class Clock:
    """The time, which may be moved on."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Watched(ProducerPool):
    """Producers that count how often somebody looks after them; `fails`: that goes wrong."""

    rounds = 0
    fails = False

    def poll_idle(self) -> None:
        self.rounds += 1
        if self.fails:
            raise ValueError("secret")
        super().poll_idle()


@pytest.fixture
def producers(clock: Clock) -> Iterator[Watched]:
    producers = Watched(FakeClient, make_producer=cast("Any", FakeClient), look_seconds=0.02, clock=clock)
    yield producers
    producers.close()


def use(producers: ProducerPool, name: str) -> None:
    """One batch of a task, and one of a lane."""
    task = TaskId(name, 0)
    producers.give_back(task, OPTIONS, producers.take(task, OPTIONS))
    lane = producers.take_lane(task, OPTIONS)
    lane.memory, lane.broken = object(), True
    producers.give_lane_back(task, lane)


def test_what_was_not_asked_for_in_a_day_is_forgotten(producers: Watched, clock: Clock) -> None:
    for number in range(NAMES):
        use(producers, f"app-{number}")
    producers.poll_idle()
    assert len(producers.known_tasks) == NAMES
    clock.ahead_seconds = producer_pool.FORGET_SECONDS + 1
    use(producers, "app-7")
    producers.poll_idle()
    assert producers.known_tasks == {TaskId("app-7", 0)}


def test_a_thread_that_could_not_be_started_is_started_by_a_later_batch(producers: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[Any] = []

    def refuse(thread: threading.Thread) -> None:
        refused.append(thread)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        use(producers, "app")
    assert refused
    assert not producers.rounds
    use(producers, "app")
    wait_until(lambda: producers.rounds, 60, "nobody looks after them")


def test_a_round_that_goes_wrong_is_not_the_last(producers: Watched, caplog: pytest.LogCaptureFixture) -> None:
    producers.fails = True
    use(producers, "app")
    wait_until(lambda: producers.rounds > 2, 60, "it has ended")
    assert "could not be looked after" in caplog.text
    assert "secret" not in caplog.text


def test_an_old_producer_is_closed_although_another_one_cannot_be_polled(clock: Clock) -> None:
    closed: list[object] = []

    class Kept(FakeClient):
        broken, batch_bytes = False, 1

        def poll_idle(self) -> None:
            raise ValueError("bug")

        def close(self, *_: object) -> None:
            closed.append(self)

    producers = ProducerPool(FakeClient, make_producer=cast("Any", Kept), look_seconds=3600, clock=clock)
    task = TaskId("app", 0)
    old, other = producers.take(task, OPTIONS), producers.take(task, OPTIONS)
    producers.give_back(task, OPTIONS, old)
    clock.ahead_seconds = producer_pool.IDLE_SECONDS + 1
    producers.give_back(task, OPTIONS, other)
    with pytest.raises(ValueError, match="bug"):
        producers.poll_idle()
    assert closed == [old]
    producers.close()


@pytest.fixture
def real(clock: Clock) -> Iterator[ProducerPool]:
    """Producers with clients of the library, which need no broker as long as nothing is sent."""
    producers = ProducerPool(clock=clock)
    yield producers
    producers.close()


def test_batches_side_by_side_have_a_producer_each_and_later_ones_share_them(real: ProducerPool) -> None:
    one, other = TaskId("one", 0), TaskId("other", 0)
    first, second = real.take(one, OPTIONS), real.take(other, OPTIONS)
    assert first is not second
    real.give_back(one, OPTIONS, first)
    real.give_back(other, OPTIONS, second)
    taken = [real.take(TaskId(f"app-{number}", 0), OPTIONS) for number in range(3)]
    assert taken[:2] == [second, first]
    assert taken[2] not in (first, second)
    for producer in taken:
        producer.close()


def test_nobody_gets_a_producer_of_another_cluster_or_one_that_is_broken(real: ProducerPool) -> None:
    task, elsewhere = TaskId("app", 0), KafkaOptions(bootstrap_servers=("127.0.0.1:2",))
    first = real.take(task, OPTIONS)
    real.give_back(task, OPTIONS, first)
    second = real.take(task, elsewhere)
    assert second is not first
    second.broken = True
    real.give_back(task, elsewhere, second)
    third = real.take(task, elsewhere)
    assert third not in (first, second)
    tracked = real.take(task, OPTIONS, tracked=True)
    assert tracked is not first
    third.close()
    tracked.close()


def test_what_a_task_has_learnt_of_its_line_holds_for_the_producer_it_gets_and_for_no_other_task(real: ProducerPool) -> None:
    slow, quick = TaskId("slow", 0), TaskId("quick", 0)
    broken, free = real.take(slow, OPTIONS), real.take(quick, OPTIONS)
    most = free.run_bytes
    real.give_back(quick, OPTIONS, free)
    broken.pace.failed()
    broken.broken = True
    real.give_back(slow, OPTIONS, broken)
    for _ in range(3):
        cautious = real.take(slow, OPTIONS)
        assert cautious is free
        assert cautious.run_bytes == broken.run_bytes < most
        real.give_back(slow, OPTIONS, cautious)
        assert real.take(quick, OPTIONS).run_bytes == most
        real.give_back(quick, OPTIONS, free)


def test_nobody_gets_a_producer_with_records_that_were_not_flushed(real: ProducerPool) -> None:
    """It would send them later, behind what their own task has sent again with another one."""
    task = TaskId("app", 0)
    one = real.take(task, OPTIONS)
    one.begin(lambda: False)
    one.send("t", [b"1"], ())
    real.give_back(task, OPTIONS, one)
    other = real.take(TaskId("other", 0), OPTIONS)
    assert other is not one
    assert one.broken
    other.close()


def test_of_those_to_one_cluster_all_but_one_are_closed_soon(real: ProducerPool, clock: Clock) -> None:
    elsewhere = KafkaOptions(bootstrap_servers=("127.0.0.1:2",))
    tasks = [(TaskId(f"app-{number}", 0), elsewhere if number == 3 else OPTIONS) for number in range(4)]
    taken = [(task, options, real.take(task, options)) for task, options in tasks]
    for one in taken:
        real.give_back(*one)
    clock.ahead_seconds = producer_pool.SPARE_SECONDS + 1
    real.poll_idle()  # unless its own thread does it at the same moment
    wait_until(lambda: [producer.broken for _, _, producer in taken] == [True, True, False, False])
