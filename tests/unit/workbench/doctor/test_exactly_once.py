"""What exactly once needs of a cluster is really asked for, and each thing that is lacking comes with its command."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.model import OFFSETS_TOPIC, OffsetsPartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.producer.leader_group import LeaderGroup
from copycat_agent.producer.offsets_topic import PARTITIONS
from copycat_agent.producer.probing import ClusterState, TopicState
from copycat_agent.producer.state_topic import StateTopic, topic_of
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.transactions.opening import LaneGroup as OpenedLanes
from copycat_agent.transactions.opening import OpeningPlan, open_lanes
from copycat_agent.transactions.protocol import perform
from copycat_agent.workbench.doctor import CheckStep, find_user
from copycat_agent.workbench.doctor.kafka_checks import clusters, examine_cluster
from copycat_agent.workbench.doctor.state_checks import agent_uuid, examine_state
from copycat_agent.workbench.doctor.steps import Notes
from copycat_agent.workbench.doctor.topic_checks import TRANSACTION_STATE, ClusterLanes, examine_exactly_once
from tests.rig.kafka import create_topic
from tests.rig.waiting import wait_until
from tests.unit.workbench.doctor.conftest import USER, filter_of, grant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from copycat_agent.options import KafkaOptions
    from tests.unit.workbench.doctor.conftest import Secured

AGENT = "8f7e1c52-0000-4000-8000-000000000001"
SAFE = {"cleanup.policy": "compact", "min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def definition(options: KafkaOptions, topic: str, **sections: Any) -> Definition:
    source = LogFileOptions(type="log_file", include=("/x",))
    guarantee = {"guarantee": "exactly_once"}
    return Definition.model_validate(
        {"name": "app", "source": source, "record": {"topic": topic}, "delivery": guarantee, "kafka": options} | sections
    )


def asked(options: KafkaOptions, topic: str, agent: str = AGENT) -> dict[str, CheckStep]:
    """The doctor's steps about such a connector by name; of several the last."""
    (cluster,) = clusters([definition(options, topic)], agent)
    return {step.name: step for step in examine_cluster(cluster)}


def told(
    options: KafkaOptions, *topics: TopicState, brokers: int = 3, refusal: CopycatError | None = None, of: str = ""
) -> dict[str, CheckStep]:
    """The same about a cluster as described: there is no other way to three brokers here.

    `refusal` is what it says to topics that have the setting `of`, or to all.
    """
    notes = Notes("kafka")
    state = ClusterState("id", None, None, {one.name: one for one in topics}, brokers)

    def cannot_create(_topic: str, _partitions: int, _copies: int, config: Mapping[str, str]) -> CopycatError | None:
        return refusal if of in {"", *config} else None

    examine_exactly_once(notes, options, ClusterLanes(AGENT, ["app"], {"logs"}), state, cannot_create, time.monotonic() + 60)
    return {step.name: step for step in notes.steps}


def topic_state(name: str = OFFSETS_TOPIC, *, replicas: int = 3, operations: frozenset[str] | None = None, **config: str) -> TopicState:
    settings = SAFE | {key.replace("_", "."): text for key, text in config.items()}
    return TopicState(name, partitions=25, replicas=replicas, least_in_sync=replicas, operations=operations, config=settings)


def test_a_good_cluster_says_what_it_was_asked_and_what_one_copy_means(make_options: Callable[..., KafkaOptions], topic: str) -> None:
    steps = asked(make_options(), topic)
    assert f"copycat.{AGENT}." in steps["transactions"].text
    assert {name: step.verdict for name, step in steps.items()} | {"copies": "warn"} == {
        name: "warn" if name == "copies" else "ok" for name in steps
    }
    assert topic in steps["copies"].text
    assert OFFSETS_TOPIC in steps["positions"].text


def test_connectors_that_promise_less_are_asked_for_nothing_of_it(make_options: Callable[..., KafkaOptions], topic: str) -> None:
    options = make_options()
    (cluster,) = clusters([definition(options, topic, delivery={})])
    assert not {"transactions", "positions", "copies"} & {step.name for step in examine_cluster(cluster)}


def test_where_an_agent_keeps_its_state_is_looked_at_as_positions_are(make_options: Callable[..., KafkaOptions], topic: str) -> None:
    options = make_options()
    agent = AgentOptions(agent_id=topic.replace(".", "-"), kafka=options)

    def step() -> CheckStep:
        (cluster,) = clusters([definition(options, topic, delivery={})], options=agent)
        return next(one for one in examine_cluster(cluster) if one.name == "state")

    assert (step().verdict, "the agent creates it, compacted, with 1 partition" in step().text) == ("ok", True)
    kept = StateTopic(options, topic.replace(".", "-"))
    kept.ensure()
    kept.close()
    assert (step().verdict, step().text) == ("ok", f"{kept.place.topic}: 1 partition, 1 replica")


