"""Checks Kafka clusters, layer by layer: the first layer that fails explains the rest."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from copycat_agent.errors import BlockedError, CopycatError, FatalError, RetriableError
from copycat_agent.oauth import where_of
from copycat_agent.options import AgentOptions, Definition, KafkaOptions, SourceOptions, TopicOptions
from copycat_agent.producer.leader_group import group_of
from copycat_agent.producer.probing import NO_TRANSACTION_MS, ClusterProbe, ClusterState, may_write_as
from copycat_agent.producer.state_topic import topic_of, transactional_id_of
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.templates import compile_template
from copycat_agent.workbench.doctor.network import Broker, NetworkTrouble, meet, reach, split_address
from copycat_agent.workbench.doctor.steps import CheckStep, Notes, names, side_by_side
from copycat_agent.workbench.doctor.topic_checks import (
    ClusterLanes,
    KeptTopic,
    TopicRequirement,
    allow_group,
    allow_id,
    examine_exactly_once,
    examine_kept,
    examine_topics,
)

CLUSTER_SECONDS = 12.0
"""Time limit for one cluster; clusters are checked in parallel."""
_ADVERTISED_SECONDS = 2.0
_ADVERTISED_MAX = 12
_LAYERS = ("dns", "tcp", "tls", "kafka", "sasl")


@dataclass(slots=True)
class Cluster:
    """A cluster as some connectors see it: one set of addresses and logins."""

    options: KafkaOptions
    connectors: list[str] = field(default_factory=list)
    topics: dict[str, TopicRequirement] = field(default_factory=dict)
    templates: list[str] = field(default_factory=list)
    lanes: ClusterLanes = field(default_factory=ClusterLanes)
    agent_id: str | None = None
    """The agent's id if it keeps its state in this cluster."""

    @property
    def section(self) -> str:
        """Returns the section name of its steps."""
        user = self.options.masked()["security"]["username"]  # a name from ${file:} is a secret too
        return f"kafka {','.join(self.options.bootstrap_servers)}" + (f" as {user}" if user else "")


def clusters(definitions: Iterable[Definition], agent: str = "", options: AgentOptions | None = None) -> list[Cluster]:
    """Returns the distinct clusters, with the topics their connectors write to. `agent` is this agent's uuid, "" when it has none yet.

    `options` say where it keeps its state.
    """
    found: list[Cluster] = []

    def known(kafka: KafkaOptions) -> Cluster:
        key = kafka.model_copy(update={"create_topics": None})
        if (cluster := next((one for one in found if one.options == key), None)) is None:
            found.append(cluster := Cluster(key, lanes=ClusterLanes(agent)))
        return cluster

    for definition in definitions:
        cluster = known(definition.kafka)
        cluster.connectors.append(definition.name)
        _add_topics(cluster, definition)
    if options is not None and options.agent_id is not None:
        known(options.kafka).agent_id = options.agent_id
    return found


def _add_topics(cluster: Cluster, definition: Definition) -> None:
    create, most, record = definition.kafka.create_topics, _most_bytes(definition.source), definition.record
    if not definition.sink.has_topics:
        _add_dead_letters(cluster, definition)
        return
    topic = compile_template(record.topic)
    topics = [topic.literal_prefix] if topic.is_literal else [*record.allowed_topics]
    if not topic.is_literal:
        cluster.templates.append(f"{definition.name}: {record.topic}")
    for name in topics:
        _want(cluster, name, create, most, keyed=record.key is not None, timestamp=record.timestamp)
    topics += _add_dead_letters(cluster, definition)
    if definition.delivery.guarantee == "exactly_once":
        cluster.lanes.connectors.append(definition.name)
        cluster.lanes.topics.update(topics)


def _add_dead_letters(cluster: Cluster, definition: Definition) -> list[str]:
    """Returns the dead-letter topic, if there is one."""
    if definition.errors.dlq is None:
        return []
    _want(cluster, definition.errors.dlq.topic, definition.kafka.create_topics, (0, ""), keyed=True)
    return [definition.errors.dlq.topic]


def _most_bytes(source: SourceOptions) -> tuple[int, str]:
    """Returns the longest record in bytes, 0 for any length, and the option that limits it."""
    if not isinstance(source, LogFileOptions):
        return 0, ""
    return (source.line.max_bytes, "line.max_bytes") if source.multiline is None else (source.multiline.max_bytes, "multiline.max_bytes")


