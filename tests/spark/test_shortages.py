"""A host that has no threads or descriptors left for a moment costs an attempt, and ends nothing for good. No Spark is needed."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JNetworkError

from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.spark import cluster_runner_pool
from copycat_agent.spark.cluster import ClusterExecutor
from copycat_agent.spark.cluster_job import ControlListener
from copycat_agent.spark.cluster_runner_pool import ClusterRunnerPool
from copycat_agent.spark.cluster_task import settle_requested
from copycat_agent.spark.jobs import JobExecutor
from tests.rig.descriptors import no_descriptors_left
from tests.rig.waiting import wait_until
from tests.spark.batches import batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 60.0


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets no thread start whose name contains this from now on; all of them can with "(none)"."""
    refused, start = ["(none)"], threading.Thread.start

    def start_or_not(thread: threading.Thread) -> None:
        if refused[0] in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)
    return lambda name: refused.__setitem__(0, name)


def session(_: float) -> Any:
    """A session that is never used."""
    return SimpleNamespace(number=1, context=None)


def test_a_job_without_a_thread_for_its_guard_is_not_begun(refuse: Callable[[str], None], tmp_path: Path) -> None:
    jobs = JobExecutor(SimpleNamespace(runners=1, socket_dir=tmp_path, session=session))  # type: ignore[arg-type]
    refuse("guard")
    (result,) = jobs.submit(batch("answer")).result(SECONDS)
    assert isinstance(result.error, RetriableError)
    assert "no more threads" in str(result.error)
    jobs.close()


def on_a_cluster(session: Callable[[float], Any]) -> ClusterExecutor:
    return ClusterExecutor(SimpleNamespace(refusal_of=lambda _: None, session=session, exchange=None))  # type: ignore[arg-type]


def test_a_job_on_a_cluster_without_a_thread_for_its_guard_is_tried_again(refuse: Callable[[str], None]) -> None:
    executor = on_a_cluster(session)
    refuse("guard")
    (result,) = executor.submit(batch("answer")).result(SECONDS)
    assert isinstance(result.error, RetriableError)
    assert "no more threads" in str(result.error)
    executor.close()


def test_a_jvm_that_goes_where_no_job_runs_costs_a_batch_its_attempt() -> None:
    def gone(_: float) -> None:
        raise Py4JNetworkError

    executor = on_a_cluster(gone)
    (result,) = executor.submit(batch("answer")).result(SECONDS)
    assert isinstance(result.error, RetriableError)
    assert "the JVM does not answer" in str(result.error)
    executor.close()


def test_a_batch_that_could_not_be_submitted_does_not_run_later(refuse: Callable[[str], None]) -> None:
    begun: list[float] = []

    def note(seconds: float) -> None:
        begun.append(seconds)
        raise FatalError("it has begun")

    executor = on_a_cluster(note)
    refuse("cluster-job")
    (result,) = executor.submit(batch("answer")).result(SECONDS)
    assert isinstance(result.error, RetriableError)
    refuse("(none)")
    (result,) = executor.submit(batch("answer")).result(SECONDS)
    assert isinstance(result.error, FatalError)
    executor.close()
    assert len(begun) == 1


def test_a_runner_on_a_cluster_without_a_thread_is_kept_once_there_is_one(
    refuse: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_runner_pool, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(cluster_runner_pool, "cores_of", lambda _: 4)
    begun: list[int] = []
    over = threading.Event()

    class Pool(ClusterRunnerPool):
        def _run_job(self, session: Any, index: int) -> str:
            begun.append(index)
            over.wait(SECONDS)
            return ""

    pool = Pool(SimpleNamespace(own_addresses=lambda: ("127.0.0.1", "127.0.0.1"), session=session))  # type: ignore[arg-type]
    refuse("runner-2")
    pool.start(SimpleNamespace(connected=frozenset, ended=lambda *_: 60.0, retire=lambda _: None))
    wait_until(lambda: "no thread can be started for a runner" in caplog.text, SECONDS, "it is told")
    refuse("(none)")
    wait_until(lambda: sorted(begun) == [0, 1, 2, 3], SECONDS, lambda: f"runners: {begun}")
    pool.close()
    over.set()
    pool.wait(SECONDS)


def test_batches_connect_again_once_there_are_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    listener = ControlListener("127.0.0.1", "127.0.0.1")
    line, other = listener.line(), listener.line()
    assert line.address
    with socket.socket() as peer:
        with no_descriptors_left(0):
            peer.connect(line.address[:2])
            peer.sendall(line.address.token)  # it gets the descriptor that the listener had taken before it waited
            wait_until(lambda: "no batch can connect now" in caplog.text, SECONDS, "it is told")
        with settle_requested(other.address) as stopping:
            wait_until(lambda: other.is_connected, SECONDS, "the next one has come up")
            listener.close()
            wait_until(stopping, SECONDS, "it sees that nobody waits for it")
