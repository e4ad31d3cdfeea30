"""`run_batch`: the whole data path, from a batch of splits to their results. Every executor carries this one function."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from copycat_agent.batch.pipeline import compiled
from copycat_agent.batch.run import BatchRun
from copycat_agent.errors import CopycatError, DataError, FatalError
from copycat_agent.model import Batch, SplitResult
from copycat_agent.producer import Producers

__all__ = ["run_batch"]


def run_batch(batch: Batch, producers: Producers, stopping: Callable[[], bool]) -> tuple[SplitResult, ...]:
    """Read the batch's splits, send their records, and say how far each is settled: one result per split, in order.

    Never raises: errors come as values, so that one bad split does not lose its siblings' results. `stopping` is asked often;
    once it is True, reading ends and what is in flight is settled. Runs in a runner's thread; `producers` is the process's.
    """
    try:
        pipeline = compiled(batch.definition)
        kafka = pipeline.definition.kafka
        producer = producers.take(batch.task, kafka, tracked=batch.tracked)
    except Exception as error:  # noqa: BLE001 - see invariant 7: a batch never raises
        return tuple(SplitResult(split, split.offset, error=_as_value(error)) for split in batch.splits)
    run = BatchRun(batch, pipeline, producer, stopping)
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


def _as_value(error: Exception) -> CopycatError:
    """`error` for the results. A bug is told by type and place only: its text may hold data or secrets."""
    if isinstance(error, DataError):
        return FatalError(error.message, error.hint)
    if isinstance(error, CopycatError):
        return error
    where = traceback.extract_tb(error.__traceback__)[-1]
    words = f"unexpected {type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
    return FatalError(words, "this is a bug in copycat-agent: please report it")
