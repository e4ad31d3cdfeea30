"""Whatever dies, every future is resolved, the runners come back, and nothing is left behind."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import time
import types
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
import pytest

import copycat_agent.spark.jobs
import copycat_agent.spark.runners
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.model import TaskId
from copycat_agent.options import SparkOptions
from copycat_agent.spark import cancelling, workers_lock
from copycat_agent.spark.host import SparkHost, runners_of
from copycat_agent.spark.jobs import JobExecutor
from copycat_agent.spark.runner_connections import LocalRunnerConnection
from tests.rig.waiting import wait_until
from tests.spark.batches import BEGUN_SECONDS, batch
from tests.spark.conftest import UP_SECONDS, workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from copycat_agent.model import SplitResult
    from copycat_agent.spark.runners import RunnerExecutor

SECONDS = 60
pytestmark = pytest.mark.timeout(400)
"""A JVM is started again in some of them, which takes long on a machine that does much else."""


@pytest.fixture(autouse=True)
def all_runners_are_back(runners: RunnerExecutor) -> Iterator[None]:
    """Each test begins and ends with every runner connected, and none among them that has just been killed."""

    def are_back() -> bool:
        pids = runners.pids().values()
        return len(pids) == 2 and all(map(_alive, pids))

    wait_until(are_back, UP_SECONDS, "two runners")
    yield
    wait_until(are_back, UP_SECONDS, "two runners again")


class Busy(NamedTuple):
    """A batch under way."""

    task: TaskId
    pid: int
    future: Future[tuple[SplitResult, ...]]


def _busy(runners: RunnerExecutor, directory: Path) -> list[Busy]:
    """Two batches under way, on two runners."""
    homes: dict[str, int] = {}
    for number in range(100):  # tasks of an earlier test have places already: those of the lowest numbers may all be on one runner
        homes.setdefault(runners.submit(batch("answer", task=number)).result(SECONDS)[0].offset.path, number)
        if len(homes) == 2:
            break
    assert len(homes) == 2
    busy = []
    for pid, number in homes.items():
        flag = directory / f"busy-{number}"
        work = batch("until-told", str(flag), task=number)
        busy.append(Busy(work.task, int(pid), runners.submit(work)))
        assert wait_until(lambda flag=flag: flag.exists() and flag.read_text(), SECONDS, "the batch runs") == pid  # type: ignore[misc]
    return busy


def _group(process: psutil.Process) -> int:
    """0 for one that has just ended."""
    with suppress(ProcessLookupError):
        return os.getpgid(process.pid)
    return 0


def _alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_a_killed_runner_costs_its_own_batch_only(runners: RunnerExecutor, tmp_path: Path) -> None:
    killed, other = _busy(runners, tmp_path)
    os.kill(killed.pid, signal.SIGKILL)
    (result,) = killed.future.result(SECONDS)
    assert isinstance(result.error, RetriableError)
    assert str(killed.pid) in str(result.error)
    assert not other.future.done()
    runners.settle(other.task)
    assert other.future.result(SECONDS)[0].offset.path == "settled"


def test_tasks_of_a_killed_runner_move_and_spread_again(runners: RunnerExecutor) -> None:
    os.kill(runners.pids()[0], signal.SIGKILL)
    for number in range(40):
        runners.submit(batch("answer", task=number)).result(SECONDS)
    wait_until(lambda: len(runners.pids()) == 2, SECONDS, "two runners")
    homes: list[str] = []

    def spread() -> bool:
        """Tasks of other tests have places as well: so there are not twenty on each."""
        homes[:] = [runners.submit(batch("answer", task=number)).result(SECONDS)[0].offset.path for number in range(40)]
        return min(homes.count(str(pid)) for pid in runners.pids().values()) > 10

    wait_until(spread, SECONDS, lambda: f"tasks on each runner: {Counter(homes)}")


def test_a_task_stays_on_its_runner(runners: RunnerExecutor) -> None:
    homes = {runners.submit(batch("answer", connector="stays")).result(SECONDS)[0].offset.path for _ in range(20)}
    assert len(homes) == 1


def test_every_worker_holds_the_lock_that_the_next_start_waits_for(runners: RunnerExecutor, host: SparkHost, tmp_path: Path) -> None:
    lock = host.run_dir.with_name(workers_lock.NAME)
    busy = _busy(runners, tmp_path)
    assert {one.pid for one in busy} <= set(workers_lock.wait(lock, 0.0))
    for one in busy:
        runners.settle(one.task)
        one.future.result(SECONDS)


def test_the_daemon_takes_its_workers_with_it(runners: RunnerExecutor, tmp_path: Path) -> None:
    busy = _busy(runners, tmp_path)
    daemon = psutil.Process(busy[0].pid).ppid()
    os.kill(daemon, signal.SIGKILL)
    assert all(isinstance(one.future.result(SECONDS)[0].error, RetriableError) for one in busy)
    wait_until(lambda: not any(_alive(pid) for pid in (daemon, *(one.pid for one in busy))), SECONDS, "daemon and workers are gone")


def test_a_killed_jvm_costs_runners_and_a_job_their_batches_and_is_started_again(
    runners: RunnerExecutor, jobs: JobExecutor, host: SparkHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    busy, flag = _busy(runners, tmp_path), tmp_path / "job"
    job = jobs.submit(batch("until-told", str(flag), connector="job"))
    wait_until(flag.exists, SECONDS, "the job's batch runs")
    jvm = host.jvm_pid
    assert jvm
    with caplog.at_level(logging.INFO):
        os.kill(jvm, signal.SIGKILL)
        assert all(isinstance(future.result(SECONDS)[0].error, RetriableError) for future in (job, *(one.future for one in busy)))
        wait_until(runners.pids, UP_SECONDS, "there are runners again")
        assert runners.submit(batch("answer")).result(SECONDS)[0].error is None
        wait_until(lambda: jobs.submit(batch("answer")).result(SECONDS)[0].error is None, SECONDS, "jobs run again")
    assert host.jvm_pid != jvm
    wait_until(lambda: not any(_alive(pid) for pid in (jvm, *(one.pid for one in busy))), SECONDS, "the old processes are gone")
    assert "Traceback" not in caplog.text


def test_a_jvm_that_somebody_stops_is_killed_when_a_job_is_due_and_is_started_again(
    jobs: JobExecutor, host: SparkHost, flag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "CANCEL_SECONDS", 2.0)
    job = jobs.submit(batch("until-told", str(flag), max_seconds=BEGUN_SECONDS))
    wait_until(flag.exists, SECONDS, "the job's batch runs")
    jvm = host.jvm_pid
    assert jvm
    os.kill(jvm, signal.SIGSTOP)
    assert isinstance(job.result(SECONDS)[0].error, RetriableError)
    wait_until(lambda: not _alive(jvm), SECONDS, "it is dead")
    wait_until(lambda: jobs.submit(batch("answer")).result(SECONDS)[0].error is None, UP_SECONDS, "jobs run again")


def test_a_batch_that_hangs_holds_up_no_other_on_its_runner(runners: RunnerExecutor, tmp_path: Path) -> None:
    flags = [tmp_path / f"hang-{number}" for number in range(2)]
    hanging = [runners.submit(batch("hang", str(flag), task=number)) for number, flag in enumerate(flags)]
    pids = [int(wait_until(lambda flag=flag: flag.exists() and flag.read_text(), SECONDS, "it hangs")) for flag in flags]  # type: ignore[misc]
    for number in range(2, 6):
        assert runners.submit(batch("answer", task=number)).result(SECONDS)[0].error is None
    assert not any(future.done() for future in hanging)
    for pid in set(pids):
        os.kill(pid, signal.SIGKILL)
    assert all(isinstance(future.result(SECONDS)[0].error, RetriableError) for future in hanging)


def test_a_runner_that_does_not_answer_is_killed_and_named(runners: RunnerExecutor, flag: Path) -> None:
    future = runners.submit(batch("hang", str(flag), max_seconds=BEGUN_SECONDS))
    (result,) = future.result(SECONDS)
    pid = int(flag.read_text())
    assert isinstance(result.error, RetriableError)
    assert str(pid) in str(result.error)
    assert "app/0" in str(result.error)
    wait_until(lambda: not _alive(pid), SECONDS, "it is dead")


def test_batches_whose_mount_hangs_keep_neither_their_places_nor_their_deadline_until_it_answers(
    runners: RunnerExecutor, hung: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have seven of eight places, as all of one cluster may. So many others run beside them, and no runner is killed.

    The mount hangs once all of them are there: of those that come later, some would find the places of those that hang.
    """
    monkeypatch.setattr(copycat_agent.spark.runners, "THREADS", 4)
    flags = [tmp_path / f"remote-{number}" for number in range(12)]
    hanging = [runners.submit(batch("until-told", str(flag), connector=flag.name, max_seconds=BEGUN_SECONDS)) for flag in flags]
    over = time.monotonic() + BEGUN_SECONDS + 3.0  # a runner is killed 1.5 s after the time of its batch, but for the mount
    hung.update(flag.name for flag in flags)
    try:
        wait_until(lambda: sum(future.done() for future in hanging) == 5, SECONDS, "those that found no place are back")
        begun = [(flag, future) for flag, future in zip(flags, hanging, strict=True) if not future.done()]
        wait_until(lambda: all(flag.exists() for flag, _ in begun), SECONDS, "the others hang")
        pids = set(runners.pids().values())
        beside = [tmp_path / f"local-{number}" for number in range(7)]
        futures = [runners.submit(batch("until-told", str(flag), connector=flag.name)) for flag in beside]
        wait_until(lambda: all(flag.exists() for flag in beside), SECONDS, "as many as ever run beside them")
        for flag in beside:
            runners.settle(TaskId(flag.name, 0))
        assert all(future.result(SECONDS)[0].error is None for future in futures)
        wait_until(lambda: time.monotonic() > over, SECONDS, "their time is over")
        assert not any(future.done() for _, future in begun), "their time was over long ago"
        assert set(runners.pids().values()) == pids
    finally:
        for flag in flags:
            runners.settle(TaskId(flag.name, 0))
        results = [future.result(SECONDS)[0] for future in hanging]
        hung.clear()  # not before: from then on their time runs
    assert all(result.error is None for result in results)


