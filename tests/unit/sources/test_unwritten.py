"""A file's holes are passed without reading them, and what stands in them is never missed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.sources.files.reading.stream import FileHoles, Stream

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """100 MiB, with a few bytes at both ends and in the middle."""
    path = tmp_path / "app"
    with path.open("wb") as file:
        for place in (0, 50 * MIB + 7, 100 * MIB):
            file.seek(place)
            file.write(b"data\n")
    return path


def stream(path: Path) -> Stream:
    return Stream(Split(SourcePartition("app", "1"), str(path), str(path), SourceOffset(0), path.stat().st_size))


def test_a_sparse_file_reads_as_its_bytes(sparse: Path) -> None:
    reading, place, found = stream(sparse), 0, []
    while block := reading.read(place, MIB):
        if text := block.strip(b"\0"):
            found.append((place + block.index(text), text))
        place += len(block)
    assert found == [(0, b"data\n"), (50 * MIB + 7, b"data\n"), (100 * MIB, b"data\n")]
    assert place == 100 * MIB + 5
    reading.close()


def test_only_what_was_never_written_is_passed_and_not_just_before_data(sparse: Path) -> None:
    fd = os.open(sparse, os.O_RDONLY)
    unwritten = FileHoles()
    assert not unwritten.covers(fd, 10 * MIB, MIB), "nothing has come back as NUL bytes"
    unwritten.note(bytes(MIB))
    if os.lseek(fd, 10 * MIB, os.SEEK_DATA) == 10 * MIB:
        pytest.skip("the file system tells nothing of holes")
    assert unwritten.covers(fd, 10 * MIB, MIB)
    assert not unwritten.covers(fd, 10 * MIB, 1000)
    assert not unwritten.covers(fd, 49 * MIB, 2 * MIB)
    assert not unwritten.covers(fd, 40 * MIB, MIB)
    unwritten.note(b"x" * MIB)
    assert not unwritten.covers(fd, 10 * MIB, MIB)
    os.close(fd)


def test_the_end_of_a_file_is_no_hole(tmp_path: Path) -> None:
    path = tmp_path / "app"
    path.touch()
    os.truncate(path, 30 * MIB)
    reading = stream(path)
    assert sum(len(reading.read(place, MIB)) for place in range(0, 40 * MIB, MIB)) == 30 * MIB
    reading.close()
