"""A real one-node Kafka for trying things out and for the tests: no docker, only the Java that Spark needs anyway.

Beside the standard library it needs the jars inside PySpark (found, never imported) and, once, the network.
"""

from __future__ import annotations

from copycat_agent.dev_broker.broker import DevBroker, free_port
from copycat_agent.dev_broker.jars import KAFKA_VERSION, cache_dir, fetch_kafka

__all__ = ["KAFKA_VERSION", "DevBroker", "cache_dir", "fetch_kafka", "free_port"]
