"""A pool starts runners as Spark jobs, accepts their connections, and decides what is sent with a batch.

`LocalRunnerPool` is for runners on this host. A thread per runner keeps a Spark job alive.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Protocol

from copycat_agent import logs
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.executor import run_batch
from copycat_agent.runner import Work, credentials, resident
from copycat_agent.spark.runner_connections import RunnerConnection, RunnerListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.model import Batch
    from copycat_agent.runner import Run
    from copycat_agent.spark.current_session import Session
    from copycat_agent.spark.host import SparkHost

_SESSION_SECONDS = 0.5
STEADY_SECONDS = 1.0
"""A runner that was connected for less cannot work here: the next one waits."""
MOST_PAUSE_SECONDS = 5.0
"""Longest wait before a runner is started again."""

_log = logs.get("spark")


class RunnerEvents(Protocol):
    """The executor, as a pool calls it, from any thread."""

    def ended(self, index: int, problem: str) -> float:
        """Called when a runner's Spark job is over; `problem` is why, "" where it disconnected by itself.

        Returns the seconds since it connected, 0.0 if it never did.
        """

    def connected(self) -> frozenset[int]:
        """Returns the runners that are connected now."""

    def retire(self, index: int) -> None:
        """Gives this runner no further batch, and disconnects it once it has none."""


class RunnerPool(Protocol):
    """Starts and accepts runners. Methods may be called from any thread, unless they say otherwise.

    `key` is what both ends of a connection prove to have, `reason` why there may be no runner while none has connected.
    """

    key: bytes
    reason: str

    def start(self, events: RunnerEvents) -> None:
        """Begins to start runners. Called once, and returns at once."""

    def accept(self) -> RunnerConnection | None:
        """Returns the next connection, which has yet to prove the key; None once the pool is closed. Called from one thread."""

    def work(self, number: int, batch: Batch) -> Work:
        """Returns what is sent for a batch. Raises CopycatError if it must not be sent."""

    def dismiss(self, index: int) -> None:
        """Ends what is left of a runner that was disconnected and may not have noticed, as far as that is possible from here."""

    def close(self) -> None:
        """Accepts and starts no runner from now on."""

    def wait(self, seconds: float) -> None:
        """Returns once all runners have ended, or after `seconds`."""


class RunnerJobs:
    """Threads that each keep one runner alive, as one Spark job after the other."""

    def __init__(self, host: SparkHost, run_job: Callable[[Session, int], str], events: RunnerEvents) -> None:
        """`run_job(session, index)` returns why the runner has ended, "" when it disconnected by itself. It may raise anything."""
        self._host = host
        self._run_job = run_job
        self._events = events
        self._closed = threading.Event()
        self._threads: dict[int, threading.Thread] = {}
        self._dropped: set[int] = set()

    @property
    def kept(self) -> frozenset[int]:
        """Returns the runners that are kept, or about to end."""
        return frozenset(self._threads.copy())

    def keep(self, index: int) -> None:
        """Keeps a runner with this number from now on. Called from one thread. Raises RuntimeError, and keeps none, without a thread."""
        self._dropped.discard(index)
        thread = self._threads[index] = threading.Thread(target=self._keep, args=(index,), name=f"runner-{index}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            del self._threads[index]
            raise

    def drop(self, index: int) -> None:
        """Does not start this runner again once it has ended."""
        self._dropped.add(index)

    def close(self) -> None:
        """Starts no further runner."""
        self._closed.set()

    def wait(self, seconds: float) -> None:
        """Returns once all threads have ended, or after `seconds`."""
        deadline = time.monotonic() + seconds
        for thread in list(self._threads.values()):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _keep(self, index: int) -> None:
        pause = 0.0
        told: str | None = None
        while not (index in self._dropped or self._closed.wait(pause)):
            problem = self._life(index)
            steady = self._events.ended(index, problem) > STEADY_SECONDS
            pause = 0.0 if steady else min(max(0.2, 2 * pause), MOST_PAUSE_SECONDS)
            if not self._closed.is_set() and index not in self._dropped and (steady or problem != told):
                _log.warning("runner ended, another is started", runner=index, reason=problem or "unknown")
            told = problem
        del self._threads[index]

    def _life(self, index: int) -> str:
        """Runs a runner once. Returns why it ended, "" when it disconnected by itself."""
        from copycat_agent.spark.session import reason_of  # noqa: PLC0415 - imports pyspark, and is not needed before

        try:
            session = self._session()
            return "" if session is None else self._run_job(session, index)
        except FatalError as error:
            self._closed.wait()  # there will be no session any more: the agent is about to exit
            return error.message
        except Exception as error:  # noqa: BLE001 - whatever py4j raises: the job is over
            return reason_of(error)

    def _session(self) -> Session | None:
        """Returns the host's session once it is up; None when this is closed first. Raises FatalError."""
        while not self._closed.is_set():
            with contextlib.suppress(RetriableError):
                return self._host.session(_SESSION_SECONDS)
        return None


class LocalRunnerPool:
    """The runners of a local session: as many as the host says, over a private unix socket, with the agent's own environment."""

    reason = "none has come up yet"

    def __init__(self, host: SparkHost, run: Run = run_batch) -> None:
        """`host` has been started, and may still be coming up."""
        self._host = host
        self._run = run
        self._listener = RunnerListener(str(host.socket_dir / "runners"))
        self.key = self._listener.key
        self._jobs: RunnerJobs | None = None

    def start(self, events: RunnerEvents) -> None:
        self._jobs = RunnerJobs(self._host, self._run_job, events)
        for index in range(self._host.runners):
            self._jobs.keep(index)

    def accept(self) -> RunnerConnection | None:
        return self._listener.accept()

    def work(self, number: int, batch: Batch) -> Work:
        return Work(number, batch, credentials(batch, os.environ))

    def dismiss(self, index: int) -> None:
        """Does nothing: the runner's process has been killed."""

    def close(self) -> None:
        self._listener.close()
        if self._jobs is not None:
            self._jobs.close()

    def wait(self, seconds: float) -> None:
        if self._jobs is not None:
            self._jobs.wait(seconds)

    def _run_job(self, session: Session, index: int) -> str:
        from copycat_agent.spark.session import run_task  # noqa: PLC0415 - as above

        level = min(logging.getLogger("copycat_agent").getEffectiveLevel(), logging.WARNING)  # the driver filters what runners log
        run_task(session.context, functools.partial(resident, self._listener.address, self._run, level), index)
        return ""
