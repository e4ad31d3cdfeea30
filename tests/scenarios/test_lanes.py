"""Connectors whose guarantee is exactly_once, in this process, on a real broker: what a read_committed consumer sees."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest

from copycat_agent.executor import InlineExecutor
from copycat_agent.worker import Status
from tests.rig.kafka import consume
from tests.rig.shipping import Shipping
from tests.rig.waiting import wait_until
from tests.unit.worker.fake_kafka import gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.executor import Results
    from copycat_agent.model import Batch, TaskId
    from copycat_agent.watch import Watcher

EXACTLY_ONCE = {"guarantee": "exactly_once"}


@pytest.fixture(scope="module")
def inline() -> Iterator[InlineExecutor]:
    """Batches run in this process."""
    executor = InlineExecutor()
    yield executor
    executor.close()


@pytest.fixture
def shipping(
    tmp_path: Path, broker: DevBroker, inline: InlineExecutor, watcher: Watcher, make_topic: Callable[..., str]
) -> Iterator[Shipping]:
    shipping = Shipping(tmp_path, "app", broker.bootstrap, make_topic(), inline, watcher)
    yield shipping
    shipping.close()


def committed(shipping: Shipping, count: int | None = None) -> list[str]:
    """What a read_committed consumer sees, sorted."""
    return sorted((one.value or b"").decode() for one in consume(shipping.bootstrap, shipping.topic, "read_committed", count))


def write(path: Path, first: int, last: int) -> list[str]:
    lines = [f"line {number:05}" for number in range(first, last)]
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return lines


def settled(shipping: Shipping) -> Status:
    wait_until(lambda: not shipping.status.lag.bytes and not shipping.status.tasks, message=lambda: f"{shipping.status}")
    return shipping.status


def test_lines_are_committed_once_over_restarts(shipping: Shipping) -> None:
    log = shipping.logs / "a.log"
    expected = write(log, 0, 500)
    shipping.start(delivery=EXACTLY_ONCE)
    assert committed(shipping, 500) == expected
    expected += write(log, 500, 600)
    assert committed(shipping, 600) == expected
    status = settled(shipping)
    assert status.lane_outcomes["committed"] >= 2
    assert status.lanes.keys() == {0, 1, 2, 3} or status.lanes
    shipping.stop()
    expected += write(log, 600, 700)
    shipping.start(delivery=EXACTLY_ONCE)
    assert committed(shipping, 700) == expected
    settled(shipping)
    shipping.stop()
    assert committed(shipping) == expected


class Forgetful:
    """An executor that loses answers: what a runner's end does. `lost`: so many of the next; before the batch or behind it."""

    def __init__(self, executor: InlineExecutor) -> None:
        self._executor = executor
        self.lost = 0
        self.before = False

    def submit(self, batch: Batch) -> Results:
        if not self.lost:
            return self._executor.submit(batch)
        self.lost -= 1
        future: Results = Future()
        if self.before:
            future.set_result(gone(batch))
        else:
            self._executor.submit(batch).add_done_callback(lambda _: future.set_result(gone(batch)))
        return future

    def settle(self, task: TaskId) -> None:
        self._executor.settle(task)

    def close(self) -> None:
        pass


@pytest.fixture
def forgetful(shipping: Shipping, inline: InlineExecutor) -> Forgetful:
    executor = Forgetful(inline)
    shipping._executor = executor
    return executor


@pytest.mark.parametrize("before", [False, True])
def test_lost_answers_cost_neither_lines_nor_repeats(shipping: Shipping, forgetful: Forgetful, *, before: bool) -> None:
    forgetful.lost, forgetful.before = 2, before
    expected = write(shipping.logs / "a.log", 0, 100) + write(shipping.logs / "b.log", 100, 200)
    shipping.start(delivery=EXACTLY_ONCE)
    assert committed(shipping, 200) == expected
    status = settled(shipping)
    assert status.lane_outcomes["unknown"] == 2
    assert status.counts.acknowledged == 200
    shipping.stop()
    assert committed(shipping) == expected


def test_spooled_files_are_sent_once_though_answers_are_lost(shipping: Shipping, forgetful: Forgetful) -> None:
    expected = write(shipping.logs / "a.log", 0, 100)
    spool = {"type": "spool_dir", "pattern": "*.log", "cleanup": {"policy": "delete"}}
    forgetful.lost = 1
    shipping.start(source=spool, delivery=EXACTLY_ONCE)
    assert committed(shipping, 100) == expected
    wait_until(lambda: not list(shipping.logs.iterdir()), message=lambda: f"{shipping.status}")
    shipping.stop()
    assert committed(shipping) == expected


def test_a_lost_store_is_made_anew_from_kafka(shipping: Shipping) -> None:
    log = shipping.logs / "a.log"
    expected = write(log, 0, 100)
    shipping.start(delivery=EXACTLY_ONCE)
    assert committed(shipping, 100) == expected
    settled(shipping)
    shipping.stop()
    for path in shipping.state_dir.glob("offsets.db*"):
        path.unlink()
    expected += write(log, 100, 150)
    shipping.start(delivery=EXACTLY_ONCE)
    assert committed(shipping, 150) == expected
    settled(shipping)
    shipping.stop()
    assert committed(shipping) == expected


def test_a_run_to_the_end_commits_everything(shipping: Shipping) -> None:
    expected = write(shipping.logs / "a.log", 0, 3000)
    shipping.start(until_idle=True, delivery=EXACTLY_ONCE)
    shipping.wait_idle()
    shipping.stop()
    assert committed(shipping) == expected


def test_what_ran_without_lanes_goes_on_with_them_and_back(shipping: Shipping) -> None:
    log, expected = shipping.logs / "a.log", []
    for number, guarantee in enumerate(("at_least_once", "exactly_once", "at_least_once", "exactly_once")):
        expected += write(log, number * 50, number * 50 + 50)
        shipping.start(delivery={"guarantee": guarantee})
        assert committed(shipping, len(expected)) == expected
        settled(shipping)
        shipping.stop()
    assert committed(shipping) == expected
