"""A file that leaves its patterns unread is read on by the next start, whenever the agent ends, and whatever was saved last."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.sources.rig import Agent, agent_for, tick


def append(path: Path, *numbers: int) -> None:
    with path.open("ab") as file:
        file.write(b"".join(b"line %d\n" % number for number in numbers))


def lines(*numbers: int) -> list[bytes]:
    return [b"line %d" % number for number in numbers]


ENDS: dict[str, Callable[[Agent], None]] = {"stopped": Agent.stop, "killed": Agent.restart}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
def test_renamed_after_the_last_look(tmp_path: Path, pattern: str, reads: bool, end: Callable[[Agent], None]) -> None:
    log, agent = tmp_path / "app.log", agent_for(tmp_path, pattern)
    append(log, 0)
    agent.drain() if reads else agent.scan()
    append(log, 1)
    agent.scan()
    log.rename(tmp_path / "app.log.1")
    append(log, 2)
    end(agent)
    agent.drain()
    assert agent.lines == lines(0, 1, 2)
    assert agent.losses == []


def test_moved_to_another_directory_after_the_last_look(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", agent_for(tmp_path, "app.log")
    append(log, 0, 1)
    agent.scan()
    (tmp_path / "old").mkdir()
    log.rename(tmp_path / "old" / "app.log.1")
    agent.stop()
    agent.drain()
    assert agent.lines == lines(0, 1)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_link_pointed_elsewhere_while_the_agent_was_down(tmp_path: Path, end: Callable[[Agent], None]) -> None:
    """Its target is where it was, under a name that no pattern ever matched."""
    (tmp_path / "logs").mkdir()
    current, first, second = (tmp_path / "logs" / name for name in ("current", "a.txt", "b.txt"))
    append(first, 0)
    current.symlink_to(first)
    agent = agent_for(tmp_path / "logs", "current", follow_symlinks=True)
    agent.scan()
    end(agent)
    agent.source.close()
    append(second, 1)
    current.unlink()
    current.symlink_to(second)
    agent.source = agent._make()
    agent.drain()
    assert sorted(agent.lines) == lines(0, 1)


def test_what_no_pattern_names_any_more_is_let_alone_behind_a_linked_directory_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "logs").symlink_to("data")
    append(tmp_path / "data" / "app.log", 0)
    agent = agent_for(tmp_path / "logs", "*.log")
    agent.scan()
    agent.options = agent.options.model_copy(update={"exclude": ("app.log",)})
    agent.stop()
    agent.drain()
    assert agent.lines == []


def test_written_to_while_nothing_can_be_sent_after_two_starts(tmp_path: Path) -> None:
    """Its size is saved then, as that of a file that left its patterns."""
    log, agent = tmp_path / "app.log", agent_for(tmp_path, "app.log", rotate_wait=60.0)
    append(log, 0)
    agent.scan()
    log.rename(tmp_path / "app.log.1")
    for _ in range(2):
        agent.restart()
        agent.scan()
    append(tmp_path / "app.log.1", 1)
    agent.source._sizes_at = -math.inf
    agent.scan()
    agent.restart()
    agent.drain()
    assert agent.lines == lines(0, 1)


def test_cut_and_renamed_between_two_looks(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", agent_for(tmp_path, "app.log")
    append(log, 0, 1, 2)
    agent.scan()
    tick()
    os.truncate(log, 0)
    append(log, 3)
    log.rename(tmp_path / "app.log.1")
    agent.scan()
    agent.restart()
    agent.drain()
    assert agent.lines == lines(3)
    assert [(loss.start, loss.end) for loss in agent.losses] == [(0, 21)]


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
def test_compressed_after_the_last_look(tmp_path: Path, pattern: str, end: Callable[[Agent], None]) -> None:
    """What its archive holds is not lost."""
    log, agent = tmp_path / "app.log", agent_for(tmp_path, pattern)
    append(log, 0)
    agent.drain()
    append(log, 1)
    agent.scan()
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    append(log, 2)
    end(agent)
    agent.drain()
    assert agent.lines == lines(0, 1, 2)
    assert agent.losses == []
