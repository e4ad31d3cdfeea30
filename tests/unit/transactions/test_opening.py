"""The driver's half, step by step: what is fenced, read, refused, taken over and published, and that nothing is left over."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from copycat_agent.errors import CopiedError, CopycatError, FencedError, PositionsError, RetriableError
from copycat_agent.model import Head, LaneId, LaneOutcome, LanePlan, OffsetsPartition, Position, SourceOffset, SourcePartition
from copycat_agent.transactions import checks
from copycat_agent.transactions.entries import head_entry, read
from copycat_agent.transactions.lane_writer import LaneWriter
from copycat_agent.transactions.opening import LaneGroup, LaneSnapshot, OpeningPlan, open_lanes
from copycat_agent.transactions.protocol import perform
from tests.unit.transactions.broker import Record
from tests.unit.transactions.test_writing import PLACE, World

OLD = OffsetsPartition("__copycat_offsets", 1)


def ask(known: Mapping[int, Head] | None = None, lanes: int = 1, **rest: Any) -> OpeningPlan:
    asked = OpeningPlan("u", LaneGroup("c", PLACE, known or {}), tuple(range(lanes)), "n", frozenset(["n"]))
    return replace(asked, **rest)


def opened(world: World, asked: OpeningPlan) -> LaneSnapshot:
    return perform(open_lanes(asked), world)


def at(key: str, connector: str = "c") -> SourcePartition:
    return SourcePartition(connector, key)


def told(truth: LaneSnapshot | Iterable[Position]) -> dict[str, int]:
    some = truth.positions if isinstance(truth, LaneSnapshot) else truth
    return {one.partition.key: one.offset.position for one in some if isinstance(one.offset, SourceOffset)}


def commit(world: World, heads: Mapping[int, Head], number: int, rows: Mapping[str, int], **where: Any) -> Head:
    """A batch of one lane."""
    plan = LanePlan(LaneId(where.get("agent", "u"), where.get("connector", "c"), number), heads[number], where.get("place", PLACE))
    writer = LaneWriter()
    handle = perform(writer.begin(plan), world)
    positions = [Position(at(key, plan.lane.key), number, plan.head.seq + 1, SourceOffset(n)) for key, n in rows.items()]
    outcome: LaneOutcome = perform(writer.finish(plan, handle, positions), world)
    assert outcome.state == "committed"
    perform(writer.rest(), world)
    return outcome.head


def topic(world: World, connector: str = "c", place: OffsetsPartition = PLACE) -> dict[str, int]:
    """What somebody finds who has nothing but the topic."""
    world.settle()
    records = world.broker.log(place).records
    return told(read([one.value for one in records if one.state == "committed"], "u", connector).positions)


def test_the_order_is_fence_read_claim_see() -> None:
    world = World()
    truth = opened(world, ask())
    assert world.done == [
        "cluster_id",
        "prepare",
        "prepare",
        "ready",
        "ready",
        "end",
        "replay",
        "begin",
        "send",
        "flush",
        "commit",
        "end",
        "replay",
        "close",
        "close",
    ]
    assert truth == LaneSnapshot("c1", {0: Head(1, "n", 0)}, ())


def test_what_sqlite_does_not_have_is_found_in_the_order_of_the_topic() -> None:
    world = World()
    heads = opened(world, ask(lanes=2)).heads
    first = commit(world, heads, 0, {"f": 5, "g": 1})
    commit(world, heads, 1, {"f": 9})
    assert told(opened(world, ask())) == {"f": 9, "g": 1}
    assert [one.offset for one in opened(world, ask(heads, lanes=2)).positions] == list(map(SourceOffset, [5, 1, 9]))
    assert told(opened(world, ask({**heads, 0: first}))) == {"f": 9}


def test_lanes_that_only_the_topic_knows_are_fenced_and_claimed_as_well() -> None:
    world = World()
    opened(world, ask(lanes=3))
    truth = opened(world, ask())
    assert {number: head.seq for number, head in truth.heads.items()} == {0: 2, 1: 2, 2: 2}


def test_many_lanes_are_taken_over_a_few_at_a_time() -> None:
    world, most = World(), 0
    for _ in range(2):
        lines = open_lanes(ask(lanes=64))
        step = next(lines)
        try:
            while True:
                step = lines.send(getattr(world, step.name)(*step.arguments))
                most = max(most, len(world.open_producers()))
        except StopIteration as end:
            truth = end.value
    assert most == 16
    assert [truth.heads[n].seq for n in range(64)] == [2] * 64


def test_one_lane_is_opened_again_and_the_others_work_on() -> None:
    world = World()
    heads = opened(world, ask(lanes=2)).heads
    writer, plan = LaneWriter(), LanePlan(LaneId("u", "c", 1), heads[1], PLACE)
    handle = perform(writer.begin(plan), world)
    commit(world, heads, 0, {"f": 5})
    truth = opened(world, ask({0: heads[0]}, only=frozenset([0])))
    assert (told(truth), {n: head.seq for n, head in truth.heads.items()}) == ({"f": 5}, {0: 3})
    assert perform(writer.finish(plan, handle, [Position(at("g"), 1, 2, SourceOffset(7))]), world).state == "committed"
    assert told(opened(world, ask({0: truth.heads[0]}, only=frozenset([0])))) == {}


@pytest.mark.parametrize("step", range(30))
@pytest.mark.parametrize("error", [RetriableError("x"), FencedError("y")], ids=["lost", "fenced"])
def test_whichever_step_fails_no_producer_is_left_and_the_next_opening_finds_it_all(step: int, error: Exception) -> None:
    world = World()
    heads = opened(world, ask(lanes=2)).heads
    commit(world, heads, 1, {"f": 5})
    world.done.clear()
    world.fail_at, world.error = step, error
    try:
        truth = opened(world, ask(heads, lanes=2))
    except CopycatError:
        world.fail_at = -1
        assert world.open_producers() == []
        truth = opened(world, ask(heads, lanes=2))
    assert world.open_producers() == []
    assert told(truth) == {"f": 5}


def test_a_topic_that_is_behind_is_refused_with_the_ways_out() -> None:
    world = World()
    with pytest.raises(PositionsError) as refused:
        opened(world, ask({0: Head(7, "n", 3)}))
    assert str(refused.value) == (
        "lane 0 of connector c is at step 7 here, and at 0 in partition 0 of __copycat_offsets: the topic was emptied, made anew, or has"
        " lost acknowledged records; go on from the positions of this host: copycat offsets adopt c; from those of the topic, which sends"
        " what is behind them again: copycat offsets adopt c --from-topic; read everything again: copycat offsets reset c"
    )
    assert world.open_producers() == []


def test_adopting_makes_the_topic_complete_and_steps_never_go_back() -> None:
    world = World()
    opened(world, ask())
    commit(world, {0: Head(1, "n", 0)}, 0, {"gone": 3, "f": 1})
    rows = ((at("f"), SourceOffset(5)), (at("g"), SourceOffset(6)))
    truth = opened(world, ask({0: Head(7, "n", 3)}, adopt="local", publish=rows))
    assert (truth.heads[0].seq, truth.positions) == (9, ())
    assert topic(world) == {"f": 5, "g": 6}


def test_adopting_the_topic_takes_all_that_it_has() -> None:
    world = World()
    commit(world, opened(world, ask()).heads, 0, {"f": 5})
    truth = opened(world, ask({0: Head(7, "n", 3)}, adopt="topic"))
    assert (told(truth), truth.heads[0].seq) == ({"f": 5}, 8)


def test_another_cluster_is_refused_unless_it_is_adopted() -> None:
    world = World()
    with pytest.raises(PositionsError, match="belong to Kafka cluster other, and this one is c1"):
        opened(world, ask(cluster="other"))
    with pytest.raises(PositionsError):
        opened(world, ask(cluster="other", adopt="topic"))
    assert opened(world, ask({0: Head(3, "n", 900)}, cluster="other", adopt="local")).cluster == "c1"


def test_a_copy_is_refused_and_told_what_it_has_committed_itself() -> None:
    world = World()
    heads = opened(world, ask(nonce="mine", nonces=frozenset(["n", "mine"]))).heads
    commit(world, heads, 0, {"f": 5})
    copy = opened(world, ask(heads, nonce="copy", nonces=frozenset(["n", "mine", "copy"])))
    commit(world, copy.heads, 0, {"g": 6})
    with pytest.raises(CopiedError, match="this host, or its state directory, is a copy") as refused:
        opened(world, ask(heads, nonce="mine", nonces=frozenset(["n", "mine"])))
    assert told(refused.value.positions) == {"f": 5}  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(refused.value)).positions == refused.value.positions
    assert "copycat offsets adopt c --from-topic" in refused.value.hint
    assert world.open_producers() == []


def test_a_new_name_takes_over_everything_and_the_topic_is_complete_at_once() -> None:
    world = World()
    old = opened(world, ask(lanes=2)).heads
    first = commit(world, old, 0, {"f": 5})
    commit(world, old, 1, {"g": 6})
    asked = ask(lanes=1, before=(LaneGroup("c", PLACE, {**old, 0: first}),))
    asked = replace(asked, lanes=LaneGroup("new", OLD), publish=((at("f", "new"), SourceOffset(5)), (at("e", "new"), SourceOffset(4))))
    truth = opened(world, asked)
    assert (told(truth), list(truth.heads)) == ({"g": 6}, [0])
    assert {one.partition.connector for one in truth.positions} == {"new"}
    assert topic(world, "new", OLD) == {"e": 4, "f": 5, "g": 6}
    with pytest.raises(FencedError):
        commit(world, old, 1, {"g": 8})


def test_what_the_new_name_says_outranks_what_the_old_one_said() -> None:
    world = World()
    commit(world, opened(world, ask()).heads, 0, {"f": 5})
    asked = OpeningPlan("u", LaneGroup("new", OLD), (0,), "n", frozenset(["n"]), before=(LaneGroup("c", PLACE),))
    heads = opened(world, asked).heads
    commit(world, heads, 0, {"f": 9}, connector="new", place=OLD)
    assert told(opened(world, asked)) == {"f": 9}


def test_the_work_of_an_agent_whose_state_is_gone_is_taken_over() -> None:
    world = World()
    other = OpeningPlan("gone", LaneGroup("c", OLD), (0, 1), "theirs", frozenset(["theirs"]))
    heads = opened(world, other).heads
    commit(world, heads, 1, {"f": 5}, agent="gone", place=OLD)
    truth = opened(world, ask(before=(LaneGroup("c", OLD, agent="gone"),), adopt="topic"))
    assert (told(truth), list(truth.heads)) == ({"f": 5}, [0])
    assert topic(world) == {"f": 5}
    with pytest.raises(FencedError):
        commit(world, heads, 0, {"f": 6}, agent="gone", place=OLD)


def test_a_place_that_sqlite_has_wrong_is_looked_through_from_its_beginning() -> None:
    world = World()
    heads = opened(world, ask()).heads
    commit(world, heads, 0, {"f": 5})
    assert told(opened(world, ask({0: heads[0]._replace(offset=4)}))) == {"f": 5}


def test_an_entry_of_a_newer_version_ends_the_opening() -> None:
    world = World()
    opened(world, ask())
    record = world.broker.log(PLACE).records[0]
    record.value = record.value._replace(value=b'{"v":2}')
    with pytest.raises(PositionsError, match="offset 0 of the offsets topic was written by another version"):
        opened(world, ask())
    assert world.open_producers() == []


def test_one_lane_tells_what_has_changed_without_a_batch() -> None:
    world = World()
    heads = opened(world, ask(lanes=2)).heads
    heads = {**heads, 0: commit(world, heads, 0, {"f": 5, "gone": 6})}
    publish = ((at("f"), SourceOffset(5, path="moved")), (at("new"), SourceOffset(7)), (at("gone"), None))
    truth = opened(world, ask({0: heads[0]}, only=frozenset([0]), publish=publish))
    assert (truth.heads[0].seq, truth.positions, topic(world)) == (4, (), {"f": 5, "new": 7})


def cut_off(world: World) -> None:
    """Who asks is shown what is there now, whatever comes to it from now on."""
    world.settle()
    world.broker.cut_off(PLACE.topic, 1000)
    world.broker.is_reached_by_asker = True


def test_an_opening_that_is_not_shown_all_is_to_be_done_again_and_then_finds_all() -> None:
    world = World()
    heads = opened(world, ask()).heads
    cut_off(world)
    world.broker.is_reached_by_asker = False
    last = heads
    for n in range(5, 9):
        last = {0: commit(world, last, 0, {f"f{n}": n})}
    world.broker.is_reached_by_asker = True
    with pytest.raises(RetriableError, match="was not shown as it is when lane 0 of connector c was opened") as caught:
        opened(world, ask(heads))
    assert "it is tried again by itself" in caught.value.hint
    assert world.open_producers() == []
    world.broker.is_reached_by_asker = False
    truth = opened(world, ask(heads))
    assert told(truth) == {f"f{n}": n for n in range(5, 9)}
    assert truth.heads[0].seq == last[0].seq + 1, "the claim that was not seen does not lead back"


def test_nothing_is_published_by_who_is_not_shown_all() -> None:
    world = World()
    heads = opened(world, ask()).heads
    cut_off(world)
    world.broker.is_reached_by_asker = False
    commit(world, heads, 0, {"f": 5})
    world.broker.is_reached_by_asker = True
    asked = OpeningPlan("u", LaneGroup("new", OLD), (0,), "n", frozenset(["n"]), before=(LaneGroup("c", PLACE, heads),))
    with pytest.raises(RetriableError):
        opened(world, replace(asked, publish=((at("f", "new"), SourceOffset(0)),)))
    assert (topic(world), topic(world, "new", OLD)) == ({"f": 5}, {})


class Between(World):
    """A world in which something happens behind a step, or which answers something else."""

    def __init__(self, behind: Callable[[Between, str, Any], Any]) -> None:
        super().__init__()
        self.behind = behind

    def __getattr__(self, name: str) -> Any:
        step = super().__getattr__(name)
        return lambda *arguments: self.behind(self, name, step(*arguments))


@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_other_lanes_may_go_on_while_one_is_opened_again(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "AT_ONCE", at_once)
    heads: dict[int, Head] = {}

    def works_on(world: Between, step: str, answer: Any) -> Any:
        if step in {"replay", "commit"} and heads and heads[1].seq < 9:
            world.behind = lambda *told: told[-1]
            heads[1] = commit(world, heads, 1, {"g": heads[1].seq})
            world.behind = works_on
        return answer

    world = Between(works_on)
    heads |= opened(world, ask(lanes=2)).heads
    assert opened(world, ask({0: heads[0]}, only=frozenset([0]))).heads[0].seq == 2
    assert heads[1].seq > 2


@pytest.mark.parametrize(("number", "only"), [(0, frozenset()), (0, frozenset([0])), (1, frozenset())])
def test_a_step_that_was_not_shown_is_missed_and_so_is_a_lane_that_nobody_knew_of(number: int, only: frozenset[int]) -> None:
    def hides(world: Between, step: str, answer: Any) -> Any:
        records = world.broker.log(PLACE).records
        if step == "replay" and not records:
            records.append(Record(head_entry(LaneId("u", "c", number), Head(1, "n")), "committed"))
        return answer

    with pytest.raises(RetriableError, match=f"when lane {number} of connector c was opened"):
        opened(Between(hides), ask(only=only))


def test_who_claims_the_last_lanes_has_to_be_shown_what_those_before_were_claimed_at() -> None:
    ends: list[int] = []

    def is_cut_off_in_the_second_round(_: Between, step: str, answer: Any) -> Any:
        ends.extend([answer] if step == "end" else [])
        if len(ends) != 2:
            return answer
        return {"end": 1, "replay": []}.get(step, answer)

    world = Between(lambda *told: told[-1])
    commit(world, opened(world, ask(lanes=8)).heads, 0, {"f": 5})
    world.behind = is_cut_off_in_the_second_round
    with pytest.raises(RetriableError, match="was not shown as it is"):
        opened(world, ask(lanes=12))
