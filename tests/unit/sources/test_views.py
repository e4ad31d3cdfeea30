"""What is unread of very many files is not summed up in every round, that of few is."""

from __future__ import annotations

from pathlib import Path

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.log_file.file_state import FileStat
from copycat_agent.sources.log_file.followed import unread_of
from copycat_agent.sources.log_file.tracked import TrackedFile
from copycat_agent.sources.planner import CROWD, KEEP_SECONDS, CachedSum


def grown(number: int, size: int = 10) -> TrackedFile:
    """A file with so many unread bytes."""
    path = str(Path("/logs") / f"{number}.log")
    return TrackedFile(SourcePartition("app", str(number)), Identity(1, number, 1), path, SourceOffset(0), set(), seen=FileStat(size))


def test_a_crowd_is_summed_up_now_and_then_and_few_files_always() -> None:
    now, files = [1000.0], [grown(number) for number in range(CROWD)]
    view = CachedSum(lambda: len(files), lambda: unread_of(files), clock=lambda: now[0])
    assert view.now().bytes == 10 * CROWD
    files.append(grown(CROWD))
    assert [view.now().bytes for _ in range(100)] == [10 * CROWD] * 100, "a crowd: what was summed up just now"
    now[0] += KEEP_SECONDS
    assert view.now().bytes == 10 * CROWD + 10
    del files[CROWD // 2 :]
    assert view.now().bytes == 5 * CROWD, "nothing old is told of few"
    files.pop()
    assert view.now().bytes == 5 * CROWD - 10
