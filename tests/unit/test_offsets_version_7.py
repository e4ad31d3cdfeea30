"""A store and a topic that the version before ids has written are gone on with: nothing is sent again, nothing is lost.

`version_7` was made by that version, on a real broker, by an agent with these connectors, of which each had sent some lines: `orders` (two
lanes, three files), `first-name`, `swapped-a`, `swapped-b`, `merged`, `into` and `wished` with exactly_once, `plain` with at_least_once,
`switched` with one after the other, and by another agent with `follows`. Then Kafka got ahead: the store was put back to what it was before
the last batch of `orders`, `first-name`, `swapped-a`, `merged` and `into`. Names were changed, and nothing was opened since: first-name to
second-name to pay, swapped-a and swapped-b by a third name, plain to simple, merged to into. `simple` is paused, `orders` stopped, a loss
is entered, `wished` is set back by a person, and `follows` is to be taken over from the other agent, which is gone. `offsets.sql` is the
store, `topic.json` what the topic holds of both agents, and where each connector has to go on.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from copycat_agent.model import OFFSETS_TOPIC, LaneId, LanePlan, OffsetsPartition, SourceOffset, is_connector_id
from copycat_agent.offsets import OffsetStore, schema
from copycat_agent.transactions.entries import read
from copycat_agent.transactions.lane_writer import LaneWriter
from copycat_agent.transactions.protocol import perform
from tests.unit.old_stores import migrate_dying, old_store, open_killed, topic_of, upgraded
from tests.unit.worker.test_names import Host

TOPIC = topic_of(7)
EXPECTED: dict[str, dict[str, tuple[int, str]]] = {
    name: {key: (at, path) for key, (at, path) in rows.items() if key != "started"} for name, rows in TOPIC["expected"].items()
}
EXACT = sorted(EXPECTED.keys() - {"simple", "switched"})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return upgraded(7, old_store(7, tmp_path / "state"))


def rows(host: Host, name: str) -> dict[str, tuple[int, str]]:
    return {one.key: (offset.position, offset.path.rpartition("/")[2]) for one, offset in host.store.read(name).items()}


@pytest.mark.parametrize("order", [EXACT, EXACT[::-1]])
def test_every_connector_goes_on_where_kafka_knows_it_to_be(host: Host, order: list[str]) -> None:
    for name in order:
        host.open(name)
    for name in order:
        assert rows(host, name) == EXPECTED[name], name
        told = host.store.unpublished(name, 99)
        there = {**host.in_kafka(name), **{one.key: row.position for one, row in told.items() if isinstance(row, SourceOffset)}}
        assert there == {key: at for key, (at, _) in EXPECTED[name].items()}, name


def test_what_needs_no_kafka_is_as_it_was(host: Host) -> None:
    assert rows(host, "simple") == EXPECTED["simple"]
    assert rows(host, "switched") == EXPECTED["switched"]
    assert host.store.targets() == {"simple": "paused", "orders": "stopped"}
    assert [one.reason for one in host.store.losses("simple", 9)] == ["destroyed"]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("commits", range(8))
def test_the_first_opening_may_be_killed_anywhere(host: Host, name: str, commits: int) -> None:
    open_killed(host, name, commits)
    assert rows(host, name) == EXPECTED[name]


def test_the_store_may_be_lost_after_the_first_opening(host: Host) -> None:
    for name in EXACT:
        host.open(name)
        host.open(name)
    untold = {name for name in EXACT if host.store.unpublished(name, 9)}
    host.lose_store()
    for name in EXACT:
        if name not in untold:
            host.open(name)
            assert rows(host, name) == EXPECTED[name]


def test_a_copy_of_the_old_store_that_is_put_back_later_goes_on_where_kafka_is(tmp_path: Path) -> None:
    host = upgraded(7, old_store(7, tmp_path / "state"))
    host.open("orders")
    (key,) = (key for key, (_, path) in EXPECTED["orders"].items() if path == "a.log")
    host.ship("orders", key, 5_000)
    host.store.close()
    identity = (tmp_path / "state" / "identity.json").read_text()
    backup = old_store(7, tmp_path / "backup")
    (backup / "identity.json").write_text(identity)
    host.store = OffsetStore.open(backup)
    host.open("orders")
    assert rows(host, "orders") == {**EXPECTED["orders"], key: (5_000, key)}


def test_a_process_of_the_old_version_that_wakes_up_commits_nothing(host: Host) -> None:
    """Neither one whose next transaction was prepared, nor one that prepares it now."""
    agent, place = host.store.agent_uuid, OffsetsPartition(OFFSETS_TOPIC, 0)
    head = read(host.kafka.log, agent, "orders").heads[0]
    plan = LanePlan(LaneId(agent, "orders", 0), head._replace(offset=0), place)
    awake, late = LaneWriter(), LaneWriter()
    handle = perform(awake.begin(plan), host.kafka)
    host.open("orders")
    size = len(host.kafka.log)
    assert perform(awake.finish(plan, handle, []), host.kafka).state == "unknown"
    with pytest.raises(Exception, match="the batch was planned at"):
        perform(late.begin(plan), host.kafka)
    assert len(host.kafka.log) == size


def test_the_old_version_refuses_what_stands_under_a_name_now(host: Host) -> None:
    """It knows two kinds of entries, and takes a third for one of a newer version."""
    host.open("orders")
    kinds = {
        json.loads(one.key)[2] for one in host.kafka.log if one.key.startswith(b'["' + host.store.agent_uuid.encode() + b'", "orders"')
    }
    assert kinds > {"head", "position"}
    assert is_connector_id(host.store.lanes("orders").id)


def test_the_migration_may_be_killed_between_any_two_statements(tmp_path: Path) -> None:
    state = old_store(7, tmp_path / "state")
    for count in range(1, 400):
        after = count if migrate_dying(state / "offsets.db", count) else None
        with closing(sqlite3.connect(state / "offsets.db")) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            there = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'names'").fetchone()[0]
            assert (version, there) in {(7, 0), *((later, 1) for later in range(8, schema.VERSION + 1))}
            assert not list(schema.broken_rows(connection))
        if after:
            break
    assert after
    assert after > 5
    host = upgraded(7, state)
    host.open("orders")
    assert rows(host, "orders") == EXPECTED["orders"]