def _want(cluster: Cluster, topic: str, create: TopicOptions | None, most: tuple[int, str], *, keyed: bool, timestamp: str = "") -> None:
    known = cluster.topics.get(topic, TopicRequirement(create, 0, keyed=True))
    size, limit = max((known.record_bytes, known.limit), most)
    timestamps = known.timestamps | ({timestamp} if timestamp else frozenset())
    cluster.topics[topic] = TopicRequirement(known.create or create, size, keyed=known.keyed and keyed, limit=limit, timestamps=timestamps)


def examine_clusters(found: Sequence[Cluster]) -> list[CheckStep]:
    """Returns the steps of all clusters, which are checked in parallel, each within `CLUSTER_SECONDS`."""
    return [step for steps in side_by_side(examine_cluster, found, "cluster") for step in steps]


def examine_cluster(cluster: Cluster) -> list[CheckStep]:
    """Returns the steps of one cluster, from the lowest layer up."""
    notes = Notes(cluster.section)
    deadline = time.monotonic() + CLUSTER_SECONDS
    if not cluster.options.bootstrap_servers:
        fix = "set kafka.bootstrap_servers in agent.yaml or --bootstrap-servers; for a trial: copycat dev-broker"
        notes.fail("address", f"no Kafka address is known for {names(cluster.connectors or ['the state of the agent'])}", fix)
        return notes.steps
    if not _examine_addresses(notes, cluster.options):
        notes.not_asked("login", "topics")
        return notes.steps
    try:
        opened = ClusterProbe(cluster.options, deadline)
    except FatalError as error:
        notes.fail("settings", error.message, error.hint)
        return notes.steps
    except CopycatError as error:  # no token
        notes.fail("login", error.message, error.hint)
        notes.not_asked("topics")
        return notes.steps
    with closing(opened) as probe:
        _examine_inside(notes, cluster, probe, deadline)
    return notes.steps


def _examine_inside(notes: Notes, cluster: Cluster, probe: ClusterProbe, deadline: float) -> None:
    """Checks what needs a client that is logged in."""
    state = _examine_login(notes, cluster, probe)
    if state is None:
        notes.not_asked("topics")
        return
    examine_topics(notes, cluster.options, cluster.topics, state)
    for template in cluster.templates:
        notes.skip("topic", f"{template}: made from data, so it is known with the first record only")
    examine_exactly_once(notes, cluster.options, cluster.lanes, state, probe.cannot_create, deadline)
    if cluster.agent_id is not None:
        examine_kept(notes, cluster.options, KeptTopic(topic_of(cluster.agent_id), 1, "state"), state, probe.cannot_create)
        _examine_lead(notes, cluster.options, cluster.agent_id, probe, state, deadline)


def _examine_lead(notes: Notes, options: KafkaOptions, agent_id: str, probe: ClusterProbe, state: ClusterState, deadline: float) -> None:
    """Checks whether this user may lead the processes with the agent's id. The present leader keeps the lead."""
    group, writer = group_of(agent_id), transactional_id_of(agent_id)
    try:
        found = probe.group(group)
    except CopycatError as error:
        notes.fail("lead", f"the group {group} cannot be asked for: {error.message}", error.hint, unreachable=True)
        return
    if found.operations is not None and "READ" not in found.operations:
        notes.fail("lead", f"this user lacks Read on the group {group}, which decides who leads", allow_group(options, group))
        return
    there = f"{found.members} in it now" if found.members else "nobody is in it now"
    notes.ok("lead", f"the group {group} is open to this user, {there}")
    longest = int(state.settings.get("transaction.max.timeout.ms", NO_TRANSACTION_MS))
    if found.members and longest >= NO_TRANSACTION_MS:
        notes.skip("writer", f"{writer}: not asked while an agent has it, for it might be kept out")
        return
    try:
        may_write_as(options, writer, deadline)
    except BlockedError as error:
        notes.fail("writer", f"{writer}: {error.message}", error.hint or allow_id(options, writer))
    except CopycatError as error:
        notes.fail("writer", f"{writer}: {error.message}", error.hint, unreachable=isinstance(error, RetriableError))
    else:
        notes.ok("writer", f"this user may write the state, as {writer}")


