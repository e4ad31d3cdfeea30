"""`ClusterExecutor` runs each batch as a Spark job of one task on a cluster.

The task itself produces to Kafka; only results come back. A batch that is lost on the way counts for nothing and is planned again; Spark
repeats nothing. Every executor must find the files: under the same path on a mount, or at a URI. A definition travels with its batch, in
memory only, and one with secrets only over an encrypted connection (`cluster_host.refusal`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import copycat_agent
from copycat_agent import logs
from copycat_agent.delivery.batch_outcomes import needs_kafka_check
from copycat_agent.errors import CopycatError, RetriableError, lacking
from copycat_agent.executor import resolved
from copycat_agent.runner import failed, unpacked, unread
from copycat_agent.spark import cluster_task
from copycat_agent.spark.batch_needs import makes_frames, step_of
from copycat_agent.spark.cluster_job import ClusterActivity, ClusterBatch, ClusterJob, ControlConnection, ControlListener
from copycat_agent.spark.cluster_task import BatchMessage, ExecutorPython

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.model import Batch, Results, Split, TaskId
    from copycat_agent.spark.cluster_host import ClusterHost
    from copycat_agent.spark.current_session import Session
    from copycat_agent.spark.sql_jobs import SqlContexts

ANSWER_SECONDS = 60.0
"""A batch that has begun is cancelled this long after `max_seconds`, as in `jobs`."""

PLACE_SECONDS = 120.0
"""If no batch begins within this time and none is under way, waiting batches fail, and are planned again."""

ADMIT_SECONDS = 60.0
"""Time limit of the first job, which checks an executor's Python: the executor fetches files and starts one."""

MOST_BATCHES = 64
"""Largest `delivery.tasks_max`."""

_LOOK_SECONDS = 0.2

_log = logs.get("spark")


