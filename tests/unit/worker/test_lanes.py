"""A connector with lanes, on an offsets topic in memory: what is saved, and how it finds out what became of a batch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from copycat_agent.delivery.exactly_once import guarantee, lane_recovery
from copycat_agent.delivery.exactly_once.driver import PACE_SECONDS
from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.model import STATE_KEY, Head, Loss, Position, SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.transactions.entries import head_entry, position_entry
from copycat_agent.worker import State, Worker, retry_policy
from copycat_agent.worker.connector_io import ConnectorIO
from copycat_agent.worker.effects import CollectEvents, Effect, Performed, SaveLast
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until
from tests.unit.worker.doubles import NO_ROOM, MoodyStore, ScriptedExecutor, definition, read_all, settled, write
from tests.unit.worker.fake_kafka import FakeKafka, gone, lane_plan, undone

if TYPE_CHECKING:
    from copycat_agent.model import Batch, LossReason, Split
    from copycat_agent.watch import Watcher
    from tests.unit.worker.doubles import Results

Run = Callable[..., Worker]
AWAY = RetriableError("no broker answers", "start it")


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka()


@pytest.fixture
def run(tmp_path: Path, store: MoodyStore, watcher: Watcher, kafka: FakeKafka) -> Iterator[Run]:
    """`run(executor, tasks_max=1, ...)` starts a worker with one exactly_once connector named app over `tmp_path / "logs"`."""
    workers: list[Worker] = []
    (tmp_path / "logs").mkdir()

    def start(executor: ScriptedExecutor, *, tasks_max: int = 1, until_idle: bool = False, **sections: Any) -> Worker:
        worker = Worker(cast("OffsetStore", store), executor, watcher, until_idle=until_idle, accounts=until_idle, make_access=kafka.world)
        workers.append(worker)
        delivery = {"guarantee": "exactly_once", "tasks_max": tasks_max, **sections.pop("delivery", {})}
        wanted = definition(tmp_path, delivery=delivery, **sections)
        worker.apply([wanted], earlier={wanted.name: wanted.renamed_from})
        return worker

    yield start
    store.fails = kafka.away = None
    for worker in workers:
        worker.stop(0.5)


def wait_state(worker: Worker, state: State) -> str:
    wait_until(lambda: worker.statuses()[0].state is state, message=lambda: f"{state}: {worker.statuses()}")
    return worker.statuses()[0].reason


def wait_saved(store: MoodyStore, path: Path, position: int) -> None:
    wait_until(lambda: store.positions().get(str(path)) == position, message=lambda: f"{position}: {store.positions()}")


def paths_of(executor: ScriptedExecutor) -> set[Path]:
    return {Path(split.path) for batch in executor.batches for split in batch.splits}


def outcomes(worker: Worker) -> dict[str, int]:
    return {name: count for name, count in worker.statuses()[0].delivery_outcomes.items() if count}


def test_offset_and_head_are_saved_when_the_transaction_is_committed(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one", "two")
    executor = ScriptedExecutor(otherwise=kafka.commits)
    worker = run(executor)
    wait_saved(store, path, size)
    wait_until(lambda: worker.statuses()[0].counts.acknowledged == size, message="the count")
    plan = lane_plan(executor.batches[0])
    assert store.lanes("app").heads[0].seq == plan.head.seq + 1
    assert outcomes(worker) == {"openings": 1, "committed": 1}
    status = worker.statuses()[0]
    assert (status.guarantee, status.cluster, status.lanes[0].seq) == ("exactly_once", "cluster", plan.head.seq + 1)


def test_the_first_batch_tells_what_the_first_look_has_found(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    wait = write(path, "one")
    executor = ScriptedExecutor(otherwise=kafka.commits)
    run(executor)
    wait_saved(store, path, wait)
    plan = lane_plan(executor.batches[0])
    assert [partition.key for partition, _ in plan.driver_rows] == [STATE_KEY]
    assert store.unpublished("app", 10) == {}


def test_what_was_not_committed_is_sent_again(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one", "two")
    executor = ScriptedExecutor(gone, otherwise=kafka.commits)
    worker = run(executor)
    wait_saved(store, path, size)
    wait_until(
        lambda: outcomes(worker) == {"openings": 2, "unknown": 1, "undone": 1, "committed": 1}, message=lambda: f"{outcomes(worker)}"
    )
    assert [batch.splits[0].offset.position for batch in executor.batches] == [0, 0]
    wait_until(lambda: worker.statuses()[0].counts.acknowledged == size, message="the count, which follows what is saved")


def test_what_was_committed_and_not_told_is_not_sent_again(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one", "two")
    executor = ScriptedExecutor(kafka.commits_and_is_gone, otherwise=kafka.commits)
    worker = run(executor)
    wait_saved(store, path, size)
    wait_until(lambda: outcomes(worker) == {"openings": 2, "unknown": 1, "committed": 1}, message=lambda: f"{outcomes(worker)}")
    assert len(executor.batches) == 1
    wait_until(lambda: worker.statuses()[0].counts.acknowledged, message="the count")
    wait_state(worker, State.RUNNING)
    status = worker.statuses()[0]
    assert (status.counts.acknowledged, status.errors) == (size, {})
    assert store.unpublished("app", 10) == {}


def test_an_outcome_that_does_not_fit_its_plan_is_not_believed(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one")

    def another_step(batch: Batch) -> Results:
        first, *rest = kafka.commits(batch)
        assert first.outcome is not None
        return replace(first, outcome=first.outcome._replace(head=Head(first.outcome.head.seq + 1, first.outcome.head.nonce))), *rest

    executor = ScriptedExecutor(another_step, otherwise=kafka.commits)
    worker = run(executor)
    wait_saved(store, path, size)
    wait_until(lambda: outcomes(worker).get("unknown") == 1, message=lambda: f"{outcomes(worker)}")
    assert len(executor.batches) == 1


def test_a_transaction_that_was_given_up_is_tried_again_without_asking(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one")
    worker = run(ScriptedExecutor(undone, otherwise=kafka.commits))
    wait_saved(store, path, size)
    wait_until(lambda: outcomes(worker) == {"openings": 1, "undone": 1, "committed": 1}, message=lambda: f"{outcomes(worker)}")


def loses(kafka: FakeKafka, why: RetriableError) -> Callable[[Batch], Results]:
    """An answer: the batch is committed, nobody hears of it, and from then on Kafka answers with this error."""

    def go(batch: Batch) -> Results:
        kafka.away = why
        kafka.take(batch)
        return gone(batch)

    return go


def test_while_one_lane_is_doubtful_the_others_go_on(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    one, two = tmp_path / "logs" / "a", tmp_path / "logs" / "b"
    write(one, "one")

    executor = ScriptedExecutor(loses(kafka, BlockedError("no broker answers", "start it")), otherwise=kafka.commits)
    worker = run(executor, tasks_max=2)
    reason = wait_state(worker, State.BLOCKED)
    assert "whether a batch of task 0 was committed is not known yet" in reason
    assert "no broker answers" in reason
    size = write(two, "other")
    wait_saved(store, two, size)
    assert executor.batches[-1].task.number == 1
    assert str(one) not in store.positions() or store.positions()[str(one)] == 0
    fenced = len(kafka.fenced)
    kafka.away = None
    wait_saved(store, one, len("one\n"))
    wait_state(worker, State.RUNNING)
    assert all(name.endswith((".0.0", ".0.1")) for name in kafka.fenced[fenced:])
    assert sum(batch.splits[0].path == str(one) for batch in executor.batches) == 1


def test_after_an_error_a_doubtful_lane_does_not_keep_the_others_from_the_next_attempt(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path
) -> None:
    one, two = tmp_path / "logs" / "a", tmp_path / "logs" / "b"
    write(one, "one")

    executor = ScriptedExecutor(loses(kafka, BlockedError("no broker answers", "start it")), undone, otherwise=kafka.commits)
    worker = run(executor, tasks_max=3)
    wait_state(worker, State.BLOCKED)
    size = write(two, "other")
    wait_saved(store, two, size)
    assert [batch.task.number for batch in executor.batches] == [0, 1, 1]
    kafka.away = None
    wait_saved(store, one, len("one\n"))


def test_a_stop_waits_for_no_answer_that_kafka_owes(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one")

    worker = run(ScriptedExecutor(loses(kafka, AWAY)))
    wait_until(lambda: outcomes(worker).get("unknown") == 1, message="the outcome is not known")
    stopping = threading.Thread(target=lambda: worker.stop(600))
    stopping.start()
    stopping.join(30)
    assert worker.statuses()[0].state is State.STOPPED
    assert not worker.statuses()[0].unsaved
    assert not store.positions().get(str(path))
    kafka.away = None
    executor = ScriptedExecutor(otherwise=kafka.commits)
    again = run(executor)
    wait_saved(store, path, size)
    wait_state(again, State.RUNNING)
    assert executor.batches == []


def test_kafka_is_waited_for_before_anything_is_read(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one")
    kafka.away = AWAY
    executor = ScriptedExecutor(otherwise=kafka.commits)
    worker = run(executor)
    assert "no broker answers" in wait_state(worker, State.RETRYING)
    assert not executor.batches
    assert store.positions() == {}
    kafka.away = None
    wait_saved(store, path, size)


def after_one_run(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> tuple[Path, int]:
    """A file, and how long it is: all of it was sent, and the worker has stopped."""
    path = tmp_path / "logs" / "a"
    size = write(path, "one")
    worker = run(ScriptedExecutor(otherwise=kafka.commits))
    wait_saved(store, path, size)
    worker.stop()
    return path, size


def test_positions_that_do_not_belong_here_need_a_person(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_one_run(run, store, kafka, tmp_path)
    kafka.log.clear()
    monkeypatch.setattr(guarantee, "DOUBT_SECONDS", 0.05)
    looks = kafka.openings
    again = run(ScriptedExecutor(otherwise=kafka.commits))
    reason = wait_state(again, State.FAILED)
    assert "copycat offsets adopt app" in reason
    assert kafka.openings >= looks + 2, "one look may be at a broker that is cut off"


def cut_off(kafka: FakeKafka, shown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this much of the topic is shown, and nobody asks again before he is told to."""
    monkeypatch.setattr(guarantee, "DOUBT_SECONDS", 3600.0)
    kafka.shown = shown


