"""The offsets topic: made where it is missing, and read up to an end that was asked for before, with nothing left open below it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.model import Place
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.asking import ANSWER_SECONDS, Admin
from copycat_agent.producer.outcomes import not_made, translate, with_trouble
from copycat_agent.producer.settings import client_settings, distrust_token
from copycat_agent.transactions.protocol import Entry

PARTITIONS = 25
MOST_REPLICAS = 3
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 * 2**20),  # what is written last is not compacted: it bounds what a start without SQLite reads
}
_REFUSES_CONFIG = frozenset({KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG})

_STALL_SECONDS = 15.0
"""So long without a record is no longer patience."""
_ANSWER_MS = 10_000
"""So long a lost answer is waited for before it is asked for again: less than `_STALL_SECONDS`."""
_LEADER_SECONDS = 10.0
"""How long a new topic may take until all its partitions have leaders."""
_LOOK_SECONDS = 0.05
_MOST_UNASKED = 3
_MOST_ENTRIES = 50_000
"""Held before entries that a later one replaces are let go."""


def topic_configs(replicas: int) -> tuple[dict[str, str], dict[str, str]]:
    """What the offsets topic is made with; and with what where the brokers have a rule against that, or do not know one of the settings."""
    needed = {**_TOPIC_CONFIG, "min.insync.replicas": str(max(1, replicas - 1))}
    return {**needed, "unclean.leader.election.enable": "false"}, needed


class Positions:
    """What is read of the offsets topic, and its making. `options` say where. One user at a time."""

    def __init__(self, options: KafkaOptions, client_id: str, stopping: Callable[[], bool]) -> None:
        self.options = options
        self.client_id = client_id
        self._stopping = stopping
        self._admin = Admin(options, client_id, stopping)
        self._consumer: Consumer | None = None
        self._trouble: KafkaError | None = None
        self._unasked = 0

    def cluster_id(self) -> str:
        """Which cluster this is."""
        try:
            return str(self._cluster().cluster_id)
        except KafkaException as exception:
            raise translate(exception.args[0], "asking for the cluster") from None

    def end(self, place: Place) -> int:
        """The end of the place, open transactions included."""
        wanted = TopicPartition(place.topic, place.partition)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        try:
            found = self._admin.ask(
                lambda client: client.list_offsets(
                    {wanted: latest}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ANSWER_SECONDS
                )[wanted]
            )
        except KafkaException as exception:
            self._admin.close()  # it would go on with what it knows of the leader for minutes: after a restart, that is refused each time
            raise _told(exception.args[0], f"asking for the end of partition {place.partition} of {place.topic}", place.topic) from None
        return int(found.offset)

    def replay(self, place: Place, since: int, end: int) -> list[Entry]:
        """See `Steps`. RetriableError when a transaction below `end` stays open; then nothing is known."""
        self._unasked = 0
        if since >= end:
            return []
        consumer = self._reader()
        try:
            consumer.assign([TopicPartition(place.topic, place.partition, since)])
            entries = self._read(consumer, place, since, end)
        except KafkaException as exception:
            self._drop_reader()
            raise _told(exception.args[0], f"reading topic {place.topic}", place.topic) from None
        except CopycatError:
            self._drop_reader()  # a new one has new connections: an answer that is lost on an old one is waited for longer than here
            raise
        consumer.unassign()
        return entries

    def _read(self, consumer: Consumer, place: Place, since: int, end: int) -> list[Entry]:
        entries: list[Entry] = []
        most, following, is_held, deadline = _MOST_ENTRIES, since, False, time.monotonic() + _STALL_SECONDS
        while following < end:
            if self._stopping():
                raise RetriableError(f"reading partition {place.partition} of {place.topic}: stopped before all of it was read")
            if time.monotonic() > deadline:
                raise self._stalled(place, following, end, is_held=is_held)
            message = consumer.poll(_LOOK_SECONDS)
            if message is None:
                continue
            following = max(following, _offset_after(message))
            error = message.error()
            is_held = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - its spelling
            if error is None and following <= end:
                entries.append(_entry(message))
                deadline = time.monotonic() + _STALL_SECONDS
            if len(entries) > most:
                entries = _latest(entries)
                most = max(_MOST_ENTRIES, 2 * len(entries))
        return entries

    def _stalled(self, place: Place, following: int, end: int, *, is_held: bool) -> CopycatError:
        """`is_held`: Kafka says that nothing more is committed there."""
        words = f"partition {place.partition} of {place.topic} ends at {end} and cannot be read beyond offset {following}"
        if not is_held:
            return with_trouble(RetriableError(f"{words}: no answer from {self._servers}"), self._trouble)
        return RetriableError(
            f"{words}: a transaction of another producer is open there",
            "it ends by itself at that producer's transaction.timeout.ms; kafka-transactions.sh describe-producers says whose it is",
        )

    def ensure_topic(self, topic: str) -> int:
        """How many partitions the offsets topic has. It is made, compacted, where it is missing.

        BlockedError, with the command for it, when this user may not, or when it is there and does not keep the latest of each key.
        """
        count = self._partitions(topic)
        if count == 0:
            self._create(topic)
            deadline = time.monotonic() + _LEADER_SECONDS
            while (count := self._partitions(topic)) == 0:
                if time.monotonic() > deadline or self._stopping():
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
            raise _told(exception.args[0], f"topic {topic}", topic) from None
        return len(found.partitions) if all(one.leader is not None and one.leader.id >= 0 for one in found.partitions) else 0

    def _create(self, topic: str) -> None:
        replicas = min(MOST_REPLICAS, len(self._nodes()))
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
        hint = f"grant this user Create on it, or create it: kafka-topics.sh --bootstrap-server {self._servers} {command}"
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
            raise BlockedError(text, f"kafka-configs.sh --bootstrap-server {self._servers} {command}")

    def _nodes(self) -> list[Any]:
        try:
            return list(self._cluster().nodes)
        except KafkaException as exception:
            raise translate(exception.args[0], "asking for the cluster") from None

    def _cluster(self) -> Any:  # noqa: ANN401 - the library's
        return self._admin.ask(lambda client: client.describe_cluster(request_timeout=ANSWER_SECONDS))

    @property
    def _servers(self) -> str:
        return ",".join(self.options.bootstrap_servers)

    def _reader(self) -> Consumer:
        self._trouble = None
        if self._consumer is None:
            settings: dict[str, Any] = {
                **client_settings(self.options), "client.id": self.client_id, "group.id": "copycat-positions", "enable.auto.commit": False,
                "auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.partition.eof": True,
                "fetch.wait.max.ms": 5, "error_cb": self._on_error,
                "socket.timeout.ms": _ANSWER_MS,
            }  # fmt: skip
            try:
                self._consumer = Consumer(settings)
            except KafkaException as exception:
                raise not_made(exception.args[0]) from None
        return self._consumer

    def _on_error(self, error: KafkaError) -> None:
        distrust_token(self.options, error)
        if self._trouble is None or error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - which only follows from what is known
            self._trouble = error

    def rest(self) -> None:
        """Something was done without a question: what is only needed for questions is freed when that happens again and again."""
        self._unasked += 1
        if self._unasked > _MOST_UNASKED:
            self.free()

    def free(self) -> None:
        """Free the clients; the next question makes new ones."""
        self._drop_reader()
        self._admin.close()

    def _drop_reader(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def _offset_after(message: Message) -> int:
    """The end of the partition is told as an error that carries an offset: control records before it are never seen."""
    error, offset = message.error(), message.offset()
    if error is None:
        assert offset is not None
        return offset + 1
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its spelling
        assert offset is not None
        return offset
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:  # the group is never used, and has to have a name
        return 0
    raise KafkaException(error)


def _entry(message: Message) -> Entry:
    return Entry(message.key() or b"", message.value(), message.offset() or 0)


def _latest(entries: list[Entry]) -> list[Entry]:
    """What compaction would leave of them, in order."""
    last = {entry.key: index for index, entry in enumerate(entries)}
    return [entry for index, entry in enumerate(entries) if last[entry.key] == index]


def _told(error: KafkaError, what: str, topic: str) -> CopycatError:
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return BlockedError(f"{what}: {error.str()}", f"grant this user Read, Write and Describe on the topic {topic}")
    return translate(error, what)
