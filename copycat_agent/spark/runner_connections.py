"""The driver's end of the runners' connections: accepts runners, sends batches, kills runners, and assigns tasks to them."""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import secrets
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path

from copycat_agent import logs
from copycat_agent.delivery.batch_outcomes import ReportedOffsets
from copycat_agent.errors import CopycatError
from copycat_agent.fair_executor import participant_of
from copycat_agent.model import Batch, Results, TaskId
from copycat_agent.runner import Answer, Hello, LogMessage, Report, RunnerHeartbeat, failed, key_path

_UCRED = struct.Struct("3i")
_AGAIN_SECONDS = 1.0
_REBALANCE_SECONDS = 1.0  # tasks keep their runner for this long, unless a task or a runner comes or goes
_SECOND_LOOK_SECONDS = 1.0  # grace after a deadline: if this process was stopped meanwhile, answers may wait to be read
_FORGET_SECONDS = 600.0  # the assignment of a task that sent nothing for this long is forgotten

_log = logs.get("spark")


class PendingBatch:
    """A batch without an answer. `deadline` (`time.monotonic()`) limits its time in the queue, and once it is sent, that of its answer."""

    __slots__ = (
        "_reached",
        "batch",
        "data",
        "deadline",
        "future",
        "is_asked_to_end",
        "is_hung",
        "late",
        "number",
        "participant",
        "report",
        "sent_at",
    )

    def __init__(self, batch: Batch, number: int, deadline: float) -> None:
        """Attributes: `data` is the message for the runner; `sent_at` is when it was sent, 0 before.

        `late`: the deadline has passed once. `is_asked_to_end`: it was asked to end and make room. `is_hung`: it reads from a mount that
        hangs, so it does not take a place of its runner.
        """
        self.batch = batch
        self.participant = participant_of(batch)
        self.number = number
        self.deadline = deadline
        self.data = b""
        self.sent_at = 0.0
        self.late = self.is_hung = self.is_asked_to_end = False
        self.report: Callable[[Results], None] | None = None
        self._reached = ReportedOffsets()
        self.future: Future[Results] = Future()
        self.future.set_running_or_notify_cancel()  # a batch cannot be cancelled

    def reported(self, results: Results) -> None:
        """Passes on a report. If the batch fails later, only what follows the report has failed."""
        self._reached.note(results)
        if self.report is not None:
            self.report(results)

    def fail(self, error: CopycatError) -> None:
        """Ends the batch with an error, as if nothing had been read since its last report."""
        self.future.set_result(self._reached.apply(failed(self.batch, error, begun=self.sent_at > 0)))


