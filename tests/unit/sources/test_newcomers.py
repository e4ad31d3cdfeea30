"""Copies, rewrites and archives of known files: what was read is not read again, what was not is, and what is lost is counted."""

from __future__ import annotations

import bz2
import gzip
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from backports import zstd

from copycat_agent.errors import RetriableError
from copycat_agent.model import SplitResult
from copycat_agent.sources.log_file.succession import rules, similarity
from tests.rig.waiting import wait_until
from tests.unit.sources.rig import Agent, agent_for, tick


def lines(begin: int, end: int) -> list[bytes]:
    return [b"line %06d of the log" % number for number in range(begin, end)]


def append(path: Path, *some: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in some))


def lost(agent: Agent) -> list[tuple[int, int]]:
    return [(loss.start, loss.end) for loss in agent.losses]


def copytruncate(log: Path, copy: Path) -> None:
    shutil.copy(log, copy)
    os.truncate(log, 0)


def read(agent: Agent, expected: list[bytes]) -> None:
    """Everything once, and in order."""
    agent.drain()
    assert agent.lines == expected


def _do(agent: Agent, event: str) -> None:
    if event == "scan":
        agent.scan()
    elif event == "work":
        agent.work()
    elif event in ("kill", "killed"):
        agent.restart()
    elif event == "stopped":
        agent.stop()


BANNER = [b"the same banner in every log, number %d" % number for number in range(50)]
"""Longer than what a file is recognised by."""
SIZES = [3, 200]
"""Below and above a whole head."""


@pytest.fixture(params=["*", "*.log"])
def pattern(request: pytest.FixtureRequest) -> str:
    """Whether the copy matches, or is found only by looking for it."""
    return str(request.param)


@pytest.mark.parametrize("how", ["drained", "one line", "killed", "stopped"])
@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("name", ["app.log.1", "app.log-20261121", "app-2026-11-21.log.1", "app.log.old"])
def test_a_copy_is_the_rest_of_the_file_that_was_cut(tmp_path: Path, pattern: str, how: str, count: int, name: str) -> None:
    if pattern == "*.log" and name.endswith(".log"):
        pytest.skip("matches")
    log = tmp_path / ("app.log" if "-2026-" not in name else "app-2026-11-21.log")
    append(log, *lines(0, count))
    agent = agent_for(tmp_path, pattern)
    agent.scan()
    agent.work(lambda: "stop" if how != "drained" else "read")
    shutil.copy(log, tmp_path / name)
    if how == "killed":
        agent.restart()
    os.truncate(log, 0)
    if how == "stopped":
        agent.stop()
    append(log, b"new")
    read(agent, [*lines(0, count), b"new"])
    agent.restart()
    read(agent, [*lines(0, count), b"new"])
    assert lost(agent) == []


@pytest.mark.parametrize("order", [
    "scan copy scan cut scan", "copy scan work cut scan", "copy cut scan", "copy kill cut scan", "copy scan kill cut scan",
    "copy scan kill scan cut kill scan", "copy cut kill scan", "copy cut scan kill scan", "copy cut scan kill work scan",
    "copy scan work kill cut scan work", "copy cut shift scan", "copy scan cut shift scan", "copy scan cut scan shift scan",
    "copy scan shift cut scan", "copy cut kill shift scan kill scan", "copy cut shift copy cut scan", "copy scan cut shift copy cut scan",
    "copy cut scan shift copy cut kill scan", "copy cut shift copy cut shift copy cut kill scan",
    "copy cut kill shift copy cut kill scan shift copy cut scan",
])  # fmt: skip
@pytest.mark.parametrize("first", ["stop", "read"])
def test_whatever_comes_between_a_copy_and_a_cut_every_line_is_read_once(tmp_path: Path, pattern: str, order: str, first: str) -> None:
    if pattern == "*.log" and order.count("copy") > 1:
        pytest.skip("a generation that was written, copied and cut between two looks is nobody's")
    log, expected = tmp_path / "app.log", lines(0, 60)
    append(log, *expected)
    agent = agent_for(tmp_path, pattern)
    agent.scan()
    agent.work(lambda: first)
    for event in order.split():
        if event == "copy":
            shutil.copy(log, tmp_path / "app.log.1")
        elif event == "cut":
            os.truncate(log, 0)
            more = lines(len(expected), len(expected) + 60)
            append(log, *more)
            expected += more
        elif event == "shift":
            for number in (2, 1):
                if (tmp_path / f"app.log.{number}").exists():
                    (tmp_path / f"app.log.{number}").rename(tmp_path / f"app.log.{number + 1}")
        else:
            _do(agent, event)
    agent.drain()
    agent.restart()
    agent.drain()
    counts = Counter(agent.lines)
    assert sorted(counts) == sorted(expected)
    assert [line for line, count in counts.items() if count > 1] == []
    assert lost(agent) == []


