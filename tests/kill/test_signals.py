"""SIGTERM, SIGINT, dead and hanging children: how an agent ends, and when it does not."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kill.conftest import definition
from tests.kill.killing import found, kill
from tests.kill.load import Topic
from tests.rig.kafka import create_topic, unique_topic
from tests.rig.requests import PRODUCE, mentions
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker
    from tests.conftest import ProxiedBroker
    from tests.kill.load import Load
    from tests.rig.agent import AgentProcess
    from tests.rig.ledger import Ledger

pytestmark = pytest.mark.timeout(600)
"""Agents start and end in them, which takes long on a machine that does much else."""
STOPPING = "agent is asked to stop"
"""The event that tells of the first signal."""


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
def test_sigterm_under_load_exits_0_and_nothing_is_lost_or_repeated(
    loaded_agent: AgentProcess, load: Load, target: Topic, ledger: Ledger, broker: DevBroker, rng: random.Random, times: int
) -> None:
    with load:
        for _ in range(times):
            loaded_agent.start()
            target.wait_growth()
            load.wait_lines(rng.randrange(2000))
            loaded_agent.stop()
    loaded_agent.start()
    verdict = ledger.verify_topic(broker.bootstrap, target.name, deadline=180)
    loaded_agent.stop()
    assert verdict, verdict


def test_sigterm_while_spark_still_starts_exits_0_at_once(loaded_agent: AgentProcess, logs_dir: Path) -> None:
    (logs_dir / "app.log").write_text("a line\n" * 1000)
    loaded_agent.start()
    wait_until(lambda: '"state": "running"' in loaded_agent.log, 60, lambda: loaded_agent.log)
    loaded_agent.stop()
    assert "stopped before everything in flight" not in loaded_agent.log, "it has waited for what no Spark will ever settle"


def _takes_signals(pid: int) -> bool:
    """Whether a handler of SIGTERM is there: Python itself has started, which takes 30 ms and is not ours to cover."""
    (caught,) = [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) & 1 << (signal.SIGTERM - 1))


@pytest.mark.parametrize("times", [1, pytest.param(40, marks=(pytest.mark.long, pytest.mark.timeout(600)))])
def test_sigterm_at_any_moment_of_the_start_exits_0(loaded_agent: AgentProcess, rng: random.Random, times: int) -> None:
    for _ in range(times):
        loaded_agent.start()
        wait_until(lambda: _takes_signals(loaded_agent.pid), 60, "it takes signals")
        time.sleep(rng.choice((0.0, rng.uniform(0, 1), rng.uniform(0, 4))))  # the moment is what is drawn: nothing is waited for
        loaded_agent.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_second_signal_exits_at_once_and_leaves_no_process(
    proxied_broker: ProxiedBroker, make_agent: Callable[..., AgentProcess], logs_dir: Path, load: Load, number: signal.Signals
) -> None:
    topic = Topic(proxied_broker.bootstrap, create_topic(proxied_broker.bootstrap, unique_topic()), 1)
    agent = make_agent(proxied_broker.bootstrap)
    agent.define("app", definition(logs_dir, topic.name))
    agent.start()
    with load:
        topic.wait_growth()
        topic.close()
        caught = proxied_broker.proxy.catch(PRODUCE, wanted=mentions(topic.name), call=proxied_broker.broker.pause)
        caught.wait()  # it is in flight, and stays there
        agent.signal(number)
        wait_until(lambda: STOPPING in agent.log, 60, lambda: agent.log)
        agent.signal(number)
        assert agent.wait() == (130 if number == signal.SIGINT else 143)
    wait_until(lambda: not agent.descendants(), 60, lambda: f"left behind: {agent.descendants()}")


@pytest.mark.parametrize(
    ("ups", "words"),
    [
        (1, r"Spark failed 3 times within \d+ s, 2 of them before it was up and 1 soon after: .*SIGKILL"),
        pytest.param(0, "Spark did not come up 3 times in a row: .*SIGKILL", marks=pytest.mark.long),
        pytest.param(3, r"Spark's JVM ended 3 times within \d+ s, each time soon after it had come up: .*SIGKILL", marks=pytest.mark.long),
    ],
)
def test_a_jvm_that_dies_three_times_when_it_is_young_ends_the_agent_with_75(loaded_agent: AgentProcess, ups: int, words: str) -> None:
    loaded_agent.start()
    for times in range(1, 4):
        jvm = found(loaded_agent.jvm, lambda: loaded_agent.log)  # before it is up: soon after that it is to be killed
        if times <= ups:
            wait_until(lambda times=times: loaded_agent.log.count("Spark is up") == times, 150, lambda: loaded_agent.log)  # type: ignore[misc]
        kill(jvm)
    assert loaded_agent.wait(60) == 75, loaded_agent.log
    assert re.search(f"error: {words}", loaded_agent.log), loaded_agent.log
    wait_until(lambda: not loaded_agent.descendants(), 60, lambda: f"left behind: {loaded_agent.descendants()}")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_worker_that_hangs_is_killed_at_its_deadline_and_nothing_is_lost(
    loaded_agent: AgentProcess, load: Load, target: Topic, ledger: Ledger, broker: DevBroker
) -> None:
    loaded_agent.start()
    with load:
        target.wait_growth()
        workers = loaded_agent.python_processes()[1:]
        for worker in workers:
            worker.suspend()
        wait_until(lambda: "runner hangs and is killed" in loaded_agent.log, 120, lambda: loaded_agent.log[-3000:])
        target.wait_growth(120)
    verdict = ledger.verify_topic(broker.bootstrap, target.name)
    assert verdict.is_complete, verdict
    loaded_agent.stop()
