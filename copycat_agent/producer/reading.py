"""Reading a topic back, to compare it with what was sent: `copycat demo` does."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from copycat_agent.errors import RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.outcomes import translate
from copycat_agent.producer.settings import connection_settings

_ANSWER_SECONDS = 10.0
_STALL_SECONDS = 30.0
"""So long without a single record, while some are missing, is no longer patience."""
_FETCH_RECORDS = 5000


def read_topic(kafka: KafkaOptions, topic: str) -> Iterator[bytes]:
    """Every value of `topic` up to its end as it is now, partition by partition, each in its order; b"" for a record without a value.

    Committed records only. A topic that does not exist yields nothing. Raises RetriableError, BlockedError or FatalError.
    """
    consumer = Consumer({
        **connection_settings(kafka), "group.id": "copycat-read", "enable.auto.commit": False, "auto.offset.reset": "error",
        "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0,
    })  # fmt: skip
    try:
        for partition in _partitions(consumer, topic):
            yield from _read(consumer, partition)
    except KafkaException as exception:
        raise translate(exception.args[0], f"reading topic {topic}") from None
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Each partition at its first record."""
    found = consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
    if found.error is not None and found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise KafkaException(found.error)
    return [TopicPartition(topic, number) for number in sorted(found.partitions)]


def _read(consumer: Consumer, partition: TopicPartition) -> Iterator[bytes]:
    low, end = consumer.get_watermark_offsets(partition, timeout=_ANSWER_SECONDS)
    consumer.assign([TopicPartition(partition.topic, partition.partition, low)])
    next_offset, deadline = low, time.monotonic() + _STALL_SECONDS
    while next_offset < end:
        if time.monotonic() > deadline:
            raise RetriableError(f"topic {partition.topic} cannot be read beyond offset {next_offset} of partition {partition.partition}")
        for message in consumer.consume(_FETCH_RECORDS, timeout=0.5):
            deadline = time.monotonic() + _STALL_SECONDS
            next_offset = max(next_offset, _offset_after(message))
            if message.error() is None and next_offset <= end:
                yield message.value() or b""


def _offset_after(message: Message) -> int:
    """The end of the partition is told as an error that carries an offset: control records before it are never seen."""
    error, offset = message.error(), message.offset()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes are spelled so
        raise KafkaException(error)
    assert offset is not None
    return offset if error else offset + 1
