"""A connector as a state machine: which effects follow which events. Nothing is performed here, and no time passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from copycat_agent import logs
from copycat_agent.delivery.at_least_once import AtLeastOnceDelivery
from copycat_agent.errors import BlockedError, FatalError, RetriableError
from copycat_agent.model import AT_LEAST_ONCE, SourceOffset, SourcePartition, Split, SplitResult, TaskId
from copycat_agent.sources import Changes, Lag
from copycat_agent.sources.base import Plan
from copycat_agent.worker.connector_io import ConnectorIO
from copycat_agent.worker.context import ConnectorContext, RestartKeeper
from copycat_agent.worker.effects import (
    AdvanceDelivery,
    AnswerQuestions,
    Close,
    CollectedEvents,
    CollectEvents,
    CollectReport,
    CollectResults,
    Effect,
    Join,
    Performed,
    PublishIfDue,
    RequestSettle,
    Save,
    SaveLast,
    Scan,
    ScanResult,
    Submit,
    WaitForChange,
)
from copycat_agent.worker.machine import FAILED_SETTLE_SECONDS, PROBE_BYTES, ConnectorMachine
from copycat_agent.worker.orders import ConnectorCommands, Taps
from copycat_agent.worker.poll_loop import Wait
from copycat_agent.worker.retry_policy import RetryPolicy
from copycat_agent.worker.schedule import FIRST_REPORT_SECONDS
from copycat_agent.worker.status import ConnectorMetrics, ConnectorState, State
from tests.unit.worker.doubles import definition, settled

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from copycat_agent.delivery.base import Delivery
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.sources import Source
    from copycat_agent.worker.poll_loop import Steps

TASK = TaskId("app", 0)
PARTITION = SourcePartition("app", "one")
BEGIN = 1000.0
FOUND = Changes(offsets={PARTITION: SourceOffset(0)})


class OneFile:
    """A source with one file, of which 100 bytes are unread until they are settled."""

    directories = ()
    scan_seconds = 10.0
    needs_scan = False

    def __init__(self) -> None:
        self.unread = 100
        self.is_planned = False
        self.finished: list[Changes] = []

    def wake(self, paths: Collection[str]) -> bool:
        return bool(paths)

    def plan(self, shares: int) -> Plan:
        if self.is_planned or not self.unread or not self.finished or not shares:
            return Plan((), 0.0)
        self.is_planned = True
        return Plan((Split(PARTITION, "/logs/one", "/logs/one", SourceOffset(100 - self.unread), 100),), 1.0)

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        return Changes(offsets={result.split.partition: result.offset for result in results})

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        self.finished.append(changes)
        for result in results:
            self.is_planned = False
            self.unread -= result.offset.position - result.split.offset.position

    def end_timed_out(self, *, at_once: bool) -> float:
        return BEGIN if at_once else float("inf")

    def drained(self) -> bool:
        return not self.unread

    def finalise(self) -> None:
        pass

    def lag(self) -> Lag:
        return Lag(self.unread)

    def leave(self) -> Changes:
        return Changes()


class Growing(OneFile):
    """A source whose batches may stay. `waiting`: splits of other files, which `may_join`, or have to wait, as what `is_stuck` does."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Split] = []
        self.may_join = True
        self.is_stuck = False

    def plan(self, shares: int) -> Plan:
        return super().plan(shares)._replace(follow_seconds=0.5)

    def joining(self, followed: int) -> tuple[Split, ...]:
        joining, self.waiting = (self.waiting, []) if self.may_join else ([], self.waiting)
        return tuple(joining)

    def advance(self, results: Sequence[SplitResult], changes: Changes) -> None:
        self.finished.append(changes)

    def is_held_up(self, *, for_good: bool = False) -> bool:
        return self.is_stuck or (bool(self.waiting) and not (for_good and self.may_join))


