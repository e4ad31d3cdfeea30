"""What a process keeps between batches: somebody looks after it whatever happened before, and names come and go without a trace."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent import producer as package
from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import Producers, remembered
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = KafkaOptions(bootstrap_servers=("127.0.0.1:1",))
NAMES = 10_000


class FakeClient:
    """A producer, or the steps of a lane, as far as keeping goes."""

    broken = True  # it is not kept itself
    batch_bytes, next_batch_bytes, tracked = 0, 1, False

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def close(self, *_: object) -> None:
        """Nothing to free."""


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Producers]:
    monkeypatch.setattr(package, "TaskProducer", FakeClient)
    monkeypatch.setattr(package, "_LOOK_SECONDS", 0.02)
    producers = Producers(FakeClient)
    yield producers
    producers.close()


def use(producers: Producers, name: str) -> None:
    """One batch of a task, and one of a lane."""
    task = TaskId(name, 0)
    producers.give_back(task, OPTIONS, producers.take(task, OPTIONS))
    lane = producers.take_lane(task, OPTIONS)
    lane.memory, lane.broken = object(), True
    producers.give_lane_back(task, lane)


def known(producers: Producers) -> list[int]:
    return [len(one) for one in (producers._batch_bytes, producers._paces, producers._lanes._known)]


def test_what_was_not_asked_for_in_a_day_is_forgotten(producers: Producers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "_start_keeper", lambda: None)
    for number in range(NAMES):
        use(producers, f"app-{number}")
    producers._attend()
    assert known(producers) == [NAMES] * 3
    tomorrow = time.monotonic() + remembered.FORGET_SECONDS + 1
    monkeypatch.setattr(remembered, "time", SimpleNamespace(monotonic=lambda: tomorrow))
    use(producers, "app-7")
    producers._attend()
    assert known(producers) == [1] * 3


def test_a_thread_that_could_not_be_started_is_started_by_a_later_batch(producers: Producers, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[Any] = []

    def refuse(thread: threading.Thread) -> None:
        refused.append(thread)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        use(producers, "app")
    assert refused
    rounds: list[bool] = []
    monkeypatch.setattr(producers, "_attend", lambda: rounds.append(True))
    use(producers, "app")
    wait_until(lambda: rounds, 10, "nobody looks after them")


def test_a_round_that_goes_wrong_is_not_the_last(
    producers: Producers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds: list[bool] = []

    def attend() -> None:
        rounds.append(True)
        raise ValueError("secret")

    monkeypatch.setattr(producers, "_attend", attend)
    use(producers, "app")
    wait_until(lambda: len(rounds) > 2, 10, "it has ended")
    assert "could not be looked after" in caplog.text
    assert "secret" not in caplog.text
