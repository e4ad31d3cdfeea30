"""Runs batches in a Spark task: a resident one serves them until the driver hangs up, a bounded one runs a single batch.

`serve` is the resident task. It connects to the driver's private unix socket and runs the batches that come over it on threads, so that one
that waits for a broker does not block the others. The wire carries pickled tuples, defined here and used by `spark.runners` at the other
end. Nothing in this file raises into Spark: an exception there loses the siblings' results.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import os
import pickle
import queue
import threading
import traceback
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent import logs
from copycat_agent.batch.following import BatchChannel
from copycat_agent.delivery.batch_outcomes import unanswered_results
from copycat_agent.errors import CopycatError, FatalError, RetriableError, lacking
from copycat_agent.executor import run_batch
from copycat_agent.model import Batch, Results, Split, TaskId
from copycat_agent.producer import ProducerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from copycat_agent.tls_channel import TlsChannel

    Run = Callable[[Batch, ProducerPool, Callable[[], bool]], Results]
    """`executor.run_batch`, or a test's replacement; pickled by reference, so importable in a worker."""

_Stopping = threading.Event | BatchChannel

BEAT_SECONDS = 2.0
"""How often a runner on another host with a batch sends a `RunnerHeartbeat`: a dead or disconnected one would look like a working one."""

THREADS = 64
"""Batches of one runner at a time, without those whose mount hangs. The driver sends no more: a waiting one would use up its time."""

HANG_UP_SECONDS = 2.0
"""How long batches may take to settle once the driver has hung up."""

PICKLE = 5

_NO_THREAD = "no thread could be started for a batch", "raise the limit of threads (ulimit -u, TasksMax), or run fewer tasks"
_log = logs.get("spark")


