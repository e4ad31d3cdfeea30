"""Whatever a clock says, no generation that was rotated out of the patterns between two looks is lost, and what was there is let alone."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from copycat_agent.model import SourceState
from copycat_agent.sources.files import clock
from copycat_agent.sources.log_file.succession.last_look import SLACK_NS
from tests.unit.sources.rig import Agent, agent_for, tick

HOUR = 3600 * 10**9
SetClock = Callable[[int], None]
"""Makes a clock wrong by so many nanoseconds."""


def append(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line + b"\n")
    tick()


def shift(log: Path) -> None:
    for number in (3, 2, 1):
        old = log.with_name(f"app.log.{number}")
        if old.exists():
            old.rename(log.with_name(f"app.log.{number + 1}"))
    log.rename(log.with_name("app.log.1"))


def copy_and_cut(log: Path) -> None:
    for number in (3, 2, 1):
        old = log.with_name(f"app.log.{number}")
        if old.exists():
            old.rename(log.with_name(f"app.log.{number + 1}"))
    shutil.copy(log, log.with_name("app.log.1"))
    os.truncate(log, 0)


@pytest.fixture
def process_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """The clock of the process only: file systems have the right one, as those of a server have."""
    wrong, really, really_ns = [0], time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: really() + wrong[0] / 1e9)
    monkeypatch.setattr(time, "time_ns", lambda: really_ns() + wrong[0])
    return lambda by_ns: wrong.__setitem__(0, by_ns)


@pytest.fixture
def kernel_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """What the kernel stamps files with, as far as the agent knows; files that are made meanwhile get the right time."""
    wrong, really = [0], clock.now_ns
    monkeypatch.setattr(clock, "now_ns", lambda: really() + wrong[0])
    return lambda by_ns: wrong.__setitem__(0, by_ns)


def started(directory: Path) -> tuple[Path, Agent]:
    """`app.log`, read by an agent that has looked, beside an archive and a copy that nobody wants."""
    log = directory / "app.log"
    append(directory / "app.log.3", b"never wanted")
    append(log, b"1")
    agent = agent_for(directory, "app.log")
    agent.drain()
    shutil.copy(log, directory / "app.log.bak")
    tick()
    agent.drain()
    agent.stop()  # which saves when it looked last
    agent.drain()
    return log, agent


def ended(agent: Agent, how: str) -> None:
    {"running": lambda: None, "stopped": agent.stop, "killed": agent.restart}[how]()


def rotated_twice(log: Path, rotate: Callable[[Path], None], agent: Agent) -> list[bytes]:
    rotate(log)
    append(log, b"2")
    rotate(log)
    append(log, b"3")
    agent.drain()
    agent.restart()
    agent.drain()
    return sorted(agent.lines)


ENDS = pytest.mark.parametrize("end", ["running", "stopped", "killed"])
ROTATE = pytest.mark.parametrize("rotate", [shift, copy_and_cut])


@ENDS
@ROTATE
@pytest.mark.parametrize("wrong", [HOUR, -24 * HOUR])
@pytest.mark.parametrize("then", ["stays", "is set right"])
def test_a_wrong_clock_of_the_process_changes_nothing(
    tmp_path: Path, process_clock: SetClock, rotate: Callable[[Path], None], end: str, wrong: int, then: str
) -> None:
    process_clock(wrong)
    log, agent = started(tmp_path)
    ended(agent, end)
    if then == "is set right":
        process_clock(0)
    assert rotated_twice(log, rotate, agent) == [b"1", b"2", b"3"]


@ENDS
@ROTATE
def test_a_generation_made_after_the_clock_was_set_back_is_read(
    tmp_path: Path, kernel_clock: SetClock, rotate: Callable[[Path], None], end: str
) -> None:
    """It looks older than the last look. What else is as old as that and not known is read too: nobody can tell."""
    kernel_clock(HOUR)
    log, agent = started(tmp_path)
    ended(agent, end)
    kernel_clock(0)
    assert set(rotated_twice(log, rotate, agent)) >= {b"1", b"2", b"3"}


@pytest.mark.parametrize("end", ["running", "stopped"])
@ROTATE
def test_a_clock_that_is_set_ahead_changes_nothing(
    tmp_path: Path, kernel_clock: SetClock, rotate: Callable[[Path], None], end: str
) -> None:
    kernel_clock(-HOUR)
    log, agent = started(tmp_path)
    kernel_clock(0)
    agent.drain()
    ended(agent, end)
    assert rotated_twice(log, rotate, agent) == [b"1", b"2", b"3"]


@ROTATE
@pytest.mark.parametrize("known", [False, True], ids=["of an older version", "of another boot"])
def test_a_saved_look_that_lies_in_the_future_proves_nothing(tmp_path: Path, rotate: Callable[[Path], None], known: bool) -> None:
    """Nothing says by how much the clock was set back: what was made since the connector's first look may be a generation."""
    log, agent = started(tmp_path)
    agent.stop()
    assert agent.state is not None
    saved = agent.state.values
    later = {"seen_ms": saved["seen_ms"] + HOUR // 10**6, "ahead_ns": saved["ahead_ns"] if known else 0, "boot": ""}
    agent.state = SourceState({**saved, **later})
    agent.restart()
    lines = rotated_twice(log, rotate, agent)
    assert set(lines) >= {b"1", b"2", b"3"}
    assert b"never wanted" not in lines


def test_a_stop_before_the_first_look_forgets_no_rotation_that_was_open(tmp_path: Path) -> None:
    _, agent = started(tmp_path)
    agent.stop()
    assert agent.state is not None
    agent.state = SourceState({**agent.state.values, "rotations": 2})
    agent.restart()
    agent.stop()  # before anything was looked at
    assert agent.state.values["rotations"] == 2


@pytest.mark.parametrize("values", [{}, {"seen_ms": None, "rotations": "many"}])
def test_a_state_that_a_person_has_set_wrongly_is_an_old_one(tmp_path: Path, values: dict[str, Any]) -> None:
    log, agent = started(tmp_path)
    agent.stop()
    agent.state = SourceState(values)
    agent.restart()
    append(log, b"more")
    agent.drain()
    assert agent.lines[-1] == b"more"


@ENDS
@ROTATE
@pytest.mark.parametrize("wrong", [HOUR, -HOUR])
def test_files_that_a_server_stamps_are_compared_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_clock: SetClock, rotate: Callable[[Path], None], end: str, wrong: int
) -> None:
    monkeypatch.setattr(clock, "is_local", lambda _: False)
    kernel_clock(wrong)
    log, agent = started(tmp_path)
    ended(agent, end)
    lines = rotated_twice(log, rotate, agent)
    assert set(lines) >= {b"1", b"2", b"3"}
    assert b"never wanted" not in lines


def test_the_kernel_s_time_is_what_files_get(tmp_path: Path) -> None:
    before = clock.now_ns()
    (tmp_path / "file").touch()
    assert before <= (tmp_path / "file").stat().st_mtime_ns <= time.time_ns()
    assert clock.is_local(tmp_path.stat().st_dev)
    assert not clock.is_local(os.makedev(0, 2**19))


def test_a_process_that_loses_the_processor_does_not_see_a_clock_that_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    true_ns, slow_reads, read = clock.ahead_ns(), iter(range(3)), clock.now_ns

    def disturbed() -> int:
        now = read()
        if next(slow_reads, None) is not None:
            time.sleep(0.1)
        return now

    monkeypatch.setattr(clock, "now_ns", disturbed)
    assert true_ns - clock.ahead_ns() < SLACK_NS
