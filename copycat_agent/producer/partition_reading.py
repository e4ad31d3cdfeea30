"""Reads the records of a partition between two offsets.

`PartitionReader` assigns one partition at a time to a consumer, without joining a group: `GroupPositions` commits to the group, for
tools that show its lag.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.admin import ANSWER_SECONDS
from copycat_agent.producer.kafka_errors import creation_error, telling_trouble, with_trouble
from copycat_agent.producer.settings import SILENT, client_settings, invalidate_token
from copycat_agent.producer.topic_ranges import described_error
from copycat_agent.producer.topic_reader import NO_TIME_MS

STALL_SECONDS = 20.0
"""A read that gets nothing for this long, although there is something to read, fails."""
IDLE_SECONDS = 60.0
"""A consumer that has not been used for this long is closed."""
POLL_SECONDS = 0.2
REPORTS_PER_STALL = 4
"""How many statistics reports a consumer makes in `STALL_SECONDS`."""
_RUN_MESSAGES = 500
_QUEUE_KBYTES = 16 * 1024
"""How much a consumer fetches ahead of its reader."""
_BACKOFF_MS = "10"
"""How long a consumer with a full queue waits before it fetches more: with librdkafka's default of 1 s, batches take twice as long."""
_GONE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})  # noqa: SLF001 - its spelling

Header = tuple[str, bytes | None]


class ReceivedRun(NamedTuple):
    """Consecutive records of one partition, by columns of the same length. A value of None is a null, a time of None is unknown."""

    offsets: Sequence[int]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    headers: Sequence[tuple[Header, ...]]
    timestamps_ms: Sequence[int | None]

    def part(self, part: slice) -> ReceivedRun:
        """Returns some of the records."""
        return ReceivedRun(self.offsets[part], self.values[part], self.keys[part], self.headers[part], self.timestamps_ms[part])


class Removed(NamedTuple):
    """Offsets from `start` up to, not including, `end` whose records retention or a deletion has removed."""

    start: int
    end: int


class PassedOffsets(NamedTuple):
    """The read has come to `end` without a record, past aborted ones, say. It is the last item of a read that would stall otherwise."""

    end: int


