"""Runs one backfill: store, executor and worker for one connector, until nothing is left to read.

A finished run leaves nothing in the offsets topic: its keys get tombstones, and compaction drops them. Nothing of it is in flight then,
and its store is removed as well, so that its heads are not read again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, Self, cast

from copycat_agent import logs
from copycat_agent.agent.reloading import ConnectorRenames, find_renames
from copycat_agent.backfill.summary import RunPart, Summary, summarise
from copycat_agent.definitions import load_directory
from copycat_agent.delivery.base import PendingResults
from copycat_agent.delivery.exactly_once.opening_attempts import KafkaAccess, MakeKafkaAccess, kafka_access
from copycat_agent.encoding.window import WindowedDefinition, WindowOptions
from copycat_agent.errors import BusyError, CopycatError, FatalError
from copycat_agent.executor import Executor, resolved
from copycat_agent.model import OFFSETS_TOPIC, Batch, Head, LaneId, OffsetsPartition, Position, SplitResult, TaskId
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.lanes import SavedLanes
from copycat_agent.options import AgentOptions, Definition, SparkOptions
from copycat_agent.sources import FileView, Source
from copycat_agent.spark.cluster import ClusterExecutor
from copycat_agent.spark.cluster_host import ClusterHost, is_cluster
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.jobs import JobExecutor
from copycat_agent.transactions.entries import head_entry, id_entry, name_entry, partition_of, position_entries, transactional_id
from copycat_agent.transactions.protocol import Entry, Procedure, Step, Steps, perform
from copycat_agent.watch import Watcher
from copycat_agent.worker import State, Status, Worker

MOST = 5000
"""Most tombstones in one transaction: about 1 MiB."""
_log = logs.get("backfill")


def clear_lanes(definition: Definition, store: OffsetStore, make_access: MakeKafkaAccess = kafka_access) -> None:
    """Deletes the lanes of a run with its own store from Kafka. Raises nothing: after a failure some KB stay.

    If the run is resumed even so, its store counts.
    """
    try:
        kept = store.lanes(definition.name)
        if kept.place is not None:
            store.leave_lanes(definition.name)
            access = make_access(definition, lambda: False)
            try:
                home = _home(definition, store, kept, access)
                for place, entries in ((kept.place, _tombstones(definition, store, kept)), (home, _of_name(definition, store))):
                    _tell(transactional_id(_lane(store, kept, 0), 0), place, entries, access)
            finally:
                access.close()
    except CopycatError as error:
        _log.warning("positions of this run stay in the offsets topic, which costs some KB", connector=definition.name, why=str(error))


def _lane(store: OffsetStore, kept: SavedLanes, number: int) -> LaneId:
    return LaneId(store.agent_uuid, kept.id, number)


def _home(definition: Definition, store: OffsetStore, kept: SavedLanes, access: KafkaAccess) -> OffsetsPartition:
    """Returns the partition that holds the id of the run's connector."""
    count = store.partitions(kept.cluster, access.ensure_topic(OFFSETS_TOPIC))
    return OffsetsPartition(OFFSETS_TOPIC, partition_of(store.agent_uuid, definition.name, count))


def _tombstones(definition: Definition, store: OffsetStore, kept: SavedLanes) -> list[Entry]:
    """Returns a tombstone for every key that the run may have. Heads come last, so that a failure leaves complete lanes."""
    name, agent = definition.name, store.agent_uuid
    untold = store.unpublished(name, MOST)  # offsets deleted here, but not in Kafka yet
    positions = position_entries(agent, kept.id, [Position(one, 0, 0, None) for one in {**store.saved(name), **untold}])
    heads = [head_entry(_lane(store, kept, number), head)._replace(value=None) for number, head in kept.heads.items()]
    return [*positions, name_entry(agent, kept.id, None), *heads]


def _of_name(definition: Definition, store: OffsetStore) -> list[Entry]:
    """Returns the tombstones of keys under the connector's name: its id, and the lane that requested it."""
    asked_by = LaneId(store.agent_uuid, definition.name, 0)
    return [id_entry(store.agent_uuid, definition.name, None), head_entry(asked_by, Head())._replace(value=None)]


def _tell(transactional_id: str, place: OffsetsPartition, entries: Sequence[Entry], access: KafkaAccess) -> None:
    for begin in range(0, len(entries), MOST):
        perform(_transaction(transactional_id, place, entries[begin : begin + MOST]), cast("Steps", access))


