"""Turns: so many at a time, fairly, and those that fail never hold all places."""

from __future__ import annotations

import threading

import pytest

from copycat_agent.errors import RetriableError
from copycat_agent.fair_executor import FairExecutor, FairQueue, Participant
from tests.rig.waiting import wait_until

ME = Participant("cluster", "me")
WELL, OTHER = Participant("well", "app"), Participant("well", "other")
DEAD = [Participant("dead", f"app-{number}") for number in range(40)]


class Line:
    """A queue with so many places, filled whenever there is room."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.queue = FairQueue[str]()
        self.running = list[tuple[Participant, str]]()

    def add(self, *parties: Participant) -> None:
        """One item each."""
        for party in parties:
            self.queue.add(party, f"{party.name}'s")
        self.fill()

    def fill(self) -> None:
        while taken := self.queue.take(self.places):
            self.running.append(taken)

    def end(self, *parties: Participant, well: bool | None) -> None:
        """The place of one item of each is free."""
        for party in parties:
            self.running.remove(next(one for one in self.running if one[0] == party))
            self.queue.done(party, well=well)
        self.fill()

    @property
    def at_work(self) -> list[Participant]:
        return [party for party, _ in self.running]


def proven(places: int, *parties: Participant) -> Line:
    """A line in which the latest work of these went well."""
    line = Line(places)
    for party in parties:
        line.add(party)
        line.end(party, well=True)
    return line


@pytest.mark.parametrize("places", [2, 3, 4, 64, 128])
def test_whoever_went_well_finds_a_place_however_many_fail(places: int) -> None:
    line = proven(places, WELL)
    line.add(*DEAD * 4)
    for _ in range(50):
        line.add(WELL)
        assert WELL in line.at_work
        line.end(WELL, well=True)
        line.end(line.at_work[0], well=False)


@pytest.mark.parametrize("places", [2, 3, 4, 64])
def test_a_cluster_that_was_well_until_now_leaves_a_place_to_others_too(places: int) -> None:
    line = proven(places, WELL, *DEAD)
    line.add(*DEAD * 4)
    line.add(WELL)
    assert WELL in line.at_work


def test_those_that_fail_leave_a_place_also_when_each_has_a_cluster_of_its_own() -> None:
    dead = [Participant(f"dead-{number}", "app") for number in range(10)]
    line = proven(3, WELL)
    line.add(*dead)
    assert len(line.at_work) == 2
    line.add(WELL)
    assert line.at_work[2:] == [WELL]


def test_who_failed_is_back_among_the_others_with_the_first_work_that_goes_well() -> None:
    line = proven(2, WELL, OTHER)
    line.add(WELL)
    line.end(WELL, well=False)
    line.add(DEAD[0], WELL)
    assert line.at_work == [DEAD[0]]
    line.end(DEAD[0], well=False)
    assert line.at_work == [WELL]
    line.end(WELL, well=True)
    line.add(DEAD[1], WELL)
    assert line.at_work == [DEAD[1], WELL]


def test_what_is_not_known_changes_nothing() -> None:
    line = proven(2, WELL)
    line.add(WELL)
    line.end(WELL, well=None)
    line.add(DEAD[0], DEAD[1], WELL)
    assert line.at_work == [DEAD[0], WELL]


def test_a_party_with_much_to_do_lets_every_other_in_between() -> None:
    line = proven(2, WELL, OTHER)
    line.add(*[WELL] * 5, OTHER)
    assert line.at_work == [WELL]
    line.end(WELL, well=True)
    assert line.at_work == [OTHER]
    line.end(OTHER, well=True)
    assert line.at_work == [WELL]


def test_turns_go_round_among_equals_and_by_cluster_first() -> None:
    line = proven(3, WELL, DEAD[0], DEAD[1])
    line.add(DEAD[0], DEAD[1], DEAD[0], DEAD[1], WELL)
    assert line.at_work == [WELL, DEAD[0], DEAD[1]]
    line.add(OTHER)
    line.end(DEAD[0], well=True)
    assert line.at_work == [WELL, DEAD[1], OTHER]
    line.end(OTHER, well=True)
    assert line.at_work == [WELL, DEAD[1], DEAD[0]]


def test_one_cluster_alone_has_all_places_but_the_last() -> None:
    line = proven(5, *DEAD)
    line.add(*DEAD)
    assert len(line.at_work) == 4


def test_what_waits_can_be_taken_out() -> None:
    line = Line(2)
    line.add(DEAD[0], DEAD[1])
    assert list(line.queue) == ["app-1's"]
    assert line.queue.remove(DEAD[1], "app-1's")
    assert not line.queue.remove(DEAD[1], "app-1's")
    assert not line.queue
    line.end(DEAD[0], well=False)
    assert not line.at_work
    assert line.queue.busy == 0


def test_what_fails_holds_up_nothing_that_goes_well() -> None:
    executor, go_on = FairExecutor(2), threading.Event()
    assert executor.take("line", WELL, lambda: "at once").result(30) == "at once"
    hanging = [executor.take("line", party, lambda: go_on.wait(30)) for party in DEAD[:8]]
    for _ in range(20):
        assert executor.take("line", WELL, lambda: "at once").result(30) == "at once"
    assert executor.withdraw("line", DEAD[7], hanging[7])
    assert not executor.withdraw("line", DEAD[0], hanging[0])
    go_on.set()
    assert all(one.result(30) for one in hanging[:7])
    assert not hanging[7].done()


def test_work_that_yields_something_bad_has_not_gone_well() -> None:
    executor, go_on = FairExecutor(2), threading.Event()
    assert executor.take("line", WELL, lambda: "bad", lambda result: result != "bad").result(30) == "bad"
    hanging = executor.take("line", DEAD[0], lambda: go_on.wait(30))
    waiting = executor.take("line", WELL, lambda: "later")
    wait_until(hanging.running, message="the other has the only place for those that fail")
    assert not waiting.running()
    go_on.set()
    assert waiting.result(30) == "later"


def test_so_many_work_at_a_time_in_each_line_and_the_others_wait() -> None:
    executor, go_on = FairExecutor(3), threading.Event()  # the third is kept from those that have done nothing yet
    mine = [executor.take("one", ME, lambda: go_on.wait(30)) for _ in range(5)]
    other = executor.take("other", ME, lambda: "at once")
    assert other.result(30) == "at once"
    wait_until(lambda: sum(one.running() for one in mine) == 2, message="two work")
    assert [one.running() for one in mine] == [True, True, False, False, False]
    assert mine[3].cancel()
    go_on.set()
    assert all(one.result(30) for one in mine if not one.cancelled())
    assert executor.take("one", ME, lambda: "again").result(30) == "again"


def test_what_goes_wrong_is_for_who_asked_and_the_line_goes_on() -> None:
    executor = FairExecutor(1)

    def fails() -> None:
        raise RetriableError("no broker answers")

    bad, good = executor.take("one", ME, fails), executor.take("one", ME, lambda: "good")
    with pytest.raises(RetriableError):
        bad.result(30)
    assert good.result(30) == "good"


def refuse(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_without_a_thread_nothing_is_taken_and_the_line_is_free_when_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, done = FairExecutor(1), list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RetriableError, match="can't start new thread"):
                executor.take("one", ME, lambda: done.append("nobody waits for it"))
    assert executor.take("one", ME, lambda: "again").result(30) == "again"
    assert done == []


def test_a_line_does_with_the_threads_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, go_on = FairExecutor(2), threading.Event()
    first = executor.take("one", ME, lambda: go_on.wait(30))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        second = executor.take("one", ME, lambda: "after it")
    go_on.set()
    assert first.result(30)
    assert second.result(30) == "after it"
