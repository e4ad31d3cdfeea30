"""`RunnerExecutor` sends batches over sockets to resident Spark tasks, the runners.

A Spark job for every micro-batch takes 75 to 150 ms of CPU, half a core for a slow log, so the tasks stay.

A `RunnerPool` starts runners and accepts their connections. One thread here accepts links, one per link receives answers, and one watches
deadlines. `submit` sends on the caller's thread, so a round trip takes one wake-up at each end (0.1 ms).
"""

from __future__ import annotations

import itertools
import logging
import pickle
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.batch.following import STAY_SECONDS
from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.fair_executor import FairQueue, is_success
from copycat_agent.runner import PICKLE, THREADS, AddSplits, Answer, Hello, LogMessage, Report, RunnerHeartbeat, Settle, unpacked, unread
from copycat_agent.spark.runner_connections import Assignments, PendingBatch, RunnerConnection, late, mark_hung

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from copycat_agent.executor import Hung
    from copycat_agent.model import Batch, Results, Split, TaskId
    from copycat_agent.spark.runner_pool import RunnerPool

ANSWER_SECONDS = 60.0
"""Time for the answer after a batch's `settled_seconds`. Later its runner counts as hung, and is killed."""

PLACE_SECONDS = 60.0
"""How long a batch waits for a runner: longer than a JVM takes to restart."""

LOOK_SECONDS = 2.0
"""Interval at which runners are checked for being stopped while a batch is under way."""
_STOPPED_LOOKS = 3  # checks in a row that find a runner stopped: a debugger stops it for a moment, a suspended host stops all
_CLOSE_SECONDS = 3.0
_STOPPING = "the agent is stopping"

_log = logs.get("spark")


