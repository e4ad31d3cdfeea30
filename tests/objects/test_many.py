"""Many objects: how they are listed, what is remembered of those that were read, and that none is read twice for it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from copycat_agent.extending import Gone, Remembered
from copycat_agent.sources.objects import memory, objects, passes
from copycat_agent.sources.objects.memory import ReadMemory
from copycat_agent.sources.objects.passes import Passes
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.objects.conftest import Bucket, Objects, Place


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bounds so small that a test reaches them."""
    monkeypatch.setattr(objects, "WAITING_MOST", 20)
    monkeypatch.setattr(objects, "REMEMBER_AT", 10)
    monkeypatch.setattr(memory, "SMALL_MOST", 4)
    monkeypatch.setattr(passes, "FULL_MOST", 30)


def put(place: Place, names: Iterable[str]) -> None:
    for name in names:
        place.put(name, f"{name}\n".encode())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_more_objects_than_are_kept_as_partitions_are_read_once_over_restarts(shipping: Objects, place: Place, guarantee: str) -> None:
    first = [f"{number:04}" for number in range(0, 300, 2)]
    put(place, first)
    delivery = {"guarantee": guarantee}
    shipping.follow(place, delivery=delivery)
    shipping.lines(until=len(first))
    wait_until(lambda: len(rows(shipping)) < 40, 30, lambda: f"{len(rows(shipping))} rows")
    shipping.stop()
    late = [f"{number:04}" for number in range(1, 300, 2)]
    put(place, late)
    shipping.follow(place, delivery=delivery)
    assert sorted(shipping.lines(until=300)) == sorted(first + late)
    wait_until(lambda: len(rows(shipping)) < 40, 30, lambda: f"{len(rows(shipping))} rows")
    put(place, ["0000x"])
    assert shipping.lines(until=301)[-1] == "0000x"
    shipping.stop()
    shipping.follow(place, until_idle=True, delivery=delivery)
    shipping.wait_idle()
    assert len(shipping.lines()) == 301
    assert shipping.losses == ()


def rows(shipping: Objects) -> list[str]:
    return [one.key for one in shipping.offsets if one.key.startswith("o:")]


@pytest.mark.usefixtures("small")
def test_a_poll_lists_what_lies_behind_the_last_names_and_a_full_listing_finds_what_is_late(shipping: Objects, bucket: Bucket) -> None:
    put(bucket, (f"m{number:03}" for number in range(50)))
    shipping.follow(bucket, {"look_back": "0s", "relist": "3s"})
    shipping.lines(until=50)
    bucket.put("n", b"n\n")
    bucket.put("a", b"late\n")
    assert sorted(shipping.lines(until=52)[50:]) == ["late", "n"]
    asked = [one for one in bucket.store.requests if "list-type=2" in one and bucket.directory in one]
    assert any("start-after=" in one for one in asked)
    wait_until(lambda: [one for one in bucket.store.requests if "list-type=2" in one and bucket.directory in one][-1] != asked[-1], 10)


def test_a_look_back_begins_at_the_name_that_was_the_last_so_long_ago() -> None:
    one = Passes(5.0, 60.0, 3600.0)
    full = one.current(0.0, lists_behind=True, to_the_end=False)
    assert full is not None
    assert full.after == ""
    assert one.passed == ""
    full.at, full.count, full.highest_old = "k", passes.FULL_MOST + 1, "c"
    assert one.current(1.0, lists_behind=True, to_the_end=False) is full, "until it is through"
    through = [one.passed]
    one.complete(full, 2.0)
    assert [*through, one.passed] == ["k", None]
    assert one.current(3.0, lists_behind=True, to_the_end=False) is None
    begun = []
    for now, name in ((5.0, "m"), (30.0, "p"), (64.0, "q"), (100.0, "q"), (200.0, "r")):
        found = one.current(now, lists_behind=True, to_the_end=False)
        assert found is not None
        begun.append(found.after)
        found.at = name
        one.complete(found, now)
    assert begun == ["c", "c", "k", "p", "q"]
    found = one.current(3600.0, lists_behind=True, to_the_end=False)
    assert found is not None
    assert found.after == "", "everything is listed again"


@pytest.mark.parametrize(("lists_behind", "count"), [(False, 10**6), (True, passes.FULL_MOST)])
def test_everything_is_listed_at_each_poll_where_that_costs_no_more(lists_behind: bool, count: int) -> None:
    one = Passes(5.0, 60.0, 3600.0)
    for now in (0.0, 5.0, 10.0):
        found = one.current(now, lists_behind=lists_behind, to_the_end=False)
        assert found is not None
        assert found.after == ""
        found.at, found.count = "k", count
        one.complete(found, now)
    assert one.current(20.0, lists_behind=lists_behind, to_the_end=True) is None, "a run to the end lists once"


class Saved:
    """What a store has of a memory."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}

    def tell(self, tells: Iterable[object]) -> None:
        for one in tells:
            if isinstance(one, Remembered):
                self.values[one.key] = one.value
            else:
                assert isinstance(one, Gone)
                del self.values[one.key]


def test_what_was_read_is_remembered_by_another_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CHUNK_IDS", 64)
    saved, one = Saved(), ReadMemory()
    ids = [number * 2**50 for number in range(1, 2000)]
    for begin in range(0, len(ids), 10):
        saved.tell(one.add(ids[begin : begin + 10], begin))
        one.recall(saved.values)
        saved.tell(one.joined(None))
        one.recall(saved.values)
    later = ReadMemory()
    later.recall(saved.values)
    for each in (one, later):
        assert all(number in each for number in ids)
        assert not any(number + 1 in each for number in ids)
    assert len(later) == len(ids)
    assert len(saved.values) < len(ids) / 64 + memory.SMALL_MOST + 2


def test_of_too_many_the_oldest_are_given_up_and_taken_for_read_by_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CHUNK_IDS", 8)
    monkeypatch.setattr(memory, "CHUNKS_MOST", 3)
    saved, one = Saved(), ReadMemory()
    for number in range(5):
        saved.tell(one.add(range(number * 8, number * 8 + 8), 1000 + number))
        one.recall(saved.values)
    for passed in ("k", None):
        saved.tell(one.joined(passed))
        one.recall(saved.values)
        later = ReadMemory()
        later.recall(saved.values)
        known = [number for number in range(40) if number in later]
        assert known == list(range(8 if passed else 16, 40))
        assert later.is_forgotten("a", 1000)
        assert later.is_forgotten("z", 1000) is (passed is None)
        assert not later.is_forgotten("a", 1002)
    assert list(one.joined(None)) == []


def test_values_are_small_enough_to_be_saved() -> None:
    one = ReadMemory()
    full = next(iter(one.add(itertools.repeat(2**64 - 1, memory.CHUNK_IDS), 2**43)))
    assert isinstance(full, Remembered)
    assert len(str(full.value)) < 200_000