def test_a_copy_is_not_read_again_once_the_log_that_was_cut_has_grown_and_its_batch_comes_back(tmp_path: Path) -> None:
    """That batch has sent nothing, and nothing has shown yet that the log was cut."""
    log = tmp_path / "app.log"
    append(log, *lines(0, 200))
    agent = agent_for(tmp_path)
    read(agent, lines(0, 200))
    append(log, *lines(200, 210))
    agent.scan()
    splits = agent.source.plan(1).splits
    assert splits
    copytruncate(log, tmp_path / "app.log.1")
    append(log, *lines(300, 600))
    agent.scan()
    agent.come_back(tuple(SplitResult(split, split.offset, error=RetriableError("no broker")) for split in splits))
    assert not agent.source.plan(1).splits, "the next look tells what the copy is"
    read(agent, lines(0, 210) + lines(300, 600))
    assert lost(agent) == []


def test_a_copy_is_waited_for_whatever_the_clock_of_the_process_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = time.time
    monkeypatch.setattr(time, "time", lambda: really() + 3600)
    log = tmp_path / "app.log"
    append(log, *lines(0, 100))
    agent = agent_for(tmp_path)
    agent.drain()
    shutil.copy(log, tmp_path / "app.log.1")
    agent.drain()
    os.truncate(log, 0)
    append(log, b"new")
    read(agent, [*lines(0, 100), b"new"])


def test_a_copy_in_the_making_is_waited_for(tmp_path: Path) -> None:
    log, copy = tmp_path / "app.log", tmp_path / "app.log.1"
    append(log, *lines(0, 100))
    agent = agent_for(tmp_path)
    agent.drain()
    copy.touch()
    agent.drain()
    content = log.read_bytes()
    for begin in range(0, len(content), 500):
        with copy.open("ab") as file:
            file.write(content[begin : begin + 500])
        agent.drain()
        if begin == 1000:
            agent.restart()
    os.truncate(log, 0)
    append(log, b"new")
    read(agent, [*lines(0, 100), b"new"])


def test_lines_written_between_copy_and_cut_are_counted_or_read_and_the_copy_is_not_read_again(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 100))
    agent = agent_for(tmp_path)
    agent.drain()
    shutil.copy(log, tmp_path / "app.log.1")
    agent.scan()
    append(log, *lines(100, 110))
    agent.drain()
    os.truncate(log, 0)
    append(log, b"new")
    read(agent, [*lines(0, 110), b"new"])
    assert lost(agent) == []


def test_what_neither_the_copy_nor_the_file_holds_is_lost_to_the_byte(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 100))
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "stop")
    shutil.copy(log, tmp_path / "app.log.1")
    append(log, b"in between")
    agent.scan()
    end = log.stat().st_size
    os.truncate(log, 0)
    read(agent, lines(0, 100))
    agent.restart()
    agent.drain()
    assert lost(agent) == [(end - len("in between\n"), end)]


def test_a_copy_of_a_file_that_keeps_its_bytes_is_read_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 5))
    agent = agent_for(tmp_path)
    agent.drain()
    shutil.copy(log, tmp_path / "app.log.1")
    read(agent, lines(0, 5))
    monkeypatch.setattr(rules, "QUIET_SECONDS", 0.0)
    read(agent, lines(0, 5) * 2)


def test_a_file_that_is_not_read_yet_says_what_it_waits_for(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 5))
    agent = agent_for(tmp_path)
    agent.drain()
    shutil.copy(log, tmp_path / "app.log.1")
    agent.drain()
    copy = next(view for view in agent.source.files() if view.path == f"{log}.1")
    assert copy.state == "waiting"
    assert f"so far it is a copy of {log}" in copy.why


def test_a_copy_is_not_waited_for_when_the_run_is_to_end(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 5))
    agent = agent_for(tmp_path)
    agent.drain()
    shutil.copy(log, tmp_path / "app.log.1")
    agent.drain()
    assert agent.source.drained()
    agent.source.finalise()
    assert not agent.source.drained()
    read(agent, lines(0, 5) * 2)
    assert agent.source.drained()


