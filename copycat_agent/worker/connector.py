"""One connector at work: scan, plan, submit, commit, and again; back off when the world is unwell; stop when asked."""

from __future__ import annotations

import pickle
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.errors import BlockedError, CopycatError, FatalError, RetriableError
from copycat_agent.model import Batch, SplitResult, TaskId
from copycat_agent.sources import SOURCES, Changes
from copycat_agent.watch import Wake
from copycat_agent.worker.backoff import Backoff
from copycat_agent.worker.held import Held
from copycat_agent.worker.status import State, Status
from copycat_agent.worker.verdict import held_back, more_to_read, worst

if TYPE_CHECKING:
    from copycat_agent.executor import Executor, Results
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.watch import Watcher

SCAN_GAP_SECONDS = 0.05
"""Least time between two scans that events ask for; a scan that takes long keeps five times its own duration."""
PROBE_BYTES = 2**20
"""Size of the first batch after an error: if it fails as well, little is repeated."""
FAILED_SETTLE_SECONDS = 5.0
"""When one task's error ends the connector, how long the other tasks' batches may still be settled."""
IDLE_SECONDS = 1.0
"""Longest wait without a look at the clock."""


class Connector:
    """A definition and the thread that runs it. Public methods are thread-safe."""

    def __init__(
        self,
        definition: Definition,
        store: OffsetStore,
        executor: Executor,
        watcher: Watcher,
        *,
        until_idle: bool = False,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.definition = definition
        self._store = store
        self._executor = executor
        self._watcher = watcher
        self._until_idle = until_idle
        self._on_end = on_end
        self._pickled = pickle.dumps(definition)
        self._log = logs.get("connector").bind(connector=definition.name)
        self._status = Status(definition.name)
        self._wake = Wake()
        self._stop_at: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"connector-{definition.name}", daemon=True)
        self._ended = threading.Event()
        self._flying: dict[TaskId, Results] = {}
        self._uncommitted: list[tuple[tuple[SplitResult, ...], Changes]] = []
        self._backoff = Backoff(definition.errors)
        self._held = Held(definition.errors, self._log)
        self._next_scan = 0.0
        self._scan_allowed_at = 0.0
        self._plan_at = 0.0
        self._save_at = 0.0
        self._finalised = False

    @property
    def status(self) -> Status:
        """How it is now."""
        return self._status

    def start(self) -> None:
        """Begin. Called once."""
        self._thread.start()

    def stop(self, deadline: float) -> None:
        """Stop reading now; settle what is in flight until `deadline` (`time.monotonic()`). Returns at once."""
        self._stop_at = deadline
        self._wake.nudge()

    def join(self) -> None:
        """Wait for the end that `stop` asked for, or that came by itself."""
        self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether its thread has come to its end."""
        return self._ended.is_set()

    def _run(self) -> None:
        try:
            self._work()
        except CopycatError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - a bug in one connector must not take the others with it
            where = traceback.extract_tb(error.__traceback__)[-1]
            self._log.debug("unexpected error", error=error)
            self._fail(FatalError(f"unexpected {type(error).__name__} at {Path(where.filename).name}:{where.lineno}", "please report it"))
        finally:
            self._watcher.unwatch(self._wake)
            self._ended.set()
            self._on_end()

    def _work(self) -> None:
        definition = self.definition
        kind = SOURCES[definition.source.type]
        offsets = self._store.read(definition.name)
        self._source = kind.make(definition.name, definition.source, definition.delivery, offsets, self._log)
        try:
            while not self._finished():
                self._cycle()
                self._pause()
        finally:
            try:
                self._settle_what_flies()
            finally:
                self._leave()
                self._source.close()
        if self._status.state is not State.FAILED:
            self._become(State.STOPPED, "")

    def _cycle(self) -> None:
        """One round: look, take in results, hand out work."""
        grown, other = self._wake.take()
        if grown and not self._source.wake(grown):
            other = True
        if other or self._source.needs_scan:
            self._next_scan = min(self._next_scan, self._scan_allowed_at)
        if time.monotonic() >= self._next_scan:
            self._scan()
        self._harvest()
        now = time.monotonic()
        if not self._uncommitted and now >= self._plan_at and now >= self._backoff.retry_at:
            self._plan()
            if grown and self._plan_at <= now:  # nothing to do yet for files that grow: not to be woken for every line
                self._plan_at = now + self.definition.delivery.linger
        self._note(lag=self._source.lag())
        if not self._backoff.active and self._status.state is not State.STARTING:
            self._go_on()

    def _scan(self) -> None:
        begin = time.monotonic()
        changes = self._source.scan()
        self._uncommitted.append(((), changes))
        self._commit()
        self._watcher.watch(self._wake, self._source.directories)
        now = time.monotonic()
        self._scan_allowed_at = now + max(SCAN_GAP_SECONDS, 5 * (now - begin))
        self._next_scan = now + self._source.scan_seconds
        if self._status.state is State.STARTING:
            self._become(State.RUNNING, "")

    def _harvest(self) -> None:
        """Take in the results of batches that are done, and save what they settled."""
        for task in [task for task, results in self._flying.items() if results.done()]:
            results = self._flying.pop(task).result()
            self._uncommitted.append((results, self._source.settle(results)))
        self._commit()

    def _commit(self) -> None:
        """Save changes in the order they came. A store that cannot be written keeps them for the next round: nothing is planned."""
        while self._uncommitted and time.monotonic() >= self._save_at:
            results, changes = self._uncommitted[0]
            try:
                self._store.commit(changes.offsets, changes.forget, changes.losses)
            except RetriableError as error:
                self._retry(error)
                self._save_at = self._backoff.retry_at
                return
            self._uncommitted.pop(0)
            self._source.finish(results, changes)
            self._account(results)

    def _account(self, results: tuple[SplitResult, ...]) -> None:
        """Count what is settled, tell what is wrong, and decide when to go on."""
        if not results:
            return
        self._note(counts=sum((result.counts for result in results), self._status.counts))
        for one in (one for result in results for one in result.rejections):
            self._log.warning("bad record", path=one.path, start=one.start, end=one.end, stage=one.stage, why=one.reason)
        held = held_back(results)
        error = worst(results) if held is None else None
        if isinstance(error, RetriableError):
            self._retry(error)
        elif error is not None:
            raise error
        else:
            self._backoff.succeeded()
            self._note(acknowledged_at=time.time())
        if held is not None:
            self._note(retries=self._status.retries + 1)
            self._held.add(held)
        if more_to_read(results):
            self._plan_at = 0.0  # no pause

    def _plan(self) -> None:
        """Give every idle task its share of what is unread."""
        delivery = self.definition.delivery
        tasks = [TaskId(self.definition.name, number) for number in range(delivery.tasks_max)]
        if self._backoff.active:
            tasks = tasks[:1]
        idle = [task for task in tasks if task not in self._flying]
        for index, task in enumerate(idle):
            plan = self._source.plan(len(idle) - index)
            if not plan.splits:
                return
            most = PROBE_BYTES if self._backoff.active else delivery.max_batch_bytes
            results = self._executor.submit(Batch(task, self._pickled, plan.splits, most, plan.max_seconds))
            self._flying[task] = results
            results.add_done_callback(lambda _: self._wake.nudge())
            self._plan_at = time.monotonic() + delivery.linger

    def _pause(self) -> None:
        """Sleep until there is a reason not to."""
        now = time.monotonic()
        begin = max(self._plan_at, self._backoff.retry_at)
        if begin > now:
            self._wake.wait(min(begin, max(self._next_scan, now)) - now, deaf=True)
        else:
            self._wake.wait(min(self._next_scan - now, IDLE_SECONDS))

    def _finished(self) -> bool:
        """Whether to stop: asked to, failed, or, in a run to the end, everything is read."""
        if self._stop_at is not None:
            return True
        if not self._until_idle or self._flying or self._uncommitted or self._status.state is State.STARTING:
            return False
        if not self._source.drained():
            return False
        self._scan()
        if self._source.drained() and not self._finalised:
            self._finalised = True
            self._source.finalise()
        return self._source.drained() and not self._uncommitted

    def _settle_what_flies(self) -> None:
        """Let batches under way come to their end, until the deadline; what is not settled then is read again next time.

        Raises the first error that ends the connector, once all that could be saved is saved.
        """
        failure: CopycatError | None = None
        deadline = self._stop_at or time.monotonic() + FAILED_SETTLE_SECONDS
        for task in self._flying:
            self._executor.settle(task)
        while self._flying or self._uncommitted:
            self._save_at = 0.0
            try:
                self._harvest()
            except CopycatError as error:
                failure = failure or error
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if self._flying or self._uncommitted:
                self._wake.wait(min(left, 0.2), deaf=True)
        if any(changes.offsets for results, changes in self._uncommitted if results):
            self._log.error("offsets could not be saved; what they cover will be sent again", why=self._status.reason)
            self._note(unsaved=True)
        if self._flying:
            self._log.warning("stopped before everything in flight was acknowledged; it will be sent again")
        if failure is not None:
            raise failure

    def _leave(self) -> None:
        """Save what the next start needs to find every file again; what is lost with files that are gone is counted now."""
        changes = self._source.leave()
        self._note(lag=self._source.lag())
        try:
            self._store.commit(changes.offsets, changes.forget, changes.losses)
        except CopycatError as error:
            self._log.warning("the names of unread files could not be saved", why=error.message, hint=error.hint)

    def _retry(self, error: RetriableError) -> None:
        wait = self._backoff.failed(error)
        state = State.BLOCKED if isinstance(error, BlockedError) else State.RETRYING
        if (state, str(error)) != (self._status.state, self._status.reason):
            self._log.warning("connector backs off", why=error.message, hint=error.hint, retry_s=round(wait, 1))
            self._become(state, str(error))
        self._note(retries=self._status.retries + 1)

    def _go_on(self) -> None:
        """The connector works: RUNNING, or BLOCKED as long as the source holds single files back."""
        if not self._status.lag.blocked_files:
            self._held.release()
        state = State.BLOCKED if self._held.reason else State.RUNNING
        if (state, self._held.reason) != (self._status.state, self._status.reason):
            self._become(state, self._held.reason)

    def _fail(self, error: CopycatError) -> None:
        self._log.error("connector failed; the others go on", why=error.message, hint=error.hint)
        self._become(State.FAILED, str(error))

    def _become(self, state: State, reason: str) -> None:
        log = self._log.bind(why=reason) if reason else self._log
        log.info("connector state", state=state)
        since = self._status.since if state is self._status.state else time.time()
        self._note(state=state, reason=reason, since=since)

    def _note(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]
