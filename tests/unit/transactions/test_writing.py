"""The task's half, step by step: what is asked of the broker in which order, and that nothing is left over whichever step fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from copycat_agent.errors import CopycatError, FencedError, RetriableError
from copycat_agent.model import Head, LaneId, LaneOutcome, LanePlan, OffsetsPartition, Position, SourceOffset, SourcePartition
from copycat_agent.transactions.lane_writer import LaneWriter
from copycat_agent.transactions.opening import LaneGroup, OpeningPlan, open_lanes
from copycat_agent.transactions.protocol import Procedure, Step, perform
from tests.unit.transactions.broker import WAIT, Broker, Producer

LANE = LaneId("u", "c", 0)
PLACE = OffsetsPartition("__copycat_offsets", 0)
LINES = OffsetsPartition("lines", 0)


class World:
    """A broker whose steps are noted, waits included, and one of which can be made to fail."""

    def __init__(self) -> None:
        self.broker = Broker(random.Random(1))
        self.done: list[str] = []
        self.fail_at = -1
        self.error: Exception = RetriableError("made to fail")

    def __getattr__(self, name: str) -> Any:
        def step(*arguments: Any) -> Any:
            self.done.append(name)
            if len(self.done) - 1 == self.fail_at and name != "close":
                raise self.error
            while (answer := getattr(self.broker, name)(*arguments)) is WAIT:
                self.settle()
            return answer

        return step

    def settle(self) -> None:
        """Markers are written."""
        for tid, one in self.broker.ids.items():
            while one.state in ("committed", "aborted"):
                self.broker.write_marker(tid)

    def open_producers(self) -> list[Producer]:
        return [one for one in self.broker.producers if not one.closed]

    def lines(self) -> list[Any]:
        self.settle()
        return self.broker.log(LINES).visible()


def claimed(world: World, seq: int = 1) -> LanePlan:
    """A lane that was opened."""
    head = Head()
    for _ in range(seq):
        head = perform(open_lanes(OpeningPlan("u", LaneGroup("c", PLACE), (0,), "n", frozenset(["n"]))), world).heads[0]
    world.done.clear()
    return LanePlan(LANE, head, PLACE)


def position(plan: LanePlan, at: int = 1) -> Position:
    return Position(SourcePartition("c", "f"), 0, plan.head.seq + 1, SourceOffset(at))


def batch(world: World, writer: LaneWriter, plan: LanePlan, line: str) -> LaneOutcome:
    """As a batch does it."""
    handle = perform(writer.begin(plan), world)
    try:
        world.send(handle, LINES, [line])
    except CopycatError as error:
        return perform(writer.undo(plan, handle, error), world)
    return perform(writer.finish(plan, handle, [position(plan)]), world)


def following(plan: LanePlan, outcome: LaneOutcome) -> LanePlan:
    return LanePlan(LANE, outcome.head, PLACE)


def test_the_next_producer_is_ready_before_the_commit_and_the_head_is_read_once() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    first = batch(world, writer, plan, "a")
    assert world.done == ["prepare", "ready", "end", "replay", "begin", "prepare", "send", "send", "flush", "ready", "commit", "close"]
    world.done.clear()
    second = batch(world, writer, following(plan, first), "b")
    assert world.done == ["begin", "prepare", "send", "send", "flush", "ready", "commit", "close"]
    assert [first.head.seq, second.head.seq, world.lines()] == [2, 3, ["a", "b"]]


def test_a_batch_that_was_planned_before_somebody_else_moved_the_lane_sends_nothing() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    claimed(world)
    with pytest.raises(FencedError, match="lane 0 is at step 2, and the batch was planned at 1"):
        batch(world, writer, plan, "a")
    assert world.open_producers() == []


def test_a_step_of_another_start_is_another_step() -> None:
    world = World()
    plan = claimed(world)
    with pytest.raises(FencedError):
        batch(world, LaneWriter(), LanePlan(LANE, plan.head._replace(nonce="other"), PLACE), "a")


def test_a_producer_that_was_fenced_meanwhile_commits_nothing() -> None:
    world, writer = World(), LaneWriter()
    first = batch(world, writer, plan := claimed(world), "a")
    claimed(world)
    outcome = batch(world, writer, following(plan, first), "b")
    assert (outcome.state, world.lines()) == ("unknown", ["a"])
    assert world.open_producers() == []


def test_what_is_undone_is_undone_by_the_next_producer_of_its_id() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    handle = perform(writer.begin(plan), world)
    world.send(handle, LINES, ["a"])
    assert perform(writer.undo(plan, handle, "why"), world) == ("undone", plan.head, "why")
    assert "abort" not in world.done
    world.done.clear()
    assert batch(world, writer, plan, "b").state == "committed"
    assert world.done == ["ready", "end", "replay", "begin", "prepare", "send", "send", "flush", "ready", "commit", "close"]
    assert world.lines() == ["b"]


def test_who_was_fenced_does_not_fence_back() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    handle = perform(writer.begin(plan), world)
    assert perform(writer.undo(plan, handle, FencedError("somebody else")), world).state == "unknown"
    assert world.open_producers() == []


def test_a_batch_that_sent_nothing_leaves_its_transaction_to_the_next() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    handle = perform(writer.begin(plan), world)
    assert writer.keep(plan, handle) == LaneOutcome("idle", plan.head)
    world.done.clear()
    assert batch(world, writer, plan, "a").state == "committed"
    assert world.done == ["send", "send", "flush", "ready", "commit", "close"]


def test_a_kept_transaction_is_of_no_use_when_the_lane_has_moved() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    writer.keep(plan, perform(writer.begin(plan), world))
    assert batch(world, writer, claimed(world), "a").state == "committed"
    perform(writer.rest(), world)
    assert world.open_producers() == []


def test_a_batch_that_was_never_finished_is_dropped_by_the_next() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    perform(writer.begin(plan), world)
    assert batch(world, writer, plan, "a").state == "committed"
    perform(writer.rest(), world)
    assert (world.open_producers(), world.lines()) == ([], ["a"])


def test_a_next_producer_that_does_not_come_up_costs_the_next_batch_a_look_at_the_head() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    world.fail_at = 9
    first = batch(world, writer, plan, "a")
    assert (world.done[9], first.state) == ("ready", "committed")
    world.done.clear()
    world.fail_at = -1
    assert batch(world, writer, following(plan, first), "b").state == "committed"
    assert world.done[:5] == ["prepare", "ready", "end", "replay", "begin"]


def failures() -> Iterator[tuple[int, int, Exception]]:
    for batches in (1, 2):
        for step in range(14):
            yield from ((batches, step, error) for error in (RetriableError("x"), FencedError("y")))


@pytest.mark.parametrize(("number", "step", "error"), list(failures()))
def test_whichever_step_fails_no_producer_is_left_and_nothing_is_there_twice(number: int, step: int, error: Exception) -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    if number == 2:
        plan = following(plan, batch(world, writer, plan, "first"))
    world.done.clear()
    world.fail_at, world.error = step, error
    try:
        outcome = batch(world, writer, plan, "a")
    except CopycatError:
        outcome = LaneOutcome("unknown", plan.head)
    world.fail_at = -1
    perform(writer.rest(), world)
    assert world.open_producers() == []
    if outcome.state != "committed":
        assert world.lines().count("a") == 0
        assert outcome.head == plan.head
        again = LanePlan(
            LANE, perform(open_lanes(OpeningPlan("u", LaneGroup("c", PLACE), (0,), "n", frozenset(["n"]))), world).heads[0], PLACE
        )
        assert batch(world, writer, again, "a").state == "committed"
    assert world.lines().count("a") == 1


def test_a_commit_without_an_answer_is_unknown_although_it_happened() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    handle = perform(writer.begin(plan), world)
    world.send(handle, LINES, ["a"])
    lines = writer.finish(plan, handle, [position(plan)])
    step = next(lines)
    while step.name != "commit":
        step = lines.send(getattr(world, step.name)(*step.arguments))
    world.commit(handle)
    outcome = drain(lines, lines.throw(RetriableError("no answer")), world)
    assert (outcome.state, outcome.head, world.lines()) == ("unknown", plan.head, ["a"])
    assert world.open_producers() == []


def drain(lines: Procedure[Any], step: Step, world: World) -> Any:
    try:
        while True:
            step = lines.send(getattr(world, step.name)(*step.arguments))
    except StopIteration as end:
        return end.value


def test_a_batch_that_ends_between_two_steps_says_nothing_more() -> None:
    """As when its process is killed: no step is taken, no error is raised."""
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    for steps in range(6):
        lines = writer.begin(plan)
        step = next(lines)
        for _ in range(steps):
            step = lines.send(getattr(world, step.name)(*step.arguments))
        done = len(world.done)
        lines.close()
        assert len(world.done) == done
        perform(writer.rest(), world)
    assert world.open_producers() == []


def test_positions_of_another_step_are_a_bug() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    handle = perform(writer.begin(plan), world)
    with pytest.raises(AssertionError):
        perform(writer.finish(plan, handle, [position(plan)._replace(seq=plan.head.seq)]), world)


def test_who_reads_a_lane_need_not_read_all_that_it_ever_wrote() -> None:
    world, writer = World(), LaneWriter()
    plan = claimed(world)
    for number in range(130):
        end = world.broker.end(PLACE)
        outcome = batch(world, writer, plan, str(number))
        assert outcome.head.offset <= end
        plan = following(plan, outcome)
    assert world.broker.end(PLACE) - plan.head.offset <= 64 * 3
    assert world.done.count("end") <= 2 + 130 // 64 + 1
