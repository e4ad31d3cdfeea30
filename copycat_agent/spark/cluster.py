"""ClusterExecutor: each batch is a Spark job of one task, somewhere on a cluster.

The executor produces to Kafka by itself; only results come back, so a batch that was lost on the way counts for nothing and is planned
again: Spark itself repeats nothing. Files have to be where every executor finds them: under the same path on a mount, or behind a URI.
A definition travels with its batch, in memory only; one that holds secrets never in the clear (`cluster_host.refusal`).
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
from copycat_agent.delivery.batch_outcomes import is_always_asked
from copycat_agent.errors import CopycatError, RetriableError
from copycat_agent.runner import failed, unpacked, unread
from copycat_agent.spark import cluster_task
from copycat_agent.spark.batch_needs import makes_frames, step_of
from copycat_agent.spark.cluster_job import BatchLine, ClusterFlight, ClusterJob, Pulse
from copycat_agent.spark.cluster_task import Errand, Seat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.model import Batch, Split, TaskId
    from copycat_agent.runner import Results
    from copycat_agent.spark.cluster_host import ClusterHost
    from copycat_agent.spark.cluster_job import Exchange
    from copycat_agent.spark.current_session import Session
    from copycat_agent.spark.sql_jobs import SqlContexts

ANSWER_SECONDS = 60.0
"""As in `jobs`: so long after `max_seconds` a batch that has begun is cancelled."""

PLACE_SECONDS = 120.0
"""So long no batch may begin while none is under way; then they come back as errors, and are planned again."""

ADMIT_SECONDS = 60.0
"""So long an executor may take to say what Python it has: the first time it fetches what travels along, and starts one."""

MOST_BATCHES = 64
"""What `delivery.tasks_max` may be."""

_LOOK_SECONDS = 0.2

_log = logs.get("spark")


class ClusterExecutor:
    """An `executor.Executor`. The host is the caller's: close it afterwards."""

    def __init__(
        self, host: ClusterHost, run: str = cluster_task.RUN, answer_seconds: float = ANSWER_SECONDS, place_seconds: float = PLACE_SECONDS
    ) -> None:
        """`host` has been started, and may still be coming up."""
        self._host = host
        self._run = run
        self._answer_seconds = answer_seconds
        self._place_seconds = place_seconds
        self._numbers = itertools.count(1)
        self._threads = ThreadPoolExecutor(MOST_BATCHES, "cluster-job")
        self._lock = threading.Lock()  # guards what follows
        self._flights: dict[TaskId, ClusterFlight] = {}
        self._admitted = 0
        self._admitting = threading.Lock()
        self._closed = threading.Event()
        self._pulse = Pulse()
        self._sql: SqlContexts | None = None

    def submit(self, batch: Batch) -> Future[Results]:
        """A definition that must not travel yields a FatalError, see `cluster_host.refusal`."""
        with self._lock:
            error: CopycatError | None = self._host.refusal_of(batch.definition)
            if error is None and not self._closed.is_set():
                flight = self._flights[batch.task] = ClusterFlight(batch, next(self._numbers))
                return self._threads.submit(self._carry, flight)
        future: Future[Results] = Future()
        future.set_result(failed(batch, error or RetriableError("the agent is stopping"), begun=False))
        return future

    def settle(self, task: TaskId) -> None:
        """Over the batch's line; a batch that has not begun, or cannot hear, is cancelled."""
        with self._lock:
            if flight := self._flights.get(task):
                flight.settle()

    def close(self) -> None:
        """Cancels what runs: callers who want it settled settle it first."""
        with self._lock:
            self._closed.set()
        self._threads.shutdown()

    def _carry(self, flight: ClusterFlight) -> Results:
        """On a thread of the pool. Raises nothing."""
        try:
            return self._fly(flight)
        except CopycatError as error:
            return failed(flight.batch, error, begun=flight.is_sent)
        finally:
            with self._lock:
                if self._flights.get(flight.batch.task) is flight:
                    del self._flights[flight.batch.task]

    def _fly(self, flight: ClusterFlight) -> Results:
        """Raises RetriableError when the job fails or is cancelled, FatalError when executors cannot run batches."""
        batch = flight.batch
        session = self._session(flight)
        if session is None:
            return unread(batch)
        try:
            self._admit(session, flight)
        except RetriableError:
            if flight.told_to_settle:
                return unread(batch)
            raise
        exchange = self._host.exchange
        with _lined(flight, exchange) as line:
            errand = Errand(
                replace(batch, splits=tuple(map(_shared, batch.splits))),
                self._run,
                copycat_agent.__version__,
                line.address,
            )
            jobs: list[ClusterJob] = []

            def new_job() -> ClusterJob:
                flight.is_sent = True
                seconds = batch.max_seconds + self._answer_seconds
                jobs.append(ClusterJob(session, flight, self._closed, self._pulse, self._place_seconds, seconds))
                return jobs[-1]

            try:
                answer = self._run_errand(session, errand, new_job)
            except RetriableError:
                if flight.told_to_settle and not is_always_asked(batch) and not any(job.has_begun for job in jobs):
                    return unread(batch)
                raise
        results = unpacked(batch, answer)
        return tuple(replace(result, split=split) for result, split in zip(results, batch.splits, strict=True))

    def _run_errand(self, session: Session, errand: Errand, new_job: Callable[[], ClusterJob]) -> bytes:
        """Packed results, after one job; with a query, after as many as it takes."""
        batch = errand.batch
        name, step = f"{batch.task.connector}/{batch.task.number}", step_of(batch.definition)
        if step is None and makes_frames(batch.definition) is None:
            return new_job().run(name, cluster_task.carry, errand)
        from copycat_agent.spark import frame_jobs, sql_jobs, sql_task  # noqa: PLC0415 - imports SQL of pyspark, and pandas

        if step is None:
            frame = frame_jobs.frame_of(frame_jobs.SESSIONS.on(session.context), batch)
            return new_job().work(name, lambda _: frame_jobs.carry(frame, sql_task.there, errand))

        with self._lock:
            self._sql = self._sql or sql_jobs.SqlContexts()
        contexts = self._sql

        def job(part: Batch, prepared: sql_jobs.Prepared, condemned: str, why: str, careful: bool) -> bytes:  # noqa: FBT001 - see `carry`
            frame = sql_jobs.frame_for(session.context, part)
            query = sql_task.SqlErrand(sql_task.there, errand._replace(batch=part), condemned, why, frame is not None)
            meeting = sql_jobs.meeting_place("")
            return new_job().work(name, lambda context: contexts.on(context).run(prepared, query, meeting, careful=careful, frame=frame))

        return sql_jobs.carry(contexts.on(session.context), batch, step, job)

    def _session(self, flight: ClusterFlight) -> Session | None:
        """The host's session, waited for; None when the batch is told to settle first. Raises RetriableError and FatalError."""
        deadline = time.monotonic() + PLACE_SECONDS
        while True:
            try:
                return self._host.session(_LOOK_SECONDS)
            except RetriableError:
                if flight.told_to_settle:
                    return None
                if self._closed.is_set() or time.monotonic() > deadline:
                    raise

    def _admit(self, session: Session, flight: ClusterFlight) -> None:
        """The first job of a session looks at the executors. Raises FatalError with what the first unfit one lacks."""
        with self._admitting:
            if self._admitted == session.number:
                return
            job = ClusterJob(session, flight, self._closed, self._pulse, self._place_seconds, ADMIT_SECONDS)
            found: Seat = pickle.loads(job.run("look", functools.partial(cluster_task.look, copycat_agent.__version__), None))  # noqa: S301 - from our own worker
            if found.trouble:
                raise cluster_task.unfit(found)
            _log.info("an executor can run batches", host=found.host, python=found.python)
            self._admitted = session.number


@contextlib.contextmanager
def _lined(flight: ClusterFlight, exchange: Exchange | None) -> Iterator[BatchLine]:
    """The flight with a line to its batch, as long as that lasts."""
    line = BatchLine(None) if exchange is None else exchange.line()
    flight.use(line)
    try:
        yield line
    finally:
        if exchange is not None:
            exchange.end(line)


def _shared(split: Split) -> Split:
    """The split as another host has to open it: by name, not by this process's descriptor; inodes differ there."""
    return replace(split, open_path=split.path, inode=0) if split.open_path.startswith("/proc/") else split
