"""Rotations step by step, with looks, reads and kills between any two steps: every line once, and in the order it was written."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.log_file.followed import view_of
from copycat_agent.sources.log_file.succession import rules
from tests.unit.sources.rig import Agent, agent_for

GENERATIONS = (5, 4, 3, 2, 1)


class Rotated:
    """A log of one writer, and its rotation as a list of steps. `late`: the writer finds out only later that its file was renamed.

    `dated`: generations have a date before the extension, and keep their names.
    """

    def __init__(self, directory: Path, *, copies: bool, packs: bool, late: bool, dated: bool, chance: random.Random) -> None:
        self.log, self.first = directory / "app.log", directory / "app.log.1"
        self._dates = iter(range(10, 32)) if dated else None
        self.written, self.padding = 0, b""
        self._copies, self._packs, self._late, self._chance = copies, packs, late, chance
        self.steps: Iterator[Callable[[], object]] = iter(())
        self.is_rotating = False

    def append(self, count: int, path: Path | None = None) -> None:
        with (path or self.log).open("ab") as file:
            for _ in range(count):
                file.write(b"line %06d of the log, as long as any%s\n" % (self.written, self.padding))
                self.written += 1

    def rotate(self) -> None:
        self.is_rotating, self.steps = True, self._rotation()

    def step(self) -> bool:
        """False when the rotation is over."""
        step = next(self.steps, None)
        self.is_rotating = step is not None
        if step is not None:
            step()
        return self.is_rotating

    def _rotation(self) -> Iterator[Callable[[], object]]:
        yield self._shift
        if self._copies:
            yield lambda: shutil.copy(self.log, self.first)
            yield lambda: os.truncate(self.log, 0)
        else:
            yield self._rename
            yield self.log.touch
        if self._late:
            yield lambda: self.append(3, self.first)
            yield lambda: self.append(3, self.first)
        if self._packs:
            yield from self._packing()

    def _shift(self) -> None:
        if self._dates is not None:
            self.first = self.log.with_name(f"app-2026-11-{next(self._dates)}.log")
            return
        for number in GENERATIONS:
            for suffix in ("", ".gz"):
                old = self.log.with_name(f"app.log.{number}{suffix}")
                if old.exists():
                    old.rename(old.with_name(f"app.log.{number + 1}{suffix}"))

    def _rename(self) -> None:
        self.log.rename(self.first)
        if self._dates is not None:  # such a name belongs to the log only while that is there
            self.log.touch()

    def _packing(self) -> Iterator[Callable[[], object]]:
        packed, block = self.first.with_name(f"{self.first.name}.gz"), gzip.compress(self.first.read_bytes())
        size = self._chance.randint(0, len(block))
        yield lambda: packed.write_bytes(block[:size])
        yield lambda: packed.write_bytes(block)
        yield lambda: os.utime(packed, ns=(self.first.stat().st_atime_ns, self.first.stat().st_mtime_ns))
        yield self.first.unlink


def go_on(log: Rotated, agent: Agent, event: str, chance: random.Random) -> None:
    if event == "append" and not log.is_rotating:
        log.append(chance.randint(1, 40))
    elif event == "rotate" and not log.is_rotating and log.log.exists() and log.log.stat().st_size:
        log.rotate()
    elif event == "step":
        log.step()
    elif event == "scan" or (event == "wake" and not agent.source.wake([str(log.log), str(log.log.parent)])):
        agent.scan()
    elif event in ("read", "stop", "fail"):
        agent.work(lambda: event)
    elif event == "kill":
        agent.restart()


def come_to_rest(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes: whatever was held back for a while is read."""
    agent.drain()
    monkeypatch.setattr(rules, "QUIET_SECONDS", 0.0)
    agent.drain()
    held = [file.path for file in agent.source._catalog.followed.files.values() if file.size and (file.unread or file.unjudged)]
    assert held == []


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize(("copies", "packs", "late"), [
    (True, False, False), (True, True, False), (False, False, False), (False, True, False), (False, False, True), (False, True, True),
])  # fmt: skip
@pytest.mark.parametrize(
    "seeds", [range(30), pytest.param(range(30, 2000), marks=[pytest.mark.long, pytest.mark.timeout(1200)])], ids=["some", "many"]
)
def test_whatever_is_rotated_how_every_line_comes_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: bool, packs: bool, late: bool, kills: bool, dated: bool, seeds: range
) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        directory = tmp_path / str(seed)
        directory.mkdir()
        log, agent = Rotated(directory, copies=copies, packs=packs, late=late, dated=dated, chance=chance), agent_for(directory)
        play(log, agent, chance, monkeypatch, kills=kills)
        assert [int(line.split()[1]) for line in agent.lines] == list(range(log.written)), f"seed {seed}"
        if not (kills and packs) and seeds.stop == 30:  # what was not read before a kill, and is in an archive then, is counted too
            assert agent.losses == [], f"seed {seed}"
        agent.source.close()


