"""A staff has runners started as Spark jobs, lets in those that connect, and says what goes to them with a batch.

`LocalStaff` has those of this host. A thread per runner keeps a Spark job alive.
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
from copycat_agent.spark.link import Door

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.model import Batch
    from copycat_agent.runner import Run
    from copycat_agent.spark.current_session import Session
    from copycat_agent.spark.host import SparkHost
    from copycat_agent.spark.link import Link

_SESSION_SECONDS = 0.5
_STEADY_SECONDS = 1.0  # a runner that ended sooner cannot work here: the next one waits
_MOST_PAUSE_SECONDS = 5.0

_log = logs.get("spark")


class Roster(Protocol):
    """Who has the runners work, and is told of them: the executor. From any thread."""

    def ended(self, index: int, problem: str) -> None:
        """A runner's Spark job is over; `problem` is why, "" where it hung up by itself."""

    def connected(self) -> frozenset[int]:
        """The runners that are there now."""

    def retire(self, index: int) -> None:
        """Give this runner no further batch, and hang up once it has none."""


class Staff(Protocol):
    """See above. Methods are for any thread.

    `key` is what both ends of a connection prove to have, `reason` why there may be no runner as long as none has come.
    """

    key: bytes
    reason: str

    def start(self, roster: Roster) -> None:
        """Begin to start runners. Called once, and returns at once."""

    def accept(self) -> Link | None:
        """The next one who connects, still to prove the key. None when the staff is closed. For one thread."""

    def work(self, number: int, batch: Batch) -> Work:
        """What is sent for a batch. Raises CopycatError where it must not be."""

    def dismiss(self, index: int) -> None:
        """The runner was hung up on, and may not have noticed: end what is left of it, as far as that can be done from here."""

    def close(self) -> None:
        """Nobody is let in and no runner is started from now on."""

    def wait(self, seconds: float) -> None:
        """Until all runners have ended, at most so long."""


class RunnerJobs:
    """Threads of which each keeps one Spark job after the other alive, which is a runner as long as it lasts."""

    def __init__(self, host: SparkHost, run_job: Callable[[Session, int], str], roster: Roster) -> None:
        """`run_job(session, index)` returns when the runner has ended: why, "" when it hung up. It may raise anything."""
        self._host = host
        self._run_job = run_job
        self._roster = roster
        self._closed = threading.Event()
        self._threads: dict[int, threading.Thread] = {}
        self._dropped: set[int] = set()

    @property
    def kept(self) -> frozenset[int]:
        """Which runners are kept, or on their way out."""
        return frozenset(self._threads.copy())

    def keep(self, index: int) -> None:
        """Keep a runner with this number from now on; for one thread."""
        self._dropped.discard(index)
        thread = self._threads[index] = threading.Thread(target=self._keep, args=(index,), name=f"runner-{index}", daemon=True)
        thread.start()

    def drop(self, index: int) -> None:
        """Start this runner no more once it has ended."""
        self._dropped.add(index)

    def close(self) -> None:
        """Start no further one."""
        self._closed.set()

    def wait(self, seconds: float) -> None:
        """Until all have ended, at most so long."""
        deadline = time.monotonic() + seconds
        for thread in list(self._threads.values()):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _keep(self, index: int) -> None:
        pause, told = 0.0, ""
        while not (index in self._dropped or self._closed.wait(pause)):
            began = time.monotonic()
            problem = self._life(index)
            self._roster.ended(index, problem)
            steady = time.monotonic() - began > _STEADY_SECONDS
            pause = 0.0 if steady else min(max(0.2, 2 * pause), _MOST_PAUSE_SECONDS)
            if not self._closed.is_set() and index not in self._dropped and (steady or problem != told):
                _log.warning("runner ended, another is started", runner=index, reason=problem or "unknown")
            told = problem
        del self._threads[index]

    def _life(self, index: int) -> str:
        """One runner's life. Returns why it ended, "" when it hung up by itself."""
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
        """The host's session, once it is up; None when this is closed first. Raises FatalError."""
        while not self._closed.is_set():
            with contextlib.suppress(RetriableError):
                return self._host.session(_SESSION_SECONDS)
        return None


class LocalStaff:
    """The runners of a local session: as many as the host says, each behind a private unix socket, with the agent's own environment."""

    reason = "none has come up yet"

    def __init__(self, host: SparkHost, run: Run = run_batch) -> None:
        """`host` has been started, and may still be coming up."""
        self._host = host
        self._run = run
        self._door = Door(str(host.socket_dir / "runners"))
        self.key = self._door.key
        self._jobs: RunnerJobs | None = None

    def start(self, roster: Roster) -> None:
        self._jobs = RunnerJobs(self._host, self._run_job, roster)
        for index in range(self._host.runners):
            self._jobs.keep(index)

    def accept(self) -> Link | None:
        return self._door.accept()

    def work(self, number: int, batch: Batch) -> Work:
        return Work(number, batch, credentials(batch, os.environ))

    def dismiss(self, index: int) -> None:
        """Its process has been killed."""

    def close(self) -> None:
        self._door.close()
        if self._jobs is not None:
            self._jobs.close()

    def wait(self, seconds: float) -> None:
        if self._jobs is not None:
            self._jobs.wait(seconds)

    def _run_job(self, session: Session, index: int) -> str:
        from copycat_agent.spark.session import run_task  # noqa: PLC0415 - as above

        level = min(logging.getLogger("copycat_agent").getEffectiveLevel(), logging.WARNING)  # of what it says, we choose
        run_task(session.context, functools.partial(resident, self._door.address, self._run, level), index)
        return ""
