"""Exactly once with a cluster that does not allow all of it: what is missing is named, and short transactions are made do with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from copycat_agent.dev_broker import DevBroker
from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.model import OffsetsPartition
from tests.rig.kafka import create_topic
from tests.rig.waiting import wait_until
from tests.unit.producer.lanes_rig import World, world

if TYPE_CHECKING:
    from collections.abc import Iterator

_DENIED = (
    (ResourceType.TOPIC, "closed-to-writers", AclOperation.WRITE),
    (ResourceType.TOPIC, "closed-to-readers", AclOperation.READ),
    (ResourceType.TOPIC, "not-there", AclOperation.CREATE),
    (ResourceType.TRANSACTIONAL_ID, "copycat.closed.", AclOperation.WRITE),
    (ResourceType.GROUP, "copycat-positions", AclOperation.READ),
    (ResourceType.GROUP, "copycat-positions", AclOperation.DESCRIBE),
    (ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE),
)


_ANYTHING: Any = None
_ANY = AclBindingFilter(ResourceType.ANY, _ANYTHING, ResourcePatternType.ANY, _ANYTHING, _ANYTHING, AclOperation.ANY, AclPermissionType.ANY)


def deny(bootstrap: str) -> None:
    """Close these to everybody, which is whom a listener without a login lets in; what else there is of them stays open."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    rules = set()
    for kind, name, operation in _DENIED:
        pattern = ResourcePatternType.LITERAL if kind == ResourceType.BROKER else ResourcePatternType.PREFIXED
        place = kind, name, pattern, "User:ANONYMOUS", "*"
        rules |= {AclBinding(*place, operation, AclPermissionType.DENY), AclBinding(*place, AclOperation.ALL, AclPermissionType.ALLOW)}
    for answer in admin.create_acls(list(rules), request_timeout=30).values():
        answer.result(30)
    wait_until(lambda: len(admin.describe_acls(_ANY).result(30)) == len(rules), 60, "the broker has heard of all of them")


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevBroker]:
    """It allows transactions of 20 s, and a few things are closed to everybody."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "transaction.max.timeout.ms": "20000",
    }
    with DevBroker(tmp_path_factory.mktemp("strict"), auto_create_topics=False, properties=properties) as broker:
        for name in ("closed-to-writers", "closed-to-readers", "offsets", "records"):
            create_topic(broker.bootstrap, name)
        deny(broker.bootstrap)
        yield broker


@pytest.fixture
def there(strict_broker: DevBroker) -> Iterator[World]:
    """A world on it, with topics that are open."""
    with world(strict_broker.bootstrap, OffsetsPartition("offsets", 0), "records") as made:
        yield made


def test_shorter_transactions_are_made_where_brokers_allow_no_longer_ones_and_no_group_is_needed(there: World) -> None:
    handle = there.begun()
    there.steps.send(handle, there.place, there.entries(b"1"))
    there.steps.flush(handle)
    there.steps.commit(handle)
    assert there.steps.transaction_seconds == 15
    assert b"1" in there.seqs()


def test_a_transactional_id_that_is_closed_is_named_with_what_to_grant(there: World) -> None:
    handle = there.steps.prepare("copycat.closed.app.0.0")
    with pytest.raises(BlockedError, match=r"taking over transactional id copycat\.closed\.app\.0\.0") as caught:
        there.steps.ready(handle)
    assert caught.value.hint == "grant this user Write and Describe on transactional ids that begin with copycat.closed."


def test_a_topic_that_is_closed_is_told_and_undoes_the_transaction(there: World) -> None:
    handle = there.begun()
    handle.send("closed-to-writers", [b"a"], ())
    with pytest.raises(BlockedError) as caught:
        handle.flush()
    assert caught.value.hint == "grant this user Write and Describe on the topic, and on __copycat_offsets"
    assert handle.broken


def test_an_offsets_topic_that_is_closed_is_told(there: World) -> None:
    with world(there.bootstrap, OffsetsPartition("closed-to-writers", 0), "records") as closed:
        handle = closed.begun()
        closed.steps.send(handle, closed.place, closed.entries(b"1"))
        with pytest.raises(BlockedError):
            closed.steps.flush(handle)


def test_an_offsets_topic_that_may_not_be_read_is_told(there: World) -> None:
    place = OffsetsPartition("closed-to-readers", 0)
    with pytest.raises(BlockedError) as caught:
        there.steps.replay(place, 0, 1)
    assert caught.value.hint == "grant this user Read, Write and Describe on the topic closed-to-readers"


def test_a_topic_that_may_not_be_made_is_told_with_the_command_that_makes_it(there: World) -> None:
    with pytest.raises(BlockedError, match="creating topic not-there") as caught:
        there.steps.ensure_topic("not-there")
    command = f"kafka-topics.sh --bootstrap-server {there.bootstrap} --create --topic not-there --partitions 25 --replication-factor 1"
    assert f"{command} --config cleanup.policy=compact" in caught.value.hint


def test_brokers_that_allow_only_very_short_transactions_are_told(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.producer.lane_producer.LEAST_TIMEOUT_MS", 60_000)
    with pytest.raises(RetriableError, match="transactional id") as caught:
        there.steps.ready(there.steps.prepare(there.id()))
    assert isinstance(caught.value, BlockedError)
    assert "transaction.max.timeout.ms" in caught.value.hint
