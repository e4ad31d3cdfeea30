"""Executors, which carry batches to where they run, and `run_batch`, the whole data path from a batch of splits to their results.

`InlineExecutor` runs batches in this process, for dry runs and for tests without Spark; `spark.RunnerExecutor` and `spark.JobExecutor`
carry them to Spark tasks. All of them run the same `run_batch` and pass the same contract tests.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from copycat_agent.batch.following import BatchChannel
from copycat_agent.batch.run import BatchRun
from copycat_agent.delivery.at_least_once import AtLeastOnceTask
from copycat_agent.delivery.batch_outcomes import unanswered_results
from copycat_agent.delivery.exactly_once.task import ExactlyOnceTask
from copycat_agent.delivery.files_delivery import FilesTask
from copycat_agent.encoding.encoder import Encoder, compiled
from copycat_agent.errors import CopycatError, DataError, FatalError, bug_words, lacking
from copycat_agent.producer import ProducerPool
from copycat_agent.registry import FAULT, blamed, described

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from copycat_agent.delivery.base import MakeRun, PendingResults, TaskDelivery
    from copycat_agent.model import Batch, Results, Split, TaskId

    Run = Callable[[Batch, ProducerPool, Callable[[], bool]], Results]

    Hung = Callable[[Collection[str]], Collection[str]]
    """Returns, at once, which of these connectors, by name, read from a mount that does not answer."""


T = TypeVar("T")


def resolved(result: T) -> Future[T]:
    """Returns a future that has its result."""
    future: Future[T] = Future()
    future.set_result(result)
    return future


class Executor(Protocol):
    """Carries batches to where they run. Every method is thread-safe."""

    def submit(self, batch: Batch) -> PendingResults:
        """Starts `batch`; at most one batch per task is running (the caller's duty).

        A future per batch, and not a list of batches with a list of results: so an idle task gets work at once, and no connector waits for
        its slowest task.

        The future always yields one result per split, in order. Failures on the way (a runner that dies, a JVM that is gone) become results
        with a `RetriableError` and the split's own offset; the future raises nothing.
        """

    def settle(self, task: TaskId) -> None:
        """Asks the task's batch to stop reading, settle what it has in flight and return early. Unknown tasks are ignored."""

    def close(self) -> None:
        """Ends everything this executor started; pending futures yield `RetriableError` results."""


@runtime_checkable
class StayingExecutor(Protocol):
    """An executor whose batches may stay at the ends of their files (`Batch.follow_seconds`)."""

    def follow(self, batch: Batch, report: Callable[[Results], None]) -> PendingResults:
        """Starts `batch` as `submit`. `report` is called from any thread with newly settled results; the future yields the rest.

        Each result begins where the last one of its split ended. A batch that fails says so from there on.
        """

    def join(self, task: TaskId, splits: tuple[Split, ...]) -> None:
        """Makes the task's batch, which has reported, take on further splits: their results come as, and after, those of the others.

        Splits that it has not taken on when it ends have no results: then they are unread.
        """


@runtime_checkable
class DefinitionChecker(Protocol):
    """An executor that can say of a definition, before there is anything to read, that it cannot carry its batches."""

    def examine(self, definition: bytes) -> Future[FatalError | None]:
        """Returns why a pickled definition's batches cannot be carried, None if there is no reason, or it is not known now."""


THREADS = 64
"""Batches of an `InlineExecutor` at a time: enough that one that waits for a broker does not block the others."""


class InlineExecutor:
    """Runs batches on threads of this process: no Spark, the same `run_batch`."""

    def __init__(self, producers: ProducerPool | None = None, run: Run | None = None) -> None:
        """`producers` replaces real ones, as in a dry run, and `run` replaces `run_batch`."""
        self._producers = producers or ProducerPool()
        self._run = run
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="inline")
        self._stopping: dict[TaskId, threading.Event | BatchChannel] = {}

    def submit(self, batch: Batch) -> PendingResults:
        """Starts `batch` on a thread of this process."""
        stopping = self._stopping[batch.task] = threading.Event()
        return self._threads.submit(self._run or run_batch, batch, self._producers, stopping.is_set)

    def follow(self, batch: Batch, report: Callable[[Results], None]) -> PendingResults:
        """Starts `batch` on a thread of this process, which may stay as long as the batch does."""
        stopping = self._stopping[batch.task] = BatchChannel(report)
        return self._threads.submit(self._run or run_batch, batch, self._producers, stopping)

    def join(self, task: TaskId, splits: tuple[Split, ...]) -> None:
        """Makes the task's batch take on the splits."""
        stopping = self._stopping.get(task)
        if isinstance(stopping, BatchChannel):
            stopping.join(splits)

    def settle(self, task: TaskId) -> None:
        """Asks the task's batch to settle and return early."""
        if task in self._stopping:
            self._stopping[task].set()

    def close(self) -> None:
        """Asks all batches to settle, waits for them, and closes the producers."""
        for event in self._stopping.values():
            event.set()
        self._threads.shutdown()
        self._producers.close()


TASK_DELIVERIES: Mapping[str, TaskDelivery] = {"at_least_once": AtLeastOnceTask(), "exactly_once": ExactlyOnceTask(), "files": FilesTask()}
"""By the name in a batch's plan: the guarantee, or files."""


def run_batch(
    batch: Batch,
    producers: ProducerPool,
    stopping: Callable[[], bool],
    encoder: Encoder | None = None,
    make_run: MakeRun = BatchRun,
) -> Results:
    """Reads the batch's splits, sends their records, and returns how far each is settled: one result per split, in order.

    Never raises: errors are returned as values, so that one bad split does not lose its siblings' results. `stopping` is called often; once
    it is True, reading ends and what is in flight is settled. Runs in a runner's thread; `producers` is the process's. `encoder` replaces
    the definition's compiled one, to trace more of its work. A definition with a query needs another `make_run`.
    """
    try:
        encoder = encoder or compiled(batch.definition)
        _refuse_query_without_spark(encoder, make_run)
        return TASK_DELIVERIES[batch.delivery.guarantee].run(batch, encoder, producers, stopping, make_run, as_value)
    except Exception as error:  # noqa: BLE001 - a batch never raises
        return unanswered_results(batch, as_value(error), begun=False)


def _refuse_query_without_spark(encoder: Encoder, make_run: MakeRun) -> None:
    if len(encoder.stages) > 1 and make_run is BatchRun:
        raise FatalError("a definition with a query came where no Spark session is", "this is a bug in copycat-agent: please report it")


def as_value(error: Exception) -> CopycatError:
    """Returns `error` for the results, without its frames: those hold clients, and mostly the holder of the value, in a reference cycle."""
    value = _in_words(error)
    value.__cause__ = value.__context__ = None
    return value.with_traceback(None)


def _in_words(error: Exception) -> CopycatError:
    """Returns the error as a CopycatError. A bug has only type and place: its text may hold data or secrets."""
    if isinstance(error, DataError):
        return FatalError(error.message, error.hint)
    if isinstance(error, CopycatError):
        return error
    if shortage := lacking(error):
        return shortage
    if origin := blamed(error.__traceback__):
        return FatalError(f"{origin.text}: {described(error)}", FAULT)
    return FatalError(bug_words(error), "this is a bug in copycat-agent: please report it")
