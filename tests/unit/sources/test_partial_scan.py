"""A partial scan stands in for a scan only where it sees the same."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sources.files.paths.discovery import Discovery, MatchedFile, mark
from copycat_agent.sources.files.paths.partial_scan import COVERED_SECONDS, FULL_COST, FULL_SECONDS, PartialScan
from copycat_agent.sources.log_file.descriptors import Descriptors
from copycat_agent.sources.planner import Changes
from tests.rig.waiting import wait_until
from tests.unit.sources.rig import Agent, agent_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TICK_NS = 10_000_000
"""Time stamps of this kernel's file systems may be so coarse."""


class Clock:
    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now


def scanning_partly(directory: Path, clock: Clock, **options: Any) -> Agent:
    """An agent that scans partly whenever it may, and looks at every file when it does. It has scanned; its directory is at rest."""
    agent = agent_for(directory, **options)
    agent.source.partial_scan = PartialScan(clock=clock, worth_seconds=0.0, round_seconds=1e-9, young_ns=TICK_NS)
    agent.drain()
    clock.now += 1
    rest(agent)
    return agent


def rest(agent: Agent) -> None:
    """Scan until the directory has not changed for a tick."""

    def scanned() -> bool:
        agent.scan()
        return agent.source.partial_scan.suffices()

    wait_until(scanned)


