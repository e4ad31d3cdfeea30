"""Generations that were made and rotated out of the patterns while nobody looked: each is read once, in its turn, and no other file is."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.sources.rig import Agent, agent_for, tick

LOGROTATE = "/usr/sbin/logrotate"


def lines(begin: int, end: int) -> list[bytes]:
    return [b"line %06d of the log" % number for number in range(begin, end)]


def append(path: Path, *some: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in some))


def pack(path: Path) -> None:
    """As gzip does: the archive is as old as what is in it."""
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    shutil.copystat(path, packed)
    path.unlink()


def shift(log: Path, keep: int = 9, *, packed: bool = False) -> None:
    """Rename every generation, the oldest first; what is beyond `keep` is deleted."""
    for number in range(keep, 0, -1):
        for suffix in ("", ".gz"):
            old = log.with_name(f"{log.name}.{number}{suffix}")
            if old.exists() and number == keep:
                old.unlink()
            elif old.exists():
                old.rename(log.with_name(f"{log.name}.{number + 1}{suffix}"))
    log.rename(log.with_name(f"{log.name}.1"))
    if packed:
        pack(log.with_name(f"{log.name}.1"))


def settle(agent: Agent, expected: list[bytes]) -> None:
    """Everything once, in order, and nothing of it again at later starts."""
    for _ in range(3):
        agent.drain()
        assert agent.lines == expected
        agent.restart()
    agent.drain()
    agent.stop()
    agent.drain()
    assert agent.lines == expected
    assert agent.losses == []


def started(directory: Path, count: int, how: str = "read", pattern: str = "app.log") -> Agent:
    """An agent that has looked at `app.log`, with archives beside it that nobody wants, and is about to end."""
    append(directory / "app.log.3", b"never wanted")
    append(directory / "app.log.4", b"never wanted, packed")
    pack(directory / "app.log.4")
    append(directory / "app.log", *lines(0, count))
    tick()
    agent = agent_for(directory, pattern)
    agent.scan()
    agent.work(lambda: how)
    tick()
    return agent


@pytest.mark.parametrize("ended", ["stopped", "killed"])
@pytest.mark.parametrize("how", ["read", "stop", "fail"])
@pytest.mark.parametrize("count", [2, 100])
def test_generations_renamed_while_the_agent_was_down(tmp_path: Path, ended: str, how: str, count: int) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, count, how)
    if ended == "stopped":
        agent.stop()
    for number in (1, 2, 3):
        shift(log)
        tick()
        append(log, *lines(number * count, number * count + count))
    if ended == "killed":
        agent.restart()
    settle(agent, lines(0, 4 * count))


@pytest.mark.parametrize("how", ["read", "stop"])
def test_generations_packed_while_the_agent_was_down(tmp_path: Path, how: str) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100, how)
    agent.stop()
    for number in (1, 2, 3):
        shift(log, packed=True)
        tick()
        append(log, *lines(number * 100, number * 100 + 100))
    settle(agent, lines(0, 400))


@pytest.mark.parametrize("how", ["read", "stop"])
def test_packed_one_rotation_later(tmp_path: Path, how: str) -> None:
    """delaycompress: the newest rotated generation is plain, the others are packed."""
    log, agent = tmp_path / "app.log", started(tmp_path, 100, how)
    agent.stop()
    for number in (1, 2, 3):
        if (tmp_path / "app.log.1").exists():
            pack(tmp_path / "app.log.1")
        shift(log)
        tick()
        append(log, *lines(number * 100, number * 100 + 100))
    settle(agent, lines(0, 400))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("names", [
    ["app.log-20261120", "app.log-20261121"], ["app.log.2026-11-20", "app.log.2026-11-21"],
    ["app-2026-11-20.log", "app-2026-11-21.log"], ["app.2026-11-21.0.log", "app.2026-11-21.1.log"],
])  # fmt: skip
def test_names_with_dates(tmp_path: Path, names: list[str], packed: bool) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    agent.stop()
    for number, name in enumerate(names, 1):
        log.rename(tmp_path / name)
        if packed:
            pack(tmp_path / name)
        tick()
        append(log, *lines(number * 100, number * 100 + 100))
    agent.drain()
    if "log." in names[0] or "log-" in names[0]:
        settle(agent, lines(0, 300))
    agent.restart()
    agent.drain()
    assert Counter(agent.lines) == Counter(lines(0, 300))


@pytest.mark.parametrize("packed", [False, True])
def test_generations_behind_one_that_was_deleted(tmp_path: Path, packed: bool) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    agent.stop()
    for number in (1, 2, 3):
        shift(log, 2, packed=packed)
        tick()
        append(log, *lines(number * 100, number * 100 + 100))
    settle(agent, lines(0, 400))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("how", ["read", "stop"])
@pytest.mark.parametrize("count", [3, 100])
def test_generations_copied_and_cut_while_the_agent_was_down(tmp_path: Path, packed: bool, how: str, count: int) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, count, how)
    agent.stop()
    for number in (1, 2, 3):
        tick()
        copy = tmp_path / "app.log.copy"
        shutil.copy(log, copy)
        log.rename(tmp_path / "aside")
        copy.rename(log)
        shift(log, packed=packed)
        (tmp_path / "aside").rename(log)
        os.truncate(log, 0)
        append(log, *lines(number * count, number * count + count))
    agent.drain()
    assert Counter(agent.lines) == Counter(lines(0, 4 * count))
    agent.restart()
    agent.drain()
    assert Counter(agent.lines) == Counter(lines(0, 4 * count))


def test_a_generation_that_lived_shorter_than_a_scan(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    for number in (1, 2):
        shift(log)
        tick()
        append(log, *lines(number * 100, number * 100 + 100))
    settle(agent, lines(0, 300))


@pytest.mark.parametrize("how", ["read", "stop"])
def test_a_generation_that_was_copied_and_cut_between_two_looks(tmp_path: Path, how: str) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100, how)
    for number in (1, 2):
        if (tmp_path / "app.log.1").exists():
            (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
        shutil.copy(log, tmp_path / "app.log.1")
        os.truncate(log, 0)
        append(log, *lines(number * 100, number * 100 + 100))
        tick()
    settle(agent, lines(0, 300))


def test_a_generation_that_was_cut_unread_while_the_agent_was_down(tmp_path: Path) -> None:
    """The log is as long as it was, and nothing proves what it held."""
    log, agent = tmp_path / "app.log", started(tmp_path, 100, "fail")
    agent.stop()
    shutil.copy(log, tmp_path / "app.log.1")
    os.truncate(log, 0)
    append(log, *lines(100, 200))
    agent.drain()
    assert Counter(agent.lines) == Counter(lines(0, 200))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_generations_of_a_log_that_no_look_found_under_its_name(tmp_path: Path, ended: str, packed: bool) -> None:
    """As with `nocreate` of logrotate: a job writes its log now and then, and it is renamed after that."""
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    shift(log, packed=packed)
    agent.drain()
    agent.drain()
    tick()
    agent.drain()
    if ended == "stopped":
        agent.stop()
    agent.source.close()
    for number in (1, 2):
        append(log, *lines(number * 100, number * 100 + 100))
        shift(log, packed=packed)
        tick()
    agent.source = agent._make()
    agent.drain()
    append(log, *lines(300, 310))
    settle(agent, lines(0, 310))


def test_a_generation_with_a_date_of_a_log_that_no_look_found_under_its_name(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", agent_for(tmp_path, "app.log")
    append(log, *lines(0, 10))
    agent.drain()
    log.rename(tmp_path / "app-20261120.log")
    agent.drain()
    tick()
    agent.source.close()
    append(log, *lines(10, 20))
    log.rename(tmp_path / "app-20261121.log")
    agent.restart()
    settle(agent, lines(0, 20))


@pytest.mark.parametrize("starts", [1, 3])
@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_generations_packed_unread_while_the_agent_ran(tmp_path: Path, ended: str, starts: int) -> None:
    """The agent held what nobody could send. Each archive is as old as its last line, which the agent had seen."""
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    for number in (1, 2, 3):
        shift(log)
        append(log)
        agent.scan()
        pack(tmp_path / "app.log.1")
        agent.scan()
        append(log, *lines(number * 100, number * 100 + 100))
        agent.scan()
        tick()
    for _ in range(starts):
        (agent.stop if ended == "stopped" else agent.restart)()
        agent.scan()
        agent.work(lambda: "fail")
        tick()
    shift(log, packed=True)
    append(log, *lines(400, 410))
    settle(agent, lines(0, 410))


@pytest.mark.parametrize("rotated", ["app.log", "web.log"])
def test_a_generation_packed_unread_while_it_was_closed(tmp_path: Path, rotated: str) -> None:
    """There is room for one open file."""
    log, agent = tmp_path / rotated, agent_for(tmp_path, "*.log", max_open_files=1)
    agent.drain()
    tick()
    for name in ("app.log", "web.log"):
        append(tmp_path / name, name.encode())
        agent.scan()
        tick()
    agent.scan()
    with log.open():  # else the next file may get its inode
        shift(log, packed=True)
        append(log, b"more")
        agent.drain()
    assert sorted(agent.lines) == [b"app.log", b"more", b"web.log"]
    assert agent.losses == []


def test_archives_from_before_the_first_look_are_not_read_for_an_unread_log_that_is_gone(tmp_path: Path) -> None:
    """With copytruncate they are younger than their log."""
    log = tmp_path / "app.log"
    append(log, b"never wanted")
    tick()
    shutil.copy(log, tmp_path / "app.log.1")
    pack(tmp_path / "app.log.1")
    os.truncate(log, 0)
    append(log, b"wanted")
    tick()
    agent = agent_for(tmp_path, "app.log")
    agent.scan()
    log.unlink()
    agent.restart()
    agent.drain()
    assert agent.lines == []
    assert [(loss.start, loss.end) for loss in agent.losses] == [(0, 7)]


def test_a_log_that_was_made_and_rotated_before_anybody_saw_it(tmp_path: Path) -> None:
    agent, log = started(tmp_path, 5, pattern="*.log"), tmp_path / "web.log"
    append(log, b"first")
    shift(log)
    append(log, b"second")
    settle(agent, [*lines(0, 5), b"first", b"second"])


def test_the_first_look_reads_nothing_outside_the_patterns(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, b"old")
    shift(log)
    append(log, b"new")
    tick()
    agent = agent_for(tmp_path, "app.log")
    settle(agent, [b"new"])
    shift(log)
    append(log, b"newer")
    settle(agent, [b"new", b"newer"])


@pytest.mark.parametrize("ended", ["stopped", "killed", "running"])
def test_archives_that_were_there_are_never_read(tmp_path: Path, ended: str) -> None:
    """Nor when their rows are forgotten, when they are packed only now, or when they are younger than a log that is copied and cut."""
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    append(tmp_path / "app.log.1", b"older, and never wanted")
    append(tmp_path / "app.log.2", b"still older, and never wanted")
    tick()
    agent.drain()
    append(tmp_path / "other.log", b"no member")
    if ended != "running":
        {"stopped": agent.stop, "killed": agent.restart}[ended]()
    if ended != "killed":
        tick()
        pack(tmp_path / "app.log.2")
        shift(log)
        append(log, *lines(100, 110))
        settle(agent, lines(0, 110))
        return
    agent.scan()
    tick()
    shutil.copy(log, tmp_path / "app.log.0")
    os.truncate(log, 0)
    append(log, *lines(100, 110))
    settle(agent, lines(0, 110))


def test_other_logs_and_other_files_beside_it_are_let_alone(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    agent.stop()
    for number in (1, 2):
        shift(log)
        tick()
        append(log, *lines(number * 100, number * 100 + 100))
    for name in ("app.log~", ".app.log.swp", "app.log.gz.tmp", "app-1.log", "app-1.log.1", "web.log.1", "app.log.conf", "app-1.log.1.gz"):
        append(tmp_path / name, b"not a generation of app.log")
    (tmp_path / "app.log.7").mkdir()
    (tmp_path / "app.log.8").symlink_to(tmp_path / "web.log.1")
    settle(agent, lines(0, 300))


def test_a_copy_beside_a_log_that_was_not_rotated_is_let_alone(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    agent.stop()
    tick()
    shutil.copy(log, tmp_path / "app.log.bak")
    append(log, b"more")
    settle(agent, [*lines(0, 100), b"more"])


def test_a_copy_that_somebody_made_while_the_agent_ran_is_let_alone(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    shutil.copy(log, tmp_path / "app.log.bak")
    tick()
    tick()
    agent.scan()
    agent.stop()
    shift(log)
    append(log, b"more")
    settle(agent, [*lines(0, 100), b"more"])


@pytest.mark.parametrize("count", [3, 100])
def test_a_copy_that_the_log_was_read_beyond_of_before_it_was_cut_is_not_read(tmp_path: Path, count: int) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 70)
    shutil.copy(log, tmp_path / "app.log.1")
    append(log, *lines(70, 70 + count))
    agent.drain()
    os.truncate(log, 0)
    append(log, b"more")
    agent.drain()
    assert agent.lines == [*lines(0, 70 + count), b"more"]
    assert agent.losses == []


def emptied(directory: Path, *, is_new: bool = False) -> Agent:
    """An agent that has found `app.log` empty: when it was new, or after it was cut."""
    log, agent = directory / "app.log", agent_for(directory, "app.log")
    append(log, *([] if is_new else [b"before"]))
    agent.drain()
    os.truncate(log, 0)
    agent.drain()
    tick()
    agent.lines.clear()
    return agent


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("then", ["scanned", "read", "stopped", "killed"])
@pytest.mark.parametrize("count", [0, 2, 100])
def test_a_log_filled_copied_and_cut_since_it_was_empty(tmp_path: Path, count: int, then: str, is_new: bool) -> None:
    """Nothing in it shows that; nor that it is read again before the next scan."""
    log, agent = tmp_path / "app.log", emptied(tmp_path, is_new=is_new)
    for begin in (0, 3):
        for old in (2, 1):
            if (tmp_path / f"app.log.{old}").exists():
                (tmp_path / f"app.log.{old}").rename(tmp_path / f"app.log.{old + 1}")
        append(log, *lines(begin, begin + 3))
        shutil.copy(log, tmp_path / "app.log.1")
        os.truncate(log, 0)
    append(log, *lines(6, 6 + count))
    if then == "read":
        agent.source.wake([str(log)])
        agent.work()
    elif then != "scanned":
        {"stopped": agent.stop, "killed": agent.restart}[then]()
    agent.drain()
    append(log, b"more")
    agent.drain()
    assert Counter(agent.lines) == Counter([*lines(0, 6 + count), b"more"])
    agent.stop()
    agent.drain()
    assert Counter(agent.lines) == Counter([*lines(0, 6 + count), b"more"])
    assert agent.losses == []


@pytest.mark.parametrize("cut_to", [0, 1, 9])
@pytest.mark.parametrize("is_in_flight", [False, True])
def test_the_copy_of_a_log_that_was_read_since_it_was_empty_is_not_read(tmp_path: Path, is_in_flight: bool, cut_to: int) -> None:
    log, agent = tmp_path / "app.log", emptied(tmp_path)
    append(log, *lines(0, 5))
    agent.source.wake([str(log)])
    results = tuple(agent.read(split) for split in agent.source.plan(1).splits)
    assert agent.lines == lines(0, 5)
    if not is_in_flight:
        agent.come_back(results)
    shutil.copy(log, tmp_path / "app.log.1")
    os.truncate(log, 0)
    append(log, *lines(5, 5 + cut_to))
    agent.scan()
    if is_in_flight:
        agent.come_back(results)
    settle(agent, lines(0, 5 + cut_to))


def test_a_copy_beside_a_log_that_was_read_since_it_was_empty_is_let_alone(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", emptied(tmp_path)
    append(log, *lines(0, 5))
    agent.source.wake([str(log)])
    agent.work()
    shutil.copy(log, tmp_path / "app.log.bak")
    append(log, *lines(5, 7))
    settle(agent, lines(0, 7))


@pytest.mark.parametrize("is_scanned", [False, True])
def test_a_copy_that_was_known_when_its_log_was_emptied_is_not_read_once_that_is_filled(tmp_path: Path, is_scanned: bool) -> None:
    """It is made within the kernel's step before that scan, and has no row: it holds less than was read."""
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    shutil.copy(log, tmp_path / "app.log.1")
    append(log, *lines(100, 110))
    if is_scanned:
        agent.scan()
    agent.source.wake([str(log)])
    agent.work()
    os.truncate(log, 0)
    agent.scan()
    append(log, b"more")
    agent.scan()
    settle(agent, [*lines(0, 110), b"more"])


