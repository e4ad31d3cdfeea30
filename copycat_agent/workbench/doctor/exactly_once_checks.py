"""What `delivery.guarantee: exactly_once` needs of a cluster: transactions, the topic of positions, more than one copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from copycat_agent.definitions.kafka_rules import TRANSACTION_MS
from copycat_agent.errors import BlockedError, CopycatError, FatalError
from copycat_agent.model import OFFSETS_TOPIC
from copycat_agent.offsets.agent_identity import load
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.offsets_topic import MOST_REPLICAS, PARTITIONS, topic_configs
from copycat_agent.producer.probing import ClusterState, TopicState, probe_transactions
from copycat_agent.workbench.doctor.steps import Notes, names
from copycat_agent.workbench.doctor.topic_checks import allow, allow_transactions, alter_topic, create_topic

TRANSACTION_STATE = "__transaction_state"
"""Where the brokers keep who is in which transaction."""
_NEEDED = ("READ", "WRITE", "DESCRIBE")


@dataclass(slots=True)
class ClusterLanes:
    """The connectors of one cluster that promise exactly once, and their topics. `agent`: this agent's uuid, "" while it has none."""

    agent: str = ""
    connectors: list[str] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)

    @property
    def prefix(self) -> str:
        """How all transactional ids of this agent begin."""
        return f"copycat.{self.agent}." if self.agent else "copycat."

    def asked_topics(self) -> tuple[str, ...]:
        """What else is to be asked of the cluster."""
        return (OFFSETS_TOPIC, TRANSACTION_STATE) if self.connectors else ()


def agent_uuid(state_dir: Path) -> str:
    """That of the agent whose state directory this is, "" when it has none yet, or it may not be read."""
    try:
        kept = load(state_dir)
    except FatalError:
        return ""
    return "" if kept is None else kept.uuid


Refusal = Callable[[str, int, int, Mapping[str, str]], CopycatError | None]
"""`ClusterProbe.cannot_create`."""


def examine_exactly_once(
    notes: Notes, options: KafkaOptions, lanes: ClusterLanes, state: ClusterState, cannot_create: Refusal, deadline: float
) -> None:
    """Steps for all such connectors of a cluster together; none when there are none. `deadline` is `time.monotonic()`'s."""
    if not lanes.connectors:
        return
    _examine_transactions(notes, options, lanes, state, deadline)
    _examine_positions(notes, options, state, cannot_create)
    _examine_copies(notes, options, [*sorted(lanes.topics), OFFSETS_TOPIC, TRANSACTION_STATE], state)


def _examine_transactions(notes: Notes, options: KafkaOptions, lanes: ClusterLanes, state: ClusterState, deadline: float) -> None:
    """Really asked for: an ACL that is there may be of another host or prefix, and an authorizer may be anything."""
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


def _examine_positions(notes: Notes, options: KafkaOptions, state: ClusterState, cannot_create: Refusal) -> None:
    topic = state.topics.get(OFFSETS_TOPIC)
    if topic is None or (topic.error is not None and not topic.missing and not topic.hidden):
        why = topic.error.message if topic is not None and topic.error is not None else "no answer"
        notes.skip("positions", f"{OFFSETS_TOPIC}: {why}")
    elif topic.missing:
        _examine_missing(notes, options, state, cannot_create)
    elif topic.hidden:
        notes.fail(
            "positions", f"{OFFSETS_TOPIC} is closed to this user, or does not exist: the broker does not say which", _ways(options, state)
        )
    else:
        _examine_topic(notes, options, topic)


def _examine_missing(notes: Notes, options: KafkaOptions, state: ClusterState, cannot_create: Refusal) -> None:
    """The broker judges the very requests that the agent would make."""
    config, fewer = topic_configs(_copies(state))
    error = cannot_create(OFFSETS_TOPIC, PARTITIONS, _copies(state), config)
    if error is not None and cannot_create(OFFSETS_TOPIC, PARTITIONS, _copies(state), fewer) is None:
        error = None
    text = f"{OFFSETS_TOPIC} is not there"
    if error is None:
        made = f"compacted, with {PARTITIONS} partitions and {_copies(state)} replica{'s' if _copies(state) > 1 else ''}"
        notes.ok("positions", f"{text}; the agent creates it, {made}")
    else:
        notes.fail("positions", f"{text}, and the agent could not create it: {error.message}", _ways(options, state))


def _copies(state: ClusterState) -> int:
    return max(1, min(MOST_REPLICAS, state.brokers))


def _ways(options: KafkaOptions, state: ClusterState) -> str:
    """Make it by hand and let this user use it, or let it make it."""
    settings = " ".join(f"--config {name}={text}" for name, text in topic_configs(_copies(state))[0].items())
    return (
        f"{create_topic(options, OFFSETS_TOPIC, PARTITIONS, f'--replication-factor {_copies(state)} {settings}')}\n"
        f"{allow(options, 'Read', 'Write', 'Describe', topic=OFFSETS_TOPIC)}\n"
        f"or let the agent make it: {allow(options, 'Create', 'Read', 'Write', 'Describe', topic=OFFSETS_TOPIC)}"
    )


def _examine_topic(notes: Notes, options: KafkaOptions, topic: TopicState) -> None:
    config = topic.config or {}
    policy = config.get("cleanup.policy", "compact")
    lacking = [] if topic.operations is None else [one for one in _NEEDED if one not in topic.operations]
    if lacking:
        words = f"{OFFSETS_TOPIC}: this user lacks {', '.join(one.capitalize() for one in lacking)}"
        notes.fail("positions", words, allow(options, *(one.capitalize() for one in lacking), topic=OFFSETS_TOPIC))
    elif policy != "compact":
        words = (
            f"{OFFSETS_TOPIC} deletes what is old (cleanup.policy={policy}): positions in it would be lost, and connectors refuse to start"
        )
        notes.fail("positions", words, alter_topic(options, OFFSETS_TOPIC, "cleanup.policy=compact"))
    else:
        notes.ok(
            "positions", f"{OFFSETS_TOPIC}: {topic.partitions} partitions, {topic.replicas} replica{'s' if topic.replicas != 1 else ''}"
        )
    _examine_in_sync(notes, options, topic, config)


def _examine_in_sync(notes: Notes, options: KafkaOptions, topic: TopicState, config: Mapping[str, str]) -> None:
    least = int(config.get("min.insync.replicas", "1"))
    if topic.leaderless or topic.least_in_sync < least:
        words = (
            f"{topic.name}: {topic.least_in_sync} replicas are in sync, {least} are needed"
            if not topic.leaderless
            else (f"{topic.name}: {topic.leaderless} partitions have no leader now")
        )
        notes.fail("replicas", words, "start the brokers that are down", unreachable=True)
    elif topic.replicas > 1 and least == 1:
        words = f"{topic.name}: min.insync.replicas is 1: a position that is acknowledged may be on one broker only, and lost with it"
        notes.warn("replicas", words, alter_topic(options, topic.name, "min.insync.replicas=2"))


def _examine_copies(notes: Notes, options: KafkaOptions, wanted: Iterable[str], state: ClusterState) -> None:
    """What can take acknowledged records away from topics that exactly once depends on."""
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
