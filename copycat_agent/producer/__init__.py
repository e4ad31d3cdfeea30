"""The door to confluent_kafka: sending records and knowing what became of them."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import NamedTuple

from copycat_agent import logs
from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.delivery import Intact, Message, Place, Refused, TaskProducer
from copycat_agent.producer.lanes import Lane, Lanes, MakeSteps
from copycat_agent.producer.pace import MOST_BYTES, Pace
from copycat_agent.producer.remembered import Remembered
from copycat_agent.producer.transactional import KafkaSteps

__all__ = ["Intact", "Message", "Place", "Producers", "Refused", "TaskProducer"]

IDLE_SECONDS = 600.0
"""A producer that no batch has used for this long is closed: each holds connections and a few threads."""
SPARE_SECONDS = 30.0
"""The same for those beside which another one to the same cluster is free."""
LANE_IDLE_SECONDS = 60.0
"""As for lanes, which hold up to two, and are ready again in 40 ms."""
CLIENT_ID = "copycat"
"""What brokers call such a producer, unless `kafka.client` says otherwise."""
_LOOK_SECONDS = 5.0
"""How often idle producers are looked after."""

_log = logs.get("kafka")


class _Free(NamedTuple):
    """A producer that no batch uses, since `at` (`time.monotonic()`)."""

    options: KafkaOptions
    producer: TaskProducer
    at: float


class Producers:
    """The producers of one process, kept between batches, made after the fork. Thread-safe.

    A batch has a producer to itself: otherwise a flush would wait for, and an error be taken for, somebody else's records. Between batches
    any task with equal Kafka options may take it: a thousand connectors need as many connections as they have batches under way.
    """

    def __init__(self, make_steps: MakeSteps = KafkaSteps) -> None:
        """`make_steps`: what performs the steps of lanes."""
        self._lock = threading.Lock()
        self._free: list[_Free] = []  # the one that was used last comes last
        self._batch_bytes: Remembered[tuple[KafkaOptions, int]] = Remembered()
        self._run_bytes: Remembered[tuple[KafkaOptions, int]] = Remembered()
        self._paces: Remembered[tuple[KafkaOptions, Pace]] = Remembered()
        self._closed = threading.Event()
        self._keeper: threading.Thread | None = None
        self._lanes = Lanes(make_steps)

    def take(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> TaskProducer:
        """A producer for one batch of the task; the caller gives it back. Raises FatalError for a refused configuration."""
        with self._lock:
            batch_bytes = self._known(self._batch_bytes, task, options, 0)
            run_bytes = self._known(self._run_bytes, task, options, MOST_BYTES)
            for free in reversed(self._free):
                one = free.producer
                if free.options == options and one.tracked == tracked and one.batch_bytes == batch_bytes:
                    self._free.remove(free)
                    one.start_with(run_bytes)
                    return one
        return TaskProducer(options, CLIENT_ID, batch_bytes, Pace(run_bytes=run_bytes), tracked=tracked)

    @staticmethod
    def _known(what: Remembered[tuple[KafkaOptions, int]], task: TaskId, options: KafkaOptions, otherwise: int) -> int:
        """What the task has learnt with these options."""
        known, number = what.get(task) or (options, otherwise)
        return number if known == options else otherwise

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
        """Keep `producer` for another batch, unless it is broken, not what is needed, or holds records that nobody has settled."""
        is_fit = not (producer.broken or producer.has_unsettled) and producer.next_batch_bytes == producer.batch_bytes
        with self._lock:
            if producer.next_batch_bytes:
                self._batch_bytes.keep(task, (options, producer.next_batch_bytes))
            self._run_bytes.keep(task, (options, producer.run_bytes))
            if is_fit:
                self._free.append(_Free(options, producer, time.monotonic()))
            self._start_keeper()
        if not is_fit:
            producer.close()

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
            leaving = [one for index, one in enumerate(self._free) if now - one.at > self._patience(index)]
            self._free = [one for one in self._free if one not in leaving]
            for one in self._free:
                one.producer.attend()
            for known in (self._batch_bytes, self._run_bytes, self._paces):
                known.forget()
        for one in leaving:
            one.producer.close()
        self._lanes.attend(LANE_IDLE_SECONDS)

    def _patience(self, index: int) -> float:
        """How long a free producer is kept."""
        is_spare = any(later.options == self._free[index].options for later in self._free[index + 1 :])
        return SPARE_SECONDS if is_spare else IDLE_SECONDS

    def close(self) -> None:
        """Close every producer that is kept."""
        self._closed.set()
        with self._lock:
            leaving, self._free = self._free, []
        for one in leaving:
            one.producer.close()
        self._lanes.close()