class Stepped:
    """A machine whose effects are answered by a script, for each kind of effect; without one by what a quiet world says."""

    def __init__(self, root: Path, of: OneFile | None = None, *, until_idle: bool = False) -> None:
        self.source = of or OneFile()
        log = logs.get("connector")
        self.context = ConnectorContext(
            ConnectorCommands(), ConnectorState(log), ConnectorMetrics(), Taps(), log, RestartKeeper(None, lambda: False)
        )
        self.delivery = AtLeastOnceDelivery("app", cast("OffsetStore", None), log, AT_LEAST_ONCE)
        source, delivery = cast("Source", self.source), cast("Delivery", self.delivery)
        self._machine = ConnectorMachine(definition(root), source, delivery, self.context, BEGIN, until_idle=until_idle, careful=False)
        self._steps = self._machine.run()
        self._wait: Wait | WaitForChange | None = None
        self.now = BEGIN
        self.flying: list[Split] = []
        self.answers: dict[type, Callable[[Any], object]] = {
            Scan: lambda _: ScanResult(FOUND, 0.0),
            CollectEvents: lambda _: CollectedEvents(),
            Save: lambda _: 0.0,
            WaitForChange: lambda wait: wait.until,
        }

    def until_wait(self) -> list[Effect]:
        """The effects of one round, its wait included; up to the end if it ends."""
        effects: list[Effect] = []
        try:
            effect = next(self._steps) if self._wait is None else self._steps.send(self._event(self._wait))
            while True:
                effects.append(effect)
                if isinstance(effect, Wait | WaitForChange):
                    self._wait = effect
                    self.now = max(self.now, min(effect.until, self.now + 60))
                    return effects
                effect = self._steps.send(self._event(effect))
        except StopIteration:
            return effects

    def _event(self, effect: Effect) -> Performed:
        self.now += 0.001
        if isinstance(effect, Submit):
            self.flying = list(effect.splits)
        value = self.answers.get(type(effect), lambda _: None)(effect)
        return Performed(self.now, error=value) if isinstance(value, Exception) else Performed(self.now, value)

    def has_state(self, state: State) -> bool:
        return self.context.connector_state.state is state

    def carried_out(self) -> Steps:
        """The steps as `ConnectorIO` makes them of the effects."""
        return ConnectorIO.carry_out(cast("ConnectorIO", SimpleNamespace(perform=self._event)), self._steps)

    def end(self) -> None:
        """Stop, at once."""
        self.hears(stop_at=self.now)
        while self.until_wait():
            pass

    def hears(self, **news: Any) -> None:
        self.answers[CollectEvents] = lambda _: CollectedEvents(**news)

    def comes_back(self, error: Any = None, position: int | None = None) -> None:
        """The batch under way has come to its end."""
        self.hears(ended=(TASK,))
        self.answers[CollectResults] = lambda _: tuple(settled(split, position, error) for split in self.flying)


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[Stepped]:
    stepped = Stepped(tmp_path)
    yield stepped
    stepped.end()


