"""Performs the effects of one connector: scans its source, saves, submits batches, receives results and orders."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any

from copycat_agent import failpoints
from copycat_agent.delivery.base import Delivery, PendingResults, Unsaved
from copycat_agent.delivery.batch_outcomes import ReportedOffsets
from copycat_agent.errors import CopycatError, FatalError, bug_words
from copycat_agent.executor import DefinitionChecker, StayingExecutor
from copycat_agent.model import Account, Batch, Results, SourcePartition, SplitResult, TaskId
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES, KeepsFiles, KnowsUnchanged, create_source
from copycat_agent.transforms.sql import sql_at
from copycat_agent.worker import effects
from copycat_agent.worker.context import ConnectorContext, WorkerServices
from copycat_agent.worker.effects import CollectedEvents, Effect, Effects, Performed, Save, SaveLast, ScanResult, WaitForChange
from copycat_agent.worker.poll_loop import Steps, Wait


class ConnectorIO:
    """For one run of a connector, called by its steps. The constructor opens the source: it raises what the store or the source raise."""

    def __init__(self, definition: Definition, tools: WorkerServices, context: ConnectorContext, delivery: Delivery) -> None:
        """`delivery` is open; `Close` closes it."""
        self._tools = tools
        self._orders = context.orders
        self._taps = context.taps
        self._delivery = delivery
        self._pickled = pickle.dumps(definition)
        self._cluster = ",".join(definition.kafka.bootstrap_servers)
        self._in_flight: dict[TaskId, tuple[Batch, PendingResults]] = {}
        self._reports: dict[TaskId, deque[Results]] = {}  # of batches that stay
        self._reached: dict[TaskId, ReportedOffsets] = {}  # by them
        self._heed_growth()
        has_query = sql_at(definition.transforms) is not None
        executor = tools.executor
        self._examined = executor.examine(self._pickled) if has_query and isinstance(executor, DefinitionChecker) else None
        if self._examined is not None:
            self._examined.add_done_callback(lambda _: self._orders.wake.wakeup())
        make = tools.make_source or SOURCES[definition.source.type].make
        self.source = create_source(make, definition, tools.store.saved(definition.name), context.log)
        self._keeper = context.keeper
        self._keeper.begin()
        if isinstance(self.source, KeepsFiles):
            self.source.keep_with(self._keeper)
        self._is_unchanged = self.source.unchanged if isinstance(self.source, KnowsUnchanged) else lambda: False
        self._performers: dict[type[Effect], Callable[[Any], object]] = {
            effects.CollectEvents: self._hear,
            effects.Scan: self._scan,
            effects.AnswerQuestions: lambda _: self._orders.answer(self.source),
            effects.AdvanceDelivery: lambda _: self._delivery.advance(),
            effects.CollectResults: self._take_in,
            effects.CollectReport: self._take_report,
            effects.Save: self._save,
            effects.SaveLast: self._save_last,
            effects.PublishIfDue: lambda _: self._delivery.publish_if_due(),
            effects.Submit: self._submit,
            effects.Join: self._join,
            effects.RequestSettle: lambda effect: tools.executor.settle(effect.task),
            effects.Close: self._close,
        }

    def carry_out(self, wanted: Effects) -> Steps:
        """Performs all effects of a connector until it ends. The poll loop performs waits; exceptions of the connector pass through."""
        effect = next(wanted)
        try:
            while True:
                try:
                    if isinstance(effect, Wait):
                        yield effect
                        event = Performed(time.monotonic())
                    elif isinstance(effect, WaitForChange):
                        next_scan = yield from self._wait_for_change(effect)
                        event = Performed(time.monotonic(), next_scan)
                    else:
                        event = self.perform(effect)
                except BaseException as error:  # noqa: BLE001 - an interrupt: the machine still has to settle and close; GeneratorExit passes it
                    effect = wanted.throw(error)
                else:
                    effect = wanted.send(event)
        except StopIteration:
            return

    def _wait_for_change(self, wanted: WaitForChange) -> Generator[Wait, None, float]:
        """Waits without the machine while scans find nothing: with a thousand idle connectors these are most of the agent's work."""
        until = wanted.until
        while True:
            yield Wait(min(until, wanted.latest), deaf=False)
            now = time.monotonic()
            has_news = self._orders.wake.has_news or self._delivery.has_work
            if has_news or not until <= now < wanted.latest or not self._is_unchanged():
                return until
            until = now + wanted.seconds

    def perform(self, effect: Effect) -> Performed:
        """Performs one effect other than a wait. Returns its answer or its error."""
        try:
            value = self._performers[type(effect)](effect)
        except Exception as error:  # noqa: BLE001 - the connector decides what it means
            return Performed(time.monotonic(), error=_as_save_error(error) if isinstance(effect, Save | SaveLast) else error)
        return Performed(time.monotonic(), value)

    def _hear(self, _: effects.CollectEvents) -> CollectedEvents:
        if self._examined is not None and self._examined.done():
            error, self._examined = self._examined.result(), None
            if error is not None:  # also while there is nothing to read
                raise error
        orders = self._orders
        grown, other = orders.wake.take() if orders.wake.has_news else ((), False)
        ended = tuple(task for task, (_, results) in self._in_flight.items() if results.done())
        # Read after `ended`, so that the last report of an ended batch is taken in before its results.
        reported = tuple(task for task, reports in self._reports.items() if reports)
        if self._reports and self._taps.is_used:
            self._end_untapped()
        if at_once := orders.at_once:
            orders.at_once = False
        examining = self._examined is not None
        given = (orders.paused, at_once, orders.stop_at)
        return CollectedEvents(grown, other, orders.is_asked, reported, ended, *given, examining, is_final=orders.is_final)

    def _end_untapped(self) -> None:
        """Ends batches that stay without samples, because a tap is open: the next ones return samples."""
        for task in self._reports:
            if not self._in_flight[task][0].samples:
                self._tools.executor.settle(task)

    def _scan(self, _: effects.Scan) -> ScanResult:
        begin = time.monotonic()
        changes = self.source.scan()
        seconds = time.monotonic() - begin
        if self._tools.watcher.watch(self._orders.wake, self.source.directories):
            self._orders.wake.changed()
        return ScanResult(changes, seconds)

    def _submit(self, wanted: effects.Submit) -> None:
        batch = Batch(
            wanted.task,
            self._pickled,
            wanted.splits,
            wanted.max_bytes,
            wanted.max_seconds,
            wanted.max_records,
            self._taps.wanted() if self._taps.is_used else 0,
            self._tools.tracked,
            self._delivery.plan(wanted.task.number, wanted.splits),
            self._cluster,
        )
        executor = self._tools.executor
        if wanted.follow_seconds and not batch.samples and isinstance(executor, StayingExecutor):
            batch = replace(batch, follow_seconds=wanted.follow_seconds)
            reports = self._reports[batch.task] = deque()
            self._reached[batch.task] = ReportedOffsets()
            self._await(batch, executor.follow(batch, lambda results: self._has_reported(reports, results)))
            self._heed_growth()
        else:
            self._await(batch, executor.submit(batch))

    def _join(self, wanted: effects.Join) -> None:
        batch, results = self._in_flight[wanted.task]
        self._in_flight[wanted.task] = replace(batch, splits=batch.splits + wanted.splits), results
        executor = self._tools.executor
        assert isinstance(executor, StayingExecutor)
        executor.join(wanted.task, wanted.splits)
        self._heed_growth()

    def _heed_growth(self) -> None:
        """Subscribes to writes of all files except those at whose ends batches stay."""
        self._orders.wake.follow(frozenset(split.path for task in self._reports for split in self._in_flight[task][0].splits))

    def _has_reported(self, reports: deque[Results], results: Results) -> None:
        """Queues a report and wakes the connector. Called by any thread."""
        reports.append(results)
        self._orders.wake.wakeup()

    def _take_report(self, effect: effects.CollectReport) -> Results:
        reports = self._reports[effect.task]
        results: Results = ()
        while reports:
            results += reports.popleft()
        results = self._reached[effect.task].apply(results)
        self._reached[effect.task].note(results)
        return results

    def _await(self, batch: Batch, results: PendingResults) -> None:
        self._in_flight[batch.task] = batch, results
        results.add_done_callback(lambda _: self._orders.wake.wakeup())

    def _take_in(self, effect: effects.CollectResults) -> Results | None:
        task = effect.task
        batch, pending = self._in_flight.pop(task)
        if self._reports.pop(task, None) is not None:
            self._heed_growth()
        results = self._delivery.handle_results(batch, self._reached.pop(task, ReportedOffsets()).apply(_of_all(batch, pending.result())))
        if not isinstance(results, tuple):
            self._await(batch, results)
            return None
        failpoints.hit("answered")
        for result in results:
            if result.samples:
                self._taps.give(result.samples)
        return results

    def _save(self, effect: Save) -> float | None:
        begin, unsaved = time.monotonic(), effect.unsaved
        wrote = self._delivery.save(unsaved, self._accounts([unsaved]) if self._tools.accounts else {})
        seconds = time.monotonic() - begin
        if unsaved.results:
            failpoints.hit("saved")
        return seconds if wrote else None

    def _save_last(self, effect: SaveLast) -> None:
        accounts = self._accounts(effect.unsaved) if self._tools.accounts else {}
        self._delivery.save_last(effect.changes, effect.unsaved, accounts)

    def _accounts(self, unsaved: Iterable[Unsaved]) -> dict[SourcePartition, Account]:
        """Returns the accounts of the files in these results."""
        accounts: dict[SourcePartition, Account] = {}
        for result in (result for one in unsaved for result in one.results):
            partition = result.split.partition
            account = Account(result.counts, result.delivered, result.split.path, undated=result.undated)
            accounts[partition] = accounts.get(partition, Account()) + account
        return accounts

    def _close(self, _: effects.Close) -> None:
        self._keeper.end()
        try:
            self.source.close()
        finally:
            self._delivery.close()


def _of_all(batch: Batch, results: Results) -> Results:
    """Returns results for all splits: those that came too late to join the batch have none, and are unread."""
    if len(results) == len(batch.splits):
        return results
    with_result = {result.split.partition for result in results}
    return (*results, *(SplitResult(one, one.offset) for one in batch.splits if one.partition not in with_result))


def _as_save_error(error: Exception) -> Exception:
    """Returns the error of a save. An unexpected one becomes fatal: another start would send the same files again."""
    if isinstance(error, CopycatError):
        return error
    fatal = FatalError(f"what was settled cannot be saved: {bug_words(error)}", "please report it")
    fatal.__cause__ = error
    return fatal
