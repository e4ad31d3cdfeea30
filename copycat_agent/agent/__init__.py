"""The agent: wires store, Spark, watcher and worker together. `run` and `demo` use it; `api` and `metrics` query it."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from copycat_agent import __version__, failpoints, logs
from copycat_agent.agent.definition_files import DefinitionFiles, DefinitionWatcher, WantedDefinitions
from copycat_agent.agent.descriptor_store import SystemdDescriptorStore, known_files
from copycat_agent.agent.executor_choice import Elsewhere, executor_of, host_of
from copycat_agent.agent.leader_election import LeaderElection, StoppedError
from copycat_agent.agent.reloading import Reloader
from copycat_agent.api.server import ApiServer
from copycat_agent.control import AgentView, Control, ReloadResult
from copycat_agent.errors import BusyError, FatalError, UnknownConnectorError
from copycat_agent.model import Account, LossReason, LossTotal, SourcePartition, TaskId
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.spark import workers_lock
from copycat_agent.systemd import ServiceManager
from copycat_agent.wake import Wake
from copycat_agent.watch import Watcher
from copycat_agent.worker import STUCK_SECONDS, Worker

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from copycat_agent.worker.handle import Target

__all__ = ["Agent", "AgentSettings", "DefinitionFiles", "Elsewhere", "LeaderElection", "StoppedError", "WantedDefinitions"]


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent's effective options, the state directory, and the path of the API's socket (None: no API)."""

    agent: AgentOptions
    state_dir: Path
    socket_path: Path | None = None


BEAT_SECONDS = 1.0
"""Time between two rounds of questions."""


class Heartbeat:
    """A thread that calls each of `questions` again and again. One that hangs stops it; one that raises has answered.

    Connectors that hang in their own files do not count: the service manager would restart the whole agent for one bad mount.
    """

    def __init__(self, questions: Sequence[Callable[[], object]]) -> None:
        self._questions = questions
        self._beat_at = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    @property
    def age(self) -> float:
        """Returns the seconds since all questions were answered. Thread-safe."""
        return time.monotonic() - self._beat_at

    def start(self) -> None:
        """Starts the thread. Called once."""
        self._thread.start()

    def close(self) -> None:
        """Calls no question from now on. One that hangs is not waited for longer than `BEAT_SECONDS`."""
        self._closing.set()
        self._thread.join(BEAT_SECONDS)

    def _run(self) -> None:
        while not self._closing.wait(BEAT_SECONDS):
            for question in self._questions:
                with contextlib.suppress(Exception):  # an error is an answer, too
                    question()
            self._beat_at = time.monotonic()


RUN_DIRECTORY = "run"
"""Directory below the state directory, for sockets and Spark's temporary files."""
WANTED_FILES = 65_536
"""Limit of file descriptors that the agent sets for itself, as far as the hard limit allows."""
_NOBODY, _NOTHING = TaskId("", 0), Wake()

_log = logs.get("agent")


