"""The way to Kafka is cut, swallows everything, or the broker stands still: nothing is lost, few words, flat memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.faults.scene import Memory, Trickle
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import ProxiedBroker
    from tests.faults.scene import Scene

GROWTH_MIB = 64
"""What all processes together may take more during a fault than before it."""
WORDS_PER_MINUTE = 15
"""Lines at WARNING and above that one fault may cost in a minute."""
pytestmark = pytest.mark.timeout(300)
"""More than PATIENCE_SECONDS, which may be needed."""
STAND_STILL = ["cut", "blackhole", "freeze"]
PATIENCE_SECONDS = 120.0
"""librdkafka may take so long to notice that something which swallowed its requests answers again."""


def strike(proxied: ProxiedBroker, fault: str) -> Callable[[], None]:
    """Do it; returns what undoes it."""
    strikes = {"cut": proxied.proxy.cut, "blackhole": proxied.proxy.blackhole, "freeze": proxied.broker.pause}
    strikes[fault]()
    return {"cut": proxied.proxy.forward, "blackhole": proxied.proxy.reset, "freeze": proxied.broker.resume}[fault]


def endure(scene: Scene, proxied: ProxiedBroker, fault: str, seconds: float, name: str) -> None:
    """Lines are written before, during and after the fault, which lasts `seconds`. Asserts the promise."""
    writers = [scene.writer(f"{name}-{number}.log") for number in range(3)]
    written = scene.ledger.written
    with Memory(scene.agent) as memory, Trickle(writers, 1000):
        wait_until(lambda: scene.ledger.written > written + 300 and memory.mark() > 1, message="lines are written")
        heal, begun, said, struck = strike(proxied, fault), memory.mark(), len(scene.events()), time.monotonic()
        time.sleep(seconds)  # the fault lasts: there is no condition to wait for
        heal()
        ended, written = memory.mark(), scene.ledger.written
        wait_until(lambda: scene.ledger.written > written + 300, message="lines are written")
    scene.wait_arrived(PATIENCE_SECONDS)
    verdict = scene.verdict()
    assert (verdict.lost, verdict.phantom, verdict.corrupt) == (0, 0, 0), verdict
    assert memory.most(begun, ended) < memory.mean(0, begun) + GROWTH_MIB, memory.samples
    wait_until(lambda: scene.state == "running", 60, lambda: scene.state)
    loud = [line for line in scene.events()[said:] if line["level"] != "info"]
    assert len(loud) <= WORDS_PER_MINUTE * (1 + (time.monotonic() - struck) / 60), loud  # it has an end when all has arrived
    print(f"{fault} of {seconds} s: {verdict}; {memory.mean(0, begun):.0f} MiB before, at most {memory.most(begun):.0f}; said {loud}")


@pytest.mark.parametrize(("fault", "seconds"), [("cut", 1), ("blackhole", 1), ("freeze", 2)])
def test_what_stands_still_for_a_moment_costs_nothing(scene: Scene, proxied_broker: ProxiedBroker, fault: str, seconds: float) -> None:
    endure(scene, proxied_broker, fault, seconds, f"short-{fault}")


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", STAND_STILL)
@pytest.mark.parametrize("seconds", [10, 45])
def test_what_stands_still_for_long_loses_nothing(scene: Scene, proxied_broker: ProxiedBroker, fault: str, seconds: float) -> None:
    endure(scene, proxied_broker, fault, seconds, f"long-{fault}-{seconds}")
