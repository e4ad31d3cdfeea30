"""The door to confluent_kafka: sending records and knowing what became of them."""

from __future__ import annotations

import threading
import time

from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.delivery import Outgoing, Refused, TaskProducer

__all__ = ["Outgoing", "Producers", "Refused", "TaskProducer"]

IDLE_SECONDS = 600.0
"""A producer that no batch has used for this long is closed: each holds connections and a few threads."""


class Producers:
    """The producers of one process: one per task and Kafka configuration, kept between batches, made after the fork.

    Sharing one between tasks would make a flush wait for, and an error be taken for, somebody else's records.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[TaskId, tuple[KafkaOptions, TaskProducer, float]] = {}
        self._batch_bytes: dict[TaskId, tuple[KafkaOptions, int]] = {}

    def take(self, task: TaskId, options: KafkaOptions) -> TaskProducer:
        """The task's producer, for one batch; the caller gives it back. Raises FatalError for a refused configuration."""
        with self._lock:
            kept = self._kept.pop(task, None)
            known, batch_bytes = self._batch_bytes.get(task, (options, 0))
        if kept is not None:
            if kept[0] == options:
                return kept[1]
            kept[1].close()
        return TaskProducer(options, f"copycat-{task.connector}-{task.number}", batch_bytes if known == options else 0)

    def give_back(self, task: TaskId, options: KafkaOptions, producer: TaskProducer) -> None:
        """Keep `producer` for the task's next batch, unless it is broken or not what is needed; close what is long idle."""
        now = time.monotonic()
        with self._lock:
            surplus = [name for name, (_, _, used) in self._kept.items() if name == task or now - used > IDLE_SECONDS]
            leaving = [self._kept.pop(name)[1] for name in surplus]
            if producer.next_batch_bytes:
                self._batch_bytes[task] = options, producer.next_batch_bytes
            if producer.broken or producer.next_batch_bytes != producer.batch_bytes:
                leaving.append(producer)
            else:
                self._kept[task] = (options, producer, now)
        for one in leaving:
            one.close()

    def close(self) -> None:
        """Close every producer that is kept."""
        with self._lock:
            leaving, self._kept = list(self._kept.values()), {}
        for _, producer, _ in leaving:
            producer.close()
