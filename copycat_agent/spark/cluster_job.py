"""One batch's Spark job on a cluster: how it is asked to settle, how long it may wait for a core and run, and why it is cancelled.

A task connects to the driver and proves with a token which batch it is; then the driver sends one byte, or nothing. An eavesdropper could
at most end one batch, which is planned again. Where a firewall lets no task through, batches run to their limits.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent import logs
from copycat_agent.errors import CopycatError, FatalError, RetriableError, lacking
from copycat_agent.spark.batch_needs import told_by_source
from copycat_agent.spark.cancelling import cancel_job
from copycat_agent.spark.sql_words import QueryFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

    from copycat_agent.model import Batch
    from copycat_agent.spark.current_session import Session


TOKEN_BYTES = 32
_AGAIN_SECONDS = 1.0
_PROOF_SECONDS = 2.0
"""How long a new connection may take to send its token."""


class ControlAddress(NamedTuple):
    """The address and the token that a task needs to connect. The token is valid for one batch."""

    host: str
    port: int
    token: bytes


class ControlConnection:
    """The connection over which a batch learns that it has to settle, or that the driver has gone. Thread-safe."""

    def __init__(self, address: ControlAddress | None) -> None:
        """`address` None: executors cannot connect to this process."""
        self.address = address
        self.settle_requested = False
        self._lock = threading.Lock()
        self._peer: socket.socket | None = None
        self._closed = False

    def connect(self, peer: socket.socket) -> None:
        """Called when the batch has connected. Asks it to settle if that was requested before."""
        with self._lock:
            before, self._peer = self._peer, peer  # Spark may have restarted the task
        if before is not None:
            before.close()
        if self._closed:
            self.close()
        elif self.settle_requested:
            self.settle()

    def settle(self) -> None:
        """Asks the batch to settle, now or when it connects."""
        self.settle_requested = True
        with self._lock:
            peer = self._peer
        if peer is not None:
            with contextlib.suppress(OSError):
                peer.send(b"s", socket.MSG_DONTWAIT)

    @property
    def is_connected(self) -> bool:
        """Returns whether the batch has connected."""
        return self._peer is not None

    def close(self) -> None:
        """Closes the connection: a batch that still runs settles."""
        with self._lock:
            self._closed = True
            peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()


class ControlListener:
    """The driver's end of all lines: accepts connections of tasks and finds the line of each."""

    def __init__(self, bind: str, host: str) -> None:
        """Listens on `bind`, which executors reach as `host`. Where that fails no batch gets a line."""
        self._lines: dict[bytes, ControlConnection] = {}
        self._host = host
        self._server: socket.socket | None = None
        self._closed = threading.Event()
        with contextlib.suppress(OSError):
            self._server = socket.create_server((bind, 0), family=socket.AF_INET6 if ":" in bind else socket.AF_INET)
            threading.Thread(target=self._serve, args=(self._server,), name="cluster-lines", daemon=True).start()

    def line(self) -> ControlConnection:
        """Returns a line for a new batch; without an address where this does not listen."""
        if self._server is None:
            return ControlConnection(None)
        token = secrets.token_bytes(TOKEN_BYTES)
        line = self._lines[token] = ControlConnection(ControlAddress(self._host, self._server.getsockname()[1], token))
        return line

    def end(self, line: ControlConnection) -> None:
        """Closes the line of a batch that is over."""
        if line.address is not None:
            self._lines.pop(line.address.token, None)
        line.close()

    def close(self) -> None:
        """Stops listening and closes all lines."""
        self._closed.set()
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # wakes `accept`
            self._server.close()
        for line in list(self._lines.values()):
            self.end(line)

    def _serve(self, server: socket.socket) -> None:
        """Thread: serves one connection after the other, each for `_PROOF_SECONDS` a read at most."""
        while True:
            try:
                peer, _ = server.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                _log.error("no batch can connect now, and it is tried again", error=error)
                self._closed.wait(_AGAIN_SECONDS)
                continue
            line = self._lines.get(_proof(peer))
            if line is None:
                peer.close()
            else:
                line.connect(peer)


