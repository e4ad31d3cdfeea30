"""A batch that may send little sends that much, gets ahead, and loses nothing of what it cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copycat_agent.executor import run_batch
from copycat_agent.model import Counts, SourceOffset
from tests.rig.examples import examples
from tests.rig.kafka import create_topic, unique_topic, values
from tests.unit.batch.rig import after, append, batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.model import SplitResult
    from copycat_agent.options import Definition
    from copycat_agent.producer import ProducerPool


def to_the_end(connector: Definition, path: Path, producers: ProducerPool, **limits: Any) -> list[SplitResult]:
    """Batch after batch until the file is read; none without progress."""
    results: list[SplitResult] = []
    offset, final = SourceOffset(0), limits.pop("final", False)
    while offset.position < path.stat().st_size and not (results and results[-1].at_end):
        (result,) = run_batch(batch_of(connector, after(split_of(path, final=final), offset), **limits), producers, never)
        assert result.error is None
        assert result.offset.position > offset.position or result.at_end
        offset = result.offset
        results.append(result)
    return results


@pytest.mark.parametrize("bulk", [True, False])
def test_a_batch_sends_at_most_its_records(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, bulk: bool) -> None:
    path = write(tmp_path / "f", *[b"%d" % number for number in range(95)])
    results = to_the_end(definition(broker.bootstrap, topic, record={"origin_headers": not bulk}), path, producers, max_records=10)
    assert [result.counts.acknowledged for result in results] == [10] * 9 + [5]
    assert [result.at_end for result in results] == [False] * 9 + [True]
    assert values(broker.bootstrap, topic) == [b"%d" % number for number in range(95)]


def test_records_are_counted_over_all_splits(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    paths = [write(tmp_path / f"f{n}", *[b"x"] * 7) for n in range(3)]
    results = run_batch(batch_of(definition(broker.bootstrap, topic), *map(split_of, paths), max_records=10), producers, never)
    assert [result.counts.acknowledged for result in results] == [7, 3, 0]
    assert [result.at_end for result in results] == [True, False, False]


def test_dropped_records_are_not_counted_against_it(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", *[b"drop", b"drop", b"keep"] * 20)
    results = to_the_end(definition(broker.bootstrap, topic, drop="drop"), path, producers, max_records=10)
    assert [result.counts.acknowledged for result in results if result.counts.read] == [10, 10]


def test_a_batch_reads_no_more_bytes_than_it_may_but_for_its_last_line(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "f", *[b"%098d" % number for number in range(100)])
    results = to_the_end(definition(broker.bootstrap, topic), path, producers, max_bytes=1000)
    assert max(result.counts.read_bytes for result in results) <= 1000 + 99
    assert values(broker.bootstrap, topic) == [b"%098d" % number for number in range(100)]


def test_a_line_that_is_longer_than_the_budget_comes_alone(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"x" * 300_000, b"y" * 5000, b"z")
    results = to_the_end(definition(broker.bootstrap, topic), path, producers, max_bytes=1000)
    assert [result.counts.read_bytes for result in results] == [300_001, 5001, 2]


@pytest.fixture(scope="module")
def a_topic(broker: DevBroker) -> str:
    """For all examples."""
    return create_topic(broker.bootstrap, unique_topic())


LINES = [b"", b"a", b"bb\r", b"\r", b"drop me", b"c" * 60, b"d" * 150, b"e" * 400]


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=30),
    rest=st.sampled_from([b"", b"unfinished"]),
    max_records=st.sampled_from([0, 1, 3]),
    max_bytes=st.sampled_from([1, 50, 300, 10_000]),
    delimiter=st.sampled_from(["\n", "\n\n"]),
    skip_empty=st.booleans(),
    drops=st.booleans(),
)
def test_however_small_the_batches_the_result_is_the_same(
    producers: ProducerPool,
    broker: DevBroker,
    a_topic: str,
    tmp_path: Path,
    lines: list[bytes],
    rest: bytes,
    max_records: int,
    max_bytes: int,
    delimiter: str,
    skip_empty: bool,
    drops: bool,
) -> None:
    path = write(tmp_path / "f", *lines)
    append(path, rest)
    line = {"max_bytes": 200, "on_too_long": "drop", "delimiter": delimiter, "skip_empty": skip_empty}
    connector = definition(broker.bootstrap, a_topic, drop="^drop" if drops else "", line=line)
    whole = to_the_end(connector, path, producers, final=True)
    small = to_the_end(connector, path, producers, final=True, max_records=max_records, max_bytes=max_bytes)
    assert sum((result.counts for result in small), Counts()) == sum((result.counts for result in whole), Counts())
    assert small[-1].offset == whole[-1].offset  # with the fingerprint of what was read
    lost = [sum(one.size_bytes for result in results for one in result.losses) for results in (small, whole)]
    assert lost[0] == lost[1]
    if max_records:
        assert max(result.counts.acknowledged for result in small) <= max_records
