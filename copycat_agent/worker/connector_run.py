"""One connector at work, from opening its source to closing it: scan, plan, submit, commit, and again."""

from __future__ import annotations

import math
import pickle
import time
from typing import TYPE_CHECKING, TypeVar

from copycat_agent import failpoints
from copycat_agent.delivery.base import Unsaved, is_empty
from copycat_agent.errors import CopycatError, FatalError, RetriableError, bug_words
from copycat_agent.executor import Examiner
from copycat_agent.model import Account, Batch, Counts, SourcePartition, TaskId
from copycat_agent.sources import SOURCES, KeepsFiles, KnowsUnchanged
from copycat_agent.transforms.sql import sql_at
from copycat_agent.worker.limits import Flight, Limits, accounts_of
from copycat_agent.worker.poll_loop import Wait
from copycat_agent.worker.retry_policy import RetryPolicy, more_to_read
from copycat_agent.worker.status import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from copycat_agent.delivery.base import Delivery, DeliveryView
    from copycat_agent.options import Definition
    from copycat_agent.worker.context import ConnectorContext, Tools
    from copycat_agent.worker.poll_loop import Steps

T = TypeVar("T")
QUERY_SECONDS = 1.0
"""Least time between two batches of a connector with a query that is up to date: each is a Spark job."""
SCAN_GAP_SECONDS = 0.05
"""Least time between two scans that events ask for; a scan that takes long keeps five times its own duration."""
PROBE_BYTES = 2**20
"""Size of the first batch after an error: if it fails as well, little is repeated."""
FAILED_SETTLE_SECONDS = 5.0
"""When one task's error ends the connector, how long the other tasks' batches may still be settled."""
BUSY_SECONDS = 1.0
"""Longest wait while there is something to do: a file that failed, an answer of Kafka, a query that is examined."""
PAUSED_SECONDS = 0.5
"""Least time between two looks at files that grow while nothing of them is to be read."""
PAUSED = "paused on request; go on with: copycat ctl resume {}"
"""Reason of a connector that is paused."""


