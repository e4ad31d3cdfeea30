"""Runners on other hosts: who is let in, what is on the wire, and what becomes of batches whose runner dies, stops or is sent away."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING

import psutil
import pytest

from copycat_agent.errors import RetriableError
from copycat_agent.runner import BEAT_SECONDS
from copycat_agent.spark import cluster_listener
from copycat_agent.spark.cluster_runner_pool import changes, wanted
from copycat_agent.spark.runners import RunnerExecutor
from copycat_agent.tls_channel import connect
from tests.rig.runner_processes import ProcessRunnerPool
from tests.rig.waiting import wait_until
from tests.spark.batches import batch, done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 60.0


class Runners:
    """An executor and its pool."""

    def __init__(self, count: int = 2) -> None:
        self.pool = ProcessRunnerPool(count)
        self.executor = RunnerExecutor(self.pool, answer_seconds=5.0, look_seconds=0.2)

    def are_there(self, count: int) -> None:
        """Wait until so many have come in."""
        wait_until(lambda: len(self.executor.connected()) == count, SECONDS, "the runners have come in")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A runner to which a busy machine does not come for a while is not dead, but where a test says how many beats may be missing."""

    def wait_beats(count: float) -> None:
        monkeypatch.setattr(cluster_listener, "QUIET_SECONDS", count * BEAT_SECONDS)

    wait_beats(SECONDS)
    return wait_beats


@pytest.fixture
def remote() -> Iterator[Runners]:
    """Two runners."""
    found = Runners()
    yield found
    found.executor.close()


@pytest.fixture(scope="module")
def lasting() -> Iterator[Runners]:
    """Two runners for tests that let them live and let nobody else in."""
    found = Runners()
    yield found
    found.executor.close()


def test_batches_are_answered_by_processes_that_came_in_over_tcp(remote: Runners) -> None:
    work = batch("echo", splits=3000)
    assert remote.executor.submit(work).result(SECONDS) == done(work)
    remote.are_there(2)
    pids = {remote.executor.submit(batch("answer", task=number)).result(SECONDS)[0].offset.path for number in range(4)}
    assert pids == {str(one.pid) for one in remote.pool.processes}, "tasks are spread over them"
    assert {str(pid) for pid in remote.executor.pids().values()} == pids


def test_who_does_not_know_the_key_is_not_let_in(lasting: Runners) -> None:
    lasting.are_there(2)
    stranger = lasting.pool.add(key=b"another key, as long as this one")
    assert "cannot reach the agent" in lasting.pool.said_by(stranger)
    assert len(lasting.executor.connected()) == 2


def test_a_runner_tells_nobody_the_key_who_is_not_the_agent(lasting: Runners) -> None:
    lasting.are_there(2)
    deceived = lasting.pool.add(certificate=b"0" * 32)
    assert "somebody else answers there" in lasting.pool.said_by(deceived)
    assert len(lasting.executor.connected()) == 2


def test_strangers_who_say_nothing_keep_nobody_out(remote: Runners) -> None:
    remote.are_there(2)
    address = remote.pool.listener.address
    silent = [socket.create_connection(address[:2]) for _ in range(20)]
    remote.pool.add()
    remote.are_there(3)
    for one in silent:
        one.close()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x40\x00" + bytes(10_000)], ids=["silent", "slow"])
