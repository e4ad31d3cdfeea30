"""Runs batches as Spark jobs: `JobExecutor` runs each as a job of one task, `ChoosingExecutor` only those that need Spark SQL.

A job costs about 40 ms, so jobs are for long batches, as in `backfill`, and for queries and records that Spark reads. The batch travels as
the task's partition, or in its closure, through the JVM's memory; what Spark spills of it is encrypted.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.executor import DefinitionChecker, as_value, resolved, run_batch
from copycat_agent.fair_executor import FairExecutor, is_success, participant_of
from copycat_agent.runner import bounded, credentials, failed, unpacked, unread
from copycat_agent.spark.batch_needs import makes_frames, needs_job, step_of, told_by_source
from copycat_agent.spark.cancelling import cancel_job
from copycat_agent.spark.runner_pool import LocalRunnerPool
from copycat_agent.spark.runners import RunnerExecutor
from copycat_agent.transforms.sql import SqlStep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark import SparkContext

    from copycat_agent.executor import Executor, Hung
    from copycat_agent.model import Batch, Results, Split, TaskId
    from copycat_agent.runner import Run
    from copycat_agent.spark.current_session import Session
    from copycat_agent.spark.host import SparkHost
    from copycat_agent.spark.sql_jobs import SqlContext, SqlContexts


ANSWER_SECONDS = 60.0
"""The job is cancelled, and its worker ended, this long after `max_seconds`, as in `runners`."""

PLACE_SECONDS = 60.0
"""How long a batch waits for the Spark session."""

UNFIT_SECONDS = 30.0
"""If jobs fail for longer than this with errors that show another version of copycat-agent in workers, the run ends. Before that an upgrade
may be under way."""

_GUARD_SECONDS = 0.2
_UNFIT = ("AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "SyntaxError", "TypeError")


class _JobBatch(NamedTuple):
    """A batch that waits or runs, and the file that tells it to settle."""

    batch: Batch
    stop_file: Path
    future: Future[Results]


class JobExecutor:
    """An `executor.Executor`. The caller owns the host, and closes it afterwards.

    At most `host.runners` jobs run at a time, and others wait for their turn. One more slot is for batches of participants whose last
    batch went well while others fail, or while one Kafka cluster takes all other slots. `settle` creates a file that the batch looks for,
    which needs a file system shared with the worker. A batch that waits is returned unread.
    """

    def __init__(self, host: SparkHost, run: Run = run_batch, answer_seconds: float = ANSWER_SECONDS) -> None:
        """`host` was started, but need not be up yet."""
        self._host = host
        self._run = run
        self._answer_seconds = answer_seconds
        self._numbers = itertools.count(1)
        self._threads = ThreadPoolExecutor(host.runners + 1, "job")  # threads are kept, because each has a connection to the JVM
        self._executor = FairExecutor(host.runners + 1, self._threads.submit)
        self._examiner = ThreadPoolExecutor(1, "examine")
        self._lock = threading.Lock()  # guards what follows
        self._flights: dict[TaskId, _JobBatch] = {}
        self._closed = threading.Event()
        self._unfit_since: float | None = None
        self._sql: SqlContexts | None = None

    def submit(self, batch: Batch) -> Future[Results]:
        stop_file = self._host.socket_dir / f"settle-{next(self._numbers)}"
        error = RetriableError("the agent is stopping")
        with self._lock:
            if not self._closed.is_set():
                try:
                    future = self._executor.take("", participant_of(batch), functools.partial(self._carry, batch, stop_file), is_success)
                except RetriableError as refused:
                    error = refused
                else:
                    self._flights[batch.task] = _JobBatch(batch, stop_file, future)
                    return future
        return resolved(failed(batch, error, begun=False))

    def examine(self, definition: bytes) -> Future[FatalError | None]:
        """Lets Spark check the definition's query. The future's result is the error, None without one."""
        step = step_of(definition)
        with self._lock:
            if step is not None and not self._closed.is_set():
                return self._examiner.submit(self._looked_at, step)
        return resolved(None)

    def _looked_at(self, step: SqlStep) -> FatalError | None:
        """Checks a query on a thread of its own, without a broker. Raises nothing: the first batch tells what cannot be checked now."""
        if step.columns is None:
            return None
        try:
            session = self._session(self._host.socket_dir / "nobody-settles")
            if session is not None:
                self._sql_on(session.context).prepared(step)
        except FatalError as error:
            return error
        except Exception:  # noqa: BLE001 - whatever Spark, py4j and an ending JVM raise
            return None
        return None

    def settle(self, task: TaskId) -> None:
        with self._lock:
            flight = self._flights.get(task)
            if flight and not self._withdraw(flight, unread(flight.batch)):
                with contextlib.suppress(OSError):
                    flight.stop_file.touch()

    def close(self) -> None:
        """Cancels running batches. Callers that want them settled call `settle` first."""
        with self._lock:
            self._closed.set()
            flights = list(self._flights.values())
            for flight in flights:
                self._withdraw(flight, failed(flight.batch, RetriableError("the agent is stopping"), begun=False))
        wait([flight.future for flight in flights])
        self._threads.shutdown()
        self._examiner.shutdown(wait=False)  # a JVM that hangs does not answer it, until the host ends the JVM

    def _withdraw(self, flight: _JobBatch, results: Results) -> bool:
        """Ends a batch that still waits with `results`. Returns whether it did. Called with the lock."""
        if not self._executor.withdraw("", participant_of(flight.batch), flight.future):
            return False
        del self._flights[flight.batch.task]
        flight.future.set_result(results)
        return True

    def _carry(self, batch: Batch, stop_file: Path) -> Results:
        """Runs a batch on a thread of the pool. Raises nothing."""
        sent = threading.Event()
        try:
            return self._job(batch, stop_file, sent)
        except Exception as error:  # noqa: BLE001 - there may be no thread for the guard
            return failed(batch, as_value(error), begun=sent.is_set())
        finally:
            with self._lock:
                if (flight := self._flights.get(batch.task)) and flight.stop_file is stop_file:
                    del self._flights[batch.task]
            with contextlib.suppress(OSError):
                stop_file.unlink()

    def _job(self, batch: Batch, stop_file: Path, sent: threading.Event) -> Results:
        """Raises RetriableError if the job fails, takes too long or is cancelled by `close`, FatalError if no job can run any more.

        `sent` is set before a worker can get the batch.
        """
        from copycat_agent.spark.session import reason_of  # noqa: PLC0415 - imports pyspark, and is not needed before

        session = self._session(stop_file)
        if session is None:
            return unread(batch)
        job = _Job(session, stop_file.name, self._closed)
        threading.Thread(
            target=job.guard, args=(batch.settled_seconds + self._answer_seconds,), name=f"{job.group}-guard", daemon=True
        ).start()
        try:
            session.context.setJobGroup(job.group, f"{batch.task.connector}/{batch.task.number}", interruptOnCancel=True)
            results = self._carried(session.context, batch, str(stop_file), sent)
        except CopycatError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever py4j raises: the job is over
            told = None if job.problem else told_by_source(batch.definition, error)
            raise told or self._broken_off(job.problem or reason_of(error)) from None
        finally:
            job.end()
        self._unfit_since = None
        return unpacked(batch, results)

    def _carried(self, context: SparkContext, batch: Batch, stop_file: str, sent: threading.Event) -> bytes:
        """Returns packed results. Raises what py4j raises, and RefusedQueryError if the definition's query cannot be run."""
        step = step_of(batch.definition)
        if step is not None:
            return self._queried(context, batch, stop_file, step, sent)
        if makes_frames(batch.definition) is not None:
            from copycat_agent.spark import frame_jobs, sql_task  # noqa: PLC0415 - imports SQL of pyspark

            frame = frame_jobs.frame_of(frame_jobs.SESSIONS.on(context), batch)
            sent.set()
            return frame_jobs.carry(frame, sql_task.here, (stop_file, batch, credentials(batch, os.environ)))
        from copycat_agent.spark.session import run_task  # noqa: PLC0415 - as above

        sent.set()
        (results,) = run_task(context, functools.partial(bounded, stop_file, self._run), (batch, credentials(batch, os.environ)))
        return results

    def _queried(self, context: SparkContext, batch: Batch, stop_file: str, step: SqlStep, sent: threading.Event) -> bytes:
        from copycat_agent.spark import sql_jobs, sql_task  # noqa: PLC0415 - imports SQL of pyspark, and pandas

        sql, meeting = self._sql_on(context), str(self._host.socket_dir)

        def job(part: Batch, prepared: sql_jobs.PreparedQuery, condemned: str, why: str, careful: bool) -> bytes:  # noqa: FBT001 - see `carry`
            frame = sql_jobs.frame_for(context, part)
            sent.set()
            message = sql_task.SqlBatchMessage(
                sql_task.here, (stop_file, part, credentials(part, os.environ)), condemned, why, frame is not None
            )
            return sql.run(prepared, message, sql_jobs.socket_name(meeting), careful=careful, frame=frame)

        return sql_jobs.carry(sql, batch, step, job)

    def _sql_on(self, context: SparkContext) -> SqlContext:
        """Returns the SQL session on this context. Takes seconds the first time in a JVM."""
        from copycat_agent.spark import sql_jobs  # noqa: PLC0415 - as above

        with self._lock:
            self._sql = self._sql or sql_jobs.SqlContexts()
        return self._sql.on(context)

    def _broken_off(self, reason: str) -> CopycatError:
        """Returns the error for a failed job. Errors of a batch are in its results, so a worker raises only before the batch begins."""
        now, message = time.monotonic(), f"the Spark job broke off: {reason}"
        if not reason.startswith(_UNFIT):
            return RetriableError(message)
        self._unfit_since = self._unfit_since or now
        if now - self._unfit_since < UNFIT_SECONDS:
            return RetriableError(message)
        return FatalError(message, "copycat-agent was changed while it ran: start it again")

    def _session(self, stop_file: Path) -> Session | None:
        """Waits for the host's session. Returns None if the batch has to settle first. Raises RetriableError and FatalError."""
        deadline = time.monotonic() + PLACE_SECONDS
        while True:
            try:
                return self._host.session(_GUARD_SECONDS)
            except RetriableError:
                if stop_file.exists():
                    return None
                if self._closed.is_set() or time.monotonic() > deadline:
                    raise


