"""Contents of small files: read again only when somebody may have written to them, and never believed too long."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.small_files import ContentCache, read_with_status
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


class Reads:
    """Reads files, and remembers which."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def __call__(self, path: str, bytes_max: int) -> tuple[bytes, os.stat_result]:
        self.paths.append(path)
        return read_with_status(path, bytes_max)


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture
def contents(reads: Reads) -> ContentCache:
    """Believes time stamps as soon as the clock that makes them has gone on."""
    return ContentCache(100, young_ns=0, is_local=lambda _: True, read=reads)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    later(path, path.touch)
    return str(path)


def later(path: Path, change: Callable[[], object]) -> None:
    """Change the file until the kernel has stamped it anew: it counts time in steps of some milliseconds."""
    before = path.stat().st_ctime_ns
    wait_until(lambda: change() is None or path.stat().st_ctime_ns != before)


def test_a_file_that_nobody_writes_to_is_read_once(contents: ContentCache, reads: Reads, path: str) -> None:
    assert [contents.of(path) for _ in range(10)] == [b"one"] * 10
    assert reads.paths == [path]


def test_another_text_of_the_same_length_is_read_though_the_time_was_put_back(contents: ContentCache, path: str) -> None:
    contents.of(path)
    file = Path(path)
    before = file.stat()

    def rewrite() -> None:
        file.write_bytes(b"two")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    later(file, rewrite)
    assert contents.of(path) == b"two"


def test_a_file_that_takes_the_place_of_another_is_read_and_so_is_what_a_link_leads_to(contents: ContentCache, path: str) -> None:
    contents.of(path)
    other = Path(path).with_name("b")
    other.write_bytes(b"two")
    other.rename(path)
    assert contents.of(path) == b"two"
    other.write_bytes(b"six")
    link = Path(path).with_name("link")
    link.symlink_to(path)
    assert contents.of(str(link)) == b"two"
    swapped = Path(path).with_name("swapped")
    swapped.symlink_to(other)
    swapped.rename(link)
    assert contents.of(str(link)) == b"six"


@pytest.mark.parametrize(("young_ns", "is_local"), [(2 * 10**9, True), (0, False)], ids=["just written", "of a server"])
def test_time_stamps_that_prove_nothing_are_not_believed(reads: Reads, path: str, young_ns: int, is_local: bool) -> None:
    contents = ContentCache(100, young_ns=young_ns, is_local=lambda _: is_local, read=reads)
    Path(path).touch()
    for _ in range(3):
        assert contents.of(path) == b"one"
    assert reads.paths == [path] * 3


def test_what_cannot_be_read_is_tried_each_time(contents: ContentCache, path: str) -> None:
    contents.of(path)
    Path(path).unlink()
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            contents.of(path)
    Path(path).write_bytes(b"two")
    assert contents.of(path) == b"two"


def test_a_file_that_nobody_asks_for_is_forgotten(contents: ContentCache, reads: Reads, path: str) -> None:
    contents.of(path)
    contents.forget_all_but([])
    contents.of(path)
    assert reads.paths == [path, path]
