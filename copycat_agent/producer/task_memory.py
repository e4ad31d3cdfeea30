"""The knowledge that a task's producers pass on to later ones: which topics exist, how much to send at once, what brokers allow."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.cimpl import NewTopic

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.options import KafkaOptions, TopicOptions
from copycat_agent.producer.admin import ANSWER_SECONDS, Admin, Question
from copycat_agent.producer.kafka_errors import classify, telling_trouble, translate, with_trouble
from copycat_agent.producer.settings import INTERVAL_SECONDS, TRANSACTION_TIMEOUT_MS

if TYPE_CHECKING:
    from confluent_kafka import Producer

MOST_BYTES = 16 * 2**20
"""Largest size of a run, in bytes of input: a flush costs a round trip, and a failure repeats a run."""
LEAST_BYTES = 32 * 2**10
_SHRINK = 64
"""Divides the size of the next run after a failed one: each failure costs half a minute and repeats."""
_GROW = 8
"""Most by which a quick run multiplies the size of the next one."""
_LEAST_WAIT_SECONDS, _MOST_WAIT_SECONDS = 0.03, 1.0
SETTLE_SECONDS = 8.0
"""Time after a stop request in which records in flight may still be acknowledged."""
_TROUBLE_SECONDS = 35.0
"""Age up to which an earlier connection error counts for a new batch: the library reports the same one only every 30 s."""
SLICE_SECONDS = 5.0
"""Longest single call to fence, so that connection errors are noticed; another call continues the request under way. Each call that times
out leaks some 200 bytes, since the binding (confluent-kafka 2.16.1) never frees its error: hence no shorter steps. About every third
transaction has such a call: 6 MB a day at one transaction a second."""
_BRIEF_SECONDS = 1.0
"""A producer that lives no longer than this may never report its statistics, which are due every 500 ms."""

_MISSING_SECONDS = 1.5
"""Time after which an unknown topic counts as missing: a broker that creates topics by itself says "unknown" at first."""
_CREATE_SECONDS = 15.0
_REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_NO_ANSWER_YET = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE})  # noqa: SLF001 - its spelling


class Pace:
    """The size of a producer's next run, learnt from earlier runs, so that acknowledgements come in time on slow lines too.

    A record that is not acknowledged within the message time-out makes everything since the last flush be sent again. A run larger than
    what the line carries in that time would be repeated for ever: at 10 KB/s five attempts of 16 MiB brought 58,000 duplicates and no
    offset. Used from one thread at a time.
    """

    def __init__(self) -> None:
        self.run_bytes = MOST_BYTES
        self.begun: float | None = None
        """When the run under way began (monotonic); None between runs."""
        self.size_bytes = 0
        """Its size in bytes of input; 0 while that is not known."""

    def acknowledged(self, size_bytes: int, seconds: float, wanted_seconds: float) -> None:
        """Learns from a run of `size_bytes` of input that was acknowledged after `seconds`; `wanted_seconds` is the most it should take.

        Ignores a quick run smaller than half of `run_bytes`: it tells nothing about larger ones.
        """
        fitting = size_bytes * wanted_seconds / max(seconds, 1e-3)
        if fitting < size_bytes:
            self._become(fitting)
        elif size_bytes >= self.run_bytes / 2:
            self._become(min(max(fitting, self.run_bytes), self.run_bytes * _GROW))

    def failed(self) -> None:
        """Learns from a run that was not acknowledged in time."""
        self._become(self.run_bytes / _SHRINK)

    def _become(self, run_bytes: float) -> None:
        self.run_bytes = int(min(MOST_BYTES, max(LEAST_BYTES, run_bytes)))


class ConnectionTrouble:
    """The latest error of a client's connections, to explain a time-out. `tell` is called from any thread."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        """None without a recent error."""
        self._at = 0.0

    def tell(self, error: KafkaError) -> None:
        """Notes an error of a connection."""
        self.error = telling_trouble(self.error, error)
        if self.error is error:
            self._at = time.monotonic()

    def begin(self) -> None:
        """Called when a batch begins: forgets an error that is too old to concern it."""
        if time.monotonic() - self._at > _TROUBLE_SECONDS:
            self.error = None

    def over(self) -> None:
        """Called when everything is acknowledged: forgets the error."""
        self.error = None


@dataclass(slots=True)
class StopRequest:
    """Whether a batch is asked to stop, and until when its records in flight may then still be acknowledged."""

    asked: Callable[[], bool] = lambda: False
    settle_by: float | None = None
    """`time.monotonic()`; None until a stop request was seen."""

    def is_over(self, deadline: float) -> bool:
        """Returns whether to stop waiting: `deadline` (`time.monotonic()`) has passed, or `SETTLE_SECONDS` since a stop request."""
        now = time.monotonic()
        if self.settle_by is None and self.asked():
            self.settle_by = now + SETTLE_SECONDS
        return now > min(deadline, self.settle_by or deadline)


class _PartitionCounts(dict[str, int]):
    """Partition counts by topic. A missing one is fetched with `ask` and added to `known`."""

    def __init__(self, ask: Callable[[str], int], known: dict[str, int]) -> None:
        super().__init__(known)
        self._ask, self._known = ask, known

    def __missing__(self, topic: str) -> int:
        count = self[topic] = self._known[topic] = self._ask(topic)
        return count


