"""Reads of an author's source that hang, or are needed no more: they cost a thread, and nobody else's batch."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import RetriableError
from copycat_agent.sources import contract_threads
from copycat_agent.sources.contract_threads import ReadThreads
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


def numbers(count: int) -> Iterator[tuple[Any, Any]]:
    yield from (({"id": number}, number) for number in range(count))


def hanging(release: threading.Event, count: int = 0) -> Iterator[tuple[Any, Any]]:
    yield from numbers(count)
    release.wait()


@pytest.mark.parametrize("whole", [True, False])
def test_records_come_in_order_and_some_at_a_time(whole: bool) -> None:
    runs = list(ReadThreads().runs(numbers(2500), "x", whole=whole))
    assert [len(run) for run in runs] == [1000, 1000, 500]
    assert [position for run in runs for _, position in run] == list(range(2500))


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        (False, r"x: read\(\) has given nothing for 0.1 s, and is given up"),
        (True, r"x: read\(\) of what goes as one has not ended within 0.1 s, and is given up"),
    ],
)
def test_a_read_that_hangs_is_given_up_with_words_and_others_are_made(whole: bool, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_threads, "LEAVE_SECONDS", 0.1)
    monkeypatch.setattr(contract_threads, "GIVEN_UP_MOST", 3)
    threads, release, new = ReadThreads(0.1, 0.1), threading.Event(), NewThreads()
    for _ in range(3):
        with pytest.raises(RetriableError, match=words):
            list(threads.runs(hanging(release, 5), "x", whole=whole))
    with pytest.raises(RetriableError, match=r"3 calls of read\(\) have never returned in process \d+"):
        list(threads.runs(numbers(3), "x", whole=whole))
    release.set()
    wait_until(lambda: not new.named("read"))
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)  # the next thread may take longer than 0.1 s to begin
    assert len(list(threads.runs(numbers(3), "x", whole=whole))) == 1


def test_a_slow_taker_is_no_silent_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on only when the reader has a run ready and has begun with the next: on a busy machine it may be slow too."""
    given, taken, now = 0, 0, time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def counted() -> Iterator[tuple[Any, Any]]:
        nonlocal given
        for pair in numbers(3000):
            given += 1
            yield pair
        given += 1000

    for run in ReadThreads(0.1, 0.1).runs(counted(), "x", whole=False):
        taken += len(run)
        if taken < 3000:
            wait_until(lambda: given > taken + 1000)  # noqa: B023 - called at once
            now += 0.3
    assert taken == 3000


def test_a_read_that_is_needed_no_more_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_threads, "LEAVE_SECONDS", 60.0)
    closed = threading.Event()

    def endless() -> Iterator[tuple[Any, Any]]:
        try:
            while True:
                yield b"x", None
        finally:
            closed.set()

    runs = ReadThreads().runs(endless(), "x", whole=False)
    next(iter(runs))
    runs.close()  # type: ignore[attr-defined]
    assert closed.is_set()


def test_what_a_read_raises_comes_behind_the_records_before_it() -> None:
    def broken() -> Iterator[tuple[Any, Any]]:
        yield from numbers(1000)
        msg = "no"
        raise KeyError(msg)

    runs = ReadThreads().runs(broken(), "x", whole=False)
    assert len(next(iter(runs))) == 1000
    with pytest.raises(KeyError):
        next(iter(runs))
