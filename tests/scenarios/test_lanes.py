"""Connectors whose guarantee is exactly_once, in this process, on a real broker: what a read_committed consumer sees."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.delivery.exactly_once.opening_attempts import OPENINGS_AT_ONCE, KafkaAccess, kafka_access
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.worker import State, Status, Worker
from tests.rig.kafka import consume, wait_for_markers
from tests.rig.shipping import Shipping
from tests.rig.waiting import wait_until
from tests.unit.worker.fake_kafka import gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.delivery.base import PendingResults
    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.executor import InlineExecutor
    from copycat_agent.model import Batch, OffsetsPartition, TaskId
    from copycat_agent.options import Definition
    from copycat_agent.watch import Watcher

EXACTLY_ONCE = {"guarantee": "exactly_once"}


@pytest.fixture
def shipping(
    tmp_path: Path, broker: DevBroker, inline: InlineExecutor, watcher: Watcher, make_topic: Callable[..., str]
) -> Iterator[Shipping]:
    shipping = Shipping(tmp_path, "app", broker.bootstrap, make_topic(), inline, watcher)
    yield shipping
    shipping.close()


def committed(shipping: Shipping, count: int | None = None) -> list[str]:
    """What a read_committed consumer sees, sorted; without a count once every transaction is at its end."""
    if count is None:
        wait_for_markers(shipping.bootstrap, shipping.topic)
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
    wait_until(lambda: shipping.status.delivery_outcomes["committed"] >= 2, message=lambda: f"{shipping.status}")
    status = settled(shipping)
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

    def submit(self, batch: Batch) -> PendingResults:
        if not self.lost:
            return self._executor.submit(batch)
        self.lost -= 1
        future: PendingResults = Future()
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
    wait_until(lambda: shipping.status.counts.acknowledged == 200, message=lambda: f"{shipping.status}")
    status = settled(shipping)
    assert status.delivery_outcomes["unknown"] == 2
    assert status.counts.acknowledged == 200
    shipping.stop()
    assert committed(shipping) == expected


def test_a_broker_that_hides_what_was_committed_costs_neither_lines_nor_repeats(
    shipping: Shipping, forgetful: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that is cut off from the others."""
    end, shown = KafkaSteps.end, list[int]()
    expected = write(shipping.logs / "a.log", 0, 100)

    def shown_end(steps: KafkaSteps, place: OffsetsPartition) -> int:
        return min(end(steps, place), *(shown if steps.client_id.endswith("-lanes") else ()), 2**63)

    monkeypatch.setattr(KafkaSteps, "end", shown_end)
    shipping.start(delivery=EXACTLY_ONCE)
    assert committed(shipping, 100) == expected
    place = settled(shipping).place
    assert place is not None
    with closing(KafkaSteps(KafkaOptions(bootstrap_servers=(shipping.bootstrap,)), "test")) as steps:
        shown.append(end(steps, place))
    forgetful.lost = 1
    expected += write(shipping.logs / "a.log", 100, 200)
    wait_until(lambda: "was not shown as it is" in shipping.status.reason, message=lambda: f"{shipping.status}")
    assert committed(shipping) == expected
    shown.clear()
    settled(shipping)
    expected += write(shipping.logs / "a.log", 200, 250)
    assert committed(shipping, 250) == expected
    settled(shipping)
    shipping.stop()
    assert committed(shipping) == expected


def test_spooled_files_are_sent_once_though_answers_are_lost(shipping: Shipping, forgetful: Forgetful) -> None:
    expected = write(shipping.logs / "a.log", 0, 100)
    spool = {"type": "spool_dir", "pattern": "*.log", "cleanup": {"policy": "delete"}, "ready": {"min_age": "200ms"}}
    forgetful.lost = 1
    shipping.start(source=spool, delivery=EXACTLY_ONCE)
    assert committed(shipping, 100) == expected
    wait_until(lambda: not list(shipping.logs.iterdir()), message=lambda: f"{shipping.status}")
    shipping.stop()
    assert committed(shipping) == expected


def lose_store(shipping: Shipping) -> None:
    """All of it; who the agent is stays."""
    for path in shipping.state_dir.glob("offsets.db*"):
        path.unlink()


def test_a_lost_store_is_made_anew_from_kafka(shipping: Shipping) -> None:
    log = shipping.logs / "a.log"
    expected = write(log, 0, 100)
    shipping.start(delivery=EXACTLY_ONCE)
    assert committed(shipping, 100) == expected
    settled(shipping)
    shipping.stop()
    lose_store(shipping)
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


class Writer:
    """Appends lines to three files all the time, until `stop`, which returns all that were written, sorted."""

    def __init__(self, directory: Path) -> None:
        self.lines = 0
        self._directory = directory
        self._stopping = Event()
        self._thread = Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._stopping.wait(0.002):
            write(self._directory / f"{self.lines % 3}.log", self.lines, self.lines + 1)
            self.lines += 1

    def go_on(self) -> None:
        """Wait until more is written."""
        goal = self.lines + 50
        wait_until(lambda: self.lines >= goal, message="lines are written")

    def stop(self) -> list[str]:
        self._stopping.set()
        self._thread.join()
        return [f"line {number:05}" for number in range(self.lines)]