def _transaction(transactional_id: str, place: OffsetsPartition, entries: Sequence[Entry]) -> Procedure[None]:
    handle = yield Step("prepare", (transactional_id,))
    try:
        yield Step("ready", (handle,))
        yield Step("begin", (handle,))
        yield Step("send", (handle, place, entries))
        yield Step("flush", (handle,))
        yield Step("commit", (handle,))
    finally:
        yield Step("close", (handle,))


MOST_LOCAL_TASKS = 16
"""Most tasks on this host: each is a Python process of about 100 MB beside the JVM."""
_ANY_CORES = ("local", "local[*]")


class Host(Protocol):
    """A resource that has to be closed after the executor."""

    def close(self) -> None:
        """Ends everything that was started."""


class ExecutorFactory(NamedTuple):
    """The number of batches at a time, and the function that starts their executor: called with the first batch, raises FatalError."""

    tasks: int
    start: Callable[[], tuple[Executor, Host]]


Choose = Callable[["SparkOptions", Path, "Callable[[FatalError], None]"], ExecutorFactory]
"""`choose(spark options, private directory, on_failure)` returns an `ExecutorFactory`. Raises FatalError."""


def on_this_host(options: SparkOptions, run_dir: Path, on_failure: Callable[[FatalError], None]) -> ExecutorFactory:
    """Returns a Spark session of its own, beside an agent's: with all cores, unless agent.yaml says how many. See `Choose`."""
    runners = min(MOST_LOCAL_TASKS, len(os.sched_getaffinity(0))) if options.master in _ANY_CORES else None
    host = SparkHost(options, run_dir, runners, on_failure=on_failure)

    def start() -> tuple[Executor, Host]:
        host.start()
        return JobExecutor(host), host

    return ExecutorFactory(host.runners, start)


def on_master(master: str, tasks: int) -> Choose:
    """Returns the choice of a master as PySpark takes it: a cluster, with `tasks` of its cores, or `local[N]` for this host."""
    if not is_cluster(master):
        return lambda options, run_dir, on_failure: on_this_host(options.model_copy(update={"master": master}), run_dir, on_failure)

    def choose(options: SparkOptions, run_dir: Path, on_failure: Callable[[FatalError], None]) -> ExecutorFactory:
        host = ClusterHost(options, run_dir, master, tasks, on_failure=on_failure)

        def start() -> tuple[Executor, Host]:
            host.start()
            return ClusterExecutor(host), host

        return ExecutorFactory(tasks, start)

    return choose


class _LateExecutor:
    """An `executor.Executor` that starts the real one with the first batch: a run that finds everything delivered needs no Spark."""

    def __init__(self, carrier: ExecutorFactory, on_failure: Callable[[FatalError], None]) -> None:
        self._carrier = carrier
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._started: tuple[Executor, Host] | None = None

    def submit(self, batch: Batch) -> PendingResults:
        with self._lock:
            if self._started is None:
                try:
                    self._started = self._carrier.start()
                except FatalError as error:
                    self._on_failure(error)
                    return resolved(tuple(SplitResult(split, split.offset, error=error) for split in batch.splits))
        return self._started[0].submit(batch)

    def settle(self, task: TaskId) -> None:
        if self._started is not None:
            self._started[0].settle(task)

    def close(self) -> None:
        if self._started is not None:
            executor, host = self._started
            executor.close()
            host.close()


MOST_TASKS = 64
"""The largest value of delivery.tasks_max."""


@dataclass(frozen=True, slots=True)
class BackfillJob:
    """The work of a run. `make_source` None: what the definition matches, else see `path_source.maker`. `rate`: bytes per second, 0: any.

    `home` is the directory of the store: the agent's state directory, or a run's own. `directory` holds the agent's definitions, which
    decide what `renamed_from` takes over; None: nothing.
    """

    definition: Definition
    home: Path
    make_source: Callable[..., Source] | None = None
    window: WindowOptions | None = None
    rate: int = 0
    directory: Path | None = None


