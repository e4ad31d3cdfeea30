"""The simulation finds what it is there for: with any one rule of the protocol taken away, some history breaks the promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from copycat_agent.errors import CopycatError
from copycat_agent.model import Head, LaneOutcome, LanePlan, Position
from copycat_agent.transactions import opening
from copycat_agent.transactions.entries import transactional_id
from copycat_agent.transactions.opening import Opening, Truth
from copycat_agent.transactions.protocol import Handle, Lines, Step
from copycat_agent.transactions.writing import LaneWriter, _Prepared
from tests.unit.transactions.agents import Agent
from tests.unit.transactions.history import BrokenPromiseError, History
from tests.unit.transactions.test_simulation import COPIES, HISTORIES

Patch = pytest.MonkeyPatch


def open_carelessly(asked: Opening, *, reads_early: bool = False, claims: bool = True, fences_both: bool = True) -> Lines[Truth]:
    """`open_lanes`, less a rule."""
    groups = (asked.lanes,) if asked.only else (*asked.before, asked.lanes)
    cluster = yield Step("cluster_id")
    early = (yield from opening._read(asked, groups)) if reads_early else []
    todo = opening._known(asked, groups)
    handles: dict[Any, list[Handle]] = {}
    try:
        while todo:
            for lane in sorted(todo):
                yield from (opening._fence([lane], handles.setdefault(lane, [])) if fences_both else _fence_one(asked, lane, handles))
            found = early or (yield from opening._read(asked, groups))
            news = opening._check(asked, found)
            todo = opening._lanes_in(asked, found) - handles.keys()
        if claims:
            some = sorted(handles, key=lambda lane: (lane.connector == asked.lanes.connector, lane))
            pairs = {lane: (handles[lane][0], handles[lane][-1]) for lane in some}
            heads = yield from opening._claim(asked, found, pairs, opening._missing(asked, found, news))
        else:
            heads = {lane.number: found[-1][1].heads.get(lane.number, Head()) for lane in handles}
    except Exception:
        yield from opening._close([one for some in handles.values() for one in some])
        raise
    yield from opening._close([one for some in handles.values() for one in some])
    return Truth(cluster, heads, tuple(news))


def _fence_one(asked: Opening, lane: Any, handles: dict[Any, list[Handle]]) -> Lines[None]:
    """Only the id that the lane's next step would take, as far as SQLite knows."""
    handle = yield Step("prepare", (transactional_id(lane, asked.lanes.known.get(lane.number, Head()).seq),))
    handles[lane] = [handle]
    yield Step("ready", (handle,))


def nothing_at_all(patch: Patch) -> None:
    """The control: the careless opening, with all its rules."""
    patch.setattr(opening, "open_lanes", open_carelessly)


def positions_are_read_before_the_fence(patch: Patch) -> None:
    patch.setattr(opening, "open_lanes", lambda asked: open_carelessly(asked, reads_early=True))


def lanes_are_not_claimed(patch: Patch) -> None:
    patch.setattr(opening, "open_lanes", lambda asked: open_carelessly(asked, claims=False))


def one_of_two_ids_is_fenced(patch: Patch) -> None:
    patch.setattr(opening, "open_lanes", lambda asked: open_carelessly(asked, fences_both=False))


def copies_are_not_noticed(patch: Patch) -> None:
    check = opening._check

    def all_are_mine(asked: Opening, found: opening.Read) -> list[Position]:
        return check(replace(asked, nonces=frozenset(head.nonce for _, one in found for head in one.heads.values())), found)

    patch.setattr(opening, "_check", all_are_mine)


def nothing_is_published_at_once(patch: Patch) -> None:
    patch.setattr(opening, "_missing", lambda *_: [])


class Reusing:
    """A world in between, which hands a writer the producer of its last transaction with the same id once more."""

    def __init__(self, lines: Lines[Any], kept: dict[str, Handle]) -> None:
        self.lines, self.kept = lines, kept

    def go(self) -> Lines[Any]:
        """Go through the lines."""
        try:
            step = next(self.lines)
            while True:
                try:
                    answer = yield from self.do(step)
                except CopycatError as error:
                    step = self.lines.throw(error)
                else:
                    step = self.lines.send(answer)
        except StopIteration as end:
            return end.value

    def do(self, step: Step) -> Lines[Any]:
        """One step."""
        handle = step.arguments[0]
        if step.name == "prepare" and handle in self.kept:
            again = self.kept.pop(handle)
            again.used, again.failed, again.added = False, False, set()
            return again
        if step.name == "close" and handle.used and handle.epoch is not None:
            if not handle.committed:
                yield Step("abort", (handle,))
            self.kept[handle.tid] = handle
            return None
        answer = yield step
        if step.name == "commit":
            handle.committed = True
        elif step.name == "begin":
            handle.committed = False
        return answer


