"""`SparkHost` keeps a local Spark session running, and starts another one when its JVM dies.

One thread starts the JVM, connects, waits for the JVM's end, and starts over. Executors get the current session from `session()`.
"""

from __future__ import annotations

import gc
import math
import os
import re
import signal
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
"""By default there is one runner per core, up to this number. One runner sends 400,000 lines a second."""

MOST_FAILURES = 3
"""The host gives up after this many failures in a row: starts that failed, and JVMs that ended within `YOUNG_SECONDS`."""

YOUNG_SECONDS = 10.0
"""The end of a JVM that was up for longer is no failure in a row."""

_FIRST_PAUSE_SECONDS = 0.5

_log = logs.get("spark")


class JvmEnd(NamedTuple):
    """The end of a JVM: reason, time (`time.monotonic()`), and how long Spark was up in it; None if it never was."""

    problem: str
    at: float
    up_seconds: float | None


def gave_up(ends: Sequence[JvmEnd]) -> str:
    """Returns a message about the last JVMs before the host gave up."""
    count, problem = len(ends), ends[-1].problem
    young = sum(end.up_seconds is not None for end in ends)
    if not young:
        return f"Spark did not come up {count} times in a row: {problem}"
    within = f"{count} times within {math.ceil(ends[-1].at - ends[0].at)} s"
    if young == count:
        return f"Spark's JVM ended {within}, each time soon after it had come up: {problem}"
    return f"Spark failed {within}, {count - young} of them before it was up and {young} soon after: {problem}"


