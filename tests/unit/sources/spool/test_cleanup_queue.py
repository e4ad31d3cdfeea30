"""A file that cannot be cleaned up is tried again with growing pauses until it is away, and no other waits for it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from copycat_agent import logs
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files.identity import identify_by_name
from copycat_agent.sources.spool_dir.cleanup.cleanup_queue import CleanupQueue
from copycat_agent.sources.spool_dir.listing import DoneFiles
from copycat_agent.sources.spool_dir.rows import FileRow
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from tests.unit.sources.spool.cleaning import Spool
from tests.unit.sources.spool.test_cleanup import refusing

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def queue_of(spool: Spool, clock: Clock, changes: list[str]) -> CleanupQueue:
    done_files = DoneFiles(SpoolDirOptions(type="spool_dir", dir=str(spool.input)))
    return CleanupQueue(spool.cleaner, done_files, logs.get("test"), lambda: changes.append("look"), clock, counts_records=False)


def row(path: Path) -> FileRow:
    info = path.stat()
    identity = identify_by_name(str(path), info, follow_symlinks=False)
    assert identity is not None
    offset = SourceOffset(info.st_size, done=True, path=str(path), size=info.st_size, mtime_ns=info.st_mtime_ns)
    return FileRow(SourcePartition("orders", identity.key(0)), identity, 0, None, offset)


def test_pauses_grow_up_to_a_minute_and_nothing_is_tried_before_its_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool, clock = Spool(tmp_path, policy="move", to=str(tmp_path / "fin")), Clock()
    queue = queue_of(spool, clock, [])
    kept = row(spool.drop("x.csv"))
    queue.add(kept)
    pauses = []
    with refusing("mkdir", errno.EACCES):
        for _ in range(9):
            queue.work()
            queue.work()
            pauses.append(queue.next_at - clock.now)
            assert (queue.is_busy, queue.troubled) == (False, 1)
            clock.now = queue.next_at
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert f"{tmp_path}/fin cannot be written to" in queue.why(kept)
    assert sum("cannot be cleaned up" in one.message for one in caplog.records) == 9
    assert spool.tree() == {"in/x.csv": "1\n"}
    queue.work()
    assert (queue.take_cleaned(), queue.take_cleaned()) == ([kept], [])
    assert (queue.why(kept), queue.troubled, queue.next_at) == ("", 0, float("inf"))


def test_one_that_cannot_leave_holds_up_no_other(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="delete")
    queue = queue_of(spool, Clock(), [])
    written, other = row(spool.drop("a.csv")), row(spool.drop("b.csv"))
    with (spool.input / "a.csv").open("a"):
        queue.add(written, other)
        queue.work()
    assert queue.take_cleaned() == [other]
    assert queue.why(written) == "a program has it open for writing"


def test_another_file_in_its_place_is_left_alone_and_looked_at(tmp_path: Path) -> None:
    changes: list[str] = []
    spool = Spool(tmp_path, policy="delete")
    queue = queue_of(spool, Clock(), changes)
    queue.add(row(spool.drop("x.csv", "old")))
    spool.drop("x.csv", "another")
    queue.work()
    assert (changes, queue.take_cleaned(), queue.next_at) == (["look"], [], float("inf"))
    assert spool.tree() == {"in/x.csv": "another"}


def test_a_file_that_was_read_on_and_renamed_while_it_waited_leaves_as_it_is_now(tmp_path: Path) -> None:
    spool, clock = Spool(tmp_path, policy="delete"), Clock()
    queue = queue_of(spool, clock, [])
    path = spool.drop("x.csv")
    queue.add(row(path))
    with path.open("a") as file:
        file.write("more\n")
    now = path.rename(path.with_name("y.csv"))
    queue.add(row(now))
    queue.work()
    assert not now.exists()
    assert [one.offset.path for one in queue.take_cleaned()] == [str(now)]