def test_a_log_copied_and_cut_before_anything_of_it_was_read(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100, "fail")
    shutil.copy(log, tmp_path / "app.log.1")
    os.truncate(log, 0)
    append(log, b"more")
    settle(agent, [*lines(0, 100), b"more"])


def test_without_birth_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.sources.files.identity._birth_ns", lambda *_: 0)
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    agent.stop()
    for number in (1, 2):
        shift(log)
        tick()
        append(log, *lines(number * 100, number * 100 + 100))
    settle(agent, lines(0, 300))


def test_one_that_cannot_be_read_yet_is_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 5)
    agent.stop()
    for number in (1, 2):
        shift(log)
        tick()
        append(log, *lines(number * 5, number * 5 + 5))
    closed = str(tmp_path / "app.log.1")
    opener = agent.source._catalog.opener
    really = opener.open

    def refuse(path: str, *, is_known: bool = False) -> tuple[int, os.stat_result]:
        if path == closed:
            raise PermissionError(13, "Permission denied", path)
        return really(path, is_known=is_known)

    monkeypatch.setattr(opener, "open", refuse)
    agent.drain()
    assert agent.source.passed_over()[closed].startswith("cannot be opened: Permission denied")
    monkeypatch.undo()
    agent.drain()
    assert Counter(agent.lines) == Counter(lines(0, 15))


