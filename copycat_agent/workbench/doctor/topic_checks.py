"""The topics that a cluster's connectors write to: whether they are there, whether this user may write, whether the records fit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import NamedTuple

from copycat_agent.options import KafkaOptions, TopicOptions, format_duration, format_size
from copycat_agent.producer.probing import ClusterState, TopicState
from copycat_agent.workbench.doctor.steps import Notes

_SHORT_RETENTION_MS = 3_600_000
_COPIES = 2
"""From so many replicas on a topic survives the loss of a broker."""


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


class Want(NamedTuple):
    """What the connectors ask of a topic: how to make it, the longest record (0: any), and whether every record has a key.

    `limit` is the option of the source that says how long a record may be, `timestamps` are what `record.timestamp` of each says.
    """

    create: TopicOptions | None
    record_bytes: int
    keyed: bool
    limit: str = "line.max_bytes"
    timestamps: frozenset[str] = frozenset()


def examine_topics(notes: Notes, options: KafkaOptions, topics: Mapping[str, Want], state: ClusterState) -> None:
    """One step per topic, and one more for each thing that is not as it should be."""
    for name, want in topics.items():
        topic = state.topics.get(name)
        if topic is None:
            notes.skip("topic", f"{name}: no answer")
        elif topic.missing:
            _examine_missing(notes, options, name, want, state)
        elif topic.hidden:
            notes.fail(
                "topic",
                f"{name} is closed to this user, or does not exist: the broker does not say which",
                allow(options, "Write", "Describe", topic=name),
            )
        elif topic.error is not None:
            notes.fail("topic", topic.error.message, topic.error.hint)
        else:
            _examine_topic(notes, options, topic, want)


def _examine_missing(notes: Notes, options: KafkaOptions, name: str, want: Want, state: ClusterState) -> None:
    if want.create is not None:
        may = state.operations is None or "CREATE" in state.operations
        text = f"{name} is not there; the agent creates it with {want.create.partitions} partitions"
        if may:
            notes.ok("topic", text)
        else:
            fix = allow(options, "Create", topic=name)
            notes.warn("topic", f"{text}, but this user may not create every topic", fix)
    elif state.creates_topics:
        text = f"{name} is not there; the broker makes it with its first record (auto.create.topics.enable), as its defaults say"
        notes.warn("topic", text, create_topic(options, name))
    else:
        notes.fail(
            "topic",
            f"{name} does not exist",
            f"{create_topic(options, name)}\nor let the agent do it: kafka: {{create_topics: {{partitions: 1}}}}",
        )


def _examine_topic(notes: Notes, options: KafkaOptions, topic: TopicState, want: Want) -> None:
    config = topic.config or {}
    shown = [
        f"{topic.partitions} partition{'s' if topic.partitions != 1 else ''}",
        f"{topic.replicas} replica{'s' if topic.replicas != 1 else ''}",
    ]
    if "retention.ms" in config:
        keep = int(config["retention.ms"])
        shown.append("kept for ever" if keep < 0 else f"kept {format_duration(keep / 1000)}")
    if topic.operations is not None and "WRITE" not in topic.operations:
        notes.fail("topic", f"{topic.name}: this user may not write to it", allow(options, "Write", "Describe", topic=topic.name))
        return
    notes.ok("topic", f"{topic.name}: {', '.join(shown)}" + ("" if topic.operations is None else ", may be written to"))
    _examine_replicas(notes, topic, config)
    _examine_config(notes, options, topic, want, config)
    _examine_timestamps(notes, options, topic.name, want.timestamps, config.get("message.timestamp.type", ""))


def _examine_replicas(notes: Notes, topic: TopicState, config: Mapping[str, str]) -> None:
    least = int(config.get("min.insync.replicas", "1"))
    if topic.leaderless:
        notes.fail(
            "replicas",
            f"{topic.name}: {topic.leaderless} partitions have no leader now",
            "start the brokers that hold them",
            unreachable=True,
        )
    elif topic.replicas < least:
        text = f"{topic.name} wants {least} replicas in sync (min.insync.replicas) and has {topic.replicas}: nothing can be written"
        notes.fail("replicas", text, "add replicas, or lower the topic's min.insync.replicas")
    elif topic.least_in_sync < least:
        notes.fail(
            "replicas", f"{topic.name}: {topic.least_in_sync} replicas are in sync, {least} are needed", "start the brokers that are down"
        )
    elif topic.replicas >= _COPIES and topic.replicas == least:
        text = f"{topic.name}: min.insync.replicas is {least} of {topic.replicas} replicas: one broker down stops all writing"
        notes.warn("replicas", text, "one replica more than min.insync.replicas")
    elif topic.replicas >= _COPIES and least < _COPIES:
        text = f"{topic.name}: min.insync.replicas is 1: what is acknowledged may be on one broker only, and lost with it"
        notes.warn("replicas", text, "set the topic's min.insync.replicas to 2")


def _examine_config(notes: Notes, options: KafkaOptions, topic: TopicState, want: Want, config: Mapping[str, str]) -> None:
    largest = int(config.get("max.message.bytes", "0"))
    if 0 < largest < want.record_bytes:
        text = f"{topic.name} takes {largest:,} bytes at once (after compression), {want.limit} is {format_size(want.record_bytes)}"
        fix = f"{alter_topic(options, topic.name, f'max.message.bytes={want.record_bytes + 1024}')}\nor lower source.{want.limit}"
        notes.warn("size", text, fix)
    if "compact" in config.get("cleanup.policy", "") and not want.keyed:
        text = f"{topic.name} is compacted, and records without a key are refused there"
        notes.fail("compaction", text, "set record.key, or write to another topic")
    keep = int(config.get("retention.ms", "-1"))
    if 0 <= keep < _SHORT_RETENTION_MS:
        notes.warn(
            "retention",
            f"{topic.name} keeps records for {format_duration(keep / 1000)} only",
            alter_topic(options, topic.name, "retention.ms=604800000"),
        )


def _examine_timestamps(notes: Notes, options: KafkaOptions, name: str, wanted: frozenset[str], kept: str) -> None:
    own = sorted(wanted & {"event", "file"})
    if kept == "CreateTime" and "broker" in wanted:
        text = f"{name} keeps the time of sending (message.timestamp.type=CreateTime), and record.timestamp is broker"
        notes.warn("timestamp", text, alter_topic(options, name, "message.timestamp.type=LogAppendTime"))
    elif kept == "LogAppendTime" and own:
        text = f"{name} replaces the time of every record by the broker's (message.timestamp.type=LogAppendTime); "
        fix = f"{alter_topic(options, name, 'message.timestamp.type=CreateTime')}\nor set record.timestamp: broker"
        notes.warn("timestamp", f"{text}record.timestamp is {' and '.join(own)}", fix)
