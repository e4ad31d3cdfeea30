"""The planner of every source: whose turn it is, shares of tasks, order within a group, back-off, and what is still to be saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from copycat_agent.model import Account, Loss, SourceOffset, SourcePartition
from copycat_agent.sources.planner import PER_BATCH, READY, Changes, FileBackoff, Planner, TurnQueue, UnsavedChanges


@dataclass(eq=False)
class One:
    """A partition with something to read."""

    name: str
    unread: int = 1
    backoff: FileBackoff = READY
    next_one: One | None = None
    partition: SourcePartition = field(init=False)

    def __post_init__(self) -> None:
        self.partition = SourcePartition("c", self.name)


class Clock:
    """Stands until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def some(count: int, unread: int = 1) -> list[One]:
    return [One(str(number), unread) for number in range(count)]


def size(one: One) -> int:
    return one.unread


def follower(one: One) -> One | None:
    return one.next_one


def names(chosen: list[One]) -> list[str]:
    return [one.name for one in chosen]


def test_who_is_served_stands_at_the_end_and_nobody_is_served_twice_before_all_others() -> None:
    turns, planner = TurnQueue[One](), Planner[One](most=3)
    for one in some(10):
        turns.add(one)
    served = []
    for _ in range(10):
        chosen = planner.ready(turns, 1)
        for one in chosen:
            turns.served(one)
        served += names(chosen)
    assert [served[at : at + 10] for at in (0, 10, 20)] == [[str(number) for number in range(10)]] * 3


def test_who_is_in_keeps_its_place_and_who_left_is_not_served_again() -> None:
    turns = TurnQueue[One]()
    first, second = some(2)
    for one in (first, second, first):
        turns.add(one)
    assert list(turns) == [first, second]
    turns.discard(first)
    turns.served(first)
    assert (list(turns), len(turns), first in turns) == ([second], 1, False)


def test_a_queue_with_an_order_gives_the_least_first_and_equal_ones_as_they_came() -> None:
    turns = TurnQueue[One](lambda one: one.unread)
    for one in (One("large", 9), One("a", 1), One("b", 1), gone := One("gone", 0)):
        turns.add(one)
    turns.discard(gone)
    order = turns.in_order()
    assert next(order).name == "a"
    turns.add(One("again", 0))
    assert names(list(order)) == ["again", "b", "large"]
    assert len(turns) == 0


def test_who_comes_back_with_another_place_has_only_that_one() -> None:
    turns = TurnQueue[One](lambda one: one.unread)
    moved, other = One("moved", 1), One("other", 2)
    turns.add(moved)
    turns.add(other)
    turns.discard(moved)
    moved.unread = 3
    turns.add(moved)
    assert names(list(turns.in_order())) == ["other", "moved"]


@pytest.mark.parametrize(("count", "shares", "gets"), [(0, 4, 0), (1, 4, 1), (7, 2, 4), (8, 2, 4), (8, 1, 8), (1000, 1, PER_BATCH)])
def test_a_task_gets_its_share_rounded_up_and_no_more_than_a_batch_holds(count: int, shares: int, gets: int) -> None:
    assert len(Planner[One]().ready(some(count), shares)) == gets
    assert Planner[One]().share(count, shares) == gets


def test_tasks_that_plan_one_after_the_other_share_all_there_is() -> None:
    planner, every = Planner[One](), some(10)
    taken = []
    for shares in (3, 2, 1):
        chosen = planner.fill(planner.ready(every, shares), size)
        for one in chosen:
            planner.take(one)
        taken.append(names(chosen))
    assert [len(one) for one in taken] == [4, 3, 3]
    assert sorted(int(name) for share in taken for name in share) == list(range(10))


def test_what_is_in_flight_is_not_planned_again_until_it_has_landed() -> None:
    planner, (one,) = Planner[One](), some(1)
    planner.take(one)
    assert planner.ready([one], 1) == []
    assert not planner.may_follow(one)
    with pytest.raises(AssertionError):
        planner.take(one)
    assert planner.release(one.partition) is one
    assert planner.ready([one], 1) == [one]


def test_who_failed_waits_longer_each_time_and_holds_up_nobody() -> None:
    clock = Clock()
    planner = Planner[One](clock=clock)
    failed, other = One("failed"), One("other")
    waits = []
    for _ in range(12):
        failed.backoff = failed.backoff.after_error(clock.now, (0.5, 60.0))
        waits.append(failed.backoff.retry_at - clock.now)
        assert planner.ready([failed, other], 1) == [other]
        assert not planner.may_follow(failed)
        clock.now = failed.backoff.retry_at
        assert planner.ready([failed, other], 1) == [failed, other]
    assert waits[:3] == [0.5, 1.0, 2.0]
    assert all(before <= now for before, now in pairwise(waits))
    assert waits[-1] == 60.0
    assert READY.after_block(0.0, (5.0, 5.0)).after_block(0.0, (5.0, 5.0)) == FileBackoff(0, 2, 5.0)


def test_a_batch_ends_with_what_brings_it_to_its_bytes_and_asks_for_no_more() -> None:
    firsts = iter(some(10, unread=40))
    assert names(Planner[One](100).fill(firsts, size)) == ["0", "1", "2"]
    assert next(firsts).name == "3"


def test_what_is_larger_than_a_batch_is_a_batch_of_its_own() -> None:
    assert names(Planner[One](100).fill(some(3, unread=1000), size)) == ["0"]


def test_newer_ones_of_a_group_stand_behind_older_ones_while_there_is_room() -> None:
    oldest, older, newest, other = One("oldest"), One("older"), One("newest"), One("other")
    oldest.next_one, older.next_one = older, newest
    planner = Planner[One](100)
    assert names(planner.fill([oldest, other], size, follower, 10)) == ["oldest", "older", "newest", "other"]
    assert names(planner.fill([oldest, other], size, follower, 1)) == ["oldest", "older", "other"]
    assert names(planner.fill([oldest, other], size, follower, 0)) == ["oldest", "other"]
    older.unread = 200
    assert names(planner.fill([oldest, other], size, follower, 10)) == ["oldest", "older"]


def offset(position: int) -> SourceOffset:
    return SourceOffset(position, path="/p")


def test_what_is_not_confirmed_is_asked_for_again_and_what_came_later_holds() -> None:
    unsaved = UnsavedChanges()
    one, two, gone = (SourcePartition("c", key) for key in ("one", "two", "gone"))
    loss = Loss(one, "/p", 0, 1, 1, 0, "damaged", "why", 0)
    confirmed = unsaved.add(Changes(offsets={two: offset(1)}))
    unsaved.add(Changes({one: offset(1), gone: offset(5)}, {two}, [loss], {one: Account(path="/p", state="read")}))
    unsaved.add(Changes({one: offset(2), two: offset(3)}, {gone}, accounts={one: Account(why="more")}))
    unsaved.confirm(confirmed)
    assert unsaved.joined() == Changes(
        {one: offset(2), two: offset(3)}, {gone}, [loss], {one: Account(path="/p", state="read", why="more")}
    )


def test_equal_changes_are_confirmed_one_by_one() -> None:
    unsaved = UnsavedChanges()
    first, _ = unsaved.add(Changes()), unsaved.add(Changes())
    unsaved.confirm(first)
    assert len(unsaved) == 1