def test_one_that_could_not_be_read_is_read_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 5)
    agent.stop()
    for number in (1, 2):
        shift(log)
        tick()
        append(log, *lines(number * 5, number * 5 + 5))
    with monkeypatch.context() as patch:
        patch.setattr("copycat_agent.sources.log_file.succession.missed_rotations.identify", lambda *_: (tmp_path / "nothing").stat())
        agent.drain()
    assert Counter(agent.lines) == Counter([*lines(0, 5), *lines(10, 15)])
    agent.restart()
    agent.drain()
    assert Counter(agent.lines) == Counter(lines(0, 15))


def test_ignore_older_holds_for_what_was_missed(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, b"first")
    agent = agent_for(tmp_path, "app.log", ignore_older=0.3)
    agent.drain()
    agent.stop()
    for line in (b"second", b"third"):
        shift(log)
        append(log, line)
    time.sleep(0.4)
    append(log, b"fourth")
    agent.drain()
    assert b"second" not in agent.lines


@pytest.mark.parametrize("directives", [
    "create", "create\ncompress", "create\ncompress\ndelaycompress", "copytruncate", "copytruncate\ncompress",
])  # fmt: skip
def test_with_the_real_logrotate(tmp_path: Path, directives: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir(mode=0o755)
    log, conf = logs / "app.log", tmp_path / "conf"
    conf.write_text(f"{log} {{\nrotate 9\n{directives}\n}}\n")
    append(log, b"never wanted")
    rotate = [LOGROTATE, "-f", "-s", str(tmp_path / "state"), str(conf)]
    subprocess.run(rotate, check=True)
    append(log, *lines(0, 100))
    tick()
    agent = Agent((str(log),))
    agent.scan()
    agent.work(lambda: "stop")
    agent.stop()
    for number in (1, 2, 3):
        tick()
        subprocess.run(rotate, check=True)
        append(log, *lines(number * 100, number * 100 + 100))
    settle(agent, lines(0, 400))


def test_an_archive_that_somebody_writes_to_stays_unwanted(tmp_path: Path) -> None:
    log, agent = tmp_path / "app.log", started(tmp_path, 100)
    agent.stop()
    append(tmp_path / "app.log.3", b"written now, to a file that was there before")
    shift(log)
    append(log, *lines(100, 110))
    settle(agent, lines(0, 110))


def test_a_copy_outside_the_patterns_waits_for_the_task_that_reads_its_cut_log(tmp_path: Path) -> None:
    """How far the log was read is not known before: the copy goes on there, and is not read from its beginning."""
    log, copy = tmp_path / "app.log", tmp_path / "app.log.1"
    agent = agent_for(tmp_path, "*.log")
    agent.scan()
    log.write_bytes(b"one\ntwo\nthree\n")
    agent.scan()
    agent.work(lambda: "stop")
    log.rename(copy)
    agent.scan()
    agent.restart()  # it is known under its new name then
    agent.scan()
    splits = agent.source.plan(1).splits
    tick()
    copy.rename(log)
    shutil.copy(log, copy)
    os.truncate(log, 0)
    agent.scan()
    assert not agent.source.plan(1).splits, "the copy is not read before the task is back"
    agent.come_back(tuple(agent.read(split) for split in splits))
    agent.drain()
    assert agent.lines == [b"one", b"two", b"three"]
    assert not agent.losses


def test_an_archive_that_is_being_read_keeps_no_other_file_of_its_log_waiting(tmp_path: Path) -> None:
    """It has fewer bytes than were read of it, since it is packed: that does not mean that it was cut."""
    log, archive = tmp_path / "app.log", tmp_path / "app.log.3.gz"
    agent = Agent((f"{tmp_path}/app.log", f"{tmp_path}/*.gz"))
    agent.scan()
    append(log, b"first")
    agent.drain()
    archive.write_bytes(gzip.compress(b"".join(b"%s %06d\n" % (b"x" * 500, number) for number in range(50))))
    agent.scan()
    agent.work(lambda: "stop")
    splits = agent.source.plan(1).splits
    assert [split.path for split in splits] == [str(archive)]
    tick()
    log.rename(tmp_path / "app.log.2")
    append(tmp_path / "app.log.1", b"second")
    append(log, b"third")
    agent.scan()
    assert str(tmp_path / "app.log.1") in {view.path for view in agent.source.files()}
