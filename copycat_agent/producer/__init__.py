"""The door to confluent_kafka: sending records and knowing what became of them."""

from __future__ import annotations

import contextlib
import threading
import time

from copycat_agent import logs
from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.delivery import Intact, Message, Place, Refused, TaskProducer
from copycat_agent.producer.lanes import Lane, Lanes, MakeSteps
from copycat_agent.producer.pace import Pace
from copycat_agent.producer.remembered import Remembered
from copycat_agent.producer.transactional import KafkaSteps

__all__ = ["Intact", "Message", "Place", "Producers", "Refused", "TaskProducer"]

IDLE_SECONDS = 600.0
"""A producer that no batch has used for this long is closed: each holds connections and a few threads."""
LANE_IDLE_SECONDS = 60.0
"""As for lanes, which hold up to two, and are ready again in 40 ms."""
_LOOK_SECONDS = 5.0
"""How often idle producers are looked after."""

_log = logs.get("kafka")


class Producers:
    """The producers of one process: one per task and Kafka configuration, kept between batches, made after the fork.

    Sharing one between tasks would make a flush wait for, and an error be taken for, somebody else's records.
    """

    def __init__(self, make_steps: MakeSteps = KafkaSteps) -> None:
        """`make_steps`: what performs the steps of lanes."""
        self._lock = threading.Lock()
        self._kept: dict[TaskId, tuple[KafkaOptions, TaskProducer, float]] = {}
        self._batch_bytes: Remembered[tuple[KafkaOptions, int]] = Remembered()
        self._paces: Remembered[tuple[KafkaOptions, Pace]] = Remembered()
        self._closed = threading.Event()
        self._keeper: threading.Thread | None = None
        self._lanes = Lanes(make_steps)

    def take(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> TaskProducer:
        """The task's producer, for one batch; the caller gives it back. Raises FatalError for a refused configuration."""
        with self._lock:
            kept = self._kept.pop(task, None)
            known, batch_bytes = self._batch_bytes.get(task) or (options, 0)
            pace = self._pace(task, options)
        if kept is not None:
            if kept[0] == options and kept[1].tracked == tracked:
                return kept[1]
            kept[1].close()
        client_id = f"copycat-{task.connector}-{task.number}"
        return TaskProducer(options, client_id, batch_bytes if known == options else 0, pace, tracked=tracked)

    def take_lane(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> Lane:
        """The task's lane, for one batch; the caller gives it back. Raises as `take`."""
        with self._lock:
            pace = self._pace(task, options)
        return self._lanes.take(task, options, pace, tracked=tracked)

    def give_lane_back(self, task: TaskId, lane: Lane) -> None:
        """Keep `lane` for the task's next batch, unless it cannot be."""
        self._lanes.give_back(task, lane)
        with self._lock:
            self._start_keeper()

    def _pace(self, task: TaskId, options: KafkaOptions) -> Pace:
        """What the task has learnt of its line to this cluster."""
        known = self._paces.get(task)
        if known is None or known[0] != options:
            known = self._paces.keep(task, (options, Pace()))
        return known[1]

    def give_back(self, task: TaskId, options: KafkaOptions, producer: TaskProducer) -> None:
        """Keep `producer` for the task's next batch, unless it is broken or not what is needed."""
        with self._lock:
            leaving = [self._kept.pop(task)[1]] if task in self._kept else []
            if producer.next_batch_bytes:
                self._batch_bytes.keep(task, (options, producer.next_batch_bytes))
            if producer.broken or producer.next_batch_bytes != producer.batch_bytes:
                leaving.append(producer)
            else:
                self._kept[task] = (options, producer, time.monotonic())
            self._start_keeper()
        for one in leaving:
            one.close()

    def _start_keeper(self) -> None:
        """Its thread belongs to this process: made with the first producer, after the fork."""
        if self._keeper is None:
            keeper = threading.Thread(target=self._look_after, name="producers", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: the next batch tries again
                keeper.start()
                self._keeper = keeper

    def _look_after(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                self._attend()
            except Exception as error:  # noqa: BLE001 - the next round may go better
                _log.warning("Kafka clients that no batch uses could not be looked after", why=type(error).__name__)

    def _attend(self) -> None:
        """Let idle producers say what they have to say, and close those that are idle for long."""
        now = time.monotonic()
        with self._lock:
            old = [task for task, (_, _, used) in self._kept.items() if now - used > IDLE_SECONDS]
            leaving = [self._kept.pop(task)[1] for task in old]
            for _, producer, _ in self._kept.values():
                producer.attend()
            self._batch_bytes.forget()
            self._paces.forget()
        for one in leaving:
            one.close()
        self._lanes.attend(LANE_IDLE_SECONDS)

    def close(self) -> None:
        """Close every producer that is kept."""
        self._closed.set()
        with self._lock:
            leaving, self._kept = list(self._kept.values()), {}
        for _, producer, _ in leaving:
            producer.close()
        self._lanes.close()
