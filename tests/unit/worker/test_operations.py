"""What people ask of connectors: pause, resume, stop, restart, in any order, over retry_policy of the agent too."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import BusyError, FatalError, RetriableError, UnknownConnectorError
from copycat_agent.model import Sample, SourceOffset, SourcePartition, SplitResult
from copycat_agent.sources.log_file.log_file import LogFileSource
from copycat_agent.worker import State, Worker, connector, retry_policy
from copycat_agent.worker import worker as worker_module
from copycat_agent.worker.machine import PROBE_BYTES
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import descriptors
from tests.unit.worker.doubles import NO_ROOM, MoodyStore, ScriptedExecutor, definition, fails, read_all, settled, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from copycat_agent.model import Batch
    from copycat_agent.sources import Changes, Source
    from tests.unit.worker.doubles import Results


def in_flight(_: Batch) -> Results | None:
    """Stays until the test ends it."""
    return None


def bug(batch: Batch) -> Results:
    """Offsets that move backwards."""
    return tuple(SplitResult(split, replace(split.offset, position=-1)) for split in batch.splits)


def state(worker: Worker, name: str = "app") -> State:
    return worker.status(name).state


def wait_state(worker: Worker, wanted: State, name: str = "app") -> None:
    wait_until(lambda: state(worker, name) is wanted, message=lambda: f"{wanted}: {worker.status(name)}")


def read_so_far(worker: Worker, count: int, name: str = "app") -> None:
    wait_until(lambda: worker.status(name).counts.read == count, message=lambda: f"{count}: {worker.status(name)}")


def test_every_order_succeeds_and_ends_where_the_last_one_says(run: Callable[..., Worker]) -> None:
    worker = run(ScriptedExecutor())
    steps = [worker.halt, worker.halt, worker.resume, worker.pause, worker.halt, worker.pause, worker.pause, worker.resume, worker.resume]
    states = [step("app").state for step in steps]
    stopped, running, paused = State.STOPPED, State.RUNNING, State.PAUSED
    assert states == [stopped, stopped, running, paused, stopped, paused, paused, running, running]
    assert worker.restart("app").state is State.RUNNING


def test_unknown_names_are_told_with_those_that_are_known(run: Callable[..., Worker]) -> None:
    worker = run(ScriptedExecutor())
    for operation in (worker.pause, worker.resume, worker.halt, worker.restart, worker.status, worker.definition, worker.files):
        with pytest.raises(UnknownConnectorError, match=r"no connector ap;.* app"):
            operation("ap")


def test_a_pause_settles_what_flies_keeps_files_open_and_reads_nothing_new(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one", "two")
    executor = ScriptedExecutor(in_flight)
    worker = run(executor)
    wait_until(lambda: executor.flying, message="a batch is under way")
    executor.on_settle = lambda task: executor.finish(task, (settled(executor.batches[0].splits[0], 4),))
    status = worker.pause("app")
    assert (status.state, status.tasks) == (State.PAUSED, 0)
    assert "copycat ctl resume app" in status.reason
    assert store.positions()[str(path)] == 4
    assert descriptors(tmp_path / "logs") == [str(path)]
    write(path, "three")
    write(tmp_path / "logs" / "b", "another")
    wait_until(lambda: worker.status("app").lag.known_files == 2, message="it looks on")
    assert len(executor.batches) == 1
    assert worker.resume("app").state is State.RUNNING
    wait_until(lambda: store.positions() == {str(path): 14, str(tmp_path / "logs" / "b"): 8}, message=lambda: f"{store.positions()}")


def test_a_pause_ends_a_back_off(run: Callable[..., Worker], tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a", "one")
    executor = ScriptedExecutor(otherwise=fails(RetriableError("away")))
    worker = run(executor)
    wait_state(worker, State.RETRYING)
    assert worker.pause("app").state is State.PAUSED
    executor._otherwise = in_flight
    assert worker.resume("app").state is State.RUNNING, "what was wrong before is forgotten"


def test_rotations_and_deletions_are_followed_through_a_pause(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a.log"
    write(path, "one")
    executor = ScriptedExecutor()
    worker = run(executor, source={"include": (f"{tmp_path}/logs/*.log",)})
    read_so_far(worker, 4)
    worker.pause("app")
    write(path, "two")
    path.rename(tmp_path / "logs" / "a.old")
    write(path, "three")
    wait_until(lambda: worker.status("app").lag.known_files == 2, message="both are known")
    (tmp_path / "logs" / "a.old").unlink()
    worker.resume("app")
    read_so_far(worker, 14)


def test_targets_outlive_the_agent(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor(), "p", "r", "s")
    for name in "prs":
        read_so_far(worker, 4, name)
    worker.pause("p")
    worker.halt("s")
    worker.pause("r")
    worker.resume("r")
    worker.stop(1)
    executor = ScriptedExecutor()
    write(tmp_path / "logs" / "a", "two")
    again = run(executor, "p", "r", "s")
    wait_state(again, State.PAUSED, "p")
    wait_state(again, State.RUNNING, "r")
    assert state(again, "s") is State.STOPPED
    read_so_far(again, 4, "r")
    assert {batch.task.connector for batch in executor.batches} == {"r"}
    assert again.resume("s").state is State.RUNNING
    again.resume("p")
    read_so_far(again, 4, "p")


def test_a_pause_holds_when_it_cannot_be_saved(run: Callable[..., Worker], store: MoodyStore) -> None:
    worker = run(ScriptedExecutor())
    wait_state(worker, State.RUNNING)
    store.fails = NO_ROOM
    assert worker.pause("app").state is State.PAUSED


def test_a_run_to_the_end_leaves_out_what_is_paused(run: Callable[..., Worker]) -> None:
    run(ScriptedExecutor(), "a", "b").pause("a")
    worker = run(ScriptedExecutor(), "a", "b", until_idle=True)
    assert worker.wait(60)
    assert "paused on request" in worker.status("a").reason
    assert worker.status("b").reason == ""


def test_a_disabled_connector_is_shown_and_starts_only_by_its_definition(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run(ScriptedExecutor(), enabled=False)
    assert worker.halt("app").state is State.STOPPED
    for operation in (worker.pause, worker.resume, worker.restart):
        with pytest.raises(BusyError, match="enabled: true"):
            operation("app")
    with worker.at_rest("app", force=False):
        pass
    worker.apply([definition(tmp_path)])
    wait_state(worker, State.RUNNING)


def test_a_failed_connector_stays_so_until_a_person_acts(run: Callable[..., Worker], tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a", "one")
    executor = ScriptedExecutor(otherwise=fails(FatalError("bad", "repair it")))
    worker = run(executor)
    wait_state(worker, State.FAILED)
    assert worker.pause("app").state is State.FAILED
    assert worker.halt("app").state is State.STOPPED
    worker.resume("app")
    wait_state(worker, State.FAILED)
    executor._otherwise = read_all
    assert worker.restart("app").state is State.RUNNING
    read_so_far(worker, 4)


def test_a_failed_connector_runs_again_when_its_definition_is_changed(run: Callable[..., Worker], tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a", "one")
    executor = ScriptedExecutor(fails(FatalError("bad", "repair it")))
    worker = run(executor)
    wait_state(worker, State.FAILED)
    worker.apply([definition(tmp_path)])
    assert state(worker) is State.FAILED, "the same definition changes nothing"
    worker.apply([definition(tmp_path, converters={})])
    assert state(worker) is State.FAILED
    worker.apply([definition(tmp_path, delivery={"linger": 0.1})])
    read_so_far(worker, 4)


def test_a_bug_is_tried_again_with_growing_pauses_and_a_small_batch(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_policy, "RESTART_SECONDS", (0.01, 0.02))
    write(tmp_path / "logs" / "a", "one")

    executor = ScriptedExecutor(bug, bug)
    worker = run(executor)
    read_so_far(worker, 4)
    wait_state(worker, State.RUNNING)
    assert worker.status("app").reason == ""
    assert worker.status("app").errors == {("connector", "AssertionError"): 2}
    assert [batch.max_bytes for batch in executor.batches[1:]] == [PROBE_BYTES] * 2


@pytest.mark.parametrize("error", [OverflowError("int too large"), OSError(28, "no")])
def test_offsets_that_cannot_be_saved_for_an_unexpected_reason_stop_the_connector_before_it_sends_its_files_again(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path, error: Exception
) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one")
    executor = ScriptedExecutor()
    worker = run(executor)
    read_so_far(worker, 4)
    store.fails = error
    write(path, "two")
    wait_state(worker, State.FAILED)
    assert f"cannot be saved: unexpected {type(error).__name__}" in worker.status("app").reason
    assert [split.offset.position for batch in executor.batches for split in batch.splits] == [0, 4]
    store.fails = None
    worker.restart("app")
    read_so_far(worker, 8)


@pytest.mark.parametrize("error", [OverflowError, OSError])
def test_a_file_that_keeps_bringing_about_an_unexpected_error_once_it_is_sent_stops_its_connector_and_no_other(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(retry_policy, "RESTART_SECONDS", (0.01, 0.02))
    changes_of = LogFileSource.changes_of

    def raises(source: LogFileSource, results: Sequence[SplitResult]) -> Changes:
        if any(one.split.partition.connector == "bad" for one in results):
            raise error
        return changes_of(source, results)

    monkeypatch.setattr(LogFileSource, "changes_of", raises)
    write(tmp_path / "logs" / "a", "one")
    executor = ScriptedExecutor()
    worker = run(executor, "bad", "good")
    wait_state(worker, State.FAILED, "bad")
    assert f"unexpected {error.__name__}" in worker.status("bad").reason
    assert "3 times within an hour" in worker.status("bad").reason
    assert sum(batch.task.connector == "bad" for batch in executor.batches) <= retry_policy.BUGS_MAX
    read_so_far(worker, 4, "good")
    assert worker.status("good").state is State.RUNNING


def test_what_the_host_lacks_for_a_while_is_waited_for_as_long_as_nothing_was_sent(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_policy, "RESTART_SECONDS", (0.01, 0.02))
    scan, failures = LogFileSource.scan, iter(range(10))

    def short_of(source: LogFileSource) -> Changes:
        if next(failures, None) is not None:
            raise OSError(24, "Too many open files")
        return scan(source)

    monkeypatch.setattr(LogFileSource, "scan", short_of)
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor())
    read_so_far(worker, 4)
    wait_state(worker, State.RUNNING)


def test_a_bug_can_be_stopped_and_resumed_without_waiting(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_policy, "RESTART_SECONDS", (3600.0, 3600.0))
    write(tmp_path / "logs" / "a", "one")

    executor = ScriptedExecutor(bug, bug)
    worker = run(executor)
    wait_state(worker, State.RETRYING)
    assert worker.files("app") == ()
    assert worker.halt("app").state is State.STOPPED
    worker.resume("app")
    wait_state(worker, State.RETRYING)
    worker.resume("app")
    read_so_far(worker, 4)


def test_a_store_that_cannot_be_read_at_the_start_is_waited_for(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_policy, "RESTART_SECONDS", (0.01, 0.02))
    write(tmp_path / "logs" / "a", "one")
    store.unreadable = RetriableError("the store cannot be reached")
    worker = run(ScriptedExecutor())
    wait_until(lambda: "cannot be reached" in worker.status("app").reason, message="it says why")
    store.unreadable = None
    read_so_far(worker, 4)


def test_one_that_hangs_holds_up_neither_the_others_nor_questions(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(worker_module, "LEAVE_SECONDS", 0.1)
    hangs, go_on = threading.Event(), threading.Event()
    scan = LogFileSource.scan

    def hanging(self: LogFileSource) -> object:
        if self._catalog.followed.connector == "app":
            hangs.set()
            go_on.wait(100)
        return scan(self)

    monkeypatch.setattr(LogFileSource, "scan", hanging)
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor(), "app", "other")
    assert hangs.wait(30)
    read_so_far(worker, 4, "other")
    assert state(worker) is State.STARTING
    assert not worker.started()
    with pytest.raises(BusyError, match="did not answer"):
        worker._handles["app"].connector.ask(lambda source: source.files(), 0.1)  # type: ignore[union-attr]
    changed = definition(tmp_path, "app", delivery={"tasks_max": 1})
    worker.apply([changed, definition(tmp_path, "other")])
    assert worker.definition("app") is changed
    with pytest.raises(BusyError, match="has not ended yet"), worker.at_rest("app", force=True):
        pass
    go_on.set()
    read_so_far(worker, 4)


def test_an_idle_connector_scans_only_what_has_changed_and_obeys_as_before(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one")
    scans, looks = [], []
    scan, unchanged = LogFileSource.scan, LogFileSource.unchanged

    def counted_scan(self: LogFileSource) -> Changes:
        scans.append(1)
        return scan(self)

    def counted_look(self: LogFileSource) -> bool:
        looks.append(unchanged(self))
        return looks[-1]

    monkeypatch.setattr(LogFileSource, "scan", counted_scan)
    monkeypatch.setattr(LogFileSource, "unchanged", counted_look)
    worker = run(ScriptedExecutor(), source={"watch": "poll"})
    read_so_far(worker, 4)
    wait_until(lambda: looks[-3:] == [True] * 3, message="the directory has been at rest for a while")
    before, looked = len(scans), len(looks)
    wait_until(lambda: len(looks) > looked + 3)
    assert len(scans) == before
    assert worker.pause("app").state is State.PAUSED
    assert worker.resume("app").state is State.RUNNING
    write(path, "two")
    read_so_far(worker, 8)
    wait_until(lambda: looks[-1], message="it is at rest again")
    write(path.with_name("b"), "three")
    read_so_far(worker, 14)


def test_offsets_change_only_while_nothing_runs(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one")
    executor = ScriptedExecutor()
    worker = run(executor)
    read_so_far(worker, 4)
    with pytest.raises(BusyError, match="copycat ctl stop app"), worker.at_rest("app", force=False):
        pass
    worker.pause("app")
    with pytest.raises(BusyError), worker.at_rest("never-seen", "app", force=False):
        pass
    with worker.at_rest("app", "never-seen", force=True):
        assert not worker._handles["app"].runs
        store.forget(store.read("app"))
    wait_state(worker, State.PAUSED)
    worker.resume("app")
    read_so_far(worker, 8)


def test_counters_outlive_changes_and_restarts(run: Callable[..., Worker], tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one")
    executor = ScriptedExecutor(fails(RetriableError("away")))
    worker = run(executor)
    read_so_far(worker, 4)
    before = worker.status("app")
    assert (before.retries, before.errors) == (1, {("send", "RetriableError"): 1})
    worker.apply([definition(tmp_path, delivery={"tasks_max": 1})])
    write(path, "two")
    read_so_far(worker, 8)
    worker.restart("app")
    after = worker.status("app")
    assert (after.counts.read, after.retries, after.errors) == (8, 1, before.errors)
    assert sum(after.commit_seconds.buckets) > sum(before.commit_seconds.buckets)
    assert sum(after.delivery_seconds.buckets) == 2


def samples_of(count: int) -> Callable[[Batch], Results]:
    """Everything is read, and `count` records of it are shown."""

    def answer(batch: Batch) -> Results:
        shown = tuple(Sample("t", None, b"%d" % number, (), None, "/a", number, number + 1) for number in range(count))
        return tuple(SplitResult(one.split, one.offset, one.counts, at_end=True, samples=shown) for one in read_all(batch))

    return answer


def test_taps_get_what_passes_and_live_through_a_change(run: Callable[..., Worker], tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    write(path, "one")
    executor = ScriptedExecutor()
    worker = run(executor)
    read_so_far(worker, 4)
    assert executor.batches[0].samples == 0
    few, many = worker.tap("app", 2, 100), worker.tap("app", 5, 100)
    worker.apply([definition(tmp_path, delivery={"tasks_max": 1})])
    executor._otherwise = samples_of(4)
    write(path, "two")
    assert [sample.value for sample in few] == [b"0", b"1"]
    assert [next(many).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    write(path, "three")
    assert [sample.value for sample in many] == [b"0"]
    assert [batch.samples for batch in executor.batches] == [0, 5, 1]
    with pytest.raises(UnknownConnectorError):
        worker.tap("ap", 1, 1)


def test_a_tap_ends_with_its_time_and_with_its_connector(run: Callable[..., Worker]) -> None:
    worker = run(ScriptedExecutor())
    assert list(worker.tap("app", 5, 0.01)) == []
    tap = worker.tap("app", 5, 3600)
    worker.apply([])
    assert list(tap) == []


def test_files_are_told_by_the_connector_itself(run: Callable[..., Worker], tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a", "one")
    worker = run(ScriptedExecutor())
    read_so_far(worker, 4)
    asked: list[str] = []

    def question(source: Source) -> str:
        asked.append(threading.current_thread().name)
        return source.files()[0].path

    one = worker._handles["app"].connector
    assert one is not None
    assert one.ask(question) == str(tmp_path / "logs" / "a")
    assert asked != [threading.current_thread().name]  # between two steps, never beside one
    assert [view.position for view in worker.files("app")] == [4]
    worker.halt("app")
    assert worker.files("app") == ()


def test_a_question_that_fails_is_the_askers_trouble(run: Callable[..., Worker]) -> None:
    worker = run(ScriptedExecutor())
    wait_state(worker, State.RUNNING)
    one = worker._handles["app"].connector
    assert one is not None
    with pytest.raises(ZeroDivisionError):
        one.ask(lambda _: 1 // 0)
    assert state(worker) is State.RUNNING


def test_unsaved_offsets_are_told_while_they_are_unsaved(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    worker = run(ScriptedExecutor())
    wait_state(worker, State.RUNNING)
    assert worker.offsets_unsaved == ""
    store.fails = NO_ROOM
    write(path, "one")
    wait_until(lambda: worker.offsets_unsaved, message="it says so")
    assert worker.offsets_unsaved == str(NO_ROOM)
    assert ("save", "RetriableError") in worker.status("app").errors
    store.fails = None
    wait_until(lambda: not worker.offsets_unsaved, message="it is over")
    wait_state(worker, State.RUNNING)


def test_loops_that_do_not_turn_are_named_while_they_run(run: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    worker = run(ScriptedExecutor(), "a", "b")
    wait_until(worker.started, message="they run")
    assert not list(worker.stuck)
    monkeypatch.setattr(connector, "STUCK_SECONDS", -1.0)
    assert list(worker.stuck) == ["a", "b"]
    worker.halt("a")
    assert list(worker.stuck) == ["b"]


def test_an_agent_that_stops_refuses_orders(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run(ScriptedExecutor())
    worker.stop(1)
    with pytest.raises(BusyError, match="stopping"):
        worker.resume("app")
    worker.apply([definition(tmp_path, "other")])
    assert [status.name for status in worker.statuses()] == ["app"]


def test_offsets_that_cannot_be_taken_over_now_are_before_the_new_one_begins(
    run: Callable[..., Worker], store: MoodyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_policy, "RESTART_SECONDS", (0.01, 0.02))
    path = tmp_path / "logs" / "a"
    write(path, "one")
    executor = ScriptedExecutor()
    worker = run(executor, "old")
    read_so_far(worker, 4, "old")
    store.fails = NO_ROOM
    worker.apply([definition(tmp_path, "new")], {"new": ("old",)})
    wait_until(lambda: str(NO_ROOM) in worker.status("new").reason, message="it waits")
    store.fails = None
    write(path, "two")
    read_so_far(worker, 4, "new")
    assert [split.offset.position for batch in executor.batches for split in batch.splits] == [0, 4]


def test_a_connector_that_hangs_is_told_once_and_so_is_who_waits_for_it(
    run: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(worker_module, "LEAVE_SECONDS", 0.1)
    monkeypatch.setattr(worker_module, "START_SECONDS", 0.1)
    monkeypatch.setattr(connector, "TELL_SECONDS", 0.1)
    hangs, go_on = threading.Event(), threading.Event()
    scan = LogFileSource.scan

    def hanging(self: LogFileSource) -> object:
        hangs.set()
        go_on.wait(100)
        return scan(self)

    monkeypatch.setattr(LogFileSource, "scan", hanging)
    worker = run(ScriptedExecutor())
    assert hangs.wait(30)
    worker.restart("app")
    wait_until(lambda: worker.status("app").reason == connector.AFTER, message="it says what it waits for")
    assert not list(worker.stuck)
    monkeypatch.setattr(connector, "STUCK_SECONDS", 0.1)
    wait_until(lambda: worker.stuck == ("app",), message="the one that hangs counts")
    assert (state(worker), worker.status("app").reason) == (State.BLOCKED, connector.HANGS)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            worker.tell_of_hangs()
    assert [record.getMessage() for record in caplog.records].count("connector hangs") == 1
    monkeypatch.setattr(connector, "STUCK_SECONDS", 60.0)
    go_on.set()
    wait_state(worker, State.RUNNING)
    assert worker.status("app").reason == ""


def test_a_rename_by_hand_moves_what_a_person_wants_too(run: Callable[..., Worker], store: MoodyStore, tmp_path: Path) -> None:
    store.commit({SourcePartition("old", "1:1:0:0"): SourceOffset(7)})
    store.set_target("old", "paused")
    worker = run(ScriptedExecutor(), "new")
    wait_state(worker, State.RUNNING, "new")
    assert worker.rename_offsets("old", "new", force=True) == 1
    wait_state(worker, State.PAUSED, "new")
    worker.apply([definition(tmp_path, "new", delivery={"tasks_max": 1})])
    wait_state(worker, State.PAUSED, "new")
    assert store.targets() == {"new": "paused"}


def test_a_connector_whose_offsets_were_given_away_stays_stopped(run: Callable[..., Worker], store: MoodyStore) -> None:
    """It would read everything again, now or at the next start of the agent."""
    worker = run(ScriptedExecutor(), "old")
    wait_state(worker, State.RUNNING, "old")
    worker.halt("old")
    worker.rename_offsets("old", "new", force=False)
    assert state(worker, "old") is State.STOPPED
    assert store.targets()["old"] == "stopped"
