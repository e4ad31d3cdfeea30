"""Many objects: how they are listed, what is remembered of those that were read, and that none is read twice for it."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest

from copycat_agent.extending import Gone, Remembered
from copycat_agent.sources.objects import listing_schedule, memory, objects_source
from copycat_agent.sources.objects.listing_schedule import ListingSchedule
from copycat_agent.sources.objects.memory import ReadHistory
from tests.faults.state_host import TABLES
from tests.objects.conftest import crossed
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from copycat_agent.sources.objects.listing_schedule import NameRange
    from tests.objects.conftest import Bucket, Objects, Place


pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bounds so small that a test reaches them."""
    monkeypatch.setattr(objects_source, "WAITING_MOST", 20)
    monkeypatch.setattr(objects_source, "REMEMBER_AT", 10)
    monkeypatch.setattr(memory, "SMALL_MOST", 4)
    monkeypatch.setattr(listing_schedule, "FULL_MOST", 30)


def put(place: Place, names: Iterable[str]) -> None:
    for name in names:
        place.put(name, f"{name}\n".encode())


@pytest.mark.usefixtures("small")
@crossed
def test_more_objects_than_are_kept_as_partitions_are_read_once_over_restarts(shipping: Objects, place: Place, guarantee: str) -> None:
    first = [f"{number:04}" for number in range(0, 120, 2)]
    put(place, first)
    delivery = {"guarantee": guarantee}
    shipping.follow(place, delivery=delivery)
    shipping.lines(until=len(first))
    wait_until(lambda: len(rows(shipping)) < 40, 30, lambda: f"{len(rows(shipping))} rows")
    shipping.stop()
    late = [f"{number:04}" for number in range(1, 120, 2)]
    put(place, late)
    shipping.follow(place, delivery=delivery)
    assert sorted(shipping.lines(until=120)) == sorted(first + late)
    wait_until(lambda: len(rows(shipping)) < 40, 30, lambda: f"{len(rows(shipping))} rows")
    put(place, ["0000x"])
    assert shipping.lines(until=121)[-1] == "0000x"
    shipping.stop()
    shipping.follow(place, until_idle=True, delivery=delivery)
    shipping.wait_idle()
    assert len(shipping.lines()) == 121
    assert shipping.losses == ()


