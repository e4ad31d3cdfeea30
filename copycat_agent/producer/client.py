"""The client that a producer sends with: what it is made from and takes, what belongs to it while it is open, what it has reported.

Every few seconds librdkafka gives statistics of itself, which become a `ClientView`. The library queues them as events until it is polled.
An event is 12 KB and more: a producer without polls would leak 300 MB a day, hence `ProducerPool` polls those that are idle. The format:
https://github.com/confluentinc/librdkafka/blob/master/STATISTICS.md
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Receipt

from copycat_agent.errors import DataError
from copycat_agent.model import BrokerView, ClientView
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.kafka_errors import classify
from copycat_agent.producer.task_memory import ConnectionTrouble, TopicMetadata

Message = tuple[Any, ...]
"""Arguments of `produce`, in order: topic, value, key, partition, None, None, timestamp_ms (0: now), headers.

The two are its callback under two names, which nothing here uses. The end may be left out.
"""

_USUAL: Message = (None, -1, None, None)
"""Key, partition and callbacks of a message that leaves them out."""
Place = Callable[[str, int, int], None]
"""Is called with the position of an acknowledged record: topic, partition, offset."""
Report = Callable[[KafkaError | None, Receipt], None]


class ClientSpec(NamedTuple):
    """The specification of a client. `batch_bytes` 0: as the options say. `transactional_id` is "" without transactions."""

    options: KafkaOptions
    client_id: str
    batch_bytes: int = 0
    tracked: bool = False
    transactional_id: str = ""


@dataclass(slots=True)
class Connection:
    """A client and what it knows of topics, both until it is closed, and its limits.

    `flush_seconds` and `run_seconds` limit a flush and a run, `batch_bytes` one of its batches. `transaction_ms`: 0 without transactions.
    """

    client: Producer
    topics: TopicMetadata
    flush_seconds: float
    run_seconds: float
    batch_bytes: int
    transaction_ms: int

    def close(self) -> None:
        """Drops the client, whose callbacks refer to the producer: that cycle would keep its threads and connections alive."""
        self.topics.close()
        del self.topics, self.client


class ClientStatistics:
    """Holds the latest statistics of one client for the task that uses it. Used from one thread at a time."""

    def __init__(self) -> None:
        self.has_news = False
        """Whether `take` has anything to give."""
        self._said: tuple[str, float] | None = None
        self._earlier: ClientView | None = None
        self._retries_before: int | None = 0

    def hear(self, text: str) -> None:
        """Stores new statistics, which replace earlier ones that were not taken."""
        self._said, self.has_news = (text, time.time()), True

    def take(self) -> ClientView | None:
        """Returns statistics that came since the last call, None if there are none, or in an unexpected form."""
        said, self._said, self.has_news = self._said, None, False
        earlier, self._earlier = self._earlier, None
        if said is None:
            return earlier
        view = client_view(*said)
        if view is None:
            return None
        if self._retries_before is None:
            self._retries_before = view.retries
        return view._replace(retries=view.retries - self._retries_before)

    def reassign(self) -> None:
        """Hands the client over to another task.

        Its statistics of brokers hold for that task, too; its queue and retries belong to the previous one. So do retries up to the next
        statistics, whose time is unknown: from there on retries are counted for the other task.
        """
        view = self.take()
        self._earlier = view and view._replace(queue_records=0, queue_bytes=0, retries=0)
        self.has_news = view is not None
        self._retries_before = None


def client_view(text: str, at: float) -> ClientView | None:
    """Returns the statistics in `text`, received at `at` (epoch seconds); None in an unexpected form, which must not fail a batch."""
    try:
        return _view(_without_topics(text), at)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _view(said: Mapping[str, Any], at: float) -> ClientView:
    known = [one for one in said["brokers"].values() if one["source"] != "internal"]
    brokers = [one for one in known if one["nodeid"] >= 0 and _was_used(one)] or [one for one in known if one["nodeid"] < 0]
    views = tuple(sorted(_broker(one) for one in brokers))
    return ClientView(at, views, said["msg_cnt"], said["msg_size"], sum(one["txretries"] for one in known))


def _without_topics(text: str) -> dict[str, Any]:
    """Topics are left out: they come after the brokers, and with a thousand partitions they are most of the text."""
    head, found, _ = text.partition(', "topics":{')
    parsed: dict[str, Any] = json.loads(head + "}" if found else text)
    return parsed


def _was_used(broker: Mapping[str, Any]) -> bool:
    """Returns whether the client ever tried to connect to the broker. Brokers that lead none of its partitions stay unconnected."""
    return bool(broker["state"] != "INIT" or broker["connects"] or broker["disconnects"])


def _broker(broker: Mapping[str, Any]) -> BrokerView:
    """Returns the view of a broker. Its name is host:port/id, or host:port/bootstrap at first. Round trips come in microseconds."""
    window = broker["rtt"]
    name, _, _ = broker["name"].rpartition("/")
    return BrokerView(name or broker["name"], broker["state"], window["avg"] / 1000 if window["cnt"] else None)


class ClientReports:
    """Reports from a client's callbacks: failures by their code, since the last `flush`, trouble of connections, statistics."""

    def __init__(self) -> None:
        self.failures: dict[int, KafkaError] = {}
        self.trouble = ConnectionTrouble()
        self.statistics = ClientStatistics()

    def begin(self) -> None:
        """Drops earlier reports, which do not concern the next batch."""
        self.trouble.begin()
        self.failures.clear()

    def worst(self) -> KafkaError | None:
        """Returns the failure that matters most: trouble of the cluster before that of a record, and that before its neighbours'."""
        return min(self.failures.values(), key=_rank, default=None)


def _rank(error: KafkaError) -> int:
    if not issubclass(classify(error), DataError):
        return 0
    return 2 if error.code() == KafkaError._INVALID_DIFFERENT_RECORD else 1  # noqa: SLF001 - its spelling


def reported(message: Message, report: Report) -> Message:
    """Returns the message with its delivery callback."""
    topic, value, key, partition, _, _, *rest = (*message, *_USUAL[len(message) - 2 :])
    return topic, value, key, partition, report, None, *rest
