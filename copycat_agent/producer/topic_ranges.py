"""Answers which partitions topics have, and where they begin and end.

`TopicRanges` asks with an admin client, so that one request covers all partitions.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple, cast

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.admin import ANSWER_SECONDS, Admin
from copycat_agent.producer.kafka_errors import translate, with_trouble

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})  # noqa: SLF001 - its spelling

PlaceOf = tuple[str, int]
"""Topic and partition."""


class KnownTopic(NamedTuple):
    """A topic's partitions and its id, "" where the cluster has none. A topic that is created again under its name has another id."""

    partitions: list[int]
    topic_id: str


class KnownTopics(NamedTuple):
    """The topics that exist, the names that no topic has (any more), and the topics that this user may not describe, with the reason."""

    found: dict[str, KnownTopic]
    missing: list[str]
    refused: dict[str, CopycatError]


class TopicRetention(NamedTuple):
    """How long a topic keeps records, and how many bytes of each partition; `math.inf` without a limit."""

    seconds: float
    bytes: float


class KnownOffsets(NamedTuple):
    """One offset per partition, or the error that its broker answered."""

    found: dict[PlaceOf, int]
    errors: dict[PlaceOf, CopycatError]


class TopicRanges:
    """Asks one cluster about its topics. Used from one thread at a time.

    Every method raises RetriableError while no broker answers, and BlockedError when this user is refused.
    """

    def __init__(self, options: KafkaOptions, *, committed: bool) -> None:
        """`committed`: a partition ends before its first open transaction."""
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._admin = Admin(options, stopping=lambda: False)

    def topics(self, wanted: Sequence[str], left_out: Sequence[str] = (), earlier: Iterable[str] = ()) -> KnownTopics:
        """Returns the topics that match `wanted` (names and patterns) and none of `left_out`. `earlier` are topics that existed before."""
        known = self._asked(lambda client: _now(lambda: client.list_topics(timeout=ANSWER_SECONDS))).topics
        names = [one for one in wanted if is_name(one)] + [one for one in earlier if stands_for(one, wanted, left_out)]
        asked = {name for name in known if stands_for(name, wanted, left_out)}.union(name for name in names if name not in known)
        answers = self._each(lambda client: _described(client, sorted(asked)))
        topics = KnownTopics({}, [], {})
        for name, answer in sorted(answers.items()):
            if not isinstance(answer, KafkaError):
                topics.found[name] = KnownTopic(sorted(one.id for one in answer.partitions), str(answer.topic_id or ""))
            elif answer.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                topics.refused[name] = described_error(answer, f"topic {name}", name)
            elif name in names:
                topics.missing.append(name)
        return topics

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the present id of each topic, "" where the cluster has none. Topics that are not there, or refused, are left out."""
        answers = self._each(lambda client: _described(client, sorted(topics)))
        return {name: str(one.topic_id or "") for name, one in answers.items() if not isinstance(one, KafkaError)}

    def retention(self, topics: Iterable[str]) -> dict[str, TopicRetention]:
        """Returns what each topic keeps. Topics whose settings this user may not see (DescribeConfigs) are left out."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        try:
            answers = self._each(lambda client: client.describe_configs(resources, request_timeout=ANSWER_SECONDS) if resources else {})
        except CopycatError:
            return {}
        return {one.name: _retention(found) for one, found in answers.items() if not isinstance(found, KafkaError)}

    def ends(self, places: Iterable[PlaceOf]) -> KnownOffsets:
        """Returns the offset after the last record of each partition."""
        return self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def log_ends(self, places: Iterable[PlaceOf]) -> KnownOffsets:
        """Returns the offset after the last record of each partition, records of open transactions included."""
        return self._offsets(places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]

    def begins(self, places: Iterable[PlaceOf]) -> KnownOffsets:
        """Returns the first offset of each partition."""
        return self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def at_time(self, places: Iterable[PlaceOf], epoch_ms: int) -> KnownOffsets:
        """Returns the first offset of each partition whose record is not older than `epoch_ms`, or its end if all are."""
        found, errors = self._offsets(places, OffsetSpec.for_timestamp(epoch_ms))
        late = self.ends(place for place, offset in found.items() if offset < 0)
        return KnownOffsets({place: offset for place, offset in found.items() if offset >= 0} | late.found, {**errors, **late.errors})

    def _offsets(self, places: Iterable[PlaceOf], spec: OffsetSpec, isolation: IsolationLevel | None = None) -> KnownOffsets:
        wanted = {TopicPartition(*place): spec for place in places}
        ask = {"isolation_level": self._isolation if isolation is None else isolation, "request_timeout": ANSWER_SECONDS}
        answers = self._each(lambda client: client.list_offsets(wanted, **ask) if wanted else {})
        found, errors = dict[PlaceOf, int](), dict[PlaceOf, CopycatError]()
        for one, answer in answers.items():
            place = one.topic, one.partition
            if isinstance(answer, KafkaError):
                errors[place] = described_error(answer, f"asking where {one.topic}/{one.partition} begins and ends", one.topic)
            else:
                found[place] = answer.offset
        return KnownOffsets(found, errors)

    def closed(self, topics: Iterable[str]) -> list[str]:
        """Returns those of the topics that this user may describe but not read."""
        answers = self._each(lambda client: _described(client, sorted(topics), include_authorized_operations=True))
        return [name for name, one in sorted(answers.items()) if not isinstance(one, KafkaError) and not _may_read(one)]

    def may_commit(self, group: str) -> bool:
        """Returns whether this user may commit offsets for a group."""
        answers = self._each(lambda client: client.describe_consumer_groups([group], include_authorized_operations=True))
        return not isinstance(answers[group], KafkaError) and _may_read(answers[group])

    def _each(self, ask: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> dict[Any, Any]:
        """Returns the answer to each part of a request: a value, or the KafkaError of that part alone."""

        def question(client: AdminClient) -> Future[Any]:
            answers = ask(client)
            return _now(lambda: (wait(answers.values(), ANSWER_SECONDS), {key: _answer(one) for key, one in answers.items()})[1])

        return cast("dict[Any, Any]", self._asked(question))

    def _asked(self, question: Callable[[AdminClient], Future[Any]]) -> Any:  # noqa: ANN401
        try:
            return self._admin.ask(question)
        except KafkaException as exception:
            raise with_trouble(described_error(exception.args[0], f"asking {self._admin.servers}"), self._admin.trouble) from None
        except TimeoutError:
            raise with_trouble(RetriableError(f"no broker answers at {self._admin.servers}"), self._admin.trouble) from None

    def close(self) -> None:
        """Closes the client."""
        self._admin.close()


def _described(client: AdminClient, topics: Sequence[str], **more: bool) -> Mapping[Any, Future[Any]]:
    """Describing a topic never creates it. A topic that listing leaves out gets an error of its own here."""
    return client.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER_SECONDS, **more) if topics else {}


