"""The poll loop: many connectors on a few threads, no wake-up lost, nobody behind one that hangs."""

from __future__ import annotations

import math
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.wake import Wake
from copycat_agent.worker import poll_loop
from copycat_agent.worker.poll_loop import THREADS, PollLoop, Wait
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from copycat_agent.worker.poll_loop import Steps


@pytest.fixture
def loop() -> Iterator[PollLoop]:
    loop = PollLoop()
    yield loop
    loop.close()


def test_a_thousand_connectors_that_wait_share_a_few_threads(loop: PollLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_loop, "SLOW_SECONDS", 60.0)  # however slow this host is, no step counts as one that may hang
    threads, turns, wakes = NewThreads(), [0] * 1000, [Wake() for _ in range(1000)]

    def steps(number: int) -> Steps:
        while True:
            turns[number] += 1
            yield Wait(math.inf)

    for number, wake in enumerate(wakes):
        loop.start(steps(number), wake)
    wait_until(lambda: all(turns), message="each has had its first turn")
    for wake in wakes:
        wake.wakeup()
    wait_until(lambda: min(turns) == 2, message="each has had its second turn")
    assert len(threads.named("connectors-")) <= THREADS


def test_a_connector_goes_on_when_its_time_has_come(loop: PollLoop) -> None:
    went_on = threading.Event()

    def steps() -> Steps:
        until = time.monotonic() + 0.05
        yield Wait(until)
        assert time.monotonic() >= until
        went_on.set()

    loop.start(steps(), Wake())
    assert went_on.wait(30)


def test_steps_of_one_connector_never_overlap(loop: PollLoop) -> None:
    wake, inside, most, turns = Wake(), 0, 0, 0

    def steps() -> Steps:
        nonlocal inside, most, turns
        while turns < 2000:
            inside += 1
            most, turns = max(most, inside), turns + 1
            inside -= 1
            yield Wait(time.monotonic() + 0.0001)

    loop.start(steps(), wake)

    def wakeup() -> None:
        for _ in range(2000):
            wake.wakeup()

    nudgers = [threading.Thread(target=wakeup) for _ in range(4)]
    for one in nudgers:
        one.start()
    for one in nudgers:
        one.join()
    wait_until(lambda: turns == 2000, 90, lambda: f"{turns} turns")
    assert most == 1


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Threads take turns as often as they can, so that races have a chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("many_switches")
def test_no_nudge_is_lost(loop: PollLoop, rng: random.Random) -> None:
    """Each nudge is followed by a step that begins after it, whatever wait ends at the same moment."""
    wakes = [Wake() for _ in range(8)]
    asked, seen, has_seen = [0] * 8, [0] * 8, [threading.Event() for _ in range(8)]

    def steps(one: int) -> Steps:
        while True:
            if seen[one] < asked[one]:
                seen[one] = asked[one]
                has_seen[one].set()
            yield Wait(math.inf if rng.random() < 0.3 else time.monotonic() + rng.random() / 10_000)

    for one, wake in enumerate(wakes):
        loop.start(steps(one), wake)
    for number in range(1, 1501):
        for one, wake in enumerate(wakes):
            has_seen[one].clear()
            asked[one] = number
            wake.wakeup()
        assert all(event.wait(30) for event in has_seen), f"nudge {number} was lost"


