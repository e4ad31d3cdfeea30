"""Who leads by the group of an agent's processes, and which errors of it still count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from copycat_agent.errors import BlockedError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import leader_group
from copycat_agent.producer.leader_group import LeaderGroup
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.dev_broker import DevBroker


@pytest.fixture
def member(broker: DevBroker, topic: str) -> Iterator[LeaderGroup]:
    """The only member of a group."""
    found = LeaderGroup(KafkaOptions(bootstrap_servers=(broker.bootstrap,)), topic, f"g.{topic}")
    yield found
    found.close()


@pytest.fixture
def client() -> Iterator[Consumer]:
    """What callbacks are called with."""
    found = Consumer({"group.id": "x"})
    yield found
    found.close()


def test_a_partition_that_somebody_added_makes_no_second_leader_and_takes_the_lead_from_none(member: LeaderGroup, client: Consumer) -> None:
    assert member.leads.wait(60)
    added, lead = [TopicPartition("t", 1)], [TopicPartition("t", 0)]
    client.incremental_assign([*lead, *added])
    member.revoked(client, added)
    assert (member.leads.is_set(), member.lost_leadership.is_set()) == (True, False)
    member.revoked(client, lead)
    assert (member.leads.is_set(), member.lost_leadership.is_set()) == (False, True)
    member.assigned(client, added)
    assert not member.leads.is_set()
    member.assigned(client, lead)
    assert member.leads.is_set()


def test_an_error_that_is_long_past_is_no_reason_any_more(member: LeaderGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    assert member.leads.wait(60)
    member.on_client_error(KafkaError(KafkaError._TRANSPORT))
    assert member.trouble is not None
    monkeypatch.setattr(leader_group, "TROUBLE_SECONDS", 0.1)
    member.on_client_error(KafkaError(KafkaError._TRANSPORT))
    wait_until(lambda: member.trouble is None, 30, "the error is forgotten")


def test_a_refusal_is_reported_only_once_and_stays_the_reason_until_the_member_has_joined(
    member: LeaderGroup, client: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert member.leads.wait(60)
    monkeypatch.setattr(leader_group, "TROUBLE_SECONDS", 0.0)
    member.on_client_error(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    member.on_client_error(KafkaError(KafkaError._TRANSPORT))
    assert isinstance(member.trouble, BlockedError)
    assert "grant this user Read on the group" in member.trouble.hint
    member.assigned(client, [])
    assert member.trouble is None
