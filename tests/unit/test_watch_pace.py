"""Events come in steps: what is written in between wakes nobody, and nothing is lost by it."""

from __future__ import annotations

import errno
import threading
import time
from typing import TYPE_CHECKING

from watchdog.observers.inotify_c import InotifyConstants, InotifyEvent, InotifyFD, Mask, WatchDescriptor

from copycat_agent import wake as waking
from copycat_agent.wake import Wake, folded
from copycat_agent.watch import Watcher
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

SECONDS = 60
WRITES = 400


class Counting(Wake):
    """Counts how often it is told of a write."""

    calls = 0

    def written(self, path: str) -> None:
        self.calls += 1
        super().written(path)


def _taken(wake: Wake, wanted: set[str]) -> Callable[[], bool]:
    """Whether all of `wanted` have been told by now, in however many takes."""
    seen: set[str] = set()

    def all_of_them() -> bool:
        seen.update(wake.take()[0])
        return seen == wanted

    return all_of_them


def _event(mask: Mask, name: str = "a") -> InotifyEvent:
    return InotifyEvent(WatchDescriptor(1), mask, 0, name.encode())


def test_a_file_that_is_written_to_all_the_time_wakes_at_most_once_in_a_step(tmp_path: Path) -> None:
    """Two files in turn: the kernel folds only what comes twice in a row."""
    watcher, wake = Watcher(), Counting()
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.touch()
    watcher.watch(wake, [str(tmp_path)])
    begin = time.monotonic()
    with paths[0].open("ab", buffering=0) as one, paths[1].open("ab", buffering=0) as other:
        for _ in range(WRITES):
            one.write(b"x\n")
            other.write(b"x\n")
            time.sleep(0.001)  # else the kernel's queue would do it alone
    wait_until(_taken(wake, {str(path) for path in paths}), SECONDS, "both files are known to have grown")
    watcher.close()
    steps = (time.monotonic() - begin) / wake.step_seconds + 2
    assert wake.calls <= len(paths) * steps


def test_only_repeated_writes_are_left_out() -> None:
    write, create, delete = (_event(mask) for mask in (InotifyConstants.IN_MODIFY, InotifyConstants.IN_CREATE, InotifyConstants.IN_DELETE))
    other = _event(InotifyConstants.IN_MODIFY, "b")
    assert folded([create, write, write, other, delete, create, write, other]) == [create, write, other, delete, create]


def test_who_lingers_less_is_told_sooner_and_so_are_the_others_meanwhile(tmp_path: Path) -> None:
    watcher, patient, hasty = Watcher(), Wake(5.0), Wake(0.01)
    watcher.watch(patient, [str(tmp_path)])
    assert watcher.step_seconds == patient.step_seconds == Wake().step_seconds
    watcher.watch(hasty, [str(tmp_path)])
    assert watcher.step_seconds == hasty.step_seconds
    watcher.unwatch(hasty)
    assert watcher.step_seconds == patient.step_seconds
    watcher.close()


def test_closing_leaves_no_thread(tmp_path: Path) -> None:
    threads = NewThreads()
    watcher, wake = Watcher(), Wake()
    watcher.watch(wake, [str(tmp_path)])
    (tmp_path / "a").write_text("x")
    watcher.close()
    assert not threads.named("")


def test_events_that_come_while_a_watch_ends_are_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watcher, wake, stays = Watcher(), Wake(), Wake()
    other = tmp_path / "other"
    other.mkdir()
    watcher.watch(stays, [str(other)])
    with (tmp_path / "a").open("ab", buffering=0) as file:
        for _ in range(200):
            watcher.watch(wake, [str(tmp_path)])
            file.write(b"x\n")
            (tmp_path / "b").touch()
            watcher.unwatch(wake)
            (tmp_path / "b").unlink()
    (other / "c").write_text("x")
    wait_until(_taken(stays, {str(other / "c")}), SECONDS, "the others are still told")
    watcher.close()
    assert [record.getMessage() for record in caplog.records] == []