class SparkHost:
    """Starts, keeps and ends the only Spark session of this process.

    `run_dir` is a directory for this host alone (the caller holds the state directory's lock); what an earlier run left there is deleted.
    `runners` overrides the number in `options.master`. `on_failure` is called once, on the host's thread, when the host gives up; the
    agent then exits with 75 and leaves the decision to its service manager. Workers hold the lock `workers_lock`.
    """

    master = ""
    """URL of the cluster, "" for a local session."""

    failure_hint = "look at the JVM's messages with log level debug; a SIGKILL comes from a memory limit, or from somebody (dmesg)"
    """Hint for the failure after which the host gives up."""

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
        """Starts nothing yet. Raises FatalError if `options.master` is not local."""
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
        """The state, for status pages."""
        return self._current.state

    @property
    def failure(self) -> FatalError | None:
        """Why the host gave up; None if it has not."""
        return self._current.failure

    @property
    def slots(self) -> int:
        """Most Spark tasks at a time: the resident ones, as many bounded jobs, and one in reserve (`jobs`)."""
        return 2 * self.runners + 1

    @property
    def jvm_pid(self) -> int | None:
        """The JVM's process id; None without a JVM."""
        return self._jvm.pid if self._jvm else None

    def start(self, *, queries: bool = False) -> None:
        """Starts the JVM, and returns before the session is up. Raises FatalError if there is no Java.

        `queries`: some connectors have queries, so JVMs are started for throughput rather than for a quick start.
        """
        self._launcher = java.Launcher((*java.jvm_options(queries=queries), f"-Xmx{self._options.driver_memory // 2**20}m"))
        self.socket_dir = rundir.prepare(self.run_dir)
        self._current.starts()
        self._jvm = self._start_jvm()  # before pyspark is imported, which takes time, too
        self._thread.start()
        SPARK.offer(self._for_frames)

    def session(self, seconds: float | None = None) -> Session:
        """Returns the current session; waits for it, at most `seconds`.

        Raises RetriableError if it is not up in time or the host is closed, FatalError if the host has given up.
        """
        return self._current.wait(seconds)

    def _for_frames(self, seconds: float) -> SparkSession:
        """Raises as `session` does, and RetriableError for errors of py4j, since the JVM is ending then."""
        context = self.session(seconds).context  # first, so that one thread imports pyspark: others could see it partly imported
        from copycat_agent.spark.frame_jobs import SESSIONS  # noqa: PLC0415 - imports SQL of pyspark, which few sources need

        try:
            return SESSIONS.on(context)
        except Exception as error:  # noqa: BLE001 - whatever py4j raises
            why = type(error).__name__
        raise RetriableError(f"there is no Spark session now ({why})")

    def close(self) -> None:
        """Ends the session, the JVM and all workers. Close executors first. Idempotent, also without `start`."""
        self._closing.set()
        SPARK.withdraw(self._for_frames)
        session, jvm = self._current.close(), self._jvm
        if jvm and session:
            archive = self._launcher.archive
            if archive.recording:
                _log.info("Spark records what it loaded, once; later starts take half the time")
            clean = jvm.close(RECORD_SECONDS if archive.recording else EXIT_SECONDS)
            archive.keep() if clean else archive.discard(is_suspect=False)
        elif jvm:
            jvm.kill()
        if self._thread.ident:
            self._thread.join()
            rundir.remove(self.run_dir)

    def _keep(self) -> None:
        """Thread: runs one session after the other until closed, or until it gives up."""
        ends: list[JvmEnd] = []  # failures in a row
        while not self._closing.is_set():
            try:
                problem, up_seconds = self._live()
            except Exception as error:  # noqa: BLE001 - without this thread there would be no further session
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
                ends.append(JvmEnd(problem, time.monotonic(), up_seconds))
            if len(ends) >= MOST_FAILURES:
                self._give_up(gave_up(ends))
                return
            _log.warning("Spark is started again", reason=problem)
            self._closing.wait(_FIRST_PAUSE_SECONDS * max(0, len(ends) - 1))

    def _live(self) -> tuple[str, float | None]:
        """Runs one JVM to its end. Returns why it ended, and how long Spark was up in it (None: it never was)."""
        from copycat_agent.spark.session import forget_context  # noqa: PLC0415 - as in `_connect`

        try:
            jvm = self._jvm = self._jvm or self._start_jvm()
        except OSError as error:
            return f"the JVM could not be started: {error}", None
        if self._closing.is_set():  # `close` may have found no JVM yet
            jvm.kill()
        try:
            session = self._connect(jvm)
        except RetriableError as error:
            self._abandon(jvm)
            return error.message, None
        up_at = time.monotonic()
        self._current.is_up(session)
        if session.number == 1:
            gc.freeze()  # imported modules stay: otherwise each collection would walk 200,000 objects
        jvm.wait()
        up_seconds = time.monotonic() - up_at
        forget_context(session.context)
        self._bury(jvm)
        return f"the JVM ended ({jvm.ending()})", up_seconds

    def _start_jvm(self) -> Jvm:
        return Jvm(self._launcher.command(self.run_dir), self.run_dir, self._environment())

    def _environment(self) -> dict[str, str]:
        """Returns the environment of the JVM and its workers."""
        armed = {name: os.environ[name] for name in (failpoints.VARIABLE, failpoints.ONCE) if name in os.environ}
        paths = {"PYTHONPATH": python_path(os.environ), "TMPDIR": str(self.run_dir / rundir.TEMPORARY)}
        return child_environment(os.environ, **paths, **self._for_workers, **armed)

    def _settings(self) -> dict[str, str]:
        """Returns Spark's configuration. Called when pyspark is imported."""
        from copycat_agent.spark import session  # noqa: PLC0415 - as in `_connect`

        return session.configuration(self._options.conf, self.slots, self.run_dir / rundir.LOCAL, self.socket_dir / rundir.SPARK_SOCKETS)

    def _made(self, context: SparkContext) -> None:
        """Called for a new session before anybody gets it. If it raises, the start has failed."""

    def _connect(self, jvm: Jvm) -> Session:
        """Connects to the JVM and starts Spark. Raises RetriableError for any error of pyspark and py4j."""
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
            raise RetriableError(f"Spark did not start: {session.reason_of(error)}") from error
        _log.info("Spark is up", seconds=round(time.monotonic() - jvm.started, 2), jvm_pid=jvm.pid)
        return Session(self._current.count + 1, context, jvm)

    def _abandon(self, jvm: Jvm) -> None:
        """Ends a JVM whose start failed. The archive may be the reason, so the next start does without."""
        is_suspect = jvm.ending() != signal.SIGKILL.name
        jvm.kill()
        self._launcher.archive.discard(is_suspect=is_suspect)
        self._bury(jvm)

    def _bury(self, jvm: Jvm) -> None:
        """Removes what a dead JVM has left."""
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
    """Returns the number of runners of a `spark.master`. Raises FatalError if it is not local."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    if match is None:
        raise FatalError(f"spark.master {master!r} cannot be used", "write local, or local[N] for N runners")
    if match[1] in {None, "*", "0"}:
        return max(1, min(len(os.sched_getaffinity(0)), MOST_RUNNERS))
    return int(match[1])


def python_path(environ: Mapping[str, str]) -> str:
    """Returns PYTHONPATH for workers: the directory of this package, and the agent's own PYTHONPATH."""
    root = str(Path(copycat_agent.__file__).resolve().parents[1])
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}  # on their path already; they must not come first
    parts = ([] if root in installed else [root]) + environ.get("PYTHONPATH", "").split(":")
    return ":".join(str(Path(part).absolute()) for part in parts if part)