@pytest.mark.usefixtures("small")
def test_with_exactly_once_kafka_knows_what_was_read_when_the_store_is_lost(shipping: Objects, bucket: Bucket) -> None:
    names = [f"{number:04}" for number in range(60)]
    put(bucket, names)
    delivery = {"guarantee": "exactly_once"}
    shipping.follow(bucket, delivery=delivery)
    shipping.lines(until=60)
    wait_until(lambda: len(rows(shipping)) < 30, 30, lambda: f"{len(rows(shipping))} rows")
    put(bucket, ["9999"])
    shipping.lines(until=61)
    shipping.wait_caught_up()
    shipping.stop()
    assert (shipping.state_dir / "offsets.db").stat().st_size > 0
    for name in TABLES:
        (shipping.state_dir / name).unlink(missing_ok=True)
    put(bucket, ["0000x"])
    shipping.follow(bucket, until_idle=True, delivery=delivery)
    shipping.wait_idle()
    assert sorted(shipping.lines()) == sorted([*names, "9999", "0000x"])


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

    def asked() -> list[str]:
        return [one for one in bucket.store.requests if "list-type=2" in one and bucket.directory in one]

    wait_until(lambda: any("start-after=" in one for one in asked()), 60)
    last = asked()[-1]
    wait_until(lambda: asked()[-1] != last, 60)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of passes that a test reaches."""
    monkeypatch.setattr(listing_schedule, "FULL_MOST", 10)
    monkeypatch.setattr(listing_schedule, "LARGE", 4)
    monkeypatch.setattr(listing_schedule, "PAGE", 4)


class Listing:
    """Names of a bucket, each with whether it is old, and passes through them."""

    def __init__(self, *old: str) -> None:
        self.names = dict.fromkeys(old, True)
        self.passes = ListingSchedule("in/", 5.0, 600.0)
        self.now = 0.0
        self.found: list[str] = []
        self.swept: list[str] = []

    def poll(self) -> list[tuple[str, str]]:
        """One pass, and what is due of the sweep: returns prefix and beginning of the ranges of the first."""
        self.now += 5.0
        self.found, self.swept, self.pages, polled = [], [], 0, None
        while (one := self.passes.current(self.now, lists_behind=True, to_the_end=False)) is not None:
            assert self.passes.current(self.now, lists_behind=True, to_the_end=False) is one, "until it is through"
            found = self.found if polled is None else self.swept
            polled = polled or one
            for name in one.through(self.pages_of):
                one.passed(name)
                self.passes.note(one, name, self.now, is_old=self.names[name])
                found.append(name)
            assert all(one.covers(name) for name in found)
            if one.is_through:
                self.passes.complete(one, self.now)
            else:
                self.passes.rest()
        assert polled is not None
        return list(polled.ranges)

    def pages_of(self, names: NameRange) -> Iterator[str]:
        """A listing, as S3 answers it."""
        found = sorted(each for each in self.names if each in names)
        for begin in range(0, max(1, len(found)), listing_schedule.PAGE):
            self.pages += 1
            yield from found[begin : begin + listing_schedule.PAGE]


@pytest.mark.usefixtures("few")
def test_a_poll_lists_what_lies_behind_the_last_name_that_is_old() -> None:
    listing = Listing(*(f"in/{number:02}" for number in range(20)))
    assert [listing.passes.full_since, listing.poll(), listing.passes.full_since] == [-math.inf, [("", "")], listing.now]
    assert listing.passes.current(listing.now, lists_behind=True, to_the_end=False) is None, "it is not time"
    listing.names["in/20"] = listing.names["in/185"] = False
    assert listing.poll() == [("", "in/19")]
    assert listing.found == ["in/20"], "what is late is found by a full listing"
    listing.names["in/20"] = True
    assert listing.poll() == [("", "in/19")]
    assert listing.poll() == [("", "in/20")]
    listing.now += 600
    listing.poll()
    assert listing.swept[-1] == max(listing.names), "in time"


@pytest.mark.usefixtures("few")
def test_directories_with_something_new_are_listed_by_themselves_as_high_as_they_stay_small() -> None:
    hosts = [f"in/{host}/{day}/{number}" for host in "abc" for day in (1, 2) for number in range(5)]
    listing = Listing(*hosts, "in/zzz")
    listing.names["in/a/2/5"] = listing.names["in/c/2/5"] = False
    assert listing.poll() == [("", "")]
    assert listing.poll() == [("", "in/zzz"), ("in/a/", "in/a/2/4"), ("in/c/", "in/c/2/4")]
    listing.names["in/a/3/0"] = False
    listing.poll()
    assert "in/a/3/0" in listing.found, "a new day"
    listing.names |= dict.fromkeys((f"in/a/1/x{number}" for number in range(3)), False)
    listing.names |= dict.fromkeys((f"in/a/3/{number}" for number in range(6)), False)
    listing.poll()
    for _ in range(2):  # the first sweep had begun before
        listing.now += 600
        listing.poll()
        assert listing.swept[-1] == max(listing.names), "in time"
    behind = {("in/c/", "in/c/2/4"), ("in/a/1/", "in/a/1/4"), ("in/a/2/", "in/a/2/4"), ("in/a/3/", "in/a/3/3")}
    assert {*listing.poll(), *listing.poll()} == {("", "in/zzz")} | behind
    listing.now += 1300
    listing.names = dict.fromkeys(listing.names, True)
    listing.poll()
    assert listing.poll() == [("", "in/zzz")], "what is quiet needs no request of its own"


@pytest.mark.usefixtures("few")
def test_many_directories_have_their_turns() -> None:
    listing = Listing(*(f"in/{number:02}/{name}" for number in range(10) for name in "ab"), "in/zzz")
    listing.names |= dict.fromkeys((f"in/{number:02}/c" for number in range(10)), False)
    listing.poll()
    polls = [listing.poll() for _ in range(3)]
    assert all(len(one) in (listing_schedule.RANGES_MOST, 1 + listing_schedule.RANGES_MOST) for one in polls), "one may be the sweep's"
    assert {prefix for one in polls for prefix, _ in one[1:]} == {f"in/{number:02}/" for number in range(10)}


@pytest.fixture
def paged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pages of ten names each are many."""
    monkeypatch.setattr(listing_schedule, "FULL_MOST", 20)
    monkeypatch.setattr(listing_schedule, "LARGE", 10)
    monkeypatch.setattr(listing_schedule, "PAGE", 10)


@pytest.mark.usefixtures("paged")
@pytest.mark.parametrize("is_old", [True, False], ids=["old", "young"])
@pytest.mark.parametrize("directories", [1, 20])
def test_no_poll_asks_for_more_than_five_pages_while_nothing_is_new_and_all_is_swept_in_time(is_old: bool, directories: int) -> None:
    listing = Listing()
    listing.names = {f"in/{number % directories:02}/{number:04}": is_old for number in range(1000)}
    listing.poll()
    assert listing.found == sorted(listing.names)
    listing.poll()
    at: dict[str, list[float]] = {name: [listing.now] for name in listing.names}
    for _ in range(400):
        listing.poll()
        assert listing.pages <= 1 + listing_schedule.RANGES_MOST
        for name in listing.swept:
            at[name].append(listing.now)
    assert max(later - former for times in at.values() for former, later in itertools.pairwise(times)) <= 600.0


