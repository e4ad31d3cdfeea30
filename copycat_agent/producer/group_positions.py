"""Commits offsets to a consumer group without members, so that people and lag tools see them.

A consumer commits them: with librdkafka 2.16.1 the admin client's request aborts the process (rdkafka_queue.h: `eonce->refcnt > 0`)
if its broker goes away during the request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from copycat_agent.errors import CopycatError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.kafka_errors import creation_error, translate
from copycat_agent.producer.settings import SILENT, client_settings, invalidate_token

_POLL_SECONDS = 0.1
_CLOSE_SECONDS = 1.0


class GroupPositions:
    """Commits offsets of one group. The first commit creates its client. Thread-safe: `close` ends a commit on another thread early."""

    def __init__(self, options: KafkaOptions, group: str) -> None:
        self._options, self._group = options, group
        self._using = threading.Lock()  # a client is not closed while another thread polls it
        self._leaving = threading.Event()
        self._consumer: Consumer | None = None
        self._answers: list[KafkaError | None] = []

    def commit(self, positions: Mapping[tuple[str, int], int], seconds: float) -> None:
        """Commits offsets by topic and partition. Raises RetriableError without an answer in time, BlockedError if it is refused.

        Offsets without an answer in time may still be committed.
        """
        with self._using:
            self._commit(positions, time.monotonic() + seconds)

    def _commit(self, positions: Mapping[tuple[str, int], int], deadline: float) -> None:
        consumer = self._consumer = self._consumer or self._made()
        self._answers.clear()
        try:
            consumer.commit(offsets=[TopicPartition(*place, offset) for place, offset in positions.items()], asynchronous=True)
            while not (self._answers or self._leaving.is_set()) and time.monotonic() < deadline:
                message = consumer.poll(_POLL_SECONDS)
                error = None if message is None else message.error()
                if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise self._translated(error)
        except KafkaException as exception:
            raise self._translated(exception.args[0]) from None
        if not self._answers:
            raise RetriableError(f"saving positions of group {self._group}: no broker answers")
        if (refused := self._answers[0]) is not None:
            raise self._translated(refused)

    def _made(self) -> Consumer:
        settings = {
            **client_settings(self._options), "group.id": self._group, "enable.auto.commit": False, "enable.auto.offset.store": False,
            "on_commit": self._answered, "error_cb": lambda error: invalidate_token(self._options, error),
        }  # fmt: skip
        try:
            return Consumer(settings, logger=SILENT)
        except KafkaException as exception:
            raise creation_error(exception.args[0]) from None

    def _answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._answers.append(error or next((one.error for one in places if one.error), None))

    def _translated(self, error: KafkaError) -> CopycatError:
        return translate(error, f"saving positions of group {self._group}")

    def close(self) -> None:
        """Closes the client. This may take long while no broker answers, since the client still sends its last commit."""
        self._leaving.set()
        with self._using:
            consumer, self._consumer = self._consumer, None
            self._leaving.clear()
        if consumer is not None:
            closing = threading.Thread(target=consumer.close, name="group", daemon=True)
            closing.start()
            closing.join(_CLOSE_SECONDS)
