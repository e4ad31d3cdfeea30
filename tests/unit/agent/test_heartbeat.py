"""The heartbeat goes on while everything answers, and stands still with the first that does not."""

from __future__ import annotations

import threading

import pytest

from copycat_agent import agent as module
from copycat_agent.agent import Heartbeat
from copycat_agent.errors import FatalError
from copycat_agent.offsets import OffsetStore, ledger
from tests.rig.waiting import wait_until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)


def refuses() -> None:
    raise FatalError("the offset store failed")


def test_one_question_without_an_answer_stops_the_pulse_until_there_is_one() -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def hanging() -> None:
        hangs.set()
        go_on.wait(60)

    heartbeat = Heartbeat([refuses, hanging])
    heartbeat.start()
    assert hangs.wait(30)
    age = heartbeat.age
    wait_until(lambda: heartbeat.age > age + 0.2, message="it stands still")
    stood = heartbeat.age
    go_on.set()
    wait_until(lambda: heartbeat.age < stood, message="it beats again, also where an answer is a refusal")
    heartbeat.close()


def test_a_store_whose_disk_hangs_stops_the_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, go_on = threading.Event(), threading.Event()
    store = OffsetStore.in_memory()

    def hanging(*_: object) -> None:
        hangs.set()
        go_on.wait(60)

    monkeypatch.setattr(ledger, "set_target", hanging)
    saving = threading.Thread(target=store.set_target, args=("app", "paused"))
    saving.start()
    assert hangs.wait(30)
    heartbeat = Heartbeat([store.targets])
    heartbeat.start()
    wait_until(lambda: heartbeat.age > 0.3, message="it stands still")
    stood = heartbeat.age
    go_on.set()
    wait_until(lambda: heartbeat.age < stood, message="it beats again")
    saving.join(30)
    heartbeat.close()
    store.close()


def test_a_pulse_that_hangs_holds_up_no_end() -> None:
    hangs, go_on = threading.Event(), threading.Event()
    heartbeat = Heartbeat([hangs.set, lambda: go_on.wait(60)])
    heartbeat.start()
    assert hangs.wait(30)
    heartbeat.close()
    go_on.set()
