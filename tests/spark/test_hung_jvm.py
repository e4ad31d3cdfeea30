"""A JVM that does not answer holds up no batch and no stop: it is killed. Here it is a double; `test_faults` stops a real one."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import RetriableError
from copycat_agent.spark import cancelling, cluster_runner_pool
from copycat_agent.spark.cluster import ClusterExecutor
from copycat_agent.spark.cluster_runner_pool import ClusterRunnerPool
from copycat_agent.spark.jobs import JobExecutor
from tests.spark.batches import batch

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0


class HungJvm:
    """A JVM and its context: calls return, with an error, once it was killed."""

    pid = 1

    def __init__(self) -> None:
        self.called, self.killed = threading.Event(), threading.Event()

    def kill(self) -> None:
        """Ends all calls."""
        self.killed.set()

    def call(self, *_: object, **__: object) -> None:
        """Hangs."""
        self.called.set()
        self.killed.wait()
        raise OSError("it is gone")

    def session(self, _seconds: float) -> Any:
        """Returns what a host would."""
        context = SimpleNamespace(setJobGroup=self.call, cancelJobGroup=self.call, statusTracker=self.call)
        return SimpleNamespace(number=1, context=context, jvm=self)


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> HungJvm:
    monkeypatch.setattr(cancelling, "CANCEL_SECONDS", 0.5)
    return HungJvm()


def test_a_job_is_over_soon_after_its_time(jvm: HungJvm, tmp_path: Path) -> None:
    jobs = JobExecutor(SimpleNamespace(runners=1, socket_dir=tmp_path, session=jvm.session), answer_seconds=0.0)  # type: ignore[arg-type]
    (result,) = jobs.submit(batch("answer", max_seconds=0.0)).result(SECONDS)
    assert isinstance(result.error, RetriableError)
    assert "took too long" in str(result.error)
    assert jvm.killed.is_set()
    jobs.close()


def test_a_stop_does_not_wait_for_it(jvm: HungJvm, tmp_path: Path) -> None:
    jobs = JobExecutor(SimpleNamespace(runners=1, socket_dir=tmp_path, session=jvm.session))  # type: ignore[arg-type]
    future = jobs.submit(batch("answer"))
    assert jvm.called.wait(SECONDS)
    jobs.close()
    assert "the agent is stopping" in str(future.result(0)[0].error)


def test_a_job_on_a_cluster_is_over_once_it_has_no_place(jvm: HungJvm) -> None:
    host = SimpleNamespace(refusal_of=lambda _: None, session=jvm.session, exchange=None)
    executor = ClusterExecutor(host, place_seconds=0.0)  # type: ignore[arg-type]
    (result,) = executor.submit(batch("answer")).result(SECONDS)
    assert isinstance(result.error, RetriableError)
    assert "no place" in str(result.error)
    assert jvm.killed.is_set()
    executor.close()


def test_who_dismisses_a_runner_of_a_cluster_does_not_wait_for_it(jvm: HungJvm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_runner_pool, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(cluster_runner_pool, "cores_of", lambda _: 1)
    pool = ClusterRunnerPool(SimpleNamespace(own_addresses=lambda: ("127.0.0.1", "127.0.0.1"), session=jvm.session))  # type: ignore[arg-type]
    pool.start(SimpleNamespace(connected=frozenset, ended=lambda *_: 0.0, retire=lambda _: None))
    assert jvm.called.wait(SECONDS)
    pool.dismiss(0)
    assert jvm.killed.wait(SECONDS)
    pool.close()
    pool.wait(SECONDS)
