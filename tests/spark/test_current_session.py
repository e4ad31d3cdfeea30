"""Who asks for the Spark session gets the one of the moment, or is told why there is none."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.spark.current_session import CurrentSession, Session


class Jvm:
    """A JVM that runs until it is said to have ended."""

    def __init__(self) -> None:
        self.ended = False

    def runs(self) -> bool:
        return not self.ended


def session(number: int = 1) -> tuple[Session, Jvm]:
    jvm = Jvm()
    return Session(number, cast("Any", None), cast("Any", jvm)), jvm


def test_a_session_that_comes_up_is_given_to_those_who_wait_for_it() -> None:
    current, (one, _) = CurrentSession(), session()
    found: list[Session] = []
    waiting = threading.Thread(target=lambda: found.append(current.wait(None)))
    waiting.start()
    current.is_up(one)
    waiting.join()
    assert (found, current.state, current.count) == ([one], "running", 1)


def test_a_session_whose_jvm_has_ended_is_none() -> None:
    current, (one, jvm) = CurrentSession(), session()
    current.is_up(one)
    jvm.ended = True
    with pytest.raises(RetriableError, match="not up"):
        current.wait(0)


def test_between_two_sessions_there_is_none_and_the_next_one_is_given() -> None:
    current = CurrentSession()
    current.is_up(session()[0])
    current.starts()
    assert current.state == "starting"
    with pytest.raises(RetriableError):
        current.wait(0)
    two, _ = session(2)
    current.is_up(two)
    assert (current.wait(0), current.count) == (two, 2)


def test_a_failure_is_raised_to_all_and_stays() -> None:
    current, failure = CurrentSession(), FatalError("Spark did not come up")
    current.fail(failure)
    for _ in range(2):
        with pytest.raises(FatalError, match="did not come up"):
            current.wait(None)
    assert (current.state, current.failure) == ("failed", failure)


def test_once_it_is_closed_no_session_is_given_whatever_comes_up() -> None:
    current, (one, _) = CurrentSession(), session()
    current.is_up(one)
    assert current.close() is one
    current.is_up(session(2)[0])
    current.starts()
    assert (current.state, current.close()) == ("closed", None)
    with pytest.raises(RetriableError, match="closed"):
        current.wait(None)
