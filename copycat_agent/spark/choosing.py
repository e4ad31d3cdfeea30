"""ChoosingExecutor: batches with a query as bounded jobs, all others on resident runners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.spark.jobs import JobExecutor
from copycat_agent.spark.runners import RunnerExecutor
from copycat_agent.spark.sql_steps import step_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from copycat_agent.errors import FatalError
    from copycat_agent.model import Batch, TaskId
    from copycat_agent.runner import Results
    from copycat_agent.spark.host import SparkHost


class ChoosingExecutor:
    """See `executor.Executor` for the contract. The host is the caller's: close it afterwards."""

    def __init__(self, host: SparkHost) -> None:
        """`host` has been started, and may still be coming up."""
        self._runners = RunnerExecutor(host)
        self._jobs = JobExecutor(host)

    def submit(self, batch: Batch) -> Future[Results]:
        """See `Executor.submit`."""
        return self._runners.submit(batch) if step_of(batch.definition) is None else self._jobs.submit(batch)

    def examine(self, definition: bytes) -> Future[FatalError | None]:
        """See `executor.Examiner`."""
        return self._jobs.examine(definition)

    def settle(self, task: TaskId) -> None:
        """See `Executor.settle`."""
        self._runners.settle(task)
        self._jobs.settle(task)

    def close(self) -> None:
        """See `Executor.close`."""
        self._runners.close()
        self._jobs.close()
