"""Copies that are written over the previous copy, so that each archive keeps its inode: `cp app.log app.log.1 && : > app.log`."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from copycat_agent.sources.log_file.succession import rules
from tests.unit.sources.rig import Agent, agent_for, tick


def lines(begin: int, end: int) -> list[bytes]:
    return [b"line %06d of the log" % number for number in range(begin, end)]


def append(path: Path, *some: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in some))


def copy_over(source: Path, target: Path) -> None:
    """As cp does: an existing target keeps its inode."""
    before = target.stat().st_ino if target.exists() else 0
    shutil.copyfile(source, target)
    assert before in (0, target.stat().st_ino)


def rotate(log: Path, depth: int) -> None:
    """Copy every generation over the next older one, then the log over the newest, then cut it."""
    for number in range(depth, 1, -1):
        newer = log.with_name(f"{log.name}.{number - 1}")
        if newer.exists():
            copy_over(newer, log.with_name(f"{log.name}.{number}"))
            tick()
    copy_over(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)


class Scene:
    """A log of which each generation has `count` lines."""

    def __init__(self, directory: Path, pattern: str, count: int, depth: int, **options: object) -> None:
        self.log = directory / "app.log"
        self.count, self.depth = count, depth
        self.written: list[bytes] = []
        self.write()
        self.agent: Agent = agent_for(directory, pattern, **options)

    def write(self, count: int = 0) -> None:
        more = lines(len(self.written), len(self.written) + (count or self.count))
        append(self.log, *more)
        self.written += more
        tick()

    def rotate(self) -> None:
        rotate(self.log, self.depth)
        tick()

    def check(self) -> None:
        """Every line once, none again at later starts, and nothing is said to be lost."""
        for _ in range(3):
            self.agent.drain()
            counts = Counter(self.agent.lines)
            assert sorted(set(self.written) - set(counts)) == [], "lost"
            assert {line: count for line, count in counts.items() if count > 1} == {}, "repeated"
            assert self.agent.losses == []
            self.agent.restart()
        self.agent.stop()
        self.agent.drain()
        assert Counter(self.agent.lines) == Counter(self.written)
        assert self.agent.losses == []


LONG = pytest.mark.long
COUNTS = [pytest.param(3, marks=LONG), 100]
"""Below and above a whole head."""


@pytest.fixture(params=["*", "*.log"])
def pattern(request: pytest.FixtureRequest) -> str:
    """Whether the copies match, or are found only by looking for them."""
    return str(request.param)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("depth", [1, pytest.param(2, marks=LONG), 3])
@pytest.mark.parametrize("how", ["read", "stop", "fail"])
@pytest.mark.parametrize("ended", ["running", "stopped", "killed"])
def test_each_generation_arrives_once(tmp_path: Path, pattern: str, count: int, depth: int, how: str, ended: str) -> None:
    """One rotation between two looks of the agent, or while it is down, three times."""
    scene = Scene(tmp_path, pattern, count, depth)
    for _ in range(3):
        scene.agent.drain()
        scene.write()
        scene.agent.scan()
        scene.agent.work(lambda: how)
        tick()
        if ended == "stopped":
            scene.agent.stop()
        scene.rotate()
        scene.write()
        if ended == "killed":
            scene.agent.restart()
    scene.check()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("how", ["read", "stop"])
@pytest.mark.parametrize("ended", ["running", "stopped", "killed"])
def test_lines_written_just_before_the_copy(tmp_path: Path, pattern: str, count: int, how: str, ended: str) -> None:
    """They lie in the copy only, and the agent has never seen them."""
    scene = Scene(tmp_path, pattern, count, 1)
    for _ in range(4):
        scene.agent.drain()
        scene.write(2)
        scene.agent.scan()
        scene.agent.work(lambda: how)
        if ended == "stopped":
            scene.agent.stop()
        scene.write(3)
        scene.rotate()
        if ended == "killed":
            scene.agent.restart()
        scene.write()
    scene.check()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("ended", ["stopped", "killed"])
@pytest.mark.parametrize("rotations", [2, pytest.param(3, marks=LONG)])
@pytest.mark.parametrize("earlier", [pytest.param(0, marks=LONG), 1, 3])
@pytest.mark.parametrize("how", ["read", "stop"])
def test_generations_that_were_rotated_twice_while_the_agent_was_down(
    tmp_path: Path, pattern: str, count: int, ended: str, rotations: int, earlier: int, how: str
) -> None:
    """Archives that keep their inodes, and that the agent may have known with what they held before."""
    scene = Scene(tmp_path, pattern, count, 4)
    for _ in range(earlier):
        scene.agent.drain()
        scene.rotate()
        scene.write()
    scene.agent.scan()
    scene.agent.work(lambda: how)
    tick()
    if ended == "stopped":
        scene.agent.stop()
    for _ in range(rotations):
        scene.rotate()
        scene.write()
    if ended == "killed":
        scene.agent.restart()
    scene.check()


def test_archives_that_were_never_wanted_are_not_read_when_they_are_copied_on(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        append(tmp_path / f"app.log.{number}", b"never wanted %d" % number, *lines(900, 900 + 10 * number))
    tick()
    scene = Scene(tmp_path, "app.log", 100, 3)
    for how in ("running", "stopped", "killed", "stopped"):
        scene.agent.drain()
        if how == "stopped":
            scene.agent.stop()
        scene.rotate()
        scene.write()
        if how == "killed":
            scene.agent.restart()
    scene.check()


@pytest.mark.parametrize("quiet", [False, True])
def test_a_copy_that_is_looked_at_before_the_log_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, quiet: bool) -> None:
    scene = Scene(tmp_path, pattern, 100, 1)
    scene.agent.drain()
    scene.rotate()
    for _ in range(3):
        scene.write()
        scene.agent.drain()
        copy_over(scene.log, tmp_path / "app.log.1")
        scene.agent.drain()
        os.truncate(scene.log, 0)
        scene.agent.drain()
        if quiet:
            monkeypatch.setattr(rules, "QUIET_SECONDS", 0.0)
            scene.agent.drain()
            monkeypatch.undo()
    scene.check()


def test_an_archive_that_was_let_go_and_is_written_over_has_lost_nothing(tmp_path: Path) -> None:
    """What is appended to it when `rotate_wait` is over is lost, but not what a copy holds that somebody writes over it."""
    scene = Scene(tmp_path, "app.log", 100, 1)
    scene.agent.drain()
    scene.rotate()
    scene.write(300)
    scene.agent.drain()
    assert scene.agent.source._closer._released._files.keys() == {str(tmp_path / "app.log.1")}
    copy_over(scene.log, tmp_path / "app.log.1")
    scene.check()
    assert scene.agent.source._closer._released._files == {}


@pytest.mark.parametrize("scans", [1, 2, 3])
def test_an_archive_that_is_being_read_while_it_is_written_over(tmp_path: Path, pattern: str, scans: int) -> None:
    """Before its task says that it is no longer what was read, nothing is lost of the log whose copy it has become."""
    scene = Scene(tmp_path, pattern, 100, 2)
    scene.agent.drain()
    scene.write()
    scene.agent.scan()
    scene.agent.work(lambda: "stop")
    scene.rotate()
    scene.write()
    scene.agent.scan()
    scene.agent.work(lambda: "stop")
    splits = scene.agent.source.plan(1).splits
    assert splits
    scene.rotate()
    scene.write()
    for _ in range(scans):
        scene.agent.scan()
    results = tuple(scene.agent.read(split, "read") for split in splits)
    scene.agent._save(results, scene.agent.source.changes_of(results))
    scene.check()
