"""Kills of whatever runs a reader, with exactly_once: nothing is lost, and nothing is sent twice."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import psutil
import pytest

from tests.datasource.conftest import arrived, of
from tests.rig.agent import killed
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker
    from tests.datasource.conftest import Shop
    from tests.rig.agent import AgentProcess

ROWS = 20
"""Rows that are added at a time."""


class Filling:
    """Adds rows on a thread, until it is told to stop."""

    def __init__(self, shop: Shop) -> None:
        self.rows = 0
        self._shop = shop
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="filling")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self._shop.add(self.rows + 1, self.rows + ROWS)
            self.rows += ROWS


def planning(agent: AgentProcess) -> list[psutil.Process]:
    return [one for one in agent.python_processes() if "copycat_agent.sources.datasource.process" in _line(one)]


def workers(agent: AgentProcess) -> list[psutil.Process]:
    return [one for one in agent.python_processes() if "copycat_agent.spark.daemon" in _line(one) or "pyspark.daemon" in _line(one)]


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill_round(agent: AgentProcess, here: dict[str, str], victim: str) -> None:
    """Kill one process, chosen by its kind; one that is not there is waited for."""
    if victim == "agent":
        agent.kill()
        agent.start(env=here)
        return
    of_kind: Callable[[AgentProcess], list[psutil.Process]] = planning if victim == "planning" else workers
    wait_until(lambda: any(map(killed, of_kind(agent))), 90, lambda: f"{victim}: {agent.log[-2000:]}")


def run_kills(
    agent: AgentProcess, bootstrap: str, topic: str, shop: Shop, here: dict[str, str], victims: list[str], pause: Callable[[], float]
) -> None:
    agent.start(env=here)
    with Filling(shop) as filling:
        consume(bootstrap, topic, until=1, deadline=180.0)
        for victim in victims:
            kill_round(agent, here, victim)
            time.sleep(pause())
            seen = len(arrived(bootstrap, topic))
            consume(bootstrap, topic, "read_committed", until=seen + 1, deadline=120.0)  # it goes on
    wait_until(lambda: len(arrived(bootstrap, topic)) >= filling.rows, 120, lambda: agent.log[-2000:])
    agent.stop()
    assert arrived(bootstrap, topic) == list(range(1, filling.rows + 1)), "each row once, in its order"


def definition(shop: Shop, topic: str, *, replayable: bool) -> dict[str, Any]:
    source = of("orders:Orders", {"database": shop.path}, poll_interval="100ms", replayable=replayable)
    return {"source": source, "record": {"topic": topic}, "delivery": {"guarantee": "exactly_once"}}


@pytest.mark.timeout(420)
def test_a_worker_what_plans_and_the_agent_are_killed_and_each_row_is_there_once(
    agent: AgentProcess, broker: DevBroker, topic: str, shop: Shop, here: dict[str, str]
) -> None:
    agent.define("orders", definition(shop, topic, replayable=False))
    run_kills(agent, broker.bootstrap, topic, shop, here, ["planning", "worker", "agent"], lambda: 0.5)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("replayable", [False, True])
def test_many_kills(
    replayable: bool, agent: AgentProcess, broker: DevBroker, topic: str, shop: Shop, here: dict[str, str], rng: random.Random
) -> None:
    agent.define("orders", definition(shop, topic, replayable=replayable))
    victims = [rng.choice(["planning", "worker", "worker", "agent"]) for _ in range(30)]
    run_kills(agent, broker.bootstrap, topic, shop, here, victims, lambda: rng.uniform(0.0, 1.5))
