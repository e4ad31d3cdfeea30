"""One task's producer: send, wait for receipts, say what was refused.

The library calls back for failures only, since a call into Python for each record costs too much. So after a flush that leaves nothing in
the queue and reported no failure, everything sent since the previous flush is acknowledged. A producer that is `tracked` pays for a call
per record, and hears where each came to lie.
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
from copycat_agent.producer.kafka_errors import Refused, classify, not_made, translate, with_trouble
from copycat_agent.producer.learnt import Pace, StopRequest, Topics
from copycat_agent.producer.settings import SILENT, distrust_token, message_timeout_ms, producer_settings

_ROOM_SECONDS = 0.05
"""How long one wait for room in a full queue lasts before the stop request is looked at again."""
_SLACK_SECONDS = 15.0
"""Beyond the message time-out, how long a flush may take before the producer is given up."""
_RUN_SECONDS = 5.0
"""How long a run should take at most, well below the message time-out."""


class Intact(Protocol):
    """An open file that knows whether it was replaced while it was read."""

    @property
    def is_whole(self) -> bool:
        """Whether it was still the same whenever something was read of it."""

    def was_still(self, position: int) -> bool:
        """Whether it was still the same when it was read up to `position`."""


class TaskProducer:
    """An idempotent producer that one task uses, from one thread at a time."""

    _least_batch_bytes = 4096
    """A topic that takes less than this at once gets its records through, but each batch has to be sent again to find out."""
    _flush_step_seconds = 0.2
    """How long one wait for receipts lasts before failures are looked at."""

    def __init__(
        self, options: KafkaOptions, client_id: str, batch_bytes: int = 0, pace: Pace | None = None, *,
        tracked: bool = False, transactional_id: str = "",
    ) -> None:  # fmt: skip
        """`batch_bytes`: see `smaller_batches`. `pace`: what the task's earlier producers learnt. `tracked`: see `attribute`.

        Raises FatalError when the configuration is refused or has no broker address.
        """
        self.spec = ClientSpec(options, client_id, batch_bytes, tracked, transactional_id)
        self.reports = ClientReports()
        self._stop = StopRequest()
        self.pace = pace or Pace()
        self.report: Report | None = None
        self.broken = False
        self.has_unflushed = False
        """Whether something was sent since `flush` last heard of everything: nobody else may use the client, which would send it later."""
        self.next_batch_bytes = batch_bytes
        self._start()

    @property
    def tracked(self) -> bool:
        """Whether it hears where each record came to lie, see `attribute`."""
        return self.spec.tracked

    @property
    def batch_bytes(self) -> int:
        """The most bytes of a batch of its client; 0: as the options say."""
        return self.spec.batch_bytes

    @property
    def topics(self) -> Topics:
        """What is known of the cluster's topics. Gone once it is closed."""
        return self._connection.topics

    def _start(self) -> None:
        spec = self.spec
        settings = producer_settings(spec.options, spec.client_id, spec.batch_bytes, tracked=spec.tracked)
        self._connect(settings, message_timeout_ms(spec.options))

    def _connect(
        self, settings: Mapping[str, Any], timeout_ms: int, partitions: dict[str, int] | None = None, missing: set[str] | None = None
    ) -> None:
        """`timeout_ms` is that of a record, `partitions` and `missing` are what is known of topics. Raises as the constructor does."""
        try:
            callbacks = {"on_delivery": self.on_delivery, "error_cb": self._on_error, "stats_cb": self.on_statistics}
            client = Producer({**settings, **callbacks}, logger=SILENT)
        except KafkaException as exception:
            raise not_made(exception.args[0]) from None
        topics = Topics(client, self.spec.options, self._is_stopping, lambda: self.reports.trouble.error, partitions, missing)
        flush_seconds, run_seconds = timeout_ms / 1000 + _SLACK_SECONDS, min(_RUN_SECONDS, timeout_ms / 6000)
        batch_bytes, transaction_ms = int(settings["batch.size"]), int(settings.get("transaction.timeout.ms", 0))
        self._connection = Connection(client, topics, flush_seconds, run_seconds, batch_bytes, transaction_ms)

    def hand_over(self) -> None:
        """Another task uses it from now on."""
        self._poll(0)
        self.reports.statistics.hand_over()

    def begin(self, stopping: Callable[[], bool]) -> None:
        """A new batch uses this producer: `stopping` says when it has to come to an end."""
        self._stop = StopRequest(stopping)
        self.report = None
        self.pace.begun = None  # of a run that was given up nothing is learnt
        if self.reports.failures or self.reports.trouble.error is not None:
            self.reports.begin()

    def attribute(self, place: Place) -> None:
        """`place` is told where each record that is sent from now on came to lie, before `flush` returns, as far as Kafka says.

        No effect unless `tracked`, which costs 0.5 to 1.3 µs of CPU a record, as much as a line costs altogether.
        """

        def report(error: KafkaError | None, message: Receipt) -> None:
            if error is not None:
                self.on_delivery(error, message)
            elif message.offset() is not None:  # of one that it had sent before, Kafka says only that it is there
                place(message.topic(), message.partition(), message.offset())  # type: ignore[arg-type]

        self.report = report if self.tracked else None

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        """Send every value to `topic` with the same key, partition, timestamp and headers (`tail`, from key on; may be empty).

        Blocks while the queue is full; nothing is dropped. Raises `Refused` for a value the client refuses on the spot.
        """
        told = tail if self.report is None else reported((topic, b"", *tail), self.report)[2:]
        self._drive(values, lambda rest: map(self._connection.client.produce, repeat(topic), rest, *map(repeat, told)))

    def send_each(self, messages: Iterable[Message]) -> None:
        """Send messages that differ in more than their value. Otherwise like `send`."""
        report = self.report
        going = list(messages) if report is None else [reported(message, report) for message in messages]
        self._drive(going, lambda rest: starmap(self._connection.client.produce, rest))

    def _drive(self, items: list[Any], produce: Callable[[Iterator[Any]], Iterator[None]]) -> None:
        """The hot loop: hand over until done, pausing for room. `produce` hands over what it is asked for, without a Python call each."""
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
        """The number of bytes of input to send, about, before the next `flush`: fewer on a line that is slow."""
        return self.pace.run_bytes

    def weigh(self, size_bytes: int) -> None:
        """Notes from how many bytes of input what is flushed next came: `run_bytes` learns from it."""
        self.pace.size_bytes = size_bytes

    def flush(self) -> None:
        """Wait until everything sent is acknowledged: when this returns, it is.

        Raises DataError when Kafka refused at least one record and may have taken its neighbours; RetriableError, BlockedError
        or FatalError when nothing is known or the cluster is unwell. After any of these nothing sent since the last return may
        be counted as settled, and after the latter three `broken` asks for a new producer.
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
        """A run is acknowledged: has the pace learn from it, where it tells something."""
        pace, wanted_seconds = self.pace, self._connection.run_seconds
        begun, size_bytes, pace.begun, pace.size_bytes = pace.begun, pace.size_bytes, None, 0
        if begun is not None and size_bytes:
            seconds = time.monotonic() - begun
            if seconds > wanted_seconds or size_bytes >= pace.run_bytes / 2:
                pace.acknowledged(size_bytes, seconds, wanted_seconds)

    def smaller_batches(self) -> None:
        """Kafka refused a batch of which it takes every record by itself: the topic takes less at once.

        The library does not cut such a batch in two, as Java's does. The task's next producer makes batches a quarter as large.
        """
        self.next_batch_bytes = max(self._least_batch_bytes, self._connection.batch_bytes // 4)

    def take_view(self) -> ClientView | None:
        """Returns what the client said about itself since the last call, None when that was nothing. It speaks every few seconds."""
        return self.reports.statistics.take() if self.reports.statistics.has_news else None

    def may_send(self, _source: Intact, _end: int) -> bool:
        """Whether what was read of a file before position `end` may be sent. Of another file it is: its offset stays."""
        return True

    def partly_sent(self, reason: DataError) -> None:
        """The first messages of a record were taken and the next one was refused: each stands for itself."""

    def attend(self) -> None:
        """Take in what the client has to say while no batch uses it: its events would pile up. From any thread; never blocks."""
        self._poll(0)

    def _poll(self, seconds: float, client: Producer | None = None) -> None:
        """Serve callbacks. What ends the whole client is raised by the library wherever it is polled first: it is noted as a failure."""
        try:
            (client or self._connection.client).poll(seconds)
        except KafkaException as exception:
            self.on_delivery(exception.args[0], None)

    def _flush_for(self, seconds: float) -> int:
        """Returns how many messages are left."""
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
        """Returns the error reported since the last `flush` that matters most."""
        return self.reports.worst()

    def _check(self) -> None:
        """Raise what was reported so far and is not a record's own fault."""
        if (worst := self._failure() if self.reports.failures else None) and not issubclass(classify(worst), DataError):
            self.broken = True
            self.pace.failed()
            raise self._told(worst, self._where)

    def _told(self, error: KafkaError, what: str) -> CopycatError:
        return with_trouble(translate(error, what), self.reports.trouble.error)

    def _gave_up(self, words: str) -> CopycatError:
        self.broken = True
        self.pace.failed()
        return with_trouble(RetriableError(f"{self._where}: {words}"), self.reports.trouble.error)

    def _refusal(self, exception: KafkaException, sent: int) -> Exception:
        """Translates what `produce` raised: the refusal of one record, or the trouble of the whole producer."""
        translated = translate(exception.args[0], "the record cannot be sent")
        if isinstance(translated, DataError):
            return Refused(sent, translated)
        self.broken = True
        return with_trouble(translated, self.reports.trouble.error)

    def on_delivery(self, error: KafkaError | None, _record: Receipt | None) -> None:
        """A record, or the whole client where it names none, had this error."""
        if error is not None:
            self.reports.failures.setdefault(error.code(), error)

    def _on_error(self, error: KafkaError) -> None:
        distrust_token(self.spec.options, error)
        self.reports.trouble.tell(error)

    def on_statistics(self, text: str) -> None:
        """The client has said this about itself."""
        self.reports.statistics.hear(text)

    def close(self) -> None:
        """Give up what is queued and free the client, which cannot be used any more. Never blocks for the network."""
        self.broken = True
        self._connection.client.purge(in_queue=True, in_flight=True, blocking=False)
        self._poll(0)
        self._connection.close()