def test_more_strangers_than_may_be_at_the_listener_are_sent_away_in_time(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """`slow`: they send a long greeting, a byte at a time."""
    monkeypatch.setattr(cluster_listener, "MOST_STRANGERS", 3)
    monkeypatch.setattr("copycat_agent.tls_channel.MEET_SECONDS", 4.0)
    found = Runners(0)
    strangers = [socket.create_connection(found.pool.listener.address[:2]) for _ in range(5)]
    ended = threading.Event()

    def drip() -> None:
        for byte in sent:
            if ended.wait(0.1):
                return
            for one in strangers:
                with contextlib.suppress(OSError):
                    one.send(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        found.pool.add()
        found.are_there(1)
    finally:
        ended.set()
        thread.join()
        for one in strangers:
            one.close()
        found.executor.close()


def test_a_message_before_the_key_cannot_be_long(lasting: Runners) -> None:
    address = lasting.pool.listener.address
    channel = connect(address.host, address.port, address.certificate)
    channel.recv_bytes()  # its challenge
    with pytest.raises((OSError, EOFError)):
        list(map(channel.send_bytes, [bytes(100_000)] * 100))
    channel.close()


def test_a_pool_hears_for_how_long_a_runner_was_there(remote: Runners) -> None:
    remote.are_there(2)
    assert remote.executor.ended(0, "") > 0
    assert (remote.executor.ended(0, ""), remote.executor.ended(7, "")) == (0, 0), "they never came"


def test_tasks_of_a_runner_that_dies_go_on_at_another(remote: Runners, flag: Path) -> None:
    remote.are_there(2)
    dying = remote.executor.submit(batch("until-told", str(flag)))
    wait_until(flag.exists, SECONDS, "the batch runs")
    os.kill(int(flag.read_text()), signal.SIGKILL)
    (result,) = dying.result(SECONDS)
    assert isinstance(result.error, RetriableError)
    assert "on " in str(result.error), "it says on which host"
    assert remote.executor.submit(batch("answer")).result(SECONDS)[0].error is None


def test_batches_of_a_runner_that_says_nothing_any_more_are_planned_elsewhere(
    remote: Runners, flag: Path, patient: Callable[[float], None]
) -> None:
    """As of a host without power, or one that is cut off: nothing there can be ended, and nobody says that it has gone."""
    remote.are_there(2)
    silent = remote.executor.submit(batch("until-told", str(flag)))
    wait_until(flag.exists, SECONDS, "the batch runs")
    pid = int(flag.read_text())
    os.kill(pid, signal.SIGSTOP)
    patient(2.5)
    (result,) = silent.result(SECONDS)  # long before the batch has to end
    patient(SECONDS)
    assert isinstance(result.error, RetriableError)
    (index,) = wait_until(lambda: remote.pool.dismissed, SECONDS, "it is dismissed")
    assert remote.pool.processes[index].pid == pid
    (other,) = remote.executor.submit(batch("answer")).result(SECONDS)
    assert other.offset.path != str(pid)


def test_a_runner_that_computes_for_long_says_that_it_lives(lasting: Runners, patient: Callable[[float], None]) -> None:
    lasting.are_there(2)
    patient(5)
    assert lasting.executor.submit(batch("burn", str(6 * BEAT_SECONDS))).result(SECONDS)[0].error is None
    assert lasting.pool.dismissed == []


def test_a_runner_that_was_given_up_ends_its_batches_when_it_goes_on(remote: Runners, flag: Path, patient: Callable[[float], None]) -> None:
    remote.are_there(2)
    silent = remote.executor.submit(batch("until-told", str(flag)))
    wait_until(flag.exists, SECONDS, "the batch runs")
    process = psutil.Process(int(flag.read_text()))
    process.suspend()
    patient(2.5)
    silent.result(SECONDS)
    (index,) = wait_until(lambda: remote.pool.dismissed, SECONDS, "it is dismissed")
    process.resume()
    assert remote.pool.processes[index].wait(SECONDS) == 0


def test_a_runner_that_is_sent_away_answers_for_what_it_has(remote: Runners, flag: Path) -> None:
    remote.are_there(2)
    last = remote.executor.submit(batch("until-told", str(flag)))
    wait_until(flag.exists, SECONDS, "the batch runs")
    index = next(number for number, one in enumerate(remote.pool.processes) if one.pid == int(flag.read_text()))
    remote.executor.retire(index)
    assert last.result(SECONDS)[0].offset.path == "settled"
    assert remote.pool.processes[index].wait(SECONDS) == 0
    pids = {remote.executor.submit(batch("answer", task=number)).result(SECONDS)[0].offset.path for number in range(4)}
    assert pids == {str(remote.pool.processes[1 - index].pid)}


def test_tasks_spread_to_a_runner_that_comes_later(remote: Runners) -> None:
    remote.are_there(2)
    tasks = range(6)
    before = {remote.executor.submit(batch("answer", task=number)).result(SECONDS)[0].offset.path for number in tasks}
    late = remote.pool.add()
    remote.are_there(3)
    after = [remote.executor.submit(batch("answer", task=number)).result(SECONDS)[0].offset.path for _ in range(2) for number in tasks]
    assert str(late.pid) not in before
    assert after[6:].count(str(late.pid)) == 2, "a third of them"


@pytest.mark.parametrize(
    ("cores", "alone", "beside_jobs"), [(0, 0, 0), (1, 1, 0), (2, 2, 1), (4, 4, 3), (16, 16, 12), (10_000, 512, 512)]
)  # fmt: skip
def test_each_core_has_a_runner_but_for_those_that_jobs_need(cores: int, alone: int, beside_jobs: int) -> None:
    assert (wanted(cores, with_jobs=False), wanted(cores, with_jobs=True)) == (alone, beside_jobs)


@pytest.mark.parametrize(
    ("kept", "connected", "cores", "begin", "end"),
    [
        ({}, {}, 2, [0, 1], []),
        ({1, 2}, {1}, 4, [0, 3], []),
        ({0, 1, 2}, {0, 2}, 2, [], [1]),
        ({0, 1, 2}, {0, 1, 2}, 2, [], [2]),
        ({0, 1}, {}, 0, [], []),
    ],
    ids=["at first", "an executor has come", "one has gone", "fewer are wanted", "all have gone and others are on their way"],
)  # fmt: skip
def test_runners_come_and_go_with_cores(kept: set[int], connected: set[int], cores: int, begin: list[int], end: list[int]) -> None:
    assert changes(kept, connected, cores, with_jobs=False) == (begin, end)