_CREDENTIALS = ("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "HADOOP_", "KRB5")
"""Prefixes of environment variables that the SDKs of object stores read."""


class Hello(NamedTuple):
    """Runner -> driver, first and once: which of the runners connected, from which process and host."""

    runner: int
    pid: int = 0
    host: str = ""


class Work(NamedTuple):
    """Driver -> runner: run this batch. `number` comes back with the answer. `environ`: see `credentials`."""

    number: int
    batch: Batch
    environ: Mapping[str, str] | None = None


class Settle(NamedTuple):
    """Driver -> runner: the task's batch should settle and return early."""

    task: TaskId


class AddSplits(NamedTuple):
    """Driver -> runner: the staying batch with that number should take on these splits as well. Has no effect once it has ended."""

    number: int
    splits: tuple[Split, ...]


class Answer(NamedTuple):
    """Runner -> driver: the results of the batch with that number; `results` as `packed` makes them."""

    number: int
    results: bytes


class Report(NamedTuple):
    """Runner -> driver: the progress of the batch with that number since its last report. It goes on."""

    number: int
    results: bytes


class RunnerHeartbeat(NamedTuple):
    """Runner on another host -> driver, every `BEAT_SECONDS` while it has a batch."""

    runner: int


class LogMessage(NamedTuple):
    """Runner -> driver: a log record, for the agent's log."""

    record: logging.LogRecord


def key_path(address: str) -> Path:
    """Returns the file (0600) with the key that both ends of the socket at `address` prove to have."""
    return Path(f"{address}.key")


def failed(batch: Batch, error: CopycatError, *, begun: bool = True) -> Results:
    """Returns results for a batch of unknown outcome: every split is unchanged. Not `begun`: no process has ever had it."""
    return unanswered_results(batch, error, begun=begun)


def unread(batch: Batch) -> Results:
    """Returns results for a batch that was told to settle before it began."""
    return unanswered_results(batch, None, begun=False)


def run_safely(batch: Batch, producers: ProducerPool, stopping: Callable[[], bool], run: Run) -> Results:
    """Does `run`, and returns what it raises (a bug: it should return errors) as results."""
    try:
        results = run(batch, producers, stopping)
    except CopycatError as error:
        return failed(batch, error)
    except BaseException as error:  # noqa: BLE001  a thread's SystemExit would vanish, and its batch with it
        return failed(batch, _bug(error))
    if len(results) != len(batch.splits) and not (isinstance(stopping, BatchChannel) and len(results) > len(batch.splits)):
        return failed(batch, FatalError(f"the batch yielded {len(results)} results for {len(batch.splits)} splits"))
    return results


def packed(batch: Batch, results: Results) -> bytes:
    """Returns `results` pickled; if they cannot be (an error that holds a handle, say), results that say so."""
    try:
        return pickle.dumps(results, PICKLE)
    except Exception as error:  # noqa: BLE001  __reduce__ may raise anything
        return pickle.dumps(failed(batch, _bug(error)), PICKLE)


def unpacked(batch: Batch, data: bytes) -> Results:
    """Returns what `packed` made. If this process cannot read it, returns that error: sending everything again would not help."""
    try:
        results: Results = pickle.loads(data)  # noqa: S301 - from our own worker
    except Exception as error:  # noqa: BLE001 - a changed class may raise anything
        words = f"what a batch's process answered cannot be read ({type(error).__name__})"
        return failed(batch, FatalError(words, "copycat-agent was changed while it ran: start it again"))
    return results


def serve(address: str, index: int, run: Run = run_batch, level: int = logging.WARNING) -> bool:
    """Serves batches that come over the socket at `address` until the driver hangs up.

    Runs in a Spark worker, on its only thread. Log records of at least `level` go to the driver. Returns whether every batch ended in time;
    if not, threads of this process are still at work and it must not be used again.
    """
    try:
        connection = Client(address, "AF_UNIX", authkey=key_path(address).read_bytes())
    except (OSError, EOFError, AuthenticationError):
        return True  # the driver has gone meanwhile
    return serve_over(connection, Hello(index), run, level)


def serve_over(connection: Connection | TlsChannel, hello: Hello, run: Run, level: int, *, beats: bool = False) -> bool:
    """Serves as `serve`, over an open connection over which both ends have proved the key. `beats`: see `RunnerHeartbeat`."""
    with contextlib.closing(connection):
        runner = _Runner(connection, run)
        _log_to(runner.send, level)
        ended = threading.Event()
        if beats:
            threading.Thread(target=runner.beat, args=(hello.runner, ended), name="beat", daemon=True).start()
        try:
            return runner.serve(hello)
        finally:
            ended.set()


def resident(address: str, run: Run, level: int, partition: Iterable[int]) -> Iterator[bytes]:
    """Function over the partition of a resident task, which holds the runner's number: `serve`, and yield nothing."""
    (index,) = partition
    if not serve(address, index, run, level):
        os._exit(0)  # Spark would reuse this process, with a batch still at work in it
    return iter(())


def credentials(batch: Batch, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the agent's credentials for object stores from `environ`, for a batch that reads from one, or from an unknown source.

    Workers are started without them. They travel with the batch, as the secrets of the definition do.
    """
    if all(split.open_path.startswith("/") for split in batch.splits):
        return {}
    return {name: value for name, value in environ.items() if name.startswith(_CREDENTIALS)}


def bounded(stop_file: str, run: Run, partition: Iterable[tuple[Batch, dict[str, str]]]) -> Iterator[bytes]:
    """Function over the partition of a bounded task, which holds a batch and its environment variables: runs it, yields its packed results.

    When `stop_file` appears, the batch should settle. What is set here never shows in /proc/PID/environ.
    """
    ((batch, environ),) = partition
    os.environ.update(environ)
    return iter([packed(batch, run_safely(batch, shared_producers(), functools.partial(os.path.exists, stop_file), run))])


@functools.cache
def shared_producers() -> ProducerPool:
    """Returns the producers that bounded tasks of one process share, one job after the other."""
    return ProducerPool()


class _Runner:
    """One connection's state. `serve` runs on the task's thread; batches on their own."""

    def __init__(self, connection: Connection | TlsChannel, run: Run) -> None:
        self._connection = connection
        self._run = run
        self._sending = threading.Lock()
        self._stops: dict[int, tuple[TaskId, _Stopping]] = {}  # by the number of the batch, while it runs
        self._threads = _Threads(self._work)
        self._producers = ProducerPool()

    def serve(self, hello: Hello) -> bool:
        """Sends hello, and takes what the driver sends until it hangs up. Returns whether all batches had ended by then."""
        try:
            self.send(hello)
            while True:
                self._take(pickle.loads(self._connection.recv_bytes()))  # noqa: S301 - authenticated, and the same user
        except (EOFError, OSError):
            return self._end()
        except Exception as error:  # noqa: BLE001 - a changed class may raise anything
            hint = "copycat-agent was changed while it ran: start it again"
            _log.warning("what came for a process of batches cannot be read: it ends", why=type(error).__name__, hint=hint)
            self._end()
            return False

    def beat(self, index: int, ended: threading.Event) -> None:
        """Thread: sends beats until `ended`."""
        with contextlib.suppress(OSError):
            while not ended.wait(BEAT_SECONDS):
                if self._stops:
                    self.send(RunnerHeartbeat(index))

    def send(self, message: Hello | Answer | RunnerHeartbeat | Report | LogMessage) -> None:
        """Sends a message, from any thread. Raises OSError if the driver has hung up, and what pickle raises."""
        data = pickle.dumps(message, PICKLE)
        with self._sending:
            self._connection.send_bytes(data)

    def _take(self, message: Work | Settle | AddSplits) -> None:
        if isinstance(message, Settle):
            for task, asked in self._stops.copy().values():
                if task == message.task:
                    asked.set()
            return
        if isinstance(message, AddSplits):
            _, joined = self._stops.get(message.number, (None, None))
            if isinstance(joined, BatchChannel):
                joined.join(message.splits)
            return
        os.environ.update(message.environ or {})
        stopping: _Stopping = BatchChannel(functools.partial(self._report, message)) if message.batch.follow_seconds else threading.Event()
        self._stops[message.number] = message.batch.task, stopping
        if not self._threads.run(message, stopping):
            self._answer(message, failed(message.batch, RetriableError(*_NO_THREAD), begun=False))

    def _work(self, work: Work, stopping: _Stopping) -> None:
        asked = stopping.is_set if isinstance(stopping, threading.Event) else stopping
        self._answer(work, run_safely(work.batch, self._producers, asked, self._run))

    def _report(self, work: Work, results: Results) -> None:
        with contextlib.suppress(OSError):  # hung up: the driver plans it again
            self.send(Report(work.number, packed(work.batch, results)))

    def _answer(self, work: Work, results: Results) -> None:
        answer = Answer(work.number, packed(work.batch, results))
        del self._stops[work.number]
        with contextlib.suppress(OSError):  # hung up: the driver plans it again
            self.send(answer)

    def _end(self) -> bool:
        for _, stopping in self._stops.copy().values():
            stopping.set()
        settled = self._threads.end(HANG_UP_SECONDS)
        if settled:
            self._producers.close()
        return settled


class _Threads:
    """Threads that stay, one more whenever all are busy. A `ThreadPoolExecutor` does so, too, for 0.1 ms more per batch."""

    def __init__(self, work: Callable[[Work, _Stopping], None]) -> None:
        self._work = work
        self._todo: queue.SimpleQueue[tuple[Work, _Stopping] | None] = queue.SimpleQueue()
        self._started = 0  # used by the one caller
        self._changed = threading.Condition()  # guards the attributes below
        self._busy = 0

    def run(self, work: Work, stopping: _Stopping) -> bool:
        """Starts `work` on a thread of its own. For one caller at a time, which limits how much is running.

        Returns False if no thread is available: then it is not begun, and will not be.
        """
        with self._changed:
            self._busy += 1
            more = self._started < self._busy
        if more:
            try:
                threading.Thread(target=self._loop, name=f"batch-{self._started + 1}", daemon=True).start()
            except RuntimeError:
                self._is_done()
                return False
            self._started += 1
        self._todo.put((work, stopping))
        return True

    def end(self, seconds: float) -> bool:
        """Waits, at most `seconds`, until nothing is running; returns whether that is so. Threads end when they have nothing to do."""
        with self._changed:
            settled = self._changed.wait_for(lambda: not self._busy, seconds)
            for _ in range(self._started):
                self._todo.put(None)
        return settled

    def _loop(self) -> None:
        while item := self._todo.get():
            with contextlib.suppress(Exception):  # `_work` answers whatever happens, unless the driver is gone
                self._work(*item)
            self._is_done()

    def _is_done(self) -> None:
        with self._changed:
            self._busy -= 1
            if not self._busy:
                self._changed.notify_all()


class _LogForwarder(logging.Handler):
    """Sends log records to the driver. Those that cannot be sent are dropped: a log must not stop a batch."""

    def __init__(self, send: Callable[[LogMessage], None]) -> None:
        super().__init__()
        self._forward = send

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging, under this handler's lock."""
        with contextlib.suppress(Exception):
            plain = copy.copy(record)
            plain.msg, plain.args, plain.exc_info = record.getMessage(), None, None
            if record.exc_info and record.exc_info[1]:
                plain.fields = {**getattr(record, "fields", {}), "error": _where(record.exc_info[1])}
            self._forward(LogMessage(plain))


def _log_to(send: Callable[[LogMessage], None], level: int) -> None:
    """Sends everything that this process logs to the driver, and not to a stream that nobody reads."""
    root = logging.getLogger()
    root.handlers = [_LogForwarder(send)]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("copycat_agent").setLevel(level)


def _where(error: BaseException) -> str:
    """Returns type and place of an exception. Not its text, which may quote a record or a secret."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"{type(error).__name__}{place}"


def _bug(error: BaseException) -> CopycatError:
    """Returns the error for an exception of `run`, which should raise none. The machine's errors pass, a bug does not."""
    if isinstance(error, OSError) or lacking(error):
        return RetriableError(f"the batch broke off: {_where(error)}")
    return FatalError(f"the batch broke off: {_where(error)}", "this is a fault of the agent: please report it")
