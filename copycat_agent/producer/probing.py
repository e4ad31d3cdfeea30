"""Queries a cluster about itself, some topics, a group and transactions, without changing anything: for `copycat doctor` and the API."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.kafka_errors import classify, creation_error, translate, with_trouble
from copycat_agent.producer.settings import SILENT, client_settings, transactional_settings

_POLL_SECONDS = 0.05
_LEAST_SECONDS = 1.0
_STEP_SECONDS = 0.5
_STATISTICS_MS = 200


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic. `error` is None for one that exists and may be described; `hidden`: this user may not describe it.

    `operations`: what this user may do (`WRITE`, `DESCRIBE`), None where the broker does not say. `config` is None where this
    user may not see it. `leaderless`: partitions without a leader now. `replicas` and `least_in_sync`: the least of all partitions.
    """

    name: str
    error: CopycatError | None = None
    missing: bool = False
    hidden: bool = False
    partitions: int = 0
    replicas: int = 0
    least_in_sync: int = 0
    leaderless: int = 0
    operations: frozenset[str] | None = None
    config: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster. `operations` as a topic's.

    `creates_topics`: brokers create missing topics by themselves; None where this user may not see it. `brokers`: their number.
    `settings` are those of one of them, empty where this user may not see them.
    """

    cluster_id: str
    operations: frozenset[str] | None
    creates_topics: bool | None
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    brokers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)


class GroupMembership(NamedTuple):
    """A consumer group: what this user may do, None where the broker does not say, and the number of its members."""

    operations: frozenset[str] | None
    members: int


class ClusterProbe:
    """A client that only queries. `deadline` (`time.monotonic()`) holds for all queries together; nothing waits longer."""

    def __init__(self, options: KafkaOptions, deadline: float) -> None:
        """Raises FatalError when the client refuses the settings."""
        self._options = options
        self._deadline = deadline
        self._trouble: KafkaError | None = None
        self._brokers: tuple[str, ...] = ()
        settings: dict[str, Any] = {**client_settings(options), "client.id": "copycat-doctor", "reconnect.backoff.max.ms": 500}
        settings |= {"error_cb": self._on_error, "stats_cb": self._on_statistics, "statistics.interval.ms": _STATISTICS_MS}
        settings["metadata.recovery.strategy"] = "none"  # other ones forget addresses that do not answer, which are wanted here
        try:
            self._client = AdminClient(settings)
        except KafkaException as exception:
            raise creation_error(exception.args[0]) from None

    def brokers(self) -> tuple[str, ...]:
        """Returns the broker addresses that the cluster advertises, as the first broker that answers gives them.

        The client itself learns them first and leaves that broker: where the advertised addresses do not answer, this request may
        be lost with the connection. Then those that the client has learnt are returned.
        Raises BlockedError (login, certificate) or RetriableError (no answer).
        """
        step = _STEP_SECONDS
        while True:
            try:
                found = self._client.list_topics(timeout=step)
            except KafkaException as exception:
                self._client.poll(0)
                if self._brokers:
                    return self._brokers
                self._check(exception.args[0])
                step = min(2 * step, self._left())
            else:
                return tuple(_address(str(node.host), int(node.port)) for node in found.brokers.values())

    def look(self, topics: Collection[str]) -> ClusterState:
        """Returns the cluster and these topics. Raises as `brokers` does."""
        cluster = self._described(with_operations=True)
        first = min((node.id for node in cluster.nodes), default=None)
        settings = {} if first is None else self._config(ResourceType.BROKER, str(first))
        creates = settings.get("auto.create.topics.enable")
        return ClusterState(
            cluster.cluster_id or "", _operations(cluster), None if creates is None else creates == "true", self._topics(topics),
            len(cluster.nodes), settings,
        )  # fmt: skip

    def cluster_id(self) -> str:
        """Returns the id of the cluster, "" for one without. Raises as `brokers` does."""
        return str(self._described(with_operations=False).cluster_id or "")

    def cannot_create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> CopycatError | None:
        """Returns why the broker would not let this user create such a topic, None when it would. Creates nothing."""
        wanted = NewTopic(topic, partitions, replicas, config=dict(config))
        try:
            self._wait(self._client.create_topics([wanted], validate_only=True, request_timeout=self._left())[topic])
        except KafkaException as exception:
            return translate(exception.args[0], f"creating topic {topic}")
        except CopycatError as error:
            return error
        return None

    def group(self, name: str) -> GroupMembership:
        """Returns a consumer group, without joining it. Raises as `brokers` does."""
        while True:
            answers = self._client.describe_consumer_groups([name], include_authorized_operations=True, request_timeout=self._left())
            try:
                found = self._wait(answers[name])
            except KafkaException as exception:
                error = exception.args[0]
                if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    return GroupMembership(frozenset(), 0)
                self._check(error)  # a new coordinator first answers that it is none
                time.sleep(_STEP_SECONDS)
            else:
                return GroupMembership(_operations(found), len(found.members))

    def close(self) -> None:
        """Frees the client."""
        del self._client

    def _described(self, *, with_operations: bool) -> Any:  # noqa: ANN401 - the library's
        try:
            return self._wait(self._client.describe_cluster(include_authorized_operations=with_operations, request_timeout=self._left()))
        except KafkaException as exception:
            raise with_trouble(translate(exception.args[0], "asking for the cluster"), self._trouble) from None

    def _topics(self, topics: Collection[str]) -> dict[str, TopicState]:
        """Returns the topics by name. Not by a producer's metadata request, with which brokers may create them."""
        if not topics:
            return {}
        wanted = TopicCollection(sorted(topics))
        answers = self._client.describe_topics(wanted, include_authorized_operations=True, request_timeout=self._left())
        return {name: self._topic(name, answer) for name, answer in answers.items()}

    def _topic(self, name: str, answer: Future[Any]) -> TopicState:
        try:
            found = self._wait(answer)
        except KafkaException as exception:
            error = exception.args[0]
            return TopicState(
                name,
                translate(error, f"topic {name}"),
                missing=error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART,
                hidden=error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED,
            )
        except CopycatError as error:
            return TopicState(name, error)
        return TopicState(
            name,
            partitions=len(found.partitions),
            replicas=min((len(one.replicas) for one in found.partitions), default=0),
            least_in_sync=min((len(one.isr) for one in found.partitions), default=0),
            leaderless=sum(1 for one in found.partitions if one.leader is None or one.leader.id < 0),
            operations=_operations(found),
            config=self._config(ResourceType.TOPIC, name) or None,
        )

    def _config(self, kind: ResourceType, name: str) -> dict[str, str]:
        """Returns settings by name; empty where this user may not see them, or no answer comes."""
        resource = ConfigResource(kind, name)
        try:
            found = self._wait(self._client.describe_configs([resource], request_timeout=self._left())[resource])
        except (KafkaException, CopycatError):
            return {}
        return {entry.name: entry.value for entry in found.values() if entry.value is not None}

    def _wait(self, answer: Future[Any]) -> Any:  # noqa: ANN401 - the library's
        """Returns the result of the future; serves callbacks meanwhile. Raises KafkaException, or CopycatError after the deadline."""
        while not answer.done():
            self._client.poll(_POLL_SECONDS)
            self._check(None)
        return answer.result()

    def _check(self, error: KafkaError | None) -> None:
        """Raises when no answer can be expected any more. `error` is that of the latest call, which may be repeated if this returns."""
        if self._trouble is not None and classify(self._trouble) is BlockedError:
            raise with_trouble(RetriableError(f"{','.join(self._options.bootstrap_servers)} refuses this client"), self._trouble)
        if error is not None and classify(error) is not RetriableError:
            raise translate(error, "asking for the cluster")
        if time.monotonic() > self._deadline:
            raise with_trouble(RetriableError("no answer in time"), self._trouble)

    def _left(self) -> float:
        return max(_LEAST_SECONDS, self._deadline - time.monotonic())

    def _on_error(self, error: KafkaError) -> None:
        if self._trouble is None or classify(error) is BlockedError:
            self._trouble = error

    def _on_statistics(self, statistics: str) -> None:
        self._brokers = _learned(statistics) or self._brokers


