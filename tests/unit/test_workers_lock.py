"""Workers of an earlier run: a start waits for them, and names those that stay."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from copycat_agent.spark import workers_lock
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLDER = """
import os, sys, time
from copycat_agent.spark import workers_lock
workers_lock.hold()
if os.fork():
    os._exit(0)  # a fork holds it on
print(os.getpid(), flush=True)
child = __import__("subprocess").Popen(["sleep", "60"]) if sys.argv[1:] else None
sys.stdin.read()
if child:
    print(child.pid, flush=True)
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / workers_lock.NAME


@pytest.fixture
def holder(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """A fork of a process that held the lock; it ends when its stdin is closed."""
    environment = {**os.environ, workers_lock.VARIABLE: str(lock)}
    with subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        yield one
        assert one.stdin is not None
        one.stdin.close()


def pid_of(holder: subprocess.Popen[str]) -> int:
    """The pid that it tells, once the process that the fork is of has ended: until then that one holds the lock, too."""
    assert holder.stdout is not None
    pid = int(holder.stdout.readline())
    holder.wait(60)
    return pid


def holders(lock: Path) -> tuple[int, ...]:
    """Who is named, by one who has it open, too."""
    descriptor = os.open(lock, os.O_RDWR)
    try:
        return workers_lock.holders(descriptor)
    finally:
        os.close(descriptor)


def test_nobody_is_waited_for_where_nobody_is(lock: Path) -> None:
    assert workers_lock.wait(lock, 30) == ()
    assert lock.stat().st_mode & 0o777 == 0o600


def test_those_that_stay_are_named(lock: Path, holder: subprocess.Popen[str], caplog: pytest.LogCaptureFixture) -> None:
    pid = pid_of(holder)
    assert workers_lock.wait(lock, 0.1) == (pid,)
    assert "workers of an earlier run are left" in caplog.text


def test_naming_them_asks_no_file_which_may_be_on_a_mount_that_hangs(
    lock: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = pid_of(holder)
    asked: list[object] = []

    def hangs(path: object, *_: object, **__: object) -> NoReturn:
        asked.append(path)
        raise AssertionError(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", hangs)
        for name in ("stat", "lstat", "access"):
            patched.setattr(os, name, hangs)
        assert holders(lock) == (pid,)
    assert not asked


def test_processes_and_files_that_may_not_be_looked_at_are_passed_over(
    lock: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, look_at, list_all = pid_of(holder), Path.readlink, Path.iterdir
    seen: list[Path] = []

    def listed(path: Path) -> Iterator[Path]:
        if path.match(f"/proc/{os.getppid()}/fd"):
            raise PermissionError(13, "Permission denied")
        return list_all(path)

    def read(path: Path) -> Path:
        if str(pid) in path.parts:
            seen.append(path)
            if len(seen) == 1:
                raise PermissionError(13, "Permission denied")
        return look_at(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", listed)
        patched.setattr(Path, "readlink", read)
        assert holders(lock) == (pid,)
    assert len(seen) > 1


def test_who_may_look_at_nobody_names_nobody(lock: Path, holder: subprocess.Popen[str]) -> None:
    pid_of(holder)
    if os.geteuid():
        pytest.skip("needs root, to be another user")
    lock.chmod(0o666)
    look = "import os, sys; from copycat_agent.spark import workers_lock; d = os.open(sys.argv[1], os.O_RDWR); os.setuid(65534); "
    command = [sys.executable, "-c", look + "print(workers_lock.holders(d))", str(lock)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "()\n"


def test_a_lock_that_is_deleted_while_it_is_waited_for_names_those_that_hold_it_still(lock: Path, holder: subprocess.Popen[str]) -> None:
    pid = pid_of(holder)
    descriptor = os.open(lock, os.O_RDWR)
    try:
        lock.unlink()
        assert workers_lock.holders(descriptor) == (pid,)
        assert workers_lock.wait(lock, 0) == ()  # made anew, it is nobody's
    finally:
        os.close(descriptor)


def test_a_start_goes_on_as_soon_as_they_have_ended(lock: Path, holder: subprocess.Popen[str]) -> None:
    pid_of(holder)
    found: list[tuple[int, ...]] = []
    waiting = threading.Thread(target=lambda: found.append(workers_lock.wait(lock, 90)))
    waiting.start()
    assert holder.stdin is not None
    holder.stdin.close()
    waiting.join(90)
    assert found == [()]


def test_what_a_worker_starts_does_not_hold_it(lock: Path) -> None:
    environment = {**os.environ, workers_lock.VARIABLE: str(lock)}
    command = [sys.executable, "-c", HOLDER, "with a child"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        pid_of(holder)
        assert holder.stdin is not None
        holder.stdin.close()
        child = pid_of(holder)
        try:
            assert workers_lock.wait(lock, 30) == ()
            wait_until(lambda: holders(lock) == (), message="nobody has it open")
        finally:
            os.kill(child, 9)


def test_a_lock_that_cannot_be_made_stops_nobody(tmp_path: Path) -> None:
    assert workers_lock.wait(tmp_path / "missing" / "lock", 30) == ()
