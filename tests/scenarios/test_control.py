"""A person pauses, stops and restarts a connector while lines are written, on a real broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from copycat_agent.worker import State
from tests.rig.kafka import create_topic
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, descriptors, numbers, settled, wait_read

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.worker import Worker
    from tests.rig.shipping import Shipping


def worker_of(shipping: Shipping) -> Worker:
    assert shipping._worker is not None
    return shipping._worker


def test_stop_append_resume_sends_each_line_once(shipping: Shipping, logs_dir: Path) -> None:
    path = logs_dir / "a.log"
    append(path, *numbers(0, 500))
    worker = worker_of(shipping.start())
    wait_read(shipping, 500)
    worker.halt("app")
    wait_until(lambda: shipping.status.state is State.STOPPED, message=lambda: f"{shipping.status}")
    assert descriptors(logs_dir) == []
    append(path, *numbers(500, 1000))
    worker.resume("app")
    wait_read(shipping, 1000)
    worker.restart("app")
    append(path, "1000")
    assert settled(shipping, range(1001)) == numbers(0, 1001)


def test_a_pause_lives_through_a_restart_of_the_agent_and_a_rotation(shipping: Shipping, logs_dir: Path) -> None:
    path = logs_dir / "a.log"
    append(path, *numbers(0, 100))
    worker = worker_of(shipping.start())
    wait_read(shipping, 100)
    worker.pause("app")
    wait_until(lambda: shipping.status.state is State.PAUSED, message=lambda: f"{shipping.status}")
    append(path, *numbers(100, 200))
    path.rename(logs_dir / "a.log.1")
    append(path, *numbers(200, 300))
    wait_until(lambda: shipping.status.lag.known_files == 2, message="both are known")
    shipping.stop()
    worker = worker_of(shipping.start())
    wait_until(lambda: shipping.status.state is State.PAUSED, message=lambda: f"{shipping.status}")
    append(path, *numbers(300, 400))
    assert len(shipping.lines()) == 100
    worker.resume("app")
    assert settled(shipping, range(400)) == numbers(0, 400)


def test_a_file_whose_topic_is_missing_holds_up_no_other_although_it_is_alone_in_its_batch(
    shipping: Shipping, logs_dir: Path, broker: DevBroker
) -> None:
    prefix = shipping.topic
    shipping.topic = f"{prefix}.good.log"
    create_topic(broker.bootstrap, shipping.topic)
    append(logs_dir / "bad.log", *numbers(0, 10))
    shipping.start(record={"topic": f"{prefix}.{{@file.name}}"})
    wait_until(lambda: shipping.status.state is State.BLOCKED, message=lambda: f"{shipping.status}")
    append(logs_dir / "good.log", *numbers(0, 100))
    assert shipping.lines(until=100) == numbers(0, 100)
    assert [offset.position for offset in shipping.offsets.values() if offset.path.endswith("bad.log")] == [0]
    create_topic(broker.bootstrap, f"{prefix}.bad.log")
    shipping.topic = f"{prefix}.bad.log"
    worker_of(shipping).restart("app")
    assert settled(shipping, range(10)) == numbers(0, 10)


def test_limits_slow_down_and_drop_nothing(shipping: Shipping, logs_dir: Path) -> None:
    for name in "abc":
        append(logs_dir / name, *[f"{name}{number}" for number in range(500)])
    begun = time.time()
    shipping.start(limits={"records_per_second": 500})
    assert shipping.lines(until=1)
    wait_read(shipping, 1500)
    assert shipping.status.acknowledged_at - begun >= 1500 / 500 - 1.05, "at most one second's worth in advance"
    arrived = settled(shipping, range(1500))
    assert sorted(arrived) == sorted(f"{name}{number}" for name in "abc" for number in range(500))