def test_a_file_cut_before_anything_of_it_was_read_is_read_from_its_copy(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 5))
    agent = agent_for(tmp_path)
    agent.scan()
    copytruncate(log, tmp_path / "app.log.1")
    append(log, b"new")
    read(agent, [*lines(0, 5), b"new"])
    assert lost(agent) == []


def test_equal_text_is_never_taken_for_a_copy(tmp_path: Path) -> None:
    """Rotated by renaming between two scans, with the same line in every generation."""
    log = tmp_path / "app.log"
    for _ in range(2):
        append(log, b"same")
    agent = agent_for(tmp_path)
    agent.drain()
    log.rename(tmp_path / "app.log.1")
    append(log, b"same")
    (tmp_path / "app.log.1").unlink()
    log.rename(tmp_path / "app.log.1")
    append(log, b"same", b"same", b"same")
    read(agent, [b"same"] * 6)


def test_a_log_that_is_deleted_and_made_anew_with_the_same_lines_is_read_again(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 100))
    agent = agent_for(tmp_path)
    agent.drain()
    log.unlink()
    append(log, *lines(0, 101))
    read(agent, [*lines(0, 100), *lines(0, 101)])


def test_archives_and_copies_of_logs_that_share_a_banner_are_read(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *BANNER, b"first")
    agent = agent_for(tmp_path)
    agent.drain()
    os.truncate(log, 0)
    agent.drain()
    append(tmp_path / "app.log.1", *BANNER, b"second")
    append(tmp_path / "x", *BANNER, b"third")
    (tmp_path / "app.log.2.gz").write_bytes(gzip.compress((tmp_path / "x").read_bytes()))
    (tmp_path / "x").unlink()
    agent.drain()
    assert Counter(agent.lines) == Counter([*BANNER * 3, b"first", b"second", b"third"])


def test_a_shorter_log_with_the_same_banner_that_was_made_after_a_cut_is_no_copy_of_what_was_cut(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *BANNER, b"first")
    agent = agent_for(tmp_path)
    agent.drain()
    os.truncate(log, 0)
    agent.drain()
    tick()
    append(tmp_path / "app.log.1", *BANNER, b"2")
    read(agent, [*BANNER, b"first", *BANNER, b"2"])


@pytest.mark.parametrize("is_there", [False, True])
def test_a_copy_of_what_was_written_between_two_cuts_is_no_shorter_copy_of_what_was_read(tmp_path: Path, is_there: bool) -> None:
    log, copy = tmp_path / "app.log", tmp_path / "app.log.1"
    if is_there:
        append(copy, b"older")
    append(log, *BANNER, *lines(0, 3))
    agent = agent_for(tmp_path)
    agent.drain()
    tick()
    os.truncate(log, 0)
    append(log, *BANNER, *lines(3, 5))
    copytruncate(log, copy)
    agent.drain()
    expected = [*([b"older"] if is_there else []), *BANNER, *lines(0, 3)]
    assert agent.lines == [*expected, *BANNER, *lines(3, 5)]


def test_a_log_that_was_made_after_another_one_was_cut_unread_is_no_copy_of_it_and_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, old = tmp_path / "app.log", tmp_path / "app.log.1"
    append(log, *lines(0, 5))
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(b"")[:10])  # the one that is written may be the copy's archive
    agent = agent_for(tmp_path)
    agent.scan()
    os.truncate(log, 0)
    append(log, *lines(5, 7))
    agent.scan()
    log.rename(old)
    agent.scan()
    agent.restart()
    agent.scan()
    tick()
    append(log, *lines(7, 12))
    log.rename(old)
    monkeypatch.setattr(rules, "QUIET_SECONDS", 0.0)
    agent.drain()
    assert agent.lines == lines(5, 12)


@pytest.mark.parametrize("count", SIZES)
def test_a_log_that_is_made_anew_before_the_deleted_one_gets_its_last_line_is_read(tmp_path: Path, count: int) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, count))
    agent = agent_for(tmp_path)
    agent.drain()
    with log.open("ab") as old:
        log.unlink()
        append(log, *lines(0, count))
        tick()
        old.write(b"same\n")
    append(log, b"same", b"same")
    read(agent, [*lines(0, count), b"same", *lines(0, count), b"same", b"same"])


