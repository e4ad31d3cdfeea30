"""Batches that stay at the ends of their files, in a connector that runs: files join them, and what comes too late is read all the same."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest

from copycat_agent.errors import RetriableError
from copycat_agent.executor import InlineExecutor, run_batch
from copycat_agent.model import SplitResult
from copycat_agent.worker import Worker
from tests.rig.kafka import create_topic, unique_topic, values
from tests.rig.waiting import wait_until
from tests.unit.worker.doubles import definition, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.model import Batch, Split, TaskId
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.producer import ProducerPool
    from copycat_agent.watch import Watcher
    from tests.unit.worker.doubles import MoodyStore

SECONDS = 60.0
FILES = 300


class Noting(InlineExecutor):
    """Notes what it is given. `loses`: what shall join comes too late. `forgets`: the next batch that has reported answers as if not."""

    def __init__(self) -> None:
        super().__init__(run=self._answer)
        self.begun = 0
        self.joined: list[str] = []
        self.loses = self.forgets = False

    def _answer(self, batch: Batch, producers: ProducerPool, stopping: Callable[[], bool]) -> tuple[SplitResult, ...]:
        results = run_batch(batch, producers, stopping)
        if self.forgets and any(one.split.offset.position for one in results):
            self.forgets = False
            return tuple(SplitResult(split, split.offset, error=RetriableError("broke off")) for split in batch.splits)
        return results

    def follow(self, batch: Batch, report: Callable[[tuple[SplitResult, ...]], None]) -> Future[tuple[SplitResult, ...]]:
        self.begun += 1
        return super().follow(batch, report)

    def join(self, task: TaskId, splits: tuple[Split, ...]) -> None:
        self.joined += [split.path for split in splits]
        if not self.loses:
            super().join(task, splits)


@pytest.fixture
def executor() -> Iterator[Noting]:
    executor = Noting()
    yield executor
    executor.close()


@pytest.fixture
def topic(broker: DevBroker) -> str:
    return create_topic(broker.bootstrap, unique_topic())


@pytest.fixture
def start(
    tmp_path: Path, store: MoodyStore, watcher: Watcher, executor: Noting, broker: DevBroker, topic: str
) -> Iterator[Callable[..., Worker]]:
    """Starts a connector over `tmp_path / "logs"` that has one task."""
    workers: list[Worker] = []

    def begin(**source: Any) -> Worker:
        worker = Worker(cast("OffsetStore", store), executor, watcher)
        workers.append(worker)
        kafka = {"bootstrap_servers": (broker.bootstrap,)}
        wanted = definition(tmp_path, source=source, record={"topic": topic}, kafka=kafka, delivery={"tasks_max": 1})
        worker.apply([wanted])
        return worker

    yield begin
    for worker in workers:
        worker.stop(5.0)


def logs_of(tmp_path: Path, count: int) -> list[Path]:
    """Files with a line each."""
    (tmp_path / "logs").mkdir()
    logs = [tmp_path / "logs" / f"{number}.log" for number in range(count)]
    for log in logs:
        write(log, "begun")
    return logs


def arrived(broker: DevBroker, topic: str, line: bytes, count: int) -> None:
    wait_until(lambda: Counter(values(broker.bootstrap, topic))[line] >= count, SECONDS, f"{count} lines {line!r}")


def test_files_that_are_written_to_join_the_batch_that_stays(
    start: Callable[..., Worker], executor: Noting, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    logs = logs_of(tmp_path, FILES)
    worker = start()
    lines = [b"begun"]
    for number in itertools.count():
        if number >= 3 and executor.joined:  # there is no task but one, which has a batch that stays, unless the machine is very busy
            break
        lines.append(str(number).encode())
        for log in logs:
            write(log, str(number))
        arrived(broker, topic, lines[-1], FILES)
    worker.stop(5.0)
    assert Counter(values(broker.bootstrap, topic)) == dict.fromkeys(lines, FILES)


def test_what_comes_too_late_to_join_is_read_by_the_next_batch(
    start: Callable[..., Worker], executor: Noting, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    executor.loses = True
    one, other = logs_of(tmp_path, 2)
    worker = start()
    arrived(broker, topic, b"begun", 2)
    written = 0
    while not executor.joined:
        written += 1
        for log in (one, other):  # the second one while a batch stays at the end of the first, unless the machine is very busy
            write(log, f"{written} of {log.name}")
            arrived(broker, topic, f"{written} of {log.name}".encode(), 1)
    worker.stop(5.0)
    lines = Counter(values(broker.bootstrap, topic))
    assert lines.pop(b"begun") == 2
    assert (len(lines), set(lines.values())) == (2 * written, {1}), "each line once"


def test_more_files_than_may_be_open_take_turns(
    start: Callable[..., Worker], executor: Noting, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    logs = logs_of(tmp_path, 40)
    worker = start(max_open_files=8)
    for number in range(3):
        for log in logs:
            write(log, str(number))
        arrived(broker, topic, str(number).encode(), 40)
    worker.stop(5.0)
    assert Counter(values(broker.bootstrap, topic)) == dict.fromkeys((b"begun", b"0", b"1", b"2"), 40)


def test_what_was_reported_stands_when_the_answer_is_made_without_it(
    start: Callable[..., Worker], executor: Noting, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    executor.forgets = True
    (log,) = logs_of(tmp_path, 1)
    worker = start()
    written = 0
    while executor.forgets:
        written += 1
        write(log, str(written))
        arrived(broker, topic, str(written).encode(), 1)
    write(log, "last")
    arrived(broker, topic, b"last", 1)
    worker.stop(5.0)
    assert Counter(values(broker.bootstrap, topic))[b"begun"] == 1, "it was reported"
