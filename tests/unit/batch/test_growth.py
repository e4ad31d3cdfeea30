"""Waiting for writes to open files: told by the kernel where it sees all of them, by time elsewhere."""

from __future__ import annotations

import errno
import os
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from copycat_agent.batch import following
from copycat_agent.batch.following import GrowthReporter
from copycat_agent.sources.files import clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG_SECONDS = 60.0
"""A wait that nothing ends fails by pytest's own limit."""


@pytest.fixture
def fds(tmp_path: Path) -> Iterator[list[int]]:
    """Two open files: `one`, `other`."""
    opened = []
    for name in ("one", "other"):
        (tmp_path / name).write_bytes(b"begun\n")
        opened.append(os.open(tmp_path / name, os.O_RDONLY))
    yield opened
    for fd in opened:
        os.close(fd)


def growth_of(fds: list[int]) -> GrowthReporter[int]:
    """Tells which of these files are written to, by their descriptors."""
    growth: GrowthReporter[int] = GrowthReporter()
    for fd in fds:
        growth.add(fd, fd)
    return growth


def waits(told: GrowthReporter[int], seconds: float) -> threading.Thread:
    """Starts a wait on a thread of its own."""
    thread = threading.Thread(target=told.wait, args=(seconds,))
    thread.start()
    return thread


@pytest.mark.parametrize("name", ["one", "other"])
@pytest.mark.parametrize("content", [b"", b"begun\nmore\n"])
def test_a_write_or_a_cut_ends_a_wait_also_when_it_came_before(tmp_path: Path, fds: list[int], name: str, content: bytes) -> None:
    with growth_of(fds) as told:
        assert told.is_notified
        thread = waits(told, LONG_SECONDS)
        (tmp_path / name).write_bytes(content)
        thread.join(LONG_SECONDS / 2)
        assert not thread.is_alive()
        assert told.wait(0.0), "it has not been taken"
        assert told.take() == [fds[name == "other"]]


def test_what_is_taken_ends_no_wait(tmp_path: Path, fds: list[int]) -> None:
    with growth_of(fds) as told:
        (tmp_path / "one").write_bytes(b"x" * 100)
        assert told.wait(LONG_SECONDS)
        assert told.take() == fds[:1]
        assert told.take() == []
        assert not told.wait(0.0)
        for name in ("one", "other"):
            (tmp_path / name).write_bytes(b"")
        assert told.wait(LONG_SECONDS)
        assert sorted(told.take() or []) == sorted(fds)


def test_a_file_that_is_added_later_is_heard_of(tmp_path: Path, fds: list[int]) -> None:
    with growth_of(fds[:1]) as told:
        (tmp_path / "other").write_bytes(b"")
        assert told.take() == []
        told.add(fds[1], fds[1])
        (tmp_path / "other").write_bytes(b"more\n")
        assert told.wait(LONG_SECONDS)
        assert told.take() == fds[1:]


def test_a_file_that_was_deleted_is_heard_of_as_before(tmp_path: Path, fds: list[int]) -> None:
    with (tmp_path / "one").open("ab", buffering=0) as writer, growth_of(fds) as told:
        (tmp_path / "one").unlink()
        told.take()
        writer.write(b"late\n")
        assert told.wait(LONG_SECONDS)


def test_where_more_is_written_than_the_queue_holds_each_may_have_been(fds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with growth_of(fds) as told, monkeypatch.context() as patched:
        patched.setattr(os, "read", lambda *_: struct.pack("iIII", 1, 2, 0, 0) + struct.pack("iIII", -1, 0x4000, 0, 0))
        assert told.take() is None


def test_time_passes_where_a_server_may_write_to_a_file(fds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "is_local", lambda _: False)
    with growth_of(fds) as told:
        assert not told.is_notified
        assert told.take() is None
        assert not told.wait(0.0)


def test_a_process_takes_so_many_queues_and_gives_them_back(fds: list[int]) -> None:
    for _ in range(2):
        held = [growth_of(fds) for _ in range(following.INSTANCES_MAX)]
        assert all(one.is_notified for one in held)
        with growth_of(fds) as one_more:
            assert not one_more.is_notified
        for one in held:
            one.__exit__()


def test_time_passes_where_the_kernel_gives_no_queue(fds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "new_queue", lambda: -1)
    for _ in range(2 * following.INSTANCES_MAX):
        with growth_of(fds) as told:
            assert not told.is_notified
    monkeypatch.undo()
    with growth_of(fds) as told:
        assert told.is_notified


def test_a_ring_ends_a_wait_and_is_no_write(fds: list[int]) -> None:
    with growth_of(fds) as told:
        thread = waits(told, LONG_SECONDS)
        told.notify()
        thread.join(LONG_SECONDS / 2)
        assert not thread.is_alive()
        told.notify()
        told.notify()
        assert not told.wait(LONG_SECONDS)
        assert not told.wait(0.0), "it was heard"


def test_a_process_without_a_free_descriptor_is_told_of_writes_and_hears_no_ring(
    tmp_path: Path, fds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_none(*_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "eventfd", has_none)
    with growth_of(fds) as told:
        told.notify()
        assert not told.wait(0.0)
        (tmp_path / "one").write_bytes(b"")
        assert told.wait(LONG_SECONDS)


def test_time_passes_where_a_file_cannot_be_asked_what_it_is(fds: list[int]) -> None:
    with growth_of(fds) as told:
        told.add(2**20, -1)
        assert not told.is_notified