def _learned(statistics: str) -> tuple[str, ...]:
    """Returns the addresses in librdkafka's statistics that the cluster advertised: those of brokers with an id."""
    nodes = json.loads(statistics)["brokers"].values()
    named = [str(node["nodename"]).rpartition(":") for node in nodes if node["nodeid"] >= 0]
    return tuple(_address(host, int(port)) for host, _, port in named)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _operations(found: Any) -> frozenset[str] | None:  # noqa: ANN401 - a description of a cluster or a topic
    operations = found.authorized_operations
    return None if operations is None else frozenset(operation.name for operation in operations)


NO_TRANSACTION_MS = 2**31 - 1001  # librdkafka adds 100, in 32 bits
"""A time-out that brokers refuse (`transaction.max.timeout.ms`), after they have checked that the user may have the id."""


def may_write_as(options: KafkaOptions, transactional_id: str, deadline: float) -> None:
    """Checks that this user may have a transactional id that another process uses now, with a time-out that brokers refuse.

    So no producer is fenced. Not to be called for brokers whose `transaction.max.timeout.ms` is the largest possible number, which
    would accept it. Raises as `probe_transactions` does.
    """
    try:
        probe_transactions(options, transactional_id, NO_TRANSACTION_MS, deadline)
    except BlockedError as error:
        if not isinstance(error, TransactionTimeoutError):
            raise


class TransactionTimeoutError(BlockedError):
    """The brokers do not allow transactions of this length."""


def probe_transactions(options: KafkaOptions, transactional_id: str, timeout_ms: int, deadline: float) -> None:
    """Initializes a transactional id, as a lane does, and drops it. The broker forgets it after a week (transactional.id.expiration.ms).

    This is surer than reading ACLs: one may be of another host or prefix, and an authorizer may follow other rules.

    `timeout_ms` is that of transactions; `deadline` is `time.monotonic()`'s. Raises BlockedError when this user may not have the id, or
    transactions may not last that long; RetriableError when no coordinator answers in time; FatalError for a cluster without transactions.
    """
    trouble: list[KafkaError] = []
    settings: dict[str, Any] = {
        **transactional_settings(options, "copycat-doctor", transactional_id, timeout_ms),
        "error_cb": trouble.append,
    }
    try:
        producer = Producer(settings, logger=SILENT)
    except KafkaException as exception:
        raise creation_error(exception.args[0]) from None
    try:
        producer.init_transactions(max(_LEAST_SECONDS, deadline - time.monotonic()))
    except KafkaException as exception:
        raise _refused_transaction(exception.args[0], trouble, timeout_ms) from None


def _refused_transaction(error: KafkaError, trouble: list[KafkaError], timeout_ms: int) -> CopycatError:
    what = "transactions"
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        words = f"{what}: the brokers allow none that lasts {timeout_ms // 1000} s"
        return TransactionTimeoutError(words, f"raise transaction.max.timeout.ms of the brokers to {timeout_ms} or more")
    if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return BlockedError(f"{what}: {error.str()}")  # the caller adds the command
    found = translate(error, what)
    return with_trouble(found, trouble[-1]) if trouble and isinstance(found, RetriableError) else found
