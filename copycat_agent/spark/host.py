"""SparkHost: the local Spark session as something that is there, and comes back when its JVM dies.

One thread owns it: it starts the JVM, connects, waits for the JVM's end, and starts another. Executors ask for the session
of the moment with `session()` and get a new one after a restart.
"""

from __future__ import annotations

import gc
import math
import os
import re
import sysconfig
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import copycat_agent
from copycat_agent import failpoints, logs
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.sources.contract_frames import SPARK
from copycat_agent.spark import java, rundir
from copycat_agent.spark.current_session import CurrentSession, Session, State
from copycat_agent.spark.jvm import EXIT_SECONDS, RECORD_SECONDS, Jvm, child_environment
from copycat_agent.spark.workers_lock import VARIABLE as WORKERS_LOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from copycat_agent.options import SparkOptions

MOST_RUNNERS = 4
"""Runners by default: one per core, at most so many. One of them sends 400,000 lines a second."""

MOST_FAILURES = 3
"""So many in a row are the end: starts that failed, and JVMs that ended soon after they had come up."""

YOUNG_SECONDS = 10.0
"""A JVM that was up for longer is started again however often it ends."""

_FIRST_PAUSE_SECONDS = 0.5

_log = logs.get("spark")


class End(NamedTuple):
    """Why a JVM is gone, when (monotonic), and how long Spark was up in it; None: it never was."""

    problem: str
    at: float
    up_seconds: float | None


def gave_up(ends: Sequence[End]) -> str:
    """What to say of the JVMs that were the last ones."""
    count, problem = len(ends), ends[-1].problem
    young = sum(end.up_seconds is not None for end in ends)
    if not young:
        return f"Spark did not come up {count} times in a row: {problem}"
    within = f"{count} times within {math.ceil(ends[-1].at - ends[0].at)} s"
    if young == count:
        return f"Spark's JVM ended {within}, each time soon after it had come up: {problem}"
    return f"Spark failed {within}, {count - young} of them before it was up and {young} soon after: {problem}"


