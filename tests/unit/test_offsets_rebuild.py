"""Promises for an agent with exactly-once connectors whose store is lost: it goes on, and nobody else does unseen."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.model import OFFSETS_TOPIC, Head, OffsetsPartition, SourceOffset, SourcePartition
from copycat_agent.offsets import LaneCommit, OffsetStore
from copycat_agent.transactions.opening import LaneSnapshot

PLACE = OffsetsPartition(OFFSETS_TOPIC, 7)
ONCE, OTHER = SourcePartition("once", "k"), SourcePartition("other", "k")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """An agent that has run a connector of each guarantee."""
    state = tmp_path / "state"
    with OffsetStore.open(state, rebuild=True) as store:
        assert store.identity.nonce
        store.lanes_opened("once", "c", PLACE, LaneSnapshot("c", {0: Head(1, "n", 10)}, ()))
        store.commit({ONCE: SourceOffset(5)}, moved=LaneCommit("once", {0: Head(2, "n", 20)}, {ONCE}))
        store.commit({OTHER: SourceOffset(7)})
    return state


def uuid_of(state: Path) -> str:
    with OffsetStore.open(state, rebuild=True) as store:
        return store.agent_uuid


def marker(state: Path) -> Path:
    return state / "offsets.db.quarantined"


def test_a_damaged_store_is_set_aside_and_a_new_one_begins_for_the_same_agent(state: Path) -> None:
    uuid = uuid_of(state)
    (state / "offsets.db").write_bytes(b"junk")
    for start in range(3):
        with OffsetStore.open(state, rebuild=True) as store:
            assert store.agent_uuid == uuid
            assert "the file is not" in store.damaged or "not a database" in store.damaged
            assert store.undecided("other") == store.damaged
            assert store.read("once") == ({ONCE: SourceOffset(start)} if start else {})
            store.commit({ONCE: SourceOffset(start + 1)})
    assert [one.read_bytes() for one in state.glob("offsets.db.damaged-*")] == [b"junk"]


def test_without_exactly_once_nothing_begins_until_a_person_decides(state: Path) -> None:
    (state / "offsets.db").write_bytes(b"junk")
    with pytest.raises(FatalError, match="it was moved to"):
        OffsetStore.open(state)
    OffsetStore.open(state, rebuild=True).close()
    with pytest.raises(FatalError, match="nobody has decided"):
        OffsetStore.open(state)
    marker(state).unlink()
    with OffsetStore.open(state) as store:
        assert (store.damaged, store.undecided("other")) == ("", "")


def test_the_marker_counts_while_it_stands_and_is_looked_at_each_time(state: Path) -> None:
    (state / "offsets.db").write_bytes(b"junk")
    with OffsetStore.open(state, rebuild=True) as store:
        assert store.damaged
        marker(state).unlink()
        assert (store.damaged, store.undecided("other")) == ("", "")


def test_a_person_may_decide_for_one_connector(state: Path) -> None:
    (state / "offsets.db").write_bytes(b"junk")
    OffsetStore.open(state, rebuild=True).close()
    with OffsetStore.open_existing(state) as store:  # a command
        store.begin_anew("other")
        store.adopt("third", "local")
    with OffsetStore.open(state, rebuild=True) as store:
        assert (store.undecided("other"), store.undecided("third")) == ("", "")
        assert store.undecided("fourth") == store.damaged


def test_a_backup_put_back_is_taken_and_the_marker_goes_on_until_it_is_removed(state: Path) -> None:
    backup = (state / "offsets.db").read_bytes()
    (state / "offsets.db").write_bytes(b"junk")
    OffsetStore.open(state, rebuild=True).close()
    (state / "offsets.db").write_bytes(backup)
    with OffsetStore.open(state, rebuild=True) as store:
        assert store.read("other") == {OTHER: SourceOffset(7)}
        assert store.lanes("once").heads == {0: Head(2, "n", 20)}
        assert store.undecided("other")


def test_damage_that_comes_again_is_set_aside_again(state: Path) -> None:
    for _ in range(2):
        (state / "offsets.db").write_bytes(b"junk")
        OffsetStore.open(state, rebuild=True).close()
    assert len(list(state.glob("offsets.db.damaged-*"))) == 2


def test_a_kill_between_setting_aside_and_beginning_anew_changes_nothing(state: Path) -> None:
    uuid = uuid_of(state)
    (state / "offsets.db").write_bytes(b"junk")
    with pytest.raises(FatalError):
        OffsetStore.open(state)  # set aside; nothing is begun
    assert not (state / "offsets.db").exists()
    with OffsetStore.open(state, rebuild=True) as store:
        assert (store.agent_uuid, bool(store.damaged)) == (uuid, True)


def test_without_an_identity_nobody_knows_whom_to_ask_kafka_about(state: Path) -> None:
    (state / "identity.json").unlink()
    (state / "offsets.db").write_bytes(b"junk")
    for words in ("it was moved to", "nobody has decided"):
        with pytest.raises(FatalError, match=words):
            OffsetStore.open(state, rebuild=True)


@pytest.mark.parametrize("table", ["bindings", "places", "lanes", "unpublished"])
def test_a_changed_row_about_lanes_condemns_the_store(state: Path, table: str) -> None:
    with OffsetStore.open(state) as store:
        store.commit({SourcePartition("once", "new"): SourceOffset(1)})
    with closing(sqlite3.connect(state / "offsets.db")) as connection:
        connection.execute(f"UPDATE {table} SET connector = 'onse'")  # noqa: S608 - of this test
        connection.commit()
    with pytest.raises(FatalError, match=f"a row of {table} does not match its checksum"):
        OffsetStore.open(state)


def test_accept_empty_decides_for_all(state: Path) -> None:
    uuid = uuid_of(state)
    (state / "offsets.db").write_bytes(b"junk")
    OffsetStore.open(state, rebuild=True).close()
    with OffsetStore.open(state, rebuild=True, accept_empty=True) as store:
        assert (store.damaged, store.agent_uuid) == ("", uuid)


def removed_while_open(state: Path, *gone: str) -> FatalError | None:
    with OffsetStore.open(state, rebuild=True) as store:
        for name in gone:
            (state / name).unlink()
        with pytest.raises(FatalError, match="was removed or replaced"):
            store.commit({ONCE: SourceOffset(9)})
        return store.failure


@pytest.mark.parametrize("gone", [["offsets.db"], ["offsets.db", "offsets.db-wal"]])
def test_removed_while_the_agent_runs_a_new_process_goes_on_from_kafka(state: Path, gone: list[str]) -> None:
    """`failure` ends the agent with the exit code that says: start me again."""
    uuid = uuid_of(state)
    failure = removed_while_open(state, *gone)
    assert failure
    assert "from Kafka" in failure.hint
    with OffsetStore.open(state, rebuild=True) as store:
        assert (store.agent_uuid, store.connectors()) == (uuid, ())
        assert store.undecided("other"), "it has nothing to go on from, and is not begun unseen"


def test_replaced_while_the_agent_runs_a_new_process_takes_what_is_there(state: Path) -> None:
    backup = (state / "offsets.db").read_bytes()
    with OffsetStore.open(state, rebuild=True) as store:
        (state / "backup").write_bytes(backup)
        (state / "backup").rename(state / "offsets.db")
        with pytest.raises(FatalError, match="was removed or replaced"):
            store.read("once")
        assert store.failure
    assert not marker(state).exists()


def test_with_the_identity_removed_too_no_new_process_helps(state: Path) -> None:
    assert removed_while_open(state, "offsets.db", "identity.json") is None
    assert not marker(state).exists()