def _retention(settings: Mapping[str, Any]) -> TopicRetention:
    """A topic that is only compacted removes no record for its age, or for the size of its partition."""
    values = {name: str(entry.value) for name, entry in settings.items()}
    if "delete" not in values.get("cleanup.policy", "delete"):
        return TopicRetention(math.inf, math.inf)
    most_ms, most_bytes = (
        int(text) if (text := values.get(name, "")).isdecimal() else math.inf for name in ("retention.ms", "retention.bytes")
    )
    return TopicRetention(most_ms / 1000, most_bytes)


def _may_read(described: Any) -> bool:  # noqa: ANN401 - confluent_kafka's description of a topic or a group
    """A cluster without an authorizer lists no operations."""
    allowed = described.authorized_operations
    return not allowed or AclOperation.READ in allowed


def _answer(one: Future[Any]) -> Any:  # noqa: ANN401 - confluent_kafka's
    """Returns the value, or the error of this part. Raises an error that concerns the whole request."""
    try:
        return one.result(0)
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.code() < 0:  # librdkafka's own: it comes from no broker
            raise
        return error


def _now(call: Callable[[], Any]) -> Future[Any]:
    """Runs a blocking call on a thread of its own."""
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
            answer.set_exception(error)

    threading.Thread(target=run, name="topics", daemon=True).start()
    return answer


def is_name(text: str) -> bool:
    """Returns whether `text` is a topic's name rather than a pattern."""
    return _NAME.fullmatch(text) is not None


def stands_for(name: str, wanted: Sequence[str], left_out: Sequence[str]) -> bool:
    """Returns whether `wanted` selects the topic and `left_out` does not. Patterns never select Kafka's internal topics."""
    is_wanted = name in wanted or (not name.startswith("__") and any(not is_name(one) and re.fullmatch(one, name) for one in wanted))
    return is_wanted and not any(one == name if is_name(one) else re.fullmatch(one, name) for one in left_out)


def described_error(error: KafkaError, what: str, topic: str = "") -> CopycatError:
    """Returns the error of reading a topic, with the reader's next step: `translate` has the writer's."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return BlockedError(f"{what}: {error.str()}", f"grant this user Read and Describe on the topic {topic}".rstrip())
    if error.code() in _MISSING:
        return BlockedError(f"{what}: {error.str()}", "create the topic, or correct source.topics")
    return translate(error, what)
