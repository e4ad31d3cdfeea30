"""A store and a topic that version 8 has written are gone on with: nothing is sent again, nothing is lost.

`version_8` was made by that version, on a real broker, by an agent with these connectors, which were started three times: `orders` (two
lanes, three files), `first-name`, `wished` and `idle`, which has no files, with exactly_once; `plain` and `old-plain` with at_least_once.
Then the store was put back to what it was before the last start, so that Kafka is ahead for `orders` and `first-name`. Names were changed,
and nothing was opened since: first-name to second-name, old-plain to new-plain. `plain` is paused. A person set `wished` back: its file to
byte 0, and when it looked last to five seconds earlier, with two files not taken up then.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.model import Head, LaneId, Position, SourceState, offsets_in, state_partition
from copycat_agent.offsets import LaneCommit, OffsetStore, schema
from copycat_agent.offsets.store_reader import saved_offsets
from copycat_agent.transactions.entries import head_entry, position_entries
from tests.unit.old_stores import NOTHING, migrate_dying, old_store, open_killed, topic_of, upgraded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.worker.test_names import Host

EXPECTED: dict[str, dict[str, list[Any]]] = topic_of(8)["expected"]
EXACT = ["idle", "orders", "second-name", "wished"]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return upgraded(8, old_store(8, tmp_path / "state"))


def saved(host: Host, name: str) -> dict[str, list[Any]]:
    """As `EXPECTED`: position and name of each file, and what is remembered of the looks."""
    rows = host.store.saved(name)
    state = rows[state_partition(name)]
    assert isinstance(state, SourceState)
    looks = [state.values[one] for one in ("first_ms", "seen_ms", "rotations", "ahead_ns", "boot")]
    files = {one.key: [offset.position, offset.path.rpartition("/")[2]] for one, offset in offsets_in(rows).items()}
    return {**files, "started": looks}


def tell(host: Host, name: str) -> None:
    """A transaction that has nothing but what Kafka was not told."""
    store, rows = host.store, host.store.unpublished(name, 99)
    agent, head = store.identity, store.lanes(name).heads[0]
    now, key = Head(head.seq + 1, agent.nonce, head.offset), store.lanes(name).id
    told = [Position(one, 0, now.seq, row, nonce=agent.nonce) for one, row in rows.items()]
    host.kafka.append([*position_entries(agent.uuid, key, told), head_entry(LaneId(agent.uuid, key, 0), now)])
    store.commit({}, moved=LaneCommit(name, {0: now}, driver_rows=rows))


@pytest.mark.parametrize("order", [EXACT, EXACT[::-1]])
def test_every_connector_goes_on_where_kafka_knows_it_to_be(host: Host, order: list[str]) -> None:
    for name in order:
        host.open(name)
    for name in order:
        assert saved(host, name) == EXPECTED[name], name


def test_what_needs_no_kafka_is_as_it_was(host: Host) -> None:
    for name in ("plain", "new-plain"):
        assert saved(host, name) == EXPECTED[name]
    assert host.store.targets() == {"plain": "paused"}
    assert host.store.connectors() == ("idle", "new-plain", "orders", "plain", "second-name", "wished")


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("commits", range(8))
def test_the_first_opening_may_be_killed_anywhere(host: Host, name: str, commits: int) -> None:
    open_killed(host, name, commits)
    assert saved(host, name) == EXPECTED[name]


def test_the_store_may_be_lost_before_the_first_opening(host: Host) -> None:
    host.lose_store()
    host.open("orders")
    assert saved(host, "orders") == EXPECTED["orders"]


def test_the_store_may_be_lost_after_the_first_opening(host: Host) -> None:
    for name in EXACT:
        host.open(name)
    told = [name for name in EXACT if not host.store.unpublished(name, 9)]
    host.lose_store()
    for name in told:
        host.open(name)
        assert saved(host, name) == EXPECTED[name]
    assert "orders" in told


def test_a_look_that_is_told_now_counts_and_the_version_before_refuses_what_stands_there_then(host: Host) -> None:
    host.open("orders")
    state = SourceState({"first_ms": 1, "seen_ms": 2, "rotations": 0, "ahead_ns": 0, "boot": "b"})
    host.store.commit({state_partition("orders"): state})
    tell(host, "orders")
    kinds = {json.loads(one.key)[2] for one in host.kafka.log if host.store.lanes("orders").id.encode() in one.key}
    assert kinds == {"head", "position", "name", "state"}, "a kind that version 8 takes for one of a newer version"
    host.lose_store()
    host.open("orders")
    assert host.store.saved("orders")[state_partition("orders")] == state


def test_a_look_that_is_forgotten_does_not_come_back_when_the_topic_was_compacted(host: Host) -> None:
    host.open("orders")
    host.store.begin_anew("orders")
    host.open("orders")
    last = {one.key: one for one in host.kafka.log}
    host.kafka.log = [one if one is last[one.key] and one.value is not None else NOTHING for one in host.kafka.log]
    host.lose_store()
    host.open("orders")
    assert host.store.saved("orders") == {}


def test_the_migration_may_be_killed_between_any_two_statements(tmp_path: Path) -> None:
    state, after = old_store(8, tmp_path / "state"), 0
    for count in range(1, 99):
        after = count if migrate_dying(state / "offsets.db", count) else 0
        with closing(sqlite3.connect(state / "offsets.db")) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            looks = connection.execute("SELECT count(*) FROM offsets WHERE key = 'started'").fetchone()[0]
            assert (version, looks) in {(8, 6), *((later, 0) for later in range(9, schema.VERSION + 1))}
            assert not list(schema.broken_rows(connection))
        if after:
            break
    assert after > 5
    host = upgraded(8, state)
    for name in EXACT:
        host.open(name)
    for name, rows in EXPECTED.items():
        assert saved(host, name) == rows


def test_the_version_before_refuses_the_store(tmp_path: Path) -> None:
    state = old_store(8, tmp_path / "state")
    OffsetStore.open(state).close()
    with closing(sqlite3.connect(state / "offsets.db")) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        assert version == schema.VERSION > 8, "it says what it knows up to, and refuses a later one"


def test_a_dry_look_at_a_store_that_was_not_migrated_yet_knows_the_looks(tmp_path: Path) -> None:
    state = old_store(8, tmp_path / "state")
    before = saved_offsets(state)
    with OffsetStore.open(state) as store:
        assert before == {one: row for name in store.connectors() for one, row in store.saved(name).items()}
