"""Batches that wait for a dead broker, more of them than there are places: those of others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

import copycat_agent.spark.runners
from copycat_agent.model import TaskId
from tests.rig.waiting import wait_until
from tests.spark.batches import batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from copycat_agent.executor import Executor
    from copycat_agent.model import Batch, SplitResult

pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""
SECONDS = 60
MANY = 20
"""More than `places` of either executor."""


@pytest.fixture(params=["runners", "jobs"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Executor:
    """Jobs have three places, resident runners here eight."""
    monkeypatch.setattr(copycat_agent.spark.runners, "THREADS", 4)
    return cast("Executor", request.getfixturevalue(request.param))


@pytest.fixture
def waiting(executor: Executor, tmp_path: Path) -> Iterator[list[Future[tuple[SplitResult, ...]]]]:
    """What batches of a cluster yield that all wait for it, or for a place; one connector of another has had its turn before."""
    assert executor.submit(_well("answer")).result(SECONDS)[0].error is None
    flags = [tmp_path / f"dead-{number}" for number in range(MANY)]
    futures = [executor.submit(batch("until-told", str(flag), connector=flag.name, cluster="dead")) for flag in flags]
    wait_until(lambda: sum(flag.exists() for flag in flags) >= 2, SECONDS, "they have begun")
    yield futures
    for flag in flags:
        executor.settle(TaskId(flag.name, 0))
    for future in futures:
        assert future.result(SECONDS)[0].error is None


def _well(act: str, argument: str = "") -> Batch:
    return batch(act, argument, connector="well", cluster="well")


def test_a_connector_that_was_well_finds_a_place(executor: Executor, waiting: list[Future[tuple[SplitResult, ...]]]) -> None:
    for _ in range(5):
        assert executor.submit(_well("answer")).result(SECONDS)[0].error is None
    assert not any(future.done() for future in waiting)


def test_a_batch_that_waits_for_its_turn_comes_back_unread_when_it_is_told_to_settle(
    executor: Executor, waiting: list[Future[tuple[SplitResult, ...]]]
) -> None:
    executor.settle(TaskId(f"dead-{MANY - 1}", 0))
    (result,) = waiting[-1].result(SECONDS)
    assert (result.error, result.offset) == (None, result.split.offset)
    assert not waiting[0].done()