def forbid_scans(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(_: Changes) -> None:
        pytest.fail("this was a scan")

    monkeypatch.setattr(agent.source._catalog, "scan", scan)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = tmp_path / "app.log"
    log.write_text("1\n")
    (tmp_path / "other.log").write_text("other\n")
    return log


def test_growth_is_seen_without_a_scan(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = scanning_partly(tmp_path, Clock(), max_open_files=1)
    forbid_scans(agent, monkeypatch)
    for number in (2, 3):
        with log.open("a") as file:
            file.write(f"{number}\n")
        agent.drain()
    assert sorted(agent.lines) == [b"1", b"2", b"3", b"other"]


def test_a_file_rewritten_in_place_is_seen_without_a_scan(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = scanning_partly(tmp_path, Clock())
    forbid_scans(agent, monkeypatch)
    before = log.stat().st_mtime_ns

    def rewritten() -> bool:
        with log.open("r+") as file:
            file.write("x\n")
        return log.stat().st_mtime_ns != before

    wait_until(rewritten)
    agent.drain()
    assert agent.lines[-1] == b"x"


def test_a_file_that_was_cut_is_seen_without_a_scan(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = scanning_partly(tmp_path, Clock())
    forbid_scans(agent, monkeypatch)
    os.truncate(log, 0)
    agent.drain()
    log.write_text("new\n")
    agent.drain()
    assert agent.lines[-1] == b"new"


@pytest.mark.parametrize("change", ["new", "gone", "renamed", "directory"])
def test_a_change_of_names_needs_a_scan(tmp_path: Path, log: Path, change: str) -> None:
    agent = scanning_partly(tmp_path, Clock())
    if change == "new":
        (tmp_path / "new.log").write_text("new\n")
    elif change == "gone":
        log.unlink()
    elif change == "renamed":
        log.rename(tmp_path / "app.log.1")
    else:
        (tmp_path / "deeper").mkdir()
    assert not agent.source.partial_scan.suffices()
    agent.drain()
    assert (b"new" in agent.lines) == (change == "new")


def looks_at_all(directory: Path, clock: Clock, **options: Any) -> Agent:
    """An agent of a directory at rest, so small that every file is looked at before a scan is left out."""
    agent = agent_for(directory, "*.log", **options)
    agent.source.partial_scan = PartialScan(clock=clock, worth_seconds=math.inf, young_ns=TICK_NS)
    come_to_rest(agent)
    return agent


def come_to_rest(agent: Agent) -> None:
    def is_at_rest() -> bool:
        agent.drain()
        return agent.source.unchanged()

    wait_until(is_at_rest)


def grow(log: Path) -> None:
    with log.open("a") as file:
        file.write("2\n")


def replace_by_another(log: Path) -> None:
    (log.parent / "next").write_text("1\n")
    (log.parent / "next").replace(log)


def change_times(log: Path) -> None:
    os.utime(log, ns=(0, 0))


@pytest.mark.parametrize("change", [grow, Path.unlink, replace_by_another, change_times, lambda log: os.truncate(log, 0)])
@pytest.mark.parametrize("name", ["app.log", "other.log"])
def test_nothing_is_unchanged_once_a_file_is_other(tmp_path: Path, log: Path, name: str, change: Callable[[Path], object]) -> None:
    agent = looks_at_all(tmp_path, Clock(), max_open_files=1)
    before = len(agent.lines)
    change(log.with_name(name))
    assert not agent.source.unchanged()
    agent.drain()
    assert (agent.lines[before:] == [b"2"]) == (change is grow)


def test_nothing_is_unchanged_once_there_is_another_name(tmp_path: Path, log: Path) -> None:
    agent = looks_at_all(tmp_path, Clock())
    log.with_name("new.log").write_text("new\n")
    assert not agent.source.unchanged()


def test_a_name_that_leads_elsewhere_is_a_change(tmp_path: Path, log: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "first").write_text("first\n")
    (elsewhere / "second").write_text("second\n")
    log.with_name("link.log").symlink_to(elsewhere / "first")
    agent = looks_at_all(tmp_path, Clock(), follow_symlinks=True)
    (elsewhere / "second").replace(elsewhere / "first")
    assert not agent.source.unchanged()
    agent.drain()
    assert b"second" in agent.lines


def test_a_file_that_was_let_go_is_looked_at(tmp_path: Path, log: Path) -> None:
    agent = looks_at_all(tmp_path, Clock())
    log.rename(tmp_path / "rotated")
    come_to_rest(agent)
    grow(tmp_path / "rotated")
    assert not agent.source.unchanged()
    agent.scan()
    assert [loss.end for loss in agent.losses] == [4]


def test_what_a_server_keeps_is_scanned_each_time(tmp_path: Path, log: Path) -> None:
    agent = looks_at_all(tmp_path, Clock())
    agent.source.partial_scan = PartialScan(young_ns=TICK_NS, worth_seconds=math.inf, is_local=lambda _device: False)
    for _ in range(3):
        agent.scan()
        assert not agent.source.unchanged()


def test_a_scan_is_made_now_and_then_whatever_looks_say(tmp_path: Path, log: Path) -> None:
    clock = Clock()
    agent = looks_at_all(tmp_path, clock)
    clock.now += COVERED_SECONDS + 1
    assert not agent.source.unchanged()


def test_a_directory_that_has_just_changed_is_scanned_again(tmp_path: Path, log: Path) -> None:
    agent = looks_at_all(tmp_path, Clock())
    agent.source.partial_scan = PartialScan(worth_seconds=math.inf, young_ns=10**18)
    agent.scan()
    assert not agent.source.unchanged()


def test_a_directory_that_is_replaced_needs_a_scan(tmp_path: Path) -> None:
    inside = tmp_path / "logs"
    inside.mkdir()
    (inside / "app.log").write_text("1\n")
    agent = scanning_partly(inside, Clock())
    inside.rename(tmp_path / "before")
    inside.mkdir()
    assert not agent.source.partial_scan.suffices()


def test_a_directory_that_has_just_changed_is_not_trusted(tmp_path: Path, log: Path) -> None:
    agent = scanning_partly(tmp_path, Clock())
    agent.source.partial_scan = PartialScan(worth_seconds=0.0, young_ns=3600 * 10**9)
    agent.scan()
    assert not agent.source.partial_scan.suffices()


def test_a_scan_is_made_now_and_then_whatever_directories_say(tmp_path: Path, log: Path) -> None:
    clock = Clock()
    partial = PartialScan[Any](clock=clock, worth_seconds=0.0)
    partial.scanned({str(tmp_path): mark(str(tmp_path))}, time.time_ns() + 60 * 10**9, FULL_SECONDS / FULL_COST)
    assert partial.suffices()
    clock.now += FULL_SECONDS + 1
    assert not partial.suffices()


def test_cheap_scans_are_made_each_time(tmp_path: Path, log: Path) -> None:
    agent = scanning_partly(tmp_path, Clock())
    agent.source.partial_scan = PartialScan(worth_seconds=math.inf, young_ns=0)
    agent.scan()
    assert not agent.source.partial_scan.suffices()


def test_a_round_of_partial_scans_looks_at_every_file(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.log").write_text(f"{number}\n")
    clock = Clock()
    agent = scanning_partly(tmp_path, clock, max_open_files=1)
    partial = agent.source.partial_scan = PartialScan(clock=clock, round_seconds=20.0)
    partial.scanned({}, 0, 0.0)
    files = agent.source._catalog.followed.files.values()
    seen = set()
    for _ in range(22):
        clock.now += 1
        chosen = partial.choose(files, ())
        assert len(chosen) <= 3
        seen |= {file.path for file in chosen}
    assert len(seen) == 20


def looking_at_few(directory: Path, clock: Clock, **options: Any) -> Agent:
    """Like `scanning_partly`, but a partial scan looks at hardly any quiet file."""
    agent = agent_for(directory, **options)
    agent.source.partial_scan = PartialScan(clock=clock, worth_seconds=0.0, round_seconds=1e9, young_ns=TICK_NS)
    agent.drain()
    rest(agent)
    return agent


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_file_that_was_written_to_lately_is_looked_at_although_it_is_closed(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / f"{number}.log").write_text(f"{number}\n")
    agent = looking_at_few(tmp_path, Clock(), max_open_files=1)
    forbid_scans(agent, monkeypatch)
    for name in ("3.log", "4.log", "app.log"):  # all but the last are closed by now
        append(tmp_path / name, f"more of {name}\n")
    agent.drain()
    assert {line for line in agent.lines if line.startswith(b"more")} == {b"more of 3.log", b"more of 4.log", b"more of app.log"}


def test_what_a_run_to_the_end_has_read_is_judged_by_a_scan(tmp_path: Path, log: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.log").write_text(f"{number}\n")
    agent = looking_at_few(tmp_path, Clock(), max_open_files=1)
    for file in agent.source._catalog.followed.files.values():
        file.seen = replace(file.seen, grown_at=file.grown_at - 1000.0)
    append(tmp_path / "3.log", "more\n")
    agent.source.end_timed_out(at_once=True)
    while not agent.source.drained():
        agent.work()
    agent.scan()
    assert not agent.source.drained()
    agent.drain()
    assert agent.lines[-1] == b"more"


@pytest.mark.parametrize("pattern", ["*", "*/app.log"])
def test_where_a_link_leads_to_nothing_yet_scans_go_on(tmp_path: Path, pattern: str) -> None:
    target, logs = tmp_path / "target", tmp_path / "logs"
    logs.mkdir()
    (logs / "link").symlink_to(target)
    agent = agent_for(logs, pattern, follow_symlinks=True, symlink_roots=(str(tmp_path),))
    agent.source.partial_scan = PartialScan(worth_seconds=0.0, young_ns=-(10**18))
    agent.drain()
    if pattern == "*":
        target.write_text("1\n")
    else:
        target.mkdir()
        (target / "app.log").write_text("1\n")
    agent.drain()
    assert agent.lines == [b"1"]


def test_a_file_that_came_while_its_directory_was_listed_is_found_whatever_clock_stamps_it(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_for(tmp_path)
    agent.source.partial_scan = PartialScan(worth_seconds=0.0, young_ns=-(10**18))  # as if the file server's clock were behind
    agent.drain()
    scan = Discovery.scan

    def slow_scan(self: Discovery, warn: Any) -> Iterator[MatchedFile]:
        yield from scan(self, warn)
        (tmp_path / "late.log").write_text("late\n")

    before = tmp_path.stat().st_mtime_ns
    wait_until(lambda: passes(tmp_path, before))
    with monkeypatch.context() as patched:
        patched.setattr(Discovery, "scan", slow_scan)
        agent.scan()
    agent.drain()
    assert b"late" in agent.lines


def passes(directory: Path, stamp: int) -> bool:
    """Whether the clock of the directory's file system has gone on beyond `stamp`. Changes the directory."""
    probe = directory / "probe"
    probe.mkdir()
    probe.rmdir()
    return directory.stat().st_mtime_ns > stamp


def test_a_file_written_over_is_scanned_though_an_event_told_of_it(tmp_path: Path, log: Path) -> None:
    agent = looks_at_all(tmp_path, Clock())
    log.write_bytes(b"2\n")
    agent.source.wake([str(log)])
    assert not agent.source.unchanged()
    agent.drain()
    assert agent.lines[-1] == b"2"


def test_what_a_scan_saw_of_a_file_in_flight_is_looked_at_again(tmp_path: Path, log: Path) -> None:
    agent = looks_at_all(tmp_path, Clock())
    grow(log)
    agent.scan()
    assert agent.work() == 1
    assert not agent.source.unchanged()


def test_what_a_scan_saw_of_a_file_as_it_made_room_is_not_left_out(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = looks_at_all(tmp_path, Clock())
    make_room = Descriptors.make_room

    def is_written_to_meanwhile(self: Descriptors, wanted: int, keep: Any = (), *, unread: bool) -> int:
        if len(log.read_text()) < 3:
            grow(log)
        return make_room(self, wanted, keep, unread=unread)

    monkeypatch.setattr(Descriptors, "make_room", is_written_to_meanwhile)
    monkeypatch.setattr(Descriptors, "limit", 1)
    agent.scan()
    assert len(log.read_text()) > 2
    assert not agent.source.unchanged()
    agent.drain()
    assert agent.lines[-1] == b"2"
