"""Promises about names: whoever gets a name that others had begins with nothing of theirs, and nobody loses what is its own by it.

Lanes are opened by the protocol, on an offsets topic in memory, and everything that is saved is in a store.
"""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from copycat_agent.agent.reloading import find_renames
from copycat_agent.delivery.exactly_once.opening_attempts import OPENINGS_AT_ONCE, LaneOpener, OpeningAttempt
from copycat_agent.errors import BehindError, CopiedError, PositionsError, RenamedError, RetriableError
from copycat_agent.fair_executor import FairExecutor
from copycat_agent.model import OFFSETS_TOPIC, Head, LaneId, Loss, OffsetsPartition, Position, SourceOffset, SourcePartition
from copycat_agent.offsets import LaneCommit, OffsetStore
from copycat_agent.transactions.entries import head_entry, partition_of, position_entry
from tests.unit.worker.fake_kafka import FakeKafka

if TYPE_CHECKING:
    from copycat_agent.options import Definition
    from copycat_agent.transactions.opening import Adopt

DEADLINE = 30.0


class Host:
    """An agent whose connectors begin when they are told to."""

    def __init__(self) -> None:
        self.kafka = FakeKafka()
        self.store = OffsetStore.in_memory()

    def lose_store(self) -> None:
        """All but `identity.json`."""
        kept = self.store._kept
        self.store = OffsetStore.in_memory()
        self.store._kept = kept

    def back_up(self) -> sqlite3.Connection:
        """A copy of `offsets.db`."""
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        with self.store.using() as connection:
            connection.backup(copy)
        return copy

    def put_back(self, copy: sqlite3.Connection) -> None:
        """`offsets.db` alone, before a start."""
        self.lose_store()
        with self.store.using() as connection:
            copy.backup(connection)
        copy.close()

    def begin(self, name: str, earlier: tuple[str, ...] = (), tasks_max: int = 1) -> OpeningAttempt:
        definition = SimpleNamespace(
            name=name, delivery=SimpleNamespace(tasks_max=tasks_max), kafka=SimpleNamespace(bootstrap_servers="broker:9092")
        )
        return LaneOpener(
            cast("Definition", definition), self.store, FairExecutor(OPENINGS_AT_ONCE), self.kafka.world, lambda: None, earlier
        ).all()

    def end(self, name: str, attempt: OpeningAttempt) -> None:
        """Save what it found."""
        asked, truth = attempt._future.result(DEADLINE)
        told = [(partition, offset) for partition, offset in asked.publish if offset is not None]
        self.store.lanes_opened(name, truth.cluster, asked.lanes.place, truth, told)

    def open(self, name: str, earlier: tuple[str, ...] = ()) -> None:
        self.end(name, self.begin(name, earlier))

    def start(self, name: str, earlier: tuple[str, ...] = ()) -> None:
        """As the worker does: once more when the first opening finds that the store is older than a rename."""
        try:
            self.open(name, earlier)
        except RenamedError:
            self.open(name, earlier)

    def ship(self, name: str, key: str, position: int, *, saved: bool = True, losses: tuple[Loss, ...] = ()) -> None:
        """One batch; not `saved`: the agent was killed after the commit."""
        head, identity = self.store.lanes(name).heads[0], self.store.identity
        now, partition = Head(head.seq + 1, identity.nonce, head.offset), SourcePartition(name, key)
        told = Position(partition, 0, now.seq, SourceOffset(position, path=key), losses=losses, nonce=identity.nonce)
        key = self.store.lanes(name).id
        self.kafka.append([position_entry(identity.uuid, key, told), head_entry(LaneId(identity.uuid, key, 0), now)])
        if saved:
            self.store.commit({partition: SourceOffset(position, path=key)}, moved=LaneCommit(name, {0: now}, {partition}))

    def positions(self, name: str) -> dict[str, int]:
        return {one.key: offset.position for one, offset in self.store.read(name).items()}

    def in_kafka(self, name: str) -> dict[str, int]:
        found = self.kafka.found(self.store.identity.uuid, name).positions
        return {one.partition.key: one.offset.position for one in found if isinstance(one.offset, SourceOffset)}


@pytest.fixture
def host() -> Host:
    return Host()


