"""kill -9 of a worker and of an agent that mirror a topic of transactions, some of them undone: each record once, or at least once."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from tests.kafka.conftest import Writer, numbered, of, whole
from tests.kill.killing import kill_worker
from tests.rig.kafka import consume, wait_for_markers
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

SECONDS = 180


@pytest.mark.timeout(600)
@pytest.mark.parametrize("guarantee", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.long)])
def test_a_mirror_survives_kills(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], rng: random.Random, guarantee: str
) -> None:
    origin, target = make_topic(2), make_topic(2)
    writer, stop, committed = Writer(broker.bootstrap, origin), threading.Event(), [0]

    def write() -> None:
        number = 0
        while not stop.wait(0.1):
            records = [one for partition in (0, 1) for one in numbered(number, rng.randrange(1, 20), partition)]
            number += 1000
            if rng.random() < 0.3:
                writer.abort(records)
            else:
                writer.commit(records)
                committed[0] += len(records)

    def arrived() -> int:
        return len(consume(broker.bootstrap, target, "read_committed"))

    def goes_on() -> None:
        wanted = max(committed[0], arrived() + 1)
        wait_until(lambda: arrived() >= wanted, SECONDS, lambda: f"nothing arrives; the log ends:\n{agent.log[-3000:]}")

    writing = threading.Thread(target=write)
    writing.start()
    try:
        delivery = {"guarantee": guarantee, "max_batch_bytes": "64KiB"}
        agent.define("mirror", {"source": of(origin), "record": {"topic": target, "partition": "source"}, "delivery": delivery})
        agent.start()
        goes_on()
        kill_worker(agent)
        goes_on()
        agent.kill()
        agent.start()
        goes_on()
    finally:
        stop.set()
        writing.join()
    wait_for_markers(broker.bootstrap, origin)
    original = whole(consume(broker.bootstrap, origin, "read_committed"))

    def is_same() -> bool:
        copy = whole(consume(broker.bootstrap, target, "read_committed"))
        once = {number: list(dict.fromkeys(records)) for number, records in copy.items()}
        return (copy if guarantee == "exactly_once" else once) == original

    wait_until(is_same, SECONDS, lambda: f"{committed[0]} and {arrived()}; the log ends:\n{agent.log[-3000:]}")
    agent.stop()
    assert is_same()
