"""Reading topics as a source does: what partitions there are, how far they go, and their records between two offsets.

`TopicRanges` asks an admin client, so that one request says where all partitions end. `PartitionReader` assigns itself one partition at a
time, without a group; the group only keeps what `GroupPositions` gives it, for people and for tools that show a lag.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple, cast

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._listoffsets import OffsetSpec

from copycat_agent.errors import BlockedError, CopycatError, FatalError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.asking import ANSWER_SECONDS, Admin
from copycat_agent.producer.consuming import Received, received
from copycat_agent.producer.kafka_errors import not_made, translate, with_trouble
from copycat_agent.producer.settings import SILENT, client_settings, distrust_token

STALL_SECONDS = 20.0
"""A read that gets nothing for so long, while there is something, is given up."""
IDLE_SECONDS = 60.0
"""A client that nobody reads with is closed after this time."""
POLL_SECONDS = 0.2
REPORTS_PER_STALL = 4
"""So often a client reports in `STALL_SECONDS`."""
_RUN_MESSAGES = 500
_QUEUE_KBYTES = 16 * 1024
"""Fetched ahead and held for who reads, per client."""
_BACKOFF_MS = "10"
"""How long a client that holds so much waits before it fetches more: with its default of a second, batches take twice as long."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_GONE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})  # noqa: SLF001 - its spelling

PlaceOf = tuple[str, int]
"""Topic and partition."""


class Removed(NamedTuple):
    """Records from `start` up to, not including, `end` are in the topic no more: it keeps records for a time, or was cut."""

    start: int
    end: int


class PassedOffsets(NamedTuple):
    """Up to here there are no records, as far as a read has come: aborted ones, say. It ends so where it would be given up otherwise."""

    end: int


class KnownTopic(NamedTuple):
    """Its partitions, and its id, "" where the cluster has none. A topic made anew under its name has another one."""

    partitions: list[int]
    topic_id: str


class KnownTopics(NamedTuple):
    """Topics that were asked for: those that are there, names that are no topic's, and why some are not for this user."""

    found: dict[str, KnownTopic]
    missing: list[str]
    refused: dict[str, CopycatError]


class KnownOffsets(NamedTuple):
    """An offset of each partition that could be asked about; of all others, why not."""

    found: dict[PlaceOf, int]
    errors: dict[PlaceOf, CopycatError]