class RunnerConnection:
    """One connected runner. The executor's lock guards `pending`, `hung` and `places`; methods are thread-safe.

    `retires`: it gets no further batch, and its connection is closed once it has none.
    """

    def __init__(self, connection: Connection, pid: int = 0) -> None:
        """`pid` is its process on its host, 0 while unknown."""
        self.pid = pid
        self.index = -1
        self.pending: dict[int, PendingBatch] = {}
        self.reason = ""
        self.stopped_looks = 0
        self.retires = False
        self._connection = connection
        self._sending = threading.Lock()
        self._open = threading.Lock()

    @property
    def name(self) -> str:
        """The runner's name in messages."""
        return f"runner {self.index} (pid {self.pid})"

    @property
    def hung(self) -> int:
        """The number of batches whose mount hangs."""
        return sum(one.is_hung for one in self.pending.values())

    @property
    def places(self) -> int:
        """The number of places taken; a batch whose mount hangs takes none."""
        return len(self.pending) - self.hung

    def receive(self, key: bytes) -> Iterator[Hello | Answer | RunnerHeartbeat | Report | LogMessage]:
        """Yields what the runner sends until it has gone, first its Hello, after both have proved the key. For one thread."""
        try:
            self._meet()
            deliver_challenge(self._connection, key)
            answer_challenge(self._connection, key)
            while True:
                yield pickle.loads(self._connection.recv_bytes())  # noqa: S301 - authenticated, and the same user
        except (OSError, EOFError, AuthenticationError):
            return

    def _meet(self) -> None:
        """Does what comes before the key. Raises OSError or EOFError."""

    def send(self, data: bytes) -> None:
        """Sends a pickled message. Ignores a runner that has gone: the thread in `receive` notices that.

        Blocks while the runner's process does not read, for example because it is stopped, until it is killed for that.
        """
        with contextlib.suppress(OSError), self._sending:
            self._connection.send_bytes(data)

    def is_stopped(self) -> bool:
        """Returns whether its process is stopped. False if that is unknown."""
        return False

    def disconnect(self) -> None:
        """Ends the connection for the runner and for `receive`."""
        with contextlib.suppress(OSError), self._open, socket.socket(fileno=os.dup(self._connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)  # close() would not wake the thread in `receive`

    def kill(self, reason: str) -> None:
        """Ends the runner as far as that is possible from here. `reason` goes into the results of its batches."""
        self.reason = self.reason or reason
        self.disconnect()

    def release(self) -> None:
        """Closes the descriptors. Called by the thread of `receive` at its end."""
        with self._sending, self._open:
            self._connection.close()


class LocalRunnerConnection(RunnerConnection):
    """A runner on this host. `pid` is the process that connected, as the kernel tells, a descendant of this process."""

    def __init__(self, connection: Connection, pid: int) -> None:
        super().__init__(connection, pid)
        self._process = -1

    def _meet(self) -> None:
        self._process = os.pidfd_open(self.pid)  # from here on the pid cannot be reused

    def is_stopped(self) -> bool:
        """Returns whether its process is stopped (SIGSTOP, SIGTSTP)."""
        with contextlib.suppress(OSError):
            return _stat(self.pid)[:1] == [b"T"]
        return False

    def kill(self, reason: str) -> None:
        """Kills its process."""
        self.reason = self.reason or reason
        with contextlib.suppress(OSError), self._open:
            if self._process >= 0:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
        self.disconnect()

    def release(self) -> None:
        super().release()
        with self._open:
            if self._process >= 0:
                os.close(self._process)
                self._process = -1


def mark_hung(links: Collection[RunnerConnection], hung: Collection[str], now: float, answer_seconds: float) -> None:
    """Marks the batches of connectors whose mount hangs: they take no place, and their deadline starts when the mount answers."""
    for link in links:
        for one in link.pending.values():
            one.is_hung = one.batch.task.connector in hung
            if one.is_hung:
                one.late, one.deadline = False, now + one.batch.settled_seconds + answer_seconds


def late(links: Collection[RunnerConnection], now: float) -> list[tuple[RunnerConnection, str]]:
    """Returns the links with a batch whose deadline has passed twice, and a message about it."""
    found = []
    for link in links:
        for one in [one for one in link.pending.values() if one.deadline <= now]:
            if one.late:
                found.append((link, f"task {one.batch.task.connector}/{one.batch.task.number} did not answer in time"))
            one.late, one.deadline = True, now + _SECOND_LOOK_SECONDS
    return found


class Assignments:
    """Assigns tasks to runners. Not thread-safe."""

    def __init__(self) -> None:
        self._assigned: dict[TaskId, tuple[int, float]] = {}
        self._rebalance_at = 0.0

    def rebalance(self) -> None:
        """Spreads tasks anew over all runners from now on. Called when a runner has come or gone."""
        self._rebalance_at = 0.0

    def link(self, task: TaskId, links: Mapping[int, RunnerConnection], most: int) -> RunnerConnection:
        """Returns the runner for a task: the one that has its producer, unless that has gone, is full or has more tasks than others.

        A runner with `most` batches is full. The caller ensures that at least one of `links` is not.
        """
        now = time.monotonic()
        had = self._assigned.get(task, (-1,))[0]
        if now < self._rebalance_at and had in links and links[had].places < most:
            self._assigned[task] = had, now
            return links[had]
        open_links = [link for link in links.values() if link.places < most]
        self._assigned = {name: place for name, place in self._assigned.items() if now - place[1] < _FORGET_SECONDS}
        tasks = collections.Counter(index for name, (index, _) in self._assigned.items() if name != task)
        least = min(open_links, key=lambda link: (tasks[link.index], link.index))
        before = next((link for link in open_links if link.index == had), least)
        chosen = least if tasks[before.index] > tasks[least.index] else before
        self._rebalance_at = now + _REBALANCE_SECONDS if chosen.index == had else 0.0
        self._assigned[task] = (chosen.index, now)
        return chosen


class RunnerListener:
    """The private socket that runners connect to, with a key in a file that only this user can read."""

    def __init__(self, address: str) -> None:
        """Starts listening. Raises OSError."""
        self.key = secrets.token_bytes(32)
        path = key_path(address)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(self.key)
        Path(address).unlink(missing_ok=True)
        self.address = address
        self._closed = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(address)
        self._socket.listen(64)

    def accept(self) -> LocalRunnerConnection | None:
        """Waits for a runner and returns it, before it has proved the key; None once the listener is closed."""
        peer: socket.socket | None = None
        while True:
            try:
                peer = peer or self._socket.accept()[0]
                pid = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0]
                is_own = _descends(pid)
            except OSError as error:
                if self._closed.is_set():
                    return None
                _log.error("no process of batches can be let in now, and it is tried again", error=error)
                self._closed.wait(_AGAIN_SECONDS)
                continue
            if is_own:
                return LocalRunnerConnection(Connection(peer.detach()), pid)
            peer.close()  # only processes that this one may kill are accepted
            peer = None

    def close(self) -> None:
        """Stops listening; `accept` returns None from now on."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which close() does not
        self._socket.close()
        for path in (Path(self.address), key_path(self.address)):
            with contextlib.suppress(OSError):  # the next `RunnerListener` removes what is left
                path.unlink()


def _descends(pid: int) -> bool:
    """Returns whether this process is an ancestor of `pid`. Raises OSError if that cannot be found out now."""
    for _ in range(20):
        stat = _stat(pid)
        if not stat:
            return False
        pid = int(stat[1])
        if pid == os.getpid():
            return True
    return False


def _stat(pid: int) -> list[bytes]:
    """Returns the fields of /proc/PID/stat from the state on: state, parent and so on; [] if there is no such process.

    The name before the state may contain anything. Raises OSError if the file cannot be read.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat[stat.rindex(b")") + 2 :].split()
