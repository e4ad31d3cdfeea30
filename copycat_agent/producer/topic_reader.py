"""Reads a topic up to its present end: all of it (`copycat demo`), or from a group's committed positions (`copycat dlq`).

A `TopicReader` assigns itself all partitions; it never joins its group, which only keeps positions. So two readers with one group
both read all records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Self, TypeVar, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.kafka_errors import telling_trouble, translate, with_trouble
from copycat_agent.producer.settings import client_settings, invalidate_token

_T = TypeVar("_T")

ANSWER_SECONDS = 10.0
STALL_SECONDS = 30.0
"""Reading is given up after this time without a single record, while some are missing."""
NO_TIME_MS = -1
"""The timestamp of records that have none: of clients that set none, and from before Kafka had timestamps."""
_FETCH_KBYTES = 16 * 1024
"""KiB prefetched per partition."""
_LOOK_SECONDS = 0.1
_NOBODY_YET = frozenset({
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,  # noqa: SLF001 - its spelling
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH,
})  # fmt: skip


class Received(NamedTuple):
    """A record of a topic. `timestamp_ms` is None if it has none."""

    partition: int
    offset: int
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None
    key: bytes | None = None


class PartitionBounds(NamedTuple):
    """The offsets of a partition: that of its first record, and the one that the next record will get."""

    begin: int
    end: int


class GroupPosition(NamedTuple):
    """The position that a group keeps for a partition: the next offset to read, and metadata (4 KiB by default)."""

    offset: int
    words: str


def offset_after(message: Message) -> int:
    """Returns the offset after `message` in its partition. Raises KafkaException for an error.

    The end of a partition is reported as an error with an offset: control records before it are never delivered.
    """
    error, offset = message.error(), message.offset()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its spelling
        raise KafkaException(error)
    assert offset is not None
    return offset if error else offset + 1


class TopicReader:
    """One topic for one group. All methods raise RetriableError when no broker answers and BlockedError when access is refused.

    `ranges` says what is there, by partition; empty for a topic that does not exist. Used as a context manager, from one thread.
    """

    def __init__(self, kafka: KafkaOptions, topic: str, group: str) -> None:
        self.topic = topic
        self.ranges: dict[int, PartitionBounds] = {}
        self._options = kafka
        self._group = group
        self._trouble: KafkaError | None = None
        self._consumer = Consumer({
            **client_settings(kafka), "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error",
            "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0, "error_cb": self._on_error,
            "queued.max.messages.kbytes": _FETCH_KBYTES,
        })  # fmt: skip

    def __enter__(self) -> Self:
        try:
            self._look()
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def positions(self) -> dict[int, GroupPosition]:
        """Returns what the group has saved, by partition; partitions without are left out."""
        wanted = [TopicPartition(self.topic, number) for number in self.ranges]
        if not wanted:
            return {}
        ask = partial(self._consumer.committed, wanted, timeout=ANSWER_SECONDS)
        found = self._until_appointed(ask, f"positions of group {self._group}")
        return {one.partition: GroupPosition(one.offset, one.metadata or "") for one in found if one.offset >= 0}

    def save(self, positions: Mapping[int, GroupPosition]) -> None:
        """Commits positions for the group, synchronously."""
        wanted = [TopicPartition(self.topic, number, offset, words) for number, (offset, words) in positions.items()]
        if wanted:
            tell = partial(self._consumer.commit, offsets=wanted, asynchronous=False)
            self._until_appointed(tell, f"saving positions of group {self._group}")

    def _until_appointed(self, call: Callable[[], _T], what: str) -> _T:
        """Calls a group's coordinator or a partition's leader, and retries while the cluster is still electing it."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return call()
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if error.code() not in _NOBODY_YET or time.monotonic() > deadline:
                    raise self._translated(error, what) from None
                time.sleep(_LOOK_SECONDS)

    def records(self, starts: Mapping[int, int]) -> Iterator[Received]:
        """Yields records from `starts` (offset by partition; by default the first) to the known end, in order within each partition."""
        begins = {number: max(starts.get(number, begin), begin) for number, (begin, _) in self.ranges.items()}
        places = {number: begin for number, begin in begins.items() if begin < self.ranges[number].end}
        self._consumer.assign([TopicPartition(self.topic, number, begin) for number, begin in places.items()])
        deadline = time.monotonic() + STALL_SECONDS
        while places:
            if time.monotonic() > deadline:
                raise with_trouble(RetriableError(f"topic {self.topic} cannot be read to its end: no answer from Kafka"), self._trouble)
            message = self._consumer.poll(0.2)
            if message is not None:
                yield from self._take(message, places)
                deadline = time.monotonic() + STALL_SECONDS  # the caller's work on a record does not count

    def _take(self, message: Message, places: dict[int, int]) -> Iterator[Received]:
        """Yields the record, unless it lies after the end. The end of a partition is reported as an error with an offset."""
        error, number, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its spelling
            raise self._translated(error, f"reading topic {self.topic} for group {self._group}")
        assert number is not None
        assert offset is not None
        if number in places:
            if error is None and offset < self.ranges[number].end:
                yield received(message, number, offset)
            if offset + (error is None) >= self.ranges[number].end:
                del places[number]

    def _look(self) -> None:
        try:
            found = self._consumer.list_topics(self.topic, timeout=ANSWER_SECONDS).topics[self.topic]
            if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            if found.error is not None:
                raise self._translated(found.error, f"topic {self.topic}")
            for number in sorted(found.partitions):
                ask = partial(self._consumer.get_watermark_offsets, TopicPartition(self.topic, number), timeout=ANSWER_SECONDS)
                self.ranges[number] = PartitionBounds(*self._until_appointed(ask, f"topic {self.topic}"))
        except KafkaException as exception:
            raise self._translated(exception.args[0], f"no broker answers at {','.join(self._options.bootstrap_servers)}") from None

    def _translated(self, error: KafkaError, what: str) -> CopycatError:
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return BlockedError(f"{what}: {error.str()}", f"grant this user Read and Describe on the topic {self.topic}")
        return with_trouble(translate(error, what), self._trouble)

    def _on_error(self, error: KafkaError) -> None:
        invalidate_token(self._options, error)
        self._trouble = telling_trouble(self._trouble, error)


def received(message: Message, partition: int, offset: int) -> Received:
    """Returns a message of the client as a record. Called per record, so it has to be fast."""
    kind, stamp = message.timestamp()
    headers = tuple(cast("list[tuple[str, bytes | None]]", message.headers() or ()))
    timestamp_ms = None if kind == TIMESTAMP_NOT_AVAILABLE or stamp == NO_TIME_MS else stamp
    return Received(partition, offset, message.value(), headers, timestamp_ms, message.key())


def read_topic(kafka: KafkaOptions, topic: str) -> Iterator[bytes]:
    """Yields every committed value of `topic` up to its present end, in order within each partition; b"" for a tombstone.

    A topic that does not exist yields nothing. Raises as `TopicReader` does.
    """
    with TopicReader(kafka, topic, "copycat-read") as reader:
        for record in reader.records({}):
            yield record.value or b""