def test_a_queue_that_cannot_be_read_once_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waking, "TROUBLE_SECONDS", 0.05)
    read_events, failed = InotifyFD.read_events, threading.Event()

    def broken_once(self: InotifyFD, *, event_buffer_size: int) -> list[InotifyEvent]:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return read_events(self, event_buffer_size=event_buffer_size)

    monkeypatch.setattr(InotifyFD, "read_events", broken_once)
    watcher, wake = Watcher(), Wake()
    try:
        assert failed.wait(60)
        watcher.watch(wake, [str(tmp_path)])
        (tmp_path / "a").write_text("x")
        wait_until(_taken(wake, {str(tmp_path / "a")}))
    finally:
        watcher.close()
    assert "file events cannot be read" in caplog.text


def test_writes_to_a_file_that_is_followed_wake_nobody_and_are_told_now_and_then_and_once_its_batch_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waking, "FOLLOWED_SECONDS", 3600.0)
    wake, calls = Wake(), list[str]()
    wake.follow(frozenset({"/l/a", "/l/b"}))
    assert wake.arm(lambda: calls.append("woken"), deaf=False)
    wake.written("/l/a")
    assert "woken" not in calls
    wake.disarm()
    assert wake.take() == ({"/l/a"}, False)
    wake.written("/l/a")
    wake.written("/l/b")
    assert not wake.has_news, "they were told a moment ago"
    assert wake.take() == (set(), False)
    wake.follow(frozenset({"/l/b"}))
    assert not wake.arm(lambda: None, deaf=False), "the batch of a has ended"
    assert wake.take() == ({"/l/a"}, False)


def test_another_file_of_one_that_is_followed_wakes_as_ever() -> None:
    wake, calls = Wake(), list[str]()
    wake.follow(frozenset({"/l/a"}))
    assert wake.arm(lambda: calls.append("woken"), deaf=False)
    wake.written("/l/c")
    assert calls == ["woken"]
    wake.disarm()
    assert wake.arm(lambda: calls.append("again"), deaf=False) is False
    wake.take()
    assert wake.arm(lambda: calls.append("again"), deaf=False)
    wake.changed()
    assert calls == ["woken", "again"]


def test_a_name_that_is_moved_may_be_another_file_s_now_until_the_batch_that_was_there_has_ended() -> None:
    wake = Wake()
    wake.follow(frozenset({"/l/a", "/l/b"}))
    wake.written("/l/b")
    wake.changed()  # a is a.1, and there is a new a
    assert wake.take() == ({"/l/b"}, True)
    wake.written("/l/a")
    assert wake.take() == ({"/l/a"}, False)
    wake.follow(frozenset({"/l/a", "/l/b", "/l/c"}))  # another batch stays, too
    wake.written("/l/c")
    assert wake.arm(lambda: None, deaf=False), "it is followed"
    wake.disarm()
    wake.written("/l/a")
    assert not wake.arm(lambda: None, deaf=False), "it may be another one"
    assert wake.take() == ({"/l/a", "/l/c"}, False)
    wake.follow(frozenset({"/l/c"}))
    wake.follow(frozenset({"/l/a", "/l/c"}))  # a batch that was made since
    wake.written("/l/a")
    assert wake.arm(lambda: None, deaf=False), "it is followed"


def test_a_name_that_was_moved_before_a_batch_was_made_for_it_may_be_another_file_s() -> None:
    wake = Wake()
    wake.changed()  # a was planned, and is a.1 now
    wake.follow(frozenset({"/l/a"}))
    wake.written("/l/a")
    assert wake.has_news
    assert wake.take() == ({"/l/a"}, True)
    wake.follow(frozenset())
    wake.follow(frozenset({"/l/a"}))
    wake.written("/l/a")
    assert wake.arm(lambda: None, deaf=False), "it is followed"