def _examine_addresses(notes: Notes, options: KafkaOptions) -> bool:
    """Checks each bootstrap address. Returns whether any answers; then those that do not are warnings."""
    addresses = options.bootstrap_servers
    met = dict(zip(addresses, side_by_side(lambda address: _meet(address, options), addresses, "address"), strict=True))
    any_good = any(isinstance(one, Broker) for one in met.values())
    for address, one in met.items():
        label = "" if len(addresses) == 1 else f"{address}: "
        if isinstance(one, Broker):
            _tell_broker(notes, label, one, options)
        elif any_good:
            notes.warn(one.layer, f"{label}{one.message}; another address answers", one.hint)
        else:
            _tell_trouble(notes, label, one)
    return any_good


def _meet(address: str, options: KafkaOptions) -> Broker | NetworkTrouble:
    try:
        return meet(address, options)
    except NetworkTrouble as trouble:
        return trouble


def _tell_broker(notes: Notes, label: str, broker: Broker, options: KafkaOptions) -> None:
    notes.ok("dns", f"{label}{broker.ip}")
    notes.ok("tcp", f"{label}connected")
    if broker.expires_soon:
        notes.warn("tls", f"{label}{broker.tls}, but the broker's certificate ends at {broker.expires_soon}", "renew it on the broker")
    elif broker.tls:
        checked = "certificate not checked" if options.client.get("enable.ssl.certificate.verification") == "false" else "certificate good"
        notes.ok("tls", f"{label}{broker.tls}, {checked}")
    if not broker.is_idempotent:
        notes.fail("kafka", f"{label}the broker is older than 0.11 and takes no idempotent producer", "upgrade it")
    else:
        notes.ok("kafka", f"{label}release {broker.release} or newer, takes idempotent producers")


def _tell_trouble(notes: Notes, label: str, trouble: NetworkTrouble) -> None:
    """Adds the failed layer, and those below it as good."""
    place = _LAYERS.index(trouble.layer)
    for layer in _LAYERS[:place]:
        if layer in ("dns", "tcp"):
            notes.ok(layer, f"{label}good")
    notes.fail(trouble.layer, f"{label}{trouble.message}", trouble.hint, unreachable=trouble.unreachable)


def _examine_login(notes: Notes, cluster: Cluster, probe: ClusterProbe) -> ClusterState | None:
    """Checks SASL and the first answers to a real client. Returns the cluster, None without an answer."""
    security = cluster.options.security
    try:
        brokers = probe.brokers()
        who = f"a token from {where_of(security.oauth)}" if security.oauth else security.username
        who = f"{security.mechanism} as {who}" if security.mechanism else f"{security.protocol}, no login"
        notes.ok("login", who)
        if not _examine_advertised(notes, cluster.options, brokers):
            return None
        own = () if cluster.agent_id is None else (topic_of(cluster.agent_id),)
        state = probe.look({*cluster.topics, *cluster.lanes.asked_topics(), *own})
    except BlockedError as error:
        notes.fail("login", error.message, error.hint)
    except CopycatError as error:
        hint = error.hint or "are the brokers overloaded, or cut off behind their first address?"
        notes.fail("cluster", error.message, hint, unreachable=True)
    else:
        notes.ok("cluster", f"{state.cluster_id or 'no id'}, {len(brokers)} broker{'s' if len(brokers) != 1 else ''}")
        return state
    return None


def _examine_advertised(notes: Notes, options: KafkaOptions, brokers: Sequence[str]) -> bool:
    """Checks the advertised addresses, which clients use after the first answer. Returns whether any can be reached."""
    others = [address for address in brokers if address not in options.bootstrap_servers][:_ADVERTISED_MAX]
    if not others:
        return True
    bad = [why for why in side_by_side(_cannot_reach, others, "advertised") if why]
    if bad:
        fix = "correct advertised.listeners on the brokers, or make these addresses reachable from this host"
        notes.fail("advertised", f"the brokers tell their clients addresses that do not answer: {names(bad)}", fix, unreachable=True)
    else:
        notes.ok("advertised", f"{names(others)} can be reached")
    return len(bad) < len(brokers)


def _cannot_reach(address: str) -> str:
    try:
        reach(*split_address(address), _ADVERTISED_SECONDS)[0].close()
    except NetworkTrouble as trouble:
        return trouble.message
    return ""