@pytest.mark.parametrize("first", ["stop", "read"])
@pytest.mark.parametrize("count", SIZES)
def test_a_file_moved_over_another_one_with_its_content_goes_on(tmp_path: Path, first: str, count: int) -> None:
    """As editors and settings libraries write."""
    log, fresh = tmp_path / "app.log", tmp_path / ".fresh"
    append(log, *lines(0, count))
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: first)
    shutil.copy(log, fresh)
    append(fresh, b"one more")
    time.sleep(0.01)
    fresh.replace(log)
    read(agent, [*lines(0, count), b"one more"])
    assert lost(agent) == []


def test_a_file_moved_over_another_one_with_other_content_is_new(tmp_path: Path) -> None:
    log, fresh = tmp_path / "app.log", tmp_path / ".fresh"
    append(log, *lines(0, 100))
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "stop")
    append(fresh, *lines(50, 200))
    time.sleep(0.01)
    fresh.replace(log)
    agent.drain()
    assert Counter(agent.lines) == Counter([*lines(0, 100), *lines(50, 200)])


PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd.compress, ".bz2": bz2.compress}


def pack(path: Path, suffix: str = ".gz", *, keep: bool = False) -> None:
    path.with_name(f"{path.name}{suffix}").write_bytes(PACK[suffix](path.read_bytes()))
    if not keep:
        path.unlink()


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("how", ["drained", "running", "killed", "stopped"])
def test_an_archive_is_the_rest_of_the_file_it_was_made_of(tmp_path: Path, pattern: str, how: str, count: int, suffix: str) -> None:
    """Renamed, then packed. While the agent runs it has the file open, whatever becomes of its name."""
    log = tmp_path / "app.log"
    append(log, *lines(0, count))
    agent = agent_for(tmp_path, pattern)
    agent.scan()
    agent.work(lambda: "read" if how == "drained" else "stop")
    if how == "stopped":
        agent.stop()
    log.rename(tmp_path / "app.log.1")
    append(log, b"new")
    pack(tmp_path / "app.log.1", suffix)
    if how == "killed":
        agent.restart()
    agent.drain()
    assert Counter(agent.lines) == Counter([*lines(0, count), b"new"])
    agent.restart()
    agent.drain()
    assert Counter(agent.lines) == Counter([*lines(0, count), b"new"])
    assert lost(agent) == []


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("first", ["stop", "read"])
def test_a_copy_that_is_packed_is_the_rest_of_the_file_that_was_cut(tmp_path: Path, pattern: str, first: str, down: bool) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 200))
    agent = agent_for(tmp_path, pattern)
    agent.scan()
    agent.work(lambda: first)
    if down:
        agent.stop()
    copytruncate(log, tmp_path / "app.log.1")
    pack(tmp_path / "app.log.1")
    append(log, b"new")
    agent.drain()
    agent.restart()
    agent.drain()
    assert Counter(agent.lines) == Counter([*lines(0, 200), b"new"])
    assert lost(agent) == []


def test_an_archive_beside_the_file_it_was_made_of_is_not_read_again(tmp_path: Path) -> None:
    """The archive of `gzip -k`, met before the file is read to its end."""
    log = tmp_path / "app.log"
    append(log, *lines(0, 200))
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "stop")
    pack(log, keep=True)
    read(agent, lines(0, 200))
    append(log, b"new")
    read(agent, [*lines(0, 200), b"new"])


BANNER = [b"the same banner in every log, number %d" % number for number in range(50)]


@pytest.mark.parametrize("ended", ["killed", "stopped"])
@pytest.mark.parametrize("first", [0, 10, 100])
@pytest.mark.parametrize("counts", [(100, 300), (300, 100)])
def test_archives_of_generations_that_look_alike_are_all_read(
    tmp_path: Path, pattern: str, counts: tuple[int, int], first: int, ended: str
) -> None:
    """All begin with the same banner and go on with equal lines. Only one is the rest of the log that was read."""
    log = tmp_path / "app.log"
    append(log, *BANNER, *[b"same"] * first)
    agent = agent_for(tmp_path, pattern)
    agent.drain()
    append(log, *[b"same"] * (counts[0] - first))
    _do(agent, ended)
    for number, count in ((2, counts[1]), (1, 7)):
        log.rename(tmp_path / f"app.log.{number}")
        pack(tmp_path / f"app.log.{number}")
        tick()
        append(log, *BANNER, *[b"same"] * count)
    agent.drain()
    assert Counter(agent.lines) == Counter([*BANNER * 3, *[b"same"] * (sum(counts) + 7)])
    assert lost(agent) == []


