"""What a process keeps of lanes between two batches: one `Lane` per task, made after the fork."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from copycat_agent.producer.remembered import Remembered
from copycat_agent.transactions.protocol import perform
from copycat_agent.transactions.writing import LaneWriter

if TYPE_CHECKING:
    from copycat_agent.model import TaskId
    from copycat_agent.options import KafkaOptions
    from copycat_agent.producer.pace import Pace

MakeSteps = Callable[..., Any]
"""`transactional.KafkaSteps`, or what a test puts in its place."""


class Lane:
    """A task's lane in this process: its writer, and who performs the steps. Used by one batch at a time.

    `stopping` is the batch's. `memory` is what its batches found out for those after them. `broken`: something went wrong that nobody
    expected, it is not kept.
    """

    def __init__(self, options: KafkaOptions, make_steps: Callable[..., Any], *, tracked: bool, batch_bytes: int) -> None:
        self.options = options
        self.steps = make_steps(stopping=self._is_stopping)
        self.tracked = tracked
        self.batch_bytes = self.next_batch_bytes = batch_bytes
        self.writer = LaneWriter()
        self.memory: Any = None
        self.broken = False
        self.stopping: Callable[[], bool] = lambda: False
        self.used = time.monotonic()

    @property
    def transaction_seconds(self) -> float:
        """After this time without an end the cluster aborts a transaction."""
        return float(self.steps.transaction_seconds)

    def _is_stopping(self) -> bool:
        return self.stopping()

    def close(self) -> None:
        """Give up what is prepared, free the clients. The next batch of the task begins with reading the head."""
        perform(self.writer.rest(), self.steps)
        self.steps.close()


class Lanes:
    """The lanes that no batch uses just now. Thread-safe."""

    def __init__(self, make_steps: MakeSteps) -> None:
        self._make_steps = make_steps
        self._lock = threading.Lock()
        self._kept: dict[TaskId, Lane] = {}
        self._known: Remembered[tuple[KafkaOptions, int, Any]] = Remembered()

    def take(self, task: TaskId, options: KafkaOptions, pace: Pace, *, tracked: bool) -> Lane:
        """The task's lane, for one batch; the caller gives it back. `tracked` and `pace` are for `MakeSteps`.

        Raises FatalError for a refused configuration.
        """
        with self._lock:
            kept = self._kept.pop(task, None)
            known, batch_bytes, memory = self._known.get(task) or (options, 0, None)
        if known != options:
            batch_bytes, memory = 0, None
        if kept is not None:
            if kept.options == options and kept.tracked == tracked:
                return kept
            kept.close()
        how = {"batch_bytes": batch_bytes, "tracked": tracked, "pace": pace}
        make = functools.partial(self._make_steps, options, f"copycat-{task.connector}-{task.number}", **how)
        lane = Lane(options, make, tracked=tracked, batch_bytes=batch_bytes)
        lane.memory = memory
        return lane

    def give_back(self, task: TaskId, lane: Lane) -> None:
        """Keep it for the task's next batch, unless it is broken or not what is needed."""
        lane.used, lane.stopping = time.monotonic(), lambda: False
        with self._lock:
            leaving = [self._kept.pop(task)] if task in self._kept else []
            self._known.keep(task, (lane.options, lane.next_batch_bytes, lane.memory))
            if lane.broken or lane.next_batch_bytes != lane.batch_bytes:
                leaving.append(lane)
            else:
                self._kept[task] = lane
        for one in leaving:
            one.close()

    def attend(self, idle_seconds: float) -> None:
        """Let idle clients say what they have to say; close lanes that are idle for so long."""
        now = time.monotonic()
        with self._lock:
            old = [task for task, lane in self._kept.items() if now - lane.used > idle_seconds]
            leaving = [self._kept.pop(task) for task in old]
            for lane in self._kept.values():
                lane.steps.attend()
            self._known.forget()
        for lane in leaving:
            lane.close()

    def close(self) -> None:
        """Close all that are kept."""
        with self._lock:
            leaving, self._kept = list(self._kept.values()), {}
        for lane in leaving:
            lane.close()
