"""Promises of the store about lanes: what Kafka says is taken over once, nothing goes back, and what a person decides is done."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import CopiedError, FatalError, PositionsError
from copycat_agent.model import (
    OFFSETS_TOPIC,
    STATE_KEY,
    Account,
    Counts,
    Head,
    Loss,
    OffsetsPartition,
    Position,
    SourceOffset,
    SourcePartition,
    SourceState,
    state_partition,
)
from copycat_agent.offsets import LaneCommit, OffsetStore
from copycat_agent.offsets.lanes import SavedLanes
from copycat_agent.transactions.opening import LaneGroup, LaneSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLACE = OffsetsPartition(OFFSETS_TOPIC, 7)
STATE = SourceState({"first_ms": 1_000})
OTHER = OffsetsPartition(OFFSETS_TOPIC, 3)


def part(key: str, connector: str = "app") -> SourcePartition:
    return SourcePartition(connector, key)


def at(position: int, path: str = "/logs/x") -> SourceOffset:
    return SourceOffset(position, path=path)


def told(key: str, position: int, seq: int, lane: int = 0, losses: tuple[Loss, ...] = ()) -> Position:
    return Position(part(key), lane, seq, at(position), losses=losses)


def loss(key: str) -> Loss:
    return Loss(part(key), "/logs/x", 0, 9, 9, 1, "rejected", "", 5)


def open_lanes(
    store: OffsetStore, *positions: Position, name: str = "app", place: OffsetsPartition = PLACE, keeps_accounts: bool = False, **heads: int
) -> tuple[Position, ...]:
    """An opening that finds these positions; `lane0=5`: lane 0 is claimed at step 5."""
    claimed = {int(lane[4:]): Head(seq, "now", seq * 10) for lane, seq in heads.items()}
    return store.lanes_opened(name, "c1", place, LaneSnapshot("c1", claimed, positions), keeps_accounts=keeps_accounts)


def marks(store: OffsetStore, name: str = "app") -> dict[str, int | None]:
    """Of what Kafka has not been told: positions by key, None for what is deleted; of a state its `first_ms`."""
    told = store.unpublished(name, 100)
    known = {one.key: row.values["first_ms"] for one, row in told.items() if isinstance(row, SourceState)}
    known |= {one.key: row.position for one, row in told.items() if isinstance(row, SourceOffset)}
    return {one.key: known.get(one.key) for one in told}


def rows(store: OffsetStore, name: str = "app") -> dict[str, int]:
    return {one.key: offset.position for one, offset in store.read(name).items()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OffsetStore]:
    """One that was opened at step 5 of two lanes, with a file in each."""
    with OffsetStore.open(tmp_path / "state") as opened:
        open_lanes(opened, lane0=5, lane1=5)
        opened.commit({part("a"): at(100), part("b"): at(100)}, moved=LaneCommit("app", {0: Head(6, "now", 60)}, {part("a"), part("b")}))
        yield opened


def test_a_connector_without_lanes_has_none_and_marks_nothing(store: OffsetStore) -> None:
    store.commit({part("x", "plain"): at(1)})
    store.forget([part("x", "plain")])
    assert store.lanes("plain") == SavedLanes()
    assert marks(store, "plain") == {}


def test_lanes_survive_a_restart(store: OffsetStore, tmp_path: Path) -> None:
    store.commit({part("c"): at(1)})
    before = store.lanes("app"), marks(store)
    store.close()
    with OffsetStore.open(tmp_path / "state") as again:
        assert (again.lanes("app"), marks(again)) == before
    expected = SavedLanes("c1", PLACE, {0: Head(6, "now", 60), 1: Head(5, "now", 50)}, id=before[0].id, asks=False, registered="app")
    expected = replace(expected, is_new=False)
    assert before == (expected, {"c": 1})


def test_what_was_there_before_the_lanes_is_told(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        store.commit({part("a"): at(1), part("b"): at(2), state_partition("app"): STATE})
        open_lanes(store, lane0=1)
        assert list(marks(store).items()) == [(STATE_KEY, 1_000), ("a", 1), ("b", 2)]  # when it first looked comes first


def test_what_the_opening_has_told_itself_is_not_told_again(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        store.commit({part("a"): at(1), part("b"): at(2)})
        truth = LaneSnapshot("c1", {0: Head(1, "now", 10)}, ())
        store.lanes_opened("app", "c1", PLACE, truth, published=[(part("a"), at(1)), (part("b"), at(1))])
        assert marks(store) == {"b": 2}


def test_a_lost_store_that_kafka_fills_has_nothing_to_tell_but_what_it_knows_better(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        store.commit({part("c"): at(9)})
        open_lanes(store, told("a", 3, 5), told("b", 9, 5), told("b", 7, 6, lane=1), told("c", 8, 6), told("d", 9, 6), lane0=7, lane1=7)
        assert rows(store) == {"a": 3, "b": 9, "c": 9, "d": 9}
        assert marks(store) == {"b": 9, "c": 9}


def test_only_what_a_transaction_has_told_is_in_kafka(store: OffsetStore) -> None:
    assert marks(store) == {}
    store.commit(
        {part("a"): at(200), part("b"): at(100, "/logs/renamed"), part("c"): at(0)},
        moved=LaneCommit("app", {1: Head(6, "now")}, {part("a")}),
    )
    assert marks(store) == {"b": 100, "c": 0}
    store.commit({}, forget=[part("b")])
    assert marks(store) == {"c": 0, "b": None}
    store.commit({}, moved=LaneCommit("app", {0: Head(7, "now")}, {part("b"), part("c")}))
    assert marks(store) == {}


def test_what_changed_while_it_was_told_is_told_again(store: OffsetStore) -> None:
    store.commit({part("a"): at(100, "/logs/new"), part("c"): at(0)}, forget=[part("b")])
    also = store.unpublished("app", 10)
    store.commit({part("a"): at(100, "/logs/newer")})
    store.commit({}, moved=LaneCommit("app", {0: Head(7, "now")}, driver_rows=also))
    assert marks(store) == {"a": 100}


def test_no_more_is_handed_out_than_asked_for_and_the_oldest_first(store: OffsetStore) -> None:
    for key in "cdef":
        store.commit({part(key): at(0)})
    assert list(store.unpublished("app", 2)) == [part("c"), part("d")]


def test_when_it_first_looked_is_told_first(store: OffsetStore) -> None:
    store.commit({part("c"): at(0), part("d"): at(0)})
    store.commit({state_partition("app"): STATE})
    assert list(store.unpublished("app", 2)) == [state_partition("app"), part("c")]
    assert list(store.unpublished("app", 1)) == [state_partition("app")]


def test_a_head_never_moves_back_nor_sideways(store: OffsetStore) -> None:
    for head, lane in ((Head(5, "now"), 0), (Head(6, "another"), 0), (Head(1, "now"), 2)):
        with pytest.raises(FatalError, match=f"lane {lane} of connector app would move"):
            store.commit({part("a"): at(500)}, moved=LaneCommit("app", {lane: head}, {part("a")}))
    assert rows(store) == {"a": 100, "b": 100}
    store.commit({part("a"): at(100)}, moved=LaneCommit("app", {0: Head(6, "now", 60)}, {part("a")}))
    with pytest.raises(FatalError, match="would be opened at step 6, and it was at step 6"):
        open_lanes(store, lane0=6, lane1=6)
    with pytest.raises(FatalError, match="would be opened at no step"):
        open_lanes(store, lane0=7)


def test_a_head_that_is_refused_does_not_hurt_another_connector(store: OffsetStore) -> None:
    with pytest.raises(FatalError, match="would move from no step"):
        store.commit({part("x", "other"): at(1)}, moved=LaneCommit("other", {0: Head(1, "now")}))
    store.commit({part("x", "other"): at(1)})
    assert store.failure is None


def test_positions_that_are_not_known_here_are_taken_over_with_their_losses(store: OffsetStore) -> None:
    assert len(open_lanes(store, told("a", 300, 7, losses=(loss("a"),)), told("n", 5, 7), lane0=8, lane1=6)) == 2
    assert rows(store) == {"a": 300, "b": 100, "n": 5}
    assert marks(store) == {}
    assert [one.partition.key for one in store.losses("app", 10)] == ["a"]
    assert store.lanes("app").heads[0].seq == 8


def test_accounts_of_what_was_not_known_here_add_up(store: OffsetStore) -> None:
    """Also of a step whose file has gone on since: that step was not saved either."""
    store.commit({part("a"): at(900)}, accounts={part("a"): Account(Counts(read=3))})
    first, second = (told("a", 300, seq)._replace(counts=Counts(read=2)) for seq in (7, 8))
    open_lanes(store, first, second, keeps_accounts=True, lane0=9, lane1=6)
    assert store.accounts("app")[part("a")].counts == Counts(read=7)
    open_lanes(store, first._replace(seq=10), lane0=11, lane1=7)
    assert store.accounts("app")[part("a")].counts == Counts(read=7)


def test_a_row_that_is_further_is_not_taken_back(store: OffsetStore) -> None:
    """Lane 1 has taken the file on, and its step is saved; lane 0's, before that, is not."""
    store.commit({part("a"): at(900)}, moved=LaneCommit("app", {1: Head(9, "now")}, {part("a")}))
    assert open_lanes(store, told("a", 300, 7), lane0=8, lane1=10) == ()
    assert rows(store)["a"] == 900


