"""One connector's life, with an executor that answers from a script and real files and offsets."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, cast

import pytest

from copycat_agent.errors import BlockedError, CopycatError, FatalError, FileError, RetriableError
from copycat_agent.model import SourceOffset, SourcePartition, SplitResult
from copycat_agent.sources.log_file import log_file
from copycat_agent.sources.log_file.log_file import LogFileSource
from copycat_agent.worker import State, Worker, retry_policy
from copycat_agent.worker.connector_io import ConnectorIO
from copycat_agent.worker.effects import CollectEvents, Effect, Performed
from copycat_agent.worker.machine import PROBE_BYTES, ConnectorMachine
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import descriptors
from tests.unit.worker.doubles import NO_ROOM, MoodyStore, ScriptedExecutor, definition, fails, read_all, read_lines, settled, write

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from copycat_agent.model import Batch
    from copycat_agent.sources import Changes
    from copycat_agent.wake import Wake
    from copycat_agent.watch import Watcher
    from tests.unit.worker.doubles import Results

BY_FILE = {"topic": "t.{@file.name}"}
UNWELL = RetriableError("the broker is away", "wait")


def in_flight(_: Batch) -> Results | None:
    """Stays until the test ends it."""
    return None


def wait_state(worker: Worker, state: State) -> str:
    """Wait until the first connector is in this state; returns its reason."""
    wait_until(lambda: worker.statuses()[0].state is state, message=lambda: f"{state}: {worker.statuses()}")
    return worker.statuses()[0].reason


def machine(worker: Worker, name: str = "app") -> ConnectorMachine:
    """The inside of a connector that runs."""
    connector = worker._handles[name].connector
    assert connector is not None
    return cast("ConnectorMachine", wait_until(lambda: connector._machine, message="it is open"))


def wait_saved(store: MoodyStore, path: Path, position: int) -> None:
    wait_until(lambda: store.positions().get(str(path)) == position, message=lambda: f"{position}: {store.positions()}")


def test_what_is_settled_is_saved_and_counted(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    size = write(tmp_path / "logs" / "a", "one", "two")
    worker = run(ScriptedExecutor())
    wait_saved(store, tmp_path / "logs" / "a", size)
    wait_until(lambda: worker.statuses()[0].counts.acknowledged == size, message="the count")
    assert worker.statuses()[0].state is State.RUNNING


def test_the_next_batch_begins_where_the_last_one_settled(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one", "two")
    executor = ScriptedExecutor(lambda batch: tuple(settled(split, 4) for split in batch.splits))
    run(executor)
    wait_saved(store, path, size)
    assert [batch.splits[0].offset.position for batch in executor.batches] == [0, 4]


def test_a_retriable_error_is_tried_again_from_what_was_settled_with_a_small_batch(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one", "two")
    executor = ScriptedExecutor(lambda batch: tuple(settled(split, 4, UNWELL) for split in batch.splits))
    worker = run(executor)
    wait_saved(store, path, size)
    first, second = executor.batches
    assert (first.splits[0].offset.position, second.splits[0].offset.position) == (0, 4)
    assert second.max_bytes == PROBE_BYTES < first.max_bytes
    assert worker.statuses()[0].retries == 1
    wait_state(worker, State.RUNNING)


@pytest.mark.parametrize(("error", "state"), [(UNWELL, State.RETRYING), (BlockedError("no topic", "create it"), State.BLOCKED)])
def test_the_state_says_why_it_waits(run: Callable[..., Worker], tmp_path: Path, error: RetriableError, state: State) -> None:
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor(otherwise=fails(error)))
    assert wait_state(worker, state) == str(error)


def test_a_state_keeps_its_beginning_when_the_reason_changes(run: Callable[..., Worker], tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor(fails(UNWELL), otherwise=fails(RetriableError("still away"))))
    wait_state(worker, State.RETRYING)
    since = worker.statuses()[0].since
    wait_until(lambda: worker.statuses()[0].reason == "still away", message="another reason")
    assert worker.statuses()[0].since == since


def test_results_of_one_task_are_saved_while_another_backs_off(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / "logs" / name, "one")
    executor = ScriptedExecutor(in_flight, in_flight, otherwise=in_flight)
    worker = run(executor, errors={"retry_max_delay": 3600.0})
    wait_until(lambda: len(executor.flying) == 2, message="both tasks are at work")
    one, two = executor.batches
    executor.finish(one.task, fails(BlockedError("no topic"))(one))
    wait_state(worker, State.BLOCKED)
    machine(worker)._retry_policy.backoff.retry_at = time.monotonic() + 3600
    executor.finish(two.task)
    wait_saved(store, tmp_path / "logs" / two.splits[0].path, 4)


def test_a_store_that_cannot_be_written_keeps_the_results_and_nothing_is_planned_meanwhile(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one")
    executor = ScriptedExecutor(in_flight)
    worker = run(executor, delivery={"tasks_max": 1})
    wait_until(lambda: executor.flying, message="a batch is under way")
    store.fails = NO_ROOM
    executor.finish(executor.batches[0].task)
    assert wait_state(worker, State.RETRYING) == str(NO_ROOM)
    size = write(path, "two")
    write(tmp_path / "logs" / "b", "another file")
    wait_until(lambda: store.refused >= 3 and worker.statuses()[0].lag.known_files == 2, message="it tries again, and looks on")
    assert len(executor.batches) == 1
    assert str(path) not in store.positions() or store.positions()[str(path)] == 0
    store.fails = None
    wait_saved(store, path, size)
    assert [split.offset.position for batch in executor.batches for split in batch.splits if split.path == str(path)] == [0, 4]
    wait_state(worker, State.RUNNING)


def test_a_fatal_error_fails_the_connector_and_no_other(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one")

    def by_name(batch: Batch) -> Results | None:
        answer = fails(FatalError("a bad record", "correct it")) if batch.task.connector == "app" else read_all
        return answer(batch)

    worker = run(ScriptedExecutor(otherwise=by_name), "app", "other")
    assert wait_state(worker, State.FAILED) == "a bad record; correct it"
    write(path, "two")
    wait_until(lambda: worker.statuses()[1].counts.acknowledged == 8, message="the other goes on")
    assert worker.statuses()[1].state is State.RUNNING
    assert worker.statuses()[0].state is State.FAILED


def test_a_fatal_error_saves_what_every_task_settled_before_its_own(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copycat_agent.worker.machine.FAILED_SETTLE_SECONDS", 60.0)  # the others end when this test has them end
    for name in "abc":
        write(tmp_path / "logs" / name, "one", "two")
    executor = ScriptedExecutor(in_flight, in_flight, in_flight)
    worker = run(executor, delivery={"tasks_max": 3})
    wait_until(lambda: len(executor.flying) == 3, message="all tasks are at work")

    def stumble(number: int) -> None:
        batch = executor.batches[number]
        executor.finish(batch.task, tuple(settled(split, 4, FatalError(f"bad record {number}")) for split in batch.splits))

    for number in range(3):
        stumble(number)
        wait_until(lambda: len(store.positions()) > number, message="it is saved")  # noqa: B023 - called at once
    assert wait_state(worker, State.FAILED).startswith("bad record")
    assert set(store.positions().values()) == {4}


def test_a_failed_connector_closes_its_files_even_when_every_task_failed(run: Callable[..., Worker], tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / "logs" / name, "one")
    executor = ScriptedExecutor(in_flight, in_flight)
    worker = run(executor)
    wait_until(lambda: len(executor.flying) == 2, message="both tasks are at work")
    bad = fails(FatalError("a bad record"))
    one, two = executor.batches
    executor.on_settle = lambda task: executor.finish(task, bad(two))
    executor.finish(one.task, bad(one))
    wait_until(lambda: worker.wait(0.1), message="its end")
    assert descriptors(tmp_path / "logs") == []


def test_a_file_that_cannot_be_read_is_not_the_connectors_trouble(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    write(tmp_path / "logs" / "bad", "one")
    write(tmp_path / "logs" / "good", "one")
    error = FileError("it cannot be read")

    def answer(batch: Batch) -> Results:
        return tuple(SplitResult(one, one.offset, error=error) if one.path.endswith("bad") else settled(one) for one in batch.splits)

    worker = run(ScriptedExecutor(otherwise=answer))
    wait_saved(store, tmp_path / "logs" / "good", 4)
    assert worker.statuses()[0].state is State.RUNNING


def test_a_bug_in_the_connector_is_told_by_place_and_leaves_the_others_alone(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_policy, "RESTART_SECONDS", (3600.0, 3600.0))  # else it gives up when it has met the bug again and again
    write(tmp_path / "logs" / "a", "secret-word")

    def bug(batch: Batch) -> Results:
        if batch.task.connector == "app":
            raise KeyError("secret-word")
        return read_all(batch)

    worker = run(ScriptedExecutor(otherwise=bug), "app", "other")
    reason = wait_state(worker, State.RETRYING)
    assert "KeyError at test_connector.py" in reason
    assert "secret-word" not in reason
    wait_until(lambda: worker.statuses()[1].counts.read, message="the other goes on")


def test_a_deleted_file_is_read_on_by_the_next_start_after_a_bug(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, end_timed_out, bugs = tmp_path / "logs" / "a", LogFileSource.end_timed_out, [KeyError("a bug")]

    def bug(source: LogFileSource, *, at_once: bool) -> float:
        if source.lag().open_files and not path.exists() and bugs:
            raise bugs.pop()
        return end_timed_out(source, at_once=at_once)

    monkeypatch.setattr(LogFileSource, "end_timed_out", bug)
    size = write(path, "one", "two")
    executor = ScriptedExecutor(otherwise=lambda batch: fails(UNWELL)(batch) if bugs else read_all(batch))
    worker = run(executor)
    wait_until(lambda: executor.batches, message="it is open, and cannot be sent")
    path.unlink()
    wait_saved(store, path, size)
    assert not store.losses("app", 10)
    wait_until(lambda: not descriptors(tmp_path / "logs"), message="nobody needs it any more")
    assert worker.statuses()[0].lag.lost_bytes == 0


def test_a_connector_whose_only_unsent_file_is_gone_runs_again(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one", "two")
    worker = run(ScriptedExecutor(otherwise=fails(UNWELL)), source={"hold_deleted": "0.1s"})
    wait_state(worker, State.RETRYING)
    path.unlink()
    wait_state(worker, State.RUNNING)
    assert store.losses("app", 10)


def test_the_rest_of_a_file_deleted_before_its_connector_failed_is_entered_at_its_next_start(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    size = write(path, "one", "two")
    executor = ScriptedExecutor(in_flight)
    worker = run(executor)
    wait_until(lambda: executor.batches, message="it is open, and under way")
    path.unlink()
    (batch,) = executor.batches
    executor.finish(batch.task, fails(FatalError("a bad record"))(batch))
    wait_state(worker, State.FAILED)
    assert not descriptors(tmp_path / "logs")
    worker.restart("app")
    wait_until(lambda: store.losses("app", 10), message="it is lost")
    assert [(loss.start, loss.end) for loss in store.losses("app", 10)] == [(0, size)]


def test_a_run_to_the_end_ends_when_everything_is_read(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one")
    with path.open("a") as file:
        file.write("unfinished")
    executor = ScriptedExecutor(otherwise=read_lines)
    worker = run(executor, until_idle=True)
    assert worker.wait(60)
    assert store.positions() == {str(path): path.stat().st_size}
    assert [batch.splits[0].final for batch in executor.batches] == [False, True]
    assert worker.statuses()[0].state is State.STOPPED


def test_a_run_to_the_end_of_an_empty_directory_ends(run: Callable[..., Worker]) -> None:
    worker = run(ScriptedExecutor(), until_idle=True)
    assert worker.wait(60)
    assert worker.statuses()[0].state is State.STOPPED


def test_a_stop_asks_tasks_to_settle_and_saves_what_they_did(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one", "two")
    executor = ScriptedExecutor(in_flight)
    worker = run(executor)
    wait_until(lambda: executor.flying, message="a batch is under way")
    executor.on_settle = lambda task: executor.finish(task, (settled(executor.batches[0].splits[0], 4),))
    worker.stop(30)
    assert executor.settle_requests == [executor.batches[0].task]
    assert store.positions() == {str(path): 4}
    assert worker.statuses()[0].state is State.STOPPED


def test_a_stop_ends_at_its_deadline_whatever_is_in_flight(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a", "one")
    executor = ScriptedExecutor(in_flight)
    worker = run(executor)
    wait_until(lambda: executor.flying, message="a batch is under way")
    stopper = threading.Thread(target=worker.stop, args=(0.3,))
    stopper.start()
    stopper.join(30)
    assert not stopper.is_alive()
    assert worker.statuses()[0].state is State.STOPPED


def test_a_stop_does_not_wait_for_a_back_off(run: Callable[..., Worker], tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor(otherwise=fails(UNWELL)), errors={"retry_max_delay": 3600.0})
    wait_state(worker, State.RETRYING)
    machine(worker)._retry_policy.backoff.retry_at = time.monotonic() + 3600
    stopper = threading.Thread(target=worker.stop, args=(3600,))
    stopper.start()
    stopper.join(30)
    assert not stopper.is_alive()


def test_a_stop_with_an_error_in_flight_still_saves_and_fails_for_a_bad_record(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one", "two")
    executor = ScriptedExecutor(in_flight)
    worker = run(executor)
    wait_until(lambda: executor.flying, message="a batch is under way")
    executor.on_settle = lambda task: executor.finish(task, (settled(executor.batches[0].splits[0], 4, FatalError("bad")),))
    worker.stop(30)
    assert store.positions() == {str(path): 4}
    assert (worker.statuses()[0].state, worker.statuses()[0].reason) == (State.FAILED, "bad")


def test_events_of_a_file_in_flight_do_not_keep_the_connector_awake(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one")
    executor = ScriptedExecutor(in_flight)
    worker = run(executor, delivery={"linger": 60.0}, source={"scan_interval": 3600.0})
    wait_until(lambda: executor.flying, message="a batch is under way")
    schedule = machine(worker)._schedule
    schedule.plan_at = 0.0  # the pause after the first plan is over
    rounds: list[Effect] = []
    perform = ConnectorIO.perform

    def counted(connector_io: ConnectorIO, effect: Effect) -> Performed:
        rounds.extend([effect] if isinstance(effect, CollectEvents) else [])
        return perform(connector_io, effect)

    monkeypatch.setattr(ConnectorIO, "perform", counted)
    worker.files("app")
    for number in range(300):
        write(path, f"{number}")
        wait_until(lambda: schedule.plan_at or not rounds, message="one look")
    assert len(rounds) < 20


def test_equal_definitions_go_on_untouched_and_others_are_replaced(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run(ScriptedExecutor(), "app", "other", "gone")
    before = {name: life.connector for name, life in worker._handles.items()}
    worker.apply([definition(tmp_path, "app"), definition(tmp_path, "other", delivery={"tasks_max": 1}), definition(tmp_path, "new")])
    assert [status.name for status in worker.statuses()] == ["app", "new", "other"]
    assert worker._handles["app"].connector is before["app"]
    assert worker._handles["other"].connector is not before["other"]
    assert before["gone"] is not None
    assert before["gone"].ended
    assert before["other"] is not None
    assert before["other"].ended


def test_a_disabled_definition_does_not_run(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run(ScriptedExecutor(), "app")
    worker.apply([definition(tmp_path, "app", enabled=False)])
    (status,) = worker.statuses()
    assert (status.state, status.reason, status.enabled) == (State.STOPPED, "disabled by its definition", False)


def by_name(**answers: CopycatError | None) -> Callable[[Batch], Results]:
    """Files of these names stand where they stood, for these reasons; others are read."""

    def answer(batch: Batch) -> Results:
        errors = [answers.get(split.path.rsplit("/", 1)[1]) for split in batch.splits]
        return tuple(
            SplitResult(one, one.offset, error=why) if why else settled(one) for one, why in zip(batch.splits, errors, strict=True)
        )

    return answer


def test_a_blocked_file_does_not_throttle_the_others_and_shows_until_it_went_well(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path
) -> None:
    good, bad = tmp_path / "logs" / "good", tmp_path / "logs" / "bad"
    write(good, "one")
    write(bad, "one")
    first, go_on = by_name(bad=BlockedError("no topic", "create it")), threading.Event()

    def later(batch: Batch) -> Results:
        """The bad file is not tried again before the first try has been looked at."""
        go_on.wait(60)
        return first(batch)

    executor = ScriptedExecutor(first, otherwise=later)
    worker = run(executor, delivery={"tasks_max": 1}, record=BY_FILE)
    one = machine(worker)
    assert wait_state(worker, State.BLOCKED) == "no topic; create it"
    assert (one._retry_policy.backoff.active, worker.statuses()[0].retries) == (False, 1)
    states: list[State] = []
    connector_state = one._context.connector_state
    become = connector_state.become

    def noted(state: State, reason: str = "") -> None:
        if (state, reason) != connector_state.now[:2]:
            states.append(state)
        become(state, reason)

    connector_state.become = noted  # type: ignore[method-assign]
    go_on.set()
    wait_saved(store, good, write(good, "two"))
    assert executor.batches[1].max_bytes == executor.batches[0].max_bytes > PROBE_BYTES
    wait_until(lambda: worker.statuses()[0].counts.read == 8, message="it is counted")
    assert worker.statuses()[0].reason == "no topic; create it"
    executor._otherwise = read_all
    wait_saved(store, bad, 4)
    wait_state(worker, State.RUNNING)
    assert states == [State.RUNNING]


def test_a_blocked_file_in_a_batch_of_its_own_holds_up_nobody(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    good, bad = tmp_path / "logs" / "good", tmp_path / "logs" / "bad"
    write(bad, "one")
    executor = ScriptedExecutor(otherwise=by_name(bad=BlockedError("no topic", "create it")))
    worker = run(executor, record=BY_FILE)
    assert wait_state(worker, State.BLOCKED) == "no topic; create it"
    assert not machine(worker)._retry_policy.backoff.active
    wait_saved(store, good, write(good, "one"))
    assert worker.statuses()[0].lag.blocked_files == 1


def test_a_missing_topic_of_all_records_is_waited_for_by_the_connector_as_a_whole(run: Callable[..., Worker], tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / "logs" / name, "one")
    blocked = fails(BlockedError("no topic", "create it"))
    executor = ScriptedExecutor(blocked, blocked, blocked, otherwise=in_flight)
    worker = run(executor, delivery={"tasks_max": 1})
    wait_until(lambda: len(executor.batches) == 4, message="three tries, and one under way")
    assert machine(worker)._retry_policy.backoff.active
    assert worker.statuses()[0].lag.blocked_files == 0
    assert worker.statuses()[0].retries == 3, "one try at a time, not one for each file"


def test_files_that_are_blocked_longer_than_retry_timeout_fail_their_connector(run: Callable[..., Worker], tmp_path: Path) -> None:
    for name in ("bad", "good"):
        write(tmp_path / "logs" / name, "one")
    executor = ScriptedExecutor(otherwise=by_name(bad=BlockedError("no topic")))
    worker = run(executor, delivery={"tasks_max": 1}, errors={"retry_timeout": 0.0}, record=BY_FILE)
    assert "no topic" in wait_state(worker, State.FAILED)


def test_a_broker_that_is_away_as_well_is_the_whole_connectors_trouble(run: Callable[..., Worker], tmp_path: Path) -> None:
    for name in ("away", "bad", "good"):
        write(tmp_path / "logs" / name, "one")
    executor = ScriptedExecutor(otherwise=by_name(bad=BlockedError("no topic"), away=UNWELL))
    worker = run(executor, delivery={"tasks_max": 1}, record=BY_FILE)
    wait_state(worker, State.BLOCKED)
    assert machine(worker)._retry_policy.backoff.active


def test_files_that_cannot_be_read_are_told_at_the_end_of_a_run_to_the_end(run: Callable[..., Worker], tmp_path: Path) -> None:
    for name in ("bad", "good", "worse"):
        write(tmp_path / "logs" / name, "one")
    error = FileError("it cannot be read")
    worker = run(ScriptedExecutor(otherwise=by_name(bad=error, worse=error)), until_idle=True)
    wait_until(lambda: worker.statuses()[0].counts.read == 4, message="the good one is read")
    assert worker.wait(60)
    assert worker.statuses()[0].troubled_files == 2


def test_a_stop_that_cannot_save_says_so(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "logs" / "a", "one")
    executor = ScriptedExecutor(in_flight)
    worker = run(executor)
    wait_until(lambda: executor.flying, message="a batch is under way")
    store.fails = NO_ROOM
    executor.on_settle = executor.finish
    worker.stop(0.5)
    assert worker.statuses()[0].unsaved
    assert [record.levelname for record in caplog.records if "will be sent again" in record.getMessage()] == ["ERROR"]


def test_a_stop_that_has_nothing_to_save_is_good_without_a_store(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    worker = run(ScriptedExecutor())
    wait_saved(store, path, write(path, "one"))
    wait_until(lambda: not machine(worker)._unsaved, message="it is at rest")
    store.fails = NO_ROOM
    worker.stop(0.5)
    assert not worker.statuses()[0].unsaved


def test_scans_that_find_nothing_new_do_not_heap_up_while_offsets_cannot_be_saved(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "SIZES_SECONDS", 0.0)
    write(tmp_path / "logs" / "a", "one")
    executor = ScriptedExecutor(in_flight)
    worker = run(executor)
    wait_until(lambda: executor.flying, message="a batch is under way")
    store.fails = NO_ROOM
    executor.finish(executor.batches[0].task)
    write(tmp_path / "logs" / "a", "two")
    wait_state(worker, State.RETRYING)
    inside = machine(worker)
    scans, source = [0], cast("LogFileSource", inside._source)
    scan = source.scan

    def counted() -> Changes:
        scans.append(0)
        return scan()

    monkeypatch.setattr(source, "scan", counted)
    wait_until(lambda: len(scans) > 5, message="it looks on")
    assert len(inside._unsaved) == len(source._unsaved) == 1
    store.fails = None
    wait_saved(store, tmp_path / "logs" / "a", 8)


def test_files_are_closed_whatever_goes_wrong_at_the_end(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: LogFileSource) -> Changes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LogFileSource, "leave", broken)
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor())
    wait_until(lambda: worker.statuses()[0].lag.open_files == 1, message="it is open")
    worker.stop(5)
    assert descriptors(tmp_path / "logs") == []


def test_what_comes_between_a_listing_and_its_watch_is_found_without_waiting_for_a_scan(
    run: Callable[..., Worker], store: MoodyStore, watcher: Watcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, watch = tmp_path / "logs" / "late", watcher.watch

    def watch_later(wake: Wake, directories: Collection[str]) -> bool:
        if directories and not late.exists():
            write(late, "one")
        return watch(wake, directories)

    monkeypatch.setattr(watcher, "watch", watch_later)
    run(ScriptedExecutor(), source={"scan_interval": 3600})
    wait_saved(store, late, len("one\n"))


def test_a_watcher_that_fails_does_not_keep_a_successor_waiting(
    run: Callable[..., Worker], tmp_path: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise KeyError

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    worker = run(ScriptedExecutor())
    wait_state(worker, State.RUNNING)
    with monkeypatch.context() as patch:
        patch.setattr(watcher, "unwatch", broken)
        worker.apply([definition(tmp_path, delivery={"tasks_max": 1})])
        wait_state(worker, State.RUNNING)


def test_a_saved_key_that_is_no_files_is_passed_over_and_told(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("foo", "1:2:3", "x:1:0:0"):
        store.commit({SourcePartition("app", key): SourceOffset(7)})
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor(), source={"forget_after": "1s"})
    wait_saved(store, tmp_path / "logs" / "a", 4)
    wait_state(worker, State.RUNNING)
    assert len([record for record in caplog.records if "a saved offset is ignored" in record.getMessage()]) == 3
    assert SourcePartition("app", "foo") in store.read("app"), "it is a person's"


def test_a_source_that_cannot_be_closed_leaves_the_delivery_closed(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor(otherwise=read_all))
    wait_until(lambda: worker.statuses()[0].counts.read, message="it runs")
    one, closed = machine(worker), threading.Event()

    def bug() -> None:
        raise KeyError("close")

    monkeypatch.setattr(one._source, "close", bug)
    monkeypatch.setattr(one._delivery, "close", closed.set)
    worker.stop(5)
    assert closed.is_set()
