"""The agent: store, Spark, watcher and worker, wired together; `run` and `demo` use it, `api` and `metrics` ask it."""

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
from copycat_agent.agent.carriers import Elsewhere, executor_of, host_of
from copycat_agent.agent.files import DefinitionFiles, Follower, WantedDefinitions
from copycat_agent.agent.kept_files import KeptFiles, known_files
from copycat_agent.agent.leading import Leading
from copycat_agent.agent.reloading import Reloader
from copycat_agent.api.server import ApiServer
from copycat_agent.control import AgentView, Control, Reload
from copycat_agent.errors import BusyError, FatalError, UnknownConnectorError
from copycat_agent.model import Account, SourcePartition, TaskId
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions
from copycat_agent.spark import workers_lock
from copycat_agent.systemd import ServiceManager
from copycat_agent.wake import Wake
from copycat_agent.watch import Watcher
from copycat_agent.worker import STUCK_SECONDS, Worker

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from copycat_agent.options import Definition
    from copycat_agent.worker.handle import Target

__all__ = ["Agent", "DefinitionFiles", "Elsewhere", "Leading", "Settings", "WantedDefinitions"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The agent's options as they hold for this call, where state is kept, and where it answers (None: nowhere)."""

    agent: AgentOptions
    state_dir: Path
    socket_path: Path | None = None


BEAT_SECONDS = 1.0
"""From one round to the next."""


class Heartbeat:
    """A thread that asks each of `questions` again and again. One that hangs stops it; one that raises has answered.

    A connector that hangs in its own files is none of its business: the service manager would restart the whole agent for one bad mount.
    """

    def __init__(self, questions: Sequence[Callable[[], object]]) -> None:
        self._questions = questions
        self._beat_at = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    @property
    def age(self) -> float:
        """Seconds since everything had answered. For any thread."""
        return time.monotonic() - self._beat_at

    def start(self) -> None:
        """Begin. Called once."""
        self._thread.start()

    def close(self) -> None:
        """No question is asked from now on; one that hangs is left behind."""
        self._closing.set()
        self._thread.join(BEAT_SECONDS)

    def _run(self) -> None:
        while not self._closing.wait(BEAT_SECONDS):
            for question in self._questions:
                with contextlib.suppress(Exception):  # an error is an answer, too
                    question()
            self._beat_at = time.monotonic()


RUN_DIRECTORY = "run"
"""Below the state directory: sockets, Spark's temporary files."""
WANTED_FILES = 65_536
"""File descriptors the agent asks for, as far as the hard limit allows."""
_NOBODY, _NOTHING = TaskId("", 0), Wake()

_log = logs.get("agent")


class Agent(Control):
    """Everything between definitions and Kafka, in this process and those it starts: a `Control`. Use as a context manager."""

    def __init__(  # noqa: PLR0913 - what a run is told
        self,
        settings: Settings,
        *,
        until_idle: bool = False,
        tracked: bool = False,
        rebuild: bool = False,
        manager: ServiceManager | None = None,
        queries: bool = False,
        master: str | None = None,
        leading: Leading | None = None,
    ) -> None:
        """Locks the state directory and begins to start Spark, which comes up behind the caller's back.

        `until_idle`: connectors end when everything that is there is read; bounded Spark jobs do the work, not resident ones.
        `tracked`: their accounts say where records are in Kafka. `rebuild`: a damaged store is begun anew for connectors whose positions
        are in Kafka, see `OffsetStore.open`. `manager` keeps open files for the next process of the service. `queries`: see
        `SparkHost.start`; one may come later, and is only slower then. `master`: where tasks run, see `carriers`. `leading`: state is in
        Kafka, and this process leads.
        Raises FatalError when another agent holds the state directory, the store is damaged, or there is no Java.
        """
        _raise_file_limit()
        self.wake = threading.Event()
        self._settings = settings
        self._started = time.time()
        self._stopping = False
        self._reloader: Reloader | None = None
        self._follower: Follower | None = None
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
            self._kept = KeptFiles(manager or ServiceManager({}), known_files(self._store, rebuild=rebuild))
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
        """Why only a new process can go on, None while this one can: Spark does not come back, or the offset store failed."""
        return self._host.failure or self._store.failure

    def apply(self, definitions: Iterable[Definition]) -> None:
        """Run exactly these definitions, which come from no files."""
        self.worker.apply(definitions)

    def follow(self, files: DefinitionFiles, first: WantedDefinitions, *, once: bool = False) -> Reload:
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
        return max(self._heartbeat.age, api)

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
        """Returns the agent's options as they hold."""
        return self._reloader.options if self._reloader else self._settings.agent

    def view(self) -> AgentView:
        """Returns the agent as it is now."""
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
        """Returns the file that holds the definition; UnknownConnectorError when no file does."""
        path = self._reloader.paths.get(name) if self._reloader else None
        if path is None:
            raise UnknownConnectorError(f"no file defines a connector {name}")
        return str(path)

    def reload(self) -> Reload:
        """Read the definitions and make them run; BusyError when the agent follows no files."""
        if self._reloader is None:
            raise BusyError("the agent has not read definitions from files")
        return self._reloader.reload()

    def change_definition(self, name: str, before: bytes | None, content: bytes | None, target: Target | None = None) -> None:
        """Write, change or remove the file that defines a connector; BusyError when the agent follows no files, or stops."""
        if self._reloader is None or self._follower is None or self._stopping:
            raise BusyError("the agent stops, or has not read definitions from files")
        self._reloader.change(name, before, content, target)

    def set_log_level(self, level: str, seconds: float | None) -> AgentView:
        """Change the level of the log, for a while or until the agent ends."""
        self._log_level.set(level, seconds)
        _log.info("log level is changed", always=True, log_level=level, seconds=seconds)
        return self.view()

    def accounts(self, name: str) -> Mapping[SourcePartition, Account]:
        """Returns what became of each file, in runs to the end, since the last `begin_accounts`."""
        return self._store.accounts(name)

    def begin_accounts(self, name: str) -> None:
        """The next run to the end begins its account with nothing."""
        self._store.begin_accounts(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mounts(self) -> dict[str, WSGIApplication]:
        from copycat_agent.metrics import PATHS, health_app  # noqa: PLC0415 - slow, and called behind everybody's back

        return dict.fromkeys(PATHS, health_app(self))

    def _hung(self, names: Collection[str]) -> set[str]:
        return self.worker.hung(names)  # which is made after the executor that asks


def _raise_file_limit() -> None:
    """Watched files are held open: take what the hard limit gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
