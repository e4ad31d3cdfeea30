"""A record that Kafka refuses, in a lane: it is found by transactions, whatever it is among, and the others get through exactly once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.batch.progress import SplitProgress
from copycat_agent.delivery.exactly_once.refused_transaction_search import RefusedTransactionSearch
from copycat_agent.errors import BlockedError, DataError, FatalError, TimestampError
from copycat_agent.executor import run_batch
from copycat_agent.formats import LineFrames, LineOptions
from copycat_agent.model import SourceOffset
from copycat_agent.sources.log_file.log_kind import open_stream
from tests.unit.batch.fake_lane import FakeBroker, FakeLane
from tests.unit.batch.rig import batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.model import Split, SplitResult
    from copycat_agent.options import Definition
    from copycat_agent.producer import Message, ProducerPool

LETTERS = {"tolerance": "all", "dlq": {"topic": "dlq"}}
ONE_BAD = [b"bad" if number == 250 else b"%d" % number for number in range(300)]


def bad(message: Message) -> DataError | None:
    return DataError("refused") if message[0] == "t" and b"bad" in (message[1] or b"") else None


class Driver:
    """Plans the same files until they are read."""

    def __init__(self, broker: FakeBroker, connector: Definition, *paths: Path) -> None:
        self.lane = FakeLane(broker)
        self.connector = connector
        self.splits: list[Split] = [split_of(path) for path in paths]
        self.counts: Counter[str] = Counter()
        self.batches = 0

    def once(self, producers: ProducerPool) -> tuple[SplitResult, ...]:
        batch = replace(batch_of(self.connector, *self.splits), delivery=self.lane.plan())
        results = run_batch(batch, producers, never)
        self.lane.heard(results)
        for result in results:
            self.counts.update(
                acknowledged=result.counts.acknowledged, letters=result.counts.dead_lettered, rejected=result.counts.rejected
            )
        self.splits = [replace(split, offset=result.offset) for split, result in zip(self.splits, results, strict=True)]
        self.batches += 1
        return results

    def through(self, producers: ProducerPool, most: int = 400) -> Driver:
        while any(split.offset.position < split.end for split in self.splits):
            results = self.once(producers)
            assert {result.error for result in results} == {None}
            assert self.batches < most
        return self

    def stuck(self, producers: ProducerPool) -> Exception:
        """The error that ends it."""
        while not (error := self.once(producers)[0].error):
            pass
        return error


def test_one_refused_record_becomes_a_dead_letter_and_all_others_get_through(tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(5000)]
    lines[3210] = b"bad"
    broker = FakeBroker(refuses=bad)
    driver = Driver(broker, definition("x:1", "t", errors=LETTERS), write(tmp_path / "f", *lines)).through(broker.producers())
    assert broker.values == lines
    assert [message[0] for message in broker.committed].count("dlq") == 1
    assert driver.counts == {"acknowledged": 4999, "letters": 1, "rejected": 0}
    assert broker.transactions < 45
    (position,) = {one.partition: one for one in driver.lane.found().positions}.values()
    assert isinstance(position.offset, SourceOffset)
    assert position.offset.position == driver.splits[0].end


@pytest.mark.parametrize("seed", [0, 2, 5, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 3, 4))])
@pytest.mark.parametrize("dlq", [True, False])
def test_many_refused_records_in_many_files_are_all_found(tmp_path: Path, seed: int, dlq: bool) -> None:
    dice = random.Random(seed)
    share = dice.choice([0.001, 0.01, 0.2, 1.0])
    files = [
        [b"%d.%d%s" % (index, number, b"bad" * (dice.random() < share)) for number in range(dice.randint(1, 120))] for index in range(4)
    ]
    broker = FakeBroker(refuses=bad)
    paths = [write(tmp_path / str(index), *lines) for index, lines in enumerate(files)]
    errors = LETTERS if dlq else {"tolerance": "all"}
    producers = broker.producers()
    driver = Driver(broker, definition("x:1", "t", errors=errors), *paths).through(producers, 2000)
    wrong = [line for lines in files for line in lines if b"bad" in line]
    good = [line for lines in files for line in lines if b"bad" not in line]
    assert Counter(message[1] for message in broker.committed if message[0] == "t") == Counter(good)
    assert Counter(message[1] for message in broker.committed if message[0] == "dlq") == Counter(wrong if dlq else [])
    assert driver.counts == {"acknowledged": len(good), "letters": len(wrong) * dlq, "rejected": len(wrong) * (not dlq)}


def test_a_topic_that_takes_less_at_once_gets_smaller_batches_and_nothing_is_called_bad(tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(3000)]
    broker = FakeBroker(most=40)
    driver = Driver(broker, definition("x:1", "t", errors=LETTERS), write(tmp_path / "f", *lines)).through(broker.producers())
    assert broker.values == lines
    assert driver.counts == {"acknowledged": 3000, "letters": 0, "rejected": 0}
    assert broker.sizes[-1] > 1000


def test_a_limit_that_is_raised_after_a_find_leaves_batches_as_large_as_before(tmp_path: Path) -> None:
    broker = FakeBroker(refuses=bad)
    driver = Driver(broker, definition("x:1", "t"), write(tmp_path / "f", *ONE_BAD))
    producers = broker.producers()
    driver.stuck(producers)
    broker.refuses = lambda _: None
    driver.through(producers)
    assert broker.values == ONE_BAD
    assert set(broker.limits) == {0}, "no client was told to make smaller ones"


def test_a_dead_letter_that_is_refused_itself_is_made_smaller(tmp_path: Path) -> None:
    broker = FakeBroker(refuses=lambda message: DataError("too large") if len(message[1] or b"") > 50 else None)
    lines = [b"one", b"x" * 60, b"two"]
    driver = Driver(broker, definition("x:1", "t", errors=LETTERS), write(tmp_path / "f", *lines)).through(broker.producers())
    assert broker.values == [b"one", None, b"two"]
    assert driver.counts == {"acknowledged": 2, "letters": 1, "rejected": 0}
    assert [loss.size_bytes for one in driver.lane.found().positions for loss in one.losses] == [61]


def test_a_bad_record_with_tolerance_none_is_named_after_all_before_it_is_committed(tmp_path: Path) -> None:
    broker = FakeBroker(refuses=bad)
    driver = Driver(broker, definition("x:1", "t"), write(tmp_path / "f", *ONE_BAD))
    producers = broker.producers()
    error = driver.stuck(producers)
    assert isinstance(error, FatalError)
    assert "bytes 890 to 894" in str(error)
    assert broker.values == ONE_BAD[:250]
    (again,) = driver.once(producers)
    assert isinstance(again.error, FatalError)
    broker.refuses = lambda _: None
    driver.through(producers)
    assert broker.values == ONE_BAD


def test_a_wrong_clock_blocks_and_loses_nothing(tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(100)]
    broker = FakeBroker(refuses=lambda _: TimestampError("the timestamp is out of range"))
    driver = Driver(broker, definition("x:1", "t", errors=LETTERS), write(tmp_path / "f", *lines))
    producers = broker.producers()
    (result,) = driver.once(producers)
    assert isinstance(result.error, BlockedError)
    broker.refuses = lambda _: None
    driver.through(producers)
    assert broker.values == lines


def test_files_in_which_it_may_be_are_tried_in_the_order_in_which_they_were_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / str(index), *[b"%d.%d" % (index, number) for number in range(8)]) for index in range(3)]
    splits = [split_of(path) for path in paths]
    search, whole = RefusedTransactionSearch(), batch_of(definition("x:1", "t"), *splits)
    progresses = [SplitProgress(split) for split in splits[:2]]
    for progress in progresses:
        progress.stream = open_stream(progress.split, LineFrames(LineOptions()))
        progress.advance(progress.split.end, 8, b"", progress.split.end)
    assert not search.refused(whole, progresses, 16)
    part = search.part(replace(whole, splits=tuple(reversed(splits))))
    assert ([split.path for split in part.splits], part.max_records) == ([str(path) for path in paths[:2]], 8)
    late = replace(splits[0], after=splits[2].partition)  # an older generation that was met since goes first
    part = search.part(replace(whole, splits=(splits[2], late, splits[1])))
    assert ([split.path for split in part.splits], part.max_records) == ([str(paths[index]) for index in (2, 0, 1)], 8)
    assert search.part(replace(whole, splits=(splits[2],), max_records=5)).max_records == 5
    assert search.part(whole) == whole  # it was in files that were not there: nothing is held back for them
