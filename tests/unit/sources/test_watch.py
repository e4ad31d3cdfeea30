"""Events wake a connector; where there are none, one warning says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from watchdog.observers.inotify_c import InotifyConstants, InotifyEvent, WatchDescriptor

from copycat_agent import watch
from copycat_agent.sources.files.paths.partial_scan import PartialScan
from copycat_agent.wake import PacedQueue, Wake
from copycat_agent.watch import Watcher
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until
from tests.unit.sources.rig import agent_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    yield watcher
    watcher.close()


def expect(wake: Wake, path: Path) -> None:
    """Write to `path` until that arrives."""
    seen: set[str] = set()

    def arrived() -> bool:
        with path.open("a") as file:
            file.write("x")
        seen.update(wake.take()[0])
        return str(path) in seen

    wait_until(arrived, 30, f"an event for {path}")


def test_a_write_is_told_by_its_path(watcher: Watcher, tmp_path: Path) -> None:
    wake = Wake()
    watcher.watch(wake, {str(tmp_path)})
    expect(wake, tmp_path / "f")


def test_a_new_name_is_something_only_a_scan_can_tell(watcher: Watcher, tmp_path: Path) -> None:
    wake = Wake()
    watcher.watch(wake, {str(tmp_path)})
    (tmp_path / "f").touch()
    wait_until(lambda: wake.take()[1], 30)


def test_a_directory_made_anew_is_watched_anew_by_all_who_share_it(watcher: Watcher, tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    wakes = [Wake(), Wake()]
    for wake in wakes:
        watcher.watch(wake, {str(directory)})
        expect(wake, directory / "f")
    (directory / "f").unlink()
    directory.rename(tmp_path / "old")  # so that the new one has another inode
    directory.mkdir()
    for wake in wakes:
        watcher.watch(wake, {str(directory)})
    for wake in wakes:
        wake.take()
        expect(wake, directory / "f")


def test_who_leaves_hears_nothing_and_the_others_still_do(watcher: Watcher, tmp_path: Path) -> None:
    stays, leaves = Wake(), Wake()
    for wake in (stays, leaves):
        watcher.watch(wake, {str(tmp_path)})
    watcher.unwatch(leaves)
    leaves.take()
    expect(stays, tmp_path / "f")
    assert leaves.take() == (set(), False)


def test_a_directory_behind_a_link_is_watched_under_the_links_name(watcher: Watcher, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    wake = Wake()
    watcher.watch(wake, {str(tmp_path / "link")})
    expect(wake, tmp_path / "link" / "f")


def test_many_directories_cost_no_threads(watcher: Watcher, tmp_path: Path) -> None:
    directories = [tmp_path / str(number) for number in range(200)]
    for directory in directories:
        directory.mkdir()
    wake, threads = Wake(), NewThreads()
    watcher.watch(wake, {str(tmp_path), *map(str, directories)})
    for directory in (directories[0], directories[-1]):
        expect(wake, directory / "f")
    assert not [one for one in threads.named("") if one.name != "log-repeats"]  # an earlier test's log may begin one


def test_no_more_than_its_share_of_the_kernels_watches_is_taken(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limit = tmp_path / "max_user_watches"
    limit.write_text("4\n")
    monkeypatch.setattr(watch, "KERNEL_LIMIT", limit)
    directories = [tmp_path / str(number) for number in range(3)]
    for directory in directories:
        directory.mkdir()
    wake = Wake()
    for _ in range(2):
        watcher.watch(wake, [str(directory) for directory in directories])
    assert sum(watcher.watches(str(directory)) for directory in directories) == 2
    assert len(caplog.records) == 1


def test_a_directory_that_is_deleted_and_made_anew_with_the_same_inode_is_watched_again(watcher: Watcher, tmp_path: Path) -> None:
    directory, wake = tmp_path / "d", Wake()
    for _ in range(50):  # inodes are given again, mostly
        directory.mkdir()
        before = directory.stat().st_ino
        watcher.watch(wake, {str(directory)})
        expect(wake, directory / "f")
        (directory / "f").unlink()
        directory.rmdir()
        directory.mkdir()
        if directory.stat().st_ino == before:
            break
        directory.rmdir()
    wait_until(lambda: not watcher.watches(str(directory)), 30, "the kernel has said that it is gone")
    watcher.watch(wake, {str(directory)})
    expect(wake, directory / "f")


def test_a_directory_under_two_names_is_watched_under_both(watcher: Watcher, tmp_path: Path) -> None:
    real, link, wake = tmp_path / "real", tmp_path / "link", Wake()
    real.mkdir()
    link.symlink_to(real)
    watcher.watch(wake, {str(real), str(link)})
    (real / "f").touch()
    seen: set[str] = set()

    def arrived() -> bool:
        with (real / "f").open("a") as file:
            file.write("x")
        seen.update(wake.take()[0])
        return seen == {str(real / "f"), str(link / "f")}

    wait_until(arrived, 30, lambda: f"seen: {seen}")
    watcher.watch(wake, {str(link)})
    wake.take()
    expect(wake, link / "f")


def test_a_directory_that_is_not_there_is_watched_once_it_is(watcher: Watcher, tmp_path: Path) -> None:
    wake, directory = Wake(), tmp_path / "d"
    watcher.watch(wake, {str(directory)})
    directory.mkdir()
    watcher.watch(wake, {str(directory)})
    expect(wake, directory / "f")


def test_when_the_kernel_drops_events_everyone_looks_at_everything(
    watcher: Watcher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other, agent = Wake(), Wake(), agent_for(tmp_path)
    agent.source.partial_scan = PartialScan(worth_seconds=0.0, young_ns=-(10**18))
    quiet = tmp_path / "quiet.log"
    quiet.write_text("1\n")
    agent.drain()
    watcher.watch(one, {str(tmp_path)})
    watcher.watch(other, {str(tmp_path)})
    assert watcher.queue is not None
    watcher.queue.handle_event(InotifyEvent(WatchDescriptor(-1), InotifyConstants.IN_Q_OVERFLOW, 0, b""))
    assert str(tmp_path) in other.take()[0]
    grown, _ = one.take()
    assert not agent.source.wake(grown)
    assert agent.source.needs_scan
    assert "file events were dropped by the kernel, everything is looked at" in [record.getMessage() for record in caplog.records]


def test_without_inotify_there_is_one_warning_and_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def exhausted() -> None:
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr(watch, "PacedQueue", exhausted)
    watcher = Watcher()
    for _ in range(3):
        watcher.watch(Wake(), {str(tmp_path)})
    watcher.close()
    assert len(caplog.records) == 1


def test_a_directory_that_cannot_be_watched_is_told_once(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    wake = Wake()
    with monkeypatch.context() as patch:
        patch.setattr(PacedQueue, "add_callback", exhausted)
        for _ in range(3):
            watcher.watch(wake, {str(tmp_path)})
    assert len(caplog.records) == 1
    watcher.watch(wake, {str(tmp_path)})
    expect(wake, tmp_path / "f")


def test_a_connector_that_never_asks_is_told_to_look_at_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.wake.MAX_GROWN", 3)
    wake = Wake()
    for number in range(10):
        wake.written(f"/{number}")
    grown, other = wake.take()
    assert (len(grown), other) == (3, True)
