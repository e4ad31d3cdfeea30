"""The driver's end of the runners' connections: who connects, sending, ending the process behind one, and which tasks go to which."""

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
from concurrent.futures import Future
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.delivery.batch_outcomes import Reached
from copycat_agent.runner import failed, key_path
from copycat_agent.turns import party_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from copycat_agent.errors import CopycatError
    from copycat_agent.model import Batch, TaskId
    from copycat_agent.runner import Answer, Beat, Hello, Report, Results, Said

_UCRED = struct.Struct("3i")
_AGAIN_SECONDS = 1.0
_SPREAD_SECONDS = 1.0  # so long tasks stay where they are without a thought, unless a task or a runner comes or goes
_SECOND_LOOK_SECONDS = 1.0  # after a deadline: had this process been stopped, answers may be waiting to be read
_FORGET_SECONDS = 600.0  # a task that sent nothing for so long has no place kept for it

_log = logs.get("spark")


class Pending:
    """A batch that has no answer yet. `deadline` is monotonic: of its place in the queue first, of its answer once it is sent."""

    __slots__ = ("_reached", "batch", "data", "deadline", "future", "is_hung", "late", "makes_room", "number", "party", "report", "sent_at")

    def __init__(self, batch: Batch, number: int, deadline: float) -> None:
        """`data` is what goes to the runner, which may have it since `sent_at`, 0 before; `late`: the deadline has passed once.

        `makes_room`: it was asked to end. `is_hung`: it reads from a mount that does not answer, so its place is another one's.
        """
        self.batch = batch
        self.party = party_of(batch)
        self.number = number
        self.deadline = deadline
        self.data = b""
        self.sent_at = 0.0
        self.late = self.is_hung = self.makes_room = False
        self.report: Callable[[Results], None] | None = None
        self._reached = Reached()
        self.future: Future[Results] = Future()
        self.future.set_running_or_notify_cancel()  # a batch on its way cannot be taken back

    def reported(self, results: Results) -> None:
        """It has come so far: if it fails, it does so from there on."""
        self._reached.note(results)
        if self.report is not None:
            self.report(results)

    def fail(self, error: CopycatError) -> None:
        """Resolve it as if nothing had been read since it was last heard of."""
        self.future.set_result(self._reached.apply(failed(self.batch, error, begun=self.sent_at > 0)))


