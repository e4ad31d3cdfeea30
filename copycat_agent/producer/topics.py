"""Topics: are those of records there, which is asked once per producer and topic, and the making of the one of positions.

The question comes before the first record, so that a missing topic is a quick, clear error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.options import KafkaOptions, TopicOptions
from copycat_agent.producer.asking import ANSWER_SECONDS, Admin, Question
from copycat_agent.producer.kafka_errors import classify, translate, with_trouble

if TYPE_CHECKING:
    from confluent_kafka import Producer

_MISSING_SECONDS = 1.5
"""A broker that creates topics by itself says "unknown" at first; missing for longer than this is missing."""
_CREATE_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_NO_ANSWER_YET = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE})  # noqa: SLF001 - its spelling
PARTITIONS = 25
MOST_REPLICAS = 3
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 * 2**20),  # what is written last is not compacted: it bounds what a start without SQLite reads
}
_REFUSES_CONFIG = frozenset({KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG})
_LEADER_SECONDS = 10.0
"""How long a new topic may take until all its partitions have leaders."""


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
        self._has_asked_admin = False
        self._partitions: dict[str, int] = {} if known is None else known
        self._missing: set[str] = set() if missing is None else missing
        self.admin = Admin(options, stopping=stopping)
        """For topics that are made, kept until `rest`: a connection per topic would be slow where there are many."""

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
        if self._has_asked_admin:
            self._has_asked_admin = False
            self.admin.close()

    def close(self) -> None:
        """Nothing is asked any more. An error that was raised here, and whoever keeps it, may keep this object, but not the client."""
        self.rest()
        del self._client

    def _ask(self, topic: str) -> int:
        created = self._options.create_topics is not None and self._create_if_missing(topic, self._options.create_topics)
        begin = time.monotonic()
        while True:
            count, error = self.metadata(topic, begin)
            if error is None:
                return count
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and self._options.create_topics is not None and not created:
                self._create(topic, self._options.create_topics)
                created, begin = True, time.monotonic()
            elif error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE):
                raise translate(error, f"topic {topic}")
            elif self._stopping() or time.monotonic() - begin > self.patience(topic, created=created):
                if error.code() == KafkaError.LEADER_NOT_AVAILABLE:
                    raise translate(error, f"topic {topic}")
                self._missing.add(topic)
                raise BlockedError(f"topic {topic} does not exist", "create it, or set kafka.create_topics")
            else:
                self._client.poll(0.1)

    def patience(self, topic: str, *, created: bool) -> float:
        """Seconds until a topic that is not there counts as missing. One that was missing before has had its time."""
        if created:
            return ANSWER_SECONDS
        return 0.0 if topic in self._missing else _MISSING_SECONDS

    def metadata(self, topic: str, begin: float) -> tuple[int, KafkaError | None]:
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
        return with_trouble(translate(error, f"no broker answers at {servers}"), self._last_trouble() or self.admin.trouble)

    def _create_if_missing(self, topic: str, options: TopicOptions) -> bool:
        """Whether it was made. A producer's request for a topic lets the broker make it, by its own defaults, where it does that."""
        try:
            self._ask_admin(lambda client: client.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_SECONDS)[topic])
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
        within = {"operation_timeout": ANSWER_SECONDS, "request_timeout": ANSWER_SECONDS}
        try:
            self._ask_admin(lambda client: client.create_topics([wanted], **within)[topic])
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() in _REFUSED:
                raise BlockedError(f"creating topic {topic}: {error.str()}", "create it, or grant this user Create on it") from None
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate(error, f"creating topic {topic}") from None

    def _ask_admin(self, question: Question) -> None:
        self._has_asked_admin = True
        self.admin.ask(question, _CREATE_SECONDS)


def topic_configs(replicas: int) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the settings of the offsets topic, and those to fall back on where the brokers do not take one of them."""
    needed = {**_TOPIC_CONFIG, "min.insync.replicas": str(max(1, replicas - 1))}
    return {**needed, "unclean.leader.election.enable": "false"}, needed


def cluster(admin: Admin) -> Any:  # noqa: ANN401 - the library's
    """The library's description of the cluster: its id and its nodes."""
    try:
        return admin.ask(lambda client: client.describe_cluster(request_timeout=ANSWER_SECONDS))
    except KafkaException as exception:
        raise translate(exception.args[0], "asking for the cluster") from None


def topic_error(error: KafkaError, what: str, topic: str) -> CopycatError:
    """Translates an error of the offsets topic."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return BlockedError(f"{what}: {error.str()}", f"grant this user Read, Write and Describe on the topic {topic}")
    return translate(error, what)


class OffsetsTopic:
    """Makes the topic of positions. From one thread at a time."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def ensure(self, topic: str) -> int:
        """Returns how many partitions the offsets topic has. Makes it, compacted, where it is missing.

        BlockedError, with the command for it, when this user may not, or when it is there and does not keep the latest of each key.
        """
        count = self._partitions(topic)
        if count == 0:
            self._create(topic)
            deadline = time.monotonic() + _LEADER_SECONDS
            while (count := self._partitions(topic)) == 0:
                if time.monotonic() > deadline or self._admin.stopping():
                    raise RetriableError(f"topic {topic} was created, and is not there yet")
                time.sleep(_LOOK_SECONDS)
        self._check_policy(topic)
        return count

    def _partitions(self, topic: str) -> int:
        """0 where it is missing or is not complete yet. A description, since other questions would let a broker make it in its way."""
        ask = TopicCollection([topic])
        try:
            found = self._admin.ask(lambda client: client.describe_topics(ask, request_timeout=ANSWER_SECONDS)[topic])
        except KafkaException as exception:
            if exception.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise topic_error(exception.args[0], f"topic {topic}", topic) from None
        return len(found.partitions) if all(one.leader is not None and one.leader.id >= 0 for one in found.partitions) else 0

    def _create(self, topic: str) -> None:
        replicas = min(MOST_REPLICAS, len(cluster(self._admin).nodes))
        config, fewer = topic_configs(replicas)
        error = self._refusal(NewTopic(topic, PARTITIONS, replicas, config=config))
        if error is not None and error.code() in _REFUSES_CONFIG:
            config = fewer
            error = self._refusal(NewTopic(topic, PARTITIONS, replicas, config=config))
        if error is None or error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        told = translate(error, f"creating topic {topic}")
        if not isinstance(told, BlockedError):
            raise told
        options = "".join(f" --config {name}={value}" for name, value in config.items())
        command = f"--create --topic {topic} --partitions {PARTITIONS} --replication-factor {replicas}{options}"
        hint = f"grant this user Create on it, or create it: kafka-topics.sh --bootstrap-server {self._admin.servers} {command}"
        raise BlockedError(told.message, hint)

    def _refusal(self, wanted: NewTopic) -> KafkaError | None:
        """Why the topic was not made; None when it was."""
        try:
            self._admin.ask(lambda client: client.create_topics([wanted], request_timeout=ANSWER_SECONDS)[wanted.topic])
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            return error
        return None

    def _check_policy(self, topic: str) -> None:
        """Raises BlockedError for a topic that lets positions go. Users who may not see its settings are believed."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            found = self._admin.ask(lambda client: client.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource])
        except KafkaException:
            return
        policy = found["cleanup.policy"].value if "cleanup.policy" in found else "compact"
        if policy != "compact":
            command = f"--alter --entity-type topics --entity-name {topic} --add-config cleanup.policy=compact"
            text = f"topic {topic} has cleanup.policy={policy}: positions would be deleted after some time"
            raise BlockedError(text, f"kafka-configs.sh --bootstrap-server {self._admin.servers} {command}")