class _Job:
    """A running job, which a guard cancels when its time is over or the executor is closed."""

    def __init__(self, session: Session, group: str, closed: threading.Event) -> None:
        self.group = group
        self.problem = ""
        self._session = session
        self._closed = closed
        self._over = threading.Event()

    def end(self) -> None:
        """Ends the guard."""
        self._over.set()

    def guard(self, seconds: float) -> None:
        """Thread: watches the job to its end."""
        deadline = time.monotonic() + seconds
        while not self._over.wait(_GUARD_SECONDS):
            late = time.monotonic() > deadline
            if late or self._closed.is_set():
                self.problem = "it took too long and was cancelled" if late else "the agent is stopping"
                cancel_job(self._session, self.group, self._over)
                return


class ChoosingExecutor:
    """Runs batches with a query, or with records that Spark reads, as jobs, and all others on resident runners.

    The caller owns the host, and closes it afterwards.
    """

    def __init__(self, runners: RunnerExecutor, jobs: Executor, before_job: Callable[[], None] = lambda: None) -> None:
        """`before_job` is called before a batch goes to `jobs`."""
        self._runners = runners
        self._jobs = jobs
        self._before_job = before_job

    def submit(self, batch: Batch) -> Future[Results]:
        if not needs_job(batch.definition):
            return self._runners.submit(batch)
        self._before_job()
        return self._jobs.submit(batch)

    def follow(self, batch: Batch, report: Callable[[Results], None]) -> Future[Results]:
        """As `Executor.follow`. Batches with a query do not come here, because a job cannot report."""
        return self._runners.follow(batch, report)

    def join(self, task: TaskId, splits: tuple[Split, ...]) -> None:
        self._runners.join(task, splits)

    def examine(self, definition: bytes) -> Future[FatalError | None]:
        if isinstance(self._jobs, DefinitionChecker):
            return self._jobs.examine(definition)
        return resolved(None)

    def settle(self, task: TaskId) -> None:
        self._runners.settle(task)
        self._jobs.settle(task)

    def close(self) -> None:
        self._runners.close()
        self._jobs.close()


def on_this_host(host: SparkHost, hung: Hung = lambda _: ()) -> ChoosingExecutor:
    """Returns the executor of an agent. `host` was started, but need not be up yet.

    `hung` is that of `RunnerExecutor`; a job that hangs is cancelled when its time is over.
    """
    return ChoosingExecutor(RunnerExecutor(LocalRunnerPool(host), hung=hung), JobExecutor(host))