def test_an_archive_that_holds_more_than_what_it_looks_like_is_another_one(tmp_path: Path) -> None:
    log, packed = tmp_path / "app.log", tmp_path / "app.log.1.gz"
    append(log, *BANNER, *[b"same"] * 50)
    agent = agent_for(tmp_path)
    agent.drain()
    packed.write_bytes(gzip.compress(b"\n".join([*BANNER, *[b"same"] * 80, b""])))
    agent.drain()
    assert Counter(agent.lines) == Counter([*BANNER * 2, *[b"same"] * 130])


def test_an_archive_is_the_rest_of_the_log_that_it_was_made_of_rather_than_of_an_archive_that_is_there(tmp_path: Path) -> None:
    log, old = tmp_path / "app.log", tmp_path / "app.log.1"
    append(log, *BANNER, *[b"same"] * 200)
    agent = agent_for(tmp_path)
    agent.drain()
    log.rename(old)
    agent.drain()
    pack(old)
    append(log, *BANNER, *[b"same"] * 10)
    agent.drain()
    append(log, *[b"same"] * 190)
    agent.stop()
    (tmp_path / "app.log.1.gz").rename(tmp_path / "app.log.2.gz")
    log.rename(old)
    pack(old)
    agent.drain()
    assert Counter(agent.lines) == Counter([*BANNER * 2, *[b"same"] * 400])


def test_a_generation_that_gets_the_name_of_one_that_is_packed_is_no_copy_of_it(tmp_path: Path) -> None:
    log, old = tmp_path / "app.log", tmp_path / "app.log.1"
    append(log, *BANNER, b"same")
    log.rename(old)
    agent = agent_for(tmp_path)
    agent.drain()
    append(log, *BANNER, *[b"same"] * 2)
    tick()
    old.unlink()
    log.rename(old)
    read(agent, [*BANNER, b"same", *BANNER, b"same", b"same"])


def test_a_log_that_was_made_after_a_deleted_one_is_no_copy_of_it_when_it_is_rotated(tmp_path: Path) -> None:
    log, old = tmp_path / "app.log", tmp_path / "app.log.1"
    append(log, *BANNER, b"same")
    agent = agent_for(tmp_path)
    agent.drain()
    tick()
    log.unlink()
    append(log, *BANNER, *[b"same"] * 2)
    log.rename(old)
    read(agent, [*BANNER, b"same", *BANNER, b"same", b"same"])


def test_an_archive_that_is_packed_anew_beside_the_old_one_is_not_read_again(tmp_path: Path) -> None:
    append(tmp_path / "app.log.1", *lines(0, 200))
    text = (tmp_path / "app.log.1").read_bytes()
    pack(tmp_path / "app.log.1")
    agent = agent_for(tmp_path)
    read(agent, lines(0, 200))
    (tmp_path / "app.log.1.zst").write_bytes(zstd.compress(text))
    read(agent, lines(0, 200))


def test_an_archive_that_is_replaced_by_one_with_another_member_goes_on(tmp_path: Path) -> None:
    """As rsync does with one that grows."""
    append(tmp_path / "app.log.1", *lines(0, 200))
    pack(tmp_path / "app.log.1")
    path, fresh = tmp_path / "app.log.1.gz", tmp_path / ".fresh"
    agent = agent_for(tmp_path)
    agent.drain()
    fresh.write_bytes(path.read_bytes() + gzip.compress(b"one more\n"))
    fresh.replace(path)
    read(agent, [*lines(0, 200), b"one more"])


def test_a_copy_goes_on_though_the_inode_of_its_log_is_another_file_s_by_now(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 200))
    agent = agent_for(tmp_path)
    agent.drain()
    agent.stop()
    shutil.copy(log, tmp_path / "app.log.1")
    log.unlink()
    append(log, b"new")
    read(agent, [*lines(0, 200), b"new"])


def test_an_archive_of_another_generation_that_no_pattern_matches_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "QUIET_SECONDS", 0.0)
    log = tmp_path / "app.log"
    append(log, *BANNER, b"first", b"unread")
    agent = agent_for(tmp_path, "*.log")
    agent.scan()
    for _ in range(51):
        agent.work(lambda: "stop")
    assert agent.lines[-1] == b"first"
    append(tmp_path / "app.log.1", *BANNER, b"other")
    pack(tmp_path / "app.log.1")
    os.utime(tmp_path / "app.log.1.gz", (1e9, 1e9))  # gzip keeps the time of what it packs
    os.truncate(log, 0)
    read(agent, [*BANNER, b"first"])
    agent.restart()
    read(agent, [*BANNER, b"first"])
    assert [end - start for start, end in lost(agent)] == [len("unread\n")]