def test_what_a_person_sets_outranks_what_kafka_said_before(store: OffsetStore) -> None:
    """Killed after the commit of step 7 and before it was saved; then `offsets set` and `offsets reset --path`."""
    store.reset({part("a"): at(10)}, forget=[part("b")])
    open_lanes(store, told("a", 300, 7), told("b", 300, 7), told("c", 300, 7), lane0=8, lane1=6)
    assert rows(store) == {"a": 10, "c": 300}
    assert marks(store) == {"a": 10, "b": None}


def test_what_kafka_says_later_outranks_what_a_person_set(store: OffsetStore) -> None:
    """Set, opened, read on from there and committed; killed before that was saved."""
    store.reset({part("a"): at(10)})
    open_lanes(store, lane0=8, lane1=6)
    open_lanes(store, told("a", 300, 9), lane0=10, lane1=7)
    assert rows(store)["a"] == 300
    assert marks(store) == {}


def test_news_of_a_file_cancel_its_pending_end(store: OffsetStore) -> None:
    store.commit({}, forget=[part("a")])
    open_lanes(store, told("a", 300, 7), lane0=8, lane1=6)
    assert (rows(store)["a"], marks(store)) == (300, {})


def test_a_lost_store_is_made_anew_from_kafka(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        open_lanes(store, told("a", 300, 7), told("b", 9, 3, lane=1), lane0=8, lane1=4)
        assert (rows(store), marks(store)) == ({"a": 300, "b": 9}, {})


def test_adopted_from_here_everything_is_told_and_the_topic_may_have_begun_anew(store: OffsetStore) -> None:
    assert store.adopt("app", "local") == ""
    assert store.lanes("app").adopt == "local"
    open_lanes(store, lane0=1, lane1=1)
    there = store.lanes("app")
    assert (there.cluster, there.place, there.heads) == ("c1", PLACE, {0: Head(1, "now", 10), 1: Head(1, "now", 10)})
    assert there.adopt == ""
    assert (rows(store), marks(store)) == ({"a": 100, "b": 100}, {"a": 100, "b": 100})


def test_adopted_from_the_topic_rows_go_back_and_those_it_lacks_go_but_not_what_it_was_never_told(store: OffsetStore) -> None:
    store.commit({state_partition("app"): STATE})
    store.reset({part("a"): at(50)})
    store.adopt("app", "topic")
    assert open_lanes(store, told("a", 20, 2, losses=(loss("a"),)), lane0=3, lane1=1)
    assert (rows(store), store.saved("app")[state_partition("app")]) == ({"a": 20}, STATE)
    assert marks(store) == {STATE_KEY: 1_000}
    assert store.losses("app", 10) == ()  # step 2 was known
    open_lanes(store, lane0=4, lane1=2)
    assert rows(store)["a"] == 20


def test_a_reset_counts_more_than_all_that_kafka_says(store: OffsetStore) -> None:
    assert store.begin_anew("app") == 2
    assert store.lanes("app").adopt == "local"
    open_lanes(store, lane0=8, lane1=6)
    assert (rows(store), marks(store)) == ({}, {"a": None, "b": None})
    assert store.begin_anew("app") == 0


def test_a_reset_while_the_store_is_lost_counts_more_than_what_kafka_says(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "state") as before:
        assert before.identity.nonce
    (tmp_path / "state" / "offsets.db").unlink()
    with OffsetStore.open(tmp_path / "state") as anew:
        assert anew.begin_anew("app") == 0
        assert anew.lanes("app").adopt == "local"


def test_a_reset_of_a_connector_without_lanes_is_but_that(store: OffsetStore) -> None:
    store.commit({part("x", "plain"): at(1)})
    assert store.begin_anew("plain") == 1
    assert store.lanes("plain") == SavedLanes()


def test_from_exactly_once_to_at_least_once_and_back_the_local_positions_count(store: OffsetStore) -> None:
    store.leave_lanes("app")
    store.leave_lanes("plain")
    assert (store.lanes("app").adopt, store.lanes("plain")) == ("local", SavedLanes())
    store.commit({part("a"): at(700)}, forget=[part("b")])
    assert marks(store) == {}  # no end of a file is remembered for as long as there are no lanes
    open_lanes(store, lane0=8, lane1=6)
    assert (rows(store), marks(store)) == ({"a": 700}, {"a": 700})


def test_renamed_while_the_topic_is_ahead(store: OffsetStore) -> None:
    store.commit({part("x", "new"): at(5)})
    store.reset({part("b"): at(10)})
    store.rename("app", "new")
    kept = store.lanes("new")
    assert (kept.place, kept.heads, kept.before) == (PLACE, {0: Head(6, "now", 60), 1: Head(5, "now", 50)}, ())
    assert (kept.cluster, kept.registered, kept.asks) == ("c1", "", True)  # Kafka is told the new name at the next opening
    news = [Position(part("a", "new"), 0, 7, at(300)), Position(part("b", "new"), 0, 7, at(300))]
    open_lanes(store, *news, name="new", lane0=8, lane1=6)
    assert rows(store, "new") == {"a": 300, "b": 10, "x": 5}  # b was set by a person
    assert marks(store, "new") == {"b": 10, "x": 5}  # a is known in Kafka, whatever the connector is called
    assert store.lanes("new").registered == "new"


def test_whoever_gets_the_old_name_begins_with_nothing_of_it(store: OffsetStore) -> None:
    known = store.lanes("app").id
    store.rename("app", "new")
    assert store.lanes("new").id == known != store.lanes("app").id
    assert not store.lanes("app").asks
    assert (store.lanes("app").place, rows(store), marks(store)) == (None, {}, {})


def test_renamed_twice_and_back_the_id_is_the_same(store: OffsetStore) -> None:
    before = store.lanes("app")
    store.rename("app", "new")
    store.rename("new", "newer")
    assert store.lanes("newer").id == before.id
    open_lanes(store, name="newer", lane0=8, lane1=6)
    store.rename("newer", "app")
    kept = store.lanes("app")
    assert (kept.id, kept.place, kept.before, rows(store)) == (before.id, before.place, (), {"a": 100, "b": 100})


def test_of_two_that_have_lanes_those_of_the_old_one_are_taken_over(store: OffsetStore) -> None:
    store.lanes_opened("other", "c1", OTHER, LaneSnapshot("c1", {0: Head(1, "now")}, ()))
    own, theirs = store.lanes("app").id, store.lanes("other").id
    store.rename("other", "app")
    kept = store.lanes("app")
    assert (kept.id, kept.place) == (own, PLACE)
    assert kept.before == (LaneGroup(theirs, OTHER, {0: Head(1, "now")}),)
    open_lanes(store, lane0=8, lane1=6)
    assert store.lanes("app").before == ()


def test_renamed_and_back_before_anybody_was_there_kafka_is_only_told_the_name_again(store: OffsetStore) -> None:
    before = store.lanes("app")
    store.rename("app", "new")
    store.rename("new", "app")
    assert store.lanes("app") == replace(before, registered="")
    assert rows(store) == {"a": 100, "b": 100}


def test_a_decision_about_a_name_stays_with_it_and_one_about_its_lanes_goes_along(store: OffsetStore) -> None:
    store.adopt("app", "local")
    store.rename("app", "new")
    assert (store.lanes("new").adopt, store.lanes("app").adopt) == ("local", "")
    store.commit({part("x", "other"): at(5)})
    store.lanes_opened("other", "c1", OTHER, LaneSnapshot("c1", {0: Head(1, "now")}, ()))
    store.rename("other", "app")
    assert store.lanes("app").adopt == ""
    store.rename("app", "last")
    assert (store.lanes("last").adopt, store.lanes("app").adopt) == ("", "")


def test_positions_without_lanes_that_come_to_lanes_are_told(store: OffsetStore) -> None:
    store.commit({part("z", "plain"): at(900)})
    store.rename("plain", "app")
    assert marks(store) == {"z": 900}


def test_what_a_person_sets_while_the_store_is_lost_outranks_what_kafka_says(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path) as store:
        assert store.identity.nonce
        store.reset({part("a"): at(100)}, forget=[part("b")])
        open_lanes(store, told("a", 500, 5), told("b", 500, 5), told("c", 500, 5), lane0=7)
        assert rows(store) == {"a": 100, "c": 500}
        assert marks(store) == {"a": 100, "b": None}


def test_of_what_kafka_said_of_a_file_the_last_counts(tmp_path: Path) -> None:
    """A person has set it back in between, and the log was not compacted since."""
    with OffsetStore.open(tmp_path) as store:
        first = told("a", 500, 5, losses=(loss("a"),))._replace(is_last=False)
        open_lanes(store, first, told("a", 100, 6), lane0=7)
        assert rows(store) == {"a": 100}
        assert len(store.losses("app", 9)) == 1


def test_connectors_of_two_clusters_do_not_become_one_unseen(store: OffsetStore) -> None:
    store.commit({part("x", "new"): at(5)})
    store.lanes_opened("new", "c2", OTHER, LaneSnapshot("c2", {0: Head(1, "now")}, ()))
    store.rename("app", "new")
    assert store.lanes("new").cluster == "c2 and c1"


def test_an_agent_that_is_gone_is_taken_over_beside_what_is_here(store: OffsetStore) -> None:
    store.commit({part("c"): at(900)})
    store.take_over("app", "4d0f")
    kept = store.lanes("app")
    assert kept.before == (LaneGroup("app", OffsetsPartition(OFFSETS_TOPIC, -1), agent="4d0f"),)
    assert kept.heads.keys() == {0, 1}
    open_lanes(store, told("a", 300, 900), told("c", 300, 900), lane0=8, lane1=6)
    assert rows(store) == {"a": 300, "b": 100, "c": 900}
    assert marks(store).keys() >= {"b", "c"}
    assert store.lanes("app").before == ()


def test_an_agent_of_which_kafka_knows_nothing_is_not_taken_over_and_the_last_word_counts(store: OffsetStore) -> None:
    """A slip in its uuid must not make everything be read again."""
    store.take_over("app", "4d0e")
    for _ in range(2):
        with pytest.raises(PositionsError, match="Kafka knows nothing of connector app of agent 4d0e"):
            open_lanes(store, lane0=8, lane1=6)
    store.take_over("app", "4d0f")
    assert [one.agent for one in store.lanes("app").before] == ["4d0f"]
    store.adopt("app", "local")
    assert store.lanes("app").before == ()
    open_lanes(store, lane0=8, lane1=6)


def test_a_copy_keeps_what_it_sent_and_goes_on_as_an_agent_of_its_own(store: OffsetStore, tmp_path: Path) -> None:
    uuid, nonce = store.identity[:2]
    open_lanes(store, name="side", place=OTHER, lane0=1)
    store.commit({part("s", "side"): at(1)}, moved=LaneCommit("side", {0: Head(2, "now")}, {part("s", "side")}))
    store.lanes_refused("app", PositionsError("behind"))
    assert not store.lanes("app").copied
    for _ in range(2):
        store.lanes_refused("app", CopiedError("a copy", "", (told("a", 300, 7, losses=(loss("a"),)),), PLACE))
    assert store.lanes("app").copied
    assert (rows(store)["a"], len(store.losses("app", 10))) == (300, 1)
    new = store.adopt("app", "local")
    assert store.agent_uuid == new != uuid
    assert store.identity.uuid == new
    assert store.identity.nonce != nonce
    there = [store.lanes(name) for name in ("app", "side")]
    assert [(one.cluster, one.adopt, one.place, one.registered) for one in there] == [("c1", "local", None, ""), ("c1", "", None, "")]
    assert marks(store) == marks(store, "side") == {}
    store.close()
    with OffsetStore.open(tmp_path / "state") as again:
        assert (again.agent_uuid, rows(again)) == (new, {"a": 300, "b": 100})
        open_lanes(again, lane0=1, lane1=1)
        assert marks(again) == {"a": 300, "b": 100}


def test_a_copy_that_is_reset_leaves_the_shared_identity_too(store: OffsetStore) -> None:
    uuid = store.agent_uuid
    store.lanes_refused("app", CopiedError("a copy"))
    store.begin_anew("app")
    assert store.agent_uuid != uuid


def test_a_copy_may_be_the_one_that_lives_on(store: OffsetStore) -> None:
    uuid = store.agent_uuid
    store.lanes_refused("app", CopiedError("a copy"))
    assert store.adopt("app", "topic") == ""
    assert (store.agent_uuid, store.lanes("app").copied, store.lanes("app").adopt) == (uuid, False, "topic")


def test_whatever_the_order_of_restarts_no_position_goes_back_and_no_mark_is_lost(tmp_path: Path) -> None:
    """Batches of two lanes over three files; the store may lag by any number of them, and is opened at any time."""
    batches = [("a", 10, 0, 6), ("b", 10, 1, 6), ("a", 20, 1, 7), ("c", 5, 0, 7), ("a", 30, 0, 8), ("b", 20, 0, 9)]
    for saved in itertools.product((True, False), repeat=len(batches)):
        with OffsetStore.in_memory() as store:
            open_lanes(store, lane0=5, lane1=5)
            heads = {0: 5, 1: 5}
            for (key, position, lane, seq), is_saved in zip(batches, saved, strict=True):
                if is_saved and all(heads[other] <= seq for other in heads):
                    store.commit({part(key): at(position)}, moved=LaneCommit("app", {lane: Head(seq, "now")}, {part(key)}))
            known = store.lanes("app").heads
            news = [told(key, position, seq, lane) for key, position, lane, seq in batches if seq > known[lane].seq]
            before = rows(store)
            open_lanes(store, *news, lane0=10, lane1=8)
            after = rows(store)
            assert all(after[key] >= position for key, position in before.items())
            assert all(after[one.partition.key] >= one.offset.position for one in news if isinstance(one.offset, SourceOffset))