class RunnerExecutor:
    """An `executor.Executor`, and the `runner_pool.RunnerEvents` of its pool. The caller owns the pool's host, and closes it afterwards."""

    def __init__(
        self, pool: RunnerPool, answer_seconds: float = ANSWER_SECONDS, look_seconds: float = LOOK_SECONDS, hung: Hung = lambda _: ()
    ) -> None:
        """Starts the pool's runners in the background.

        `hung` returns the connectors whose mount hangs. Their batches take no place, and their runner is not killed. Such a connector sends
        no further batch until its mount answers, so a mount takes about `THREADS` threads of each runner at most.
        """
        self._look_seconds = look_seconds
        self._hung = hung
        self._answer_seconds = answer_seconds
        self._pool = pool
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()  # guards what follows
        self._links: dict[int, RunnerConnection] = {}
        self._joined_at: dict[int, float] = {}  # by runner, until its Spark job has ended
        self._assignments = Assignments()
        self._queue: FairQueue[PendingBatch] = FairQueue()
        self._next_look = float("inf")
        self.reason = pool.reason
        """Why there may be no runner."""
        self._closed = threading.Event()
        pool.start(self)
        for target, name in ((self._accept, "runner-listener"), (self._watch, "runner-watch")):
            threading.Thread(target=target, name=name, daemon=True).start()

    def submit(self, batch: Batch) -> Future[Results]:
        """Sends the batch as soon as a runner has room."""
        return self.follow(batch, None)

    def follow(self, batch: Batch, report: Callable[[Results], None] | None) -> Future[Results]:
        """As `Executor.follow`. Asks a batch that stays to end when others wait."""
        number = next(self._numbers)
        pending = PendingBatch(batch, number, time.monotonic() + PLACE_SECONDS)
        pending.report = report
        try:
            pending.data = pickle.dumps(self._pool.work(number, batch), PICKLE)
        except CopycatError as error:
            pending.fail(error)
            return pending.future
        except Exception as error:  # noqa: BLE001 - __reduce__ may raise anything
            pending.fail(FatalError(f"the batch cannot be pickled: {type(error).__name__}"))
            return pending.future
        with self._changed:
            closing = self._closed.is_set()
            if not closing:
                self._queue.add(pending.participant, pending)
        if closing:
            pending.fail(RetriableError(_STOPPING))
        else:
            self._hand_out()
        return pending.future

    def join(self, task: TaskId, splits: tuple[Split, ...]) -> None:
        """Sends splits to the runner that has the batch, which drops those that come too late."""
        with self._changed:
            found = [(link, one) for link in self._links.values() for one in link.pending.values() if one.report and one.batch.task == task]
            for _, one in found:
                one.batch = replace(one.batch, splits=one.batch.splits + splits)
        for link, one in found:
            link.send(pickle.dumps(AddSplits(one.number, splits), PICKLE))

    def settle(self, task: TaskId) -> None:
        """As `Executor.settle`. A batch that still waits for a runner is returned unread."""
        with self._changed:
            unsent = [pending for pending in self._queue if pending.batch.task == task]
            self._take_out(unsent)
            asked = self._asked_to_end(lambda one: one.batch.task == task)
        for pending in unsent:
            pending.future.set_result(unread(pending.batch))
        _send_settle(asked)

    def close(self) -> None:
        """Closes all links. Runners have `runner.HANG_UP_SECONDS` to settle."""
        with self._changed:
            self._closed.set()
            links, waiting = list(self._links.values()), list(self._queue)
            self._take_out(waiting)
            self._changed.notify_all()
        self._pool.close()
        for pending in waiting:
            pending.fail(RetriableError(_STOPPING))
        for link in links:
            link.reason = _STOPPING
            link.disconnect()
        self._pool.wait(_CLOSE_SECONDS)

    def pids(self) -> dict[int, int]:
        """Returns the process of each connected runner, by its number; for status pages."""
        with self._changed:
            return {index: link.pid for index, link in sorted(self._links.items())}

    # Handing out

    def _hand_out(self) -> None:
        """Sends waiting batches as far as runners have room."""
        while True:
            with self._changed:
                taken = self._queue.take(sum(len(link.pending) if link.retires else THREADS + link.hung for link in self._links.values()))
                if taken is None:
                    self._look_by(time.monotonic() + PLACE_SECONDS if self._queue else float("inf"))
                    asked = self._asked_to_end(lambda one: one.batch.follow_seconds > 0 and not one.is_asked_to_end) if self._queue else []
                    break
                _, pending = taken
                open_links = {index: link for index, link in self._links.items() if not link.retires}
                link = self._assignments.link(pending.batch.task, open_links, THREADS)
                pending.sent_at = time.monotonic()
                stay_seconds = STAY_SECONDS if pending.batch.follow_seconds else 0.0
                pending.deadline = pending.sent_at + pending.batch.settled_seconds + stay_seconds + self._answer_seconds
                link.pending[pending.number] = pending  # before it is sent, so that `_lost` fails it if the link breaks
                self._look_by(min(pending.deadline, time.monotonic() + self._look_seconds))
            link.send(pending.data)
            if pending.is_asked_to_end:  # it may have been asked to end before it was sent
                _send_settle([(link, pending.batch.task)])
        _send_settle(asked)

    def _asked_to_end(self, is_meant: Callable[[PendingBatch], bool]) -> list[tuple[RunnerConnection, TaskId]]:
        """Marks the batches under way for which `is_meant` is true as asked to end. Returns them."""
        found = [(link, one) for link in self._links.values() for one in link.pending.values() if is_meant(one)]
        for _, one in found:
            one.is_asked_to_end = True
        return [(link, one.batch.task) for link, one in found]

    def _take_out(self, waiting: Iterable[PendingBatch]) -> None:
        for pending in waiting:
            self._queue.remove(pending.participant, pending)

    # Connections

    def _accept(self) -> None:
        """Thread: accepts links, and starts a thread for each."""
        while link := self._pool.accept():
            try:
                threading.Thread(target=self._receive, args=(link,), name="runner-link", daemon=True).start()
            except RuntimeError as error:  # no more threads; the runner is started again, and may find one then
                _log.error("a process of batches cannot be let in now, and is started again", error=error)
                link.release()

    def _receive(self, link: RunnerConnection) -> None:
        """Thread: receives what a runner sends until it has gone."""
        try:
            for message in link.receive(self._pool.key):
                if isinstance(message, Answer):
                    self._answered(link, message)
                elif isinstance(message, Report):
                    self._reported(link, message)
                elif isinstance(message, RunnerHeartbeat):
                    continue  # the link has noted that it came
                elif isinstance(message, LogMessage):
                    logger = logging.getLogger(message.record.name)
                    if logger.isEnabledFor(message.record.levelno):  # the level may have changed since the runner was started
                        logger.handle(message.record)
                else:
                    self._join(link, message)
        finally:
            self._lost(link)

    def _join(self, link: RunnerConnection, hello: Hello) -> None:
        link.index = hello.runner
        with self._changed:
            older = self._links.get(link.index)
            if self._closed.is_set():
                link.disconnect()
                return
            self._links[link.index] = link
            self._joined_at[link.index] = time.monotonic()
            self._assignments.rebalance()
            self._changed.notify_all()
        if older:
            older.kill("another took its place")
        self._hand_out()

    def _reported(self, link: RunnerConnection, report: Report) -> None:
        with self._changed:
            pending = link.pending[report.number]
        pending.reported(unpacked(pending.batch, report.results))

    def _answered(self, link: RunnerConnection, answer: Answer) -> None:
        with self._changed:
            pending = link.pending.pop(answer.number)
        results = unpacked(pending.batch, answer.results)
        with self._changed:
            self._queue.done(pending.participant, well=is_success(results))
            others_wait = bool(self._queue)
            is_over = link.retires and not link.pending
        if is_over:
            link.disconnect()
        pending.future.set_result(results)
        if others_wait:
            self._hand_out()

    def _lost(self, link: RunnerConnection) -> None:
        with self._changed:
            if self._links.get(link.index) is link:
                del self._links[link.index]
            self._assignments.rebalance()
            pending, link.pending = list(link.pending.values()), {}
            for one in pending:
                self._queue.done(one.participant, well=None)
            reason = link.reason or "its process ended"
            if link.index >= 0:
                self.reason = f"{link.name}: {reason}"
        link.release()
        for one in pending:
            one.fail(RetriableError(f"{link.name} is gone: {reason}"))
        self._hand_out()

    # Called by the pool

    def ended(self, index: int, problem: str) -> float:
        """A runner's Spark job is over; `problem` is why, "" where it hung up by itself. Returns the seconds since it connected, or 0.0."""
        now = time.monotonic()
        with self._changed:
            link, joined_at = self._links.get(index), self._joined_at.pop(index, now)
            if problem:
                self.reason = f"runner {index}: {problem}"
        if link:
            link.kill("its Spark job ended")  # a worker that outlived its job (it should not) would go on producing
        return now - joined_at

    def connected(self) -> frozenset[int]:
        """The runners that are there now."""
        with self._changed:
            return frozenset(self._links)

    def retire(self, index: int) -> None:
        """Sends this runner no further batch, asks its batches to end, and closes its link once it has none."""
        with self._changed:
            link = self._links.get(index)
            if link is None:
                return
            link.retires = True
            asked = self._asked_to_end(lambda one: one.number in link.pending)
        _send_settle(asked)
        if not asked:
            link.disconnect()

    # Deadlines

    def _look_by(self, when: float) -> None:
        if when < self._next_look:
            self._next_look = when
            self._changed.notify_all()

    def _watch(self) -> None:
        """Thread: kills runners that are overdue or stopped, and fails batches that found no runner. Sleeps while nothing is under way."""
        while not self._closed.is_set():
            with self._changed:
                while not self._closed.is_set() and self._next_look > time.monotonic():
                    self._changed.wait(self._until_look())
                if self._closed.is_set():
                    return
                unread_ones = self._release_hung(time.monotonic())
                unplaced, ending = self._overdue(time.monotonic())
                reason = "others keep the runners busy" if self._links else self.reason
            for pending in unplaced:
                pending.fail(RetriableError(f"no runner took the batch within {PLACE_SECONDS:.0f} s; {reason}"))
            for link, why in ending:
                _log.warning("runner does not answer and is killed", runner=link.index, pid=link.pid, why=why)
                link.kill(f"killed, {why}")
                self._pool.dismiss(link.index)
            for pending in unread_ones:
                pending.future.set_result(unread(pending.batch))
            self._hand_out()

    def _until_look(self) -> float | None:
        return None if self._next_look == float("inf") else max(0.0, self._next_look - time.monotonic())

    def _release_hung(self, now: float) -> list[PendingBatch]:
        """Frees the places of batches whose mount hangs. Removes from the queue, and returns, those that were not sent."""
        sent = (one for link in self._links.values() for one in link.pending.values())
        slow = {one.batch.task.connector for one in sent if now - one.sent_at > self._look_seconds}
        hung = frozenset(self._hung(slow.union(one.batch.task.connector for one in self._queue)) if slow else ())
        mark_hung(self._links.values(), hung, now, self._answer_seconds)
        waiting = [one for one in self._queue if one.batch.task.connector in hung]
        self._take_out(waiting)
        return waiting

    def _overdue(self, now: float) -> tuple[list[PendingBatch], list[tuple[RunnerConnection, str]]]:
        """Returns batches that found no runner, and runners to kill with the reason. Sets the time of the next look."""
        unplaced = [one for one in self._queue if one.deadline <= now]
        self._take_out(unplaced)
        ending = late(self._links.values(), now)
        sent = [one.deadline for link in self._links.values() for one in link.pending.values()]
        if sent:
            sent.append(now + self._look_seconds)
        for link in self._links.values():
            link.stopped_looks = link.stopped_looks + 1 if sent and link.is_stopped() else 0
            if link.stopped_looks == _STOPPED_LOOKS:
                ending.append((link, "somebody stopped its process"))
        self._next_look = min((*sent, *(one.deadline for one in self._queue)), default=float("inf"))
        return unplaced, ending


def _send_settle(asked: Iterable[tuple[RunnerConnection, TaskId]]) -> None:
    for link, task in asked:
        link.send(pickle.dumps(Settle(task), PICKLE))