class SparkHost:
    """Starts, keeps and ends the Spark session of this process; there is one at a time.

    `run_dir` is a directory for this host alone (the caller holds the state directory's lock): what an earlier run left in it is
    deleted. `runners` overrides what `options.master` says. `on_failure` is called once, from the host's thread, when Spark does
    not come up any more; the agent then exits with 75, so that its service manager decides. Workers hold `workers_lock`, see there.
    """

    master = ""
    """The cluster's, "" for this host."""

    failure_hint = "look at the JVM's messages with log level debug; a SIGKILL comes from a memory limit, or from somebody (dmesg)"
    """What to do when Spark does not come up, or does not stay."""

    def __init__(
        self,
        options: SparkOptions,
        run_dir: Path,
        runners: int | None = None,
        *,
        on_failure: Callable[[FatalError], None] = lambda _: None,
        young_seconds: float = YOUNG_SECONDS,
        workers_lock: Path | None = None,
    ) -> None:
        """Touches nothing yet. Raises FatalError when `options.master` is not local."""
        self.runners = runners or runners_of(options.master)
        self._options = options
        self.run_dir = run_dir
        self._on_failure = on_failure
        self._young_seconds = young_seconds
        self._for_workers = {WORKERS_LOCK: str(workers_lock.absolute())} if workers_lock else {}
        self._current = CurrentSession()
        self._jvm: Jvm | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="spark-host", daemon=True)

    @property
    def state(self) -> State:
        """What it is doing, for status pages."""
        return self._current.state

    @property
    def failure(self) -> FatalError | None:
        """Why Spark does not come up any more; None while it may."""
        return self._current.failure

    @property
    def slots(self) -> int:
        """Spark tasks at a time: the resident ones, and as many bounded jobs beside them, with one in reserve (see `jobs`)."""
        return 2 * self.runners + 1

    @property
    def jvm_pid(self) -> int | None:
        """The JVM's process id; None when there is none."""
        return self._jvm.pid if self._jvm else None

    def start(self, *, queries: bool = False) -> None:
        """Start the JVM and return; the session comes up behind. Raises FatalError when there is no Java to start.

        `queries`: there are some, so this JVM and those that follow it are to be quick in the long run.
        """
        self._launcher = java.Launcher((*java.jvm_options(queries=queries), f"-Xmx{self._options.driver_memory // 2**20}m"))
        self.socket_dir = rundir.prepare(self.run_dir)
        self._current.starts()
        self._jvm = self._start_jvm()  # before pyspark is imported: both take their time side by side
        self._thread.start()
        SPARK.offer(self._for_frames)

    def session(self, seconds: float | None = None) -> Session:
        """The session of the moment; waits for it, at most `seconds`.

        Raises RetriableError when it is not up in time or the host is closed, FatalError when it will not come up any more.
        """
        return self._current.wait(seconds)

    def _for_frames(self, seconds: float) -> SparkSession:
        """Raises as `session` does, and RetriableError for what py4j raises: the JVM is going."""
        context = self.session(seconds).context  # first: pyspark is imported by one thread, or each may find it half imported
        from copycat_agent.spark.frame_jobs import SESSIONS  # noqa: PLC0415 - imports SQL of pyspark, for the few who ask

        try:
            return SESSIONS.on(context)
        except Exception as error:  # noqa: BLE001 - whatever py4j raises
            why = type(error).__name__
        raise RetriableError(f"no Spark session is to be had ({why})")

    def close(self) -> None:
        """End the session, the JVM and every worker. Close executors first. Safe to call twice, and without `start`."""
        self._closing.set()
        SPARK.withdraw(self._for_frames)
        session, jvm = self._current.close(), self._jvm
        if jvm and session:
            archive = self._launcher.archive
            if archive.recording:
                _log.info("Spark records what it loaded, once; later starts take half the time")
            clean = jvm.close(RECORD_SECONDS if archive.recording else EXIT_SECONDS)
            (archive.keep if clean else archive.discard)()
        elif jvm:
            jvm.kill()
        if self._thread.ident:
            self._thread.join()
            rundir.remove(self.run_dir)

    def _keep(self) -> None:
        """Thread: one session after the other until closed, or until it is no use."""
        ends: list[End] = []  # of those in a row that never came up, or not for long
        while not self._closing.is_set():
            try:
                problem, up_seconds = self._live()
            except Exception as error:  # noqa: BLE001 - this thread has to live on, or Spark would be gone for good
                words = "no thread can be started" if isinstance(error, RuntimeError) else type(error).__name__
                problem, up_seconds = f"{words}: {error}", None
                if self._jvm:
                    self._jvm.kill()
                    self._bury(self._jvm)
            if self._closing.is_set():
                return
            if up_seconds is not None and up_seconds > self._young_seconds:
                ends.clear()
            else:
                ends.append(End(problem, time.monotonic(), up_seconds))
            if len(ends) >= MOST_FAILURES:
                self._give_up(gave_up(ends))
                return
            _log.warning("Spark is started again", reason=problem)
            self._closing.wait(_FIRST_PAUSE_SECONDS * max(0, len(ends) - 1))

    def _live(self) -> tuple[str, float | None]:
        """One JVM's life. Returns why it ended, and how long Spark was up in it (None: it never was)."""
        from copycat_agent.spark.session import forget_context  # noqa: PLC0415 - as in `_connect`

        try:
            jvm = self._jvm = self._jvm or self._start_jvm()
        except OSError as error:
            return f"the JVM could not be started: {error}", None
        if self._closing.is_set():  # `close` may have looked before it was there
            jvm.kill()
        try:
            session = self._connect(jvm)
        except RetriableError as error:
            self._abandon(jvm)
            return error.message, None
        up_at = time.monotonic()
        self._current.is_up(session)
        if session.number == 1:
            gc.freeze()  # what start-up imported stays for good: each collection would walk 200,000 objects to find that out
        jvm.wait()
        up_seconds = time.monotonic() - up_at
        forget_context(session.context)
        self._bury(jvm)
        return f"the JVM ended ({jvm.ending()})", up_seconds

    def _start_jvm(self) -> Jvm:
        return Jvm(self._launcher.command(self.run_dir), self.run_dir, self._environment())

    def _environment(self) -> dict[str, str]:
        """The JVM's, and its workers'."""
        armed = {name: os.environ[name] for name in (failpoints.VARIABLE, failpoints.ONCE) if name in os.environ}
        paths = {"PYTHONPATH": python_path(os.environ), "TMPDIR": str(self.run_dir / rundir.TEMPORARY)}
        return child_environment(os.environ, **paths, **self._for_workers, **armed)

    def _settings(self) -> dict[str, str]:
        """Spark's. pyspark is imported by now."""
        from copycat_agent.spark import session  # noqa: PLC0415 - as in `_connect`

        return session.configuration(self._options.conf, self.slots, self.run_dir / rundir.LOCAL, self.socket_dir / rundir.SPARK_SOCKETS)

    def _made(self, context: SparkContext) -> None:
        """A session has come up and nobody has it yet. May raise anything: then it has not."""

    def _connect(self, jvm: Jvm) -> Session:
        """Raises RetriableError, whatever pyspark and py4j raised."""
        from copycat_agent.spark import session  # noqa: PLC0415  imports pyspark, 0.2 s in which the JVM starts

        port, secret = jvm.gateway()
        try:
            context = session.open_context(port, secret, self._settings())
            try:
                self._made(context)
            except BaseException:
                session.forget_context(context)
                raise
        except Exception as error:
            msg = f"Spark did not start: {session.reason_of(error)}"
            raise RetriableError(msg) from error
        _log.info("Spark is up", seconds=round(time.monotonic() - jvm.started, 2), jvm_pid=jvm.pid)
        return Session(self._current.count + 1, context, jvm)

    def _abandon(self, jvm: Jvm) -> None:
        """Its start failed. The archive may be the reason: the next start does without."""
        jvm.kill()
        self._launcher.archive.discard()
        self._bury(jvm)

    def _bury(self, jvm: Jvm) -> None:
        """Nothing of the dead JVM is left for the next one."""
        self._jvm = None
        self._current.starts()
        jvm.close(0)
        if not self._closing.is_set():
            rundir.sweep(self.run_dir, self.socket_dir)

    def _give_up(self, message: str) -> None:
        failure = FatalError(message, self.failure_hint)
        self._current.fail(failure)
        self._on_failure(failure)


def runners_of(master: str) -> int:
    """How many runners `spark.master` asks for. Raises FatalError for what is not local."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    if match is None:
        msg = f"spark.master {master!r} cannot be used"
        raise FatalError(msg, "write local, or local[N] for N runners")
    if match[1] in {None, "*", "0"}:
        return max(1, min(len(os.sched_getaffinity(0)), MOST_RUNNERS))
    return int(match[1])


def python_path(environ: Mapping[str, str]) -> str:
    """PYTHONPATH for workers: they find this package wherever it was imported from, and what the agent's own path adds."""
    root = str(Path(copycat_agent.__file__).resolve().parents[1])
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}  # already on their path, and not to come first
    parts = ([] if root in installed else [root]) + environ.get("PYTHONPATH", "").split(":")
    return ":".join(str(Path(part).absolute()) for part in parts if part)
