"""The topic of positions: created, compacted, where it is missing, and refused where its cleanup policy would delete positions."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.producer.admin import ANSWER_SECONDS, Admin
from copycat_agent.producer.kafka_errors import translate

_LOOK_SECONDS = 0.05
PARTITIONS = 25
MOST_REPLICAS = 3
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 * 2**20),  # the active segment is not compacted: this bounds what a start without SQLite reads
}
_REFUSES_CONFIG = frozenset({KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG})
_LEADER_SECONDS = 10.0
"""How long a new topic may take until all its partitions have leaders."""


def topic_configs(replicas: int) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the settings of the offsets topic, and those to fall back on where brokers refuse one of them."""
    needed = {**_TOPIC_CONFIG, "min.insync.replicas": str(max(1, replicas - 1))}
    return {**needed, "unclean.leader.election.enable": "false"}, needed


def cluster(admin: Admin) -> Any:  # noqa: ANN401 - the library's
    """Returns the library's description of the cluster: its id and its nodes."""
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

    def ensure(self, topic: str, partitions: int = PARTITIONS) -> int:
        """Returns how many partitions the topic has. Creates it, compacted and with `partitions`, where it is missing.

        Raises BlockedError, with the command for it, when this user may not create it, or when it exists and is not compacted.
        """
        count = self._partitions(topic)
        if count == 0:
            self._create(topic, partitions)
            deadline = time.monotonic() + _LEADER_SECONDS
            while (count := self._partitions(topic)) == 0:
                if time.monotonic() > deadline or self._admin.stopping():
                    raise RetriableError(f"topic {topic} was created, and is not there yet")
                time.sleep(_LOOK_SECONDS)
        self._check_policy(topic)
        return count

    def _partitions(self, topic: str) -> int:
        """Returns the partition count, 0 where the topic is missing or not complete yet.

        Describes the topic, since with other requests a broker may create it with its defaults.
        """
        ask = TopicCollection([topic])
        try:
            found = self._admin.ask(lambda client: client.describe_topics(ask, request_timeout=ANSWER_SECONDS)[topic])
        except KafkaException as exception:
            if exception.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise topic_error(exception.args[0], f"topic {topic}", topic) from None
        return len(found.partitions) if all(one.leader is not None and one.leader.id >= 0 for one in found.partitions) else 0

    def _create(self, topic: str, partitions: int) -> None:
        replicas = min(MOST_REPLICAS, len(cluster(self._admin).nodes))
        config, fewer = topic_configs(replicas)
        error = self._refusal(NewTopic(topic, partitions, replicas, config=config))
        if error is not None and error.code() in _REFUSES_CONFIG:
            config = fewer
            error = self._refusal(NewTopic(topic, partitions, replicas, config=config))
        if error is None or error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        told = translate(error, f"creating topic {topic}")
        if not isinstance(told, BlockedError):
            raise told
        options = "".join(f" --config {name}={value}" for name, value in config.items())
        command = f"--create --topic {topic} --partitions {partitions} --replication-factor {replicas}{options}"
        hint = f"grant this user Create on it, or create it: kafka-topics.sh --bootstrap-server {self._admin.servers} {command}"
        raise BlockedError(told.message, hint)

    def _refusal(self, wanted: NewTopic) -> KafkaError | None:
        """Returns why the topic was not created; None when it was."""
        try:
            self._admin.ask(lambda client: client.create_topics([wanted], request_timeout=ANSWER_SECONDS)[wanted.topic])
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            return error
        return None

    def _check_policy(self, topic: str) -> None:
        """Raises BlockedError for a topic that is not compacted. Returns where this user may not see its settings."""
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
