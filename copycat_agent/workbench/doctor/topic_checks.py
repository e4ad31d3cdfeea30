"""Checks a cluster's topics: those of records and, with exactly_once, those of positions and transactions.

The topics have to exist or be creatable, this user has to be allowed to write, and records have to fit and be kept. Each problem is a step.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from copycat_agent.definitions.kafka_rules import TRANSACTION_MS
from copycat_agent.errors import BlockedError, CopycatError, FatalError
from copycat_agent.model import OFFSETS_TOPIC
from copycat_agent.options import KafkaOptions, TopicOptions, format_duration, format_size
from copycat_agent.producer.offsets_topic import MOST_REPLICAS, PARTITIONS, topic_configs
from copycat_agent.producer.probing import ClusterState, TopicState, probe_transactions
from copycat_agent.producer.state_topic import MANY_PARTITIONS, single_partition_hint
from copycat_agent.workbench.doctor.steps import Notes, names

_SHORT_RETENTION_MS = 3_600_000
_COPIES = 2  # least replicas with which a topic survives the loss of a broker


def create_topic(options: KafkaOptions, name: str, partitions: int = 1, more: str = "") -> str:
    """Returns the command that creates a topic; `more` are further options."""
    command = f"kafka-topics.sh --bootstrap-server {_server(options)} --create --topic {shlex.quote(name)} --partitions {partitions}"
    return f"{command} {more}".rstrip()


def alter_topic(options: KafkaOptions, name: str, setting: str) -> str:
    """Returns the command that changes one setting of a topic, `name=value`."""
    command = f"kafka-configs.sh --bootstrap-server {_server(options)} --alter --entity-type topics --entity-name {shlex.quote(name)}"
    return f"{command} --add-config {setting}"


def allow(options: KafkaOptions, *operations: str, topic: str) -> str:
    """Returns the command that grants this user operations on a topic."""
    return f"{_acls(options, operations)} --topic {shlex.quote(topic)}"


def allow_transactions(options: KafkaOptions, prefix: str) -> str:
    """Returns the command that grants this user transactional ids with this prefix."""
    return f"{allow_id(options, prefix)} --resource-pattern-type prefixed"


def allow_id(options: KafkaOptions, transactional_id: str) -> str:
    """Returns the command that grants this user one transactional id."""
    return f"{_acls(options, ('Write', 'Describe'))} --transactional-id {shlex.quote(transactional_id)}"


def allow_group(options: KafkaOptions, group: str) -> str:
    """Returns the command that grants this user membership in a consumer group."""
    return f"{_acls(options, ('Read',))} --group {shlex.quote(group)}"


def _acls(options: KafkaOptions, operations: tuple[str, ...]) -> str:
    principal = shlex.quote(f"User:{options.security.username or 'NAME'}")
    command = f"kafka-acls.sh --bootstrap-server {_server(options)} --add --allow-principal {principal}"
    return " ".join([command, *(f"--operation {one}" for one in operations)])


def _server(options: KafkaOptions) -> str:
    return shlex.quote(options.bootstrap_servers[0])


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


class TopicRequirement(NamedTuple):
    """The requirements of connectors for a topic: how to create it, the longest record (0: any), and whether every record has a key.

    `limit` is the option of the source that limits records, `timestamps` are the values of `record.timestamp`.
    """

    create: TopicOptions | None
    record_bytes: int
    keyed: bool
    limit: str = "line.max_bytes"
    timestamps: frozenset[str] = frozenset()


def examine_topics(notes: Notes, options: KafkaOptions, topics: Mapping[str, TopicRequirement], state: ClusterState) -> None:
    """Adds one step per topic, and one more for each problem."""
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


def _examine_missing(notes: Notes, options: KafkaOptions, name: str, want: TopicRequirement, state: ClusterState) -> None:
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


def _examine_topic(notes: Notes, options: KafkaOptions, topic: TopicState, want: TopicRequirement) -> None:
    config = topic.config or {}
    shown = [_counted(topic.partitions, "partition"), _counted(topic.replicas, "replica")]
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


def _examine_config(notes: Notes, options: KafkaOptions, topic: TopicState, want: TopicRequirement, config: Mapping[str, str]) -> None:
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


class KeptTopic(NamedTuple):
    """A compacted topic of the agent itself: its number of partitions at creation, and the name of its step."""

    name: str
    partitions: int
    step: str


TRANSACTION_STATE = "__transaction_state"
"""The brokers' topic of transactions."""
_NEEDED = ("READ", "WRITE", "DESCRIBE")


