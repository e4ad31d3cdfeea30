"""What becomes of a batch in a lane, whatever goes wrong in it: the outcome, the results, and what is committed. No broker is needed."""

from __future__ import annotations

import errno
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from copycat_agent import failpoints
from copycat_agent.batch import run
from copycat_agent.batch.run import Budget
from copycat_agent.delivery.exactly_once import task as lanes
from copycat_agent.errors import BlockedError, DataError, FatalError, FencedError, FileError, RefusedError, RetriableError
from copycat_agent.executor import run_batch
from copycat_agent.model import Counts, SourceOffset, SourcePartition
from copycat_agent.producer import producer_pool
from copycat_agent.sources.files.reading.stream import Stream
from tests.unit.batch.fake_lane import FakeBroker, FakeLane, FakeProducer
from tests.unit.batch.rig import append, batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.model import Batch, Split, SplitResult
    from copycat_agent.producer import Message, ProducerPool

ERRORS = {"tolerance": "all", "dlq": {"topic": "dlq"}}


class World:
    """A broker, a lane, a process."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.lane = FakeLane(self.broker)
        self.producers = self.broker.producers()

    def run(
        self, *splits: Split, also: Any = (), stopping: Callable[[], bool] = never, producers: ProducerPool | None = None, **how: Any
    ) -> tuple[SplitResult, ...]:
        most = {name: how.pop(name) for name in ("max_records", "max_bytes", "samples") if name in how}
        batch = replace(batch_of(definition("x:1", "t", **how), *splits, **most), delivery=self.lane.plan(also))
        return run_batch(pickle.loads(pickle.dumps(batch)), producers or self.producers, stopping)

    def state(self, *splits: Split, **how: Any) -> tuple[str, tuple[SplitResult, ...]]:
        results = self.run(*splits, **how)
        return self.lane.heard(results).state, results


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_committed_is_records_positions_counts_and_head(world: World, tmp_path: Path) -> None:
    one, two = split_of(write(tmp_path / "1", b"a", b"bad", b"c")), split_of(write(tmp_path / "2", b"d"))
    state, results = world.state(one, two, drop="bad", samples=2)
    assert (state, world.broker.values) == ("committed", [b"a", b"c", b"d"])
    assert [sample.value for sample in results[0].samples] == [b"a", b"c"]
    found = world.lane.found()
    assert found.heads[0][:2] == world.lane.head[:2]
    assert [(position.offset, position.counts) for position in found.positions] == [(result.offset, result.counts) for result in results]
    assert results[0].counts == Counts(read=3, read_bytes=8, acknowledged=2, dropped=1)


def test_records_that_are_dropped_on_purpose_move_positions(world: World, tmp_path: Path) -> None:
    state, (result,) = world.state(split_of(write(tmp_path / "f", b"a", b"b")), drop="a|b")
    assert (state, world.broker.values, result.offset.position) == ("committed", [], 4)
    assert [position.offset for position in world.lane.found().positions] == [result.offset]


def test_a_batch_with_nothing_to_say_is_idle_and_costs_one_transaction_for_all_of_them(world: World, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"unfinished")
    for _ in range(3):
        assert world.state(split_of(path))[0] == "idle"
    append(path, b"\n")
    assert world.state(split_of(path))[0] == "committed"
    assert (world.broker.transactions, world.broker.values) == (1, [b"unfinished"])


def test_what_the_driver_changed_by_itself_goes_along_also_alone(world: World, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"unfinished")
    known, forgotten = SourcePartition("app", "known"), SourcePartition("app", "forgotten")
    state, _ = world.state(split_of(path), also=((known, SourceOffset(7)), (forgotten, None)))
    found = world.lane.found()
    assert state == "committed"
    assert [(one.partition, one.offset) for one in found.positions] == [(known, SourceOffset(7))]
    assert [one.key for one in world.broker.log if one.value is None] == [b'["agent", "app", "position", "forgotten"]']


def test_a_stale_plan_commits_nothing(world: World, tmp_path: Path) -> None:
    split = split_of(write(tmp_path / "f", b"a"))
    assert world.state(split)[0] == "committed"
    before = world.lane.head
    world.lane.move()
    world.lane.head = before
    state, (result,) = world.state(split)
    assert state == "unknown"
    assert isinstance(result.error, FencedError)
    assert world.broker.values == [b"a"]


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "Too many open files"), RuntimeError("can't start new thread")])
def test_what_the_host_lacks_for_a_moment_undoes_a_batch_that_is_tried_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    split = split_of(write(tmp_path / "f", b"a"))
    with monkeypatch.context() as patch:
        patch.setattr(Budget, "take", mock.Mock(side_effect=error))
        state, (result,) = world.state(split)
    assert (state, type(result.error)) == ("undone", RetriableError)
    assert str(result.error).startswith("this host ")
    assert world.state(split)[0] == "committed"
    assert world.broker.values == [b"a"]


def test_another_process_that_has_taken_the_lane_makes_it_unknown(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"a")
    (first,) = world.run(split_of(path))
    planned = world.lane.plan()
    world.lane.heard((first,))
    other = world.broker.producers()
    assert world.lane.heard(world.run(split_of(path), producers=other)).state == "committed"
    late = replace(batch_of(definition("x:1", "t"), split_of(path)), delivery=planned)
    (result,) = run_batch(late, world.producers, never)
    assert result.outcome is not None
    assert result.outcome.state == "unknown"
    assert world.broker.values == [b"a", b"a"]


STEPS = {
    "ready": "undone", "begin": "undone", "produce": "undone", "flush_records": "undone", "send": "undone", "flush": "undone",
    "commit": "unknown", "answer": "unknown",
}  # fmt: skip


@pytest.mark.parametrize(("step", "state"), STEPS.items())
@pytest.mark.parametrize("error", [RetriableError("no answer"), BlockedError("not allowed"), FencedError("taken")])
def test_a_step_that_fails_moves_nothing_and_the_next_batch_goes_on(
    world: World, tmp_path: Path, step: str, state: str, error: RetriableError
) -> None:
    path, other = write(tmp_path / "f", b"a", b"b"), write(tmp_path / "g", b"c")
    world.broker.fails = [(step, error)]
    found, results = world.state(split_of(path), split_of(other))
    assert found == ("unknown" if isinstance(error, FencedError) else state)
    assert [type(result.error) for result in results] == [type(error)] * 2
    assert [result.at_end for result in results] == [False, False]
    if step == "answer":
        assert world.broker.values == [b"a", b"b", b"c"]
        return
    assert world.broker.values == []
    assert world.state(split_of(path), split_of(other))[0] == "committed"
    assert world.broker.values == [b"a", b"b", b"c"]


def test_a_next_producer_that_is_not_ready_costs_the_next_batch_a_look_at_the_head(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"a")
    assert world.state(split_of(path))[0] == "committed"
    world.broker.fails = [("ready", RetriableError("slow"))]
    assert world.state(split_of(path))[0] == "committed"
    assert world.state(split_of(path))[0] == "committed"


@pytest.mark.parametrize("name", ["begun", "sending", "positions-sent", "committed"])
def test_a_failpoint_that_fails_is_never_taken_for_a_commit(world: World, tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "f", b"a")
    with failpoints.armed(f"{name}:error"):
        state, (result,) = world.state(split_of(path))
    assert state == {"begun": "idle", "committed": "unknown"}.get(name, "undone")
    assert isinstance(result.error, RetriableError)
    assert world.broker.values == ([b"a"] if name == "committed" else [])
    if name != "committed":
        assert world.state(split_of(path))[0] == "committed"


def test_a_bad_record_commits_what_stands_before_it_and_comes_along(world: World, tmp_path: Path) -> None:
    split = split_of(write(tmp_path / "f", b"ok", b"\xff"))
    state, (result,) = world.state(split, steps=[{"json": {}}])
    assert state == "idle"  # "ok" is no JSON either
    assert isinstance(result.error, FatalError)
    split = split_of(write(tmp_path / "g", b'{"a":1}', b"bad"))
    state, (result,) = world.state(split, steps=[{"json": {}}])
    assert (state, world.broker.values, result.offset.position) == ("committed", [b'{"a":1}'], 8)
    assert isinstance(result.error, FatalError)


def test_dead_letters_are_in_the_transaction(world: World, tmp_path: Path) -> None:
    split = split_of(write(tmp_path / "f", b'{"a":1}', b"bad"))
    state, (result,) = world.state(split, steps=[{"json": {}}], errors=ERRORS)
    assert (state, world.broker.values) == ("committed", [b'{"a":1}', b"bad"])
    assert (result.counts.dead_lettered, result.offset.position) == (1, 12)


def test_a_record_that_the_client_refuses_on_the_spot_becomes_a_dead_letter(world: World, tmp_path: Path) -> None:
    world.broker.refuses_at_once = lambda message: DataError("too large") if message[:2] == ("t", b"bad") else None
    state, (result,) = world.state(split_of(write(tmp_path / "f", b"a", b"bad", b"c")), errors=ERRORS)
    assert (state, world.broker.values, result.counts.dead_lettered) == ("committed", [b"a", b"bad", b"c"], 1)


def test_a_stop_request_commits_what_is_sent(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "f", *[b"x" * 99] * 30_000)
    state, (result,) = world.state(split_of(path), stopping=lambda: any(one.has_sent for one in world.broker.owners.values()))
    assert state == "committed"
    assert 0 < result.offset.position < path.stat().st_size
    assert len(world.broker.committed) == result.offset.records


def test_a_stop_request_before_anything_is_idle(world: World, tmp_path: Path) -> None:
    assert world.state(split_of(write(tmp_path / "f", b"a")), stopping=lambda: True)[0] == "idle"


@pytest.mark.parametrize(
    ("error", "state", "is_told"),
    [(RetriableError("stopped"), "undone", False), (BlockedError("not allowed"), "undone", True), (FencedError("taken"), "unknown", True)],
)
def test_a_stop_that_comes_before_the_lane_is_ready_is_no_trouble(
    world: World, tmp_path: Path, error: RetriableError, state: str, *, is_told: bool
) -> None:
    world.broker.fails = [("ready", error)]
    found, (result,) = world.state(split_of(write(tmp_path / "f", b"a")), stopping=lambda: True)
    assert (found, result.error is not None, result.at_end) == (state, is_told, False)
    assert world.state(split_of(tmp_path / "f"))[0] == "committed"
    assert world.broker.values == [b"a"]


def test_a_file_that_is_not_there_does_not_hold_up_the_others(world: World, tmp_path: Path) -> None:
    gone = split_of(write(tmp_path / "gone", b"x"))
    (tmp_path / "gone").unlink()
    state, results = world.state(gone, split_of(write(tmp_path / "f", b"a")))
    assert (state, world.broker.values) == ("committed", [b"a"])
    assert isinstance(results[0].error, FileError)
    assert results[1].error is None


def test_a_file_that_breaks_off_after_it_was_sent_is_left_out_and_nothing_of_it_is_committed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    still = Stream.is_still

    def breaks(self: Stream, position: int) -> bool:
        if self._split.path.endswith("bad") and self._intact == position:
            msg = "it cannot be read"
            raise FileError(msg)
        return still(self, position)

    monkeypatch.setattr(Stream, "is_still", breaks)
    splits = [split_of(write(tmp_path / name, name.encode())) for name in ("1", "bad", "2")]
    state, results = world.state(*splits)
    assert (state, world.broker.values) == ("committed", [b"1", b"2"])
    assert [type(result.error) for result in results] == [type(None), FileError, type(None)]
    assert results[1].offset == splits[1].offset
    assert world.broker.transactions == 2


def test_a_file_that_is_cut_while_it_is_read_counts_as_far_as_it_was_its_own(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUN_BYTES", 2**19)
    path = write(tmp_path / "f", *[b"%07d" % number for number in range(400_000)])
    other = write(tmp_path / "g", b"other")
    sent = FakeProducer.send
    cuts: list[int] = []

    def cut(self: FakeProducer, topic: str, values: list[bytes], tail: Message) -> None:
        sent(self, topic, values, tail)
        if self.sent > 200_000 and not cuts:
            cuts.append(1)
            path.write_bytes(b"another\n" * 500_000)  # cut, and as long again at once

    monkeypatch.setattr(FakeProducer, "send", cut)
    state, results = world.state(split_of(path), split_of(other))
    assert state == "committed"
    assert (results[0].changed, results[1].error) == (True, None)
    assert len(world.broker.committed) == results[0].offset.records + 1
    assert results[0].offset.records > 200_000
    assert world.broker.values[-2:] == [b"%07d" % (results[0].offset.records - 1), b"other"]


def test_messages_that_nobody_accounts_for_undo_the_transaction(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send = FakeProducer.send

    def twice(self: FakeProducer, topic: str, values: list[bytes], tail: Message) -> None:
        send(self, topic, [*values, b"phantom"], tail)

    monkeypatch.setattr(FakeProducer, "send", twice)
    state, (result,) = world.state(split_of(write(tmp_path / "f", b"a")))
    assert state == "undone"
    assert isinstance(result.error, FatalError)
    assert "2 messages were sent, and 1 are accounted for" in str(result.error)
    assert world.broker.values == []


def test_a_bug_while_reading_undoes_what_is_not_settled(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Budget, "take", bug)
    state, (result,) = world.state(split_of(write(tmp_path / "f", b"a")))
    assert (state, world.broker.values) == ("undone", [])
    assert "unexpected ZeroDivisionError" in str(result.error)


def test_a_bug_in_the_commit_is_unknown_and_the_lane_is_not_used_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.broker.fails = [("answer", ZeroDivisionError())]  # type: ignore[list-item]
    path = write(tmp_path / "f", b"a")
    state, (result,) = world.state(split_of(path))
    assert state == "unknown"
    assert "unexpected ZeroDivisionError" in str(result.error)
    assert world.broker.values == [b"a"]


def test_a_transaction_that_took_too_long_is_undone(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LATEST_PART", -1.0)
    state, (result,) = world.state(split_of(write(tmp_path / "f", b"a")))
    assert (state, world.broker.values) == ("undone", [])
    assert "too long" in str(result.error)


def test_reading_ends_long_before_the_transaction_would(world: World, tmp_path: Path) -> None:
    seconds = []

    def make(batch: Batch, *others: Any) -> run.BatchRun:
        seconds.append(batch.max_seconds)
        return run.BatchRun(batch, *others)

    for wanted in (5.0, 500.0):
        batch = batch_of(definition("x:1", "t"), split_of(write(tmp_path / "f", b"a")), max_seconds=wanted)
        world.lane.heard(run_batch(replace(batch, delivery=world.lane.plan()), world.producers, never, make_run=make))
    assert seconds == [5.0, 20.0]


def test_positions_that_the_offsets_topic_refuses_are_somebody_elses_to_mend(world: World, tmp_path: Path) -> None:
    world.broker.fails = [("flush", RefusedError(DataError("too large")))]
    state, (result,) = world.state(split_of(write(tmp_path / "f", b"a")))
    assert state == "undone"
    assert isinstance(result.error, BlockedError)
    assert "__copycat_offsets does not take a position" in str(result.error)


def test_a_definition_that_cannot_be_read_is_told_before_anything_begins(world: World, tmp_path: Path) -> None:
    batch = replace(batch_of(definition("x:1", "t"), split_of(write(tmp_path / "f", b"a"))), delivery=world.lane.plan())
    results = run_batch(replace(batch, definition=b"nonsense"), world.producers, never)
    assert world.lane.heard(results).state == "undone"
    assert results[0].error is not None


def test_an_idle_lane_is_closed_and_the_next_batch_reads_the_head(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "f", b"a")
    assert world.state(split_of(path))[0] == "committed"
    monkeypatch.setattr(producer_pool, "LANE_IDLE_SECONDS", 0.0)
    world.producers.poll_idle()
    assert all(one.is_closed for one in world.broker.owners.values())
    assert world.state(split_of(path))[0] == "committed"
    world.producers.close()
    assert all(one.is_closed for one in world.broker.owners.values())


def test_every_producer_is_closed_in_the_end_whatever_happened(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"a")
    made: list[FakeProducer] = []
    for step in ("begin", "produce", "flush_records", "send", "flush", "commit", "answer"):
        world.broker.fails = [(step, RetriableError("no"))]
        world.state(split_of(path))
        made += world.broker.owners.values()
        world.lane.head = world.lane.found().heads[0]
    world.producers.close()
    assert all(one.is_closed for one in made)