class Agent(Control):
    """Everything between definitions and Kafka, in this process and those it starts: a `Control`. Use as a context manager."""

    def __init__(  # noqa: PLR0913 - the options of a run
        self,
        settings: AgentSettings,
        *,
        until_idle: bool = False,
        tracked: bool = False,
        rebuild: bool = False,
        manager: ServiceManager | None = None,
        queries: bool = False,
        master: str | None = None,
        leading: LeaderElection | None = None,
    ) -> None:
        """Locks the state directory and begins to start Spark, which comes up in the background.

        `until_idle`: connectors end when all present data is read; bounded Spark jobs do the work, not resident ones.
        `tracked`: their accounts say where records are in Kafka. `rebuild`: a damaged store is replaced for connectors whose positions
        are in Kafka, see `OffsetStore.open`. `manager` keeps open files for the next process of the service. `queries`: see
        `SparkHost.start`; a query that comes later only takes longer. `master`: where tasks run, see `executor_choice`. `leading`: state is
        in Kafka, and this process leads.
        Raises FatalError when another agent holds the state directory, the store is damaged, or there is no Java.
        """
        _raise_file_limit()
        self.wake = threading.Event()
        self._settings = settings
        self._started = time.time()
        self._stopping = False
        self._reloader: Reloader | None = None
        self._follower: DefinitionWatcher | None = None
        self._api: ApiServer | None = None
        self._log_level = logs.PassingLevel()
        with contextlib.ExitStack() as undo:
            self._store = undo.enter_context(
                leading.store(settings.state_dir, rebuild=rebuild) if leading else OffsetStore.open(settings.state_dir, rebuild=rebuild)
            )
            failpoints.hit("start")
            lock = settings.state_dir / workers_lock.NAME
            workers_lock.wait(lock)
            run_dir = settings.state_dir / RUN_DIRECTORY
            self._host = host_of(settings.agent.spark, run_dir, master, lock, lambda _: self.wake.set())
            self._host.start(queries=queries)
            undo.callback(self._host.close)
            if leading is not None:
                undo.callback(leading.leave)  # before the JVM ends, which may take a minute
            executor = executor_of(self._host, self._hung, until_idle=until_idle)
            undo.callback(executor.close)
            self._watcher = Watcher()
            undo.callback(self._watcher.close)
            self._kept = SystemdDescriptorStore(manager or ServiceManager({}), known_files(self._store, rebuild=rebuild))
            self.worker = Worker(
                self._store, executor, self._watcher, until_idle=until_idle, accounts=until_idle, tracked=tracked, keeper=self._kept
            )
            leads = () if leading is None else (lambda: leading.check(self._store),)
            answers = (*leads, self._store.targets, lambda: executor.settle(_NOBODY), lambda: self._watcher.unwatch(_NOTHING))
            self._heartbeat = Heartbeat((self.worker.tell_of_hangs, *answers))
            self._heartbeat.start()
            undo.callback(self._heartbeat.close)
            if settings.socket_path:
                self._api = ApiServer(self, settings.socket_path, None if until_idle else settings.agent.api, self._mounts)
                self._api.start()
                undo.callback(self._api.close)
            self._undo = undo.pop_all()
        _log.info("agent starts", version=__version__, state_dir=settings.state_dir)

    @property
    def given_up(self) -> FatalError | None:
        """Returns why only a new process can go on: Spark does not come back, or the offset store failed. None while this one can."""
        return self._host.failure or self._store.failure

    def apply(self, definitions: Iterable[Definition]) -> None:
        """Runs exactly these definitions, which come from no files."""
        self.worker.apply(definitions)

    def follow(self, files: DefinitionFiles, first: WantedDefinitions, *, once: bool = False) -> ReloadResult:
        """Runs what the files define, now (`first`, as already loaded) and as they change; `once`: without following changes."""
        self._reloader = Reloader(files, self.worker, self._store, self._settings.agent)
        outcome = self._reloader.reload(first)
        if not once:
            self._follower = DefinitionWatcher(files, self._watcher, self._reloader.reload)
            self._follower.start()
        return outcome

    def ask_to_reload(self) -> None:
        """Requests a reload. Returns at once."""
        if self._follower is not None:
            self._follower.ask()

    @property
    def reloading(self) -> bool:
        """Returns whether a reload that `ask_to_reload` requested has not ended yet, successfully or not."""
        return self._follower is not None and self._follower.reloading

    def heartbeat(self) -> float:
        """Returns the seconds since store, executor, file events and the API's thread last answered. For a watchdog."""
        api = self._api.heartbeat() if self._api else 0.0
        if api > STUCK_SECONDS / 2:
            _log.error("the API takes no connections: its thread hangs or has ended", hangs_s=round(api))
        return max(self._heartbeat.age, api)

    def close(self) -> None:
        """Stops reading, settles batches in flight, saves their offsets, and ends everything that was started."""
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
        """Returns the agent's effective options."""
        return self._reloader.options if self._reloader else self._settings.agent

    def view(self) -> AgentView:
        """Returns the agent's present state."""
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
            master=self._host.master,
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
            log_changed=self._log_level.changed,
            page=self._api.page if self._api else "",
        )

    def path(self, name: str) -> str:
        """Returns the file that holds the definition. Raises UnknownConnectorError when no file does."""
        path = self._reloader.paths.get(name) if self._reloader else None
        if path is None:
            raise UnknownConnectorError(f"no file defines a connector {name}")
        return str(path)

    def reload(self) -> ReloadResult:
        """Loads the definitions and runs them. Raises BusyError when the agent follows no files."""
        if self._reloader is None:
            raise BusyError("the agent has not read definitions from files")
        return self._reloader.reload()

    def change_definition(self, name: str, before: bytes | None, content: bytes | None, target: Target | None = None) -> None:
        """Writes, changes or removes the file that defines a connector. Raises BusyError when the agent follows no files, or stops."""
        if self._reloader is None or self._follower is None or self._stopping:
            raise BusyError("the agent stops, or has not read definitions from files")
        self._reloader.change(name, before, content, target)

    def set_log_level(self, level: str, seconds: float | None) -> AgentView:
        """Changes the level of the log, for `seconds`, or until the agent ends."""
        self._log_level.set(level, seconds)
        _log.info("log level is changed", always=True, log_level=level, seconds=seconds)
        return self.view()

    def accounts(self, name: str) -> Mapping[SourcePartition, Account]:
        """Returns what became of each file, in runs to the end, since the last `begin_accounts`."""
        return self._store.accounts(name)

    def account_losses(self, name: str) -> Mapping[LossReason, LossTotal]:
        """Returns what was given up in runs to the end, since the last `begin_accounts`."""
        return self._store.account_losses(name)

    def begin_accounts(self, name: str) -> None:
        """Clears the accounts of a connector. Called after a run to the end."""
        self._store.begin_accounts(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mounts(self) -> dict[str, WSGIApplication]:
        from copycat_agent.metrics import PATHS, health_app  # noqa: PLC0415 - slow, and called in the background

        return dict.fromkeys(PATHS, health_app(self))

    def _hung(self, names: Collection[str]) -> set[str]:
        return self.worker.hung(names)  # `worker` is made after the executor that calls this


def _raise_file_limit() -> None:
    """Raises the soft limit of file descriptors, up to `WANTED_FILES` and the hard limit: watched files are kept open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