@dataclass(slots=True)
class ClusterLanes:
    """The exactly-once connectors of one cluster, and their topics. `agent`: this agent's uuid, "" while it has none."""

    agent: str = ""
    connectors: list[str] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)

    @property
    def prefix(self) -> str:
        """Returns the prefix of all transactional ids of this agent."""
        return f"copycat.{self.agent}." if self.agent else "copycat."

    def asked_topics(self) -> tuple[str, ...]:
        """Returns the further topics that have to be described."""
        return (OFFSETS_TOPIC, TRANSACTION_STATE) if self.connectors else ()


Refusal = Callable[[str, int, int, Mapping[str, str]], CopycatError | None]
"""The type of `ClusterProbe.cannot_create`."""


def examine_exactly_once(
    notes: Notes, options: KafkaOptions, lanes: ClusterLanes, state: ClusterState, cannot_create: Refusal, deadline: float
) -> None:
    """Adds the steps of all exactly-once connectors of a cluster together; none without any. `deadline` is `time.monotonic()`'s."""
    if not lanes.connectors:
        return
    _examine_transactions(notes, options, lanes, state, deadline)
    examine_kept(notes, options, KeptTopic(OFFSETS_TOPIC, PARTITIONS, "positions"), state, cannot_create)
    _examine_copies(notes, options, [*sorted(lanes.topics), OFFSETS_TOPIC, TRANSACTION_STATE], state)


def _examine_transactions(notes: Notes, options: KafkaOptions, lanes: ClusterLanes, state: ClusterState, deadline: float) -> None:
    """Checks transactions by initializing an id: ACLs may be of another host or prefix, and an authorizer may follow other rules."""
    try:
        probe_transactions(options, f"{lanes.prefix}doctor", TRANSACTION_MS, deadline)
    except BlockedError as error:
        notes.fail("transactions", error.message, error.hint or allow_transactions(options, lanes.prefix))
    except FatalError as error:
        notes.fail("transactions", error.message, error.hint or "upgrade the brokers, or set delivery.guarantee: at_least_once")
    except CopycatError as error:
        copies = state.settings.get("transaction.state.log.replication.factor", "3")
        fix = error.hint or (
            f"is one of the {state.brokers} brokers down? {TRANSACTION_STATE} wants {copies} of them "
            "(transaction.state.log.replication.factor of the brokers)"
        )
        notes.fail("transactions", f"{error.message}: no broker coordinates transactions", fix, unreachable=True)
    else:
        notes.ok("transactions", f"this user may begin them with ids that begin with {lanes.prefix}, for {TRANSACTION_MS // 1000} s each")


def examine_kept(notes: Notes, options: KafkaOptions, kept: KeptTopic, state: ClusterState, cannot_create: Refusal) -> None:
    """Checks a topic that the agent itself creates and reads."""
    topic = state.topics.get(kept.name)
    if topic is None or (topic.error is not None and not topic.missing and not topic.hidden):
        why = topic.error.message if topic is not None and topic.error is not None else "no answer"
        notes.skip(kept.step, f"{kept.name}: {why}")
    elif topic.missing:
        _examine_missing_kept(notes, options, kept, state, cannot_create)
    elif topic.hidden:
        notes.fail(
            kept.step, f"{kept.name} is closed to this user, or does not exist: the broker does not say which", _ways(options, kept, state)
        )
    else:
        _examine_kept_topic(notes, options, kept, topic)


def _examine_missing_kept(notes: Notes, options: KafkaOptions, kept: KeptTopic, state: ClusterState, cannot_create: Refusal) -> None:
    """Checks that the agent could create the topic: the broker validates the same requests that the agent would send."""
    config, fewer = topic_configs(_copies(state))
    error = cannot_create(kept.name, kept.partitions, _copies(state), config)
    if error is not None and cannot_create(kept.name, kept.partitions, _copies(state), fewer) is None:
        error = None
    text = f"{kept.name} is not there"
    if error is None:
        made = f"compacted, with {_counted(kept.partitions, 'partition')} and {_counted(_copies(state), 'replica')}"
        notes.ok(kept.step, f"{text}; the agent creates it, {made}")
    else:
        notes.fail(kept.step, f"{text}, and the agent could not create it: {error.message}", _ways(options, kept, state))


