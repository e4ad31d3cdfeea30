"""Leader election through a consumer group: of the processes with one agent id, the member that has partition 0 of a topic leads.

If the leader leaves the group, or sends no heartbeat for `SESSION_SECONDS`, Kafka assigns the partition to another member. The group only
decides which process may begin; the previous leader is fenced by its transactional id (`state_topic`).
"""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from copycat_agent.errors import CopycatError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.kafka_errors import creation_error, translate
from copycat_agent.producer.settings import SILENT, client_settings, invalidate_token

SESSION_SECONDS = 12.0
"""Session time-out of members: longer than a broker's restart, which must not change the leader. Brokers accept 6 s or more."""
_HEARTBEAT_SECONDS = 3.0
_LOOK_SECONDS = 0.2
TROUBLE_SECONDS = 35.0
"""How long an error counts: the client connects again every 2 s, but reports an error that stays the same only every 30 s."""


def group_of(agent_id: str) -> str:
    """The group of the processes with that id."""
    return f"copycat.agent.{agent_id}"


class LeaderGroup:
    """A member of the group, from its construction until `close`. Thread-safe."""

    def __init__(self, options: KafkaOptions, topic: str, group: str) -> None:
        """Joins in the background; the topic has to exist. Raises FatalError if the client refuses the options."""
        self._options = options
        self._group = group
        self._topic = topic
        settings: dict[str, Any] = {
            **client_settings(options), "group.id": group, "client.id": group, "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",  # the leader stays when another member joins
            "session.timeout.ms": int(SESSION_SECONDS * 1000), "heartbeat.interval.ms": int(_HEARTBEAT_SECONDS * 1000),
            "error_cb": self.on_client_error,
        }  # fmt: skip
        try:
            self._consumer = Consumer(settings, logger=SILENT)
        except KafkaException as exception:
            raise creation_error(exception.args[0]) from None
        self._closing = threading.Event()
        self.leads = threading.Event()
        """Set while this process leads, as far as it knows."""
        self.lost_leadership = threading.Event()
        """Set once it has led and another member was assigned the partition."""
        self._has_led = False
        self._trouble: tuple[CopycatError | None, float] = None, 0.0
        self._thread = threading.Thread(target=self._poll, name="leader-group", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> CopycatError | None:
        """The error because of which the group cannot be reached; None while it answers, or has given no error for `TROUBLE_SECONDS`."""
        told, until = self._trouble
        return told if time.monotonic() < until else None

    def close(self) -> None:
        """Leaves the group, so that another member leads at once."""
        self._closing.set()
        self._thread.join()
        self._consumer.close()

    def _poll(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self._lost)
        while not self._closing.is_set():
            try:
                message = self._consumer.poll(_LOOK_SECONDS)
            except KafkaException as exception:
                self.on_client_error(exception.args[0])
                self._closing.wait(_LOOK_SECONDS)
                continue
            if message is not None and (error := message.error()) is not None:
                self.on_client_error(error)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called by the client: this member gets these partitions besides those that it has."""
        self._trouble = None, 0.0
        if partitions:
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)  # they are not read
        if _is_lead(partitions):
            self._has_led = True
            self.leads.set()
        elif self._has_led and not self.leads.is_set():
            self.lost_leadership.set()

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called by the client: other members get these partitions."""
        consumer.incremental_unassign(partitions)
        if not _is_lead(partitions):
            return
        self.leads.clear()
        if not self._closing.is_set():
            self.lost_leadership.set()

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called after a session time-out, or while no broker answers: another member may lead or not."""
        consumer.incremental_unassign(partitions)
        self.leads.clear()

    def on_client_error(self, error: KafkaError) -> None:
        """Called by the client with an error of its connections or of the group."""
        invalidate_token(self._options, error)
        told = translate(error, f"joining group {self._group}")
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:  # reported only once: it stays until this member has joined
            self._trouble = told, float("inf")
        elif self._trouble[1] != float("inf"):
            self._trouble = told, time.monotonic() + TROUBLE_SECONDS


def _is_lead(partitions: list[TopicPartition]) -> bool:
    """Returns whether the partition that decides is among these. Others may have been added, which other members get."""
    return any(one.partition == 0 for one in partitions)