@pytest.mark.usefixtures("paged")
def test_what_is_new_is_found_by_the_next_poll_where_all_others_are_young_too() -> None:
    listing = Listing()
    listing.names = dict.fromkeys((f"in/{number:04}" for number in range(1000)), False)
    listing.poll()
    for number in range(1000, 1100):
        listing.names[f"in/{number:04}"] = False
        listing.poll()
        assert f"in/{number:04}" in listing.found
    listing.names |= dict.fromkeys((f"in/{number:04}" for number in range(1100, 1200)), False)
    listing.poll()
    assert "in/1100" in listing.found
    assert "in/1199" in listing.found
    listing.poll()
    assert listing.pages <= 1 + listing_schedule.RANGES_MOST


@pytest.mark.usefixtures("paged")
def test_a_sweep_that_is_behind_is_through_in_time_all_the_same() -> None:
    listing = Listing(*(f"in/{number:04}" for number in range(1000)))
    listing.poll()
    listing.poll()
    assert 0 < len(listing.swept) <= 20
    listing.now += 300.0
    listing.poll()
    assert 490 <= len(listing.swept) <= 520
    listing.now += 300.0
    listing.poll()
    assert listing.swept[-1] == "in/0999"


@pytest.mark.parametrize(("lists_behind", "count"), [(False, 10**6), (True, listing_schedule.FULL_MOST)])
def test_everything_is_listed_at_each_poll_where_that_costs_no_more(lists_behind: bool, count: int) -> None:
    one = ListingSchedule("", 5.0, 3600.0)
    for now in (0.0, 5.0, 10.0):
        found = one.current(now, lists_behind=lists_behind, to_the_end=False)
        assert found is not None
        assert found.is_full
        found.count = count
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
    saved, one = Saved(), ReadHistory()
    ids = [number * 2**50 for number in range(1, 2000)]
    for begin in range(0, len(ids), 10):
        saved.tell(one.add(ids[begin : begin + 10], begin, "k"))
        one.recall(saved.values, 0)
        saved.tell(one.joined(0))
        one.recall(saved.values, 0)
    later = ReadHistory()
    later.recall(saved.values, 0)
    for each in (one, later):
        assert all(number in each for number in ids)
        assert not any(number + 1 in each for number in ids)
    assert len(later) == len(ids)
    assert len(saved.values) < len(ids) / 64 + memory.SMALL_MOST + 2


def test_of_too_many_the_oldest_that_a_listing_has_followed_are_given_up_and_taken_for_read_by_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "CHUNK_IDS", 8)
    monkeypatch.setattr(memory, "CHUNKS_MOST", 3)
    saved, one = Saved(), ReadHistory()
    for number in range(5):
        saved.tell(one.add(range(number * 8, number * 8 + 8), 1000 + number, "k"))
        one.recall(saved.values, number)
    assert list(one.joined(-1)) == []
    for listed_since, dropped in ((0, 1), (4, 2)):
        saved.tell(one.joined(listed_since))
        one.recall(saved.values, 9)
        later = ReadHistory()
        later.recall(saved.values, 9)
        assert [number for number in range(40) if number in later] == list(range(dropped * 8, 40))
        assert later.is_forgotten("a", 999 + dropped)
        assert not later.is_forgotten("a", 1000 + dropped)
    assert list(one.joined(9)) == []


def test_what_earlier_versions_have_dropped_stays_so_up_to_the_name_they_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CHUNKS_MOST", 1)
    saved, one = Saved(), ReadHistory()
    saved.values["forgotten"] = [[1000, "k"], [3000, "b"]]
    for newest_ms in (2000, 4000):
        saved.tell(one.add([newest_ms], newest_ms, "k"))
        one.recall(saved.values, 0)
    assert one.is_forgotten("k", 1000)
    assert not one.is_forgotten("l", 1000)
    saved.tell(one.joined(0))
    one.recall(saved.values, 0)
    assert one.is_forgotten("l", 2000)
    assert one.is_forgotten("b", 3000)
    assert not one.is_forgotten("c", 2001)


def test_ids_are_found_in_any_number_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CHUNK_IDS": 8, "CHUNKS_MOST": 3, "RUNS_MOST": 2}.items():
        monkeypatch.setattr(memory, name, value)
    saved, one = Saved(), ReadHistory()
    ids = [number * 7919 % 2**20 for number in range(1, 2000)]
    for begin in range(0, len(ids), 8):
        saved.tell(one.add(ids[begin : begin + 8], begin, "k"))
        one.recall(saved.values, begin)
    assert all(number in one for number in ids)
    assert not [number for number in range(max(ids) + 9) if number % 61 == 0 and number not in ids and number in one]


def test_values_are_small_enough_to_be_saved() -> None:
    one = ReadHistory()
    full = next(iter(one.add(itertools.repeat(2**64 - 1, memory.CHUNK_IDS), 2**43, "k")))
    assert isinstance(full, Remembered)
    assert len(str(full.value)) < 200_000
