"""When a file is complete, and which one is begun next."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from copycat_agent import logs
from copycat_agent.model import SourceOffset
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.spool_dir import admission
from copycat_agent.sources.spool_dir.file_progress import FileProgress
from copycat_agent.sources.spool_dir.listing import DoneFiles
from copycat_agent.sources.spool_dir.ready import ReadyFiles
from copycat_agent.sources.spool_dir.spool_file import FileKey, Observation, SpoolFile
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from tests.rig.waiting import wait_until
from tests.unit.sources.spool.rig import Spool, lines


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _ready(path: Path, **options: Any) -> tuple[ReadyFiles, _Clock]:
    clock = _Clock()
    wanted = SpoolDirOptions.model_validate({"type": "spool_dir", "dir": str(path), "ready": options})
    return ReadyFiles(wanted, DoneFiles(wanted), logs.get("test"), clock), clock


def _file(path: Path, clock: _Clock) -> SpoolFile:
    info = path.stat()
    key = FileKey("drops", Identity(info.st_dev, info.st_ino, 0))
    return SpoolFile(key, str(path), replace(Observation.of(info), unchanged_since=clock.now), FileProgress(SourceOffset(0)))


def test_a_file_is_complete_once_it_was_seen_unchanged_for_min_age(tmp_path: Path) -> None:
    ready, clock = _ready(tmp_path)
    path = tmp_path / "a"
    path.write_bytes(b"x")
    file = _file(path, clock)
    clock.now += 4.9
    assert ready.seconds_left(file) == pytest.approx(0.1)
    assert "5 s" in ready.why_not(file)
    clock.now += 0.1
    assert ready.why_not(file) == ""


def test_files_that_were_dropped_at_once_are_complete_together(tmp_path: Path) -> None:
    """A look sees them a moment apart; one that is complete alone would be begun before those that its order puts first."""
    ready, clock = _ready(tmp_path)
    files = []
    for name in ("a", "b", "c", "later"):
        (tmp_path / name).write_bytes(b"x")
        clock.now += 1.0 if name == "later" else 0.01
        files.append(_file(tmp_path / name, clock))
        ready.look_at(files[-1], ready.seconds_left(files[-1]))
    found: list[SpoolFile] = []
    while not found:
        clock.now = ready.next_at
        found = ready.due()
    assert found == files[:3]
    assert [ready.seconds_left(file) for file in found] == [0.0] * 3


def test_an_old_time_of_change_does_not_make_a_copy_complete(tmp_path: Path) -> None:
    ready, clock = _ready(tmp_path)
    path = tmp_path / "a"
    path.write_bytes(b"x")
    os.utime(path, (1, 1))  # as cp -p and rsync do
    assert ready.why_not(_file(path, clock)) != ""


def test_a_time_in_the_future_waits_and_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ready, clock = _ready(tmp_path)
    path = tmp_path / "a"
    path.write_bytes(b"x")
    os.utime(path, (time.time() + 9000, time.time() + 9000))
    file = _file(path, clock)
    ready.why_not(file)
    ready.why_not(file)
    assert sum("future" in str(record.__dict__) for record in caplog.records) == 1
    clock.now += 5
    assert ready.why_not(file) == ""


def test_a_file_that_nothing_has_touched_for_a_day_needs_no_waiting(tmp_path: Path) -> None:
    ready, clock = _ready(tmp_path)
    path = tmp_path / "a"
    path.write_bytes(b"x")
    file = _file(path, clock)
    long_ago = time.time_ns() - 2 * 86400 * 10**9
    file.seen = replace(file.seen, mtime_ns=long_ago, ctime_ns=long_ago)
    assert ready.why_not(file) == ""


def test_a_growing_file_is_not_read_until_it_is_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    spool = Spool(tmp_path, ready={"min_age": 0.3})
    path = spool.drop("a", lines("1"))
    for number in range(2, 6):
        spool.drain()
        now[0] += 0.2
        assert spool.arrived == []
        with path.open("ab") as file:
            file.write(lines(str(number)))
    spool.drain()
    now[0] += 0.2
    spool.drain()
    assert (spool.arrived, spool.states()) == ([], {"a": "waiting"})
    now[0] += 0.2
    spool.drain()
    assert spool.arrived == [b"1", b"2", b"3", b"4", b"5"]


def test_a_file_that_is_open_for_writing_is_waited_for(tmp_path: Path) -> None:
    spool = Spool(tmp_path, ready={"min_age": 0.05})
    with (tmp_path / "a").open("wb") as file:
        file.write(b"1\n")
        file.flush()
        wait_until(lambda: spool.drain() or "open for writing" in spool.why("a"), 30, "the refusal")
        file.write(b"2\n")
    wait_until(lambda: bool(spool.drain() or spool.arrived), 30, "the file")
    assert spool.arrived == [b"1", b"2"]


def test_a_done_file_makes_a_file_complete(tmp_path: Path) -> None:
    spool = Spool(tmp_path, ready={"done_file": "{name}.done"}, pattern="*")
    spool.drop("a.csv", lines("one"))
    spool.drain()
    assert spool.arrived == []
    assert "a.csv.done" in spool.why("a.csv")
    assert spool.source.drained()
    spool.drop("a.csv.done", b"not data\n")
    spool.drop("orphan.done", b"not data\n")
    spool.drain()
    assert spool.arrived == [b"one"]


def test_both_a_done_file_and_an_age(tmp_path: Path) -> None:
    ready, clock = _ready(tmp_path, done_file="{name}.done", min_age=3.0)
    path = tmp_path / "a"
    path.write_bytes(b"x")
    file = _file(path, clock)
    clock.now += 10
    assert ready.why_not(file) != ""
    (tmp_path / "a.done").touch()
    assert ready.why_not(file) == ""
    file.seen = replace(file.seen, unchanged_since=clock.now)
    assert ready.why_not(file) != ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"order_by": "mtime"}, "cab"),
        ({"order_by": "mtime", "descending": True}, "abc"),
        ({"order_by": "name"}, "abc"),
        ({"order_by": "name", "descending": True}, "cba"),
        ({"order_by": "size"}, "abc"),
        ({"order_by": "size", "descending": True}, "cab"),
    ],
)
def test_files_are_begun_in_order_ties_by_name(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    spool = Spool(tmp_path, **options)
    spool.drop("c", lines("c", "c"), mtime=1000)
    spool.drop("b", lines("b"), mtime=2000)
    spool.drop("a", lines("a"), mtime=2000)
    spool.drain()
    assert b"".join(dict.fromkeys(spool.arrived)).decode() == expected


@pytest.mark.parametrize(
    ("regex", "descending", "expected"),
    [
        (r"-(\d+)", False, "2.b 10.a 10.c x.d"),
        (r"-(\d+)", True, "10.a 10.c 2.b x.d"),
        (r"\.(?P<last>[a-z])$", True, "x.d 10.c 2.b 10.a"),
        (r"\d+\.[a-z]", False, "10.a 10.c 2.b x.d"),
        (r"(z)?-", False, "10.a 10.c 2.b x.d"),
        (r"(a+)+$|(.*a)+x", False, "10.a 10.c 2.b x.d"),
    ],
)
def test_files_are_begun_in_the_order_of_a_part_of_their_names(tmp_path: Path, regex: str, descending: bool, expected: str) -> None:
    spool = Spool(tmp_path, order_by={"regex": regex}, descending=descending)
    for name in ("x.d", "10.c", "2.b", "10.a"):
        spool.drop(f"f-{name}", lines(name))
    spool.drain()
    assert b" ".join(dict.fromkeys(spool.arrived)).decode() == expected


def test_with_one_task_a_file_is_finished_before_the_next_begins(tmp_path: Path) -> None:
    spool = Spool(tmp_path, order_by="name")
    spool.max_bytes = 65536
    spool.drop("b", lines(*(f"b{number:05}" for number in range(30_000))))
    spool.drop("c", lines("c"))
    spool.scan()
    spool.work()
    spool.drop("a", lines("a"))
    spool.drain()
    assert [line[:1] for line in spool.arrived[-2:]] == [b"a", b"c"]


def test_without_an_order_a_large_file_lets_others_go_ahead(tmp_path: Path) -> None:
    spool = Spool(tmp_path, order_by="none")
    spool.max_bytes = 65536
    spool.drop("a", lines(*(f"a{number:05}" for number in range(30_000))))
    spool.scan()
    spool.work()
    spool.drop("b", lines("b"))
    spool.drain()
    assert spool.arrived.index(b"b") < 25_000


def test_each_file_is_read_by_one_task_only(tmp_path: Path) -> None:
    spool = Spool(tmp_path, tasks=4)
    for number in range(300):
        spool.drop(f"f{number:03}", lines(f"{number}"))
    spool.scan()
    planned = [spool.source.plan(4 - number).splits for number in range(4)]
    keys = [split.partition for splits in planned for split in splits]
    assert len(keys) == len(set(keys)) == 300
    assert all(splits for splits in planned)
    for number in range(4):
        spool.bring(spool.read(planned[number], number))
    assert sorted(spool.arrived) == sorted(f"{number}".encode() for number in range(300))


def test_a_batch_takes_many_small_files_and_no_more_than_it_can_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path, delivery={"max_batch_bytes": 65536})
    for number in range(200):
        spool.drop(f"f{number:03}", lines("x"))
    spool.scan()
    assert len(spool.source.plan(1).splits) == 128
    big = Spool(tmp_path / "big", delivery={"max_batch_bytes": 65536})
    for number in range(5):
        big.drop(f"f{number:03}", b"x" * 40_000 + b"\n")
    big.scan()
    assert len(big.source.plan(1).splits) == 2


def test_a_file_whose_whole_directory_is_gone_holds_up_no_run_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No look can tell where the file is; it is told as one that could not be read."""
    monkeypatch.setattr(admission, "AGAIN_SECONDS", 0.05)
    directory = tmp_path / "spool"
    directory.mkdir()
    spool = Spool(directory, ready={"min_age": 0.01})
    spool.drop("a", b"x\n")
    spool.scan()
    shutil.rmtree(directory)

    def is_over() -> bool:
        spool.scan()
        return spool.source.drained()

    wait_until(is_over, 60, "an end")
    assert spool.source.lag().troubled_files
    spool.source.close()