class Elsewhere(Rotated):
    """Its generations go to another directory, under names that they keep."""

    def _shift(self) -> None:
        super()._shift()
        self.first = self.log.parent / "old" / self.first.name


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize(
    ("copies", "packs", "late"), [(True, False, False), (True, True, False), (False, True, False), (False, True, True)]
)
def test_whatever_is_rotated_into_another_directory_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: bool, packs: bool, late: bool, kills: bool
) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        directory = tmp_path / str(seed)
        (directory / "old").mkdir(parents=True)
        log = Elsewhere(directory, copies=copies, packs=packs, late=late, dated=True, chance=chance)
        log.padding = b"." * fingerprint.HEAD_BYTES  # in another directory only a whole head is a proof
        agent = Agent((f"{directory}/app*", f"{directory}/old/*"))
        play(log, agent, chance, monkeypatch, kills=kills)
        assert sorted(int(line.split()[1]) for line in agent.lines) == list(range(log.written)), f"seed {seed}"
        agent.source.close()


def play(log: Rotated, agent: Agent, chance: random.Random, monkeypatch: pytest.MonkeyPatch, *, kills: bool) -> None:
    """A random history, to its end."""
    log.append(chance.choice([0, 3]))
    events = ["append", "append", "scan", "read", "rotate", "step", "step", "step", "wake", "stop", "fail", *(["kill"] if kills else [])]
    for event in chance.choices(events, k=chance.randint(5, 60)):
        go_on(log, agent, event, chance)
    while log.step():
        pass
    with monkeypatch.context() as patch:
        come_to_rest(agent, patch)


def append(path: Path, block: bytes) -> None:
    with path.open("ab") as file:
        file.write(block)


def test_two_generations_of_equal_unread_lines_do_not_wait_for_each_other(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", agent_for(tmp_path)
    append(log, b"A\n")
    agent.scan()
    log.rename(tmp_path / "app.log.1")
    agent.scan()
    append(log, b"A\n")
    agent.scan()
    agent.restart()
    agent.drain()
    assert agent.lines == [b"A", b"A"]


def test_a_live_log_does_not_wait_for_a_copy_of_itself(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", agent_for(tmp_path)
    append(log, b"1\n2\n")
    shutil.copy(log, tmp_path / "app.log.1")
    agent.drain()
    agent.restart()
    append(log, b"3\n")
    agent.drain()
    assert agent.lines == [b"1", b"2", b"3"]
    copy = next(file for file in agent.source._catalog.followed.files.values() if file.unjudged)
    assert view_of(copy).state == "waiting"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_short_beginning_of_an_archive_is_waited_for(tmp_path: Path, restarts: bool) -> None:
    log, packed, text = tmp_path / "app.log.1", tmp_path / "app.log.1.gz", b"line 1\nline 2\nline 3\n"
    append(log, text)
    agent = agent_for(tmp_path)
    agent.drain()
    append(packed, gzip.compress(text[:7]))
    if restarts:
        agent.restart()
    agent.drain()
    append(packed, gzip.compress(text[7:]))
    log.unlink()
    agent.drain()
    assert agent.lines == text.splitlines()


@pytest.mark.parametrize("how", ["read", "stop", "fail"])
def test_an_archive_of_a_log_that_is_being_read_waits_for_what_comes_of_that(tmp_path: Path, how: str) -> None:
    log, lines = tmp_path / "app.log", [b"line %06d of the log" % number for number in range(300)]
    append(log, b"".join(line + b"\n" for line in lines))
    agent = agent_for(tmp_path)
    agent.scan()
    (split,) = agent.source.plan(1).splits
    result = agent.read(split, how)
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    os.truncate(log, 0)
    append(log, b"new\n")
    agent.scan()
    assert agent.work() == 0
    agent._save((result,), agent.source.changes_of((result,)))
    agent.drain()
    assert agent.lines == [*lines, b"new"]
    assert agent.losses == []


@pytest.mark.parametrize("packed_at", ["once", "later"])
def test_a_log_that_is_renamed_packed_and_deleted_while_it_is_read_comes_whole(tmp_path: Path, packed_at: str) -> None:
    log, lines = tmp_path / "app.log", [b"line %06d of the log" % number for number in range(300)]
    append(log, b"".join(line + b"\n" for line in lines))
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "stop")
    first = tmp_path / "app.log.1"
    log.rename(first)
    if packed_at == "later":
        agent.scan()
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(first.read_bytes()))
    first.unlink()
    agent.drain()
    assert agent.lines == lines
    assert agent.losses == []


