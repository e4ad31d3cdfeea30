"""What a person excludes is never read, whatever else is known of the file; a file that gets an excluded name is read to its end."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from tests.unit.sources.rig import Agent, agent_for, tick


def append(path: Path, *some: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in some))


def started(directory: Path, how: str = "read", *, exclude: tuple[str, ...] = ("*.bak", "*.gz")) -> Agent:
    """An agent over `app.log`, which holds two lines of which it has read both, or one."""
    append(directory / "app.log", b"line 1 of the log", b"line 2 of the log")
    tick()
    agent = agent_for(directory, "app.log", exclude=exclude)
    agent.scan()
    agent.work(lambda: how)
    tick()
    return agent


def ended(agent: Agent, how: str) -> None:
    {"running": lambda: None, "stopped": agent.stop, "killed": agent.restart}[how]()


ENDS = pytest.mark.parametrize("end", ["running", "stopped", "killed"])


@ENDS
def test_an_excluded_file_made_with_a_rotation_is_no_missed_generation(tmp_path: Path, end: str) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path)
    ended(agent, end)
    append(tmp_path / "app.log.bak", b"excluded")
    log.rename(tmp_path / "app.log.1")
    append(log, b"line 3 of the log")
    agent.drain()
    agent.restart()
    agent.drain()
    assert agent.lines == [b"line 1 of the log", b"line 2 of the log", b"line 3 of the log"]


@ENDS
def test_an_excluded_original_does_not_hide_the_archive_that_is_owed(tmp_path: Path, end: str) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, exclude=("*.1",))
    ended(agent, end)
    log.rename(tmp_path / "app.log.2")
    append(tmp_path / "app.log.1", b"missed")
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress((tmp_path / "app.log.1").read_bytes()))
    append(log, b"line 3 of the log")
    agent.drain()
    assert sorted(agent.lines) == [b"line 1 of the log", b"line 2 of the log", b"line 3 of the log", b"missed"]


@ENDS
@pytest.mark.parametrize("packed", [False, True])
def test_the_rest_of_a_log_is_not_taken_from_an_excluded_copy_and_is_entered_as_lost(tmp_path: Path, end: str, packed: bool) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, "stop")
    ended(agent, end)
    if packed:
        (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    else:
        shutil.copy(log, tmp_path / "app.log.bak")
    os.truncate(log, 0)
    agent.drain()
    agent.restart()
    agent.drain()
    assert agent.lines == [b"line 1 of the log"]
    assert [(loss.start, loss.end) for loss in agent.losses] == [(18, 36)]


@ENDS
def test_a_followed_file_that_gets_an_excluded_name_is_read_to_its_end(tmp_path: Path, end: str) -> None:
    """Its lines were written under a name that is not excluded."""
    log, agent = tmp_path / "app.log", started(tmp_path, "stop")
    with log.open("ab") as writer:
        ended(agent, end)
        log.rename(tmp_path / "app.log.bak")
        writer.write(b"line 3 of the log\n")
    append(log, b"line 4 of the log")
    agent.drain()
    assert agent.lines == [b"line %d of the log" % number for number in (1, 2, 3, 4)]
    assert agent.losses == []


@pytest.mark.parametrize("size", [b"other", b"other, and longer than all that was in it before by far"])
def test_what_is_written_over_a_file_that_got_an_excluded_name_is_not_read(tmp_path: Path, size: bytes) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path)
    agent.source._options = agent.source._options.model_copy(update={"rotate_wait": 300.0})
    log.rename(tmp_path / "app.log.bak")
    agent.drain()
    (tmp_path / "app.log.bak").write_bytes(size + b"\n")
    agent.drain()
    agent.restart()
    agent.drain()
    assert agent.lines == [b"line 1 of the log", b"line 2 of the log"]


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_log_that_is_excluded_while_the_agent_is_down_is_not_read_under_the_name_that_it_is_renamed_to(tmp_path: Path, end: str) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, "stop")
    agent.options = agent.options.model_copy(update={"exclude": ("app.log*",)})
    ended(agent, end)
    log.rename(tmp_path / "app.log.1")
    agent.restart()
    agent.drain()
    assert agent.lines == [b"line 1 of the log"]