class LateWake(Wake):
    """Takes its time to be armed for the first time, in which the wait it is armed for comes to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.may_arm, self.is_armed = threading.Event(), threading.Event()

    def arm(self, call: Callable[[], None], *, deaf: bool) -> bool:
        self.may_arm.wait(0.2)  # nobody sets it where no step begins meanwhile
        armed = super().arm(call, deaf=deaf)
        self.is_armed.set()
        return armed


def test_the_wake_of_a_wait_that_is_over_takes_no_later_nudge(loop: PollLoop) -> None:
    wake, second, third = LateWake(), threading.Event(), threading.Event()

    def steps() -> Steps:
        yield Wait(time.monotonic() + 0.01)
        second.set()
        wake.is_armed.wait(30)
        yield Wait(math.inf)
        third.set()

    loop.start(steps(), wake)
    assert second.wait(30)
    wake.wakeup()
    wake.may_arm.set()
    assert third.wait(30), "the nudge is lost"


def test_nobody_waits_behind_steps_that_hang(loop: PollLoop) -> None:
    hangs, turns = threading.Event(), [0] * 20

    def hanging() -> Steps:
        hangs.wait()
        yield Wait(math.inf)

    def steps(number: int) -> Steps:
        while True:
            turns[number] += 1
            yield Wait(time.monotonic() + 0.01)

    try:
        stuck = [loop.start(hanging(), Wake()) for _ in range(3 * THREADS)]
        for number in range(len(turns)):
            loop.start(steps(number), Wake())
        wait_until(lambda: min(turns) >= 3, message=lambda: f"turns: {turns}")
        busy = [one.busy_since for one in stuck]
        assert any(since is not None and since < time.monotonic() for since in busy)
        assert 0 < loop.longest_step() <= time.monotonic() - min(since for since in busy if since is not None)
    finally:
        hangs.set()
    wait_until(lambda: all(one.busy_since is None for one in stuck), message="those that hung have gone on")


def test_a_connector_that_gets_no_thread_says_since_when_it_waits_for_one(loop: PollLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("connectors-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def steps() -> Steps:
        yield Wait(math.inf)

    monkeypatch.setattr(threading.Thread, "start", refused)
    before = time.monotonic()
    running = loop.start(steps(), Wake())
    assert running.busy_since is not None
    assert before <= running.busy_since <= time.monotonic()
    monkeypatch.setattr(threading.Thread, "start", start)
    wait_until(lambda: running.busy_since is None, message="its step is done")


def test_long_waits_end_together_and_none_before_its_time(loop: PollLoop) -> None:
    begun = time.monotonic()
    ended: dict[float, float] = {}

    def steps(seconds: float) -> Steps:
        yield Wait(begun + seconds)
        ended[seconds] = time.monotonic()

    waits = [1.2 + number / 100 for number in range(10)]
    for seconds in waits:
        loop.start(steps(seconds), Wake())
    wait_until(lambda: len(ended) == len(waits))
    assert all(ended[seconds] >= begun + seconds for seconds in waits)


def test_long_waits_that_end_together_wake_one_thread_for_all(loop: PollLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connector costs a step, not a thread that wakes for it."""
    now = [1000.0]  # a clock that stands until the test moves it: however slow this host is, all wait before their time has come
    monkeypatch.setattr(poll_loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    threads, served = NewThreads(), list[threading.Thread]()

    def steps() -> Steps:
        yield Wait(now[0] + 3)
        served.append(threading.current_thread())

    def are_idle() -> bool:
        """Who has just taken a step may take the next one, too, without being woken."""
        there = threads.named("connectors-")
        frames = sys._current_frames()
        return all((frame := frames.get(one.ident or 0)) is not None and frame.f_code.co_name == "wait" for one in there)

    running = [loop.start(steps(), Wake()) for _ in range(100)]
    wait_until(lambda: all(one.wait for one in running) and are_idle(), message="all wait")
    now[0] += 10
    loop.look_at_slow_steps()  # wakes who keeps the time
    wait_until(lambda: len(served) == 100, message=lambda: f"{len(served)} steps")
    assert len(set(served)) == 1


def test_an_exception_ends_its_connector_alone(loop: PollLoop, caplog: pytest.LogCaptureFixture) -> None:
    turns = 0

    def bad() -> Steps:
        yield Wait(0.0)
        raise ZeroDivisionError

    def good() -> Steps:
        nonlocal turns
        while True:
            turns += 1
            yield Wait(time.monotonic() + 0.001)

    loop.start(bad(), Wake())
    loop.start(good(), Wake())
    wait_until(lambda: "ZeroDivisionError" in caplog.text, message="it has ended")
    ended = turns
    wait_until(lambda: turns > ended + 20, message="the other goes on")


def test_nothing_runs_after_close(loop: PollLoop) -> None:
    threads, wake, turns = NewThreads(), Wake(), 0

    def steps() -> Steps:
        nonlocal turns
        while True:
            turns += 1
            yield Wait(math.inf)

    loop.start(steps(), wake)

    def busy() -> Steps:
        while True:
            yield Wait(0.0)

    loop.start(busy(), Wake())
    wait_until(lambda: turns == 1)
    loop.close()
    wait_until(lambda: not threads.named("connectors-"), message="its threads have ended")
    wake.wakeup()
    assert turns == 1
