"""A connector as a state machine: it scans, plans, submits and saves in rounds, until a stop is requested or everything is read.

`ConnectorMachine.run` yields effects and receives events (`worker.effects`). It has no thread and no clock, and what saves, sends, waits or
may take long is an effect: so a simulation may end the connector between any two of them. Its state is in its fields, in the source and in
the delivery. What it calls on these directly only computes, but a source's `plan`, `wake` and `finish` may also open and stat files.

One round takes in events, scans if a scan is due, saves what was found and what batches have settled, and submits what is to be read, from
saved positions only. While something is unsaved nothing is planned.

In-flight batches are recorded in four places: here by task, with their limits; in `ConnectorIO` by task, with their futures; in the
delivery by lane, with their plans; in the source's planner by file, until `finish`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, cast

from copycat_agent.delivery.base import Delivery, DeliveryView, Unsaved, is_empty
from copycat_agent.errors import CopycatError, RetriableError
from copycat_agent.model import Results, TaskId
from copycat_agent.options import Definition
from copycat_agent.sources import Changes, FollowsFiles, Source
from copycat_agent.worker import effects
from copycat_agent.worker.context import ConnectorContext
from copycat_agent.worker.effects import CollectedEvents, Effect, Effects, Performed, ScanResult
from copycat_agent.worker.poll_loop import Wait
from copycat_agent.worker.retry_policy import RetryPolicy
from copycat_agent.worker.schedule import FIRST_REPORT_SECONDS, BatchLimits, InFlightBatch, RoundSchedule
from copycat_agent.worker.status import State

PROBE_BYTES = 2**20
"""Size of the first batch after an error: if it fails as well, little is repeated."""
FAILED_SETTLE_SECONDS = 5.0
"""When one task's error ends the connector, how long the other tasks' batches may still take to settle."""
PAUSED = "paused on request; go on with: copycat ctl resume {}"
"""The reason of a connector that is paused."""


class ConnectorMachine:
    """Used once. `source` and `delivery` are open; the last effect closes them."""

    def __init__(
        self,
        definition: Definition,
        source: Source,
        delivery: Delivery,
        context: ConnectorContext,
        now: float,
        *,
        until_idle: bool,
        careful: bool,
    ) -> None:
        """`careful`: something went wrong before, so the first batch is small. `now` is `time.monotonic()`."""
        self._definition = definition
        self._source = source
        self._delivery = delivery
        self._context = context
        self._until_idle = until_idle
        self._now = now
        self._retry_policy = RetryPolicy(definition, context, careful=careful, clock=lambda: self._now)
        self._schedule = RoundSchedule.of(definition, 0.0 if until_idle else delivery.pace_seconds, clock=lambda: self._now)
        self._news = CollectedEvents()
        self._in_flight: dict[TaskId, InFlightBatch] = {}
        self._unsaved: deque[Unsaved] = deque()
        self._pausing = False
        self._finalised = False
        self._abandoned = False  # effects are not performed any more
        self.has_results = False
        """Whether a batch has come back. If its results cannot be saved, the next start may send its records again."""
        context.metrics.begin()

    @property
    def tasks(self) -> int:
        """Returns the number of batches in flight. For any thread."""
        return len(self._in_flight)

    @property
    def delivery_view(self) -> DeliveryView:
        """Returns the delivery's part of a `Status`. For any thread."""
        return self._delivery.view()

    @property
    def linger(self) -> float:
        """Returns the least number of seconds between two batches of a task that is up to date."""
        return self._schedule.linger

    def run(self) -> Effects:
        """Runs until a stop is requested, or everything is read in a run to the end. Raises what ends the connector."""
        try:
            try:
                yield from self._run_rounds()
            finally:
                yield from self._settle_in_flight()
        except CopycatError as error:
            if not isinstance(error, RetriableError):
                self._context.keeper.fail()
            raise
        finally:
            try:
                yield from self._leave()
            finally:
                yield from self._do(effects.Close())

    def _run_rounds(self) -> Effects:
        yield from self._hear()
        while self._news.stop_at is None and not (self._until_idle and (yield from self._finished())):
            wait = yield from self._round()
            next_scan = yield from self._do(wait)
            if next_scan is not None:
                self._schedule.next_scan = next_scan
            yield from self._hear()

    def _do(self, effect: Effect) -> Generator[Effect, Performed, Any]:
        """Yields an effect. Returns its answer, raises its error."""
        if self._abandoned:
            raise GeneratorExit
        try:
            event = yield effect
        except GeneratorExit:
            self._abandoned = True
            raise
        self._now = event.now
        if event.error is not None:
            raise event.error
        return event.value

    def _hear(self) -> Effects:
        self._news = yield from self._do(effects.CollectEvents())

    def _round(self) -> Generator[Effect, Performed, Wait | effects.WaitForChange]:
        """Does what is due now. Returns what to wait for then."""
        schedule, news, source = self._schedule, self._news, self._source
        yield from self._take_in_results()
        other = news.other or (bool(news.grown) and not source.wake(news.grown))
        if other or source.needs_scan:
            schedule.scan_soon()
        if self._now >= schedule.next_scan:
            yield from self._scan()
        if news.asked:
            yield from self._do(effects.AnswerQuestions())
        schedule.times_out_at = source.end_timed_out(at_once=self._until_idle)
        if source.needs_scan and schedule.times_out_at <= self._now:
            schedule.times_out_at = schedule.scan_allowed_at  # only a scan takes in what has timed out
        if news.paused or self._pausing:
            yield from self._obey_pause()
        if not self._pausing:
            yield from self._hand_out()
        if self._delivery.has_work and schedule.has_scanned and not (self._in_flight or self._unsaved or self._retry_policy.backoff.active):
            yield from self._do(effects.PublishIfDue())
        lag = self._context.metrics.source_lag = source.lag()
        trouble = self._delivery.trouble
        if schedule.has_scanned and not self._pausing and (trouble is not None or not self._retry_policy.is_well):
            self._retry_policy.update_state(lag.blocked_files, trouble)
        return self._next_wait(has_work=bool(lag.bytes or lag.blocked_files or lag.troubled_files))

    def _scan(self) -> Effects:
        try:
            scanned: ScanResult = yield from self._do(effects.Scan())
        except RetriableError as error:
            self._retry_policy.retry(error)
            self._schedule.note_failed_scan()
            return
        if self._schedule.last_scan_failed:
            self._retry_policy.backoff.succeeded()
        self._take_over(scanned.changes)
        yield from self._save()
        self._schedule.note_scan(self._now, scanned.seconds, self._source.scan_seconds)

    def _take_over(self, changes: Changes, taken_back: Results = ()) -> None:
        """Queues the source's own changes to be saved. Empty ones are finished at once: they would pile up while saving fails."""
        if is_empty(changes):
            self._source.finish(taken_back, changes)
        else:
            self._unsaved.append(Unsaved(changes, taken_back=taken_back))
            self._delivery.source_changed()

    def _take_in_results(self) -> Effects:
        """Takes in the results of batches that are done, and saves what they settled."""
        if self._delivery.has_work and (back := (yield from self._do(effects.AdvanceDelivery()))):
            self._take_over(self._source.changes_of(back), back)  # a file may have been renamed since it was planned
        for task in self._news.reported:
            results = yield from self._do(effects.CollectReport(task))
            self.has_results = True
            flight = self._in_flight[task]
            self._in_flight[task] = flight._replace(since=self._now, reported=True)
            self._keep_unsaved(task, flight, results, goes_on=True)
        for task in self._news.ended:
            flight = self._in_flight.pop(task)
            self.has_results = True
            results = yield from self._do(effects.CollectResults(task))
            if results is None:  # known later
                self._in_flight[task] = flight._replace(careful=False)  # others need not wait for that
                continue
            if self._schedule.limits is not None:
                self._schedule.limits.give_back(flight.grant, (result.counts for result in results))
            self._keep_unsaved(task, flight, results)
        if self._unsaved:
            yield from self._save()

    def _keep_unsaved(self, task: TaskId, flight: InFlightBatch, results: Results, *, goes_on: bool = False) -> None:
        changes, seconds = self._source.changes_of(results), self._now - flight.since
        self._unsaved.append(Unsaved(changes, results, task.number, seconds, goes_on=goes_on, begun=flight.begun))

    def _save(self) -> Effects:
        """Saves changes in the order they came. If the store cannot be written, they wait for the next round: nothing is planned."""
        policy = self._retry_policy
        while self._unsaved and self._now >= policy.save_at:
            unsaved = self._unsaved[0]
            try:
                seconds = yield from self._do(effects.Save(unsaved))
            except RetriableError as error:
                policy.not_saved(error)
                yield from self._end_staying()  # a kill would repeat more and more records
                return
            self._unsaved.popleft()
            if seconds is not None:
                self._context.metrics.saved(seconds)
                if not policy.is_well:
                    policy.saved()
            if unsaved.results:
                self._context.metrics.count_results(unsaved.task, unsaved.results, unsaved.seconds)  # also when `finish` raises
            is_well = policy.is_well and not any(result.error or result.rejections or result.step_failures for result in unsaved.results)
            results = unsaved.taken_back or unsaved.results
            self._note_saved(results if is_well else policy.for_source(results), unsaved)
            if unsaved.results:
                if not is_well:
                    policy.judge(unsaved.results, unsaved.begun)
                    if policy.backoff.active:
                        yield from self._end_staying()  # the next attempt is the only batch
                if not unsaved.goes_on:
                    self._set_pace(unsaved.results)

    def _set_pace(self, results: Results) -> None:
        """Ends the pause before the next batch if there is much to read."""
        is_behind = self._delivery.pace_seconds > 0 and self._source.lag().bytes > self._definition.delivery.max_batch_bytes
        if is_behind or any(not (result.at_end or result.changed or result.error) for result in results):
            self._schedule.plan_at = 0.0

    def _note_saved(self, results: Results, unsaved: Unsaved) -> None:
        if unsaved.goes_on:
            self._following.advance(results, unsaved.changes)
        else:
            self._source.finish(results, unsaved.changes)

    def _hand_out(self) -> Effects:
        schedule = self._schedule
        if self._news.at_once:
            self._retry_policy.retry_now()
            schedule.plan_at = 0.0
        if self._unsaved or self._now < schedule.plan_at or self._now < self._retry_policy.backoff.retry_at:
            return
        have_joined = yield from self._let_join()
        yield from self._plan()
        if self._has_to_make_room(have_joined=have_joined):
            yield from self._end_staying(lambda flight: flight.reported or self._now >= flight.begun + FIRST_REPORT_SECONDS)
        if self._news.grown and schedule.plan_at <= self._now:  # nothing to do yet for growing files: do not wake for every line
            schedule.plan_at = self._now + schedule.linger

    def _plan(self) -> Effects:
        """Gives every idle task its share of what is unread."""
        delivery, policy, limits = self._definition.delivery, self._retry_policy, self._schedule.limits
        careful = policy.careful or policy.backoff.active  # the next batch is an attempt: small, and one at a time
        tasks = [TaskId(self._definition.name, number) for number in range(delivery.tasks_max)]
        idle = [task for task in tasks if task not in self._in_flight and self._delivery.is_free(task.number)]
        if careful:
            idle = [] if any(flight.careful for flight in self._in_flight.values()) else idle[:1]
        for index, task in enumerate(idle):
            if limits is not None and limits.seconds_left() > 0:
                return
            plan = self._source.plan(len(idle) - index)
            splits = self._delivery.admit(plan.splits)
            if not splits:
                may_be_more = self._schedule.last_scan_failed or self._in_flight or plan.splits
                if policy.backoff.active and not (may_be_more or self._source.lag().bytes):
                    policy.backoff.succeeded()  # unsent records are gone: there is nothing to retry
                return
            grant = BatchLimits() if limits is None else limits.take(len(idle) - index)
            most = PROBE_BYTES if careful else delivery.max_batch_bytes
            may_stay = self._delivery.may_stay and self._schedule.may_stay and not (careful or self._until_idle)
            stay = plan.follow_seconds if may_stay else 0.0
            yield from self._do(effects.Submit(task, splits, min(most, grant.bytes or most), plan.max_seconds, grant.records, stay))
            self._in_flight[task] = InFlightBatch(self._now, grant, self._now, stays=stay > 0, careful=careful, files=len(splits))
            self._schedule.plan_at = self._now + self._schedule.linger

    @property
    def _following(self) -> FollowsFiles:
        """Returns the source of a batch that stays: only one that follows files plans such. A cast, since checking a protocol is slow."""
        return cast("FollowsFiles", self._source)

    def _let_join(self) -> Generator[Effect, Performed, bool]:
        """Adds splits to batches that stay. Returns whether there were any: then there may be more."""
        have_joined = False
        for task, flight in self._in_flight.items():
            if flight.stays and flight.reported and (splits := self._following.joining(flight.files)):
                self._in_flight[task] = flight._replace(files=flight.files + len(splits))
                yield from self._do(effects.Join(task, splits))
                self._schedule.plan_at = self._now + self._schedule.linger
                have_joined = True
        return have_joined

    def _has_to_make_room(self, *, have_joined: bool) -> bool:
        """Returns whether something waits for a batch that stays, and cannot join it, or did not."""
        if not any(flight.stays for flight in self._in_flight.values()):
            return False
        return self._following.is_held_up(for_good=True) or (not have_joined and self._following.is_held_up())

    def _end_staying(self, is_meant: Callable[[InFlightBatch], bool] = lambda _: True) -> Effects:
        """Asks batches that stay to end and give their tasks and files back."""
        for task, flight in list(self._in_flight.items()):
            if flight.stays and is_meant(flight):
                self._in_flight[task] = flight._replace(stays=False)
                yield from self._do(effects.RequestSettle(task))

    def _next_wait(self, *, has_work: bool) -> Wait | effects.WaitForChange:
        """Returns the wait for the next round."""
        if self._until_idle and self._may_be_over():
            return Wait(0.0)
        is_idle = not (has_work or self._in_flight or self._unsaved or self._until_idle or self._delivery.has_work)
        is_well = not (self._retry_policy.backoff.active or self._delivery.trouble or self._news.examining)
        return self._schedule.wait(self._now, self._retry_policy.backoff.retry_at, is_idle=is_idle, is_well=is_well, pausing=self._pausing)

    def _obey_pause(self) -> Effects:
        """Pauses: reads nothing new and settles what is in flight. Scans go on, so that files are followed through rotations."""
        if not self._news.paused:
            self._pausing = False
            self._retry_policy.begin_anew()
            return
        if not self._pausing:
            self._pausing = True
            yield from self._ask_to_settle()
        if not self._in_flight and not self._unsaved:
            self._context.connector_state.become(State.PAUSED, PAUSED.format(self._definition.name))

    def _ask_to_settle(self) -> Effects:
        for task in list(self._in_flight):
            yield from self._do(effects.RequestSettle(task))

    def _may_be_over(self) -> bool:
        """Returns whether it is worth checking now if everything is read, in a run to the end."""
        return self._schedule.has_scanned and not (self._in_flight or self._unsaved) and self._source.drained()

    def _finished(self) -> Generator[Effect, Performed, bool]:
        """Returns whether everything is read, in a run to the end."""
        if not self._may_be_over():
            return False
        yield from self._scan()
        if self._source.drained() and not self._finalised:
            self._finalised = True
            self._source.finalise()
        return self._source.drained() and not self._unsaved

    def _settle_in_flight(self) -> Effects:
        """Lets batches in flight settle, until the deadline; what is not settled then is read again next time.

        Raises the first error that ends the connector, once everything that could be saved is saved.
        """
        failure: CopycatError | None = None
        give_up_at = self._now + FAILED_SETTLE_SECONDS
        yield from self._ask_to_settle()
        while self._expects_answers or self._unsaved:
            self._retry_policy.save_at = 0.0
            try:
                yield from self._hear()
                yield from self._take_in_results()
            except CopycatError as error:
                failure = failure or error
            stop_at = self._news.stop_at
            left = (give_up_at if stop_at is None else stop_at) - self._now
            if left <= 0 and (self._definition.sink.has_topics or self._news.is_final or not self._in_flight):  # see `Connector.stop`
                break
            if self._expects_answers or self._unsaved:
                yield from self._do(Wait(self._now + (min(left, 0.2) if left > 0 else 0.2)))
        self._tell_what_is_left()
        if failure is not None:
            raise failure

    @property
    def _expects_answers(self) -> bool:
        """Returns whether any batch will be answered soon. The outcome of the others may take long: the next start asks Kafka."""
        return any(task.number not in self._delivery.unanswered for task in self._in_flight)

    def _tell_what_is_left(self) -> None:
        unsaved = any(one.changes.offsets for one in self._unsaved if one.results)
        if self._delivery.log_unfinished(unsaved=unsaved, in_flight=bool(self._in_flight)):
            state = self._context.connector_state
            self._context.log.error("offsets could not be saved; what they cover will be sent again", why=state.save_error)
            state.left_unsaved = True

    def _leave(self) -> Effects:
        """Saves what the next start needs to find every file again, or to enter what is lost."""
        changes = self._source.leave()
        self._context.metrics.source_lag = self._source.lag()._replace(open_files=0)
        try:  # the offsets of what is unsaved are in `changes` as well
            yield from self._do(effects.SaveLast(changes, tuple(one for one in self._unsaved if one.results)))
        except CopycatError as error:
            self._context.log.warning("the names of unread files could not be saved", why=error.message, hint=error.hint)