def kinds(effects: Sequence[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def test_what_is_found_is_saved_before_it_is_planned(stepped: Stepped) -> None:
    effects = stepped.until_wait()
    assert kinds(effects) == [CollectEvents, Scan, Save, Submit, Wait]
    assert stepped.source.finished == [FOUND]
    assert stepped.has_state(State.RUNNING)


def test_nothing_is_planned_while_something_is_unsaved(stepped: Stepped) -> None:
    stepped.answers[Save] = lambda _: RetriableError("no room")
    for _ in range(5):
        assert Submit not in kinds(stepped.until_wait())
        assert not stepped.source.finished, "what is not saved does not count"
    assert stepped.has_state(State.RETRYING)
    stepped.answers[Save] = lambda _: 0.0
    assert kinds(stepped.until_wait()).count(Save) == 1
    assert stepped.has_state(State.RUNNING)


def test_steps_that_nobody_takes_any_more_end_without_another_effect(stepped: Stepped) -> None:
    asked: list[RequestSettle] = []
    stepped.answers[RequestSettle] = asked.append
    steps = stepped.carried_out()
    next(steps)
    assert stepped.flying
    steps.close()  # raises RuntimeError where a generator goes on: as at the end of the process
    assert not asked


def test_a_batch_that_came_back_is_taken_in_and_saved_once(stepped: Stepped) -> None:
    stepped.until_wait()
    stepped.comes_back()
    (save,) = [effect for effect in stepped.until_wait() if isinstance(effect, Save)]
    assert save.unsaved.changes.offsets[PARTITION].position == 100
    stepped.hears()
    effects = stepped.until_wait()
    assert not {CollectResults, Submit} & set(kinds(effects))
    assert not any(effect.unsaved.results for effect in effects if isinstance(effect, Save))


def test_a_batch_that_kafka_is_asked_about_stays_in_flight(stepped: Stepped) -> None:
    stepped.until_wait()
    stepped.hears(ended=(TASK,))
    assert kinds(stepped.until_wait()) == [CollectEvents, CollectResults, Wait]
    assert stepped.source.is_planned
    stepped.comes_back()
    assert Save in kinds(stepped.until_wait())


def test_after_an_error_the_next_batch_is_a_small_one_and_waits(stepped: Stepped) -> None:
    (first,) = [effect for effect in stepped.until_wait() if isinstance(effect, Submit)]
    stepped.comes_back(RetriableError("away"), position=0)
    *_, wait = stepped.until_wait()
    assert isinstance(wait, Wait)
    assert wait.until > stepped.now - 1
    assert stepped.has_state(State.RETRYING)
    stepped.hears()
    (second,) = [effect for _ in range(3) for effect in stepped.until_wait() if isinstance(effect, Submit)]
    assert second.max_bytes == PROBE_BYTES < first.max_bytes


def test_a_batch_that_was_under_way_when_another_failed_does_not_end_the_wait(stepped: Stepped, tmp_path: Path) -> None:
    policy = RetryPolicy(definition(tmp_path), stepped.context, clock=lambda: BEGIN)
    split = Split(PARTITION, "/logs/one", "/logs/one", SourceOffset(0), 100)
    policy.judge((settled(split, 0, RetriableError("away")),), BEGIN - 2)
    policy.judge((settled(split),), BEGIN - 1)
    assert policy.backoff.active
    policy.judge((settled(split),), BEGIN + 1)
    assert not policy.backoff.active


def test_a_pause_asks_for_what_is_in_flight_and_says_so_once_it_is_saved(stepped: Stepped) -> None:
    stepped.until_wait()
    stepped.hears(paused=True)
    assert RequestSettle(TASK) in stepped.until_wait()
    assert not stepped.has_state(State.PAUSED)
    stepped.hears(paused=True, ended=(TASK,))
    stepped.answers[CollectResults] = lambda _: tuple(settled(split, 10) for split in stepped.flying)
    assert Submit not in kinds(stepped.until_wait())
    assert stepped.has_state(State.PAUSED)
    stepped.hears()
    assert Submit in kinds(stepped.until_wait())


def test_a_stop_settles_saves_and_closes(stepped: Stepped) -> None:
    stepped.until_wait()
    stepped.comes_back()
    ended = stepped.answers[CollectEvents](None)
    stepped.hears(stop_at=stepped.now + 10)
    effects: list[Effect] = []
    while Wait not in kinds(effects):
        effects += stepped.until_wait()
    assert kinds(effects) == [CollectEvents, RequestSettle, CollectEvents, Wait]
    stepped.answers[CollectEvents] = lambda _: cast("CollectedEvents", ended)._replace(stop_at=stepped.now + 10)
    assert kinds(stepped.until_wait()) == [CollectEvents, CollectResults, Save, SaveLast, Close]


def test_a_stop_waits_for_no_batch_longer_than_its_deadline(stepped: Stepped) -> None:
    stepped.until_wait()
    stop_at = stepped.now + 3
    stepped.hears(stop_at=stop_at)
    effects = [effect for _ in range(100) for effect in stepped.until_wait()]
    assert kinds(effects)[-2:] == [SaveLast, Close]
    assert stop_at <= stepped.now < stop_at + 1


def test_an_error_that_ends_it_leaves_nothing_open(stepped: Stepped) -> None:
    stepped.until_wait()
    stepped.comes_back(FatalError("bad"), position=0)
    with pytest.raises(FatalError, match="bad"):
        stepped.until_wait()
    assert stepped.now < BEGIN + FAILED_SETTLE_SECONDS


def test_a_look_that_tells_nothing_is_tried_when_the_source_knows_more(stepped: Stepped) -> None:
    stepped.answers[Scan] = lambda _: BlockedError("it does not answer")
    stepped.until_wait()
    assert stepped.has_state(State.BLOCKED)
    assert Scan not in kinds([effect for _ in range(5) for effect in stepped.until_wait()])
    stepped.source.needs_scan = True
    stepped.answers[Scan] = lambda _: ScanResult(FOUND, 0.0)
    assert Scan in kinds(stepped.until_wait())


def test_what_only_a_look_takes_in_does_not_make_rounds_before_the_look_is_allowed(tmp_path: Path) -> None:
    class Answered(OneFile):
        """Its look has an answer, which is to be taken in."""

        unread, needs_scan = 0, True

        def end_timed_out(self, *, at_once: bool) -> float:
            return BEGIN

    stepped = Stepped(tmp_path, Answered())
    for _ in range(3):
        looked, wait = Scan in kinds(effects := stepped.until_wait()), effects[-1]
        assert looked
        assert isinstance(wait, Wait | WaitForChange)
        assert wait.until >= stepped.now - 0.01 > BEGIN
    stepped.end()


def test_a_connector_that_has_nothing_to_do_waits_for_a_change(stepped: Stepped) -> None:
    stepped.source.unread = 0
    assert kinds(stepped.until_wait()) == [CollectEvents, Scan, Save, WaitForChange]
    stepped.hears()
    assert kinds(stepped.until_wait()) == [CollectEvents, Scan, Save, WaitForChange], "something has changed"
    next_scan = stepped.now + 60
    stepped.answers[WaitForChange] = lambda _: next_scan  # the source has said meanwhile that all is as it was
    _, wait = stepped.until_wait()
    assert wait == WaitForChange(next_scan, stepped.source.scan_seconds, math.inf)


def test_a_paused_connector_waits_for_a_change_while_nothing_is_unread(stepped: Stepped) -> None:
    stepped.source.unread = 0
    stepped.hears(paused=True)
    assert kinds(stepped.until_wait())[-1] is WaitForChange
    assert stepped.has_state(State.PAUSED)
    stepped.source.unread = 1
    stepped.hears(paused=True)
    assert kinds(stepped.until_wait())[-1] is Wait, "its files are looked at as they grow"


def test_questions_are_answered_when_there_are_any(stepped: Stepped) -> None:
    stepped.until_wait()
    stepped.hears(asked=True)
    assert kinds(stepped.until_wait()) == [CollectEvents, AnswerQuestions, Wait]


def test_a_delivery_that_has_work_is_tended_and_may_publish_once_nothing_flies(stepped: Stepped) -> None:
    stepped.delivery.has_work = True
    assert {AdvanceDelivery, PublishIfDue} & set(kinds(stepped.until_wait())) == {AdvanceDelivery}
    stepped.comes_back()
    assert kinds(stepped.until_wait()) == [CollectEvents, AdvanceDelivery, CollectResults, Save, PublishIfDue, Wait]


def test_what_is_taken_back_counts_as_given_back_once_it_is_saved(stepped: Stepped) -> None:
    """Its file may have got another name meanwhile, which the next start has to know."""
    stepped.until_wait()
    split = stepped.flying[0]
    stepped.delivery.has_work = True
    stepped.answers[AdvanceDelivery] = lambda _: (SplitResult(split, split.offset),)
    stepped.answers[Save] = lambda _: RetriableError("no room")
    stepped.until_wait()
    stepped.answers[AdvanceDelivery] = lambda _: None
    assert stepped.source.finished == [FOUND]
    stepped.answers[Save] = lambda _: 0.0
    while len(stepped.source.finished) < 2:
        stepped.until_wait()
    assert stepped.source.finished[1] == Changes(offsets={PARTITION: split.offset})


def test_a_run_to_the_end_ends_when_everything_is_read(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, until_idle=True)
    stepped.until_wait()
    stepped.comes_back()
    effects = stepped.until_wait()
    stepped.hears()
    while Close not in kinds(effects):
        effects += stepped.until_wait()
    assert kinds(effects).count(SaveLast) == 1


OTHER = Split(SourcePartition("app", "other"), "/logs/other", "/logs/other", SourceOffset(0), 50)


@pytest.fixture
def growing() -> Growing:
    return Growing()


@pytest.fixture
def staying(tmp_path: Path, growing: Growing) -> Iterator[Stepped]:
    """One whose batch may stay, and is under way."""
    stepped = Stepped(tmp_path, growing)
    (submitted,) = [effect for effect in stepped.until_wait() if isinstance(effect, Submit)]
    assert submitted.follow_seconds > 0
    yield stepped
    stepped.end()


def reports(stepped: Stepped) -> None:
    """The batch under way goes on, and has been read to the end of its file."""
    stepped.hears(reported=(TASK,))
    stepped.answers[CollectReport] = lambda _: tuple(settled(split) for split in stepped.flying)


def test_what_is_to_be_read_joins_a_batch_that_stays_once_it_has_reported(staying: Stepped, growing: Growing) -> None:
    growing.waiting = [OTHER]
    staying.hears()
    assert {Join, RequestSettle}.isdisjoint(kinds(staying.until_wait())), "it may stay, or not"
    reports(staying)
    effects = staying.until_wait()
    assert Join(TASK, (OTHER,)) in effects
    assert kinds(effects).index(Save) < kinds(effects).index(Join)
    assert RequestSettle not in kinds(effects)


def test_a_batch_that_stays_makes_room_for_what_cannot_join_it(staying: Stepped, growing: Growing) -> None:
    growing.waiting, growing.may_join = [OTHER], False
    reports(staying)
    assert RequestSettle(TASK) in staying.until_wait()
    staying.hears()
    assert {Join, RequestSettle}.isdisjoint(kinds(staying.until_wait())), "it is asked once"
    growing.may_join = True
    assert {Join, RequestSettle}.isdisjoint(kinds(staying.until_wait())), "nothing joins what is asked to end"


def test_a_batch_that_stays_makes_room_for_what_cannot_join_it_though_others_do(staying: Stepped, growing: Growing) -> None:
    growing.waiting, growing.is_stuck = [OTHER], True
    reports(staying)
    effects = staying.until_wait()
    assert Join(TASK, (OTHER,)) in effects
    assert RequestSettle(TASK) in effects


def test_a_batch_that_does_not_report_makes_room_in_time(staying: Stepped, growing: Growing) -> None:
    growing.waiting = [OTHER]
    staying.hears()
    rounds = 0
    while RequestSettle(TASK) not in staying.until_wait():
        rounds += 1
        assert rounds < 1_000
    assert staying.now >= BEGIN + FIRST_REPORT_SECONDS


def test_nothing_joins_while_something_is_unsaved(staying: Stepped, growing: Growing) -> None:
    growing.waiting = [OTHER]
    staying.answers[Save] = lambda _: RetriableError("no room")
    reports(staying)
    assert Join not in kinds(staying.until_wait())
    assert growing.waiting == [OTHER]
