"""Who carries the batches of a backfill: this host's Spark, in bounded jobs, or a cluster's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from copycat_agent.errors import FatalError
from copycat_agent.model import SplitResult
from copycat_agent.spark.cluster import ClusterExecutor
from copycat_agent.spark.cluster_host import ClusterHost, is_cluster
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.jobs import JobExecutor

if TYPE_CHECKING:
    from copycat_agent.executor import Executor, Results
    from copycat_agent.model import Batch, TaskId
    from copycat_agent.options import SparkOptions

MOST_TASKS = 16
"""Each is a Python process of about 100 MB beside the JVM."""
_ANY_CORES = ("local", "local[*]")


class Host(Protocol):
    """What has to be ended after the executor."""

    def close(self) -> None:
        """End everything that was started."""


class Carrier(NamedTuple):
    """How many batches are carried at a time, and what starts their executor: called with the first batch, raises FatalError."""

    tasks: int
    start: Callable[[], tuple[Executor, Host]]


Choose = Callable[["SparkOptions", Path, "Callable[[FatalError], None]"], Carrier]
"""`choose(spark options, private directory, on_failure)`. Raises FatalError when that cannot be."""


def on_this_host(options: SparkOptions, run_dir: Path, on_failure: Callable[[FatalError], None]) -> Carrier:
    """A Spark session of its own, beside an agent's: all cores, unless agent.yaml says how many. See `Choose`."""
    runners = min(MOST_TASKS, len(os.sched_getaffinity(0))) if options.master in _ANY_CORES else None
    host = SparkHost(options, run_dir, runners, on_failure=on_failure)

    def start() -> tuple[Executor, Host]:
        host.start()
        return JobExecutor(host), host

    return Carrier(host.runners, start)


def on_master(master: str, tasks: int) -> Choose:
    """What PySpark takes for a master: a cluster, with so many cores of it, or `local[N]` for this host."""
    if not is_cluster(master):
        return lambda options, run_dir, on_failure: on_this_host(options.model_copy(update={"master": master}), run_dir, on_failure)

    def choose(options: SparkOptions, run_dir: Path, on_failure: Callable[[FatalError], None]) -> Carrier:
        host = ClusterHost(options, run_dir, master, tasks, on_failure=on_failure)

        def start() -> tuple[Executor, Host]:
            host.start()
            return ClusterExecutor(host), host

        return Carrier(tasks, start)

    return choose


class LateExecutor:
    """See `executor.Executor`. Starts the real one with the first batch: a run that finds everything delivered needs no Spark."""

    def __init__(self, carrier: Carrier, on_failure: Callable[[FatalError], None]) -> None:
        self._carrier = carrier
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._started: tuple[Executor, Host] | None = None

    def submit(self, batch: Batch) -> Results:
        """See `Executor.submit`."""
        with self._lock:
            if self._started is None:
                try:
                    self._started = self._carrier.start()
                except FatalError as error:
                    self._on_failure(error)
                    future: Results = Future()
                    future.set_result(tuple(SplitResult(split, split.offset, error=error) for split in batch.splits))
                    return future
        return self._started[0].submit(batch)

    def settle(self, task: TaskId) -> None:
        """See `Executor.settle`."""
        if self._started is not None:
            self._started[0].settle(task)

    def close(self) -> None:
        """See `Executor.close`; the host's end as well."""
        if self._started is not None:
            executor, host = self._started
            executor.close()
            host.close()