class ClusterExecutor:
    """An `executor.Executor`. The caller owns the host, and closes it afterwards."""

    def __init__(
        self, host: ClusterHost, run: str = cluster_task.RUN, answer_seconds: float = ANSWER_SECONDS, place_seconds: float = PLACE_SECONDS
    ) -> None:
        """`host` was started, but need not be up yet."""
        self._host = host
        self._run = run
        self._answer_seconds = answer_seconds
        self._place_seconds = place_seconds
        self._numbers = itertools.count(1)
        self._threads = ThreadPoolExecutor(MOST_BATCHES, "cluster-job")
        self._lock = threading.Lock()  # guards what follows
        self._flights: dict[TaskId, ClusterBatch] = {}
        self._admitted = 0
        self._admitting = threading.Lock()
        self._closed = threading.Event()
        self._activity = ClusterActivity()
        self._sql: SqlContexts | None = None

    def submit(self, batch: Batch) -> Future[Results]:
        """Results are a FatalError if the definition must not leave this host (`cluster_host.refusal`)."""
        with self._lock:
            error: CopycatError | None = self._host.refusal_of(batch.definition)
            if error is None and not self._closed.is_set():
                flight = self._flights[batch.task] = ClusterBatch(batch, next(self._numbers))
                try:
                    return self._threads.submit(self._carry, flight)
                except RuntimeError as no_thread:
                    del self._flights[batch.task]
                    error = lacking(no_thread)
        return resolved(failed(batch, error or RetriableError("the agent is stopping"), begun=False))

    def settle(self, task: TaskId) -> None:
        """Sent over the batch's line. A batch that has not begun, or has no line, is cancelled."""
        with self._lock:
            if flight := self._flights.get(task):
                flight.settle()

    def close(self) -> None:
        """Cancels running batches. Callers that want them settled call `settle` first."""
        with self._lock:
            self._closed.set()
        self._threads.shutdown()

    def _carry(self, flight: ClusterBatch) -> Results:
        """Runs a batch on a thread of the pool. Raises nothing."""
        with self._lock:
            if self._flights.get(flight.batch.task) is not flight:  # it could not be submitted, but the pool has queued it
                return unread(flight.batch)
        try:
            return self._run_batch(flight)
        except CopycatError as error:
            return failed(flight.batch, error, begun=flight.is_sent)
        except Exception as error:  # noqa: BLE001 - there may be no thread for the guard, or no JVM any more
            from copycat_agent.spark.session import reason_of  # noqa: PLC0415 - imports pyspark: the session's thread has to be first

            told = lacking(error) or RetriableError(f"the Spark job broke off: {reason_of(error)}")
            return failed(flight.batch, told, begun=flight.is_sent)
        finally:
            with self._lock:
                if self._flights.get(flight.batch.task) is flight:
                    del self._flights[flight.batch.task]

    def _run_batch(self, flight: ClusterBatch) -> Results:
        """Raises RetriableError if the job fails or is cancelled, FatalError if executors cannot run batches."""
        batch = flight.batch
        session = self._session(flight)
        if session is None:
            return unread(batch)
        try:
            self._admit(session, flight)
        except RetriableError:
            if flight.settle_requested:
                return unread(batch)
            raise
        exchange = self._host.exchange
        with _control_connection(flight, exchange) as line:
            message = BatchMessage(
                replace(batch, splits=tuple(map(_shared, batch.splits))),
                self._run,
                copycat_agent.__version__,
                line.address,
            )
            jobs: list[ClusterJob] = []

            def new_job() -> ClusterJob:
                flight.is_sent = True
                seconds = batch.settled_seconds + self._answer_seconds
                jobs.append(ClusterJob(session, flight, self._closed, self._activity, self._place_seconds, seconds))
                return jobs[-1]

            try:
                answer = self._run_batch_message(session, message, new_job)
            except RetriableError:
                if flight.settle_requested and not needs_kafka_check(batch) and not any(job.has_begun for job in jobs):
                    return unread(batch)
                raise
        results = unpacked(batch, answer)
        return tuple(replace(result, split=split) for result, split in zip(results, batch.splits, strict=True))

    def _run_batch_message(self, session: Session, message: BatchMessage, new_job: Callable[[], ClusterJob]) -> bytes:
        """Returns packed results after one job, or several for a query that fails for a record."""
        batch = message.batch
        name, step = f"{batch.task.connector}/{batch.task.number}", step_of(batch.definition)
        if step is None and makes_frames(batch.definition) is None:
            return new_job().run(name, cluster_task.carry, message)
        from copycat_agent.spark import frame_jobs, sql_jobs, sql_task  # noqa: PLC0415 - imports SQL of pyspark, and pandas

        if step is None:
            frame = frame_jobs.frame_of(frame_jobs.SESSIONS.on(session.context), batch)
            return new_job().work(name, lambda _: frame_jobs.carry(frame, sql_task.there, message))

        with self._lock:
            self._sql = self._sql or sql_jobs.SqlContexts()
        contexts = self._sql

        def job(part: Batch, prepared: sql_jobs.PreparedQuery, condemned: str, why: str, careful: bool) -> bytes:  # noqa: FBT001 - see `carry`
            frame = sql_jobs.frame_for(session.context, part)
            query = sql_task.SqlBatchMessage(sql_task.there, message._replace(batch=part), condemned, why, frame is not None)
            meeting = sql_jobs.socket_name("")
            return new_job().work(name, lambda context: contexts.on(context).run(prepared, query, meeting, careful=careful, frame=frame))

        return sql_jobs.carry(contexts.on(session.context), batch, step, job)

    def _session(self, flight: ClusterBatch) -> Session | None:
        """Waits for the host's session. Returns None if the batch has to settle first. Raises RetriableError and FatalError."""
        deadline = time.monotonic() + PLACE_SECONDS
        while True:
            try:
                return self._host.session(_LOOK_SECONDS)
            except RetriableError:
                if flight.settle_requested:
                    return None
                if self._closed.is_set() or time.monotonic() > deadline:
                    raise

    def _admit(self, session: Session, flight: ClusterBatch) -> None:
        """Checks an executor with the first job of a session. Raises FatalError, which says what an unfit one lacks."""
        with self._admitting:
            if self._admitted == session.number:
                return
            job = ClusterJob(session, flight, self._closed, self._activity, self._place_seconds, ADMIT_SECONDS)
            found: ExecutorPython = pickle.loads(job.run("look", functools.partial(cluster_task.look, copycat_agent.__version__), None))  # noqa: S301 - from our own worker
            if found.trouble:
                raise cluster_task.unfit(found)
            _log.info("an executor can run batches", host=found.host, python=found.python)
            self._admitted = session.number


@contextlib.contextmanager
def _control_connection(flight: ClusterBatch, exchange: ControlListener | None) -> Iterator[ControlConnection]:
    """Gives the batch its control connection while it runs."""
    line = ControlConnection(None) if exchange is None else exchange.line()
    flight.use(line)
    try:
        yield line
    finally:
        if exchange is not None:
            exchange.end(line)


def _shared(split: Split) -> Split:
    """Returns the split for another host, which opens the file by name, not by this process's descriptor; inodes differ there."""
    return replace(split, open_path=split.path, inode=0) if split.open_path.startswith("/proc/") else split