class Backfill:
    """Runs a job. Use as a context manager, in which the store is locked. The work is done in threads; all methods return soon."""

    def __init__(self, job: BackfillJob, agent: AgentOptions, choose: Choose = on_this_host) -> None:
        """Locks the store and begins to start the executor. Raises FatalError when another process has the lock, or the start fails."""
        self.job = job
        self.failure: FatalError | None = None
        """Why Spark does not come back, after which nothing is sent any more; None while it may."""
        self._began = time.time()
        self._troubled = ""
        with contextlib.ExitStack() as undo:
            rebuild = job.definition.delivery.guarantee == "exactly_once"
            self.store = undo.enter_context(OffsetStore.open(job.home, rebuild=rebuild))
            carrier = choose(agent.spark, job.home / "run", self._give_up)
            executor = _LateExecutor(carrier, self._give_up)
            undo.callback(executor.close)
            watcher = Watcher()
            undo.callback(watcher.close)
            self.definition = effective(job, carrier.tasks)
            self._renames = _renames(job, agent, self.store)
            self.worker = Worker(self.store, executor, watcher, until_idle=True, accounts=True, tracked=True, make_source=job.make_source)
            self._undo = undo.pop_all()

    def __enter__(self) -> Self:
        self.worker.apply([self.definition], self._renames.taken, self._renames.earlier)
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        self._undo.close()

    def wait(self, seconds: float) -> bool:
        """Waits up to `seconds`. Returns True once the run has ended, successfully or not."""
        return self.worker.wait(seconds) or self.failure is not None

    @property
    def status(self) -> Status:
        """Returns the status of its connector."""
        return self.worker.statuses()[0]

    def trouble(self) -> str:
        """Returns why nothing is sent now, "" while records are."""
        status = self.status
        if status.state in {State.RETRYING, State.BLOCKED}:
            self._troubled = status.reason
            return status.reason
        return ""

    def gave_up_waiting(self) -> bool:
        """Returns whether it failed because Kafka was unreachable for longer than errors.retry_timeout."""
        return self.status.state is State.FAILED and bool(self._troubled) and "retry_timeout" in self.status.reason

    def files(self) -> tuple[FileView, ...]:
        """Returns the progress in each file; empty when it does not answer now."""
        try:
            return self.worker.files(self.definition.name)
        except BusyError:
            return ()

    def stop(self, *, interrupted: bool) -> Summary:
        """Settles batches in flight, saves their offsets, and returns the account. After a finished run the next account begins empty."""
        self.worker.stop()
        problem = str(self.failure) if self.failure else ""
        part = RunPart(self.status, self._began, time.time(), interrupted, problem)
        is_given = self.job.make_source is not None
        summary = summarise(self.definition, self.store, part, untouched=True, given=is_given)
        if summary["state"] == "finished" and not is_given:
            self.store.begin_accounts(self.definition.name)
        elif summary["state"] == "finished":
            clear_lanes(self.definition, self.store)
        return summary

    def _give_up(self, error: FatalError) -> None:
        self.failure = error


def _renames(job: BackfillJob, agent: AgentOptions, store: OffsetStore) -> ConnectorRenames:
    """Returns whose offsets the definition takes over, as if an agent began to run its directory. Raises FatalError if none may."""
    name, one = job.definition.name, job.definition
    if job.directory is None or not one.renamed_from:
        return ConnectorRenames()
    loaded = load_directory(job.directory, agent)
    there = {file.name for file in loaded.files if file.name}
    found = find_renames({**loaded.definitions, name: one}, {*store.connectors(), *store.connectors_with_lanes()}, there)
    if name in found.refused:
        raise FatalError(f"{name}: {found.refused[name]}")
    return found


def effective(job: BackfillJob, tasks: int) -> Definition:
    """Returns the definition for one run: with all cores, no pauses, and the run's own limits."""
    definition = job.definition
    delivery = definition.delivery.model_copy(
        update={"tasks_max": min(MOST_TASKS, max(definition.delivery.tasks_max, tasks)), "linger": 0.0}
    )
    limits = definition.limits
    if job.rate:
        limits = limits.model_copy(update={"bytes_per_second": min(job.rate, limits.bytes_per_second or job.rate)})
    update = {"delivery": delivery, "limits": limits, "enabled": True}
    if job.window is None:
        return definition.model_copy(update=update)
    values = {name: getattr(definition, name) for name in type(definition).model_fields}
    return WindowedDefinition.model_construct(**{**values, **update, "window": job.window})
