"""Dead letters of a batch that is written into files: they go to Kafka, through a producer that is taken for the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.errors import DataError, RetriableError
from copycat_agent.producer import Message, ProducerPool, RefusedRecordError, TaskProducer

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.encoding.encoder import Encoder
    from copycat_agent.model import Batch, ClientView


class DirectoryTopics:
    """Answers what a batch asks about topics: each directory has one partition."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters

    def partitions(self, topic: str) -> int:
        """Returns the number of partitions. Raises BlockedError if the dead-letter topic is missing."""
        return self._letters.partitions() if topic == self._letters.topic else 1


class DeadLetters:
    """Sends the dead letters of one batch. `topic` is "" without a dead-letter topic, which no directory equals: each ends with a slash."""

    def __init__(self, batch: Batch, encoder: Encoder, producers: ProducerPool, stopping: Callable[[], bool]) -> None:
        self._batch, self._kafka, self._producers, self._stopping = batch, encoder.kafka, producers, stopping
        dlq = encoder.definition.errors.dlq
        self.topic = "" if dlq is None else dlq.topic
        self.wait = False
        """Whether `send` waits for acknowledgements. That takes longer, but shows which letter Kafka refuses."""
        self._producer: TaskProducer | None = None

    def _made(self) -> TaskProducer:
        if self._producer is None:
            self._producer = self._producers.take(self._batch.task, self._kafka)
            self._producer.begin(self._stopping)
        return self._producer

    @property
    def broken(self) -> bool:
        """See `TaskProducer.broken`."""
        return self._producer is not None and self._producer.broken

    def partitions(self) -> int:
        """Returns the topic's number of partitions. Raises BlockedError if it is missing."""
        return self._made().topics.partitions(self.topic)

    def send(self, messages: list[Message]) -> None:
        """Sends dead letters. Raises as `TaskProducer.send_each`; if `wait`, also for one that Kafka refuses.

        After a refusal it sends them again, one by one, to tell which it was.
        """
        producer = self._made()
        if not self.wait:
            producer.send_each(messages)
            return
        try:
            try:
                producer.send_each(messages)
            finally:
                producer.flush()
        except DataError as refused:
            if len(messages) == 1:
                raise RefusedRecordError(0, refused) from None
            for index, one in enumerate(messages):
                try:
                    self.send([one])
                except RefusedRecordError as alone:
                    raise RefusedRecordError(index, alone.reason) from None

    def flush(self) -> None:
        """Waits until the dead letters are acknowledged. Raises RetriableError, and sets `wait`, if Kafka refused one."""
        if self._producer is None:
            return
        try:
            self._producer.flush()
        except DataError as error:
            self.wait = True
            raise RetriableError(error.message, error.hint) from None

    def close(self) -> ClientView | None:
        """Gives the producer back. Returns its statistics, None if it was not used or has none."""
        producer, self._producer = self._producer, None
        if producer is None:
            return None
        view = producer.take_view()
        self._producers.give_back(self._batch.task, self._kafka, producer)
        return view
