"""Is the topic there? Asked once per producer and topic, before the first record, so that a missing topic is a quick, clear error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.options import KafkaOptions, TopicOptions
from copycat_agent.producer.outcomes import classify, translate, with_trouble
from copycat_agent.producer.settings import client_settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Producer

ANSWER_SECONDS = 10.0
"""How long a cluster may take to say whether a topic exists, connecting included."""
_MISSING_SECONDS = 1.5
"""A broker that creates topics by itself says "unknown" at first; missing for longer than this is missing."""
_CREATE_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_NO_ANSWER_YET = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE})  # noqa: SLF001 - its spelling


class Topics:
    """Knows the partition count of the topics that one producer has used."""

    def __init__(
        self,
        client: Producer,
        options: KafkaOptions,
        stopping: Callable[[], bool],
        last_trouble: Callable[[], KafkaError | None],
        known: dict[str, int] | None = None,
        missing: set[str] | None = None,
    ) -> None:
        """`last_trouble` gives the client's latest connection error, None when it had none, to explain a time-out.

        `known` are partition counts, and `missing` topics that were not there, which the producers of one task share.
        """
        self._client = client
        self._options = options
        self._stopping = stopping
        self._last_trouble = last_trouble
        self._partitions: dict[str, int] = {} if known is None else known
        self._missing: set[str] = set() if missing is None else missing
        self._kept_admin: AdminClient | None = None
        self._admin_trouble: KafkaError | None = None

    def partitions(self, topic: str) -> int:
        """Number of partitions of `topic`, which exists when this returns.

        Raises BlockedError for a topic that is missing and may not be created, or that this user may not write to;
        RetriableError when no broker answers.
        """
        known = self._partitions.get(topic)
        if known is None:
            known = self._partitions[topic] = self._ask(topic)
        return known

    def rest(self) -> None:
        """No topic is asked for now: what only new topics need is closed."""
        self._kept_admin = None

    def close(self) -> None:
        """Nothing is asked any more. An error that was raised here, and whoever keeps it, may keep this object, but not the client."""
        self.rest()
        del self._client

    def _ask(self, topic: str) -> int:
        created = self._options.create_topics is not None and self._create_if_missing(topic, self._options.create_topics)
        begin = time.monotonic()
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
        return with_trouble(translate(error, f"no broker answers at {servers}"), self._last_trouble() or self._admin_trouble)

    def _create_if_missing(self, topic: str, options: TopicOptions) -> bool:
        """Whether it was made. A producer's request for a topic lets the broker make it, by its own defaults, where it does that."""
        try:
            self._wait(self._admin().describe_topics(TopicCollection([topic]), request_timeout=ANSWER_SECONDS)[topic])
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._create(topic, options)
                return True
            if classify(error) is RetriableError:  # to ask in another way now might make it
                raise self._unreachable(error) from None
        return False  # it is there, or this user may not know: the producer's request tells

    def _create(self, topic: str, options: TopicOptions) -> None:
        wanted = NewTopic(topic, options.partitions, options.replication_factor, config=dict(options.config))
        try:
            self._wait(self._admin().create_topics([wanted], operation_timeout=ANSWER_SECONDS, request_timeout=ANSWER_SECONDS)[topic])
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() in _REFUSED:
                raise BlockedError(f"creating topic {topic}: {error.str()}", "create it, or grant this user Create on it") from None
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate(error, f"creating topic {topic}") from None

    def _admin(self) -> AdminClient:
        """A client for topics, kept until `rest`: a connection per topic would be slow where there are many."""
        if self._kept_admin is None:
            self._admin_trouble = None
            settings: dict[str, Any] = {**client_settings(self._options), "error_cb": self._on_admin_error}
            self._kept_admin = AdminClient(settings)
        return self._kept_admin

    def _wait(self, answer: Future[Any]) -> None:
        """Until the answer is there; stop requests are heard. Raises KafkaException, or what says why none will come."""
        deadline = time.monotonic() + _CREATE_SECONDS
        while not answer.done():
            self._admin().poll(_LOOK_SECONDS)
            trouble = self._admin_trouble
            is_refused = trouble is not None and classify(trouble) is BlockedError
            if self._stopping() or is_refused or time.monotonic() > deadline:
                self.rest()  # a new one asks anew: what was refused may be mended by then
                servers = ",".join(self._options.bootstrap_servers)
                raise with_trouble(RetriableError(f"no broker answers at {servers}"), trouble)
        answer.result()

    def _on_admin_error(self, error: KafkaError) -> None:
        if self._admin_trouble is None or classify(error) is BlockedError:
            self._admin_trouble = error
