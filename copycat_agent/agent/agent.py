"""The agent: store, Spark, watcher and worker, wired together; `run` and `demo` use it."""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from copycat_agent import __version__, logs
from copycat_agent.errors import FatalError
from copycat_agent.offsets import OffsetStore
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.jobs import JobExecutor
from copycat_agent.spark.runners import RunnerExecutor
from copycat_agent.watch import Watcher
from copycat_agent.worker import Status, Worker

if TYPE_CHECKING:
    from copycat_agent.agent.settings import Settings
    from copycat_agent.options import Definition

RUN_DIRECTORY = "run"
"""Below the state directory: sockets, Spark's temporary files."""
WANTED_FILES = 65_536
"""File descriptors the agent asks for, as far as the hard limit allows."""

_log = logs.get("agent")


class Agent:
    """Everything between definitions and Kafka, in this process and those it starts. Use as a context manager."""

    def __init__(self, settings: Settings, *, until_idle: bool = False) -> None:
        """Locks the state directory and begins to start Spark, which comes up behind the caller's back.

        `until_idle`: connectors end when everything that is there is read; bounded Spark jobs do the work, not resident ones.
        Raises FatalError when another agent holds the state directory, the store is damaged, or there is no Java.
        """
        _raise_file_limit()
        self.given_up: FatalError | None = None
        self.wake = threading.Event()
        with contextlib.ExitStack() as undo:
            store = undo.enter_context(OffsetStore.open(settings.state_dir))
            host = SparkHost(settings.agent.spark, settings.state_dir / RUN_DIRECTORY, on_failure=self._give_up)
            host.start()
            undo.callback(host.close)
            executor = (JobExecutor if until_idle else RunnerExecutor)(host)
            undo.callback(executor.close)
            watcher = Watcher()
            undo.callback(watcher.close)
            self.worker = Worker(store, executor, watcher, until_idle=until_idle)
            self._undo = undo.pop_all()
        _log.info("agent starts", version=__version__, state_dir=settings.state_dir)

    def apply(self, definitions: Iterable[Definition]) -> None:
        """Run exactly these definitions."""
        self.worker.apply(definitions)

    def statuses(self) -> tuple[Status, ...]:
        """Every connector as it is now."""
        return self.worker.statuses()

    def close(self) -> None:
        """Stop reading, settle what is in flight, save it, and end everything that was started."""
        self.worker.stop()
        self._undo.close()
        _log.info("agent stopped")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _give_up(self, error: FatalError) -> None:
        self.given_up = error
        self.wake.set()


def _raise_file_limit() -> None:
    """Watched files are held open: take what the hard limit gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
