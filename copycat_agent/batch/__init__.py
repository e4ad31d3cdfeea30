"""`run_batch`: the whole data path, from a batch of splits to their results. Every executor carries this one function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from copycat_agent.batch.lanes import LaneBatch
from copycat_agent.batch.pipeline import Pipeline, compiled
from copycat_agent.batch.run import BatchRun
from copycat_agent.errors import CopycatError, DataError, FatalError, bug_words
from copycat_agent.model import Batch, LaneOutcome, LaneState, SplitResult
from copycat_agent.producer import Producers, TaskProducer
from copycat_agent.registry import FAULT, blamed, told

__all__ = ["not_begun", "run_batch", "untold"]

MakeRun = Callable[[Batch, Pipeline, TaskProducer, Callable[[], bool]], BatchRun]
"""`BatchRun`, or `sql_run.SqlRun` with its way through Spark."""


def run_batch(
    batch: Batch,
    producers: Producers,
    stopping: Callable[[], bool],
    pipeline: Pipeline | None = None,
    make_run: MakeRun = BatchRun,
) -> tuple[SplitResult, ...]:
    """Read the batch's splits, send their records, and say how far each is settled: one result per split, in order.

    Never raises: errors come as values, so that one bad split does not lose its siblings' results. `stopping` is asked often;
    once it is True, reading ends and what is in flight is settled. Runs in a runner's thread; `producers` is the process's.
    `pipeline`: not the definition's, compiled, but this one, which tells more of what it does. A definition with a query needs another
    `make_run`.
    """
    try:
        pipeline = pipeline or compiled(batch.definition)
        _look_at(pipeline, make_run)
        if batch.lane is not None:
            return _in_lane(batch, pipeline, producers, stopping, make_run)
        kafka = pipeline.kafka
        producer = producers.take(batch.task, kafka, tracked=batch.tracked)
    except Exception as error:  # noqa: BLE001 - see invariant 7: a batch never raises
        return not_begun(batch, _as_value(error))
    run = make_run(batch, pipeline, producer, stopping)
    failure: CopycatError | None = None
    try:
        producer.begin(stopping)
        run.run()
    except Exception as error:  # noqa: BLE001 - see invariant 7
        failure = _as_value(error)
    finally:
        client = producer.take_view()
        producers.give_back(batch.task, kafka, producer)
    results = [progress.result(failure) for progress in run.progresses]
    samples = tuple(sample for progress in run.progresses for sample in progress.samples)
    if results and (samples or client):
        results[0] = replace(results[0], samples=samples, client=client)
    return tuple(results)


def not_begun(batch: Batch, error: CopycatError | None) -> tuple[SplitResult, ...]:
    """Results of a batch of which nothing was done, and nothing will be."""
    return _nothing(batch, error, "undone")


def untold(batch: Batch, error: CopycatError) -> tuple[SplitResult, ...]:
    """Results of a batch of which nobody knows what became of it."""
    return _nothing(batch, error, "unknown")


def _nothing(batch: Batch, error: CopycatError | None, state: LaneState) -> tuple[SplitResult, ...]:
    results = [SplitResult(split, split.offset, error=error) for split in batch.splits]
    if results and batch.lane is not None:
        results[0] = replace(results[0], lane=LaneOutcome(state, batch.lane.head, str(error or "")))
    return tuple(results)


def _in_lane(
    batch: Batch, pipeline: Pipeline, producers: Producers, stopping: Callable[[], bool], make_run: MakeRun
) -> tuple[SplitResult, ...]:
    kafka = pipeline.kafka
    lane = producers.take_lane(batch.task, kafka, tracked=batch.tracked)
    lane.stopping = stopping
    try:
        return LaneBatch(batch, pipeline, lane, make_run, _as_value).run()
    except Exception as error:  # noqa: BLE001 - see invariant 7
        lane.broken = True
        return untold(batch, _as_value(error))
    finally:
        with contextlib.suppress(Exception):  # what is committed is so, and has to be told
            producers.give_lane_back(batch.task, lane)


def _look_at(pipeline: Pipeline, make_run: MakeRun) -> None:
    if len(pipeline.stages) > 1 and make_run is BatchRun:
        raise FatalError("a definition with a query came where no Spark session is", "this is a bug in copycat-agent: please report it")


def _as_value(error: Exception) -> CopycatError:
    """`error` for the results. Without its frames: those hold clients, and mostly whoever keeps the value, in a ring that lives on."""
    value = _in_words(error)
    value.__cause__ = value.__context__ = None
    return value.with_traceback(None)


def _in_words(error: Exception) -> CopycatError:
    """A bug is told by type and place only: its text may hold data or secrets."""
    if isinstance(error, DataError):
        return FatalError(error.message, error.hint)
    if isinstance(error, CopycatError):
        return error
    if origin := blamed(error.__traceback__):
        return FatalError(f"{origin.text}: {told(error)}", FAULT)
    return FatalError(bug_words(error), "this is a bug in copycat-agent: please report it")
