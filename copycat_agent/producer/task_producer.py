"""The producer of one task: sends records, waits for acknowledgements, reports refused records.

The library calls back for failures only, since a call into Python for each record costs too much. So after a flush that leaves nothing in
the queue and reported no failure, everything sent since the previous flush is acknowledged. A `tracked` producer pays for a call per
record, and learns the partition and offset of each.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat, starmap
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Receipt

from copycat_agent.errors import CopycatError, DataError, RetriableError
from copycat_agent.model import ClientView
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.client import ClientReports, ClientSpec, Connection, Message, Place, Report, reported
from copycat_agent.producer.kafka_errors import RefusedRecordError, classify, creation_error, translate, with_trouble
from copycat_agent.producer.settings import SILENT, invalidate_token, message_timeout_ms, producer_settings
from copycat_agent.producer.task_memory import Pace, StopRequest, TopicMetadata

_ROOM_SECONDS = 0.05
"""How long one wait for room in a full queue lasts before the stop request is checked again."""
_SLACK_SECONDS = 15.0
"""How much longer than the message time-out a flush may take before the producer is given up."""
_RUN_SECONDS = 5.0
"""How long a run should take at most, well below the message time-out."""


class ReplacementGuard(Protocol):
    """An open file that notices whether it was replaced while it was read."""

    @property
    def is_whole(self) -> bool:
        """Returns whether it was still the same file at every read."""

    def was_still(self, position: int) -> bool:
        """Returns whether it was still the same file when it was read up to `position`."""


class TaskProducer:
    """An idempotent producer that one task uses, from one thread at a time."""

    _least_batch_bytes = 4096
    """A topic with a lower limit gets its records as well, but each of its batches is refused first and sent again."""
    _flush_step_seconds = 0.2
    """How long one wait for acknowledgements lasts before failures are checked."""

    def __init__(
        self, options: KafkaOptions, client_id: str, batch_bytes: int = 0, pace: Pace | None = None, *,
        tracked: bool = False, transactional_id: str = "",
    ) -> None:  # fmt: skip
        """`batch_bytes`: see `smaller_batches`. `pace`: as the task's earlier producers learnt it. `tracked`: see `attribute`.

        Raises FatalError when the configuration is refused or has no broker address.
        """
        self.spec = ClientSpec(options, client_id, batch_bytes, tracked, transactional_id)
        self.reports = ClientReports()
        self._stop = StopRequest()
        self.pace = pace or Pace()
        self.report: Report | None = None
        self.broken = False
        self.has_unflushed = False
        """Whether something was sent since the last complete `flush`. No other batch may use the client then: it would send it later."""
        self.next_batch_bytes = batch_bytes
        self._start()

    @property
    def tracked(self) -> bool:
        """Returns whether it learns the partition and offset of each record, see `attribute`."""
        return self.spec.tracked

    @property
    def batch_bytes(self) -> int:
        """Returns the largest batch of its client, in bytes; 0: as the options say."""
        return self.spec.batch_bytes

    @property
    def topics(self) -> TopicMetadata:
        """Returns the partition counts of topics. Not available once it is closed."""
        return self._connection.topics

    def _start(self) -> None:
        spec = self.spec
        settings = producer_settings(spec.options, spec.client_id, spec.batch_bytes, tracked=spec.tracked)
        self._connect(settings, message_timeout_ms(spec.options))

    def _connect(
        self, settings: Mapping[str, Any], timeout_ms: int, partitions: dict[str, int] | None = None, missing: set[str] | None = None
    ) -> None:
        """Creates the client. `timeout_ms` is a record's; `partitions`, `missing`: see `TopicMetadata`. Raises as the constructor does."""
        try:
            callbacks = {"on_delivery": self.on_delivery, "error_cb": self._on_error, "stats_cb": self.on_statistics}
            client = Producer({**settings, **callbacks}, logger=SILENT)
        except KafkaException as exception:
            raise creation_error(exception.args[0]) from None
        topics = TopicMetadata(client, self.spec.options, self._is_stopping, lambda: self.reports.trouble.error, partitions, missing)
        flush_seconds, run_seconds = timeout_ms / 1000 + _SLACK_SECONDS, min(_RUN_SECONDS, timeout_ms / 6000)
        batch_bytes, transaction_ms = int(settings["batch.size"]), int(settings.get("transaction.timeout.ms", 0))
        self._connection = Connection(client, topics, flush_seconds, run_seconds, batch_bytes, transaction_ms)

    def reassign(self) -> None:
        """Called before another task uses it: its queue and retries so far belong to the previous one."""
        self._poll(0)
        self.reports.statistics.reassign()

    def begin(self, stopping: Callable[[], bool]) -> None:
        """Called when a new batch uses this producer; `stopping` returns whether the batch has to end."""
        self._stop = StopRequest(stopping)
        self.report = None
        self.pace.begun = None  # nothing is learnt from an abandoned run
        if self.reports.failures or self.reports.trouble.error is not None:
            self.reports.begin()

    def attribute(self, place: Place) -> None:
        """Calls `place` with topic, partition and offset of each record sent from now on, before `flush` returns, if Kafka tells them.

        No effect unless `tracked`, which costs 0.5 to 1.3 µs of CPU a record, as much as a line costs altogether.
        """

        def report(error: KafkaError | None, message: Receipt) -> None:
            if error is not None:
                self.on_delivery(error, message)
            elif message.offset() is not None:  # for a resent duplicate Kafka confirms only that it has it
                place(message.topic(), message.partition(), message.offset())  # type: ignore[arg-type]

        self.report = report if self.tracked else None

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        """Sends every value to `topic` with the same key, partition, timestamp and headers (`tail`, from key on; may be empty).

        Blocks while the queue is full; nothing is dropped. Raises `RefusedRecordError` for a value that the client refuses at once.
        """
        told = tail if self.report is None else reported((topic, b"", *tail), self.report)[2:]
        self._drive(values, lambda rest: map(self._connection.client.produce, repeat(topic), rest, *map(repeat, told)))

    def send_each(self, messages: Iterable[Message]) -> None:
        """Sends messages that differ in more than their value. Otherwise like `send`."""
        report = self.report
        going = list(messages) if report is None else [reported(message, report) for message in messages]
        self._drive(going, lambda rest: starmap(self._connection.client.produce, rest))

    def _drive(self, items: list[Any], produce: Callable[[Iterator[Any]], Iterator[None]]) -> None:
        """The hot loop: hands over all `items`, waiting for room. `produce` maps an iterator in C, without a Python call per item."""
        if self.pace.begun is None:
            self.pace.begun = time.monotonic()
        self.has_unflushed |= bool(items)
        rest = iter(items)
        while True:
            try:
                for _ in produce(rest):
                    pass
                break
            except BufferError:
                index = len(items) - operator.length_hint(rest) - 1
                self._wait_for_room(lambda one: next(produce(iter((one,)))), items[index], index)
            except KafkaException as exception:
                raise self._refusal(exception, len(items) - operator.length_hint(rest) - 1) from None
        self._poll(0)

    def _wait_for_room(self, send_one: Callable[[Any], None], item: object, sent: int) -> None:
        deadline = time.monotonic() + self._connection.flush_seconds
        while True:
            self._poll(_ROOM_SECONDS)
            self._check()
            if self._stop.is_over(deadline):
                raise self._gave_up("the queue to Kafka stays full")
            try:
                return send_one(item)
            except BufferError:
                continue
            except KafkaException as exception:
                raise self._refusal(exception, sent) from None

    @property
    def run_bytes(self) -> int:
        """Returns about how many bytes of input to send before the next `flush`: fewer on a slow line."""
        return self.pace.run_bytes

    def weigh(self, size_bytes: int) -> None:
        """Sets the size of the run that is flushed next, in bytes of input: `run_bytes` adapts to it."""
        self.pace.size_bytes = size_bytes

    def flush(self) -> None:
        """Returns once everything sent is acknowledged.

        Raises DataError when Kafka refused at least one record and may have accepted its neighbours; RetriableError, BlockedError
        or FatalError when the outcome is unknown or the cluster is unwell. After any of these nothing sent since the last return
        counts as settled; after the latter three the producer is `broken`, and a new one is needed.
        """
        deadline = time.monotonic() + self._connection.flush_seconds
        while self._flush_for(self._flush_step_seconds):
            self._check()
            if self._stop.is_over(deadline):
                raise self._gave_up("no acknowledgement from Kafka")
        self._check()
        self.has_unflushed = False
        if (refused := self._failure() if self.reports.failures else None) is not None:
            self.reports.failures.clear()
            raise translate(refused, "Kafka refused a record")
        if self.reports.trouble.error is not None:
            self.reports.trouble.over()
        if self.topics.has_asked_admin:
            self.topics.rest()
        self._learn()

    def _learn(self) -> None:
        """Updates the pace after an acknowledged run, if its size and duration tell anything."""
        pace, wanted_seconds = self.pace, self._connection.run_seconds
        begun, size_bytes, pace.begun, pace.size_bytes = pace.begun, pace.size_bytes, None, 0
        if begun is not None and size_bytes:
            seconds = time.monotonic() - begun
            if seconds > wanted_seconds or size_bytes >= pace.run_bytes / 2:
                pace.acknowledged(size_bytes, seconds, wanted_seconds)

    def smaller_batches(self) -> None:
        """Makes the batches of the task's next producer a quarter as large.

        Called when Kafka refused a batch but accepts each of its records alone: unlike Java's, the library does not split such a batch.
        """
        self.next_batch_bytes = max(self._least_batch_bytes, self._connection.batch_bytes // 4)

    def take_view(self) -> ClientView | None:
        """Returns the client's statistics since the last call; None without any. They come every few seconds."""
        return self.reports.statistics.take() if self.reports.statistics.has_news else None

    def may_send(self, _source: ReplacementGuard, _end: int) -> bool:
        """Returns whether what was read of a file up to `end` may be sent. Always: a replaced file's offset does not advance."""
        return True

    def partly_sent(self, reason: DataError) -> None:
        """Called when a record's first messages were accepted and the next one refused. Does nothing: messages are independent."""

    def poll_idle(self) -> None:
        """Serves the client's callbacks while no batch uses it: its events would pile up. From any thread; never blocks."""
        self._poll(0)

    def _poll(self, seconds: float, client: Producer | None = None) -> None:
        """Serves callbacks. Notes an error that the call raises as a failure: the library raises what ends the whole client there."""
        try:
            (client or self._connection.client).poll(seconds)
        except KafkaException as exception:
            self.on_delivery(exception.args[0], None)

    def _flush_for(self, seconds: float) -> int:
        """Returns how many messages are left after `seconds`."""
        try:
            return self._connection.client.flush(seconds)
        except KafkaException as exception:
            self.on_delivery(exception.args[0], None)
            return 0

    def _is_stopping(self) -> bool:
        return self._stop.asked()

    @property
    def _where(self) -> str:
        return f"sending to {','.join(self.spec.options.bootstrap_servers)}"

    def _failure(self) -> KafkaError | None:
        """Returns the most serious error reported since the last `flush`."""
        return self.reports.worst()

    def _check(self) -> None:
        """Raises the most serious error so far, unless it concerns a record alone."""
        if (worst := self._failure() if self.reports.failures else None) and not issubclass(classify(worst), DataError):
            self.broken = True
            self.pace.failed()
            raise self._translated(worst, self._where)

    def _translated(self, error: KafkaError, what: str) -> CopycatError:
        return with_trouble(translate(error, what), self.reports.trouble.error)

    def _gave_up(self, words: str) -> CopycatError:
        self.broken = True
        self.pace.failed()
        return with_trouble(RetriableError(f"{self._where}: {words}"), self.reports.trouble.error)

    def _refusal(self, exception: KafkaException, sent: int) -> Exception:
        """Translates what `produce` raised: `RefusedRecordError` for one record, or an error of the whole producer."""
        translated = translate(exception.args[0], "the record cannot be sent")
        if isinstance(translated, DataError):
            return RefusedRecordError(sent, translated)
        self.broken = True
        return with_trouble(translated, self.reports.trouble.error)

    def on_delivery(self, error: KafkaError | None, _record: Receipt | None) -> None:
        """Called with the error of a record, or of the whole client where no record is given."""
        if error is not None:
            self.reports.failures.setdefault(error.code(), error)

    def _on_error(self, error: KafkaError) -> None:
        invalidate_token(self.spec.options, error)
        self.reports.trouble.tell(error)

    def on_statistics(self, text: str) -> None:
        """Called with the client's statistics, as JSON."""
        self.reports.statistics.hear(text)

    def close(self) -> None:
        """Drops what is queued and frees the client, which cannot be used afterwards. Never blocks for the network."""
        self.broken = True
        self._connection.client.purge(in_queue=True, in_flight=True, blocking=False)
        self._poll(0)
        self._connection.close()