class TopicMetadata:
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
        """`last_trouble` returns the client's latest connection error, None without one, to explain a time-out.

        The producers of a task share `known`, partition counts, and `missing`, topics that did not exist.
        """
        self._client = client
        self._options = options
        self._stopping = stopping
        self._last_trouble = last_trouble
        self.has_asked_admin = False
        """Whether the admin client was used since the last `rest`."""
        self.partitions: Callable[[str], int] = _PartitionCounts(self._ask, {} if known is None else known).__getitem__
        """Returns the number of partitions of a topic, which is created if missing and allowed.

        Raises BlockedError for a topic that is missing and may not be created, or that this user may not write to;
        RetriableError when no broker answers.
        """
        self._missing: set[str] = set() if missing is None else missing
        self.admin = Admin(options, stopping=stopping)
        """Creates topics. Kept until `rest`: a connection per topic would be slow with many."""

    def rest(self) -> None:
        """Closes the admin client, which only new topics need."""
        self.has_asked_admin = False
        self.admin.close()

    def close(self) -> None:
        """Frees the client. A traceback of an error that was raised here may keep this object alive, but not the client."""
        self.rest()
        del self._client, self.partitions  # the latter holds this object

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
            elif self._stopping() or time.monotonic() - begin > self.missing_timeout_seconds(topic, created=created):
                if error.code() == KafkaError.LEADER_NOT_AVAILABLE:
                    raise translate(error, f"topic {topic}")
                self._missing.add(topic)
                raise BlockedError(f"topic {topic} does not exist", "create it, or set kafka.create_topics")
            else:
                self._client.poll(0.1)

    def missing_timeout_seconds(self, topic: str, *, created: bool) -> float:
        """Returns after how many seconds an unknown topic counts as missing; 0 for one that was missing before."""
        if created:
            return ANSWER_SECONDS
        return 0.0 if topic in self._missing else _MISSING_SECONDS

    def metadata(self, topic: str, begin: float) -> tuple[int, KafkaError | None]:
        """Returns a topic's partition count and error, as the cluster answers.

        Waits in steps, so that a stop request is noticed; each is longer than the one before, for slow connections.
        """
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
        """Returns whether an answer may still come; not from a broker that has refused this client."""
        trouble = self._last_trouble()
        return error.code() in _NO_ANSWER_YET and (trouble is None or classify(trouble) is not BlockedError)

    def _unreachable(self, error: KafkaError) -> CopycatError:
        servers = ",".join(self._options.bootstrap_servers)
        return with_trouble(translate(error, f"no broker answers at {servers}"), self._last_trouble() or self.admin.trouble)

    def _create_if_missing(self, topic: str, options: TopicOptions) -> bool:
        """Returns whether it created the topic. Asked first, since a producer's request may have the broker create it with its defaults."""
        try:
            self._ask_admin(lambda client: client.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_SECONDS)[topic])
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._create(topic, options)
                return True
            if classify(error) is RetriableError:  # another kind of request might create it
                raise self._unreachable(error) from None
        return False  # it exists, or this user may not describe it: the producer's request shows

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
        self.has_asked_admin = True
        self.admin.ask(question, _CREATE_SECONDS)


@dataclass(slots=True)
class TaskMemory:
    """What a process has learnt of a task that sends to the cluster of `options`. Kept for a day after the task's last batch.

    `batch_bytes` is the most that a topic was found to take at once, 0 where nothing is known; `memory` what transactional batches have
    learnt for later ones; `used` when it was last used (monotonic).
    """

    options: KafkaOptions
    used: float
    batch_bytes: int = 0
    pace: Pace = field(default_factory=Pace)
    memory: Any = None


@dataclass(slots=True)
class TransactionalState:
    """Holds what the transactional producers of one task share, and pass on to later ones.

    `tracked`, `batch_bytes` and `pace` as of a `TaskProducer`; `stopping` ends `ready`, until `begin` gives another. Learnt are the longest
    transaction that brokers allow, which topics exist and which are missing, when a producer last reported statistics, whether the last one
    that sent something lived too briefly for that, how long fencing takes, and whether it was never answered in all its time.
    """

    tracked: bool = False
    batch_bytes: int = 0
    pace: Pace = field(default_factory=Pace)
    stopping: Callable[[], bool] = lambda: False
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    partitions: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    heard_at: float = -math.inf
    is_brief: bool = False
    init_seconds: float = 0.0
    is_unanswered: bool = False

    def took(self, seconds: float) -> None:
        """Learns how long fencing took: `init_seconds` falls at once and rises slowly."""
        self.init_seconds = min(seconds, 1.25 * self.init_seconds) if self.init_seconds else seconds
        self.is_unanswered = False

    def lived(self, seconds: float) -> None:
        """Called with the lifetime of a producer that has sent something, when it is closed."""
        self.is_brief = seconds < _BRIEF_SECONDS

    def first_wait_seconds(self) -> float:
        """Returns how long the first call to fence waits: one and a half times what fencing usually takes.

        About one client in four does not notice that its connection is up until the next call, or for half a second.
        """
        if self.is_unanswered:
            return SLICE_SECONDS
        return min(max(_LEAST_WAIT_SECONDS, 1.5 * self.init_seconds), _MOST_WAIT_SECONDS)

    def statistics(self) -> dict[str, str]:
        """Returns settings that make the next producer report statistics sooner, if earlier ones never lived long enough to.

        The interval is not short where the producer may live long: reports are 12 KB or more, and wait until the producer is used.
        """
        silent_seconds = time.monotonic() - self.heard_at
        if silent_seconds <= INTERVAL_SECONDS:
            return {}
        is_overdue = self.is_brief and silent_seconds > 3 * INTERVAL_SECONDS
        return {"statistics.interval.ms": "50" if is_overdue else "500"}