class PartitionReader:
    """Reads partitions of one cluster, each with a consumer of its own while it is read. Thread-safe."""

    def __init__(self, options: KafkaOptions, *, committed: bool, if_cut: str) -> None:
        """`committed`: records of aborted and open transactions are left out. `if_cut`: see `cut`."""
        self._options, self._if_cut = options, if_cut
        self._isolation = "read_committed" if committed else "read_uncommitted"
        self._lock = threading.Lock()
        self._idle: list[tuple[float, _Client]] = []
        self._timer: threading.Timer | None = None
        """Closes idle consumers. There is one timer for all of them, while there are any."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[ReceivedRun | Removed | PassedOffsets]:
        """Yields the records from `start` up to, not including, `end`, and what has been removed of them.

        After `PassedOffsets`, the rest is to be read from there. Raises RetriableError when nothing comes, BlockedError when this user
        is refused, FatalError for what no retry can mend.
        """
        client = self._take()
        try:
            yield from client.read(topic, partition, start, end)
        except Exception:
            client.close()
            raise
        finally:  # also where the caller stops early
            self._give_back(client)

    def _take(self) -> _Client:
        with self._lock:
            if self._idle:
                return self._idle.pop()[1]
        return _Client(self._options, self._isolation, self._if_cut)

    def _give_back(self, client: _Client) -> None:
        if client.is_closed:
            return
        client.rest()
        with self._lock:
            self._idle.append((time.monotonic(), client))
            self._schedule_close()

    def _schedule_close(self) -> None:
        """Starts the timer for the oldest idle consumer, unless it runs. Called with the lock held."""
        if self._timer is None and self._idle:
            first = min(since for since, _ in self._idle)
            self._timer = threading.Timer(max(0.0, first + IDLE_SECONDS - time.monotonic()) + 1, self._close_idle)
            self._timer.daemon = True
            self._timer.start()

    def _close_idle(self) -> None:
        now = time.monotonic()
        with self._lock:
            old = [client for since, client in self._idle if now - since > IDLE_SECONDS]
            self._idle = [one for one in self._idle if now - one[0] <= IDLE_SECONDS]
            self._timer = None
            self._schedule_close()
        for client in old:
            client.close()


class _FetchedOffsets:
    """Tells from a consumer's statistics how far it has fetched without finding a record: it does not say so of aborted records otherwise.

    Used for one wait for messages. An offset counts once the consumer has moved to it between two reports and still has no message after
    the second one: messages that it held before a report are handed over before that report, through the same queue.
    """

    def __init__(self, topic: str = "", partition: int = -1) -> None:
        self._topic, self._partition = topic, str(partition)
        self._since_us = time.monotonic_ns() // 1000
        self._first = -1
        self._empty_polls = 0
        self.offset = -1

    def report(self, text: str) -> None:
        """Takes a report (JSON). Reports from before this wait are ignored."""
        report = json.loads(text)
        found = report["topics"].get(self._topic, {}).get("partitions", {}).get(self._partition)
        if found is None or report["ts"] <= self._since_us:
            return
        offset = found["next_offset"]
        if self._first < 0 or offset < self._first or found["fetchq_cnt"]:
            self._first, self.offset = offset, -1
        elif offset > self._first:
            self.offset, self._empty_polls = offset, 0

    def is_certain(self) -> bool:
        """Called after each poll without a message. Returns whether it is the second one since the report."""
        self._empty_polls += 1
        return self._empty_polls > 1


def _sorted_out(messages: Sequence[Message], position: int, end: int) -> tuple[Sequence[Message], int, KafkaError | None]:
    """Returns the records among messages, the offset after them, and the error that ends them."""
    last = messages[-1].offset() or 0
    if last < end and not any([message.error() for message in messages]):  # noqa: C419 - a list is quicker, and this is the usual case
        return messages, last + 1, None
    records: list[Message] = []
    for message in messages:
        error, offset = message.error(), message.offset() or 0
        if error is None and offset < end:
            records.append(message)
            position = offset + 1
        elif error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its spelling
            position = max(position, offset)
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            return records, position, error
    return records, position, None


def _by_columns(messages: Sequence[Message]) -> ReceivedRun:
    """Called for every record: one call for each of its parts is quicker than an object for each record."""
    stamps = [message.timestamp() for message in messages]
    headers = [cast("list[Header] | None", message.headers()) for message in messages]
    return ReceivedRun(
        cast("list[int]", [message.offset() for message in messages]),
        [message.value() for message in messages],
        [message.key() for message in messages],
        [tuple(one) if one else () for one in headers],
        [None if kind == TIMESTAMP_NOT_AVAILABLE or stamp == NO_TIME_MS else stamp for kind, stamp in stamps],
    )


class _Client:
    """A consumer that reads one partition at a time."""

    def __init__(self, options: KafkaOptions, isolation: str, if_cut: str) -> None:
        self._options, self._if_cut = options, if_cut
        self.is_closed = False
        self._trouble: KafkaError | None = None
        self._passed = _FetchedOffsets()
        settings = {
            "fetch.wait.max.ms": "100", "queued.max.messages.kbytes": str(_QUEUE_KBYTES), "fetch.queue.backoff.ms": _BACKOFF_MS,
            **client_settings(options), "group.id": "copycat",
            "enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error", "isolation.level": isolation,
            "enable.partition.eof": True, "error_cb": self._on_error, "stats_cb": self._on_statistics,
            "statistics.interval.ms": round(STALL_SECONDS * 1000 / REPORTS_PER_STALL),
        }  # fmt: skip
        try:
            self._consumer = Consumer(settings, logger=SILENT)
        except KafkaException as exception:
            raise creation_error(exception.args[0]) from None

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[ReceivedRun | Removed | PassedOffsets]:
        """Does `PartitionReader.read`."""
        position = start
        self._assign(topic, partition, start)
        while position < end:
            if not (messages := self._messages(topic, partition, position)):
                if (passed := self._passed.offset) < end:
                    yield PassedOffsets(passed)
                return
            records, position, failure = _sorted_out(messages, position, end)
            if records:
                yield _by_columns(records)
            if failure is not None:
                if failure.code() not in _GONE:
                    raise self._error(failure, topic)
                begin = min(end, self._begin_after(topic, partition, position))
                yield Removed(position, begin)
                position = begin
                self._assign(topic, partition, position)

    def _messages(self, topic: str, partition: int, position: int) -> list[Message]:
        """Returns the next messages, or none where offsets are passed (`_FetchedOffsets`). Raises RetriableError when nothing comes."""
        deadline = time.monotonic() + STALL_SECONDS
        self._passed = _FetchedOffsets(topic, partition)
        while not (messages := self._consume(topic)):
            if self._passed.offset > position and self._passed.is_certain():
                break
            if time.monotonic() > deadline:
                words = f"{topic}/{partition}: nothing came for {STALL_SECONDS:g} s from {','.join(self._options.bootstrap_servers)}"
                raise with_trouble(RetriableError(words), self._trouble)
        return messages

    def _assign(self, topic: str, partition: int, offset: int) -> None:
        try:
            self._consumer.assign([TopicPartition(topic, partition, offset)])
        except KafkaException as exception:
            raise self._error(exception.args[0], topic) from None

    def _consume(self, topic: str) -> list[Message]:
        try:
            messages = self._consumer.consume(_RUN_MESSAGES, POLL_SECONDS)
            # the consumer looks up its group's coordinator though it needs none, and a user may read topics without a right on groups
            is_of_group = len(messages) == 1 and (error := messages[0].error()) and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            return [] if is_of_group else messages
        except KafkaException as exception:
            raise self._error(exception.args[0], topic) from None

    def _begin_after(self, topic: str, partition: int, position: int) -> int:
        """Returns the partition's first offset. Raises FatalError where that is not after `position`."""
        try:
            begin, _ = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_SECONDS)
        except KafkaException as exception:
            raise self._error(exception.args[0], topic) from None
        if begin <= position:
            raise cut(f"{topic}/{partition}", position, self._if_cut)
        return int(begin)

    def _error(self, error: KafkaError, topic: str) -> CopycatError:
        return with_trouble(described_error(error, f"reading topic {topic}", topic), self._trouble)

    def _on_error(self, error: KafkaError) -> None:
        invalidate_token(self._options, error)
        self._trouble = telling_trouble(self._trouble, error)

    def _on_statistics(self, report: str) -> None:
        self._passed.report(report)

    def rest(self) -> None:
        """Ends a read: the consumer fetches nothing until the next one."""
        self._trouble = None
        self._consumer.unassign()

    def close(self) -> None:
        """Closes the consumer."""
        self.is_closed = True
        self._consumer.close()


def cut(name: str, position: int, hint: str) -> FatalError:
    """Returns the error of a partition that ends before the offset to read next; `hint` is the next step."""
    words = f"{name} ends before offset {position:,}, where reading goes on: it was cut, or made anew"
    return FatalError(words, hint)
