"""What looks tell of a store in memory, and what is saved of it: no broker, so that rare orders of events can be made."""

from __future__ import annotations

import random
import threading
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.extending import Found, Gone, Remembered, Troubled
from copycat_agent.sources.objects import cleanup, listing_schedule, memory, objects_source
from copycat_agent.sources.objects.objects_source import ObjectsSource
from copycat_agent.sources.objects.options import ObjectsOptions
from copycat_agent.sources.objects.stores import KEY, ListedObject, ObjectNotification, key_of
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from copycat_agent.extending import Finding
    from copycat_agent.sources.objects.blocks import BlockFile
    from copycat_agent.sources.objects.listing_schedule import NameRange


class Shelf:
    """A store in memory. `listed_most`: after so many names a listing breaks, once.

    `hides`: no listing shows them. `refuses` what would change it; `hangs`: what deletes does not come back. `most_at_once`: so many
    deletes went side by side. `closed` must not be looked at; `told`: its queue.
    """

    prefix = ""
    lists_behind = True
    refused: Mapping[str, str] = MappingProxyType({})

    def __init__(self) -> None:
        self.objects: dict[str, ListedObject] = {}
        self.listed_most: int | None = None
        self.closed: set[str] = set()
        self.told: Told | None = None
        self.turn = threading.Condition()
        self.refuses = self.hangs = self.hides = False
        self.at_once = self.most_at_once = 0

    def go_on(self) -> None:
        """It hangs no more."""
        with self.turn:
            self.hangs = False
            self.turn.notify_all()

    def put(self, name: str, size: int = 1, mtime_ms: int = 1000, version: str = "v") -> str:
        """Returns its key."""
        self.objects[name] = ListedObject(name, size, mtime_ms, version)
        return key_of(self.objects[name])

    def listed(self, names: NameRange) -> Iterator[ListedObject]:
        for number, one in enumerate(sorted(self.objects.values())):
            if number == self.listed_most:
                self.listed_most = None
                raise OSError(5, "it broke")
            if one.name in names and not self.hides:
                yield one

    def queue(self, url: str) -> Told:
        assert self.told is not None
        assert url
        return self.told

    def look(self, name: str, *, is_certain: bool = True) -> ListedObject:
        if name in self.closed:
            raise PermissionError(13, "it is not allowed")
        if name not in self.objects:
            raise FileNotFoundError(2, "there is no such object")
        return self.objects[name]

    def delete(self, found: ListedObject) -> None:
        with self.turn:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.turn.wait_for(lambda: not self.hangs, 110)
            self.at_once -= 1
        if self.refuses:
            raise PermissionError(13, "it is not allowed")
        del self.objects[found.name]

    def copy(self, found: ListedObject, to: str) -> None:
        self.objects[to] = found._replace(name=to)

    def tag(self, name: str, tag: str, value: str) -> None:
        raise PermissionError(13, "it is not allowed")

    def shown(self, name: str) -> str:
        return name

    def name_at(self, path: str) -> str:
        return path.lstrip("/")

    def open(self, found: ListedObject) -> BlockFile:
        raise NotImplementedError


class Clock:
    """This host's, where an hour lies between two looks."""

    def __init__(self, ahead_seconds: float = 0.0) -> None:
        self.ahead_seconds = ahead_seconds
        self.passed = 0.0

    def monotonic(self) -> float:
        return self.passed

    def time(self) -> float:
        return time.time() + self.ahead_seconds


