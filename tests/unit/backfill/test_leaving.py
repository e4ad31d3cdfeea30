"""What a backfill that came to its end leaves in the offsets topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.backfill.backfill import clear_lanes
from copycat_agent.errors import RetriableError
from copycat_agent.offsets import OffsetStore
from copycat_agent.watch import Watcher
from copycat_agent.worker import State, Worker
from tests.unit.worker.doubles import ScriptedExecutor, definition, write
from tests.unit.worker.fake_kafka import FakeKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copycat_agent.options import Definition


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OffsetStore]:
    with OffsetStore.open(tmp_path / "run") as store:
        yield store


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka()


@pytest.fixture
def done(tmp_path: Path, store: OffsetStore, kafka: FakeKafka) -> Definition:
    """A run that has come to its end."""
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / "a", "one")
    definition_ = definition(tmp_path, delivery={"guarantee": "exactly_once", "tasks_max": 3})
    carry_out(definition_, store, kafka)
    assert len(left(kafka)) == 8  # three heads, a file, the first look, and what three say of the name
    return definition_


def carry_out(wanted: Definition, store: OffsetStore, kafka: FakeKafka) -> int:
    """Run it to the end; how many batches it took."""
    watcher = Watcher()
    executor = ScriptedExecutor(otherwise=kafka.commits)
    worker = Worker(store, executor, watcher, until_idle=True, accounts=True, make_access=kafka.world)
    worker.apply([wanted])
    assert worker.wait(30)
    worker.stop()
    assert worker.statuses()[0].state is State.STOPPED, worker.statuses()
    watcher.close()
    return len(executor.batches)


def left(kafka: FakeKafka) -> list[bytes]:
    """Keys that compaction keeps."""
    latest = {one.key: one.value for one in kafka.log}
    return [key for key, value in latest.items() if value is not None]


def test_nothing_is_left_of_it(done: Definition, store: OffsetStore, kafka: FakeKafka) -> None:
    clear_lanes(done, store, kafka.world)
    assert left(kafka) == []


def test_should_it_be_gone_on_with_nothing_is_sent_again(done: Definition, store: OffsetStore, kafka: FakeKafka) -> None:
    clear_lanes(done, store, kafka.world)
    kafka.log.clear()  # as compaction does
    assert carry_out(done, store, kafka) == 0


def test_what_could_not_be_deleted_stays_and_hurts_nobody(
    done: Definition, store: OffsetStore, kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.away = RetriableError("no broker answers")
    clear_lanes(done, store, kafka.world)
    assert "stay in the offsets topic" in caplog.text
    kafka.away = None
    assert len(left(kafka)) == 8
    assert carry_out(done, store, kafka) == 0
