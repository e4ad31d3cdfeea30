"""Turns: so many at a time in each line, in order."""

from __future__ import annotations

import threading

import pytest

from copycat_agent.errors import RetriableError
from copycat_agent.turns import Turns
from tests.rig.waiting import wait_until


def test_so_many_work_at_a_time_in_each_line_and_the_others_wait() -> None:
    turns, go_on = Turns(2), threading.Event()
    mine = [turns.take("one", lambda: go_on.wait(30)) for _ in range(5)]
    other = turns.take("other", lambda: "at once")
    assert other.result(30) == "at once"
    wait_until(lambda: sum(one.running() for one in mine) == 2, message="two work")
    assert [one.running() for one in mine] == [True, True, False, False, False]
    assert mine[3].cancel()
    go_on.set()
    assert all(one.result(30) for one in mine if not one.cancelled())
    assert turns.take("one", lambda: "again").result(30) == "again"


def test_what_goes_wrong_is_for_who_asked_and_the_line_goes_on() -> None:
    turns = Turns(1)

    def fails() -> None:
        raise RetriableError("no broker answers")

    bad, good = turns.take("one", fails), turns.take("one", lambda: "good")
    with pytest.raises(RetriableError):
        bad.result(30)
    assert good.result(30) == "good"


def refuse(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_without_a_thread_nothing_is_taken_and_the_line_is_free_when_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, done = Turns(1), list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RetriableError, match="can't start new thread"):
                turns.take("one", lambda: done.append("nobody waits for it"))
    assert turns.take("one", lambda: "again").result(30) == "again"
    assert done == []


def test_a_line_does_with_the_threads_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, go_on = Turns(2), threading.Event()
    first = turns.take("one", lambda: go_on.wait(30))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        second = turns.take("one", lambda: "after it")
    go_on.set()
    assert first.result(30)
    assert second.result(30) == "after it"
