"""Keeps the producers and lanes of one process between batches, and what its tasks have learnt."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from copycat_agent import logs
from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.task_memory import TaskMemory
from copycat_agent.producer.task_producer import TaskProducer
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.transactions.lane_writer import LaneWriter
from copycat_agent.transactions.protocol import perform

IDLE_SECONDS = 600.0
"""A producer that no batch has used for this long is closed: each holds connections and a few threads."""
SPARE_SECONDS = 30.0
"""A free producer is closed after this time if another one to the same cluster is free."""
LANE_IDLE_SECONDS = 60.0
"""A lane that no batch has used for this long is closed: it has up to two producers, and is ready again in 40 ms."""
FORGET_SECONDS = 86_400.0
"""A task's `TaskMemory` is dropped after this time without a batch: it costs little to learn again, and connectors come and go."""
LOOK_SECONDS = 5.0
"""Interval at which idle producers are polled, and closed if idle for long."""
CLIENT_ID = "copycat"
"""The client id of producers, unless `kafka.client` sets another one."""

MakeSteps = Callable[..., Any]
"""`transactional.KafkaSteps`, or a test's replacement."""

_log = logs.get("kafka")


class TaskLane:
    """A task's lane in this process: its writer, and the object that performs its steps. Used by one batch at a time.

    `stopping` is the batch's. `memory` is what its batches have learnt for later ones. `broken`: an unexpected error occurred, and the
    lane is not kept. `used` is when a batch gave it back (monotonic).
    """

    def __init__(self, learnt: TaskMemory, make_steps: MakeSteps, client_id: str, *, tracked: bool) -> None:
        self.options = learnt.options
        self.tracked = tracked
        self.batch_bytes = self.next_batch_bytes = learnt.batch_bytes
        self.memory = learnt.memory
        self.stopping: Callable[[], bool] = lambda: False
        self.broken = False
        self.used = 0.0
        self.writer = LaneWriter()
        how = {"batch_bytes": learnt.batch_bytes, "tracked": tracked, "pace": learnt.pace}
        self.steps = make_steps(learnt.options, client_id, stopping=self._is_stopping, **how)

    @property
    def transaction_seconds(self) -> float:
        """Time after which the cluster aborts an open transaction."""
        return float(self.steps.transaction_seconds)

    def _is_stopping(self) -> bool:
        return self.stopping()

    def close(self) -> None:
        """Drops prepared producers and closes the clients. The task's next batch begins with reading the head."""
        perform(self.writer.rest(), self.steps)
        self.steps.close()


class _IdleProducer(NamedTuple):
    """A producer that no batch has used since `at` (monotonic); `task` was the last to use it."""

    task: TaskId
    options: KafkaOptions
    producer: TaskProducer
    at: float


