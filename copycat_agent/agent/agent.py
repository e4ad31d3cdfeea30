"""The agent: store, Spark, watcher and worker, wired together; `run` and `demo` use it, `api` and `metrics` ask it."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from copycat_agent import __version__, failpoints, logs
from copycat_agent.agent.following import Follower
from copycat_agent.agent.kept_files import KeptFiles, known_files
from copycat_agent.agent.pulse import Pulse
from copycat_agent.agent.reloading import Reloader
from copycat_agent.api.server import ApiServer
from copycat_agent.control import AgentView, Reload
from copycat_agent.errors import BusyError, FatalError, UnknownConnectorError
from copycat_agent.model import Account, Loss, LossReason, LossTotal, Sample, SourceOffset, SourcePartition, TaskId
from copycat_agent.offsets import OffsetStore
from copycat_agent.spark import workers_lock
from copycat_agent.spark.choosing import ChoosingExecutor
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.jobs import JobExecutor
from copycat_agent.systemd import ServiceManager
from copycat_agent.watch import Wake, Watcher
from copycat_agent.worker import STUCK_SECONDS, Status, Worker

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from copycat_agent.agent.files import DefinitionFiles, Wanted
    from copycat_agent.agent.settings import Settings
    from copycat_agent.offsets.lanes import KeptLanes
    from copycat_agent.options import AgentOptions, Definition
    from copycat_agent.sources import FileView
    from copycat_agent.transactions.opening import Adopt

RUN_DIRECTORY = "run"
"""Below the state directory: sockets, Spark's temporary files."""
WANTED_FILES = 65_536
"""File descriptors the agent asks for, as far as the hard limit allows."""
_NOBODY, _NOTHING = TaskId("", 0), Wake()

_log = logs.get("agent")


