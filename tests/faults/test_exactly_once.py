"""exactly_once under faults of processes, broker and network: every line once for those who read what is committed, whatever happens.

All share one agent with both sources under load, behind a network to break. After each fault everything that was written has to be
there, once. `tests/unit/transactions` has thousands of histories of the protocol alone; `benchmarks/run kill_loop` the long run.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from copycat_agent.failpoints import NAMES
from copycat_agent.model import OFFSETS_TOPIC
from copycat_agent.spark.host import YOUNG_SECONDS
from tests.faults.exactly import HAS_COMPILER, Exact, kill, resume, suspend
from tests.rig.agent import is_alive
from tests.rig.requests import ADD_PARTITIONS_TO_TXN, END_TXN, FENCED, PRODUCE, Caught, is_commit, mentions, transactional_id
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.conftest import ProxiedBroker

pytestmark = pytest.mark.timeout(600)
"""Each is a matter of seconds; Spark starts slowly on a machine that does much else."""

START_SECONDS = 4.0
NEEDS_COMPILER = pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler")
OLD_SECONDS = YOUNG_SECONDS + 10
"""So old is the process of a JVM in which Spark has been up for long enough.

An agent whose JVM dies young three times in a row ends, so that its service manager starts another: this is not about that.
"""
MANY = 30
TASKS = ("begun", "sending", "positions-sent", "committing", "committed")
"""Failpoints of a task."""


@pytest.fixture(scope="module")
def shared(shared_proxied_broker: ProxiedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exact]:
    """One agent for all; workers of its first start outlive their parents. It has to end well, too."""
    shared_proxied_broker.proxy.reset()
    with Exact(tmp_path_factory.mktemp("exactly") / "scene", shared_proxied_broker.bootstrap) as exact:
        exact.outlive() if HAS_COMPILER else exact.start().flows()
        yield exact
        if exact.agent.is_running:
            exact.agent.stop()


@pytest.fixture
def exact(shared: Exact, proxied_broker: ProxiedBroker) -> Exact:
    """It ships."""
    shared.load.resume()
    if not shared.agent.is_running:
        shared.start()
    shared.flows()
    return shared


@NEEDS_COMPILER
@pytest.mark.parametrize("seconds", [0, pytest.param(120, marks=[pytest.mark.long, pytest.mark.timeout(700)])])
def test_a_worker_that_was_stopped_and_wakes_up_beside_a_new_agent_is_fenced(
    exact: Exact, proxied_broker: ProxiedBroker, seconds: int
) -> None:
    """Nothing but fencing stops it: the kernel is not asked to kill it with its parent."""
    exact.outlive()
    zombies = exact.workers()

    def strike() -> None:
        """Both at once: a driver that finds them stopped for some seconds kills them."""
        suspend(zombies)
        exact.agent.signal(signal.SIGKILL)

    proxied_broker.proxy.catch(PRODUCE, wanted=mentions(OFFSETS_TOPIC), call=strike).wait()
    exact.agent.wait()
    exact.start()
    exact.flows()
    time.sleep(seconds)
    assert all(map(is_alive, zombies)), "they are not there any more: this shows nothing"
    exact.load.pause()
    assert exact.verifier.wait_all(exact.load.counts(), 150)
    commits = [proxied_broker.proxy.catch(END_TXN, nth, wanted=is_commit) for nth in range(1, MANY)]  # the new agent has some, too
    resume(zombies)
    wait_until(lambda: not any(map(is_alive, zombies)), 60, "a worker that nobody needs lives on")
    refused = any(one.answer and one.error in FENCED for one in commits)
    print("a commit was refused" if refused else "it found its driver gone before it came to commit")
    exact.settled()


def test_a_copy_of_end_txn_that_comes_late_is_refused(exact: Exact, proxied_broker: ProxiedBroker) -> None:
    """A lane may have nothing to send for long once it has committed, so several commits are caught: of one of them the lane goes on."""
    commits = [proxied_broker.proxy.catch(END_TXN, nth, wanted=is_commit) for nth in range(1, MANY)]

    def committed_before(request: bytes) -> Caught | None:
        return next((one for one in commits if one.is_seen and transactional_id(one.frame) == transactional_id(request)), None)

    following = proxied_broker.proxy.catch(ADD_PARTITIONS_TO_TXN, wanted=lambda request: committed_before(request) is not None)
    following.wait()
    caught = committed_before(following.frame)
    assert caught is not None
    assert caught.send_again() in FENCED
    exact.settled()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [2, 8, 20])
def test_many_copies_of_end_txn_that_come_late_are_refused(exact: Exact, proxied_broker: ProxiedBroker, seconds: int) -> None:
    for _ in range(3):
        caught = proxied_broker.proxy.catch(END_TXN, wanted=is_commit)
        caught.wait()
        time.sleep(seconds)  # the network takes its time
        assert caught.send_again() in FENCED
    exact.settled()


@pytest.mark.parametrize("seconds", [2, *(pytest.param(n, marks=[pytest.mark.long, pytest.mark.timeout(700)]) for n in (30, 90))])
@pytest.mark.parametrize("request_key", [PRODUCE, END_TXN], ids=["produce", "end_txn"])
def test_a_broker_that_stands_still_in_the_middle_of_a_request_costs_nothing(
    exact: Exact, proxied_broker: ProxiedBroker, request_key: int, seconds: int
) -> None:
    caught = proxied_broker.proxy.catch(request_key, call=proxied_broker.broker.pause)
    caught.wait()
    time.sleep(seconds)  # the fault lasts
    proxied_broker.broker.resume()
    exact.flows()
    exact.settled(180)


@pytest.mark.parametrize("victim", ["worker", pytest.param("driver", marks=pytest.mark.long)])
def test_a_commit_whose_answer_is_lost_counts_after_a_kill(exact: Exact, proxied_broker: ProxiedBroker, victim: str) -> None:
    proxied_broker.proxy.drop_response(END_TXN, wanted=is_commit, close=False)
    wait_until(lambda: proxied_broker.proxy.dropped, 60, "no answer was lost")
    if victim == "driver":
        exact.kill_driver()
        exact.start()
    else:
        for worker in exact.workers():
            kill(worker)
    exact.settled()


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_a_broker_that_is_killed_and_started_again_costs_nothing(exact: Exact, proxied_broker: ProxiedBroker, rounds: int) -> None:
    for _ in range(rounds):
        proxied_broker.broker.kill()
        proxied_broker.broker.start()
        exact.flows()
    exact.settled()


@pytest.mark.parametrize("reset", [False, pytest.param(True, marks=pytest.mark.long)], ids=["closed", "reset"])
def test_connections_that_break_cost_nothing(exact: Exact, proxied_broker: ProxiedBroker, reset: bool) -> None:
    for key in (PRODUCE, END_TXN):
        proxied_broker.proxy.catch(key).wait()
        proxied_broker.proxy.disconnect(reset=reset)
        exact.flows()
    exact.settled()


@pytest.mark.parametrize(
    ("rounds", "victims"),
    [
        (1, ("daemon", "jvm")),  # a lost answer has a worker killed, see above
        pytest.param(10, ("worker", "daemon", "jvm"), marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_nothing_is_lost_or_repeated_whatever_spark_process_is_killed(
    exact: Exact, rng: random.Random, rounds: int, victims: tuple[str, ...]
) -> None:
    for _ in range(rounds):
        for victim in rng.sample(victims, len(victims)):
            process = exact.process(victim)
            if victim == "jvm" and rounds > 1:
                wait_until(lambda: exact.jvm_seconds() > OLD_SECONDS, 60, "it does not age")
            kill(process)
            exact.flows()
    exact.settled()


@pytest.mark.parametrize("places", [["claimed"], pytest.param(["fenced", "claimed"], marks=pytest.mark.long)])
def test_nothing_is_lost_or_repeated_when_one_start_after_the_other_dies(exact: Exact, places: list[str]) -> None:
    exact.kill_driver()
    for place in places:
        exact.start_at(place)
        assert exact.agent.wait(120) == -9
    exact.start()
    exact.settled()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_repeated_when_the_driver_is_killed_while_it_starts(exact: Exact, rng: random.Random) -> None:
    for _ in range(30):
        exact.kill_driver()
        exact.start()
        time.sleep(rng.uniform(0, START_SECONDS))  # the moment is what is drawn: nothing is waited for
    exact.kill_driver()
    exact.start()
    exact.settled()


@pytest.mark.long
@pytest.mark.parametrize("place", NAMES)
def test_nothing_is_lost_or_repeated_when_a_process_dies_at(exact: Exact, rng: random.Random, place: str) -> None:
    exact.kill_driver()
    once = exact.start_at(place, 1 if place in {"start", "fenced", "claimed", "recovering"} else rng.choice([1, 2, 5]))
    if place == "recovering":  # it takes an unknown outcome to come there
        exact.flows()
        for _ in range(5):
            if not once.exists():
                kill(exact.process("worker"))
                exact.flows()
    wait_until(once.exists, 120, f"nobody came to {place}")
    pid = wait_until(once.read_text, 60, "no pid")
    wait_until(lambda: not psutil.pid_exists(int(pid)) or not is_alive(psutil.Process(int(pid))), 60, f"{pid} lives")
    is_driver = int(pid) == exact.agent.pid
    assert place == "committing" or is_driver == (place not in TASKS)  # claims of the driver are committed, too
    if is_driver:
        assert exact.agent.wait(60) == -9
        exact.start()
    exact.settled()


@pytest.mark.parametrize("seconds", [3, pytest.param(75, marks=[pytest.mark.long, pytest.mark.timeout(700)])])
def test_an_agent_that_is_stopped_and_goes_on_redoes_what_was_open(exact: Exact, proxied_broker: ProxiedBroker, seconds: int) -> None:
    everything = [psutil.Process(exact.agent.pid), *exact.agent.descendants()]
    proxied_broker.proxy.catch(PRODUCE, wanted=mentions(OFFSETS_TOPIC), call=lambda: suspend(everything)).wait()
    time.sleep(seconds)  # longer than the broker keeps a transaction open, for the long one
    resume(everything)
    exact.flows()
    exact.settled()


@NEEDS_COMPILER
@pytest.mark.long
def test_workers_that_outlive_their_daemon_are_harmless(exact: Exact) -> None:
    exact.outlive()
    for _ in range(5):
        orphans = exact.workers()
        kill(exact.process("daemon"))
        exact.flows()
        print("outlived their daemon:", [process.pid for process in orphans if is_alive(process)])
    exact.settled()


@pytest.mark.long
@pytest.mark.timeout(700)
def test_a_task_that_hangs_holds_up_no_other_and_is_ended_at_its_deadline(exact: Exact) -> None:
    exact.kill_driver()
    once = exact.start_at("sending", 5, "hang")
    wait_until(once.exists, 60, "nothing hangs")
    exact.flows()
    wait_until(lambda: "runner does not answer and is killed" in exact.agent.log, 180, lambda: exact.agent.log[-3000:])
    exact.settled()
