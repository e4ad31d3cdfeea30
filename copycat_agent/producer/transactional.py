"""The steps of a lane on a Kafka cluster, and reading positions of the offsets topic up to a given end.

`transactions` explains the steps and their order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from copycat_agent.errors import CopycatError, RetriableError
from copycat_agent.model import ClientView, OffsetsPartition
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.admin import ANSWER_SECONDS, Admin
from copycat_agent.producer.kafka_errors import creation_error, telling_trouble, with_trouble
from copycat_agent.producer.lane_producer import LaneProducer
from copycat_agent.producer.offsets_topic import PARTITIONS, OffsetsTopic, cluster, topic_error
from copycat_agent.producer.settings import client_settings, invalidate_token
from copycat_agent.producer.task_memory import Pace, TransactionalState
from copycat_agent.producer.topic_reader import offset_after
from copycat_agent.transactions.protocol import Entry

STALL_SECONDS = 15.0
"""Reading positions is given up after this time without a record."""
_ANSWER_MS = 10_000
"""Time until a lost answer is asked for again: less than `STALL_SECONDS`."""
_LOOK_SECONDS = 0.05
_MOST_UNASKED = 3
MOST_ENTRIES = 50_000
"""Entries in memory from which on those are dropped that a later one replaces."""


class KafkaSteps:
    """`transactions.protocol.Steps` on a Kafka cluster, for one task, or for the opening of a connector. One user at a time."""

    def __init__(
        self, options: KafkaOptions, client_id: str, *, tracked: bool = False, batch_bytes: int = 0, pace: Pace | None = None,
        stopping: Callable[[], bool] = lambda: False
    ) -> None:  # fmt: skip
        """`tracked`, `batch_bytes` and `pace` are those of `TaskProducer`. `stopping` ends a wait for other transactions."""
        self.options = options
        self.client_id = client_id
        self.shared = TransactionalState(tracked, batch_bytes, pace or Pace(), stopping)
        self.consumer: Consumer | None = None
        """Reads positions, while they are needed."""
        self._stopping = stopping
        self._admin = Admin(options, client_id, stopping=stopping)
        self._trouble: KafkaError | None = None
        self._unasked = 0
        self._lock = threading.Lock()
        self._live: set[LaneProducer] = set()

    def prepare(self, transactional_id: str) -> LaneProducer:
        """Returns a new producer, which begins to fence all others with its id."""
        handle = LaneProducer(self.options, self.client_id, transactional_id, self.shared)
        with self._lock:
            self._live.add(handle)
        return handle

    def ready(self, handle: LaneProducer) -> None:
        """Waits until the id's earlier transactions are all committed or aborted."""
        handle.ready()

    def begin(self, handle: LaneProducer) -> None:
        """Begins the transaction. Raises FencedError if another producer has taken the id."""
        handle.begin_transaction()

    def send(self, handle: LaneProducer, place: OffsetsPartition, entries: Sequence[Entry]) -> None:
        """Sends entries of the offsets topic in the transaction."""
        handle.send_entries(place, entries)

    def flush(self, handle: LaneProducer) -> None:
        """Waits until everything that was sent is acknowledged. Raises FencedError or RefusedError."""
        handle.flush_entries()

    def commit(self, handle: LaneProducer) -> None:
        """Commits the transaction. If it raises, the outcome is unknown."""
        handle.commit()
        self.rest()

    def close(self, handle: LaneProducer | None = None) -> None:
        """Closes the producer, or without a handle all clients that are left."""
        with self._lock:
            leaving = [handle] if handle is not None else list(self._live)
            self._live.difference_update(leaving)
        for one in leaving:
            one.close()
        if handle is None:
            self.free()

    @property
    def transaction_seconds(self) -> float:
        """Time after which the cluster aborts an open transaction."""
        return self.shared.timeout_ms / 1000

    def poll_idle(self) -> None:
        """Polls idle producers, whose events would pile up. Thread-safe; never blocks."""
        with self._lock:
            live = list(self._live)
        for one in live:
            one.poll_idle()

    def take_view(self) -> ClientView | None:
        """Returns the latest statistics of any producer, as `TaskProducer.take_view`."""
        with self._lock:
            views = [view for one in self._live if (view := one.take_view()) is not None]
        return max(views, key=lambda view: view.at, default=None)

    def cluster_id(self) -> str:
        """Returns the id of the cluster."""
        return str(cluster(self._admin).cluster_id)

    def ensure_topic(self, topic: str, partitions: int = PARTITIONS) -> int:
        """Returns how many partitions the topic has; see `OffsetsTopic.ensure`."""
        return OffsetsTopic(self._admin).ensure(topic, partitions)

    def end(self, place: OffsetsPartition, *, decided: bool = False) -> int:
        """Returns the end of the partition, open transactions included; with `decided`, the begin of the first open one."""
        isolation = IsolationLevel.READ_COMMITTED if decided else IsolationLevel.READ_UNCOMMITTED
        wanted = TopicPartition(place.topic, place.partition)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        try:
            found = self._admin.ask(
                lambda client: client.list_offsets({wanted: latest}, isolation_level=isolation, request_timeout=ANSWER_SECONDS)[wanted]
            )
        except KafkaException as exception:
            self._admin.close()  # it would keep its stale leader for minutes, which after a restart refuses each request
            what = f"asking for the end of partition {place.partition} of {place.topic}"
            raise topic_error(exception.args[0], what, place.topic) from None
        return int(found.offset)

    def replay(self, place: OffsetsPartition, since: int, end: int) -> list[Entry]:
        """Returns committed entries from `since` up to `end`, in order. Raises RetriableError if a transaction below `end` stays open."""
        self._unasked = 0
        if since >= end:
            return []
        consumer = self._reader()
        try:
            consumer.assign([TopicPartition(place.topic, place.partition, since)])
            entries = self._read(consumer, place, since, end)
        except KafkaException as exception:
            self._drop_reader()
            raise topic_error(exception.args[0], f"reading topic {place.topic}", place.topic) from None
        except CopycatError:
            self._drop_reader()  # a new one has new connections: on an old one the library waits longer for a lost answer
            raise
        consumer.unassign()
        return entries

    def _read(self, consumer: Consumer, place: OffsetsPartition, since: int, end: int) -> list[Entry]:
        entries: list[Entry] = []
        most, following, is_held, deadline = MOST_ENTRIES, since, False, time.monotonic() + STALL_SECONDS
        while following < end:
            if self._stopping():
                raise RetriableError(f"reading partition {place.partition} of {place.topic}: stopped before all of it was read")
            if time.monotonic() > deadline:
                raise self._stalled(place, following, end, is_held=is_held)
            message = consumer.poll(_LOOK_SECONDS)
            if message is None:
                continue
            following = max(following, _offset_after(message))
            error = message.error()
            is_held = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - its spelling
            if error is None and following <= end:
                entries.append(Entry(message.key() or b"", message.value(), message.offset() or 0))
                deadline = time.monotonic() + STALL_SECONDS
            if len(entries) > most:
                entries = _latest(entries)
                most = max(MOST_ENTRIES, 2 * len(entries))
        return entries

    def _stalled(self, place: OffsetsPartition, following: int, end: int, *, is_held: bool) -> CopycatError:
        """Returns the error for a read without progress. `is_held`: Kafka reports that nothing more is committed."""
        words = f"partition {place.partition} of {place.topic} ends at {end} and cannot be read beyond offset {following}"
        if not is_held:
            return with_trouble(RetriableError(f"{words}: no answer from {self._admin.servers}"), self._trouble)
        return RetriableError(
            f"{words}: a transaction of another producer is open there",
            "it ends by itself at that producer's transaction.timeout.ms; kafka-transactions.sh describe-producers says whose it is",
        )

    def _reader(self) -> Consumer:
        self._trouble = None
        if self.consumer is None:
            settings: dict[str, Any] = {
                **client_settings(self.options), "client.id": self.client_id, "group.id": "copycat-positions", "enable.auto.commit": False,
                "auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.partition.eof": True,
                "fetch.wait.max.ms": 5, "error_cb": self._on_error,
                "socket.timeout.ms": _ANSWER_MS,
            }  # fmt: skip
            try:
                self.consumer = Consumer(settings)
            except KafkaException as exception:
                raise creation_error(exception.args[0]) from None
        return self.consumer

    def _on_error(self, error: KafkaError) -> None:
        invalidate_token(self.options, error)
        self._trouble = telling_trouble(self._trouble, error)

    def rest(self) -> None:
        """Notes a step without a question; after several in a row, closes the clients that only questions need."""
        self._unasked += 1
        if self._unasked > _MOST_UNASKED:
            self.free()

    def free(self) -> None:
        """Closes the clients; the next question creates new ones."""
        self._drop_reader()
        self._admin.close()

    def _drop_reader(self) -> None:
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            consumer.close()


def _offset_after(message: Message) -> int:
    """Returns `offset_after`; 0 where the group is refused, which this reader names only because it has to."""
    error = message.error()
    return 0 if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else offset_after(message)


def _latest(entries: list[Entry]) -> list[Entry]:
    """Returns the latest entry of each key, as compaction would leave them, in order."""
    last = {entry.key: index for index, entry in enumerate(entries)}
    return [entry for index, entry in enumerate(entries) if last[entry.key] == index]
