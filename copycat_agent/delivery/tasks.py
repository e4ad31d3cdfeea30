"""`run_batch`: the whole data path, from a batch of splits to their results. Every executor carries this one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from copycat_agent.batch.run import BatchRun
from copycat_agent.delivery.at_least_once import AtLeastOnceTask
from copycat_agent.delivery.base import MakeRun, TaskHalf
from copycat_agent.delivery.batch_outcomes import without_answer
from copycat_agent.delivery.exactly_once.task import ExactlyOnceTask
from copycat_agent.encoding.encoder import Encoder, compiled
from copycat_agent.errors import CopycatError, DataError, FatalError, bug_words
from copycat_agent.model import Batch, SplitResult
from copycat_agent.producer import Producers
from copycat_agent.registry import FAULT, blamed, told

TASK_HALVES: Mapping[str, TaskHalf] = {"at_least_once": AtLeastOnceTask(), "exactly_once": ExactlyOnceTask()}
"""By the guarantee that a batch's plan names."""


def run_batch(
    batch: Batch,
    producers: Producers,
    stopping: Callable[[], bool],
    encoder: Encoder | None = None,
    make_run: MakeRun = BatchRun,
) -> tuple[SplitResult, ...]:
    """Read the batch's splits, send their records, and say how far each is settled: one result per split, in order.

    Never raises: errors come as values, so that one bad split does not lose its siblings' results. `stopping` is asked often;
    once it is True, reading ends and what is in flight is settled. Runs in a runner's thread; `producers` is the process's.
    `encoder`: not the definition's, compiled, but this one, which tells more of what it does. A definition with a query needs another
    `make_run`.
    """
    try:
        encoder = encoder or compiled(batch.definition)
        _refuse_query_without_spark(encoder, make_run)
        return TASK_HALVES[batch.delivery.guarantee].run(batch, encoder, producers, stopping, make_run, as_value)
    except Exception as error:  # noqa: BLE001 - see invariant 7: a batch never raises
        return without_answer(batch, as_value(error), begun=False)


def _refuse_query_without_spark(encoder: Encoder, make_run: MakeRun) -> None:
    if len(encoder.stages) > 1 and make_run is BatchRun:
        raise FatalError("a definition with a query came where no Spark session is", "this is a bug in copycat-agent: please report it")


def as_value(error: Exception) -> CopycatError:
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
