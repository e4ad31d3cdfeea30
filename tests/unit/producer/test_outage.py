"""What a lane costs while nobody answers: few calls, few words of clients about themselves, and a stop is heard at once."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from copycat_agent.dev_broker import free_port
from copycat_agent.errors import RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import lane_producer, task_producer
from copycat_agent.producer.task_memory import TransactionalState
from copycat_agent.producer.transactional import KafkaSteps

NOWHERE = KafkaOptions(bootstrap_servers=("127.0.0.1:1",))


def nothing(*_: object, **__: object) -> int:
    """Nothing is left, and nobody has called."""
    return 0


class Silence:
    """Clients that never have an answer, and the time that they wait for it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.calls: list[float] = []
        self.intervals: list[int] = []

    def monotonic(self) -> float:
        return self.now

    def client(self, settings: dict[str, Any], **_: object) -> SimpleNamespace:
        self.intervals.append(int(settings["statistics.interval.ms"]))
        return SimpleNamespace(init_transactions=self.wait, poll=nothing, purge=nothing, flush=nothing)

    def wait(self, seconds: float) -> None:
        self.calls.append(seconds)
        self.now += seconds
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Silence:
    silence = Silence()
    monkeypatch.setattr(task_producer, "Producer", silence.client)
    monkeypatch.setattr(lane_producer, "time", silence)
    return silence


def attempt(steps: KafkaSteps) -> None:
    """A batch that waits for its producer until it gives up."""
    handle = steps.prepare("copycat.u.app.0.0")
    with pytest.raises(RetriableError):
        steps.ready(handle)
    steps.close(handle)


def test_who_is_not_answered_does_not_ask_often_and_less_so_the_next_time(silence: Silence) -> None:
    steps = KafkaSteps(NOWHERE, "test")
    attempt(steps)
    assert 1 < len(silence.calls) <= 12
    assert sum(silence.calls) == pytest.approx(lane_producer.INIT_SECONDS)
    assert max(silence.calls[:5]) < 1  # quick at first: mostly somebody answers
    for _ in range(3):
        silence.calls.clear()
        attempt(steps)
        assert len(silence.calls) <= 5
        assert sum(silence.calls) == pytest.approx(lane_producer.INIT_SECONDS)


def test_after_an_answer_it_is_asked_quickly_again() -> None:
    shared = TransactionalState(is_unanswered=True)
    assert shared.first_wait_seconds() == 5
    shared.took(0.01)
    assert shared.first_wait_seconds() < 0.1


def test_producers_that_nobody_polls_yet_say_little_of_themselves(silence: Silence) -> None:
    steps = KafkaSteps(NOWHERE, "test")
    for _ in range(3):
        steps.prepare("copycat.u.app.0.0")
    assert min(silence.intervals) >= 500
    steps.close()


def test_only_where_producers_live_too_briefly_to_be_heard_they_speak_up_sooner() -> None:
    shared = TransactionalState()
    assert shared.statistics() == {"statistics.interval.ms": "500"}
    shared.lived(0.3)
    assert shared.statistics() == {"statistics.interval.ms": "50"}
    shared.lived(30)
    assert shared.statistics() == {"statistics.interval.ms": "500"}
    shared.heard_at = time.monotonic()
    shared.lived(0.3)
    assert shared.statistics() == {}


LEAVES = """
import sys, threading
from copycat_agent.errors import RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import task_memory
from copycat_agent.producer.transactional import KafkaSteps
task_memory.SLICE_SECONDS = 60.0  # the first call lasts longer than all of this on a busy machine
stop = threading.Event()
steps = KafkaSteps(KafkaOptions(bootstrap_servers=(sys.argv[1],)), "test", stopping=stop.is_set)
steps.shared.is_unanswered = True  # so the first call is a long one
handles = [steps.prepare(f"copycat.u.app.{number}.0") for number in range(4)]
print("asking", flush=True)
sys.stdin.readline()
stop.set()
for handle in handles:
    try:
        steps.ready(handle)
    except RetriableError as error:
        assert "stopped" in str(error)
    steps.close(handle)
steps.close()
assert "fencing" in [thread.name for thread in threading.enumerate()]  # nobody has waited for a call that lasts
"""


def test_a_process_that_is_stopped_while_it_asks_leaves_at_once() -> None:
    address = f"127.0.0.1:{free_port()}"
    with subprocess.Popen([sys.executable, "-c", LEAVES, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as leaving:
        assert leaving.stdout is not None
        assert leaving.stdout.readline() == "asking\n"
        leaving.communicate("\n", timeout=60)
        assert leaving.returncode == 0
