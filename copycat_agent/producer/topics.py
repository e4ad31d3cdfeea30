"""Is the topic there? Asked once per producer and topic, before the first record, so that a missing topic is a quick, clear error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.options import KafkaOptions, TopicOptions
from copycat_agent.producer.outcomes import classify, translate, with_trouble
from copycat_agent.producer.settings import client_settings

if TYPE_CHECKING:
    from confluent_kafka import Producer

ANSWER_SECONDS = 10.0
"""How long a cluster may take to say whether a topic exists, connecting included."""
_MISSING_SECONDS = 1.5
"""A broker that creates topics by itself says "unknown" at first; missing for longer than this is missing."""
_CREATE_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_NO_ANSWER_YET = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE})  # noqa: SLF001 - its spelling


class Topics:
    """Knows the partition count of the topics that one producer has used."""

    def __init__(
        self, client: Producer, options: KafkaOptions, stopping: Callable[[], bool], last_trouble: Callable[[], KafkaError | None]
    ) -> None:
        """`last_trouble` gives the client's latest connection error, None when it had none, to explain a time-out."""
        self._client = client
        self._options = options
        self._stopping = stopping
        self._last_trouble = last_trouble
        self._partitions: dict[str, int] = {}
        self._missing: set[str] = set()

    def partitions(self, topic: str) -> int:
        """Number of partitions of `topic`, which exists when this returns.

        Raises BlockedError for a topic that is missing and may not be created, or that this user may not write to;
        RetriableError when no broker answers.
        """
        known = self._partitions.get(topic)
        if known is None:
            known = self._partitions[topic] = self._ask(topic)
        return known

    def _ask(self, topic: str) -> int:
        begin = time.monotonic()
        created = False
        while True:
            count, error = self._metadata(topic, begin)
            if error is None:
                return count
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and self._options.create_topics is not None and not created:
                self._create(topic, self._options.create_topics)
                created, begin = True, time.monotonic()
            elif error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE):
                raise translate(error, f"topic {topic}")
            elif self._stopping() or time.monotonic() - begin > self._patience(topic, created=created):
                if error.code() == KafkaError.LEADER_NOT_AVAILABLE:
                    raise translate(error, f"topic {topic}")
                self._missing.add(topic)
                raise BlockedError(f"topic {topic} does not exist", "create it, or set kafka.create_topics")
            else:
                self._client.poll(0.1)

    def _patience(self, topic: str, *, created: bool) -> float:
        """Seconds until a topic that is not there counts as missing. One that was missing before has had its time."""
        if created:
            return ANSWER_SECONDS
        return 0.0 if topic in self._missing else _MISSING_SECONDS

    def _metadata(self, topic: str, begin: float) -> tuple[int, KafkaError | None]:
        """One answer from the cluster. Waits in steps, so that a stop request is heard; each is longer, for slow connections."""
        step = 1.0
        while True:
            try:
                found = self._client.list_topics(topic, timeout=step).topics[topic]
            except KafkaException as exception:
                self._client.poll(0)
                if not self._stopping() and time.monotonic() - begin < ANSWER_SECONDS and self._is_patient(exception.args[0]):
                    step = min(2 * step, 4.0)
                    continue
                raise self._unreachable(exception.args[0]) from None
            return len(found.partitions), found.error

    def _is_patient(self, error: KafkaError) -> bool:
        """Whether an answer may still come: not from a broker that has refused this client."""
        trouble = self._last_trouble()
        return error.code() in _NO_ANSWER_YET and (trouble is None or classify(trouble) is not BlockedError)

    def _unreachable(self, error: KafkaError) -> CopycatError:
        servers = ",".join(self._options.bootstrap_servers)
        return with_trouble(translate(error, f"no broker answers at {servers}"), self._last_trouble())

    def _create(self, topic: str, options: TopicOptions) -> None:
        admin = AdminClient(client_settings(self._options))
        wanted = NewTopic(topic, options.partitions, options.replication_factor, config=dict(options.config))
        try:
            answer = admin.create_topics([wanted], operation_timeout=ANSWER_SECONDS, request_timeout=ANSWER_SECONDS)[topic]
            deadline = time.monotonic() + _CREATE_SECONDS
            while not answer.done():
                if self._stopping() or time.monotonic() > deadline:
                    raise RetriableError(f"creating topic {topic}: no answer")
                time.sleep(_LOOK_SECONDS)
            answer.result()
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate(exception.args[0], f"creating topic {topic}") from None