def producers_are_used_again(patch: Patch) -> None:
    """R2: what became of their last EndTxn is not looked at."""
    for name in ("begin", "finish", "undo"):
        whole: Callable[..., Lines[Any]] = getattr(LaneWriter, name)

        def again(self: LaneWriter, *told: Any, whole: Callable[..., Lines[Any]] = whole) -> Lines[Any]:
            kept = self.__dict__.setdefault("kept", {})
            return Reusing(whole(self, *told), kept).go()

        patch.setattr(LaneWriter, name, again)


def a_transaction_is_aborted_and_not_fenced(patch: Patch) -> None:
    """What librdkafka's abort_transaction asks for."""

    def undo(self: LaneWriter, plan: LanePlan, handle: Handle, why: Exception | str) -> Lines[LaneOutcome]:
        yield Step("abort", (handle,))
        yield from self.rest()
        return LaneOutcome("undone", plan.head, str(why))

    patch.setattr(LaneWriter, "undo", undo)


def the_next_producer_is_prepared_after_the_commit(patch: Patch) -> None:
    """And the head is not read again."""
    finish = LaneWriter.finish

    def late(self: LaneWriter, plan: LanePlan, handle: Handle, positions: Sequence[Position]) -> Lines[LaneOutcome]:
        following, self._next = self._next, None
        yield Step("close", (following,))
        outcome = yield from finish(self, plan, handle, positions)
        if outcome.state == "committed":
            following = yield Step("prepare", (transactional_id(plan.lane, outcome.head.seq),))
            try:
                yield Step("ready", (following,))
            except CopycatError:
                yield Step("close", (following,))
            else:
                self._prepared = _Prepared(outcome.head.seq, following, outcome.head)
        return outcome

    patch.setattr(LaneWriter, "finish", late)


def files_are_planned_before_the_outcome_is_known(patch: Patch) -> None:
    in_flight = Agent.in_flight

    def known(self: Agent) -> set[str]:
        doubtful = {key for order in self.flying.values() if order.recovery is not None for key in order.touched()}
        return in_flight(self) - doubtful

    patch.setattr(Agent, "in_flight", known)


def what_goes_along_is_not_in_flight(patch: Patch) -> None:
    def splits_only(self: Agent) -> set[str]:
        return {file.key for order in self.flying.values() for file, _, _ in order.splits}

    patch.setattr(Agent, "in_flight", splits_only)


def sqlite_alone_is_trusted(patch: Patch) -> None:
    save = Agent._save_truth
    patch.setattr(Agent, "_save_truth", lambda self, kept, truth: save(self, kept, truth._replace(positions=())))


CANARIES: list[tuple[Callable[[Patch], None], bool]] = [
    (a_transaction_is_aborted_and_not_fenced, False),
    (copies_are_not_noticed, True),
    (files_are_planned_before_the_outcome_is_known, False),
    (lanes_are_not_claimed, False),
    (nothing_is_published_at_once, False),
    (one_of_two_ids_is_fenced, False),
    (positions_are_read_before_the_fence, False),
    (producers_are_used_again, False),
    (sqlite_alone_is_trusted, False),
    (the_next_producer_is_prepared_after_the_commit, True),
    (what_goes_along_is_not_in_flight, False),
]
"""Each, and whether it takes two copies of an agent to find it."""


def found_in(most: int, *, copies: bool) -> int | None:
    """The first seed whose history breaks the promise, of as many as the default run goes through."""
    for seed in range(most):
        try:
            History(seed, copies=copies).run()
        except BrokenPromiseError:
            return seed
    return None


@pytest.mark.parametrize(("canary", "copies"), CANARIES, ids=[one.__name__ for one, _ in CANARIES])
def test_a_rule_that_is_left_out_is_missed(canary: Callable[[Patch], None], copies: bool, monkeypatch: Patch) -> None:
    canary(monkeypatch)
    assert found_in(COPIES if copies else HISTORIES, copies=copies) is not None


def test_the_careless_opening_with_all_its_rules_is_fine(monkeypatch: Patch) -> None:
    nothing_at_all(monkeypatch)
    assert found_in(100, copies=False) is None
