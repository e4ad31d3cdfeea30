"""Bytes that were destroyed before they were read are entered once: not twice, not never, whatever is killed or full when."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from copycat_agent.model import Loss, SplitResult
from copycat_agent.sources.log_file.tracked import TrackedFile
from tests.unit.sources.rig import Agent, agent_for

LINES = b"1\n22\n333\n"


class Way(NamedTuple):
    """How `app.log`, of which the first line is read, is destroyed; what is lost with it; whether the agent is away meanwhile."""

    destroy: Callable[[Path], object]
    lost: tuple[int, int]
    away: bool = False


def rewrite(log: Path) -> None:
    log.write_bytes(b"other and longer than before\n")


def replace_by_another(log: Path) -> None:
    """Deleted, and its inode perhaps given to a file that matches too."""
    log.unlink()
    for number in range(20):
        log.with_name(f"new-{number}.log").write_bytes(b"new\n")


WAYS = {
    "cut to nothing": Way(lambda log: os.truncate(log, 0), (2, 9)),
    "cut in the middle": Way(lambda log: os.truncate(log, 5), (5, 9)),
    "rewritten": Way(rewrite, (2, 9)),
    "cut to nothing while away": Way(lambda log: os.truncate(log, 0), (2, 9), away=True),
    "cut in the middle while away": Way(lambda log: os.truncate(log, 5), (5, 9), away=True),
    "rewritten while away": Way(rewrite, (2, 9), away=True),
    "deleted while away": Way(Path.unlink, (2, 9), away=True),
    "replaced while away": Way(replace_by_another, (2, 9), away=True),
}

MOMENTS = (
    "killed never",
    "killed before it is saved",
    "killed when it is saved",
    "stopped before it is saved",
    "full, then stopped",
    "full, then not",
)


def at(moment: str, agent: Agent) -> None:
    """Let a scan find the loss, with that happening around it."""
    agent.disk_full = moment in {"killed before it is saved", "stopped before it is saved", "full, then stopped", "full, then not"}
    agent.scan()
    if moment.startswith("full"):
        agent.scan()
    agent.disk_full = moment == "stopped before it is saved"
    if moment.startswith("stopped") or moment == "full, then stopped":
        agent.stop()
    elif moment.startswith("killed") and moment != "killed never":
        agent.restart()
    agent.disk_full = False


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", WAYS)
def test_a_loss_is_entered_once(tmp_path: Path, name: str, moment: str) -> None:
    way, log = WAYS[name], tmp_path / "app.log"
    log.write_bytes(LINES)
    agent = agent_for(tmp_path, "*.log")
    agent.scan()
    agent.work(lambda: "stop")
    if way.away:
        agent.stop()
    way.destroy(log)
    if way.away:
        agent.restart()
    at(moment, agent)
    agent.drain()
    agent.restart()
    agent.drain()
    (loss,) = agent.losses
    assert (Path(loss.path).name, loss.start, loss.end) == ("app.log", *way.lost) or doubtful(name, moment, loss)
    assert (loss.partition.connector, loss.reason, loss.size_bytes, loss.records) == ("app", "destroyed", loss.end - loss.start, 0)


def doubtful(name: str, moment: str, loss: Loss) -> bool:
    """The agent ended after it saw the new size and before it saw that the bytes are others: too much is called lost, never too little."""
    return name == "rewritten" and moment == "full, then stopped" and (loss.start, loss.end) == (2, 29)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_closed_file_that_went_away_is_entered_once(tmp_path: Path, moment: str) -> None:
    for age, name in enumerate(("a.log", "b.log")):
        (tmp_path / name).write_bytes(LINES)
        os.utime(tmp_path / name, (1_000_000 + age, 1_000_000 + age))
    agent = agent_for(tmp_path, "*.log", max_open_files=1)
    agent.scan()
    (tmp_path / "b.log").unlink()
    at(moment, agent)
    agent.drain()
    agent.restart()
    agent.drain()
    assert [(Path(loss.path).name, loss.start, loss.end) for loss in agent.losses] == [("b.log", 0, 9)]


def test_a_closed_file_that_was_renamed_out_of_its_patterns_is_found_and_read(tmp_path: Path) -> None:
    for age, name in enumerate(("a.log", "b.log")):
        (tmp_path / name).write_bytes(b"%s\n" % name.encode())
        os.utime(tmp_path / name, (1_000_000 + age, 1_000_000 + age))
    agent = agent_for(tmp_path, "*.log", max_open_files=1)
    agent.scan()
    (tmp_path / "b.log").rename(tmp_path / "b.old")
    agent.drain()
    assert sorted(agent.lines) == [b"a.log", b"b.log"]
    assert agent.losses == []


@pytest.mark.parametrize("full", [False, True])
def test_a_deleted_file_that_is_unread_at_a_stop_is_entered_once(tmp_path: Path, full: bool) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(LINES)
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "stop")
    log.unlink()
    agent.disk_full = full
    agent.stop()
    agent.disk_full = False
    agent.drain()
    agent.stop()
    agent.drain()
    assert [(loss.start, loss.end) for loss in agent.losses] == [(2, 9)]


def test_what_is_in_flight_at_a_stop_and_deleted_is_entered_from_what_was_saved(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(LINES)
    agent = agent_for(tmp_path)
    agent.scan()
    agent.source.plan(1)
    log.unlink()
    agent.stop()
    agent.drain()
    assert [(loss.start, loss.end) for loss in agent.losses] == [(0, 9)]


def test_a_cut_seen_in_flight_is_counted_by_the_next_start(tmp_path: Path) -> None:
    """The first result comes after the cut was seen and before a scan could count it; then the agent is killed."""
    log = tmp_path / "app.log"
    log.write_bytes(LINES)
    agent = agent_for(tmp_path)
    agent.scan()
    splits = agent.source.plan(1).splits
    result = agent.read(splits[0], "stop")
    os.truncate(log, 5)
    agent.source.wake({str(log)})
    agent._save((result,), agent.source.changes_of((result,)))
    agent.restart()
    agent.drain()
    assert [(loss.start, loss.end) for loss in agent.losses] == [(5, 9)]


def test_a_file_rotated_out_of_its_patterns_in_flight_never_moves_its_offset_back(tmp_path: Path) -> None:
    """The store is full when the batch comes back, and a scan finds the file gone before it is free again."""
    log = tmp_path / "app.log"
    log.write_bytes(LINES)
    agent = agent_for(tmp_path, "*.log", rotate_wait=300.0)
    agent.scan()
    agent.disk_full = True
    agent.work(lambda: "stop")
    log.rename(tmp_path / "away")
    agent.scan()
    agent.disk_full = False
    agent.scan()
    (offset,) = agent.store.values()
    assert offset.position == 2


def test_what_a_task_gave_up_is_saved_with_its_offset(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_bytes(LINES)
    agent = agent_for(tmp_path)
    agent.scan()
    split = agent.source.plan(1).splits[0]
    loss = Loss(split.partition, split.path, 0, 2, 2, 1, "rejected", "no", 1)
    good = agent.read(split, "stop")
    changes = agent.source.changes_of((SplitResult(split, good.offset, losses=(loss,)),))
    assert changes.losses == [loss]
    assert changes.offsets[split.partition].position == 2


def test_a_file_out_of_reach_for_too_long_is_entered_when_it_is_forgotten(tmp_path: Path) -> None:
    directory = tmp_path / "mount"
    directory.mkdir()
    (directory / "app.log").write_bytes(LINES)
    agent = agent_for(directory, forget_after=1.0)
    agent.scan()
    agent.work(lambda: "stop")
    agent.stop()
    directory.rename(tmp_path / "unmounted")
    agent.scan()
    aged = {partition: offset.gone_ms for partition, offset in agent.store.items()}
    assert all(aged.values())
    agent.store.update({partition: replace(agent.store[partition], gone_ms=1) for partition in aged})
    agent.restart()
    agent.scan()
    agent.restart()
    agent.scan()
    assert [(loss.start, loss.end) for loss in agent.losses] == [(2, 9)]
    assert not agent.store


def test_what_grew_while_nothing_could_be_sent_is_known_to_the_next_start(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(LINES)
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "fail")
    with log.open("ab") as file:
        file.write(b"more\n")
    agent.source._sizes_at = -1e9  # a minute later
    agent.scan()
    agent.restart()
    log.unlink()
    agent.drain()
    assert [(loss.start, loss.end) for loss in agent.losses] == [(0, 14)]


def test_a_first_look_that_cannot_be_saved_is_still_the_first(tmp_path: Path) -> None:
    """start_at: end holds for what was there then, not for files that came before the disk was free again."""
    (tmp_path / "old.log").write_bytes(LINES)
    agent = agent_for(tmp_path, start_at="end")
    agent.disk_full = True
    agent.scan()
    (tmp_path / "new.log").write_bytes(b"new\n")
    agent.scan()
    agent.disk_full = False
    agent.drain()
    assert agent.lines == [b"new"]


def test_lag_tells_since_when_something_waits(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    agent = agent_for(tmp_path)
    agent.drain()
    assert agent.source.lag().oldest_unread_ms == 0
    log.write_bytes(LINES)
    agent.scan()
    assert agent.source.lag().oldest_unread_ms > 0
    (tracked,) = agent.source._catalog.followed.files.values()
    first = 5  # it has been there for long
    tracked.reading = replace(tracked.reading, unread_since_ms=first)
    agent.work(lambda: "stop")
    assert agent.source.lag().oldest_unread_ms == first, "the rest was there then, too"
    splits = agent.source.plan(1).splits
    with log.open("ab") as file:
        file.write(b"4444\n")
    agent.source.wake({str(log)})
    result = agent.read(splits[0], "read")
    agent._save((result,), agent.source.changes_of((result,)))
    assert agent.source.lag().oldest_unread_ms == tracked.reading.at_ms > first, "what is left came after the batch was planned"
    assert agent.source.lag().bytes == 5
    agent.drain()
    assert agent.source.lag().oldest_unread_ms == 0
    (view,) = agent.source.files()
    assert view.read_at > 0


def test_rotated_and_cut_files_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(LINES)
    agent = agent_for(tmp_path, "app.log*")
    agent.drain()
    for number in (2, 1):
        if (tmp_path / f"app.log.{number}").exists():
            (tmp_path / f"app.log.{number}").rename(tmp_path / f"app.log.{number + 1}")
    log.rename(tmp_path / "app.log.1")
    log.write_bytes(b"new\n")
    agent.drain()
    assert agent.source.lag().rotated_files == 1
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    log.rename(tmp_path / "app.log.1")
    agent.drain()
    assert agent.source.lag().rotated_files == 2
    assert agent.source.lag().truncated_files == 0
    os.truncate(tmp_path / "app.log.1", 0)
    agent.drain()
    assert agent.source.lag().truncated_files == 1


def test_a_copied_log_that_is_cut_while_its_copy_is_compared_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut falls between the look at its size and the look at what it holds: what it held is read and in the copy."""
    log = tmp_path / "app.log"
    log.write_bytes(LINES)
    agent = agent_for(tmp_path)
    agent.drain()
    shutil.copyfile(log, tmp_path / "app.log.1")
    looked: list[str] = []
    holds = TrackedFile.holds

    def cut_then_look(file: TrackedFile) -> bool:
        if not looked:
            looked.append(file.path)
            log.write_bytes(b"new\n")
        return holds(file)

    monkeypatch.setattr(TrackedFile, "holds", cut_then_look)
    agent.drain()
    assert looked == [str(log)]
    assert agent.lines == [*LINES.split(), b"new"]
    assert agent.losses == []


@pytest.mark.parametrize("moment", ["before the task", "after the task"])
def test_a_cut_that_a_task_sees_first_loses_what_is_unread_once(tmp_path: Path, moment: str) -> None:
    """What was written over it and cut before anybody read it is entered too. Whether 9 to 14 was the log still, nobody knows then."""
    log = tmp_path / "app.log"
    log.write_bytes(LINES)
    agent = agent_for(tmp_path)
    agent.drain()
    log.write_bytes(LINES + b"4444\n")
    agent.scan()

    def cut() -> str:
        log.write_bytes(b"other, and as long as that\n" if moment == "before the task" else b"")
        return "read"

    agent.work(cut)
    log.write_bytes(b"new\n")
    agent.drain()
    assert agent.lines == [*LINES.split(), b"new"]
    destroyed = [(loss.start, loss.end) for loss in agent.losses]
    assert destroyed == ([(0, 27)] if moment == "before the task" else [(9, 14)])