class ProducerPool:
    """The producers and lanes of one process, made after the fork. Thread-safe.

    A batch has a producer to itself: otherwise a flush would wait for, and an error be taken for, somebody else's records. Between batches
    any task with equal Kafka options may take it, so a thousand connectors need as many connections as they have batches under way: a
    client for each of 1,000 connectors held 3,000 threads, and as many connections. A lane stays its task's.
    """

    def __init__(
        self,
        make_steps: MakeSteps = KafkaSteps,
        *,
        make_producer: Callable[..., TaskProducer] = TaskProducer,
        look_seconds: float = LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make_steps`: what performs the steps of lanes. `look_seconds`: how often idle producers are looked after."""
        self._make_steps = make_steps
        self._make_producer = make_producer
        self._look_seconds = look_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._free: list[_IdleProducer] = []  # the one that was used last comes last
        self._lanes: dict[TaskId, TaskLane] = {}
        self._learnt: dict[TaskId, TaskMemory] = {}
        self._closed = threading.Event()
        self._keeper: threading.Thread | None = None

    @property
    def known_tasks(self) -> frozenset[TaskId]:
        """Returns the tasks whose `TaskMemory` is kept."""
        return frozenset(self._learnt)

    def take(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> TaskProducer:
        """Returns a producer for one batch of the task; the caller gives it back. Raises FatalError for a refused configuration."""
        with self._lock:
            learnt = self._of(task, options)
            for index, free in reversed(list(enumerate(self._free))):
                one = free.producer
                if free.options == options and one.tracked == tracked and one.batch_bytes == learnt.batch_bytes:
                    del self._free[index]
                    if free.task != task:
                        one.reassign()
                    one.pace = learnt.pace
                    return one
        return self._make_producer(options, CLIENT_ID, learnt.batch_bytes, learnt.pace, tracked=tracked)

    def give_back(self, task: TaskId, options: KafkaOptions, producer: TaskProducer) -> None:
        """Keeps `producer` for another batch, unless it is broken, no longer fits the task, or holds records that were not flushed."""
        is_fit = not (producer.broken or producer.has_unflushed) and producer.next_batch_bytes == producer.batch_bytes
        with self._lock:
            if producer.next_batch_bytes:
                self._of(task, options).batch_bytes = producer.next_batch_bytes
            if is_fit:
                self._free.append(_IdleProducer(task, options, producer, self._clock()))
            self._start_keeper()
        if not is_fit:
            producer.close()

    def take_lane(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> TaskLane:
        """Returns the task's lane for one batch; the caller gives it back. Raises as `take`."""
        with self._lock:
            learnt = self._of(task, options)
            kept = self._lanes.pop(task, None)
        if kept is not None:
            if kept.options == options and kept.tracked == tracked:
                return kept
            kept.close()
        return TaskLane(learnt, self._make_steps, f"copycat-{task.connector}-{task.number}", tracked=tracked)

    def give_lane_back(self, task: TaskId, lane: TaskLane) -> None:
        """Keeps `lane` for the task's next batch, unless it is broken or no longer fits the task."""
        lane.used, lane.stopping = self._clock(), lambda: False
        with self._lock:
            learnt = self._of(task, lane.options)
            learnt.batch_bytes, learnt.memory = lane.next_batch_bytes, lane.memory
            leaving = [self._lanes.pop(task)] if task in self._lanes else []
            if lane.broken or lane.next_batch_bytes != lane.batch_bytes:
                leaving.append(lane)
            else:
                self._lanes[task] = lane
            self._start_keeper()
        for one in leaving:
            one.close()

    def _of(self, task: TaskId, options: KafkaOptions) -> TaskMemory:
        """Returns what the task has learnt with these options; called with the lock held."""
        learnt = self._learnt.get(task)
        if learnt is None or learnt.options != options:
            learnt = self._learnt[task] = TaskMemory(options, self._clock())
        learnt.used = self._clock()
        return learnt

    def _start_keeper(self) -> None:
        """Starts the thread that looks after idle producers, with the first of them: it has to belong to this process, after the fork."""
        if self._keeper is None:
            keeper = threading.Thread(target=self._look_after, name="producers", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: the next batch tries again
                keeper.start()
                self._keeper = keeper

    def _look_after(self) -> None:
        while not self._closed.wait(self._look_seconds):
            try:
                self.poll_idle()
            except Exception as error:  # noqa: BLE001 - the next round may go better
                _log.warning("Kafka clients that no batch uses could not be looked after", why=type(error).__name__)

    def poll_idle(self) -> None:
        """Polls idle clients, and closes those that have been idle for long. Called by a thread of its own.

        The library queues its statistics, 12 KB each, until they are polled: a producer without polls would leak 300 MB a day.
        """
        now = self._clock()
        leaving: list[TaskProducer | TaskLane] = []
        try:
            with self._lock:
                old = [one for index, one in enumerate(self._free) if now - one.at > self._idle_timeout_seconds(index)]
                self._free = [one for one in self._free if one not in old]
                unused = [task for task, lane in self._lanes.items() if now - lane.used > LANE_IDLE_SECONDS]
                leaving += [*(one.producer for one in old), *(self._lanes.pop(task) for task in unused)]
                self._learnt = {task: learnt for task, learnt in self._learnt.items() if now - learnt.used <= FORGET_SECONDS}
                for one in self._free:
                    one.producer.poll_idle()
                for lane in self._lanes.values():
                    lane.steps.poll_idle()
        finally:  # nobody else knows them any more
            for each in leaving:
                each.close()

    def _idle_timeout_seconds(self, index: int) -> float:
        """Returns how long a free producer is kept."""
        is_spare = any(later.options == self._free[index].options for later in self._free[index + 1 :])
        return SPARE_SECONDS if is_spare else IDLE_SECONDS

    def close(self) -> None:
        """Closes every producer and lane that is kept."""
        self._closed.set()
        with self._lock:
            leaving: list[TaskProducer | TaskLane] = [*(one.producer for one in self._free), *self._lanes.values()]
            self._free, self._lanes = [], {}
        for each in leaving:
            each.close()