class Agent:
    """What an agent does with a source of objects, less the reading."""

    def __init__(self, shelf: Shelf, patch: pytest.MonkeyPatch, **options: Any) -> None:
        patch.setattr(objects_source, "store_at", lambda _: shelf)
        patch.setattr(objects_source, "time", clock := Clock())
        self.clock = clock
        self.options = ObjectsOptions(uri="s3://shelf/", **options)
        self.saved: dict[str, Any] = {}
        self.paths: dict[str, str] = {}
        self.read: list[str] = []
        self.lost: dict[str, str] = {}
        self.troubles: list[Troubled] = []
        self.failing: set[str] = set()
        self.start()

    def start(self) -> None:
        """Another process, with what is saved."""
        self.source = ObjectsSource(self.options)
        self.source.committed({key: one for key, one in self.saved.items() if key.startswith(KEY)})
        self.names: dict[str, str] = {}

    def look(self, *, to_the_end: bool = False) -> list[Finding]:
        """One look, whose findings are saved."""
        self.clock.passed += 3600
        saved = {
            key: {**one, "failed": self.names.get(key) in self.failing, "name": self.paths[key]} if key.startswith(KEY) else one
            for key, one in self.saved.items()
        }
        found = list(self.source.look(saved, to_the_end=to_the_end))
        self.troubles = [one for one in found if isinstance(one, Troubled)]
        for one in found:
            if isinstance(one, Remembered):
                self.saved[one.key] = one.value
            elif isinstance(one, Gone):
                if not self.saved.pop(one.key, {"done": True}).get("done", True):
                    self.lost[one.key] = one.why
            elif isinstance(one, Found) and one.key not in self.saved:
                self.saved[one.key] = {"position": 0, "done": not one.size, "damaged": False}
        self.names.update({one.key: one.name for one in found if isinstance(one, Found)})
        self.paths.update(self.names)
        empty = {key: one for key, one in self.saved.items() if key.startswith(KEY) and one["done"] and key in self.names}
        self.source.committed(empty)
        return found

    def settle(self, key: str, *, damaged: bool = False) -> None:
        """All of it is delivered and saved."""
        self.read.append(self.names[key])
        self.saved[key] = {"position": 1, "done": True, "damaged": damaged}
        self.source.committed({key: self.saved[key]})

    def run(self, looks: int = 20, *, to_the_end: bool = False) -> None:
        """Looks, and reads whatever can be read."""
        for _ in range(looks):
            self.look(to_the_end=to_the_end)
            for key in [key for key, one in self.saved.items() if key.startswith(KEY) and not one["done"] and key in self.names]:
                if self.names[key] not in self.failing:
                    self.settle(key)

    def rows_after_a_look(self) -> int:
        """`rows` then."""
        self.run(1)
        return self.rows

    @property
    def rows(self) -> int:
        """Partitions that are saved."""
        return sum(key.startswith(KEY) for key in self.saved)


@pytest.fixture
def shelf() -> Shelf:
    """Nothing is in it."""
    return Shelf()


