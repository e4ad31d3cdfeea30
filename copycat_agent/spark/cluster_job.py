"""One batch's Spark job on a cluster: how it is told to settle, how long it may wait for its place and run, and why it is cancelled.

A task connects to the driver and proves with a token which batch it is; then the driver sends one byte, or nothing. What an eavesdropper
could gain is the end of one batch, which is planned again. Where a firewall lets no task through, batches run to their bounds.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent import logs
from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.spark.batch_needs import told_by_source
from copycat_agent.spark.sql_words import QueryFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

    from copycat_agent.model import Batch
    from copycat_agent.spark.current_session import Session


TOKEN_BYTES = 32
_PROOF_SECONDS = 2.0
"""How long who connects may take to send a token."""


class BatchAddress(NamedTuple):
    """What a task needs to connect. The token is good for one batch."""

    host: str
    port: int
    token: bytes


class BatchLine:
    """Over it one batch hears that it shall settle, or that the driver has gone. Thread-safe."""

    def __init__(self, address: BatchAddress | None) -> None:
        """`address` None: there is no way from the executors to here."""
        self.address = address
        self.told_to_settle = False
        self._lock = threading.Lock()
        self._peer: socket.socket | None = None
        self._closed = False

    def connect(self, peer: socket.socket) -> None:
        """The batch has come up; one that was told to settle before hears it now."""
        with self._lock:
            before, self._peer = self._peer, peer  # Spark may have started the task anew
        if before is not None:
            before.close()
        if self._closed:
            self.close()
        elif self.told_to_settle:
            self.settle()

    def settle(self) -> None:
        """Tell the batch to settle, now or when it connects."""
        self.told_to_settle = True
        with self._lock:
            peer = self._peer
        if peer is not None:
            with contextlib.suppress(OSError):
                peer.send(b"s", socket.MSG_DONTWAIT)

    @property
    def is_connected(self) -> bool:
        """Whether the batch has come up and can hear."""
        return self._peer is not None

    def close(self) -> None:
        """The batch is over, or given up: if it still runs, it settles."""
        with self._lock:
            self._closed = True
            peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()


class Exchange:
    """The driver's end of all lines: lets tasks connect and finds the line of each."""

    def __init__(self, bind: str, host: str) -> None:
        """Listens on `bind`, reached as `host`. Where that is not possible there are no lines."""
        self._lines: dict[bytes, BatchLine] = {}
        self._host = host
        self._server: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._server = socket.create_server((bind, 0), family=socket.AF_INET6 if ":" in bind else socket.AF_INET)
            threading.Thread(target=self._serve, args=(self._server,), name="cluster-lines", daemon=True).start()

    def line(self) -> BatchLine:
        """Open a line for a new batch."""
        if self._server is None:
            return BatchLine(None)
        token = secrets.token_bytes(TOKEN_BYTES)
        line = self._lines[token] = BatchLine(BatchAddress(self._host, self._server.getsockname()[1], token))
        return line

    def end(self, line: BatchLine) -> None:
        """Close the line of a batch that is over."""
        if line.address is not None:
            self._lines.pop(line.address.token, None)
        line.close()

    def close(self) -> None:
        """Stop listening and close all lines."""
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # wakes `accept`
            self._server.close()
        for line in list(self._lines.values()):
            self.end(line)

    def _serve(self, server: socket.socket) -> None:
        """Thread: one caller after the other; nobody is waited for long."""
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            line = self._lines.get(_proof(peer))
            if line is None:
                peer.close()
            else:
                line.connect(peer)


def _proof(peer: socket.socket) -> bytes:
    """The token that it sends, b"" when none comes."""
    data = b""
    with contextlib.suppress(OSError):
        peer.settimeout(_PROOF_SECONDS)
        while len(data) < TOKEN_BYTES and (more := peer.recv(TOKEN_BYTES - len(data))):
            data += more
    return data


SETTLE_SECONDS = 10.0
"""A batch that was told to settle and cannot hear it is cancelled after so long: less than a connector waits when it stops."""

TELL_SECONDS = 15.0
"""When batches wait longer for the cluster, it is told."""

_LOOK_SECONDS = 0.2
_BEGUN_SECONDS = 1.0
NO_PLACE = "look at the master's page: are there workers with free cores, and as much free memory as spark.executor.memory asks for?"
_PYTHONS = "name a Python of the agent's version with spark.pyspark.python, or send one along with spark.archives"

