"""Promises of `executor.Executor`, kept by all that implement it."""

from __future__ import annotations

import os
import pickle
import signal
from typing import TYPE_CHECKING, cast

import pytest

import copycat_agent.executor
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.executor import Executor, InlineExecutor, StayingExecutor
from copycat_agent.model import SplitResult, TaskId
from copycat_agent.runner import THREADS, Work
from copycat_agent.spark.jobs import ChoosingExecutor
from copycat_agent.spark.runner_connections import RunnerConnection
from tests.rig.waiting import wait_until
from tests.spark import batches
from tests.spark.batches import batch, done

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copycat_agent.spark.runners import RunnerExecutor

SECONDS = 60
pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""
CLUSTER = pytest.param("cluster", marks=(pytest.mark.long, pytest.mark.timeout(400)))  # 20 s until it is up


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[InlineExecutor]:
    """The one without Spark."""
    monkeypatch.setattr(copycat_agent.executor, "run_batch", batches.run)
    executor = InlineExecutor()
    yield executor
    executor.close()


@pytest.fixture(params=["runners", "jobs", "inline", CLUSTER])
def executor(request: pytest.FixtureRequest) -> Executor:
    """Each of them."""
    return cast("Executor", request.getfixturevalue(request.param))


def test_a_batch_yields_one_result_for_each_split_in_order(executor: Executor) -> None:
    work = batch("answer", splits=3)
    results = executor.submit(work).result(SECONDS)
    assert [result.split for result in results] == list(work.splits)
    assert all(result.at_end and result.error is None for result in results)


def test_a_batch_without_splits_yields_no_results(executor: Executor) -> None:
    assert executor.submit(batch("answer", splits=0)).result(SECONDS) == ()


def test_a_batch_with_many_splits_arrives_whole(executor: Executor) -> None:
    work = batch("echo", splits=3000)
    assert executor.submit(work).result(SECONDS) == done(work)


def test_batches_of_several_tasks_run_side_by_side(executor: Executor, tmp_path: Path) -> None:
    flags = [tmp_path / f"task-{number}" for number in range(2)]
    futures = [executor.submit(batch("until-told", str(flag), task=number)) for number, flag in enumerate(flags)]
    wait_until(lambda: all(flag.exists() for flag in flags), SECONDS, "both batches run at a time")
    for number in range(2):
        executor.settle(TaskId("app", number))
    for future in futures:
        assert future.result(SECONDS)[0].error is None


def test_settle_reaches_its_task_and_no_other(executor: Executor, tmp_path: Path) -> None:
    flags = [tmp_path / f"task-{number}" for number in range(2)]
    futures = [executor.submit(batch("until-told", str(flag), task=number)) for number, flag in enumerate(flags)]
    wait_until(lambda: all(flag.exists() for flag in flags), SECONDS, "both batches run")
    executor.settle(TaskId("app", 1))
    assert futures[1].result(SECONDS)[0].offset.path == "settled"
    assert not futures[0].done()
    executor.settle(TaskId("app", 0))
    assert futures[0].result(SECONDS)[0].offset.path == "settled"


def test_settle_of_an_unknown_task_is_ignored(executor: Executor) -> None:
    executor.settle(TaskId("nobody", 7))
    assert executor.submit(batch("answer")).result(SECONDS)[0].error is None


def test_a_settled_task_runs_its_next_batch_to_the_end(executor: Executor, flag: Path) -> None:
    future = executor.submit(batch("until-told", str(flag)))
    wait_until(flag.exists, SECONDS, "the batch runs")
    executor.settle(TaskId("app", 0))
    future.result(SECONDS)
    assert executor.submit(batch("told")).result(SECONDS)[0].offset.path == "False"


@pytest.fixture(params=["runners", "inline"])
def follower(request: pytest.FixtureRequest) -> StayingExecutor:
    """Those whose batches may stay."""
    return cast("StayingExecutor", request.getfixturevalue(request.param))


def test_a_batch_that_stays_reports_before_it_ends(follower: StayingExecutor, flag: Path) -> None:
    told: list[SplitResult] = []
    work = batch("report", str(flag), splits=2, follow_seconds=1.0)
    future = follower.follow(work, told.extend)
    wait_until(flag.exists, SECONDS, "the batch has reported")
    wait_until(lambda: len(told) == 2, SECONDS, "its report is heard")
    assert [one.split for one in told] == list(work.splits)
    assert not future.done()
    cast("Executor", follower).settle(TaskId("app", 0))
    assert [one.split.offset for one in future.result(SECONDS)] == [one.offset for one in told]


def test_a_batch_that_stays_takes_on_further_splits(follower: StayingExecutor, flag: Path) -> None:
    work, more = batch("report-and-join", str(flag), follow_seconds=1.0), batch("answer", splits=3).splits[1:]
    task = TaskId("app", 0)
    future = follower.follow(work, lambda _: None)
    wait_until(flag.exists, SECONDS, "the batch has reported")
    follower.join(task, more)
    follower.join(TaskId("nobody", 7), more)
    assert [one.split.partition for one in future.result(SECONDS)] == [one.partition for one in (*work.splits, *more)]
    follower.join(task, more)
    assert cast("Executor", follower).submit(batch("answer")).result(SECONDS)[0].error is None


