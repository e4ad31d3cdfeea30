"""Who leads has the state, and who led keeps it from nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from copycat_agent.agent import leader_election
from copycat_agent.agent.leader_election import LeaderElection
from copycat_agent.errors import FatalError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.leader_group import LeaderGroup
from copycat_agent.producer.state_topic import StateTopic
from tests.rig.kafka import unique_topic

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> list[LeaderGroup]:
    """The members of groups that are made from now on."""
    made: list[LeaderGroup] = []

    class KnownMember(LeaderGroup):
        def __init__(self, options: KafkaOptions, topic: str, group: str) -> None:
            super().__init__(options, topic, group)
            made.append(self)

    monkeypatch.setattr(leader_election, "LeaderGroup", KnownMember)
    return made


def test_who_lost_the_lead_before_it_had_the_state_leaves_it_to_the_process_that_leads(
    broker: DevBroker, tmp_path: Path, members: list[LeaderGroup]
) -> None:
    kafka, agent_id = KafkaOptions(bootstrap_servers=(broker.bootstrap,)), unique_topic("agent")
    other, client = StateTopic(kafka, agent_id), Consumer({"group.id": "x"})
    lead = [TopicPartition("t", 0)]
    client.incremental_assign(lead)
    with LeaderElection(kafka, agent_id, stopping=lambda: False, tick=lambda _: None) as election:
        assert election.begin(stands_by=True)
        members[0].revoked(client, lead)
        other.take()
        with pytest.raises(FatalError, match="another process has taken over"):
            election.store(tmp_path / "state", rebuild=False)
        other.publish({b"a": b"1"}, dict)
    assert not (tmp_path / "state").exists()
    client.close()
    other.close()