def join(kafka: FakeKafka, worker: Worker) -> None:
    kafka.shown = None
    worker.resume("app")


def test_what_a_broker_says_that_is_cut_off_is_asked_again(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, size = after_one_run(run, store, kafka, tmp_path)
    cut_off(kafka, 0, monkeypatch)
    executor = ScriptedExecutor(otherwise=kafka.commits)
    again = run(executor)
    assert "at 0 in partition" in wait_state(again, State.RETRYING)
    assert "copycat offsets adopt" not in again.statuses()[0].reason
    join(kafka, again)
    wait_state(again, State.RUNNING)
    wait_saved(store, path, write(path, "two"))
    assert executor.batches[0].splits[0].offset.position == size


def test_a_batch_that_a_broker_hides_that_is_cut_off_is_not_sent_again(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store does not know of it, so nothing contradicts what is shown, until the claim is looked for."""
    path = tmp_path / "logs" / "a"
    size = write(path, "one")
    kafka.at_step = lambda _: cut_off(kafka, 5, monkeypatch) if kafka.openings == 2 else None  # what the first opening has claimed and told
    worker = run(ScriptedExecutor(kafka.commits_and_is_gone, otherwise=kafka.commits))
    words = "was not shown as it is when lane 0 of connector app was opened"
    wait_until(lambda: words in worker.statuses()[0].reason, message=lambda: f"{worker.statuses()}")
    wait_state(worker, State.RETRYING)
    assert store.positions() != {str(path): size}
    join(kafka, worker)
    wait_saved(store, path, size)
    wait_state(worker, State.RUNNING)
    assert len([one for one in read_all_positions(kafka) if one == size]) == 1


def read_all_positions(kafka: FakeKafka) -> list[int]:
    told = (json.loads(entry.value) for entry in kafka.log if entry.value)
    return [one["offset"]["position"] for one in told if "offset" in one]


def test_a_lane_of_which_less_is_shown_than_is_known_opens_all_of_them_anew(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_policy, "RESTART_SECONDS", (0.01, 0.02))
    path = tmp_path / "logs" / "a"
    size = write(path, "one")

    def hides(batch: Batch) -> Results:
        cut_off(kafka, 0, monkeypatch)
        return gone(batch)

    worker = run(ScriptedExecutor(hides, otherwise=kafka.commits))
    wait_until(lambda: "may have said so" in worker.statuses()[0].reason, message=lambda: f"{worker.statuses()}")
    wait_state(worker, State.RETRYING)
    join(kafka, worker)
    wait_saved(store, path, size)


def test_a_topic_that_was_made_anew_with_fewer_partitions_needs_a_person(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one")
    kafka.partitions = 2**31  # the connector's is not the first
    worker = run(ScriptedExecutor(otherwise=kafka.commits))
    wait_saved(store, path, size)
    worker.stop()
    kafka.log.clear()
    kafka.partitions = 1
    again = run(ScriptedExecutor(otherwise=kafka.commits))
    reason = wait_state(again, State.FAILED)
    assert "has 1 partition: the topic was made anew" in reason
    assert "copycat offsets adopt app" in reason
    again.stop()
    store.adopt("app", "local")
    run(ScriptedExecutor(otherwise=kafka.commits))
    wait_saved(store, path, write(path, "two"))


def test_positions_that_nobody_here_has_sent_open_everything_anew(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one")

    def somebody_else(batch: Batch) -> Results:
        plan = lane_plan(batch)
        stranger = Position(SourcePartition("app", "other"), 0, plan.head.seq + 1, SourceOffset(7, path="/other"), nonce=plan.head.nonce)
        head = Head(plan.head.seq + 1, plan.head.nonce)
        kafka.append([position_entry(plan.lane.agent, plan.lane.key, stranger), head_entry(plan.lane, head)])
        return gone(batch)

    worker = run(ScriptedExecutor(somebody_else, otherwise=kafka.commits))
    wait_saved(store, path, size)
    assert store.positions()["/other"] == 7
    assert worker.statuses()[0].state is State.RUNNING


@pytest.fixture
def never_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has changed is told by batches alone, however long the next one takes."""
    monkeypatch.setattr(lane_recovery, "QUIET_SECONDS", 3600.0)


def while_a_batch_tells_of(told: Path, run: Run, store: MoodyStore, kafka: FakeKafka, *, reading: Path) -> tuple[Worker, ScriptedExecutor]:
    """Three lanes, one of them with a batch under way that reads another file, and tells of this one, of which nothing is read."""
    told.touch()
    reading.touch()
    executor = ScriptedExecutor(lambda _: None, otherwise=kafka.commits)
    worker = run(executor, tasks_max=3, source={"start_at": "end"})
    wait_state(worker, State.RUNNING)
    wait_until(lambda: str(told) in store.positions() or len(store.read("app")) >= 1, message="the first look")
    store._store.commit({SourcePartition("app", key): offset for (_, key), offset in store.read("app").items()})
    write(reading, "one")
    wait_until(lambda: executor.flying, message="a batch")
    plan = lane_plan(executor.batches[0])
    assert str(told) in {row.path for _, row in plan.driver_rows if isinstance(row, SourceOffset)}
    return worker, executor


@pytest.mark.usefixtures("never_quiet")
def test_a_file_of_which_a_batch_tells_is_read_when_that_batch_is_over(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path
) -> None:
    """Were it committed by another lane before, the older offset would come last."""
    told, read, other = (tmp_path / "logs" / name for name in "abc")
    worker, executor = while_a_batch_tells_of(told, run, store, kafka, reading=read)
    write(told, "two")
    wait_until(lambda: worker.statuses()[0].lag.files == 2, message="it is seen")
    write(other, "three")
    wait_until(lambda: other in paths_of(executor), message="the others go on")
    assert told not in paths_of(executor)
    executor.finish(executor.batches[0].task, kafka.commits(executor.batches[0]))
    wait_saved(store, told, len("two\n"))


@pytest.mark.usefixtures("never_quiet")
def test_a_newer_generation_waits_with_a_file_of_which_a_batch_tells(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    """Both are planned together, for one batch reads them in this order; and the older one has to be held."""
    told, read, other = (tmp_path / "logs" / name for name in ("app.log", "b", "c"))
    worker, executor = while_a_batch_tells_of(told, run, store, kafka, reading=read)
    with told.open("a") as late:
        older, newer = told.rename(told.with_name("app.log.1")), told
        write(newer, "three")
        late.write("two\n")
    wait_until(lambda: worker.statuses()[0].lag.files == 3, message="both are seen")
    write(other, "four")
    wait_until(lambda: other in paths_of(executor), message="the others go on")
    assert not {older, newer} & paths_of(executor)
    executor.finish(executor.batches[0].task, kafka.commits(executor.batches[0]))
    wait_saved(store, newer, len("three\n"))
    order = [split.path for batch in executor.batches for split in batch.splits if split.path in {str(older), str(newer)}]
    assert order.index(str(older)) < order.index(str(newer))


def test_a_store_that_cannot_be_written_plans_nothing_and_loses_nothing(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one")

    def disk_fills(batch: Batch) -> Results:
        store.fails = NO_ROOM
        return kafka.commits(batch)

    executor = ScriptedExecutor(disk_fills, otherwise=kafka.commits)
    worker = run(executor)
    wait_until(lambda: store.refused > 1, message="it is tried")
    worker.stop(0.1)
    store.fails = None
    executor = ScriptedExecutor(otherwise=kafka.commits)
    again = run(executor)
    wait_saved(store, path, size)
    wait_state(again, State.RUNNING)
    assert executor.batches == []


def test_heads_that_could_not_be_saved_are_saved_when_the_connector_leaves(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one")

    def disk_fills(batch: Batch) -> Results:
        store.fails = NO_ROOM
        return kafka.commits(batch)

    def somebody_makes_room(connector_io: ConnectorIO, effect: Effect) -> Performed:
        if isinstance(effect, SaveLast):
            store.fails = None
        return perform(connector_io, effect)

    perform = ConnectorIO.perform
    monkeypatch.setattr(ConnectorIO, "perform", somebody_makes_room)
    executor = ScriptedExecutor(disk_fills)
    worker = run(executor)
    wait_until(lambda: store.refused > 1, message="it is tried")
    worker.stop(0.1)
    (batch,) = executor.batches
    assert store.positions()[str(path)] == size
    assert store.lanes("app").heads[0].seq == lane_plan(batch).head.seq + 1


def test_without_lanes_kafka_is_not_asked_and_the_next_opening_goes_on_from_here(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    wait_saved_once = write(path, "one")
    first = run(ScriptedExecutor(otherwise=kafka.commits))
    wait_saved(store, path, wait_saved_once)
    first.stop()
    openings = kafka.openings
    size = write(path, "two")
    second = run(ScriptedExecutor(otherwise=read_all), delivery={"guarantee": "at_least_once"})
    wait_saved(store, path, size)
    second.stop()
    assert kafka.openings == openings
    kafka.log.clear()  # what it says does not count any more
    size = write(path, "three")
    executor = ScriptedExecutor(otherwise=kafka.commits)
    run(executor)
    wait_saved(store, path, size)
    assert executor.batches[0].splits[0].offset.position == size - len("three\n")


def test_more_and_fewer_tasks_open_every_lane_there_ever_was(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    for tasks_max in (3, 1):
        size = write(path, "one")
        worker = run(ScriptedExecutor(otherwise=kafka.commits), tasks_max=tasks_max)
        wait_saved(store, path, size)
        assert worker.statuses()[0].lanes.keys() == {0, 1, 2}
        worker.stop()


def test_a_connector_paces_its_transactions(run: Run, kafka: FakeKafka) -> None:
    worker = run(ScriptedExecutor(otherwise=kafka.commits))
    wait_state(worker, State.RUNNING)
    connector = worker._handles["app"].connector
    assert connector is not None
    assert connector._machine is not None
    assert connector._machine.linger == PACE_SECONDS


def test_a_stop_ends_an_opening(run: Run, kafka: FakeKafka) -> None:
    reached, go_on, threads = threading.Event(), threading.Event(), NewThreads()

    def hang(step: str) -> None:
        if step == "replay":
            reached.set()
            go_on.wait(100)

    kafka.at_step = hang
    worker = run(ScriptedExecutor())
    assert reached.wait(30)
    worker.stop(30)
    assert worker.statuses()[0].state is State.STOPPED
    log = len(kafka.log)
    go_on.set()
    wait_until(lambda: not threads.named("fair-executor"), message="its thread ends")
    assert len(kafka.log) == log  # nothing was claimed by then


def test_accounts_of_a_run_to_the_end_hold_what_kafka_says(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one", "two")
    worker = run(ScriptedExecutor(kafka.commits_and_is_gone, otherwise=kafka.commits), until_idle=True)
    assert worker.wait(60)
    (account,) = [one for one in store.accounts("app").values() if one.path == str(path)]
    assert account.counts.acknowledged == size


def test_what_no_batch_takes_along_is_told_when_all_is_quiet(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is lost before anything was sent is made anew with the position at which the connector began."""
    monkeypatch.setattr(lane_recovery, "QUIET_SECONDS", 0.05)
    path = tmp_path / "logs" / "a"
    size = write(path, "old")
    executor = ScriptedExecutor(otherwise=kafka.commits)
    worker = run(executor, source={"start_at": "end"})
    agent = store.identity.uuid
    wait_until(lambda: str(path) in kafka.positions(agent), message="it is told")
    offset = kafka.positions(agent)[str(path)]
    assert offset is not None
    assert offset.position == size
    wait_until(lambda: not store.unpublished("app", 10), message="that is saved")
    size = write(path, "new")
    wait_saved(store, path, size)
    wait_until(lambda: outcomes(worker) == {"openings": 1, "committed": 1}, message=lambda: f"{outcomes(worker)}")


def test_a_connector_that_fell_once_tells_it_too(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing grows: no batch will show that all is well again."""
    monkeypatch.setattr(lane_recovery, "QUIET_SECONDS", 0.05)
    falls, perform = iter([True]), ConnectorIO.perform

    def fall_once(connector_io: ConnectorIO, effect: Effect) -> Performed:
        if isinstance(effect, CollectEvents) and next(falls, False):
            return Performed(time.monotonic(), error=RuntimeError("a bug"))
        return perform(connector_io, effect)

    monkeypatch.setattr(ConnectorIO, "perform", fall_once)
    path = tmp_path / "logs" / "a"
    write(path, "old")
    executor = ScriptedExecutor(otherwise=kafka.commits)
    worker = run(executor, source={"start_at": "end"})
    wait_until(lambda: str(path) in kafka.positions(store.identity.uuid), message=lambda: f"it is told; {worker.statuses()}")
    assert next(falls, None) is None
    assert executor.batches == []


def test_a_file_that_is_being_told_of_is_read_afterwards(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_recovery, "QUIET_SECONDS", 0.05)
    reached, go_on = threading.Event(), threading.Event()
    path = tmp_path / "logs" / "a"
    write(path, "old")
    executor = ScriptedExecutor(otherwise=kafka.commits)

    def hang(step: str) -> None:
        if step == "commit" and kafka.openings > 1:  # the opening has come before
            reached.set()
            go_on.wait(100)

    kafka.at_step = hang
    worker = run(executor, tasks_max=2, source={"start_at": "end"})
    assert reached.wait(30)
    size = write(path, "new")
    wait_until(lambda: worker.statuses()[0].lag.files == 1, message="it is seen")
    other = tmp_path / "logs" / "b"
    write(other, "other")
    wait_until(lambda: other in paths_of(executor), message="the others go on")
    assert path not in paths_of(executor)
    assert not any(lane_plan(batch).driver_rows for batch in executor.batches)  # it is being told already
    go_on.set()
    wait_saved(store, path, size)
    offset = kafka.positions(store.identity.uuid)[str(path)]
    assert offset is not None
    assert offset.position == size


def fail_the_telling(kafka: FakeKafka, *, after_commit: bool, of: str) -> threading.Event:
    """A commit of the first telling raises, once, that `of` the claim or what is told; what wants one before the event is set waits."""
    failed, go_on = threading.Event(), threading.Event()
    openings, commits = kafka.openings + 1, iter(["claim", "rows"])

    def at_step(step: str) -> None:
        if kafka.openings == openings + 1 and step == "commit" and not failed.is_set():
            if next(commits) == of:
                failed.set()
                kafka.fail_commit(after=after_commit)
        elif failed.is_set() and step == "cluster_id":
            go_on.wait(100)

    kafka.at_step = at_step
    return go_on


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("of", ["claim", "rows"])
def test_after_a_failed_telling_its_lane_is_opened_again_before_it_is_used(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str, *, after_commit: bool
) -> None:
    """It may be committed all the same: a batch that is planned from the head before it could not be, or would be taken for it."""
    monkeypatch.setattr(lane_recovery, "QUIET_SECONDS", 0.05)
    path = tmp_path / "logs" / "a"
    write(path, "old")
    go_on = fail_the_telling(kafka, after_commit=after_commit, of=of)
    executor = ScriptedExecutor(otherwise=kafka.commits)
    worker = run(executor, source={"start_at": "end"})
    reason = wait_state(worker, State.RETRYING)
    assert "task 0 waits until its lane is open again" in reason
    size = write(path, "new")
    wait_until(lambda: worker.statuses()[0].lag.files == 1, message="it is seen")
    assert executor.batches == []
    go_on.set()
    wait_saved(store, path, size)
    wait_state(worker, State.RUNNING)
    assert outcomes(worker) == {"openings": 1, "committed": 1}
    (batch,) = executor.batches
    assert [partition.key for partition, _ in lane_plan(batch).driver_rows] == [STATE_KEY]  # nobody knows whether it was told
    offset = kafka.positions(store.identity.uuid)[str(path)]
    assert offset is not None
    assert offset.position == size


def test_a_failed_telling_holds_its_files_on_every_lane(
    run: Run, kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sent may still arrive: an older offset than another lane's would come last."""
    monkeypatch.setattr(lane_recovery, "QUIET_SECONDS", 0.05)
    told, other = tmp_path / "logs" / "a", tmp_path / "logs" / "b"
    write(told, "old")
    go_on = fail_the_telling(kafka, after_commit=False, of="rows")
    executor = ScriptedExecutor(otherwise=kafka.commits)
    worker = run(executor, tasks_max=2, source={"start_at": "end"})
    wait_state(worker, State.RETRYING)
    write(told, "new")
    write(other, "other")
    wait_until(lambda: other in paths_of(executor), message="the other goes on")
    assert {batch.task.number for batch in executor.batches} == {1}
    assert told not in paths_of(executor)
    go_on.set()
    wait_until(lambda: told in paths_of(executor), message="it is read")


def test_damage_is_entered_once_though_nobody_heard_of_the_batch(run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path) -> None:
    """It is found again by reading on, and other losses are not."""
    path = tmp_path / "logs" / "a"
    size = write(path, "one", "two")

    def lost(split: Split, reason: LossReason) -> Loss:
        return Loss(split.partition, split.path, 0, 1, 1, 0, reason, "", 7)

    def unheard(batch: Batch) -> Results:
        (split,) = batch.splits
        losses = (lost(split, "damaged"), lost(split, "too_long"))
        kafka.take(batch, (replace(settled(split, 4), at_end=False, losses=losses),))
        return gone(batch)

    def reads_on(batch: Batch) -> Results:
        (split,) = batch.splits
        return with_losses(kafka.commits(batch), lost(split, "damaged"))

    run(ScriptedExecutor(unheard, reads_on, otherwise=kafka.commits))
    wait_saved(store, path, size)
    assert sorted(one.reason for one in store.losses("app", 10)) == ["damaged", "too_long"]


def with_losses(results: Results, *losses: Loss) -> Results:
    return replace(results[0], losses=losses), *results[1:]


def test_a_lost_store_does_not_lose_what_kafka_knows_under_an_earlier_name(
    run: Run, store: MoodyStore, kafka: FakeKafka, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one")
    before = run(ScriptedExecutor(otherwise=kafka.commits))
    wait_saved(store, path, size)
    before.stop()
    store._store.close()
    for file in (tmp_path / "state").glob("offsets.db*"):
        file.unlink()
    with OffsetStore.open(tmp_path / "state") as store._store:
        executor = ScriptedExecutor(otherwise=kafka.commits)
        worker = run(executor, name="new", renamed_from=("app", "never"))
        wait_state(worker, State.RUNNING)
        more = write(path, "two")
        wait_until(lambda: worker.statuses()[0].counts.acknowledged, message="it is read")
        (batch,) = executor.batches
        assert (batch.splits[0].offset.position, batch.splits[0].end) == (size, more)
        assert store.lanes("new").before == ()
        worker.stop()