class Remount(NamedTuple):
    path: str
    lines: int
    again: bool


@pytest.mark.parametrize(
    "case", [Remount("app.log", 200, again=False), Remount("app.log", 3, again=False), Remount("web.log", 200, again=True)]
)
def test_another_device_number_without_birth_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Remount) -> None:
    monkeypatch.setattr("copycat_agent.sources.files.identity._birth_ns", lambda *_: 0)
    log = tmp_path / case.path
    append(log, *lines(0, case.lines))
    agent = agent_for(tmp_path)
    agent.drain()
    moved = {}
    for partition, offset in agent.store.items():
        device, _, rest = partition.key.partition(":")
        path = offset.path.replace("/web.log", "/app.log")
        moved[partition._replace(key=f"{int(device, 16) + 1:x}:{rest}" if rest else device)] = offset.__class__(
            offset.position, offset.records, path=path, size=offset.size, fingerprint=offset.fingerprint
        )
    agent.store = moved
    agent.restart()
    read(agent, lines(0, case.lines) * (2 if case.again else 1))


def test_a_copy_in_another_directory_is_known_by_a_whole_head(tmp_path: Path) -> None:
    log, old = tmp_path / "log" / "app.log", tmp_path / "old"
    for directory in (log.parent, old):
        directory.mkdir()
    append(log, *lines(0, 200))
    agent = Agent((f"{tmp_path}/log/*", f"{tmp_path}/old/*"))
    agent.scan()
    agent.work(lambda: "stop")
    shutil.copy(log, old / "app.log-20261121")
    agent.scan()
    os.truncate(log, 0)
    append(log, b"new")
    read(agent, [*lines(0, 200), b"new"])
    assert lost(agent) == []


@pytest.mark.parametrize("when", ["killed", "stopped", "never"])
def test_a_rest_that_nobody_has_is_entered_once_and_not_before_it_was_looked_for(tmp_path: Path, when: str) -> None:
    log = tmp_path / "app.log"
    append(log, *lines(0, 5))
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "stop")
    end = log.stat().st_size
    os.truncate(log, 0)
    agent.scan()
    assert agent.losses == []
    _do(agent, when)
    agent.drain()
    agent.restart()
    agent.drain()
    assert lost(agent) == [(len(lines(0, 1)[0]) + 1, end)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_twin_that_grows_with_the_log_is_a_file_of_its_own_after_the_wait_for_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """A logger that writes each line to both; never quiet."""
    monkeypatch.setattr(rules, "QUIET_SECONDS", 600.0)
    log, twin = tmp_path / "app.log", tmp_path / "app.log.2026-11-22"
    agent, count = agent_for(tmp_path), 0

    def goes_on() -> int:
        nonlocal count
        for path in (log, twin):
            append(path, *lines(count, count + 5))
        count += 5
        agent.drain()
        return Counter(agent.lines)[lines(0, 1)[0]]

    assert goes_on() == 1
    if restarted:
        agent.restart()
    monkeypatch.setattr(rules, "QUIET_SECONDS", 1.0)
    wait_until(lambda: goes_on() == 2, message="the twin is read")
    goes_on()
    assert Counter(agent.lines) == Counter(lines(0, count) * 2)
    agent.restart()
    agent.drain()
    assert Counter(agent.lines) == Counter(lines(0, count) * 2)
    assert agent.losses == []


def test_a_copy_that_takes_longer_than_the_wait_is_no_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(similarity, "unchanged_seconds", lambda _: 0.0)  # by the kernel's clock, which goes on by itself
    log, copy = tmp_path / "app.log", tmp_path / "app.log.1"
    append(log, *lines(0, 100))
    agent = agent_for(tmp_path)
    agent.drain()
    content = log.read_bytes()
    with copy.open("ab", buffering=0) as file:
        for begin in range(0, len(content), 40):
            file.write(content[begin : begin + 40])
            agent.drain()
            now += rules.QUIET_SECONDS / 10
    assert now > begun + 2 * rules.QUIET_SECONDS
    os.truncate(log, 0)
    append(log, b"new")
    read(agent, [*lines(0, 100), b"new"])
