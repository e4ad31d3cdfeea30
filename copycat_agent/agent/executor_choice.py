"""Decides where an agent's batches run, on this host or on the executors of a cluster, and refuses definitions that cannot run there.

Tasks on a cluster read what every executor can reach; a source of one host needs an agent on that host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from copycat_agent.errors import FatalError, Problem
from copycat_agent.sources import SOURCES
from copycat_agent.spark.cluster import ClusterExecutor
from copycat_agent.spark.cluster_host import ClusterHost, is_cluster, refusal
from copycat_agent.spark.cluster_runner_pool import ClusterRunnerPool
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.jobs import ChoosingExecutor, JobExecutor, on_this_host
from copycat_agent.spark.runners import RunnerExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from copycat_agent.definitions import LoadedFile
    from copycat_agent.executor import Executor, Hung
    from copycat_agent.options import Definition, SparkOptions

Elsewhere = Literal["", "on a cluster", "by a process that takes over"]
"""Where sources of definitions are read besides this host; "" for nowhere."""
_BY_ANOTHER = {
    "on a cluster": "run it by a second agent on this host, without --master and with a state directory of its own",
    "by a process that takes over": "run it by a second agent on this host, without --standby and agent_id",
}


def host_of(
    options: SparkOptions, run_dir: Path, master: str | None, workers_lock: Path, on_failure: Callable[[FatalError], None]
) -> SparkHost:
    """Returns the session's host, not yet started. `master` as PySpark takes it; None: as agent.yaml says. Raises FatalError."""
    if master and is_cluster(master):
        return ClusterHost(options, run_dir, master, None, on_failure=on_failure)
    if master:
        options = options.model_copy(update={"master": master})
    return SparkHost(options, run_dir, on_failure=on_failure, workers_lock=workers_lock)


def executor_of(host: SparkHost, hung: Hung, *, until_idle: bool) -> Executor:
    """Returns the executor that sends batches to the tasks of a started host. Raises FatalError."""
    if isinstance(host, ClusterHost):
        pool = ClusterRunnerPool(host)
        return ChoosingExecutor(RunnerExecutor(pool), ClusterExecutor(host), pool.leave_cores)
    return JobExecutor(host) if until_idle else on_this_host(host, hung)


def refused(definition: Definition, elsewhere: Elsewhere) -> FatalError | None:
    """Returns why a definition cannot run where its source is read `elsewhere`, None when it can."""
    kind = SOURCES[definition.source.type]
    why = kind.only_here or kind.of_host
    if not (elsewhere and why):
        return None
    return FatalError(f"source {definition.source.type} is not read {elsewhere}: {why}", _BY_ANOTHER[elsewhere])


def refused_on(master: str, definition: Definition, conf: Mapping[str, str]) -> FatalError | None:
    """Returns why a definition cannot run with `run --master`, None when it can. `conf` is `spark.conf` of agent.yaml."""
    if not is_cluster(master):
        return None
    return refused(definition, "on a cluster") or refusal(definition, conf, master)


def doubts(definition: Definition) -> Iterator[str]:
    """Yields warnings about a definition that is read elsewhere than on this host."""
    for section in ("source", "sink"):
        address = str(getattr(getattr(definition, section), "uri", ""))
        if address.startswith(("/", "file:")):
            yield f"{section}.uri is a path: every host that runs the connector has to find the same directory there"


def doubts_about(files: Iterable[LoadedFile]) -> Iterator[Problem]:
    """Yields the same warnings about the enabled definitions of `files`."""
    for file in files:
        if file.definition is not None and file.definition.enabled:
            yield from (Problem(str(file.path), 0, 0, "path_on_cluster", text) for text in doubts(file.definition))
