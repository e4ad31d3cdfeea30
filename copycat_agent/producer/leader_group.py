"""Which of the processes with one agent id leads: the one that has the only partition of a topic in a consumer group.

Kafka decides: when the leader leaves the group, or is not heard of for `SESSION_SECONDS`, another member gets the partition. The group
says who may begin; that who led before saves nothing any more is the affair of its transactional id (`state_topic`).
"""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from copycat_agent.errors import BlockedError, CopycatError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.kafka_errors import not_made, translate
from copycat_agent.producer.settings import SILENT, client_settings, distrust_token

SESSION_SECONDS = 12.0
"""Longer than a broker takes to start again: else the lead would change with that. Brokers take 6 s at least."""
_HEARTBEAT_SECONDS = 3.0
_LOOK_SECONDS = 0.2


def group_of(agent_id: str) -> str:
    """The group of the processes with that id."""
    return f"copycat.agent.{agent_id}"


class LeaderGroup:
    """A member of the group, from when it is made until it is closed. Thread-safe."""

    def __init__(self, options: KafkaOptions, topic: str, group: str) -> None:
        """Joins behind the caller's back; the topic is there. Raises FatalError when there is no client with these options."""
        self._options = options
        self._group = group
        self._topic = topic
        settings: dict[str, Any] = {
            **client_settings(options), "group.id": group, "client.id": group, "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",  # who leads goes on leading when another one joins
            "session.timeout.ms": int(SESSION_SECONDS * 1000), "heartbeat.interval.ms": int(_HEARTBEAT_SECONDS * 1000),
            "error_cb": self._heard,
        }  # fmt: skip
        try:
            self._consumer = Consumer(settings, logger=SILENT)
        except KafkaException as exception:
            raise not_made(exception.args[0]) from None
        self._closing = threading.Event()
        self.leads = threading.Event()
        """Set while this process leads, as far as it knows."""
        self.deposed = threading.Event()
        """Set once it has led and another one got the partition."""
        self._has_led = False
        self._trouble: CopycatError | None = None
        self._thread = threading.Thread(target=self._poll, name="leader-group", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> CopycatError | None:
        """Why nobody can be asked who leads, None while the group answers."""
        return self._trouble

    def close(self) -> None:
        """Leave the group: another member leads at once."""
        self._closing.set()
        self._thread.join()
        self._consumer.close()

    def _poll(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        while not self._closing.is_set():
            try:
                message = self._consumer.poll(_LOOK_SECONDS)
            except KafkaException as exception:
                self._heard(exception.args[0])
                self._closing.wait(_LOOK_SECONDS)
                continue
            if message is not None and (error := message.error()) is not None:
                self._heard(error)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._trouble = None
        if partitions:
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)  # they are not read
            self._has_led = True
            self.leads.set()
        elif self._has_led and not self.leads.is_set():
            self.deposed.set()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        self.leads.clear()
        if not self._closing.is_set():
            self.deposed.set()

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The group has not heard of this process for too long, or no broker answers: whether another one leads is not known yet."""
        consumer.incremental_unassign(partitions)
        self.leads.clear()

    def _heard(self, error: KafkaError) -> None:
        distrust_token(self._options, error)
        told = translate(error, f"joining group {self._group}")
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            told = BlockedError(told.message, f"grant this user Read on the group {self._group}")
        self._trouble = told