def test_empty_objects_and_those_of_a_long_run_are_remembered_in_values_that_can_be_saved(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CHUNK_IDS", 64)
    monkeypatch.setattr(objects_source, "CHUNK_IDS", 64)
    monkeypatch.setattr(objects_source, "REMEMBER_AT", 10)
    agent = Agent(shelf, monkeypatch)
    for number in range(1000):
        shelf.put(f"{number:04}", size=0)
    agent.run()
    assert agent.rows <= objects_source.REMEMBER_AT
    assert max(len(one["ids"]) for key, one in agent.saved.items() if key.startswith("read-")) < 64 * 11


def test_what_a_restart_finds_done_is_remembered_with_its_time(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_source, "REMEMBER_AT", 10)
    agent = Agent(shelf, monkeypatch)
    agent.paths = {shelf.put(f"{number:02}", mtime_ms=5000): f"{number:02}" for number in range(20)}
    agent.saved = {key: {"position": 1, "done": True, "damaged": False} for key in agent.paths}
    shelf.put("!", mtime_ms=7000)
    monkeypatch.setattr(objects_source, "WAITING_MOST", 1)
    agent.start()
    agent.look()
    assert not [key for key in agent.saved if key.startswith("read-")], "their times are not known yet"
    agent.run()
    assert [one["newest_ms"] for key, one in agent.saved.items() if key.startswith("read-")] == [7000]
    assert agent.read == ["!"]


@pytest.mark.parametrize("policy", ["delete", "tag"])
def test_a_damaged_object_is_left_as_it_is_whatever_becomes_of_others(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    monkeypatch.setattr(objects_source, "REMEMBER_AT", 1)
    agent = Agent(shelf, monkeypatch, cleanup={"policy": policy})
    damaged = shelf.put("damaged")
    agent.look()
    agent.settle(damaged, damaged=True)
    agent.start()
    agent.run()
    assert "damaged" in shelf.objects
    assert agent.read == ["damaged"], "once"
    assert not agent.rows


def test_without_the_right_to_clean_up_rows_are_bounded_and_that_is_told(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "FAILING_MOST", 20)
    monkeypatch.setattr(objects_source, "REMEMBER_AT", 10)
    shelf.refuses = True
    agent = Agent(shelf, monkeypatch, cleanup={"policy": "delete"})
    for number in range(50):
        shelf.put(f"{number:03}")
    agent.run()
    for number in range(50, 200):
        shelf.put(f"{number:03}")
        agent.look()
        agent.run(1)
    wait_until(lambda: agent.rows_after_a_look() <= 20 + 10, 30, lambda: f"{agent.rows} rows")
    (trouble,) = agent.troubles
    assert trouble.name == "source.cleanup"
    assert "stay as they are: it is delivered, and cleanup.policy delete failed: it is not allowed" in trouble.why
    agent.start()
    agent.run()
    assert sorted(agent.read) == sorted(shelf.objects), "each once"
    shelf.refuses = False
    wait_until(lambda: agent.rows_after_a_look() < 10 and agent.troubles == [], 30, lambda: f"{agent.rows} rows, {agent.troubles}")
    assert len(shelf.objects) in range(170, 190), "those that were tried again are gone"


def test_cleanup_goes_side_by_side_and_delays_no_listing(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(shelf, monkeypatch, cleanup={"policy": "delete"})
    for number in range(30):
        shelf.put(f"{number:03}")
    shelf.hangs = True
    try:
        agent.run(2)
        shelf.put("new")
        agent.run(2)
        assert agent.read[-1] == "new"
        assert len(shelf.objects) == 31
        wait_until(lambda: shelf.most_at_once > 1, 60)
    finally:
        shelf.go_on()
    agent.run(2, to_the_end=True)
    assert shelf.objects == {}, "a run to the end waits for it"
    assert shelf.most_at_once <= 8
    agent.look()
    assert not agent.rows


def test_objects_that_cannot_be_read_do_not_hold_up_the_listing(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_source, "WAITING_MOST", 20)
    agent = Agent(shelf, monkeypatch)
    for number in range(100):
        shelf.put(f"{number:03}")
    agent.failing = {f"{number:03}" for number in range(50)}
    agent.run()
    assert agent.read == [f"{number:03}" for number in range(50, 100)]
    agent.failing = set()
    agent.run()
    assert len(agent.read) == 100


@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_a_run_to_the_end_learns_what_became_of_an_object_that_cannot_be_read(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    agent = Agent(shelf, monkeypatch)
    key = shelf.put("a")
    agent.look(to_the_end=True)
    agent.failing = {"a"}
    if what == "deleted":
        del shelf.objects["a"]
    else:
        shelf.put("a", version="w")
    agent.look(to_the_end=True)
    assert agent.lost == {key: f"it was {what} before it was read to its end"}
    agent.failing = set()
    agent.run(to_the_end=True)
    assert agent.read == ([] if what == "deleted" else ["a"])


def test_a_version_that_replaces_one_that_cannot_be_read_waits_for_min_age_too(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(shelf, monkeypatch, min_age="90m")
    now_ms = int(time.time() * 1000)
    first = shelf.put("a", mtime_ms=now_ms - 10**8)
    agent.look()
    shelf.put("a", size=2, mtime_ms=now_ms, version="w")  # its writer goes on before it is read
    agent.failing = {"a"}
    agent.look()
    agent.failing = set()
    agent.run(5)
    assert (agent.read, agent.lost) == ([], {first: "it was replaced before it was read to its end"}), "it is being written"
    agent.clock.ahead_seconds = 7200
    agent.run(5)
    assert agent.read == ["a"]


@pytest.mark.parametrize("ahead_seconds", [-86_400 * 400, 0, 3600])
def test_start_at_end_passes_over_what_is_there_and_nothing_else_whatever_this_host_s_clock_says(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, ahead_seconds: float
) -> None:
    now_ms = int(time.time()) * 1000
    shelf.put("years old", mtime_ms=now_ms - 10**11)
    shelf.put("just now", mtime_ms=now_ms)
    shelf.put("in a hundred years", mtime_ms=now_ms + 10**11 * 31)
    agent = Agent(shelf, monkeypatch, start_at="end")
    agent.clock.ahead_seconds = ahead_seconds
    agent.look()
    shelf.put("in the same second", mtime_ms=now_ms)
    shelf.put("an upload that had begun an hour before", mtime_ms=now_ms - 3_600_000)
    agent.start()
    agent.run()
    assert sorted(agent.read) == ["an upload that had begun an hour before", "in the same second"]


def test_start_at_end_in_an_empty_store_reads_all_that_comes(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(shelf, monkeypatch, start_at="end")
    agent.look()
    shelf.put("copied with its time", mtime_ms=0)
    agent.run()
    assert agent.read == ["copied with its time"]


def test_what_was_forgotten_stays_so_when_more_is_forgotten_in_the_first_listing_after_a_restart(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"CHUNK_IDS": 8, "CHUNKS_MOST": 3, "SMALL_MOST": 2}.items():
        monkeypatch.setattr(memory, name, value)
    monkeypatch.setattr(objects_source, "REMEMBER_AT", 7)
    monkeypatch.setattr(objects_source, "WAITING_MOST", 4)
    agent = Agent(shelf, monkeypatch)
    names = [f"{number:03}" for number in range(0, 100, 2)]
    for number, name in enumerate(names):
        shelf.put(name, mtime_ms=1000 + number)
    agent.run(60)
    assert agent.read == names
    late = [f"{number:03}" for number in range(1, 100, 2)]
    for number, name in enumerate(late):
        shelf.put(name, mtime_ms=2000 + number)
    agent.start()
    agent.run(80)
    assert sorted(agent.read) == sorted(names + late)
    agent.start()
    agent.run(20)
    assert len(agent.read) == 100


@pytest.mark.parametrize("restarts", [False, True])
def test_what_arrives_during_the_first_listing_of_more_than_is_remembered_is_read(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    for name, value in {"CHUNK_IDS": 8, "CHUNKS_MOST": 3, "SMALL_MOST": 2}.items():
        monkeypatch.setattr(memory, name, value)
    for name, value in {"CHUNK_IDS": 8, "REMEMBER_AT": 7, "WAITING_MOST": 4}.items():
        monkeypatch.setattr(objects_source, name, value)
    monkeypatch.setattr(listing_schedule, "FULL_MOST", 30)
    agent = Agent(shelf, monkeypatch, relist="7d")
    chosen = random.Random(5)
    for number in range(200):
        shelf.put(f"{chosen.randrange(10**6):06}", mtime_ms=1000 + number)
    for number in range(25):
        shelf.put(f"{chosen.randrange(10**6):06} late", mtime_ms=2000 + number)
        agent.run(1)
        if restarts and number == 12:
            agent.start()
    agent.run(600)
    assert sorted(agent.read) == sorted(shelf.objects), "each once"
    assert sum(key.startswith("read-") for key in agent.saved) <= 3 + 1
    agent.start()
    agent.run(300)
    assert len(agent.read) == 225


def test_nothing_is_given_up_before_a_listing_has_found_what_was_too_young(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CHUNK_IDS": 8, "CHUNKS_MOST": 2}.items():
        monkeypatch.setattr(memory, name, value)
    for name, value in {"CHUNK_IDS": 8, "REMEMBER_AT": 7}.items():
        monkeypatch.setattr(objects_source, name, value)
    agent = Agent(shelf, monkeypatch, min_age="90m")
    now_ms = int(time.time() * 1000)
    for number in range(40):
        shelf.put(f"{number:02}", mtime_ms=now_ms)
    agent.run(to_the_end=True)
    shelf.put("young", mtime_ms=now_ms - 1)
    agent.start()
    agent.run(1)
    agent.clock.ahead_seconds = 7200
    agent.run()
    assert len(agent.read) == 41
    assert agent.read[-1] == "young"


def test_runs_to_the_end_remember_no_more_than_an_agent_that_goes_on(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CHUNK_IDS": 8, "CHUNKS_MOST": 2}.items():
        monkeypatch.setattr(memory, name, value)
    for name, value in {"CHUNK_IDS": 8, "REMEMBER_AT": 8}.items():
        monkeypatch.setattr(objects_source, name, value)
    agent = Agent(shelf, monkeypatch)
    for number in range(10):
        for one in range(8):
            shelf.put(f"{number}{one}", mtime_ms=1000 + number)
        agent.start()
        agent.run(3, to_the_end=True)
    assert len(agent.read) == 80
    assert sum(key.startswith("read-") for key in agent.saved) <= 2 + 1


def test_what_was_done_and_is_left_out_for_a_while_is_not_read_again(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_source, "REMEMBER_AT", 10)
    agent = Agent(shelf, monkeypatch)
    names = [f"{number:02}" for number in range(25)]
    for count in (5, 25):
        for name in names[:count]:
            shelf.put(name)
        agent.run()
        for exclude in (("*",), ()):
            agent.options = ObjectsOptions(uri="s3://shelf/", exclude=exclude)
            agent.start()
            agent.run()
            assert agent.rows < 10
    assert sorted(agent.read) == names, "each once"


def test_start_at_end_counts_for_a_first_start_alone(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(shelf, monkeypatch)
    shelf.put("a")
    agent.run()
    agent.options = ObjectsOptions(uri="s3://shelf/", start_at="end")
    shelf.put("b")
    agent.start()
    agent.run()
    assert agent.read == ["a", "b"]
    shelf.put("c")
    agent.saved = {}
    agent.start()
    agent.run()
    assert agent.read == ["a", "b"], "after a reset it begins at the end"


class Told:
    """A queue in memory. `trouble`: what it raises."""

    def __init__(self) -> None:
        self.waiting: list[ObjectNotification] = []
        self.deleted: list[str] = []
        self.trouble: OSError | None = None

    def receive(self, wait_seconds: int) -> Iterator[ObjectNotification]:
        assert wait_seconds in (0, 1)
        if self.trouble is not None:
            raise self.trouble
        yield from self.waiting
        self.waiting = []

    def delete(self, receipts: Sequence[str]) -> None:
        self.deleted += receipts


def test_a_message_is_deleted_once_its_objects_are_saved_and_never_where_that_cannot_be_told(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = shelf.told = Told()
    agent = Agent(shelf, monkeypatch, notify={"sqs": "https://sqs.eu-central-1.amazonaws.com/1/q"}, min_age="100s", relist="7d")
    agent.look()
    shelf.hides = True
    now_ms = int(time.time() * 1000)
    for name, mtime_ms in {"old": now_ms - 200_000, "young": now_ms, "closed": 0}.items():
        shelf.put(name, mtime_ms=mtime_ms)
    shelf.closed.add("closed")
    queue.waiting = [ObjectNotification((name,), name) for name in ("old", "young", "closed", "not there")]
    agent.look()
    assert sorted(agent.names.values()) == ["old"]
    assert queue.deleted == [], "what a look tells is saved behind it"
    agent.look()
    assert sorted(queue.deleted) == ["not there", "old"], "the others come again"


def test_an_object_from_the_future_is_read_once_it_was_seen_unchanged_for_min_age(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(shelf, monkeypatch, min_age="90m", relist="1h")
    future_ms = int(time.time() * 1000) + 10**10
    shelf.put("a", mtime_ms=future_ms)
    agent.run(2)
    assert agent.read == [], "an hour lies between two looks"
    shelf.put("a", mtime_ms=future_ms + 1, version="w")
    agent.run(2)
    assert agent.read == [], "it has changed"
    agent.run(10)
    assert agent.read == ["a"]
    agent.start()
    agent.run(10)
    assert agent.read == ["a"]


def test_a_time_in_the_future_makes_no_later_object_count_as_read(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CHUNK_IDS": 8, "CHUNKS_MOST": 2, "SMALL_MOST": 2}.items():
        monkeypatch.setattr(memory, name, value)
    monkeypatch.setattr(objects_source, "CHUNK_IDS", 8)
    monkeypatch.setattr(objects_source, "REMEMBER_AT", 7)
    agent = Agent(shelf, monkeypatch)
    future_ms = int(time.time() * 1000) + 10**10
    for number in range(100):
        shelf.put(f"{number:03}", mtime_ms=future_ms if number % 4 == 0 else 1000 + number)
    agent.run(60)
    assert len(set(agent.read)) == 100
    shelf.put("new", mtime_ms=int(time.time() * 1000) + 60_000)
    agent.run()
    assert agent.read.count("new") == 1


def test_no_more_objects_from_the_future_are_watched_than_there_is_room_for(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_source, "FUTURE_MOST", 3)
    agent = Agent(shelf, monkeypatch, min_age="90m", relist="1h")
    for number in range(10):
        shelf.put(f"{number}", mtime_ms=int(time.time() * 1000) + 10**10)
    agent.run(20)
    assert sorted(agent.read) == [f"{number}" for number in range(10)]


def test_a_queue_that_cannot_be_read_is_asked_now_and_then_and_told_until_it_can(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = shelf.told = Told()
    queue.trouble = PermissionError(13, "it is not allowed")
    agent = Agent(shelf, monkeypatch, notify={"sqs": "https://sqs.eu-central-1.amazonaws.com/1/q"})
    shelf.put("a")
    agent.run(2)
    assert agent.read == ["a"]
    why = "the queue cannot be read: it is not allowed; polls go on"
    assert agent.troubles == [Troubled("source.notify", why)]
    queue.trouble = None
    agent.look()
    assert agent.troubles == []


def test_what_no_listing_shows_after_a_restart_is_asked_for_before_it_counts_as_gone(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(shelf, monkeypatch, exclude=("left out*",))
    keys = {name: shelf.put(name) for name in ("deleted", "done", "half", "replaced")}
    agent.look()
    agent.settle(keys["done"])
    keys["left out"] = shelf.put("left out")
    agent.paths[keys["left out"]] = "left out"
    agent.saved[keys["left out"]] = {"position": 0, "done": False, "damaged": False}
    agent.start()
    del shelf.objects["deleted"]
    shelf.put("replaced", version="w")
    shelf.hides = True
    agent.look()
    agent.look()
    why = {name: agent.lost.get(keys[name], "") for name in keys}
    assert why == {
        "deleted": "it was deleted before it was read to its end",
        "done": "",
        "half": "",
        "replaced": "it was replaced before it was read to its end",
        "left out": "it is not there any more, or source.uri, pattern or exclude leave it out, and it was not read to its end",
    }
    shelf.hides = False
    agent.run()
    assert agent.read == ["done", "half", "replaced"], "each once"
