"""`ClusterRunnerPool` keeps a runner on each core of a cluster's executors, and follows their number."""

from __future__ import annotations

import contextlib
import itertools
import logging
import pickle
import threading
from typing import TYPE_CHECKING

import copycat_agent
from copycat_agent import logs
from copycat_agent.errors import FatalError
from copycat_agent.runner import Work
from copycat_agent.spark import cluster_task
from copycat_agent.spark.cancelling import cancel_job
from copycat_agent.spark.cluster_job import kill_stopped_session
from copycat_agent.spark.cluster_listener import ClusterListener, RemoteRunnerConnection
from copycat_agent.spark.runner_pool import RunnerEvents, RunnerJobs

if TYPE_CHECKING:
    from collections.abc import Collection

    from copycat_agent.model import Batch
    from copycat_agent.spark.cluster_host import ClusterHost
    from copycat_agent.spark.current_session import Session

MOST_RUNNERS = 512
"""Most runners: each has a thread in this process, and one in the driver's JVM."""

LOOK_SECONDS = 2.0
"""Interval at which Spark is asked for the number of cores; a quarter of it while there is no runner."""

_log = logs.get("spark")


def wanted(cores: int, *, with_jobs: bool) -> int:
    """Returns the number of runners for `cores`.

    `with_jobs`: some batches are Spark jobs of their own, and get a quarter of the cores, at least one, also if it is the only one.
    """
    left = max(1, cores // 4) if with_jobs else 0
    return min(MOST_RUNNERS, max(0, cores - left))


def changes(kept: Collection[int], connected: Collection[int], cores: int, *, with_jobs: bool) -> tuple[list[int], list[int]]:
    """Returns the runners to start and those to end, first those that are not connected. Changes nothing while there are no cores."""
    if not cores:
        return [], []
    surplus = len(kept) - wanted(cores, with_jobs=with_jobs)
    free = (index for index in itertools.count() if index not in kept)
    begin = list(itertools.islice(free, max(0, -surplus)))
    return begin, sorted(kept, key=lambda one: (one in connected, -one))[: max(0, surplus)]


def cores_of(session: Session) -> int:
    """Returns the number of cores of all present executors. Raises what py4j raises."""
    context = session.context._jsc.sc()  # noqa: SLF001 - pyspark has no other way to ask
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


class ClusterRunnerPool:
    """A `runner_pool.RunnerPool`. Runners connect over TLS: their jobs bring the driver's address, its certificate's hash and a key."""

    reason = "the cluster has given none a place yet: see that it runs, and has free cores and memory"

    def __init__(self, host: ClusterHost) -> None:
        """`host` has been started, and may still be coming up. Raises FatalError if this host's address cannot be listened on."""
        self._host = host
        try:
            self._listener = ClusterListener(*host.own_addresses())
        except OSError as error:
            msg = f"executors cannot be let in at this host's address: {error.strerror or error}"
            raise FatalError(msg, "set spark.driver.host, and spark.driver.bindAddress, under spark.conf of agent.yaml") from None
        self.key = self._listener.address.key
        self._attempts = itertools.count(1)
        self._jobs: RunnerJobs | None = None
        self._groups: dict[int, tuple[Session, str, threading.Event]] = {}
        self._leaves_cores = False
        self._closed = threading.Event()

    def start(self, events: RunnerEvents) -> None:
        self._jobs = RunnerJobs(self._host, self._run_job, events)
        threading.Thread(target=self._follow_cores, args=(self._jobs, events), name="runner-pool", daemon=True).start()

    def accept(self) -> RemoteRunnerConnection | None:
        return self._listener.accept()

    def work(self, number: int, batch: Batch) -> Work:
        """Returns it without credentials of this process's environment: executors have their own. Raises FatalError for a refused one."""
        if error := self._host.refusal_of(batch.definition):
            raise error
        return Work(number, batch)

    def leave_cores(self) -> None:
        """Leaves a quarter of the cores to batches that are Spark jobs of their own. Called when there are such batches."""
        self._leaves_cores = True

    def dismiss(self, index: int) -> None:
        """Cancels the runner's Spark job, which ends its process."""
        if found := self._groups.get(index):
            with contextlib.suppress(RuntimeError):  # no more threads: it ends once it notices
                threading.Thread(target=cancel_job, args=found, name=f"dismiss-{index}", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._listener.close()
        if self._jobs is not None:
            self._jobs.close()

    def wait(self, seconds: float) -> None:
        if self._jobs is not None:
            self._jobs.wait(seconds)

    def _follow_cores(self, jobs: RunnerJobs, events: RunnerEvents) -> None:
        """Thread: starts and ends runners as the number of cores changes."""
        while not self._closed.wait(LOOK_SECONDS if jobs.kept else LOOK_SECONDS / 4):
            connected = events.connected()
            begin, end = changes(jobs.kept, connected, self._cores(), with_jobs=self._leaves_cores)
            try:
                for index in begin:
                    jobs.keep(index)
            except RuntimeError as error:
                _log.warning("no thread can be started for a runner now, and it is tried again", error=error)
            for index in end:
                jobs.drop(index)
                events.retire(index) if index in connected else self.dismiss(index)

    def _cores(self) -> int:
        """Returns the number of cores of all present executors; 0 while it cannot be determined."""
        try:
            return cores_of(self._host.session(LOOK_SECONDS))
        except Exception:  # noqa: BLE001 - whatever the host, and py4j for a JVM that is going, raise
            return 0

    def _run_job(self, session: Session, index: int) -> str:
        from copycat_agent.spark.session import run_task  # noqa: PLC0415 - imports pyspark, and is not needed before

        context, group = session.context, f"runner-{index}#{next(self._attempts)}"
        level = min(logging.getLogger("copycat_agent").getEffectiveLevel(), logging.WARNING)  # the driver filters what runners log
        post = cluster_task.ResidentTask(index, cluster_task.RUN, copycat_agent.__version__, level, self._listener.address)
        over = threading.Event()
        self._groups[index] = session, group, over
        try:
            context.setJobGroup(group, f"runner {index}", interruptOnCancel=True)
            said = run_task(context, cluster_task.stay, post)
        except Exception:
            kill_stopped_session(session)
            raise
        finally:
            over.set()
        return str(cluster_task.unfit(pickle.loads(said[0]))) if said else ""  # noqa: S301 - from our own worker