def test_positions_stand_under_one_name_only(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    host.ship("A", "g", 550, saved=False)
    host.store.rename("A", "B")
    host.open("B")
    assert host.positions("B") == {"g": 550}
    assert (host.in_kafka("A"), host.in_kafka("B")) == ({}, {"g": 550})


def test_renamed_and_back_only_what_is_known_now_counts(host: Host) -> None:
    host.open("B")
    host.ship("B", "g", 500)
    host.ship("B", "h", 700)
    host.store.rename("B", "A")
    host.open("A")
    host.store.begin_anew("A")
    host.open("A")
    host.ship("A", "g", 100)
    host.ship("A", "g", 150, saved=False)
    host.store.rename("A", "B")
    host.open("B")
    assert host.positions("B") == host.in_kafka("B") == {"g": 150}


def test_who_gets_a_name_finds_nothing_and_takes_nothing_while_its_last_holder_waits(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    loss = Loss(SourcePartition("A", "g"), "g", 500, 10, 10, 1, "rejected", "", 5)
    host.ship("A", "g", 550, saved=False, losses=(loss,))
    host.store.rename("A", "B")  # which is disabled, say
    host.open("A")
    assert (host.positions("A"), host.positions("B")) == ({}, {"g": 500})
    host.ship("A", "g", 600)
    host.ship("A", "h", 50)
    host.open("B")
    assert (host.positions("A"), host.positions("B")) == ({"g": 600, "h": 50}, {"g": 550})
    assert (host.in_kafka("A"), host.in_kafka("B")) == ({"g": 600, "h": 50}, {"g": 550})
    assert [(one.partition, one.start) for one in host.store.losses(None, 9)] == [(SourcePartition("B", "g"), 500)]


def test_a_waiting_holder_that_has_lanes_of_its_own_gets_what_was_its_too(host: Host) -> None:
    host.open("B")
    host.ship("B", "own", 7)
    host.open("A")
    host.ship("A", "g", 500)
    host.ship("A", "g", 550, saved=False)
    host.store.rename("A", "B")
    host.open("A")
    host.open("B")
    assert host.positions("B") == host.in_kafka("B") == {"own": 7, "g": 550}


@pytest.mark.parametrize("first", ["A", "B"])
@pytest.mark.parametrize("saved", [True, False])
def test_two_connectors_may_swap_names(host: Host, first: str, *, saved: bool) -> None:
    host.open("A")
    host.open("B")
    host.ship("A", "g", 400)
    host.ship("A", "g", 500, saved=saved)
    host.ship("B", "g", 77)
    host.ship("B", "b", 5, saved=saved)
    for old, new in (("A", "between"), ("B", "A"), ("between", "B")):
        host.store.rename(old, new)
    for name in (first, "AB".replace(first, "")):
        host.open(name)
    assert (host.positions("A"), host.positions("B")) == ({"g": 77, "b": 5}, {"g": 500})
    assert (host.in_kafka("A"), host.in_kafka("B")) == ({"g": 77, "b": 5}, {"g": 500})


@pytest.mark.parametrize("commits", range(16))
def test_a_swap_may_be_interrupted_anywhere(host: Host, commits: int) -> None:
    """The agent is killed before, or after, one of the commits that the two openings make; nothing of that opening is saved."""
    host.open("A")
    host.open("B")
    host.ship("A", "g", 500, saved=False)
    host.ship("B", "g", 77, saved=False)
    for old, new in (("A", "between"), ("B", "A"), ("between", "B")):
        host.store.rename(old, new)
    left = commits // 2

    def killed(step: str) -> None:
        nonlocal left
        if step == "commit":
            left -= 1
            if left < 0:
                host.kafka.at_step = lambda _: None
                host.kafka.fail_commit(after=bool(commits % 2))

    host.kafka.at_step = killed
    for name in ("A", "B"):
        while True:
            try:
                host.open(name)
                break
            except RetriableError:
                continue
    assert (host.positions("A"), host.positions("B")) == ({"g": 77}, {"g": 500})
    assert (host.in_kafka("A"), host.in_kafka("B")) == ({"g": 77}, {"g": 500})


@pytest.mark.parametrize("reset", [True, False])
def test_a_lost_store_takes_over_nothing_that_was_taken_over_before(host: Host, *, reset: bool) -> None:
    """`renamed_from` stays in a definition for ever."""
    host.open("A")
    host.ship("A", "g", 500)
    host.ship("A", "h", 700)
    host.store.rename("A", "B")
    host.open("B")
    if reset:
        host.store.begin_anew("B")
    else:
        host.store.reset({SourcePartition("B", "g"): SourceOffset(0)}, forget=[SourcePartition("B", "h")])
    host.open("B", ("A",))
    host.ship("B", "g", 100)
    if not reset:
        gone, key = SourcePartition("B", "h"), host.store.lanes("B").id
        told = position_entry(host.store.identity.uuid, key, Position(gone, 0, 0, None))  # as all marks are
        host.kafka.append([told])
    host.lose_store()
    host.open("B", ("A",))
    assert host.positions("B") == {"g": 100}


def test_a_store_that_is_not_lost_knows_whose_positions_an_old_name_has(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    host.store.rename("A", "C")  # and is not opened
    host.open("B", ("A",))
    assert host.positions("B") == {}
    host.open("C")
    assert host.positions("C") == {"g": 500}


def test_a_reset_holds_when_the_connector_gets_another_name_next(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    host.store.begin_anew("A")
    definitions: Any = {"B": SimpleNamespace(renamed_from=["A"])}
    found = find_renames(definitions, {*host.store.connectors(), *host.store.connectors_with_lanes()}, {"B"})
    for old in found.taken["B"]:
        host.store.rename(old, "B")
    host.open("B", found.earlier["B"])
    assert (host.positions("B"), host.in_kafka("A")) == ({}, {})


def test_where_the_topic_was_made_anew_with_fewer_partitions_a_person_decides_about_earlier_names_too(host: Host) -> None:
    host.kafka.partitions = 25
    first = next(name for name in "ACDEFGHIJKLMN" if partition_of(host.store._kept.uuid, host.store.identified(name).id, 25))
    host.open(first)
    host.ship(first, "g", 500)
    place = host.store.lanes(first).place
    assert place is not None
    assert place.partition > 0
    host.store.rename(first, "B")
    host.kafka.partitions, host.kafka.log = 1, []
    with pytest.raises(PositionsError, match=f"partition {place.partition}.*made anew") as raised:
        host.open("B")
    assert "copycat offsets adopt B" in str(raised.value.hint)
    host.store.adopt("B", "local")
    host.open("B")
    assert host.in_kafka("B") == {"g": 500}
    assert host.store.lanes("B").place == OffsetsPartition(OFFSETS_TOPIC, 0)


def test_too_few_partitions_that_were_told_once_are_not_remembered(host: Host) -> None:
    """Another broker tells all of them again."""
    host.kafka.partitions = 25
    name = next(name for name in map("app-{}".format, count()) if _stands_beyond_the_first(host, name))
    host.ship(name, "g", 500)
    host.kafka.partitions = 1
    with pytest.raises(BehindError, match="made anew"):
        host.open(name)
    host.kafka.partitions = 25
    host.open(name)
    assert host.positions(name) == {"g": 500}


def _stands_beyond_the_first(host: Host, name: str) -> bool:
    """Where a connector's entries stand follows from ids that are random, and the first partition is there in every topic."""
    host.open(name)
    place = host.store.lanes(name).place
    return place is not None and place.partition > 0


def test_a_name_that_is_taken_back_before_it_was_found_stands_where_everybodys_do(host: Host) -> None:
    """The store is lost, and an opening under the new name is killed; the old one comes back."""
    host.open("D")
    host.ship("D", "g", 500)
    host.lose_store()
    killed = host.begin("B", ("D",))
    killed._future.result(DEADLINE)
    host.store.rename("B", "D")
    host.open("D")
    assert host.positions("D") == {"g": 500}


def test_another_cluster_is_not_asked_what_an_earlier_holder_did(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    host.store.rename("A", "B")
    here, host.kafka.cluster = host.kafka.cluster, "another"
    host.open("A")
    host.kafka.cluster = here
    host.open("B")
    assert host.positions("B") == {"g": 500}


def test_who_gets_a_name_does_not_wait_for_its_last_holder(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    host.store.rename("A", "B")
    last_holder, new_holder = host.begin("B"), host.begin("A")
    host.end("A", new_holder)
    host.end("B", last_holder)
    host.ship("A", "g", 600)
    assert (host.positions("A"), host.positions("B")) == ({"g": 600}, {"g": 500})


def test_who_gives_up_lets_others_go_on(host: Host) -> None:
    host.open("A")
    host.store.rename("A", "B")
    gone = host.begin("B")
    gone._future.result(DEADLINE)
    gone.cancel()
    host.kafka.at_step = away
    with pytest.raises(RetriableError, match="away"):
        host.open("B")
    host.kafka.at_step = lambda _: None
    host.open("A")
    host.open("B")


def away(step: str) -> None:
    if step == "commit":
        raise RetriableError("away")


def test_what_stood_there_before_the_last_opening_is_deleted_as_well(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    host.open("A")
    host.store.rename("A", "B")
    host.open("B")
    host.store.begin_anew("B")
    host.open("B")
    host.lose_store()
    host.open("B", ("A",))
    assert (host.positions("B"), host.in_kafka("A")) == ({}, {})


@pytest.mark.parametrize("first", ["A", "B"])
@pytest.mark.parametrize("saved", [True, False])
def test_of_a_file_that_both_had_the_new_one_keeps_its_own_offset(host: Host, first: str, *, saved: bool) -> None:
    """Also what the other did last is no more than what the other did."""
    for name in "AB":
        host.open(name)
    host.ship("B", "g", 77)
    host.ship("A", "g", 500)
    host.ship("A", "g", 550, saved=saved)
    host.store.rename("A", "B")
    for name in (first, "B"):
        host.open(name)
    assert host.positions("B") == {"g": 77}
    told = host.store.unpublished("B", 9)
    assert host.in_kafka("B") == {"g": 77} or SourcePartition("B", "g") in told


def test_what_is_still_to_be_told_is_told_under_the_next_name(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    host.store.rename("A", "B")
    host.open("A")  # which brings home what is B's
    host.store.rename("B", "C")
    host.open("C")
    assert host.positions("C") == {"g": 500}
    assert host.in_kafka("C") == {"g": 500} or SourcePartition("C", "g") in host.store.unpublished("C", 9)


def test_a_lost_store_takes_over_earlier_lanes_also_under_a_name_that_was_given_away(host: Host) -> None:
    host.open("D")
    host.ship("D", "h", 51)
    host.lose_store()
    host.open("A")
    host.store.rename("A", "B")
    host.open("B")
    host.store.rename("B", "C")
    host.open("C")
    assert host.store.knows("B")
    host.open("B", ("D",))
    assert (host.positions("B"), host.in_kafka("D")) == ({"h": 51}, {})


def test_names_that_come_back_bring_their_positions(host: Host) -> None:
    """A's go to D, and back to an A that has got those of B meanwhile."""
    for name in "AB":
        host.open(name)
        host.ship(name, name, 5)
    host.ship("A", "g", 17, saved=False)
    for old, new in (("A", "D"), ("B", "A"), ("D", "A")):
        host.store.rename(old, new)
    host.open("A")
    assert host.positions("A") == host.in_kafka("A") == {"A": 5, "B": 5, "g": 17}


@pytest.mark.parametrize("ends", ["reset", "renamed"])
def test_a_first_opening_that_was_killed_has_told_what_may_not_come_back(host: Host, ends: str) -> None:
    host.store.commit({SourcePartition("A", "g"): SourceOffset(500, path="g")})
    killed = host.begin("A")
    killed._future.result(DEADLINE)
    assert host.in_kafka("A") == {"g": 500}
    host.store.begin_anew("A") if ends == "reset" else host.store.rename("A", "B")
    host.open("A")
    assert host.positions("A") == host.in_kafka("A") == {}


def test_a_rename_after_an_opening_that_was_killed_leaves_nothing_under_that_name(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    host.store.rename("A", "B")
    killed = host.begin("B")
    killed._future.result(DEADLINE)
    assert host.in_kafka("B") == {"g": 500}
    host.store.rename("B", "C")
    host.open("C")
    assert (host.positions("C"), host.in_kafka("B"), host.in_kafka("C")) == ({"g": 500}, {}, {"g": 500})


def test_what_an_opening_that_was_killed_has_told_is_its_owners_whoever_gets_that_name(host: Host) -> None:
    host.open("A")
    host.ship("A", "g", 500)
    host.ship("A", "g", 550, saved=False)
    host.store.rename("A", "B")
    killed = host.begin("B")
    killed._future.result(DEADLINE)
    host.store.rename("B", "C")
    host.open("B")
    host.open("C")
    assert (host.positions("B"), host.positions("C")) == ({}, {"g": 550})


def test_of_a_file_that_both_had_and_nobody_here_knew_the_new_one_keeps_its_own_offset(host: Host) -> None:
    for name in "AB":
        host.open(name)
    host.ship("A", "g", 500, saved=False)
    host.ship("B", "g", 77, saved=False)
    host.store.rename("A", "B")
    host.open("B")
    assert host.positions("B") == host.in_kafka("B") == {"g": 77}


def renamed_after_a_backup(host: Host, *, has_new_holder: bool = True) -> sqlite3.Connection:
    """A, as it is in the copy, is called B later, and goes on; another connector gets the name A."""
    host.open("A")
    host.ship("A", "g", 500)
    copy = host.back_up()
    host.store._identity = None  # the agent starts again
    host.store.rename("A", "B")
    host.open("B")
    host.ship("B", "g", 900)
    if has_new_holder:
        host.open("A")
        host.ship("A", "h", 50)
    return copy


@pytest.mark.parametrize("order", ["AB", "BA"])
@pytest.mark.parametrize("kills", [0, 1])
def test_a_store_from_before_a_rename_gives_each_connector_its_own_positions(host: Host, order: str, kills: int) -> None:
    """Also when the agent is killed once its first connector has opened its lanes, before that is saved."""
    host.put_back(renamed_after_a_backup(host))
    for _ in range(kills):
        with pytest.raises(RenamedError) if order == "AB" else nullcontext():
            host.begin(order[0])._future.result(DEADLINE)
        host.store._identity = None
    for name in order:
        host.start(name)
    assert (host.positions("A"), host.positions("B")) == ({"h": 50}, {"g": 900})
    ids = [host.store.lanes(name).id for name in "AB"]
    host.lose_store()
    for name in order:
        host.open(name)
    assert (host.positions("A"), host.positions("B")) == ({"h": 50}, {"g": 900})
    assert [host.store.lanes(name).id for name in "AB"] == ids


@pytest.mark.parametrize("earlier", [(), ("A",)])
def test_a_store_from_before_a_rename_finds_the_only_one_that_is_left(host: Host, earlier: tuple[str, ...]) -> None:
    host.put_back(renamed_after_a_backup(host, has_new_holder=False))
    host.start("B", earlier)
    assert host.positions("B") == {"g": 900}


def test_a_name_that_nobody_else_got_goes_on_from_a_store_from_before_its_rename(host: Host) -> None:
    """The rename is given up together with the store: rather again than never."""
    host.put_back(renamed_after_a_backup(host, has_new_holder=False))
    host.start("A")
    assert host.positions("A") == {"g": 500}


def test_a_rename_that_is_given_up_with_the_store_loses_and_repeats_nothing_when_the_definition_says_so(host: Host) -> None:
    host.put_back(renamed_after_a_backup(host, has_new_holder=False))
    host.start("A", earlier=("B",))
    assert host.positions("A") == {"g": 900}


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_a_state_directory_from_before_a_rename_is_adopted_from_the_topic(host: Host, order: str) -> None:
    kept = host.store._kept
    copy = renamed_after_a_backup(host)
    host.put_back(copy)
    host.store._kept = kept  # identity.json as it was before the first start
    for name in order:
        with pytest.raises(CopiedError):
            host.open(name)
    for name in order:
        host.store.adopt(name, "topic")
    for name in order:
        host.start(name)
    assert (host.positions("A"), host.positions("B")) == ({"h": 50}, {"g": 900})


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_a_store_from_before_two_connectors_swapped_names(host: Host, order: str) -> None:
    for name, key, position in (("A", "g", 500), ("B", "h", 77)):
        host.open(name)
        host.ship(name, key, position)
    copy = host.back_up()
    for old, new in (("A", "between"), ("B", "A"), ("between", "B")):
        host.store.rename(old, new)
    for name, key, position in (("A", "h", 78), ("B", "g", 501)):
        host.open(name)
        host.ship(name, key, position)
    host.put_back(copy)
    for name in order:
        host.start(name)
    assert (host.positions("A"), host.positions("B")) == ({"h": 78}, {"g": 501})


def test_what_a_person_sets_in_a_store_from_before_a_rename_counts(host: Host) -> None:
    host.put_back(renamed_after_a_backup(host))
    host.start("B")
    host.store.reset({SourcePartition("A", "h"): SourceOffset(5, path="h")})
    host.start("A")
    assert (host.positions("A"), host.positions("B")) == ({"h": 5}, {"g": 900})


def test_a_rename_that_was_told_and_not_saved_may_be_taken_back(host: Host) -> None:
    """Kafka knows the other name, and the store is no older for that."""
    host.open("A")
    host.ship("A", "g", 500)
    host.store.rename("A", "B")
    killed = host.begin("B")
    killed._future.result(DEADLINE)
    host.store.rename("B", "A")
    host.open("A")
    assert host.positions("A") == host.in_kafka("A") == {"g": 500}


@pytest.mark.parametrize("which", ["local", "topic"])
def test_a_topic_from_before_a_rename_does_not_take_the_id_away(host: Host, which: Adopt) -> None:
    """The cluster was put back, and what it knows of names is older than the store."""
    host.open("A")
    host.ship("A", "g", 500)
    log = list(host.kafka.log)
    host.store.rename("A", "B")
    host.open("B")
    host.ship("B", "g", 900)
    host.kafka.log[:] = log
    with pytest.raises(BehindError):
        host.open("B")
    host.store.adopt("B", which)
    host.open("B")
    assert host.positions("B") == {"g": 900 if which == "local" else 500}
    assert host.in_kafka("B") == host.positions("B")