def _proof(peer: socket.socket) -> bytes:
    """Returns the token that the peer sends; less of it, or b"", when it does not come."""
    data = b""
    with contextlib.suppress(OSError):
        peer.settimeout(_PROOF_SECONDS)
        while len(data) < TOKEN_BYTES and (more := peer.recv(TOKEN_BYTES - len(data))):
            data += more
    return data


SETTLE_SECONDS = 10.0
"""A batch that has to settle and is not connected is cancelled after this time: less than a connector waits when it stops."""

TELL_SECONDS = 15.0
"""A warning is logged when batches wait longer than this for the cluster."""

_LOOK_SECONDS = 0.2
_BEGUN_SECONDS = 1.0
NO_PLACE = "look at the master's page: are there workers with free cores, and as much free memory as spark.executor.memory asks for?"
_PYTHONS = "name a Python of the agent's version with spark.pyspark.python, or send one along with spark.archives"

_log = logs.get("spark")


class ClusterBatch:
    """A batch in flight: what its job and `settle` share. Thread-safe. `is_sent`: an executor may have it."""

    def __init__(self, batch: Batch, number: int) -> None:
        self.batch = batch
        self.number = number
        self.settle_requested_at = 0.0
        self.is_sent = False
        self.line = ControlConnection(None)
        self._lock = threading.Lock()

    @property
    def settle_requested(self) -> bool:
        """Returns whether `settle` was called."""
        return self.settle_requested_at > 0

    def use(self, line: ControlConnection) -> None:
        """Uses `line` to ask the batch to settle from now on; at once if `settle` was called before."""
        with self._lock:
            self.line = line
            if self.settle_requested:
                line.settle()

    def settle(self) -> None:
        """Asks the batch to settle, now or when it connects."""
        with self._lock:
            self.settle_requested_at = self.settle_requested_at or time.monotonic()
            self.line.settle()


class ClusterActivity:
    """When any batch of an executor last began or ended: while batches do, the others have to wait for a core."""

    def __init__(self) -> None:
        self._last = 0.0
        self._reported = False

    def beat(self) -> None:
        """Notes that a batch has begun or ended."""
        self._last = time.monotonic()
        self._reported = False

    def quiet(self, since: float) -> float:
        """Returns the seconds without a beat, from `since` at the earliest. Warns beyond `TELL_SECONDS`, once until the next beat."""
        quiet = time.monotonic() - max(self._last, since)
        if quiet > TELL_SECONDS and not self._reported:
            self._reported = True
            _log.warning("the cluster has given no place to run yet, the agent waits", waited_s=round(quiet), hint=NO_PLACE)
        return quiet


