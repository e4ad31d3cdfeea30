"""Two agents with one connector and one store: one that was stopped wakes long after the other has gone on, or both go on at once."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from copycat_agent.failpoints import ONCE, VARIABLE
from tests.lake.conftest import Lake, as_json, definition_of, number_of, send
from tests.lake.written import assert_each_once, files_below, written
from tests.rig.kafka import consume
from tests.rig.shipping import running_here
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

PLACES = ("files-uploaded", "files-checked", "files-published")
SENDS = 100
RANGES_KEPT = 200
"""Claims are pruned once there are so many."""


class Pair:
    """Two agents over one topic, with a state directory each."""

    def __init__(self, one: AgentProcess, other: AgentProcess, topic: str, root: Path, *, partitions: int) -> None:
        self.one, self.other, self.topic, self.root = one, other, topic, root
        self.partitions = partitions
        self.count = 0

    def define(self, **roll: Any) -> None:
        for agent in (self.one, self.other):
            sink = {"path": "{@topic}", "roll": {"age": "300ms", **roll}}
            agent.define("lake", definition_of("lake", [self.topic], self.root, sink=sink, errors={"retry_max_delay": "500ms"}))

    def send(self, count: int) -> None:
        numbers = range(self.count, self.count + count)
        send(self.one.bootstrap, self.topic, as_json(({"n": number} for number in numbers), self.partitions))
        self.count += count

    def wait_written(self, deadline: float = 120.0) -> None:
        wait_until(
            lambda: sum(len(one.rows) for one in written(self.root)) >= self.count,
            deadline,
            lambda: f"of {self.count}:\n{self.one.log[-2000:]}\n{self.other.log[-2000:]}",
        )

    def check(self) -> None:
        assert_each_once(written(self.root), consume(self.one.bootstrap, self.topic), number_of)


@pytest.fixture
def make_pair(
    make_agent: Callable[..., AgentProcess], broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> Iterator[Callable[[int], Pair]]:
    made = []

    def make(partitions: int) -> Pair:
        one, other = (make_agent(broker.bootstrap, name) for name in ("one", "other"))
        made.append(Pair(one, other, make_topic(partitions), tmp_path / "lake", partitions=partitions))
        return made[-1]

    yield make
    for pair in made:
        for agent in (pair.one, pair.other):
            if agent.is_running:
                freeze(agent, signal.SIGCONT)


def freeze(agent: AgentProcess, number: int = signal.SIGSTOP) -> None:
    """The agent and all that it started."""
    for process in [psutil.Process(agent.pid), *agent.descendants()]:
        with suppress(psutil.NoSuchProcess):  # one that has just ended by itself
            process.send_signal(number)


def is_stopped(once: Path) -> bool:
    """The process that stopped itself at a failpoint."""
    return psutil.Process(int(once.read_text())).status() == psutil.STATUS_STOPPED


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", ["files-claimed", *(pytest.param(place, marks=pytest.mark.long) for place in PLACES)])
def test_one_that_wakes_long_after_the_other_went_on_writes_nothing_twice(
    make_pair: Callable[[int], Pair], tmp_path: Path, place: str
) -> None:
    pair = make_pair(1)
    pair.define(records=5)
    pair.send(10)
    pair.other.start()
    pair.wait_written()
    freeze(pair.other)
    once = tmp_path / place
    pair.one.start(env={VARIABLE: f"{place}:1:stop", ONCE: str(once)})
    wait_until(lambda: "Spark is up" in pair.one.log, 120)
    pair.send(20)
    wait_until(once.exists, 120, lambda: pair.one.log[-3000:])
    wait_until(partial(is_stopped, once), 60)
    freeze(pair.one)
    before = len(files_below(pair.root))
    freeze(pair.other, signal.SIGCONT)
    pair.send(100 if place != "files-uploaded" else 6 * RANGES_KEPT)
    pair.wait_written(300)
    assert len(files_below(pair.root)) > before + 10, "several ranges, claims of which are gone where there were many"
    freeze(pair.one, signal.SIGCONT)
    wait_until(lambda: not is_stopped(once), 30)
    pair.send(50)
    pair.wait_written()
    pair.check()
    pair.one.kill()
    pair.other.stop()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_that_compete_write_each_record_once(make_pair: Callable[[int], Pair]) -> None:
    pair = make_pair(3)
    pair.define(records=50)
    for agent in (pair.one, pair.other):
        agent.start()
    sent, deadline = 0, time.monotonic() + 120
    while time.monotonic() < deadline and (sent < SENDS or not any("by another agent" in one.log for one in (pair.one, pair.other))):
        pair.send(20)
        sent += 1
        time.sleep(0.1)
    pair.wait_written()
    for agent in (pair.one, pair.other):
        agent.stop()
    pair.check()
    winners = {agent.root.name: "by another agent" in agent.log for agent in (pair.one, pair.other)}
    assert any(winners.values()), "they did compete"


def test_two_workers_of_one_process_that_compete_write_each_record_once(
    broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Short of the above: each has a state directory of its own, as an agent has."""
    topic, sink = make_topic(3), {"uri": f"file://{tmp_path}/lake/", "path": "{@topic}", "roll": {"records": 50, "age": "300ms"}}
    sent = 0
    with ExitStack() as undo:
        pair: list[Lake] = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            pair.append(undo.enter_context(running_here(Lake, tmp_path / name, "lake", broker.bootstrap, topic)))
            pair[-1].start(sink=sink, errors={"retry_max_delay": "500ms"})

        def compete() -> bool:
            nonlocal sent
            pair[0].send(as_json(({"n": number} for number in range(sent, sent + 20)), 3))
            sent += 20
            return "by another agent" in f"{caplog.text} {[one.status.reason for one in pair]}"

        wait_until(compete, 60, "they did not compete")
        wait_until(lambda: sum(len(one.rows) for one in written(tmp_path / "lake")) >= sent, 60, lambda: f"{[one.status for one in pair]}")
    assert_each_once(written(tmp_path / "lake"), consume(broker.bootstrap, topic), number_of)