def test_a_log_that_was_cut_unread_while_the_agent_was_down_is_read_from_its_copy(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", agent_for(tmp_path)
    append(log, b"1\n2\n")
    agent.scan()
    agent.stop()
    shutil.copy(log, tmp_path / "app.log.1")
    os.truncate(log, 0)
    append(log, b"3\n")
    agent.drain()
    assert agent.lines == [b"1", b"2", b"3"]
    assert agent.losses == []


@pytest.mark.parametrize("first", [b"", b"1\n"])
def test_a_log_that_was_filled_copied_and_cut_before_it_was_first_read(tmp_path: Path, first: bytes) -> None:
    """As when a runner takes its time to start: nobody has looked since."""
    log, agent = tmp_path / "app.log", agent_for(tmp_path)
    log.write_bytes(first)
    agent.scan()
    append(log, b"1\n2\n"[len(first) :])
    shutil.copy(log, tmp_path / "app.log.1")
    os.truncate(log, 0)
    append(log, b"3\n4\n5\n")
    agent.source._planner._scanned_at -= 60
    agent.work()
    agent.drain()
    assert agent.lines == [b"1", b"2", b"3", b"4", b"5"]
    assert agent.losses == []


def test_a_log_that_was_copied_and_cut_before_the_task_began_to_read_it(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", agent_for(tmp_path)
    append(log, b"1\n2\n")
    agent.scan()
    (split,) = agent.source.plan(1).splits
    shutil.copy(log, tmp_path / "app.log.1")
    os.truncate(log, 0)
    append(log, b"3\n4\n5\n")
    result = agent.read(split, "read")
    agent._save((result,), agent.source.changes_of((result,)))
    agent.drain()
    assert agent.lines == [b"1", b"2", b"3", b"4", b"5"]
    assert agent.losses == []


def test_a_file_under_way_is_not_planned_again_behind_an_older_one_that_came_back(tmp_path: Path) -> None:
    directory, away = tmp_path / "logs", tmp_path / "away"
    directory.mkdir()
    live, old = directory / "app.log", directory / "app.log.1"
    agent = agent_for(directory)
    old.write_bytes(b"1\n")
    agent.drain()
    agent.stop()
    old.rename(away)
    append(away, b"2\n")
    os.utime(away, (1, 1))
    live.write_bytes(b"3\n")
    agent.scan()
    assert [split.path for split in agent.source.plan(2).splits] == [str(live)]
    away.rename(old)
    agent.scan()
    assert [split.path for split in agent.source.plan(1).splits] == [str(old)]


def test_a_log_that_was_rotated_twice_between_two_looks_and_kept_one_generation(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", agent_for(tmp_path)
    append(log, b"1\n")
    agent.scan()
    append(log, b"2\n")
    for line in (b"3\n", b"4\n"):
        log.rename(tmp_path / "app.log.1")
        append(log, line)
    agent.drain()
    assert agent.lines == [b"1", b"2", b"3", b"4"]
    assert agent.losses == []


def test_a_new_log_waits_for_the_one_that_was_renamed_over_a_file_in_flight(tmp_path: Path) -> None:
    """What that one is can be told once the batch is back, and the new log waits for it from then on."""
    log, old = tmp_path / "app.log", tmp_path / "app.log.1"
    agent = agent_for(tmp_path)
    append(old, b"1\n")
    agent.scan()
    splits = agent.source.plan(1).splits
    append(log, b"2\n")
    log.rename(old)
    append(log, b"3\n")
    agent.scan()
    agent.come_back(tuple(agent.read(split) for split in splits))
    agent.work()
    agent.drain()
    assert agent.lines == [b"1", b"2", b"3"]


def test_a_copy_that_is_moved_back_to_the_name_of_a_deleted_log_is_the_newer_one(tmp_path: Path) -> None:
    log, copy = tmp_path / "app.log", tmp_path / "app.log.1"
    append(log, b"1\n2\n")
    agent = agent_for(tmp_path)
    agent.drain()
    shutil.copy(log, copy)
    agent.scan()
    append(log, b"3\n")
    log.unlink()
    agent.scan()
    copy.rename(log)
    append(log, b"4\n")
    agent.drain()
    assert [line for line in agent.lines if line in (b"3", b"4")] == [b"3", b"4"]


def test_an_older_log_that_is_moved_back_to_the_name_of_the_log_comes_last(tmp_path: Path) -> None:
    log, old, away = tmp_path / "app.log", tmp_path / "app.log.1", tmp_path / "app.log.2"
    append(old, b"1\n")
    append(log, b"2\n")
    agent = agent_for(tmp_path)
    agent.scan()
    log.rename(away)
    old.rename(log)
    append(log, b"3\n")
    agent.drain()
    assert agent.lines == [b"2", b"1", b"3"]


def test_a_new_log_waits_for_the_deleted_one_also_when_a_copy_goes_before_that(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, b"1\n")
    agent = agent_for(tmp_path, "*.log")
    agent.drain()
    shutil.copy(log, tmp_path / "app.log.1")
    os.truncate(log, 0)
    append(log, b"2\n2\n")
    log.unlink()
    append(log, b"3\n")
    agent.drain()
    assert agent.lines == [b"1", b"2", b"2", b"3"]