def test_what_has_joined_a_batch_is_read_again_when_its_process_dies(runners: RunnerExecutor, flag: Path) -> None:
    work, more = batch("report", str(flag), follow_seconds=1.0), batch("answer", splits=2).splits[1:]
    told: list[SplitResult] = []
    future = runners.follow(work, told.extend)
    wait_until(lambda: bool(told), SECONDS, "its report is heard")
    runners.join(TaskId("app", 0), more)
    pid = wait_until(lambda: flag.exists() and flag.read_text(), SECONDS, "its process is known")
    os.kill(int(pid), signal.SIGKILL)
    first, joined = future.result(SECONDS)
    assert (first.split.partition, first.offset) == (work.splits[0].partition, told[0].offset)
    assert (joined.split, joined.offset) == (more[0], more[0].offset)
    assert isinstance(joined.error, RetriableError)


def test_the_agents_executor_lets_batches_stay() -> None:
    """A method that it lacked would be no error: batches just would not stay."""
    assert issubclass(ChoosingExecutor, StayingExecutor)


def test_an_order_to_settle_that_overtakes_its_batch_is_heard(runners: RunnerExecutor, monkeypatch: pytest.MonkeyPatch, flag: Path) -> None:
    work, send = batch("report", str(flag), follow_seconds=1.0), RunnerConnection.send

    def send_late(link: RunnerConnection, data: bytes) -> None:
        if isinstance(pickle.loads(data), Work):
            runners.settle(work.task)
        send(link, data)

    monkeypatch.setattr(RunnerConnection, "send", send_late)
    assert runners.follow(work, lambda _: None).result(SECONDS)[0].error is None


def test_what_a_batch_has_reported_stands_when_its_process_dies(runners: RunnerExecutor) -> None:
    told: list[SplitResult] = []
    work = batch("report-and-die", splits=2, follow_seconds=1.0)
    results = runners.follow(work, told.extend).result(SECONDS)
    assert len(told) == 2
    assert [one.offset for one in results] == [one.split.offset for one in results] == [one.offset for one in told]
    assert all(isinstance(one.error, RetriableError) for one in results)


def test_batches_that_stay_make_room_for_others(runners: RunnerExecutor, tmp_path: Path) -> None:
    wait_until(lambda: len(runners.pids()) == 2, SECONDS, "all runners are up")
    many = 2 * THREADS
    flags = [tmp_path / f"task-{number}" for number in range(many)]
    staying = [runners.follow(batch("report", str(flag), connector=flag.name, follow_seconds=1.0), lambda _: None) for flag in flags]
    wait_until(lambda: all(flag.exists() for flag in flags), SECONDS, "more batches stay than there are places")
    assert runners.submit(batch("answer")).result(SECONDS)[0].error is None
    for flag in flags:
        runners.settle(TaskId(flag.name, 0))
    assert all(future.result(SECONDS)[0].error is None for future in staying)


@pytest.fixture(params=["runners", "jobs", CLUSTER])
def spark_executor(request: pytest.FixtureRequest) -> Executor:
    """Those that guard against faults of `run_batch`."""
    return cast("Executor", request.getfixturevalue(request.param))


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        ("OSError", RetriableError),
        ("KeyError", FatalError),
        ("SystemExit", FatalError),
        ("RetriableError", RetriableError),
    ],
)
def test_a_batch_that_raises_becomes_results_that_name_the_place(spark_executor: Executor, raised: str, kind: type[Exception]) -> None:
    work = batch("raise", raised, splits=2)
    results = spark_executor.submit(work).result(SECONDS)
    assert [result.offset for result in results] == [split.offset for split in work.splits]
    assert all(isinstance(result.error, kind) for result in results)
    if raised != "RetriableError":
        assert "batches.py" in str(results[0].error)
        assert "secret-text" not in str(results[0].error)


def test_results_that_cannot_be_pickled_become_an_error(spark_executor: Executor) -> None:
    (result,) = spark_executor.submit(batch("unpicklable")).result(SECONDS)
    assert isinstance(result.error, FatalError)


def test_results_that_this_process_cannot_read_become_an_error(spark_executor: Executor) -> None:
    """As after an upgrade of the package under a running agent: no answer at all would be waited for without an end."""
    (result,) = spark_executor.submit(batch("unreadable")).result(SECONDS)
    assert isinstance(result.error, FatalError)
    assert "start it again" in str(result.error)
    assert "secret-text" not in str(result.error)
    assert spark_executor.submit(batch("answer")).result(SECONDS)[0].error is None


def test_results_that_do_not_fit_the_splits_become_an_error(spark_executor: Executor) -> None:
    (result,) = spark_executor.submit(batch("too-few")).result(SECONDS)
    assert isinstance(result.error, FatalError)


def test_a_worker_that_dies_yields_retriable_results_and_is_replaced(spark_executor: Executor) -> None:
    work = batch("die", splits=2)
    results = spark_executor.submit(work).result(SECONDS)
    assert [result.offset for result in results] == [split.offset for split in work.splits]
    assert all(isinstance(result.error, RetriableError) for result in results)
    assert spark_executor.submit(batch("answer")).result(SECONDS)[0].error is None


def test_a_batch_that_hangs_yields_retriable_results(spark_executor: Executor, flag: Path) -> None:
    future = spark_executor.submit(batch("hang", str(flag), max_seconds=batches.BEGUN_SECONDS))
    (result,) = future.result(SECONDS)
    assert isinstance(result.error, RetriableError)
    assert flag.exists()
    assert spark_executor.submit(batch("answer")).result(SECONDS)[0].error is None