class Link:
    """One connected runner. `pending` belongs to the executor's lock, and so do `hung` and `places`; methods are for any thread.

    `retires`: it gets no further batch, and is hung up on when it has none.
    """

    def __init__(self, connection: Connection, pid: int = 0) -> None:
        """`pid` is its process on its host, 0 while that is not known."""
        self.pid = pid
        self.index = -1
        self.pending: dict[int, Pending] = {}
        self.reason = ""
        self.stopped_looks = 0
        self.retires = False
        self._connection = connection
        self._sending = threading.Lock()
        self._open = threading.Lock()

    @property
    def name(self) -> str:
        """For people."""
        return f"runner {self.index} (pid {self.pid})"

    @property
    def hung(self) -> int:
        """Batches whose mount hangs."""
        return sum(one.is_hung for one in self.pending.values())

    @property
    def places(self) -> int:
        """Places that are taken: a batch whose mount hangs has none."""
        return len(self.pending) - self.hung

    def receive(self, key: bytes) -> Iterator[Hello | Answer | Beat | Report | Said]:
        """What the runner sends, until it is gone; for one thread. The first is its Hello, after both have proved the key."""
        try:
            self._meet()
            deliver_challenge(self._connection, key)
            answer_challenge(self._connection, key)
            while True:
                yield pickle.loads(self._connection.recv_bytes())  # noqa: S301 - authenticated, and the same user
        except (OSError, EOFError, AuthenticationError):
            return

    def _meet(self) -> None:
        """Whatever comes before the key. Raises OSError or EOFError."""

    def send(self, data: bytes) -> None:
        """Send a pickled message. A runner that is gone is no error here: the thread in `receive` sees it.

        Blocks only while the runner's process does not read (it is stopped, say), at most until it is killed for that.
        """
        with contextlib.suppress(OSError), self._sending:
            self._connection.send_bytes(data)

    def is_stopped(self) -> bool:
        """Whether it is as good as dead for now. False when that cannot be told."""
        return False

    def hang_up(self) -> None:
        """The runner sees the end of the connection, and so does `receive`."""
        with contextlib.suppress(OSError), self._open, socket.socket(fileno=os.dup(self._connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)  # close() would not wake the thread in `receive`

    def kill(self, reason: str) -> None:
        """End it as far as that is possible from here. `reason` goes into the results of its batches."""
        self.reason = self.reason or reason
        self.hang_up()

    def release(self) -> None:
        """Give the descriptors back; by the thread of `receive`, when it is through."""
        with self._sending, self._open:
            self._connection.close()


class LocalLink(Link):
    """A runner on this host: `pid` is who connected, as the kernel says, and a descendant of this process."""

    def __init__(self, connection: Connection, pid: int) -> None:
        super().__init__(connection, pid)
        self._process = -1

    def _meet(self) -> None:
        self._process = os.pidfd_open(self.pid)  # from here on the pid cannot come to mean another process

    def is_stopped(self) -> bool:
        """Whether its process is stopped (SIGSTOP, SIGTSTP): as good as dead until it is let go on."""
        with contextlib.suppress(OSError):
            return _stat(self.pid)[:1] == [b"T"]
        return False

    def kill(self, reason: str) -> None:
        """End its process."""
        self.reason = self.reason or reason
        with contextlib.suppress(OSError), self._open:
            if self._process >= 0:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
        self.hang_up()

    def release(self) -> None:
        super().release()
        with self._open:
            if self._process >= 0:
                os.close(self._process)
                self._process = -1


def leave_hung(links: Collection[Link], hung: Collection[str], now: float, answer_seconds: float) -> None:
    """Marks the batches of these connectors, whose mount hangs: their places are free, and they are not due before they go on."""
    for link in links:
        for one in link.pending.values():
            one.is_hung = one.batch.task.connector in hung
            if one.is_hung:
                one.late, one.deadline = False, now + one.batch.max_seconds + answer_seconds


def late(links: Collection[Link], now: float) -> list[tuple[Link, str]]:
    """Returns the links with a batch whose deadline has passed twice, and which, in words."""
    found = []
    for link in links:
        for one in [one for one in link.pending.values() if one.deadline <= now]:
            if one.late:
                found.append((link, f"task {one.batch.task.connector}/{one.batch.task.number} did not answer in time"))
            one.late, one.deadline = True, now + _SECOND_LOOK_SECONDS
    return found


class Assignments:
    """Which runner each task's batches go to. For one caller at a time."""

    def __init__(self) -> None:
        self._assigned: dict[TaskId, tuple[int, float]] = {}
        self._spread_at = 0.0

    def spread(self) -> None:
        """A runner has come or gone: tasks are spread over all of them anew."""
        self._spread_at = 0.0

    def link(self, task: TaskId, links: Mapping[int, Link], most: int) -> Link:
        """The runner for a task: the one it had (its producer is there), unless that is gone, full or has more of the others.

        A runner with `most` batches is full. One of `links` has room: the caller counts what is under way on all of them.
        """
        now = time.monotonic()
        had = self._assigned.get(task, (-1,))[0]
        if now < self._spread_at and had in links and links[had].places < most:
            self._assigned[task] = had, now
            return links[had]
        open_links = [link for link in links.values() if link.places < most]
        self._assigned = {name: place for name, place in self._assigned.items() if now - place[1] < _FORGET_SECONDS}
        tasks = collections.Counter(index for name, (index, _) in self._assigned.items() if name != task)
        least = min(open_links, key=lambda link: (tasks[link.index], link.index))
        before = next((link for link in open_links if link.index == had), least)
        chosen = least if tasks[before.index] > tasks[least.index] else before
        self._spread_at = now + _SPREAD_SECONDS if chosen.index == had else 0.0
        self._assigned[task] = (chosen.index, now)
        return chosen


class Door:
    """The private socket that runners connect to, with a key that only this user can read."""

    def __init__(self, address: str) -> None:
        """Listens at once. Raises OSError."""
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

    def accept(self) -> LocalLink | None:
        """The next one who connects, still to prove the key. None when the door is closed."""
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
                return LocalLink(Connection(peer.detach()), pid)
            peer.close()  # only a process that may be killed is let in
            peer = None

    def close(self) -> None:
        """`accept` returns None from now on."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which close() does not
        self._socket.close()
        for path in (Path(self.address), key_path(self.address)):
            path.unlink(missing_ok=True)


def _descends(pid: int) -> bool:
    """Whether this process started the process `pid`, or what started it. Raises OSError when that cannot be told now."""
    for _ in range(20):
        stat = _stat(pid)
        if not stat:
            return False
        pid = int(stat[1])
        if pid == os.getpid():
            return True
    return False


def _stat(pid: int) -> list[bytes]:
    """/proc/PID/stat from the state on: state, parent, ...; empty when there is no such process. The name before may hold anything.

    Raises OSError when it cannot be read.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat[stat.rindex(b")") + 2 :].split()
