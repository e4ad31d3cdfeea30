"""One Spark job on a cluster: waiting for its place, under way, and the reasons to cancel it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.spark.cluster_line import Line
from copycat_agent.spark.sql_words import QueryFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

    from copycat_agent.model import Batch
    from copycat_agent.spark.host import Session

SETTLE_SECONDS = 10.0
"""A batch that was told to settle and cannot hear it is cancelled after so long: less than a connector waits when it stops."""

TELL_SECONDS = 15.0
"""When batches wait longer for the cluster, it is told."""

_LOOK_SECONDS = 0.2
_BEGUN_SECONDS = 1.0
_NO_PLACE = "look at the master's page: are there workers with free cores, and as much free memory as spark.executor.memory asks for?"
_PYTHONS = "name a Python of the agent's version with spark.pyspark.python, or send one along with spark.archives"

_log = logs.get("spark")


class Flight:
    """A batch on its way: what its job and `settle` share. Thread-safe. `is_sent`: an executor may have it."""

    def __init__(self, batch: Batch, number: int) -> None:
        self.batch = batch
        self.number = number
        self.settled_at = 0.0
        self.is_sent = False
        self.line = Line(None)
        self._lock = threading.Lock()

    @property
    def settled(self) -> bool:
        """Whether it was told to settle."""
        return self.settled_at > 0

    def use(self, line: Line) -> None:
        """This is how it hears, from now on."""
        with self._lock:
            self.line = line
            if self.settled:
                line.settle()

    def settle(self) -> None:
        """It shall settle."""
        with self._lock:
            self.settled_at = self.settled_at or time.monotonic()
            self.line.settle()


class Pulse:
    """When a batch last began or ended, of all of an executor's: while they do, the others wait with good reason."""

    def __init__(self) -> None:
        self._last = 0.0
        self._told = False

    def beat(self) -> None:
        """One has begun or ended."""
        self._last = time.monotonic()
        self._told = False

    def quiet(self, since: float) -> float:
        """Seconds without a beat, `since` at the earliest."""
        return time.monotonic() - max(self._last, since)

    def tell(self, quiet: float) -> None:
        """Say, once in each such time, that nothing begins."""
        if quiet > TELL_SECONDS and not self._told:
            self._told = True
            _log.warning("the cluster has given no place to run yet, the agent waits", waited_s=round(quiet), hint=_NO_PLACE)


class Job:
    """Used once. `has_begun`: an executor has taken it up, as far as is known here."""

    def __init__(
        self,
        session: Session,
        flight: Flight,
        closed: threading.Event,
        pulse: Pulse,
        place_seconds: float,
        seconds: float,
    ) -> None:
        """It may wait `place_seconds` while nothing else goes on, and take `seconds` once it has begun."""
        self.has_begun = False
        self._session = session
        self._flight = flight
        self._closed = closed
        self._pulse = pulse
        self._place_seconds = place_seconds
        self._seconds = seconds
        self._problem = ""
        self._hint = ""
        self._over = threading.Event()

    def run(self, name: str, function: Callable[..., object], item: object) -> bytes:
        """What `function` yields over a partition that holds `item`. Raises RetriableError, FatalError when it cannot work there."""
        from copycat_agent.spark.session import run_task  # noqa: PLC0415 - imports pyspark, and is not needed before

        return self.work(name, lambda context: run_task(context, function, item)[0])  # type: ignore[arg-type]

    def work(self, name: str, work: Callable[[SparkContext], bytes]) -> bytes:
        """What `work` makes of the session's context, in one Spark job. Raises as `run` does, and what `work` raises of ours."""
        from copycat_agent.spark.session import reason_of, words_of  # noqa: PLC0415 - as above

        context = self._session.context
        group = f"{name}#{self._flight.number}"
        threading.Thread(target=self._guard, args=(context, group), name=f"guard-{group}", daemon=True).start()
        try:
            context.setJobGroup(group, name, interruptOnCancel=True)
            answer = work(context)
        except (CopycatError, QueryFailedError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever py4j raises: the job is over
            reason = self._problem or reason_of(error)
            self._bury_a_stopped_session(context)
            if "PYTHON_VERSION_MISMATCH" in words_of(error):
                msg = f"the executors have another version of Python than the agent: {reason}"
                raise FatalError(msg, _PYTHONS) from None
            msg = f"the Spark job broke off: {reason}"
            raise RetriableError(msg, self._hint) from None
        finally:
            self._over.set()
            self._pulse.beat()
        return answer

    def _bury_a_stopped_session(self, context: SparkContext) -> None:
        """Spark ends a context when its master is gone for good, or has removed it. Its JVM would stay: a new one is started."""
        try:
            is_stopped = bool(context._jsc.sc().isStopped())  # noqa: SLF001 - pyspark has no other way to ask
        except Exception:  # noqa: BLE001 - the JVM is gone, which its host sees by itself
            return
        if is_stopped and self._session.jvm.runs():
            self._session.jvm.kill()

    def _guard(self, context: SparkContext, group: str) -> None:
        """Thread: lives as long as the job."""
        asked = since = time.monotonic()
        begun_at = 0.0
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if not self.has_begun and (self._flight.line.is_connected or now - asked > _BEGUN_SECONDS):
                asked = now
                if self._flight.line.is_connected or _is_active(context, group):
                    self.has_begun, begun_at = True, now
                    self._pulse.beat()
            self._problem = self._problem or (self._overdue(begun_at) if self.has_begun else self._unplaced(since))
            if self._problem:
                with contextlib.suppress(Exception):  # the JVM may be gone, and the job with it
                    context.cancelJobGroup(group)  # again and again: it misses a job that is about to start

    def _unplaced(self, since: float) -> str:
        """Why a job that has not begun shall not."""
        if self._closed.is_set() or self._flight.settled:
            return "the agent is stopping"
        quiet = self._pulse.quiet(since)
        self._pulse.tell(quiet)
        if quiet > self._place_seconds:
            self._hint = _NO_PLACE
            return f"the cluster has given it no place for {quiet:.0f} s"
        return ""

    def _overdue(self, begun_at: float) -> str:
        """Why a job that has begun shall not go on."""
        now, flight = time.monotonic(), self._flight
        if self._closed.is_set():
            return "the agent is stopping"
        if now > begun_at + self._seconds:
            return "it took too long and was cancelled"
        if flight.settled and not flight.line.is_connected and now > flight.settled_at + SETTLE_SECONDS:
            return "it could not be told to settle and was cancelled"
        return ""


def _is_active(context: SparkContext, group: str) -> bool:
    """Whether a task of the job runs, as Spark's driver knows it."""
    with contextlib.suppress(Exception):  # a JVM that is gone, a job that has just ended
        tracker = context.statusTracker()
        infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
        return any(stage.numActiveTasks for stage in stages if stage)
    return False
