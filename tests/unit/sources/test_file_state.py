"""What a look at a file changes in what is known of it, as a value."""

from __future__ import annotations

import os
from typing import Any

import pytest

from copycat_agent.sources.log_file.file_state import Ending, FileStat, observe


def stat(size: int, mtime: int, ctime: int) -> os.stat_result:
    return os.stat_result((0,) * 6 + (size, 0, 0, 0), {"st_mtime_ns": mtime, "st_ctime_ns": ctime})


def look(seen: FileStat, size: int, time_ns: int, **how: Any) -> FileStat:
    return observe(seen, stat(size, time_ns, time_ns), float(time_ns), **{"is_packed": False, **how})


def test_the_first_look_says_when_it_was_met() -> None:
    seen = look(look(FileStat(), 10, 5), 10, 7)
    assert (seen.size, seen.met_ns, seen.ctime_ns) == (10, 5, 7)


def test_a_look_that_finds_the_same_keeps_when_it_grew() -> None:
    seen = look(FileStat(), 10, 5)
    assert observe(seen, stat(10, 5, 9), 100.0, is_packed=False).grown_at == seen.grown_at


@pytest.mark.parametrize(("sizes", "cut"), [((10, 20), None), ((10, 4), (10, 4)), ((10, 6, 8, 2, 9), (10, 2))])
def test_a_cut_is_known_by_its_largest_and_smallest_size(sizes: tuple[int, ...], cut: tuple[int, int] | None) -> None:
    seen = FileStat()
    for time_ns, size in enumerate(sizes, 1):
        seen = look(seen, size, time_ns)
    assert seen.cut == cut


def test_a_smaller_archive_was_not_cut_unless_it_is_empty() -> None:
    seen = look(FileStat(), 10, 1, is_packed=True)
    assert look(seen, 4, 2, is_packed=True).cut is None
    assert look(seen, 0, 2, is_packed=True).cut == (10, 0)


def test_what_was_written_over_what_was_read_and_then_cut_is_unseen() -> None:
    rewritten = FileStat(10, 1, 1, 1, 0.0, rewritten=True)
    assert look(rewritten, 4, 2).unseen == 10
    assert look(FileStat(10, 1, 1, 1, 0.0), 4, 2).unseen == 0


def test_growth_takes_back_that_the_last_record_is_ended() -> None:
    grown = Ending(stalled_size=10, final=True, flush=True, timed=True).after_change(11)
    assert (grown.stalled_size, grown.final, grown.flush, grown.timed) == (10, False, False, True)
    assert Ending(stalled_size=10).after_change(10).stalled_size == -1
    cut = Ending(stalled_size=10, flushed_size=10, finished_size=10).after_change(4)
    assert (cut.stalled_size, cut.flushed_size, cut.finished_size) == (-1, -1, -1)
