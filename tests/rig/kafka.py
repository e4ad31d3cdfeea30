"""What tests ask a broker: make a topic, read all of a topic."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 60.0
"""For a broker to answer a question, however short the deadline for records is."""
_NO_LEADER_YET = frozenset({
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH,
})  # fmt: skip

Isolation = Literal["read_uncommitted", "read_committed"]


class Consumed(NamedTuple):
    """One record as a consumer sees it. `value` None is a tombstone; `timestamp_ms` None when the record has none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


def unique_topic(prefix: str = "t") -> str:
    """A topic name that no other test uses."""
    return f"{prefix}.{uuid.uuid4().hex[:12]}"


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, *, deadline: float = 60.0) -> str:
    """Create a topic and return its name, once its leaders answer; raises when it exists or the broker does not answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([new], operation_timeout=deadline, request_timeout=deadline)[name].result(deadline)
    wait_until(lambda: _is_led(admin, name, partitions, deadline), deadline, f"the leaders of {name} do not answer")
    return name


def _is_led(admin: AdminClient, topic: str, partitions: int, deadline: float) -> bool:
    """A topic that was just made may not be known yet, not have leaders, or have some that do not know that they lead."""
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}  # type: ignore[no-untyped-call]
    try:
        return all(answer.result(deadline) for answer in admin.list_offsets(wanted, request_timeout=deadline).values())
    except KafkaException:
        return False


def delete_topic(bootstrap: str, name: str, *, deadline: float = 60.0) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a name: a client that is collected ends its calls
    admin.delete_topics([name], operation_timeout=deadline)[name].result(deadline)


def consume(
    bootstrap: str,
    topic: str,
    isolation: Isolation = "read_uncommitted",
    until: int | Callable[[list[Consumed]], bool] | None = None,
    deadline: float = 60.0,
    client: Mapping[str, str] | None = None,
) -> list[Consumed]:
    """Everything in `topic` from its beginning, ordered within each partition.

    `until` None: up to the high watermark (read_committed: the last stable offset) at the time of the call. A number: until
    that many records have been seen; a function: until it says True of the records so far. Both wait for a topic that does
    not exist yet, may return more than was asked for, never less, and raise AssertionError with what was seen at the deadline.
    `client`: further settings, such as a login.
    """
    consumer = Consumer({**_consumer_config(bootstrap, isolation), **(client or {})})
    end = time.monotonic() + deadline
    try:
        partitions = _partitions(consumer, topic, deadline, is_awaited=until is not None)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        open_ends = _ends(consumer, topic, partitions, deadline) if until is None else None
        return _read(consumer, open_ends, until, end)
    finally:
        consumer.close()


def wait_for_markers(bootstrap: str, topic: str, deadline: float = 60.0) -> None:
    """Waits until no transaction is open in `topic`; AssertionError at the deadline.

    Kafka answers a commit before the partitions are told of it, on a busy machine long before: until then its records are not shown.
    """
    uncommitted, committed = (Consumer(_consumer_config(bootstrap, one)) for one in ("read_uncommitted", "read_committed"))
    try:
        partitions = _partitions(uncommitted, topic, deadline, is_awaited=False)
        ends = _ends(uncommitted, topic, partitions, deadline)

        def shows_all() -> bool:
            shown = _ends(committed, topic, partitions, deadline)
            return all(shown.get(number, 0) >= end for number, end in ends.items())

        wait_until(shows_all, deadline, f"a transaction is open in {topic}")
    finally:
        uncommitted.close()
        committed.close()


def values(bootstrap: str, topic: str, count: int | None = None, deadline: float = 60.0) -> list[bytes | None]:
    """The values of `consume`, which most tests want."""
    return [record.value for record in consume(bootstrap, topic, until=count, deadline=deadline)]


def _consumer_config(bootstrap: str, isolation: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "rig",  # required by the client; with assign() and no commits, no group is ever joined
        "isolation.level": isolation,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
        "fetch.error.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,  # a broker that a test has taken away is no news
    }


def _partitions(consumer: Consumer, topic: str, deadline: float, *, is_awaited: bool) -> list[int]:
    """The topic's partition numbers. A topic that is missing is waited for when `is_awaited`, else an AssertionError at once."""
    end = time.monotonic() + deadline
    while (metadata := consumer.list_topics(topic, timeout=max(deadline, _ANSWER_SECONDS)).topics[topic]).error is not None:
        if not is_awaited or time.monotonic() > end:
            msg = f"topic {topic}: {metadata.error}"
            raise AssertionError(msg)
        time.sleep(_POLL_SECONDS)
    return sorted(metadata.partitions)


def _ends(consumer: Consumer, topic: str, partitions: list[int], deadline: float) -> dict[int, int]:
    """Partition -> end offset, for the partitions that are not empty."""
    marks = {number: _marks(consumer, TopicPartition(topic, number), deadline) for number in partitions}
    return {number: high for number, (low, high) in marks.items() if high > low}


def _marks(consumer: Consumer, partition: TopicPartition, deadline: float) -> tuple[int, int]:
    """Begin and end. A broker that has just started answers before it leads its partitions: it is asked again until the deadline."""
    end = time.monotonic() + deadline
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=max(deadline, _ANSWER_SECONDS))
        except KafkaException as exception:
            if exception.args[0].code() not in _NO_LEADER_YET or time.monotonic() > end:
                raise
            time.sleep(_POLL_SECONDS)


def _read(
    consumer: Consumer, open_ends: dict[int, int] | None, until: int | Callable[[list[Consumed]], bool] | None, end: float
) -> list[Consumed]:
    records: list[Consumed] = []
    while not _is_enough(records, open_ends, until):
        if time.monotonic() > end:
            msg = f"saw {len(records)} records, wanted {until if until is not None else f'the ends {open_ends}'}; last: {records[-1:]}"
            raise AssertionError(msg)
        for message in consumer.consume(10_000, timeout=0.05):
            _take(message, records, open_ends)
    return records


def _is_enough(records: list[Consumed], open_ends: dict[int, int] | None, until: int | Callable[[list[Consumed]], bool] | None) -> bool:
    if open_ends is not None:
        return not open_ends
    return until(records) if callable(until) else len(records) >= (until or 0)


def _take(message: Message, records: list[Consumed], open_ends: dict[int, int] | None) -> None:
    """A record is kept; the client's "end of partition" closes a partition (control records are invisible but have offsets)."""
    error, partition, offset = message.error(), message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    if error is None:
        records.append(_consumed(message, partition, offset))
        offset += 1
    elif error.code() != KafkaError._PARTITION_EOF:
        return
    if open_ends is not None and offset >= open_ends.get(partition, offset + 1):
        del open_ends[partition]


def _consumed(message: Message, partition: int, offset: int) -> Consumed:
    kind, stamp = message.timestamp()
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    timestamp_ms = None if kind == TIMESTAMP_NOT_AVAILABLE else stamp
    return Consumed(partition, offset, message.key(), message.value(), tuple(headers), timestamp_ms)