class TopicRanges:
    """What partitions some topics have, and how far they go. Used from one thread at a time.

    Everything raises RetriableError while no broker answers, and BlockedError where this user is refused.
    """

    def __init__(self, options: KafkaOptions, *, committed: bool) -> None:
        """`committed`: a partition ends before the first transaction that is open."""
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._admin = Admin(options, stopping=lambda: False)

    def topics(self, wanted: Sequence[str], left_out: Sequence[str] = ()) -> KnownTopics:
        """The topics that `wanted` stands for."""
        known = self._asked(lambda client: _now(lambda: client.list_topics(timeout=ANSWER_SECONDS))).topics
        names = [one for one in wanted if is_name(one)]
        asked = {name for name in known if stands_for(name, wanted, left_out)}.union(name for name in names if name not in known)
        answers = self._each(lambda client: _described(client, sorted(asked)))
        topics = KnownTopics({}, [], {})
        for name, answer in sorted(answers.items()):
            if not isinstance(answer, KafkaError):
                topics.found[name] = KnownTopic(sorted(one.id for one in answer.partitions), str(answer.topic_id or ""))
            elif answer.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                topics.refused[name] = _told(answer, f"topic {name}", name)
            elif name in names:
                topics.missing.append(name)
        return topics

    def ends(self, places: Iterable[PlaceOf]) -> KnownOffsets:
        """The offset behind the last record of each partition."""
        return self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def begins(self, places: Iterable[PlaceOf]) -> KnownOffsets:
        """The first offset of each partition."""
        return self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def at_time(self, places: Iterable[PlaceOf], epoch_ms: int) -> KnownOffsets:
        """The first offset of each partition whose record is not older; that of its end where there is none."""
        found, errors = self._offsets(places, OffsetSpec.for_timestamp(epoch_ms))
        late = self.ends(place for place, offset in found.items() if offset < 0)
        return KnownOffsets({place: offset for place, offset in found.items() if offset >= 0} | late.found, {**errors, **late.errors})

    def _offsets(self, places: Iterable[PlaceOf], spec: OffsetSpec) -> KnownOffsets:
        wanted = {TopicPartition(*place): spec for place in places}
        ask = {"isolation_level": self._isolation, "request_timeout": ANSWER_SECONDS}
        answers = self._each(lambda client: client.list_offsets(wanted, **ask) if wanted else {})
        found, errors = dict[PlaceOf, int](), dict[PlaceOf, CopycatError]()
        for one, answer in answers.items():
            place = one.topic, one.partition
            if isinstance(answer, KafkaError):
                errors[place] = _told(answer, f"asking where {one.topic}/{one.partition} begins and ends", one.topic)
            else:
                found[place] = answer.offset
        return KnownOffsets(found, errors)

    def closed(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that this user may look at, and not read."""
        answers = self._each(lambda client: _described(client, sorted(topics), include_authorized_operations=True))
        return [name for name, one in sorted(answers.items()) if not isinstance(one, KafkaError) and not _may_read(one)]

    def may_commit(self, group: str) -> bool:
        """Whether this user may save offsets for a group."""
        answers = self._each(lambda client: client.describe_consumer_groups([group], include_authorized_operations=True))
        return not isinstance(answers[group], KafkaError) and _may_read(answers[group])

    def _each(self, ask: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> dict[Any, Any]:
        """The answer to each part of a question: what was found, or a KafkaError of its own."""

        def question(client: AdminClient) -> Future[Any]:
            answers = ask(client)
            return _now(lambda: (wait(answers.values(), ANSWER_SECONDS), {key: _answer(one) for key, one in answers.items()})[1])

        return cast("dict[Any, Any]", self._asked(question))

    def _asked(self, question: Callable[[AdminClient], Future[Any]], seconds: float | None = None, what: str = "") -> Any:  # noqa: ANN401
        try:
            return self._admin.ask(question, seconds)
        except KafkaException as exception:
            raise with_trouble(_told(exception.args[0], what or f"asking {self._admin.servers}"), self._admin.trouble) from None
        except TimeoutError:
            raise with_trouble(RetriableError(f"no broker answers at {self._admin.servers}"), self._admin.trouble) from None

    def close(self) -> None:
        """Free the client."""
        self._admin.close()


def _described(client: AdminClient, topics: Sequence[str], **more: bool) -> Mapping[Any, Future[Any]]:
    """Asks about topics, none of which is made by that. Of one that a list leaves out there are words."""
    return client.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER_SECONDS, **more) if topics else {}


def _may_read(described: Any) -> bool:  # noqa: ANN401 - the library's, of a topic or a group
    """A cluster that knows no authorisation says nothing of it."""
    allowed = described.authorized_operations
    return not allowed or AclOperation.READ in allowed


def _answer(one: Future[Any]) -> Any:  # noqa: ANN401 - the library's
    """What was found, or what this part of a question alone ended with. Raises what concerns all of it."""
    try:
        return one.result(0)
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.code() < 0:  # the library's own: no broker has said so
            raise
        return error


def _now(call: Callable[[], Any]) -> Future[Any]:
    """What a call gives, on a thread of its own."""
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - for who waits
            answer.set_exception(error)

    threading.Thread(target=run, name="topics", daemon=True).start()
    return answer


def is_name(text: str) -> bool:
    """Whether it is a topic's name, and not a pattern of names."""
    return _NAME.fullmatch(text) is not None


def stands_for(name: str, wanted: Sequence[str], left_out: Sequence[str]) -> bool:
    """Whether one of `wanted` stands for the topic, and none of `left_out`. Patterns stand for none of Kafka's own topics."""
    is_wanted = name in wanted or (not name.startswith("__") and any(not is_name(one) and re.fullmatch(one, name) for one in wanted))
    return is_wanted and not any(one == name if is_name(one) else re.fullmatch(one, name) for one in left_out)


class PartitionReader:
    """Reads partitions of one cluster, each with a client of its own while it is read. Thread-safe."""

    def __init__(self, options: KafkaOptions, *, committed: bool) -> None:
        self._options = options
        self._isolation = "read_committed" if committed else "read_uncommitted"
        self._lock = threading.Lock()
        self._idle: list[tuple[float, _Client]] = []
        self._timer: threading.Timer | None = None
        """Closes idle clients; one for all of them, while there are any."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Received] | Removed | PassedOffsets]:
        """The records of a partition from one offset up to, not including, another, some at a time; what of them is there no more.

        `PassedOffsets` is the last: the rest is to be read from there.
        Raises RetriableError when nothing comes, BlockedError when this user is refused, FatalError for what never works.
        """
        client = self._take()
        try:
            yield from client.read(topic, partition, start, end)
        except Exception:
            client.close()
            raise
        finally:  # also where the caller wants no more
            self._give_back(client)

    def _take(self) -> _Client:
        with self._lock:
            if self._idle:
                return self._idle.pop()[1]
        return _Client(self._options, self._isolation)

    def _give_back(self, client: _Client) -> None:
        if client.is_closed:
            return
        client.rest()
        with self._lock:
            self._idle.append((time.monotonic(), client))
            self._attend()

    def _attend(self) -> None:
        """Look after idle clients once the first of them may be closed. With the lock held."""
        if self._timer is None and self._idle:
            first = min(since for since, _ in self._idle)
            self._timer = threading.Timer(max(0.0, first + IDLE_SECONDS - time.monotonic()) + 1, self._close_idle)
            self._timer.daemon = True
            self._timer.start()

    def _close_idle(self) -> None:
        """Close clients that nobody has used for a while."""
        now = time.monotonic()
        with self._lock:
            old = [client for since, client in self._idle if now - since > IDLE_SECONDS]
            self._idle = [one for one in self._idle if now - one[0] <= IDLE_SECONDS]
            self._timer = None
            self._attend()
        for client in old:
            client.close()


class _Fetched:
    """How far a client has fetched without finding a record, by its statistics: it tells nobody else of records that were aborted.

    One for each wait for messages. An offset counts if the client has moved on to it meanwhile, as two of its reports say, and there is
    still no message once it has reported: what it holds is handed over before a report that comes later, through the same queue.
    """

    def __init__(self, topic: str = "", partition: int = -1) -> None:
        self._topic, self._partition = topic, str(partition)
        self._since_us = time.monotonic_ns() // 1000
        self._first = -1
        self._looks = 0
        self.passed = -1

    def hear(self, text: str) -> None:
        """A report, as JSON. Those that were written before this wait count for nothing."""
        report = json.loads(text)
        found = report["topics"].get(self._topic, {}).get("partitions", {}).get(self._partition)
        if found is None or report["ts"] <= self._since_us:
            return
        offset = found["next_offset"]
        if self._first < 0 or offset < self._first or found["fetchq_cnt"]:
            self._first, self.passed = offset, -1
        elif offset > self._first:
            self.passed, self._looks = offset, 0

    def is_certain(self) -> bool:
        """Called each time that there was no message: whether that is so for the second time since the report."""
        self._looks += 1
        return self._looks > 1


def _sorted_out(messages: Sequence[Message], partition: int, position: int, end: int) -> tuple[list[Received], int, KafkaError | None]:
    """The records among messages, how far they come, and the error that ends them."""
    run: list[Received] = []
    for message in messages:
        error, offset = message.error(), message.offset() or 0
        if error is None and offset < end:
            run.append(received(message, partition, offset))
            position = offset + 1
        elif error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its spelling
            position = max(position, offset)
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            return run, position, error
    return run, position, None


class _Client:
    """A consumer that reads one partition at a time."""

    def __init__(self, options: KafkaOptions, isolation: str) -> None:
        self._options = options
        self.is_closed = False
        self._trouble: KafkaError | None = None
        self._fetched = _Fetched()
        settings = {
            "fetch.wait.max.ms": "100", "queued.max.messages.kbytes": str(_QUEUE_KBYTES), "fetch.queue.backoff.ms": _BACKOFF_MS,
            **client_settings(options), "group.id": "copycat",
            "enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error", "isolation.level": isolation,
            "enable.partition.eof": True, "error_cb": self._heard, "stats_cb": self._reported,
            "statistics.interval.ms": round(STALL_SECONDS * 1000 / REPORTS_PER_STALL),
        }  # fmt: skip
        try:
            self._consumer = Consumer(settings, logger=SILENT)
        except KafkaException as exception:
            raise not_made(exception.args[0]) from None

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Received] | Removed | PassedOffsets]:
        """See `PartitionReader.read`."""
        position = start
        self._assign(topic, partition, start)
        while position < end:
            if not (messages := self._some(topic, partition, position)):
                if (passed := self._fetched.passed) < end:
                    yield PassedOffsets(passed)
                return
            run, position, failure = _sorted_out(messages, partition, position, end)
            if run:
                yield run
            if failure is not None:
                if failure.code() not in _GONE:
                    raise self._told(failure, topic)
                begin = min(end, self._begin_behind(topic, partition, position))
                yield Removed(position, begin)
                position = begin
                self._assign(topic, partition, position)

    def _some(self, topic: str, partition: int, position: int) -> list[Message]:
        """The next messages; none where others are passed, see `_Fetched`. Raises RetriableError when nothing comes."""
        deadline = time.monotonic() + STALL_SECONDS
        self._fetched = _Fetched(topic, partition)
        while not (messages := self._consumed(topic)):
            if self._fetched.passed > position and self._fetched.is_certain():
                break
            if time.monotonic() > deadline:
                words = f"{topic}/{partition}: nothing came for {STALL_SECONDS:g} s from {','.join(self._options.bootstrap_servers)}"
                raise with_trouble(RetriableError(words), self._trouble)
        return messages

    def _assign(self, topic: str, partition: int, offset: int) -> None:
        try:
            self._consumer.assign([TopicPartition(topic, partition, offset)])
        except KafkaException as exception:
            raise self._told(exception.args[0], topic) from None

    def _consumed(self, topic: str) -> list[Message]:
        try:
            messages = self._consumer.consume(_RUN_MESSAGES, POLL_SECONDS)
            # the client looks for the coordinator of its group, though it needs none: whoever may not read a group may read topics
            is_of_group = len(messages) == 1 and (error := messages[0].error()) and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            return [] if is_of_group else messages
        except KafkaException as exception:
            raise self._told(exception.args[0], topic) from None

    def _begin_behind(self, topic: str, partition: int, position: int) -> int:
        """The first offset that is there. FatalError where that does not lie behind `position`."""
        try:
            begin, _ = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_SECONDS)
        except KafkaException as exception:
            raise self._told(exception.args[0], topic) from None
        if begin <= position:
            raise cut(f"{topic}/{partition}", position)
        return int(begin)

    def _told(self, error: KafkaError, topic: str) -> CopycatError:
        return with_trouble(_told(error, f"reading topic {topic}", topic), self._trouble)

    def _heard(self, error: KafkaError) -> None:
        distrust_token(self._options, error)
        if self._trouble is None or error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - which only follows from what is known
            self._trouble = error

    def _reported(self, statistics: str) -> None:
        self._fetched.hear(statistics)

    def rest(self) -> None:
        """Nothing is read for now."""
        self._trouble = None
        self._consumer.unassign()

    def close(self) -> None:
        """Free the client."""
        self.is_closed = True
        self._consumer.close()


def cut(name: str, position: int) -> FatalError:
    """What is said of a partition that ends before the offset where reading goes on."""
    words = f"{name} ends before offset {position:,}, where reading goes on: it was cut, or made anew"
    return FatalError(words, "copycat offsets reset NAME begins with what is there; copycat offsets set NAME goes on elsewhere")


def _told(error: KafkaError, what: str, topic: str = "") -> CopycatError:
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return BlockedError(f"{what}: {error.str()}", f"grant this user Read and Describe on the topic {topic}".rstrip())
    return translate(error, what)
