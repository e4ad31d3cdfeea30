"""Kafka through confluent_kafka, which only this package imports: sends records and reports their outcome."""

from __future__ import annotations

from copycat_agent.producer.client import Message, Place
from copycat_agent.producer.kafka_errors import RefusedRecordError
from copycat_agent.producer.producer_pool import ProducerPool
from copycat_agent.producer.task_producer import ReplacementGuard, TaskProducer

__all__ = ["Message", "Place", "ProducerPool", "RefusedRecordError", "ReplacementGuard", "TaskProducer"]
