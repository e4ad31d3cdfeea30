"""Commands of Kafka's own that a fix consists of, ready to paste."""

from __future__ import annotations

import shlex

from copycat_agent.options import KafkaOptions


def create_topic(options: KafkaOptions, name: str, partitions: int = 1, more: str = "") -> str:
    """Makes a topic; `more` are further options."""
    command = f"kafka-topics.sh --bootstrap-server {_server(options)} --create --topic {shlex.quote(name)} --partitions {partitions}"
    return f"{command} {more}".rstrip()


def alter_topic(options: KafkaOptions, name: str, setting: str) -> str:
    """Sets one setting of a topic, `name=value`."""
    command = f"kafka-configs.sh --bootstrap-server {_server(options)} --alter --entity-type topics --entity-name {shlex.quote(name)}"
    return f"{command} --add-config {setting}"


def allow(options: KafkaOptions, *operations: str, topic: str) -> str:
    """Lets this user do these things to a topic."""
    return f"{_acls(options, operations)} --topic {shlex.quote(topic)}"


def allow_transactions(options: KafkaOptions, prefix: str) -> str:
    """Lets this user use transactional ids that begin so."""
    return f"{_acls(options, ('Write', 'Describe'))} --transactional-id {shlex.quote(prefix)} --resource-pattern-type prefixed"


def _acls(options: KafkaOptions, operations: tuple[str, ...]) -> str:
    principal = shlex.quote(f"User:{options.security.username or 'NAME'}")
    command = f"kafka-acls.sh --bootstrap-server {_server(options)} --add --allow-principal {principal}"
    return " ".join([command, *(f"--operation {one}" for one in operations)])


def _server(options: KafkaOptions) -> str:
    return shlex.quote(options.bootstrap_servers[0])
