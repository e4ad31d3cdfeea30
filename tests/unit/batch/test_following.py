"""Batches that stay at the ends of their files, on real files and a real broker: what is added arrives, and is told once."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.batch import following
from copycat_agent.batch.following import BatchChannel
from copycat_agent.errors import FatalError, FileError
from copycat_agent.executor import run_batch
from copycat_agent.model import Counts
from tests.rig.kafka import values
from tests.rig.waiting import wait_until
from tests.unit.batch.rig import append, batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.model import Batch, SplitResult
    from copycat_agent.producer import ProducerPool

SECONDS = 60.0


class Staying:
    """A batch on a thread, and what it has told so far."""

    def __init__(self, batch: Batch, producers: ProducerPool, quiet_seconds: float = 600.0) -> None:
        self.told: list[SplitResult] = []
        self.reporting = BatchChannel(self.told.extend)
        self.results: tuple[SplitResult, ...] | None = None
        self._batch = replace(batch, follow_seconds=quiet_seconds)
        self._producers = producers
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.results = run_batch(self._batch, self._producers, self.reporting)

    def until_told(self, position: int) -> None:
        """Wait until a report says that a split is settled up to `position`."""
        wait_until(lambda: any(one.offset.position >= position for one in self.told), SECONDS, f"byte {position} is reported")

    def end(self, *, asked: bool = True) -> tuple[SplitResult, ...]:
        """Have it end, or wait until it does by itself. Returns its results."""
        if asked:
            self.reporting.set()
        self._thread.join(SECONDS)
        assert self.results is not None, "the batch ends"
        return self.results


@pytest.fixture
def staying(producers: ProducerPool) -> Iterator[list[Staying]]:
    """Those that a test starts; all have ended afterwards."""
    started: list[Staying] = []
    yield started
    for one in started:
        one.end()


def test_what_is_added_is_sent_and_each_record_is_told_once(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, staying: list[Staying]
) -> None:
    path = write(tmp_path / "f", b"one", b"two")
    batch = Staying(batch_of(definition(broker.bootstrap, topic), split_of(path)), producers)
    staying.append(batch)
    batch.until_told(8)
    append(path, b"three\nunfin")
    batch.until_told(14)
    append(path, b"ished\n")
    batch.until_told(25)
    append(path, b"last\n")
    batch.until_told(30)  # in Kafka it may be seen before the batch has noted that it is at the end again
    last = batch.end()
    results = [*batch.told, *last]
    assert values(broker.bootstrap, topic) == [b"one", b"two", b"three", b"unfinished", b"last"]
    assert sum((one.counts for one in results), Counts()) == Counts(read=5, read_bytes=30, acknowledged=5)
    assert [one.split.offset.position for one in results] == [0, *(one.offset.position for one in results[:-1])], "each goes on"
    assert (results[-1].offset.position, results[-1].offset.records, results[-1].at_end, results[-1].error) == (30, 5, True, None)
    assert all(one.split.end >= one.offset.position for one in results)


def test_it_ends_when_nothing_comes_any_more(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"one")
    (result,) = Staying(batch_of(definition(broker.bootstrap, topic), split_of(path)), producers, 0.05).end(asked=False)
    assert (result.offset.position, result.at_end, result.error) == (4, True, None)


def test_nobody_stays_whose_reports_nobody_hears(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    work = batch_of(definition(broker.bootstrap, topic), split_of(write(tmp_path / "f", b"one")))
    (result,) = run_batch(replace(work, follow_seconds=600.0), producers, never)
    assert (result.offset.position, result.at_end) == (4, True)


def test_several_files_are_followed_and_reported_each(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, staying: list[Staying]
) -> None:
    one, other = write(tmp_path / "f", b"one"), write(tmp_path / "g", b"other")
    batch = Staying(batch_of(definition(broker.bootstrap, topic), split_of(one), split_of(other)), producers)
    staying.append(batch)
    wait_until(lambda: len(batch.told) == 2, SECONDS, "both are reported")
    append(other, b"more\n")
    batch.until_told(11)
    assert [(result.split.path, result.offset.position) for result in batch.told] == [(str(one), 4), (str(other), 6), (str(other), 11)]
    first, second = batch.end()
    assert (first.split.offset, second.split.offset.position) == (first.offset, 11)


@pytest.mark.parametrize("content", [b"", b"ONE\nand more than it held before\n"])
def test_a_file_that_is_cut_or_written_over_is_left_to_the_driver(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, staying: list[Staying], content: bytes
) -> None:
    path = write(tmp_path / "f", b"one", b"two")
    batch = Staying(batch_of(definition(broker.bootstrap, topic), split_of(path)), producers)
    staying.append(batch)
    batch.until_told(8)
    path.write_bytes(content)
    (result,) = batch.end(asked=False)
    assert (result.offset, result.error, result.counts) == (result.split.offset, None, Counts())
    assert values(broker.bootstrap, topic) == [b"one", b"two"]


def test_a_bad_record_ends_it_and_what_comes_before_counts(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, staying: list[Staying]
) -> None:
    path = write(tmp_path / "f", b"1")
    connector = definition(broker.bootstrap, topic, steps=[{"regex": r"^(?P<n>\d+)$"}])
    batch = Staying(batch_of(connector, split_of(path)), producers)
    staying.append(batch)
    batch.until_told(2)
    append(path, b"2\nno number\n3\n")
    (result,) = batch.end(asked=False)
    assert isinstance(result.error, FatalError)
    assert (result.split.offset.position, result.offset.position) == (2, 4)
    assert len(values(broker.bootstrap, topic)) == 2


def test_a_file_that_is_renamed_or_deleted_is_read_on_through_the_open_one(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, staying: list[Staying]
) -> None:
    path = write(tmp_path / "f", b"one")
    descriptor = os.open(path, os.O_RDONLY)
    split = replace(split_of(path), open_path=f"/proc/{os.getpid()}/fd/{descriptor}")
    batch = Staying(batch_of(definition(broker.bootstrap, topic), split), producers)
    staying.append(batch)
    batch.until_told(4)
    with path.open("ab") as writer:
        path.rename(tmp_path / "g")
        writer.write(b"two\n")
        writer.flush()
        batch.until_told(8)
        (tmp_path / "g").unlink()
        writer.write(b"three\n")
        writer.flush()
        batch.until_told(14)
    os.close(descriptor)
    assert batch.end()[0].error is None


def test_a_batch_that_stays_long_enough_ends(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "STAY_SECONDS", 0.05)
    path = write(tmp_path / "f", b"one")
    (result,) = Staying(batch_of(definition(broker.bootstrap, topic), split_of(path)), producers).end(asked=False)
    assert (result.at_end, result.error) == (True, None)


def test_it_leaves_a_file_whose_last_record_is_open_to_the_driver_though_another_one_grows(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    path, other = write(tmp_path / "f", b"one"), write(tmp_path / "g", b"other")
    append(path, b"open")
    batch = Staying(batch_of(definition(broker.bootstrap, topic), split_of(path), split_of(other)), producers, 1.0)

    def ends() -> bool:
        append(other, b"more\n")
        return batch.results is not None

    wait_until(ends, SECONDS, "it ends")
    first, _ = batch.end(asked=False)
    assert (first.offset.position, first.at_end, first.error) == (4, True, None)


def test_a_batch_that_has_much_to_report_ends(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "REPORT_SECONDS", 600.0)
    path = write(tmp_path / "f", b"one")
    batch = Staying(batch_of(definition(broker.bootstrap, topic), split_of(path), max_bytes=400), producers)
    batch.until_told(4)
    append(path, b"x" * 100 + b"\n")
    (result,) = batch.end(asked=False)
    assert (result.split.offset.position, result.offset.position) == (4, 105)


def test_a_file_that_joins_is_read_followed_and_reported_with_the_others(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, staying: list[Staying]
) -> None:
    one, other = write(tmp_path / "f", b"one"), write(tmp_path / "g", b"other")
    batch = Staying(batch_of(definition(broker.bootstrap, topic), split_of(one)), producers)
    staying.append(batch)
    batch.until_told(4)
    batch.reporting.join((split_of(other),))
    batch.until_told(6)
    append(other, b"more\n")
    batch.until_told(11)
    append(one, b"two\n")
    wait_until(lambda: len(values(broker.bootstrap, topic)) == 4, SECONDS, "the last line arrives")
    results = batch.end()
    assert [(result.split.path, result.offset.position) for result in results] == [(str(one), 8), (str(other), 11)]
    told = [*batch.told, *results]
    assert sum((result.counts for result in told), Counts()) == Counts(read=4, read_bytes=19, acknowledged=4)
    assert set(values(broker.bootstrap, topic)) == {b"more", b"one", b"other", b"two"}


def test_a_file_that_cannot_be_read_to_its_end_ends_the_batch_that_it_joins(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    one, other = write(tmp_path / "f", b"one"), write(tmp_path / "g", b"other")
    split = split_of(other)
    batch = Staying(batch_of(definition(broker.bootstrap, topic), split_of(one)), producers)
    batch.until_told(4)
    other.unlink()
    batch.reporting.join((split,))
    first, second = batch.end(asked=False)
    assert (first.offset.position, first.error) == (4, None)
    assert (second.split, second.offset) == (split, split.offset)
    assert isinstance(second.error, FileError)
