"""The seam between the worker and whatever carries batches: batches in, results out.

`InlineExecutor` carries them in this process and is what tests without Spark use; `spark.RunnerExecutor` and
`spark.JobExecutor` carry them to Spark tasks. All pass the same contract tests.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from copycat_agent.delivery.tasks import run_batch
from copycat_agent.producer import Producers

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.errors import FatalError
    from copycat_agent.model import Batch, SplitResult, TaskId

    Results = Future[tuple[SplitResult, ...]]
    Run = Callable[[Batch, Producers, Callable[[], bool]], tuple[SplitResult, ...]]


class Executor(Protocol):
    """Carries batches to where they run. Every method is thread-safe."""

    def submit(self, batch: Batch) -> Results:
        """Start `batch`; at most one batch per task is under way (the caller's duty).

        A future per batch, and not a list of batches with a list of results: so a task that is done gets work at once, and no connector
        waits for its slowest task.

        The future always yields one result per split, in order. What goes wrong on the way (a runner that dies, a JVM that
        is gone) comes as results with a `RetriableError` and the split's own offset; the future raises nothing.
        """

    def settle(self, task: TaskId) -> None:
        """Ask the task's batch to stop reading, settle what it has in flight and return early. Unknown tasks are ignored."""

    def close(self) -> None:
        """End everything this executor started; futures under way yield `RetriableError` results."""


@runtime_checkable
class Examiner(Protocol):
    """An executor that can say of a definition, before there is anything to read, that it cannot carry its batches."""

    def examine(self, definition: bytes) -> Future[FatalError | None]:
        """Why a pickled definition's batches cannot be carried, None where nothing speaks against it, or nobody can tell now."""


THREADS = 64
"""Batches of an `InlineExecutor` at a time: enough that one that waits for a broker holds up nobody else's."""


class InlineExecutor:
    """Runs batches on threads of this process: no Spark, the same `run_batch`."""

    def __init__(self, producers: Producers | None = None, run: Run | None = None) -> None:
        """`producers` stands in for real ones, as in a dry run, and `run` for `run_batch`."""
        self._producers = producers or Producers()
        self._run = run
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="inline")
        self._stopping: dict[TaskId, threading.Event] = {}

    def submit(self, batch: Batch) -> Results:
        """See `Executor.submit`."""
        stopping = self._stopping[batch.task] = threading.Event()
        return self._threads.submit(self._run or run_batch, batch, self._producers, stopping.is_set)

    def settle(self, task: TaskId) -> None:
        """See `Executor.settle`."""
        if task in self._stopping:
            self._stopping[task].set()

    def close(self) -> None:
        """See `Executor.close`."""
        for event in self._stopping.values():
            event.set()
        self._threads.shutdown()
        self._producers.close()