_log = logs.get("spark")


class ClusterFlight:
    """A batch on its way: what its job and `settle` share. Thread-safe. `is_sent`: an executor may have it."""

    def __init__(self, batch: Batch, number: int) -> None:
        self.batch = batch
        self.number = number
        self.told_to_settle_at = 0.0
        self.is_sent = False
        self.line = BatchLine(None)
        self._lock = threading.Lock()

    @property
    def told_to_settle(self) -> bool:
        """Whether it was told to settle."""
        return self.told_to_settle_at > 0

    def use(self, line: BatchLine) -> None:
        """Tell it to settle over `line` from now on; at once where it was told to before."""
        with self._lock:
            self.line = line
            if self.told_to_settle:
                line.settle()

    def settle(self) -> None:
        """Tell it to settle, now or as soon as it can hear."""
        with self._lock:
            self.told_to_settle_at = self.told_to_settle_at or time.monotonic()
            self.line.settle()


class Pulse:
    """When a batch last began or ended, of all of an executor's: while they do, the others wait with good reason."""

    def __init__(self) -> None:
        self._last = 0.0
        self._told = False

    def beat(self) -> None:
        """Note that a batch has begun or ended."""
        self._last = time.monotonic()
        self._told = False

    def quiet(self, since: float) -> float:
        """Seconds without a beat, `since` at the earliest. Warns when they have become many, once until the next beat."""
        quiet = time.monotonic() - max(self._last, since)
        if quiet > TELL_SECONDS and not self._told:
            self._told = True
            _log.warning("the cluster has given no place to run yet, the agent waits", waited_s=round(quiet), hint=NO_PLACE)
        return quiet


class ClusterJob:
    """One Spark job; used once. `has_begun`: an executor has taken it up, as far as is known here."""

    def __init__(
        self,
        session: Session,
        flight: ClusterFlight,
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
            told = None if self._problem else told_by_source(self._flight.batch.definition, error)
            reason = self._problem or reason_of(error)
            bury_a_stopped_session(self._session)
            if "PYTHON_VERSION_MISMATCH" in words_of(error):
                msg = f"the executors have another version of Python than the agent: {reason}"
                raise FatalError(msg, _PYTHONS) from None
            msg = f"the Spark job broke off: {reason}"
            raise told or RetriableError(msg, self._hint) from None
        finally:
            self._over.set()
            self._pulse.beat()
        return answer

    def _guard(self, context: SparkContext, group: str) -> None:
        """Thread that lives as long as the job: cancels it once there is a reason to."""
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
        """Why a job that has not begun shall not begin, "" while it may."""
        if self._closed.is_set() or self._flight.told_to_settle:
            return "the agent is stopping"
        quiet = self._pulse.quiet(since)
        if quiet > self._place_seconds:
            self._hint = NO_PLACE
            return f"the cluster has given it no place for {quiet:.0f} s"
        return ""

    def _overdue(self, begun_at: float) -> str:
        """Why a job that has begun shall not go on, "" while it may."""
        now, flight = time.monotonic(), self._flight
        if self._closed.is_set():
            return "the agent is stopping"
        if now > begun_at + self._seconds:
            return "it took too long and was cancelled"
        if flight.told_to_settle and not flight.line.is_connected and now > flight.told_to_settle_at + SETTLE_SECONDS:
            return "it could not be told to settle and was cancelled"
        return ""


def bury_a_stopped_session(session: Session) -> None:
    """Spark ends a context when its master is gone for good, or has removed it. Its JVM would stay: a new one is started."""
    try:
        is_stopped = bool(session.context._jsc.sc().isStopped())  # noqa: SLF001 - pyspark has no other way to ask
    except Exception:  # noqa: BLE001 - the JVM is gone, which its host sees by itself
        return
    if is_stopped and session.jvm.runs():
        session.jvm.kill()


def _is_active(context: SparkContext, group: str) -> bool:
    """Whether a task of the job runs, as Spark's driver knows it."""
    with contextlib.suppress(Exception):  # a JVM that is gone, a job that has just ended
        tracker = context.statusTracker()
        infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
        return any(stage.numActiveTasks for stage in stages if stage)
    return False