def test_state_in_more_partitions_than_one_is_told_with_the_way_out(
    make_options: Callable[..., KafkaOptions], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    options, agent_id = make_options(), topic.replace(".", "-")
    name = create_topic(",".join(options.bootstrap_servers), topic_of(agent_id), 3, {"cleanup.policy": "compact"})
    (cluster,) = clusters([definition(options, topic, delivery={})], options=AgentOptions(agent_id=agent_id, kafka=options))
    step = next(one for one in examine_cluster(cluster) if one.name == "state")
    assert (step.verdict, "has more than one partition" in step.text, f"--delete --topic {name};" in step.fix) == ("fail", True, True)
    kept = StateTopic(options, agent_id)
    kept.ensure()
    kept.close()
    assert f"{name} has more than one partition" in caplog.text


def test_an_agent_that_never_ran_asks_with_the_prefix_of_all_agents(make_options: Callable[..., KafkaOptions], topic: str) -> None:
    assert "begin with copycat.," in asked(make_options(), topic, agent="")["transactions"].text


@pytest.mark.parametrize(
    ("state", "name", "said", "fix"),
    [
        (topic_state(cleanup_policy="delete"), "positions", "deletes what is old", "--add-config cleanup.policy=compact"),
        (topic_state(cleanup_policy="compact,delete"), "positions", "deletes what is old", "--add-config cleanup.policy=compact"),
        (topic_state(min_insync_replicas="1"), "replicas", "on one broker only", "--add-config min.insync.replicas=2"),
        (topic_state(unclean_leader_election_enable="true"), "copies", "may become leader", "unclean.leader.election.enable=false"),
        (topic_state(replicas=1, min_insync_replicas="1"), "copies", f"{OFFSETS_TOPIC} has one replica", "kafka-reassign-partitions.sh"),
        (topic_state(operations=frozenset({"READ"})), "positions", "lacks Write, Describe", "--operation Write --operation Describe"),
        (topic_state("logs", replicas=1), "copies", "logs has one replica", "kafka-reassign-partitions.sh"),
        (topic_state(TRANSACTION_STATE, unclean_leader_election_enable="true"), "copies", "may become leader", TRANSACTION_STATE),
    ],
)  # fmt: skip
def test_each_thing_that_could_lose_positions_is_told(
    make_options: Callable[..., KafkaOptions], state: TopicState, name: str, said: str, fix: str
) -> None:
    step = told(make_options(), state)[name]
    assert step.verdict in {"warn", "fail"}
    assert said in step.text
    assert fix in step.fix


def test_three_safe_copies_are_good(make_options: Callable[..., KafkaOptions]) -> None:
    steps = told(make_options(), topic_state(), topic_state("logs"), topic_state(TRANSACTION_STATE))
    assert {name: step.verdict for name, step in steps.items()} == {"transactions": "ok", "positions": "ok"}


def test_a_topic_of_positions_that_is_missing_is_made_by_the_agent_or_by_hand(make_options: Callable[..., KafkaOptions]) -> None:
    missing = TopicState(OFFSETS_TOPIC, missing=True)
    assert "creates it, compacted, with 25 partitions and 3 replicas" in told(make_options(), missing)["positions"].text
    step = told(make_options(), missing, refusal=BlockedError("not allowed"))["positions"]
    assert (step.verdict, "could not create it: not allowed" in step.text) == ("fail", True)
    assert "--partitions 25 --replication-factor 3 --config cleanup.policy=compact" in step.fix
    assert "--config min.insync.replicas=2" in step.fix
    assert told(make_options(), missing, brokers=2)["positions"].text.endswith("and 2 replicas")
    refusal = BlockedError("a policy")
    assert told(make_options(), missing, refusal=refusal, of="unclean.leader.election.enable")["positions"].verdict == "ok"
    assert told(make_options(), missing, refusal=refusal, of="min.insync.replicas")["positions"].verdict == "fail"


@pytest.fixture
def acls(secured: Secured) -> Iterator[Callable[..., None]]:
    """Grants rights to `USER`; they are taken back at the end."""
    admin = secured.admin()
    made: list[AclBinding] = []

    def give(kind: ResourceType, name: str, *operations: str, pattern: ResourcePatternType = ResourcePatternType.LITERAL) -> None:
        wanted = [
            AclBinding(kind, name, pattern, f"User:{USER}", "*", AclOperation[operation], AclPermissionType.ALLOW)
            for operation in operations
        ]
        made.extend(wanted)
        grant(admin, wanted)

    yield give
    for taken in admin.delete_acls([filter_of(one) for one in made]).values() if made else ():
        taken.result(30)


def opened(world: KafkaSteps) -> int:
    """The step that a lane is at once it is opened; 0 while that does not work yet."""
    asked_for = OpeningPlan(AGENT, OpenedLanes("app", OffsetsPartition(OFFSETS_TOPIC, 0)), (0,), "nonce", frozenset({"nonce"}))
    try:
        return perform(open_lanes(asked_for), world).heads[0].seq
    except BlockedError:
        raise
    except RetriableError:
        return 0


def test_rights_that_are_lacking_come_with_the_commands_that_grant_them_and_no_others_are_needed(
    secured: Secured, acls: Callable[..., None]
) -> None:
    acls(ResourceType.TOPIC, "elsewhere", "WRITE", "DESCRIBE")
    steps = asked(secured.options(), "elsewhere")
    assert (steps["transactions"].verdict, steps["positions"].verdict) == ("fail", "fail")
    grant = f"--operation Write --operation Describe --transactional-id copycat.{AGENT}. --resource-pattern-type prefixed"
    assert f"--allow-principal User:{USER} {grant}" in steps["transactions"].fix
    assert f"--operation Create --operation Read --operation Write --operation Describe --topic {OFFSETS_TOPIC}" in steps["positions"].fix
    acls(ResourceType.TRANSACTIONAL_ID, f"copycat.{AGENT}.", "WRITE", "DESCRIBE", pattern=ResourcePatternType.PREFIXED)
    acls(ResourceType.TOPIC, OFFSETS_TOPIC, "READ", "WRITE", "DESCRIBE")
    steps = asked(secured.options(), "elsewhere")
    assert steps["transactions"].verdict == "ok"
    assert (steps["positions"].verdict, "could not create it" in steps["positions"].text) == ("fail", True)
    acls(ResourceType.TOPIC, OFFSETS_TOPIC, "CREATE")
    assert "the agent creates it" in asked(secured.options(), "elsewhere")["positions"].text
    assert OFFSETS_TOPIC not in secured.admin().list_topics(timeout=60).topics, "asking made it"
    world = KafkaSteps(secured.options(), "test")
    try:
        assert world.ensure_topic(OFFSETS_TOPIC) == PARTITIONS
        for number in range(2):  # the second time there is something to read
            assert wait_until(lambda: opened(world), 60, "the new topic has leaders") > number
    finally:
        world.close()
    assert {asked(secured.options(), "elsewhere")[name].verdict for name in ("transactions", "positions")} == {"ok"}


def test_the_lead_of_an_agent_is_asked_for_and_kept_from_nobody(secured: Secured, acls: Callable[..., None]) -> None:
    options = secured.options()
    (cluster,) = clusters([], options=AgentOptions(agent_id="lake", kafka=options))

    def told() -> dict[str, CheckStep]:
        return {step.name: step for step in examine_cluster(cluster)}

    steps = told()
    assert (steps["lead"].verdict, "writer" in steps) == ("fail", False)
    assert f"--allow-principal User:{USER} --operation Read --group copycat.agent.lake" in steps["lead"].fix
    acls(ResourceType.GROUP, "copycat.agent.lake", "READ")
    steps = told()
    assert (steps["lead"].verdict, "nobody is in it" in steps["lead"].text, steps["writer"].verdict) == ("ok", True, "fail")
    assert steps["writer"].fix.endswith("--operation Write --operation Describe --transactional-id copycat.state.lake")
    acls(ResourceType.TRANSACTIONAL_ID, "copycat.state.lake", "WRITE", "DESCRIBE")
    acls(ResourceType.TOPIC, "__copycat_state.lake", "CREATE", "READ", "WRITE", "DESCRIBE")
    assert {told()[name].verdict for name in ("lead", "writer", "state")} == {"ok"}
    kept = StateTopic(options, "lake")
    kept.ensure()
    wait_until(lambda: _taken(kept), 60, "the state is had")
    group = LeaderGroup(options, kept.place.topic, "copycat.agent.lake")
    assert group.leads.wait(60)
    assert "not asked while an agent has it" in told()["writer"].text, "this user may not see what brokers allow"
    acls(ResourceType.BROKER, "kafka-cluster", "DESCRIBE_CONFIGS")
    steps = told()
    assert ("1 in it now" in steps["lead"].text, steps["writer"].verdict) == (True, "ok")
    kept.publish({b"k": b"v"}, dict)  # it still may
    group.close()
    kept.close()


def _taken(kept: StateTopic) -> bool:
    try:
        kept.take()
    except RetriableError:
        return False
    return True


def test_the_agents_name_is_read_from_its_state_directory_where_it_has_one(tmp_path: Path) -> None:
    assert agent_uuid(tmp_path) == ""
    with OffsetStore.open(tmp_path) as store:
        uuid = store.identity.uuid
        assert agent_uuid(tmp_path) == uuid
    (tmp_path / "identity.json").write_text("{")
    assert agent_uuid(tmp_path) == ""
    step = next(one for one in examine_state(tmp_path, tmp_path / "socket", find_user(None), []) if one.name == "identity")
    assert (step.verdict, "is damaged" in step.text, "restore it from a backup" in step.fix) == ("fail", True, True)
