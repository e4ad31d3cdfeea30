"""A long outage of the broker while logs are written and rotated: memory stays flat, and everything is delivered afterwards."""

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
WARM_SECONDS = 15
LINES_PER_SECOND = 1000
FILES = 4


@pytest.mark.long
@pytest.mark.parametrize(
    ("seconds", "rotate_seconds"),
    [pytest.param(75, 10, marks=pytest.mark.timeout(400)), pytest.param(1800, 60, marks=pytest.mark.timeout(2700))],
)
def test_memory_is_flat_while_the_broker_is_away_and_everything_arrives_afterwards(
    make_scene: Callable[..., Scene], proxied_broker: ProxiedBroker, seconds: int, rotate_seconds: int
) -> None:
    scene = make_scene(bootstrap=proxied_broker.bootstrap)
    writers = [scene.writer(f"app{number}.log") for number in range(FILES)]
    writers[0].write(1)
    scene.start()
    with Memory(scene.agent) as memory, Trickle(writers, LINES_PER_SECOND, rotate_seconds) as load:
        time.sleep(WARM_SECONDS)
        proxied_broker.proxy.cut()
        begun, said, missed = memory.mark(), len(scene.events()), scene.ledger.written
        time.sleep(seconds)
        loud = [line for line in scene.events()[said:] if line["level"] != "info"]
        missed = scene.ledger.written - missed
        proxied_broker.proxy.forward()
        ended, healed = memory.mark(), time.monotonic()
        wait_until(lambda: scene.state == "running", 120, lambda: scene.state)
        scene.wait_arrived(300)
        caught_up = time.monotonic() - healed
        time.sleep(WARM_SECONDS)
    scene.wait_arrived()
    verdict = scene.verdict()
    print(
        f"away {seconds} s, {missed} lines written meanwhile, {load.rotations} rotations of {FILES} files; "
        f"caught up {caught_up:.1f} s after\n"
        f"{verdict}\nMiB before: mean {memory.mean(0, begun):.0f}, most {memory.most(0, begun):.0f}; "
        f"during: first tenth {memory.mean(begun, begun + (ended - begun) // 10):.0f}, last tenth "
        f"{memory.mean(ended - (ended - begun) // 10, ended):.0f}, most {memory.most(begun, ended):.0f}; "
        f"after: most {memory.most(ended):.0f}\n"
        f"said {len(loud)} times at WARNING and above: {[(line['level'], line['event']) for line in loud]}"
    )
    assert verdict.is_complete, verdict
    assert memory.most(begun, ended) < memory.mean(0, begun) + GROWTH_MIB, memory.samples
    assert len(loud) <= 10 + seconds / 60 * 5, loud
    scene.settle()
    scene.agent.stop()