def _copies(state: ClusterState) -> int:
    return max(1, min(MOST_REPLICAS, state.brokers))


def _ways(options: KafkaOptions, kept: KeptTopic, state: ClusterState) -> str:
    """Returns the commands that create the topic and grant its use, or grant its creation."""
    settings = " ".join(f"--config {name}={text}" for name, text in topic_configs(_copies(state))[0].items())
    return (
        f"{create_topic(options, kept.name, kept.partitions, f'--replication-factor {_copies(state)} {settings}')}\n"
        f"{allow(options, 'Read', 'Write', 'Describe', topic=kept.name)}\n"
        f"or let the agent make it: {allow(options, 'Create', 'Read', 'Write', 'Describe', topic=kept.name)}"
    )


def _examine_kept_topic(notes: Notes, options: KafkaOptions, kept: KeptTopic, topic: TopicState) -> None:
    config = topic.config or {}
    policy = config.get("cleanup.policy", "compact")
    lacking = [] if topic.operations is None else [one for one in _NEEDED if one not in topic.operations]
    if lacking:
        words = f"{kept.name}: this user lacks {', '.join(one.capitalize() for one in lacking)}"
        notes.fail(kept.step, words, allow(options, *(one.capitalize() for one in lacking), topic=kept.name))
    elif policy != "compact":
        words = f"{kept.name} deletes what is old (cleanup.policy={policy}): positions in it would be lost, and connectors refuse to start"
        notes.fail(kept.step, words, alter_topic(options, kept.name, "cleanup.policy=compact"))
    elif kept.partitions == 1 != topic.partitions:
        notes.fail(kept.step, f"{kept.name} {MANY_PARTITIONS}", single_partition_hint(options, kept.name))
    else:
        notes.ok(
            kept.step,
            f"{kept.name}: {_counted(topic.partitions, 'partition')}, {_counted(topic.replicas, 'replica')}",
        )
    _examine_in_sync(notes, options, topic, config)


def _examine_in_sync(notes: Notes, options: KafkaOptions, topic: TopicState, config: Mapping[str, str]) -> None:
    least = int(config.get("min.insync.replicas", "1"))
    if topic.leaderless or topic.least_in_sync < least:
        few = f"{topic.leaderless} partitions have no leader now" if topic.leaderless else f"{topic.least_in_sync} replicas are in sync"
        words = f"{topic.name}: {few}" + ("" if topic.leaderless else f", {least} are needed")
        notes.fail("replicas", words, "start the brokers that are down", unreachable=True)
    elif topic.replicas > 1 and least == 1:
        words = f"{topic.name}: min.insync.replicas is 1: a position that is acknowledged may be on one broker only, and lost with it"
        notes.warn("replicas", words, alter_topic(options, topic.name, "min.insync.replicas=2"))


def _examine_copies(notes: Notes, options: KafkaOptions, wanted: Iterable[str], state: ClusterState) -> None:
    """Checks for settings with which topics that exactly once depends on can lose acknowledged records."""
    there = [topic for name in wanted if (topic := state.topics.get(name)) is not None and topic.error is None]
    single = [topic.name for topic in there if topic.replicas == 1]
    if single:
        fix = "give them three replicas, with kafka-reassign-partitions.sh" + ("" if state.brokers > 1 else ", once there are more brokers")
        have = "has" if len(single) == 1 else "have"
        notes.warn("copies", f"{names(single)} {have} one replica: what its broker loses is lost or repeated, exactly_once or not", fix)
    unclean = [topic.name for topic in there if (topic.config or {}).get("unclean.leader.election.enable") == "true"]
    if unclean:
        text = f"{names(unclean)}: a replica that lacks acknowledged records may become leader (unclean.leader.election.enable)"
        fix = "\n".join(alter_topic(options, name, "unclean.leader.election.enable=false") for name in unclean)
        notes.warn("copies", text, fix)
