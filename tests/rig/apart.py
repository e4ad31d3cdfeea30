"""A cluster's executor in a process of its own: pyspark allows one session per process, and the tests' own has a local one."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.options import SparkOptions
from copycat_agent.spark.cluster import ANSWER_SECONDS, PLACE_SECONDS, ClusterExecutor
from copycat_agent.spark.cluster_host import ClusterHost
from copycat_agent.spark.cluster_task import RUN

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from copycat_agent.delivery.base import PendingResults
    from copycat_agent.model import Batch, TaskId

_END_SECONDS = 60.0


class ExecutorApart:
    """See `executor.Executor`. `told` is what the host said when it gave up; `jvm_pid` is None while there is none."""

    def __init__(
        self, run_dir: Path, url: str, run: str = RUN, answer_seconds: float = ANSWER_SECONDS, place_seconds: float = PLACE_SECONDS
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        arguments = (other, run_dir, url, run, answer_seconds, place_seconds)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()
        self.run_dir = run_dir
        self.told: list[FatalError] = []
        self.jvm_pid: int | None = None
        self._lock = threading.Lock()
        self._futures: dict[int, PendingResults] = {}
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> PendingResults:
        """See `Executor.submit`."""
        future: PendingResults = Future()
        with self._lock:
            number = len(self._futures)
            self._futures[number] = future
            self._connection.send(("submit", number, batch))
        return future

    def settle(self, task: TaskId) -> None:
        """See `Executor.settle`."""
        with self._lock:
            self._connection.send(("settle", task))

    def close(self) -> None:
        """See `Executor.close`, and end its host and process."""
        with self._lock, contextlib.suppress(OSError):
            self._connection.send(("close",))
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._thread.join(_END_SECONDS)
        self._connection.close()
        self._process.close()

    def _receive(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                what, *rest = self._connection.recv()
                if what == "told":
                    self.told.append(rest[0])
                else:
                    number, results, self.jvm_pid = rest
                    self._futures[number].set_result(results)


def _serve(connection: Connection[Any, Any], run_dir: Path, url: str, run: str, answer_seconds: float, place_seconds: float) -> None:
    """In the process: until it is closed, or its parent has gone."""
    lock = threading.Lock()

    def say(*words: object) -> None:
        with lock, contextlib.suppress(OSError):
            connection.send(words)

    host = ClusterHost(SparkOptions(), run_dir, url, 2, on_failure=lambda error: say("told", error))
    with contextlib.suppress(CopycatError):
        host.start()
    executor = ClusterExecutor(host, run, answer_seconds, place_seconds)
    with contextlib.suppress(EOFError, OSError):
        while (message := connection.recv())[0] != "close":
            if message[0] == "settle":
                executor.settle(message[1])
                continue
            _, number, batch = message
            executor.submit(batch).add_done_callback(
                lambda future, number=number: say("results", number, future.result(), host.jvm_pid)  # type: ignore[misc]
            )
    executor.close()
    host.close()
    os._exit(0)  # whatever threads of pyspark are left
