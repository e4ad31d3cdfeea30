"""Files of one log wait for each other, oldest first, in whatever order they are met."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from copycat_agent.model import SourceOffset, SourcePartition, SplitResult
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.log_file.rotation import RotationOrder
from copycat_agent.sources.log_file.tracked import TrackedFile


def tracked(path: Path, written_at: int, *, read: int = 0, data: bytes = b"123456789\n") -> TrackedFile:
    """A file with these bytes, last written at `written_at`, of which `read` are settled."""
    path.write_bytes(data)
    os.utime(path, ns=(written_at, written_at))
    opened: set[TrackedFile] = set()
    file = TrackedFile(SourcePartition("app", path.name), Identity(0, 0, 0), str(path), SourceOffset(read), opened)
    file.observe(path.stat())
    return file


def followers(files: list[TrackedFile]) -> dict[str, str | None]:
    """File name -> the one it waits for."""
    for file in files:
        file.stop_waiting()
    return {file.partition.key: file.waits_for.partition.key if file.waits_for else None for file in files}


@pytest.mark.parametrize("met", list(itertools.permutations(range(3))))
def test_older_files_go_first_in_whatever_order_they_are_met(tmp_path: Path, met: tuple[int, ...]) -> None:
    order = RotationOrder()
    files = [tracked(tmp_path / name, written_at) for name, written_at in (("app.log.2", 1), ("app.log.1", 2), ("app.log", 3))]
    for number in met:
        order.add(files[number])
    assert followers(files) == {"app.log.2": None, "app.log.1": "app.log.2", "app.log": "app.log.1"}


def test_a_live_file_that_was_met_empty_waits_for_an_older_one_that_is_met_later(tmp_path: Path) -> None:
    """A scan that falls into a rotation meets the new file first, before anyone has written to it."""
    order = RotationOrder()
    live, oldest, older = tracked(tmp_path / "app.log", 3, data=b""), tracked(tmp_path / "app.log.2", 1), tracked(tmp_path / "app.log.1", 2)
    for file in (live, oldest, older):
        order.add(file)
    Path(live.path).write_bytes(b"123456789\n")
    live.observe(Path(live.path).stat())
    assert followers([live, older, oldest]) == {"app.log": "app.log.1", "app.log.1": "app.log.2", "app.log.2": None}


def test_a_file_without_lines_does_not_stop_waiting(tmp_path: Path) -> None:
    order = RotationOrder()
    older, live = tracked(tmp_path / "app.log.1", 1), tracked(tmp_path / "app.log", 2)
    order.add(older)
    order.add(live)
    older.note_end(SplitResult(older.split(100), older.offset, at_end=True))  # its last line is not complete yet
    order.stop_waiting(())
    os.utime(older.path)
    older.observe(Path(older.path).stat())  # it was written to in place
    order.stop_waiting({older, live})
    assert live.waits_for is older
    assert order.waiting == {live}


def test_a_file_that_is_read_is_waited_past(tmp_path: Path) -> None:
    order = RotationOrder()
    files = [tracked(tmp_path / "app.log.2", 1), tracked(tmp_path / "app.log.1", 2, read=10), tracked(tmp_path / "app.log", 3)]
    for file in files:
        order.add(file)
    assert followers(files) == {"app.log.2": None, "app.log.1": "app.log.2", "app.log": "app.log.2"}


def test_other_logs_do_not_wait(tmp_path: Path) -> None:
    order = RotationOrder()
    files = [tracked(tmp_path / "app.log.1", 1), tracked(tmp_path / "web.log", 2)]
    for file in files:
        order.add(file)
    assert followers(files) == {"app.log.1": None, "web.log": None}


def test_a_file_that_is_gone_holds_up_nobody(tmp_path: Path) -> None:
    order = RotationOrder()
    old, new = tracked(tmp_path / "app.log.1", 1), tracked(tmp_path / "app.log", 2)
    order.add(old)
    order.remove(old)
    old.dropped()
    order.add(new)
    assert followers([new]) == {"app.log": None}