def test_runners_that_somebody_stops_are_killed_long_before_their_batches_are_due(runners: RunnerExecutor, flag: Path) -> None:
    """All of them at once, also those without a batch: else each would get the batch of the one before, and wait in its turn."""
    pids = set(runners.pids().values())
    future = runners.submit(batch("until-told", str(flag), max_seconds=10 * SECONDS))
    wait_until(flag.exists, SECONDS, "the batch runs")
    busy = int(flag.read_text())
    for pid in (*(pids - {busy}), busy):  # the batch last: once it has failed, nobody looks
        os.kill(pid, signal.SIGSTOP)
    (result,) = future.result(SECONDS)
    assert isinstance(result.error, RetriableError)
    assert "stopped its process" in str(result.error)
    wait_until(lambda: not any(map(_alive, pids)), SECONDS, "all of them are dead")


def test_a_runner_that_is_stopped_for_a_moment_goes_on(runners: RunnerExecutor, flag: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For two looks: how many come between two signals, nobody knows. The test above stops processes for real."""
    work = batch("until-told", str(flag), max_seconds=10 * SECONDS)
    future = runners.submit(work)
    wait_until(flag.exists, SECONDS, "the batch runs")
    busy, looks = int(flag.read_text()), Counter[bool]()

    def is_stopped(link: LocalRunnerConnection) -> bool:
        looks[link.pid == busy] += 1
        return link.pid == busy and looks[True] <= 2

    monkeypatch.setattr(LocalRunnerConnection, "is_stopped", is_stopped)
    wait_until(lambda: looks[True] > 3, SECONDS, "it is looked at again")
    assert not future.done()
    runners.settle(work.task)
    assert future.result(SECONDS)[0].offset.path == "settled"


def test_the_worker_of_a_job_that_hangs_is_ended(jobs: JobExecutor, flag: Path) -> None:
    assert isinstance(jobs.submit(batch("hang", str(flag), max_seconds=BEGUN_SECONDS)).result(SECONDS)[0].error, RetriableError)
    wait_until(lambda: not _alive(int(flag.read_text())), SECONDS, "its worker is gone")


def test_jobs_whose_workers_have_another_package_are_tried_for_a_while_only(host: SparkHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade under a run to the end: nobody looks at one that tries for ever."""
    moved = types.ModuleType("moved_meanwhile")
    exec("def run(batch, producers, stopping): ...", moved.__dict__)  # noqa: S102 - a module that only this process has
    monkeypatch.setitem(sys.modules, moved.__name__, moved)
    changed = JobExecutor(host, moved.run)
    try:
        kinds = []
        for seconds in (30.0, 0.0):
            monkeypatch.setattr(copycat_agent.spark.jobs, "UNFIT_SECONDS", seconds)
            (result,) = changed.submit(batch("answer")).result(SECONDS)
            assert "moved_meanwhile" in str(result.error)
            kinds.append(type(result.error))
        assert kinds == [RetriableError, FatalError]
    finally:
        changed.close()


def test_what_a_worker_logs_is_in_the_agents_log(runners: RunnerExecutor, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert runners.submit(batch("log")).result(SECONDS)[0].error is None
        wait_until(lambda: "a word from the worker" in caplog.text, SECONDS, "the worker's word")


def test_no_more_processes_than_needed(runners: RunnerExecutor) -> None:
    for number in range(50):
        runners.submit(batch("answer", task=number)).result(SECONDS)
    assert len(workers()) <= 1 + 2 * 2  # the daemon, resident tasks, bounded tasks


_AGENT = """
import sys, pathlib, time
from copycat_agent.options import SparkOptions
from copycat_agent.spark import workers_lock
from copycat_agent.spark.runner_pool import LocalRunnerPool
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.runners import RunnerExecutor
from tests.spark import batches

host = SparkHost(SparkOptions(), pathlib.Path(sys.argv[1]), 2)
host.start()
executor = RunnerExecutor(LocalRunnerPool(host, batches.run))
while not executor.pids():
    time.sleep(0.05)  # on a busy machine longer than a batch waits for a runner
error = executor.submit(batches.batch("answer")).result()[0].error
print(error, *(name for name in ("pandas", "numpy", "pyarrow", "unittest") if name in sys.modules), flush=True)
sys.stdin.read()
executor.close()
host.close()
"""


def _agent(run_dir: Path) -> subprocess.Popen[str]:
    """Another driver, with its own JVM, that has run a batch, without what only queries import, and waits for the end of its stdin."""
    process = subprocess.Popen(
        [sys.executable, "-c", _AGENT, str(run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path.cwd(),
        start_new_session=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "None\n"
    return process


def test_nothing_outlives_a_killed_driver_and_the_next_one_closes_leaving_no_process_and_no_file(tmp_path: Path) -> None:
    with _agent(tmp_path / "run") as agent:
        driver = psutil.Process(agent.pid)
        wait_until(lambda: len(driver.children(recursive=True)) >= 4, SECONDS, "JVM, daemon, two runners")
        family = driver.children(recursive=True)
        agent.kill()
        agent.wait(SECONDS)
        wait_until(lambda: not any(_alive(process.pid) for process in family), SECONDS, "its processes are gone")
    with _agent(tmp_path / "run") as agent:  # what the other left on disk is no obstacle
        family = psutil.Process(agent.pid).children(recursive=True)
        groups = [_group(process) for process in family]
        assert agent.pid not in groups, "a terminal's interrupt reaches the driver only"
        agent.communicate(timeout=SECONDS)
    assert agent.returncode == 0
    wait_until(lambda: not any(_alive(process.pid) for process in family), SECONDS, "its processes are gone")  # workers end behind the JVM
    assert list((tmp_path / "run").iterdir()) == []


def test_a_jvm_that_never_comes_up_is_told_once_and_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'no memory left'\nexit 3\n")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told: list[FatalError] = []
    host = SparkHost(SparkOptions(), tmp_path / "run", 1, on_failure=told.append)
    host.start()
    with pytest.raises(FatalError, match=r"exit code 3.*no memory left"):
        host.session(SECONDS)
    wait_until(lambda: told, SECONDS, "the agent is told")
    assert host.state == "failed"
    host.close()


def test_a_host_that_was_closed_says_so(tmp_path: Path) -> None:
    host = SparkHost(SparkOptions(), tmp_path / "run", 1)
    host.close()
    with pytest.raises(RetriableError, match="closed"):
        host.session()


@pytest.mark.parametrize(("master", "count"), [("local[3]", 3), ("local[12]", 12)])
def test_the_master_says_how_many_runners(master: str, count: int) -> None:
    assert runners_of(master) == count


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local[", "local[2,3]"])
def test_a_master_that_is_not_local_is_refused(master: str) -> None:
    with pytest.raises(FatalError, match=r"spark\.master"):
        runners_of(master)


def test_what_crosses_a_process_survives_pickling() -> None:
    work = batch("answer", splits=2)
    assert pickle.loads(pickle.dumps(work)) == work