class Agent:
    """Everything between definitions and Kafka, in this process and those it starts: a `Control`. Use as a context manager."""

    def __init__(
        self,
        settings: Settings,
        *,
        until_idle: bool = False,
        tracked: bool = False,
        rebuild: bool = False,
        manager: ServiceManager | None = None,
    ) -> None:
        """Locks the state directory and begins to start Spark, which comes up behind the caller's back.

        `until_idle`: connectors end when everything that is there is read; bounded Spark jobs do the work, not resident ones.
        `tracked`: their accounts say where records are in Kafka. `rebuild`: a damaged store is begun anew for connectors whose positions
        are in Kafka, see `OffsetStore.open`. `manager` keeps open files for the next process of the service.
        Raises FatalError when another agent holds the state directory, the store is damaged, or there is no Java.
        """
        _raise_file_limit()
        self.wake = threading.Event()
        self._settings = settings
        self._started = time.time()
        self._stopping = False
        self._spark_failure: FatalError | None = None
        self._reloader: Reloader | None = None
        self._follower: Follower | None = None
        self._api: ApiServer | None = None
        self._log_level = logs.PassingLevel()
        with contextlib.ExitStack() as undo:
            self._store = undo.enter_context(OffsetStore.open(settings.state_dir, rebuild=rebuild))
            failpoints.hit("start")
            lock = settings.state_dir / workers_lock.NAME
            workers_lock.wait(lock)
            run_dir = settings.state_dir / RUN_DIRECTORY
            self._host = SparkHost(settings.agent.spark, run_dir, on_failure=self._give_up, workers_lock=lock)
            self._host.start()
            undo.callback(self._host.close)
            executor = (JobExecutor if until_idle else ChoosingExecutor)(self._host)
            undo.callback(executor.close)
            self._watcher = Watcher()
            undo.callback(self._watcher.close)
            self._kept = KeptFiles(manager or ServiceManager({}), known_files(self._store, rebuild=rebuild))
            self.worker = Worker(
                self._store, executor, self._watcher, until_idle=until_idle, accounts=until_idle, tracked=tracked, keeper=self._kept
            )
            answers = (self._store.targets, lambda: executor.settle(_NOBODY), lambda: self._watcher.unwatch(_NOTHING))
            self._pulse = Pulse((self.worker.tell_of_hangs, *answers))
            self._pulse.start()
            undo.callback(self._pulse.close)
            if settings.socket_path:
                self._api = ApiServer(self, settings.socket_path, None if until_idle else settings.agent.api, self._mounts)
                self._api.start()
                undo.callback(self._api.close)
            self._undo = undo.pop_all()
        _log.info("agent starts", version=__version__, state_dir=settings.state_dir)

    @property
    def given_up(self) -> FatalError | None:
        """Why this process cannot go on while a new one can: Spark does not come back, or the offset store failed."""
        return self._spark_failure or self._store.failure

    def apply(self, definitions: Iterable[Definition]) -> None:
        """Run exactly these definitions, which come from no files."""
        self.worker.apply(definitions)

    def follow(self, files: DefinitionFiles, first: Wanted, *, once: bool = False) -> Reload:
        """Run what the files define, from now on as they change; `once`: as they are now. `first` is what they were loaded as."""
        self._reloader = Reloader(files, self.worker, self._store, self._settings.agent)
        outcome = self._reloader.reload(first)
        if not once:
            self._follower = Follower(files, self._watcher, self._reloader.reload)
            self._follower.start()
        return outcome

    def ask_to_reload(self) -> None:
        """Reload soon. Returns at once."""
        if self._follower is not None:
            self._follower.ask()

    @property
    def reloading(self) -> bool:
        """Whether a reload that `ask_to_reload` asked for is not over yet, well or not."""
        return self._follower is not None and self._follower.reloading

    def heartbeat(self) -> float:
        """Seconds since what all connectors need has answered: store, executor, file events, the API's thread. For a watchdog."""
        api = self._api.heartbeat() if self._api else 0.0
        if api > STUCK_SECONDS / 2:
            _log.error("the API takes no connections: its thread hangs or has ended", hangs_s=round(api))
        return max(self._pulse.age, api)

    def close(self) -> None:
        """Stop reading, settle what is in flight, save it, and end everything that was started."""
        self._stopping = True
        self._kept.freeze()
        self.worker.stop()
        if self._follower is not None:
            self._follower.close()
        self._undo.close()
        self._log_level.close()
        _log.info("agent stopped")

    @property
    def options(self) -> AgentOptions:
        """See `Control.options`."""
        return self._reloader.options if self._reloader else self._settings.agent

    def view(self) -> AgentView:
        """See `Control.view`."""
        reloader = self._reloader
        return AgentView(
            version=__version__,
            pid=os.getpid(),
            uuid=self._store.agent_uuid,
            started=self._started,
            state_dir=str(self._settings.state_dir),
            directory=str(reloader.files.directory) if reloader else "",
            spark=self._host.state,
            java_pid=self._host.jvm_pid,
            offsets_unsaved=self.worker.offsets_unsaved or self._store.refusal,
            last_reload=reloader.last if reloader else None,
            stopping=self._stopping,
            reloads=Counter(reloader.results) if reloader else {},
            stuck=self.worker.stuck,
            hangs=self.heartbeat() > STUCK_SECONDS,
            agent_file=str((reloader and reloader.files.agent_file) or ""),
            overridden=tuple(reloader.files.overrides) if reloader else (),
            log_level=logs.level(),
            log_until=self._log_level.until,
        )

    def statuses(self) -> tuple[Status, ...]:
        """See `Control.statuses`."""
        return self.worker.statuses()

    def status(self, name: str) -> Status:
        """See `Control.status`."""
        return self.worker.status(name)

    def definition(self, name: str) -> Definition:
        """See `Control.definition`."""
        return self.worker.definition(name)

    def path(self, name: str) -> str:
        """See `Control.path`."""
        path = self._reloader.paths.get(name) if self._reloader else None
        if path is None:
            msg = f"no file defines a connector {name}"
            raise UnknownConnectorError(msg)
        return str(path)

    def files(self, name: str) -> tuple[FileView, ...]:
        """See `Control.files`. BusyError when the connector does not answer in time."""
        return self.worker.files(name)

    def tap(self, name: str, limit: int, seconds: float) -> Iterator[Sample]:
        """See `Control.tap`."""
        return self.worker.tap(name, limit, seconds)

    def losses(self, name: str | None, limit: int) -> tuple[Loss, ...]:
        """See `Control.losses`."""
        return self._store.losses(name, limit)

    def loss_totals(self) -> Mapping[tuple[str, LossReason], LossTotal]:
        """See `Control.loss_totals`."""
        return self._store.loss_totals()

    def reload(self) -> Reload:
        """See `Control.reload`."""
        if self._reloader is None:
            msg = "the agent has not read definitions from files"
            raise BusyError(msg)
        return self._reloader.reload()

    def set_log_level(self, level: str, seconds: float | None) -> AgentView:
        """See `Control.set_log_level`."""
        self._log_level.set(level, seconds)
        _log.info("log level is changed", always=True, log_level=level, seconds=seconds)
        return self.view()

    def pause(self, name: str) -> Status:
        """See `Control.pause`."""
        return self.worker.pause(name)

    def resume(self, name: str) -> Status:
        """See `Control.resume`."""
        return self.worker.resume(name)

    def stop(self, name: str) -> Status:
        """See `Control.stop`."""
        return self.worker.halt(name)

    def restart(self, name: str) -> Status:
        """See `Control.restart`."""
        return self.worker.restart(name)

    def offset_connectors(self) -> tuple[str, ...]:
        """See `Control.offset_connectors`."""
        return self._store.connectors()

    def offsets(self, name: str) -> Mapping[SourcePartition, SourceOffset]:
        """See `Control.offsets`."""
        return self._store.read(name)

    def accounts(self, name: str) -> Mapping[SourcePartition, Account]:
        """What runs to the end did with each file since the last `begin_accounts`."""
        return self._store.accounts(name)

    def begin_accounts(self, name: str) -> None:
        """The next run to the end begins its account with nothing."""
        self._store.begin_accounts(name)

    def set_offsets(self, name: str, offsets: Mapping[SourcePartition, SourceOffset], *, force: bool = False) -> None:
        """See `Control.set_offsets`."""
        assert all(partition.connector == name for partition in offsets), "offsets of another connector"
        with self.worker.at_rest(name, force=force):
            self._store.reset(offsets)

    def forget_offsets(self, name: str, partitions: Collection[SourcePartition] | None, *, force: bool = False) -> int:
        """See `Control.forget_offsets`."""
        if partitions is None:
            with self.worker.at_rest(*self._sharing_identity(name), force=force):
                return self._store.begin_anew(name)
        with self.worker.at_rest(name, force=force):
            chosen = self._store.read(name).keys() & set(partitions)
            self._store.forget(chosen)
            return len(chosen)

    def offset_lanes(self, name: str) -> KeptLanes:
        """See `Control.offset_lanes`."""
        return self._store.lanes(name)

    def adopt_offsets(self, name: str, which: Adopt, *, agent: str = "", force: bool = False) -> str:
        """See `Control.adopt_offsets`."""
        if agent:
            with self.worker.at_rest(name, force=force):
                self._store.take_over(name, agent)
            return ""
        with self.worker.at_rest(*(self._sharing_identity(name) if which == "local" else (name,)), force=force):
            return self._store.adopt(name, which)

    def _sharing_identity(self, name: str) -> tuple[str, ...]:
        """Who has to be at rest when this one leaves what Kafka says of it: everybody, where the agent leaves its identity with that."""
        if not self._store.lanes(name).copied:
            return (name,)
        lanes = {one.name for one in self.worker.definitions().values() if one.delivery.guarantee == "exactly_once"}
        return tuple({name, *lanes})

    def rename_offsets(self, old: str, new: str, *, force: bool = False) -> int:
        """See `Control.rename_offsets`."""
        return self.worker.rename_offsets(old, new, force=force)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mounts(self) -> dict[str, WSGIApplication]:
        from copycat_agent.metrics import PATHS, health_app  # noqa: PLC0415 - slow, and called behind everybody's back

        return dict.fromkeys(PATHS, health_app(self))

    def _give_up(self, error: FatalError) -> None:
        self._spark_failure = error
        self.wake.set()


def _raise_file_limit() -> None:
    """Watched files are held open: take what the hard limit gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
