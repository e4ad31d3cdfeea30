"""A host that has no threads or descriptors left for a moment costs an attempt, and ends nothing for good. No Spark is needed."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JNetworkError

from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.spark.cluster import ClusterExecutor
from copycat_agent.spark.jobs import JobExecutor
from tests.spark.batches import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 60.0


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
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
