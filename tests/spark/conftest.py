"""One Spark session for all tests here, and what tests see of its processes. It ends with them: other tests start sessions of their own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from copycat_agent.options import SparkOptions
from copycat_agent.spark import workers_lock
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.jobs import JobExecutor
from copycat_agent.spark.runner_pool import LocalRunnerPool
from copycat_agent.spark.runners import RunnerExecutor
from tests.rig.apart import ExecutorApart
from tests.rig.spark_cluster import PROJECT, SparkCluster
from tests.rig.waiting import wait_until
from tests.spark import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY_VARIABLE = "COPYCAT_TEST_CANARY"
CANARY = "canary-in-the-environment"
UP_SECONDS = 240.0
"""A JVM and Spark in it take 50 s on a machine that does much else: nearly what a batch waits for them, and a test for its batch."""


@pytest.fixture(scope="package")
def cache() -> Iterator[None]:
    """Archives of classes are where all agents of this machine have theirs, so that none is recorded for these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CANARY_VARIABLE, CANARY)
        yield


@pytest.fixture(scope="package")
def host(cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHost]:
    """A session with two runners. Tests may kill its JVM as often as they like."""
    run_dir = tmp_path_factory.mktemp("spark") / "run"
    host = SparkHost(SparkOptions(), run_dir, 2, young_seconds=0, workers_lock=run_dir.with_name(workers_lock.NAME))
    host.start()
    host.session(UP_SECONDS)
    yield host
    host.close()


@pytest.fixture(scope="package")
def hung() -> set[str]:
    """Connectors whose mount does not answer."""
    return set()


@pytest.fixture(scope="package")
def runners(host: SparkHost, hung: set[str]) -> Iterator[RunnerExecutor]:
    """The executor of `run`; a batch hangs when it takes half a second longer than it may."""
    executor = RunnerExecutor(LocalRunnerPool(host, batches.run), answer_seconds=0.5, look_seconds=0.2, hung=hung.intersection)
    wait_until(lambda: len(executor.pids()) == host.runners, UP_SECONDS, "the runners")
    yield executor
    executor.close()


@pytest.fixture(scope="package")
def jobs(host: SparkHost) -> Iterator[JobExecutor]:
    """The executor of `backfill`."""
    executor = JobExecutor(host, batches.run, answer_seconds=0.5)
    yield executor
    executor.close()


@pytest.fixture(scope="package")
def spark_cluster(cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers. Tests may kill executors as often as they like."""
    with SparkCluster(tmp_path_factory.mktemp("cluster"), python_path=PROJECT) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def cluster(spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExecutorApart]:
    """The executor of `backfill --master`, in a process of its own."""
    executor = ExecutorApart(tmp_path_factory.mktemp("apart") / "run", spark_cluster.url, "tests.spark.batches:run", answer_seconds=0.5)
    yield executor
    executor.close()


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """A file that a batch writes its process id to once it runs."""
    return tmp_path / "began"


def workers() -> list[psutil.Process]:
    """Spark's Python daemon and its workers, those that live."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "copycat_agent.spark.daemon" in process.cmdline():
                found.append(process)
    return found


def environment_of(pid: int) -> bytes:
    """As the kernel shows it to other processes of this user; nothing of one that has just ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