@pytest.fixture
def writer(shipping: Shipping) -> Iterator[Writer]:
    writer = Writer(shipping.logs)
    yield writer
    writer.stop()


def worker_of(shipping: Shipping) -> Worker:
    assert shipping._worker is not None
    return shipping._worker


def running(shipping: Shipping) -> None:
    wait_until(lambda: shipping.status.state is State.RUNNING, message=lambda: f"{shipping.status}")


def test_pauses_and_restarts_cost_nothing(shipping: Shipping, writer: Writer) -> None:
    shipping.start(delivery=EXACTLY_ONCE)
    worker = worker_of(shipping)
    for operation in (worker.pause, worker.resume, worker.restart, worker.pause, worker.restart, worker.resume, worker.halt, worker.resume):
        writer.go_on()
        operation("app")
    expected = writer.stop()
    assert committed(shipping, len(expected)) == expected
    settled(shipping)
    shipping.stop()
    assert committed(shipping) == expected


def test_changed_definitions_cost_nothing(shipping: Shipping, writer: Writer, make_topic: Callable[..., str]) -> None:
    """Each reload replaces the connector while batches are in flight: other topics, more and fewer lanes, no lanes, another name."""
    topics = [shipping.topic, make_topic()]
    shipping.start(delivery=EXACTLY_ONCE | {"tasks_max": 2})
    changes: list[dict[str, Any]] = [
        {"delivery": EXACTLY_ONCE | {"tasks_max": 4}},
        {"delivery": EXACTLY_ONCE | {"tasks_max": 1}, "record": {"topic": topics[1]}},
        {"delivery": {"guarantee": "at_least_once"}},
        {"delivery": EXACTLY_ONCE | {"tasks_max": 3}, "record": {"topic": topics[1]}},
    ]
    for change in changes:
        writer.go_on()
        running(shipping)
        worker_of(shipping).apply([shipping.definition(**change)])
    writer.go_on()
    running(shipping)
    shipping.name = "new"
    worker_of(shipping).apply([shipping.definition(delivery=EXACTLY_ONCE)], {"new": ("app",)}, {"new": ("app",)})
    writer.go_on()
    expected = writer.stop()

    def arrived() -> list[str]:
        values = [one.value or b"" for topic in topics for one in consume(shipping.bootstrap, topic, "read_committed")]
        return sorted(value.decode() for value in values)

    wait_until(lambda: len(arrived()) >= len(expected), message=lambda: f"{shipping.status}")
    settled(shipping)
    shipping.stop()
    assert arrived() == expected


def test_a_store_that_is_lost_with_a_rename_costs_nothing(shipping: Shipping) -> None:
    expected = write(shipping.logs / "a.log", 0, 100)
    shipping.start(delivery=EXACTLY_ONCE)
    assert committed(shipping, 100) == expected
    settled(shipping)
    shipping.stop()
    lose_store(shipping)
    shipping.name = "new"
    expected += write(shipping.logs / "a.log", 100, 150)
    shipping.start(delivery=EXACTLY_ONCE, renamed_from=["app"])
    assert committed(shipping, 150) == expected
    settled(shipping)
    shipping.stop()
    assert committed(shipping) == expected


@pytest.mark.long
def test_many_connectors_open_their_lanes_in_turns(
    tmp_path: Path, broker: DevBroker, inline: InlineExecutor, watcher: Watcher, make_topic: Callable[..., str]
) -> None:
    topic, count, expected = make_topic(), 30, []
    lock, busy, most = Lock(), set[str](), 0

    def world(definition: Definition, stopping: Callable[[], bool]) -> KafkaAccess:
        nonlocal most
        made = kafka_access(definition, stopping)
        close = made.close
        with lock:
            busy.add(definition.name)
            most = max(most, len(busy))

        def closed(handle: Any = None) -> None:
            if handle is None:
                with lock:
                    busy.discard(definition.name)
            close(handle)

        made.close = closed  # type: ignore[method-assign]
        return made

    definitions = []
    for number in range(count):
        root = tmp_path / f"{number:02}"
        root.mkdir()
        one = Shipping(root, f"app{number:02}", broker.bootstrap, topic, inline, watcher)
        expected += write(one.logs / "a.log", 10 * number, 10 * number + 10)
        definitions.append(one.definition(delivery=EXACTLY_ONCE))
    reasons = set[str]()
    with OffsetStore.open(tmp_path / "state") as store:
        worker = Worker(store, inline, watcher, make_access=world)
        worker.apply(definitions)

        def all_run() -> bool:
            statuses = worker.statuses()
            reasons.update(status.reason for status in statuses if status.state is State.STARTING)
            return all(status.state is State.RUNNING and not status.lag.bytes and not status.tasks for status in statuses)

        wait_until(all_run, 120, lambda: f"{worker.statuses()}")
        worker.stop()
    values = [one.value or b"" for one in consume(broker.bootstrap, topic, "read_committed")]
    assert sorted(value.decode() for value in values) == expected
    assert 1 < most <= OPENINGS_AT_ONCE
    assert "waits until the lanes of other connectors are open" in reasons