class ClusterJob:
    """One Spark job; used once. `has_begun`: an executor is known to have begun it."""

    def __init__(
        self,
        session: Session,
        flight: ClusterBatch,
        closed: threading.Event,
        activity: ClusterActivity,
        place_seconds: float,
        seconds: float,
    ) -> None:
        """The job may wait `place_seconds` while no other batch begins or ends, and run for `seconds`."""
        self.has_begun = False
        self._session = session
        self._flight = flight
        self._closed = closed
        self._activity = activity
        self._place_seconds = place_seconds
        self._seconds = seconds
        self._problem = ""
        self._hint = ""
        self._over = threading.Event()

    def run(self, name: str, function: Callable[..., object], item: object) -> bytes:
        """Returns what `function` yields over a partition that holds `item`. Raises RetriableError; FatalError if it cannot run there."""
        from copycat_agent.spark.session import run_task  # noqa: PLC0415 - imports pyspark, and is not needed before

        return self.work(name, lambda context: run_task(context, function, item)[0])  # type: ignore[arg-type]

    def work(self, name: str, work: Callable[[SparkContext], bytes]) -> bytes:
        """Returns what `work` returns for the session's context, in one Spark job. Raises as `run` does, and CopycatErrors of `work`."""
        from copycat_agent.spark.session import reason_of, words_of  # noqa: PLC0415 - as above

        context = self._session.context
        group = f"{name}#{self._flight.number}"
        try:
            threading.Thread(target=self._ask, args=(context, group), name=f"ask-{group}", daemon=True).start()
            threading.Thread(target=self._guard, args=(group,), name=f"guard-{group}", daemon=True).start()
            context.setJobGroup(group, name, interruptOnCancel=True)
            answer = work(context)
        except (CopycatError, QueryFailedError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever py4j raises: the job is over
            told = None if self._problem else lacking(error) or told_by_source(self._flight.batch.definition, error)
            reason = self._problem or reason_of(error)
            kill_stopped_session(self._session)
            if "PYTHON_VERSION_MISMATCH" in words_of(error):
                msg = f"the executors have another version of Python than the agent: {reason}"
                raise FatalError(msg, _PYTHONS) from None
            msg = f"the Spark job broke off: {reason}"
            raise told or RetriableError(msg, self._hint) from None
        finally:
            self._over.set()
            self._activity.beat()
        return answer

    def _ask(self, context: SparkContext, group: str) -> None:
        """Thread: asks Spark's driver whether the job has begun, until it has or is over. A JVM that hangs does not answer."""
        while not self.has_begun and not self._over.wait(_BEGUN_SECONDS):
            if _is_active(context, group):
                self.has_begun = True

    def _guard(self, group: str) -> None:
        """Thread that runs as long as the job: cancels it once there is a reason to."""
        since, begun_at = time.monotonic(), 0.0
        while not self._over.wait(_LOOK_SECONDS):
            if self._flight.line.is_connected:
                self.has_begun = True
            if self.has_begun and not begun_at:
                begun_at = time.monotonic()
                self._activity.beat()
            self._problem = self._overdue(begun_at) if begun_at else self._unplaced(since)
            if self._problem:
                cancel_job(self._session, group, self._over)
                return

    def _unplaced(self, since: float) -> str:
        """Returns why a job that has not begun has to be cancelled, "" while it may wait."""
        if self._closed.is_set() or self._flight.settle_requested:
            return "the agent is stopping"
        quiet = self._activity.quiet(since)
        if quiet > self._place_seconds:
            self._hint = NO_PLACE
            return f"the cluster has given it no place for {quiet:.0f} s"
        return ""

    def _overdue(self, begun_at: float) -> str:
        """Returns why a job that has begun has to be cancelled, "" while it may run."""
        now, flight = time.monotonic(), self._flight
        if self._closed.is_set():
            return "the agent is stopping"
        if now > begun_at + self._seconds:
            return "it took too long and was cancelled"
        if flight.settle_requested and not flight.line.is_connected and now > flight.settle_requested_at + SETTLE_SECONDS:
            return "it could not be told to settle and was cancelled"
        return ""


def kill_stopped_session(session: Session) -> None:
    """Kills the JVM of a context that Spark has stopped, as it does when the master is gone or has removed it: a new one is started."""
    try:
        is_stopped = bool(session.context._jsc.sc().isStopped())  # noqa: SLF001 - pyspark has no other way to ask
    except Exception:  # noqa: BLE001 - the JVM is gone, which its host notices
        return
    if is_stopped and session.jvm.runs():
        session.jvm.kill()


def _is_active(context: SparkContext, group: str) -> bool:
    """Returns whether a task of the job runs, as far as Spark's driver knows."""
    with contextlib.suppress(Exception):  # a JVM that is gone, a job that has just ended
        tracker = context.statusTracker()
        infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
        return any(stage.numActiveTasks for stage in stages if stage)
    return False
