"""Checks a Spark cluster as `run --master` would use it: whether it answers, has free cores, and executors can run batches.

Starts one executor of the smallest size for some seconds: nothing else shows that it comes up, has the Python it needs and can connect to
this host.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from copycat_agent.agent.executor_choice import doubts, refused_on
from copycat_agent.errors import CopycatError
from copycat_agent.options import Definition, SparkOptions
from copycat_agent.spark.cluster_host import ClusterHost, is_cluster, unreachable
from copycat_agent.spark.cluster_job import NO_PLACE
from copycat_agent.spark.cluster_runner_pool import ClusterRunnerPool, cores_of
from copycat_agent.spark.runners import RunnerExecutor
from copycat_agent.workbench.doctor.steps import CheckStep, Notes

SESSION_SECONDS = 90.0
"""Time for the session to come up: Spark gives up a wrong master after a minute."""
EXECUTOR_SECONDS = 60.0
"""Time for an executor, and then again for its Python, to come up."""
_LOOK_SECONDS = 0.2


def examine_on_cluster(notes: Notes, definition: Definition, master: str, conf: Mapping[str, str]) -> None:
    """Checks whether a connector can run there, as `run --master` would say it."""
    if not is_cluster(master):
        return
    if error := refused_on(master, definition, conf):
        notes.fail("cluster", error.message, error.hint)
    for doubt in doubts(definition):
        notes.warn("cluster", doubt)


def examine_master(options: SparkOptions, master: str, *, runs: bool, executor_seconds: float = EXECUTOR_SECONDS) -> list[CheckStep]:
    """Returns the steps of the master; none where `master` is this host. `runs`: an agent runs, and may have all cores already."""
    notes = Notes(f"spark {master}")
    if not is_cluster(master):
        return []
    if why := unreachable(master):
        notes.fail("master", f"it cannot be reached: {why}", ClusterHost.failure_hint)
        notes.not_asked("cores", "executor")
        return notes.steps
    conf = {**options.conf, "spark.cores.max": options.conf.get("spark.executor.cores", "1")}
    with tempfile.TemporaryDirectory(prefix="copycat-") as directory:
        try:
            with closing(ClusterHost(options.model_copy(update={"conf": conf}), Path(directory) / "run", master, None)) as host:
                host.start()
                _examine_session(notes, host, executor_seconds, runs=runs)
        except CopycatError as error:
            notes.fail("master", error.message, error.hint or ClusterHost.failure_hint)
            notes.not_asked("cores", "executor")
    return notes.steps


def _examine_session(notes: Notes, host: ClusterHost, executor_seconds: float, *, runs: bool) -> None:
    """Checks cores and an executor. Raises CopycatError when the session does not come up."""
    session = host.session(SESSION_SECONDS)
    notes.ok("master", f"Spark {session.context.version} answers, and takes applications")
    executor = RunnerExecutor(ClusterRunnerPool(host))
    began = time.monotonic()
    cores = 0
    try:
        while (
            not executor.connected()
            and executor.reason == ClusterRunnerPool.reason
            and time.monotonic() - began < executor_seconds * (2 if cores else 1)
        ):
            cores = cores or cores_of(session)
            time.sleep(_LOOK_SECONDS)
        if not cores:
            text = f"it gave no executor in {executor_seconds:.0f} s"
            tell = notes.warn if runs else notes.fail
            tell("cores", f"{text}: the agent that runs may have them all" if runs else text, NO_PLACE)
            notes.not_asked("executor")
        else:
            notes.ok("cores", f"an executor of {cores} came")
            _tell_executor(notes, executor)
    finally:
        executor.close()


def _tell_executor(notes: Notes, executor: RunnerExecutor) -> None:
    if executor.connected():
        notes.ok("executor", "its Python has what batches need, and reaches this host")
    else:
        notes.fail("executor", f"no process of it takes batches: {executor.reason}", "see what an executor needs in docs/backfill.md")