class ConnectorRun:
    """Used once, by one thread at a time. The source is opened when this is made: what the store or the source raise comes as it is."""

    def __init__(
        self,
        definition: Definition,
        tools: Tools,
        context: ConnectorContext,
        delivery: Delivery,
        *,
        until_idle: bool = False,
        careful: bool = False,
    ) -> None:
        """`careful`: something has gone wrong before, so begin with a small batch. `delivery` is open; it is closed at the end."""
        self._definition = definition
        self._delivery = delivery
        self._store, self._executor, self._watcher, _, _, self._keeps_accounts, make_source, self._tracked, keeper = tools
        self._orders, self._connector_state, self._metrics, self._taps, self._log = context
        self._wake = self._orders.wake
        self._until_idle = until_idle
        self._pickled = pickle.dumps(definition)
        has_query = sql_at(definition.transforms) is not None
        pace_seconds = 0.0 if until_idle else delivery.pace_seconds
        self._linger = max(definition.delivery.linger, QUERY_SECONDS if has_query else 0.0, pace_seconds)
        executor = self._executor
        self._examined = executor.examine(self._pickled) if has_query and isinstance(executor, Examiner) else None
        if self._examined is not None:
            self._examined.add_done_callback(lambda _: self._wake.nudge())
        self._flying: dict[TaskId, Flight] = {}
        self._uncommitted: list[Unsaved] = []
        self._retry_policy = RetryPolicy(definition, self._connector_state, self._metrics, self._log, careful=careful)
        self._limits = Limits(definition.limits)
        self._next_scan = 0.0
        self._scan_allowed_at = 0.0
        self._plan_at = 0.0
        self._ripe_at = math.inf
        self._scanned = self._is_blind = False
        self._pausing = False
        self._has_work = True
        self._is_idle = False
        self._finalised = False
        self.has_results = False
        """Whether a batch has come back: of what it sent, all that cannot be saved is sent again by the next start."""
        self._metrics.begin()
        make = make_source or SOURCES[definition.source.type].make
        self._source = make(definition.name, definition.source, definition.delivery, self._store.read(definition.name), self._log)
        if keeper is not None and isinstance(self._source, KeepsFiles):
            self._source.keep_with(keeper)
        self._unchanged = self._source.unchanged if isinstance(self._source, KnowsUnchanged) else None

    @property
    def tasks(self) -> int:
        """Batches under way. For any thread."""
        return len(self._flying)

    @property
    def delivery(self) -> DeliveryView:
        """What a `Status` says of the delivery. For any thread."""
        return self._delivery.view()

    def run(self) -> Steps:
        """Until a stop is asked for, or everything is read in a run to the end. Raises what ends the connector."""
        try:
            while not self._finished():
                if self._finds_nothing():
                    yield Wait(min(self._next_scan, self._ripe_at), deaf=False)
                    continue
                self._cycle()
                yield Wait(0.0) if self._may_be_over() else self._next_wait()
        finally:
            try:
                yield from self._settle_what_flies()
            finally:
                try:
                    self._leave()
                finally:
                    try:
                        self._source.close()
                    finally:
                        self._delivery.close()

    def _finds_nothing(self) -> bool:
        """Whether this is the time to look, nothing else has woken the connector, and the look finds all as it was.

        Then a whole round would do nothing: of a thousand idle connectors it would take a tenth of a core.
        """
        unchanged, now = self._unchanged, time.monotonic()
        if unchanged is None or not self._is_idle or self._wake.has_news or not self._next_scan <= now < self._ripe_at:
            return False
        if self._delivery.has_work or not unchanged():
            return False
        self._next_scan = now + self._source.scan_seconds
        return True

    def _cycle(self) -> None:
        """One round: look, take in results, hand out work."""
        self._hear_of_the_query()
        grown, other = self._wake.take()
        if grown and not self._source.wake(grown):
            other = True
        if other or self._source.needs_scan:
            self._next_scan = min(self._next_scan, self._scan_allowed_at)
        if time.monotonic() >= self._next_scan:
            self._scan()
        self._orders.answer(self._source)
        self._harvest()
        self._ripe_at = self._source.ripen(at_once=self._until_idle)
        if self._orders.paused or self._pausing:
            self._obey_pause()
        if not self._pausing:
            self._hand_out(eager=not grown)
        if self._scanned and not (self._flying or self._uncommitted or self._retry_policy.backoff.active):
            self._delivery.quiet()
        lag = self._source.lag()
        self._metrics.look(lag)
        self._has_work = bool(lag.bytes or lag.blocked_files or lag.troubled_files)
        if self._scanned and not self._pausing:
            self._retry_policy.go_on(lag.blocked_files, self._delivery.trouble)

    def _hear_of_the_query(self) -> None:
        """One that cannot be run ends the connector also while there is nothing to read. Raises FatalError."""
        if self._examined is not None and self._examined.done():
            error, self._examined = self._examined.result(), None
            if error is not None:
                raise error

    def _hand_out(self, *, eager: bool) -> None:
        now = time.monotonic()
        if self._orders.at_once():
            self._retry_policy.end()
            self._plan_at = 0.0
        if self._uncommitted or now < self._plan_at or now < self._retry_policy.retry_at:
            return
        self._plan()
        if not eager and self._plan_at <= now:  # nothing to do yet for files that grow: not to be woken for every line
            self._plan_at = now + self._linger

    def _scan(self) -> None:
        begin = time.monotonic()
        try:
            changes = self._source.scan()
        except RetriableError as error:
            self._retry_policy.retry(error)
            self._is_blind, self._next_scan = True, math.inf  # until the source says that it knows more
            return
        if self._is_blind:
            self._is_blind = False
            self._retry_policy.backoff.succeeded()
        cost = time.monotonic() - begin  # without saving it: where that is slow, logs would be rotated unseen
        if is_empty(changes):  # nothing to wait for with: a store that cannot be written must not make a heap of these
            self._source.finish((), changes)
        else:
            self._uncommitted.append(Unsaved(changes))
            self._delivery.changed()
        self._commit()
        self._watcher.watch(self._wake, self._source.directories)
        now = time.monotonic()
        self._scan_allowed_at = now + max(SCAN_GAP_SECONDS, 5 * cost)
        self._next_scan = now + self._source.scan_seconds
        self._scanned = True

    def _harvest(self) -> None:
        """Take in the results of batches that are done, and save what they settled."""
        if back := self._delivery.tend():
            self._source.finish(back, self._source.settle(back))
        for task in [task for task, flight in self._flying.items() if flight.results.done()]:
            flight = self._flying.pop(task)
            self.has_results = True
            results = self._delivery.take_in(flight.batch, flight.results.result())
            if not isinstance(results, tuple):  # known later
                self._flying[task] = flight._replace(results=results)
                continue
            failpoints.hit("answered")
            self._limits.settle(flight.grant, sum((result.counts for result in results), Counts()))
            for result in results:
                if result.samples:
                    self._taps.give(result.samples)
            changes = self._source.settle(results)
            self._uncommitted.append(Unsaved(changes, results, task.number, time.monotonic() - flight.since))
        self._commit()

    def _commit(self) -> None:
        """Save changes in the order they came. A store that cannot be written keeps them for the next round: nothing is planned."""
        while self._uncommitted and time.monotonic() >= self._retry_policy.save_at:
            one = self._uncommitted[0]
            if not self._save(one):
                return
            self._uncommitted.pop(0)
            if one.results:
                failpoints.hit("saved")
                self._metrics.take_in(one.task, one.results, one.seconds)  # whatever the source makes of it
            self._source.finish(self._retry_policy.for_source(one.results), one.changes)
            if one.results:
                self._retry_policy.judge(one.results)
                is_behind = self._delivery.pace_seconds > 0 and self._source.lag().bytes > self._definition.delivery.max_batch_bytes
                if more_to_read(one.results) or is_behind:
                    self._plan_at = 0.0  # no pause

    def _accounts(self, unsaved: Iterable[Unsaved]) -> dict[SourcePartition, Account]:
        return accounts_of(unsaved) if self._keeps_accounts else {}

    def _save(self, one: Unsaved) -> bool:
        """Whether it is saved. Raises what is not retriable."""
        begin = time.monotonic()
        try:
            wrote = _unexpected_is_fatal(lambda: self._delivery.save(one, self._accounts([one])))
        except RetriableError as error:
            self._retry_policy.not_saved(error)
            return False
        if wrote:
            self._metrics.commit_seconds = self._metrics.commit_seconds.plus(time.monotonic() - begin)
            self._retry_policy.saved()
        return True

    def _plan(self) -> None:
        """Give every idle task its share of what is unread."""
        delivery, name = self._definition.delivery, self._definition.name
        careful = self._retry_policy.careful
        tasks = [TaskId(name, number) for number in range(1 if careful else delivery.tasks_max)]
        idle = [task for task in tasks if task not in self._flying and self._delivery.is_free(task.number)]
        for index, task in enumerate(idle):
            if self._limits.seconds_left() > 0:
                return
            plan = self._source.plan(len(idle) - index)
            splits = self._delivery.admit(plan.splits)
            if not splits:
                return
            grant = self._limits.take(len(idle) - index)
            most = PROBE_BYTES if careful else delivery.max_batch_bytes
            most = min(most, grant.bytes) if grant.bytes else most
            cluster = ",".join(self._definition.kafka.bootstrap_servers)
            told = (self._taps.wanted(), self._tracked, self._delivery.plan(task.number, splits), cluster)
            batch = Batch(task, self._pickled, splits, most, plan.max_seconds, grant.records, *told)
            now = time.monotonic()
            results = self._executor.submit(batch)
            self._flying[task] = Flight(batch, results, now, grant)
            results.add_done_callback(lambda _: self._wake.nudge())
            self._plan_at = now + self._linger

    def _next_wait(self) -> Wait:
        """Until there is a reason to look again."""
        now = time.monotonic()
        begin = max(self._plan_at, self._retry_policy.retry_at, now + self._limits.seconds_left())
        if self._pausing:
            begin = now + PAUSED_SECONDS
        is_idle = not (self._has_work or self._flying or self._uncommitted or self._until_idle or self._delivery.has_work)
        is_well = not (self._is_blind or self._retry_policy.backoff.active or self._delivery.trouble)
        self._is_idle = is_idle and is_well and begin <= now and self._examined is None
        latest = min(self._next_scan, math.inf if is_idle else now + BUSY_SECONDS)
        return Wait(min(begin, latest)) if begin > now else Wait(min(latest, self._ripe_at), deaf=False)

    def _obey_pause(self) -> None:
        """Nothing new is read; what flies is settled. Scans go on, so that files are followed through rotations."""
        if not self._orders.paused:
            self._pausing = False
            self._retry_policy.begin_anew()
            return
        if not self._pausing:
            self._pausing = True
            for task in self._flying:
                self._executor.settle(task)
        if not self._flying and not self._uncommitted:
            self._connector_state.become(State.PAUSED, PAUSED.format(self._definition.name))

    def _may_be_over(self) -> bool:
        """In a run to the end: whether to ask at once if everything is read."""
        return self._until_idle and self._scanned and not (self._flying or self._uncommitted) and self._source.drained()

    def _finished(self) -> bool:
        """Whether to stop: asked to, or, in a run to the end, everything is read."""
        if self._orders.stop_at is not None:
            return True
        if not self._may_be_over():
            return False
        self._scan()
        if self._source.drained() and not self._finalised:
            self._finalised = True
            self._source.finalise()
        return self._source.drained() and not self._uncommitted

    def _settle_what_flies(self) -> Steps:
        """Let batches under way come to their end, until the deadline; what is not settled then is read again next time.

        Raises the first error that ends the connector, once all that could be saved is saved.
        """
        failure: CopycatError | None = None
        give_up_at = time.monotonic() + FAILED_SETTLE_SECONDS
        for task in self._flying:
            self._executor.settle(task)
        while self._flies_for_sure or self._uncommitted:
            self._retry_policy.save_at = 0.0
            try:
                self._harvest()
            except CopycatError as error:
                failure = failure or error
            left = (self._orders.stop_at or give_up_at) - time.monotonic()
            if left <= 0:
                break
            if self._flies_for_sure or self._uncommitted:
                yield Wait(time.monotonic() + min(left, 0.2))
        self._tell_what_is_left()
        if failure is not None:
            raise failure

    @property
    def _flies_for_sure(self) -> bool:
        """Whether there are batches that are answered soon. To know what became of others may take long: the next start asks Kafka."""
        unanswered = self._delivery.unanswered
        return any(task.number not in unanswered for task in self._flying)

    def _tell_what_is_left(self) -> None:
        unsaved = any(one.changes.offsets for one in self._uncommitted if one.results)
        if self._delivery.left(unsaved=unsaved, in_flight=bool(self._flying)):
            self._log.error("offsets could not be saved; what they cover will be sent again", why=self._connector_state.unsaved)
            self._connector_state.lost_grip = True

    def _leave(self) -> None:
        """Save what the next start needs to find every file again; what is lost with files that are gone is counted now."""
        changes = self._source.leave()
        self._metrics.look(self._source.lag()._replace(open_files=0))
        accounts = self._accounts(self._uncommitted)  # of offsets that are in `changes` once more
        unsaved = [one for one in self._uncommitted if one.results]
        try:
            _unexpected_is_fatal(lambda: self._delivery.save_last(changes, unsaved, accounts))
        except CopycatError as error:
            self._log.warning("the names of unread files could not be saved", why=error.message, hint=error.hint)


def _unexpected_is_fatal(save: Callable[[], T]) -> T:
    """What `save` returns. Raises what the store raises; FatalError for anything else: another start would send the same files again."""
    try:
        return save()
    except CopycatError:
        raise
    except Exception as error:
        raise FatalError(f"what was settled cannot be saved: {bug_words(error)}", "please report it") from error
