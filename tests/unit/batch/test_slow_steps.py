"""A pattern that takes its 100 ms on every line holds no batch up: it ends in its time, and when it is told to, in the middle of a chunk.

Nothing here is timed: that so many lines take minutes, and the batch has a fraction of a second, is what few lines prove.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.batch import refused_record_search, sending
from copycat_agent.batch.run import BatchRun
from copycat_agent.batch.sql_run import SqlRun
from copycat_agent.encoding.encoder import Encoder
from copycat_agent.errors import DataError
from copycat_agent.executor import run_batch
from copycat_agent.model import SplitResult
from copycat_agent.workbench.trying import RecordingProducer, RecordingProducerPool
from tests.unit.batch.rig import OneByOne, after, batch_of, definition, never, split_of, write
from tests.unit.batch.test_sql_ways import QUERY, Query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.options import Definition

SLOW = [{"regex": "^(?P<all>(?:a|aa)+)$"}]
LINES, FEW = 3000, 100
LINE = b"a" * 60 + b"b"
POLICIES: list[dict[str, Any]] = [{"errors": {"tolerance": "all"}}, {"steps": [{**SLOW[0], "on_error": "keep"}]}]


class Refusing(RecordingProducer):
    """Refuses later what it was handed at first, all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = False

    def flush(self) -> None:
        if not self.refused:
            self.refused = True
            raise DataError("refused later")


def ship(
    connector: Definition,
    path: Path,
    stopping: Callable[[], bool],
    seconds: float,
    kafka: RecordingProducer | None = None,
    encoder: type[Encoder] = Encoder,
    make_run: Callable[..., BatchRun] = BatchRun,
) -> SplitResult:
    """One batch of the whole file."""
    kafka = kafka or RecordingProducer()
    work = batch_of(connector, split_of(path), max_seconds=seconds)
    (result,) = run_batch(work, RecordingProducerPool(lambda _: kafka), stopping, encoder(connector), make_run=make_run)
    counts = result.counts
    assert result.error is None
    assert counts.read == counts.acknowledged + counts.rejected + counts.dropped == result.offset.records
    assert result.offset.position == counts.read * (len(LINE) + 1)
    return result


def told_soon() -> Callable[[], bool]:
    """A stop request that comes once it has been asked for a few times."""
    asked = iter(range(10**6))
    return lambda: next(asked) >= 4


@pytest.mark.parametrize("quickly", [True, False], ids=["quickly", "row by row"])
@pytest.mark.parametrize(("told", "seconds"), [(False, 0.5), (True, 600.0)], ids=["time", "stop"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_batch_ends_in_the_middle_of_a_chunk(tmp_path: Path, policy: dict[str, Any], told: bool, seconds: float, quickly: bool) -> None:
    connector, path = definition("127.0.0.1:9", "t", **{"steps": SLOW, **policy}), write(tmp_path / "f", *[LINE] * LINES)
    result = ship(connector, path, told_soon() if told else never, seconds, encoder=Encoder if quickly else OneByOne)
    assert 0 < result.counts.read < FEW
    assert not result.at_end


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_so_does_one_before_a_query(tmp_path: Path, policy: dict[str, Any]) -> None:
    steps = [*policy.get("steps", SLOW), {"drop_if": {"message": {"exists": True}}}, QUERY]
    connector, path = definition("127.0.0.1:9", "t", **{**policy, "steps": steps}), write(tmp_path / "f", *[LINE] * LINES)
    result = ship(connector, path, never, 0.5, make_run=partial(SqlRun, query=Query()))
    assert 0 < result.counts.read < FEW


def test_so_does_the_search_for_a_refused_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_record_search, "SEARCH_SECONDS", 0.5)
    connector, path = definition("127.0.0.1:9", "t", **POLICIES[1]), write(tmp_path / "f", *[LINE] * LINES)
    kafka = Refusing()
    result = ship(connector, path, never, 0.5, kafka)
    assert kafka.refused
    assert 0 < result.counts.read < FEW


def test_every_batch_gets_ahead_and_the_next_one_goes_on_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connector, path = definition("127.0.0.1:9", "t", steps=SLOW, errors={"tolerance": "all"}), write(tmp_path / "f", *[LINE] * 3)
    monkeypatch.setattr(sending, "LOOK_SECONDS", -1)
    split, taken = split_of(path), [0]
    while taken[-1] < 3 and len(taken) < 5:
        asked = iter([False])
        (result,) = run_batch(batch_of(connector, split), RecordingProducerPool(lambda _: RecordingProducer()), partial(next, asked, True))
        taken.append(result.offset.records)
        split = after(split, result.offset)
    assert taken == [0, 1, 2, 3]


def test_a_record_that_adds_much_is_not_held_with_all_its_chunk(tmp_path: Path) -> None:
    """What a step adds to short lines is in memory for some records at a time."""
    path = write(tmp_path / "f", *[b"x"] * 10_000)
    sizes: list[int] = []

    class Counting(RecordingProducer):
        def send_each(self, messages: Any) -> None:
            sizes.append(sum(len(message[1]) for message in messages))

    connector = definition("127.0.0.1:9", "t", steps=[{"set": {"more": "y" * 10_000}}])
    for encoder in (Encoder, OneByOne):
        work = batch_of(connector, split_of(path), max_seconds=600.0)
        (result,) = run_batch(work, RecordingProducerPool(lambda _: Counting()), never, encoder(connector))
        assert (result.counts.acknowledged, result.at_end) == (10_000, True)
    assert sum(sizes) > 200_000_000
    assert max(sizes) < 4 * 2**20
