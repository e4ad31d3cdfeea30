"""The client that a producer sends with: what it is made from and takes, what belongs to it while it is open, what it has reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Receipt

from copycat_agent.errors import DataError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.kafka_errors import classify
from copycat_agent.producer.learnt import ConnectionTrouble, Topics
from copycat_agent.producer.statistics import ClientStatistics

Message = tuple[Any, ...]
"""Arguments of `produce`, in order: topic, value, key, partition, None, None, timestamp_ms (0: now), headers.

The two are its callback under two names, which nothing here uses. The end may be left out.
"""

_USUAL: Message = (None, -1, None, None)
"""Key, partition and callbacks of a message that leaves them out."""
Place = Callable[[str, int, int], None]
"""Hears where a record came to lie: topic, partition, offset."""
Report = Callable[[KafkaError | None, Receipt], None]


class ClientSpec(NamedTuple):
    """What a client is made from. `batch_bytes` 0: as the options say. `transactional_id` is "" without transactions."""

    options: KafkaOptions
    client_id: str
    batch_bytes: int = 0
    tracked: bool = False
    transactional_id: str = ""


@dataclass(slots=True)
class Connection:
    """A client and what it knows of topics, both until it is closed, and its limits.

    A flush and a run may take so long; one of the client's batches has at most `batch_bytes`. `transaction_ms` is 0 without transactions.
    """

    client: Producer
    topics: Topics
    flush_seconds: float
    run_seconds: float
    batch_bytes: int
    transaction_ms: int

    def close(self) -> None:
        """Let go of the client, whose callbacks hold the producer: a ring that would keep its threads and connections alive."""
        self.topics.close()
        del self.topics, self.client


class ClientReports:
    """What a client has said through its callbacks: failures by their code, since the last `flush`, trouble of connections, statistics."""

    def __init__(self) -> None:
        self.failures: dict[int, KafkaError] = {}
        self.trouble = ConnectionTrouble()
        self.statistics = ClientStatistics()

    def begin(self) -> None:
        """What was said before is of no interest to the next batch."""
        self.trouble.begin()
        self.failures.clear()

    def worst(self) -> KafkaError | None:
        """Returns the failure that matters most: trouble of the cluster before that of a record."""
        trouble = (error for error in self.failures.values() if not issubclass(classify(error), DataError))
        return next(trouble, None) or next(iter(self.failures.values()), None)


def reported(message: Message, report: Report) -> Message:
    """The message with its callback."""
    topic, value, key, partition, _, _, *rest = (*message, *_USUAL[len(message) - 2 :])
    return topic, value, key, partition, report, None, *rest
