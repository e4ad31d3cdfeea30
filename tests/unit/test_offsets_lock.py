"""Promises of the state directory: private, and one agent at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.offsets import OffsetStore

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

HOLD = """
import sys, time
from copycat_agent.offsets import OffsetStore
store = OffsetStore.open(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "state")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_agent_is_refused_with_the_holders_pid(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(FatalError, match=rf"another agent \(pid {holder.pid}\)"):
        OffsetStore.open(tmp_path / "state")
    assert holder.poll() is None


def test_another_path_to_the_directory_meets_the_same_lock(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    elsewhere = tmp_path / "link-to-parent"
    elsewhere.symlink_to(tmp_path)
    with pytest.raises(FatalError, match=str(holder.pid)):
        OffsetStore.open(elsewhere / "state")


def test_the_same_process_cannot_open_it_twice(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path), pytest.raises(FatalError, match=str(os.getpid())):
        OffsetStore.open(tmp_path)


def test_the_lock_ends_with_the_process_however_it_ends(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    OffsetStore.open(tmp_path / "state").close()


def test_the_lock_ends_with_close_and_a_failed_open_leaves_none(tmp_path: Path) -> None:
    OffsetStore.open(tmp_path).close()
    (tmp_path / "offsets.db").write_bytes(b"junk" * 1000)
    with pytest.raises(FatalError, match="damaged"):
        OffsetStore.open(tmp_path)
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(fd)]
    (tmp_path / "offsets.db.quarantined").unlink()
    OffsetStore.open(tmp_path).close()


def test_no_child_process_inherits_lock_or_store(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path):
        names = "import os; print([os.readlink(f'/proc/self/fd/{fd}') for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{fd}')])"
        seen = subprocess.run([sys.executable, "-c", names], stdout=subprocess.PIPE, text=True, check=True, close_fds=False).stdout
    assert str(tmp_path) not in seen


def test_the_directory_is_created_private_and_so_is_what_is_in_it(tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    with OffsetStore.open(state):
        assert state.stat().st_mode & 0o777 == 0o700
        for file in state.iterdir():
            assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_others_may_write_is_refused_with_the_command_that_repairs_it(tmp_path: Path, mode: int) -> None:
    state = tmp_path / "my state"
    state.mkdir()
    state.chmod(mode)
    with pytest.raises(FatalError) as caught:
        OffsetStore.open(state)
    assert caught.value.hint == f"chmod 700 '{state}'"
    assert list(state.iterdir()) == []


def test_a_directory_others_may_look_into_is_closed_to_them(tmp_path: Path) -> None:
    """As `mkdir state` makes it: nobody could have put anything there, so it can be made private, as the socket in it needs."""
    tmp_path.chmod(0o755)
    with OffsetStore.open(tmp_path):
        assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(FatalError, match="belongs to user 12345") as caught:
        OffsetStore.open(tmp_path)
    assert "sudo -u '#12345'" in caught.value.hint
    assert f"chown -R 0 {tmp_path}" in caught.value.hint


@pytest.mark.parametrize("suffix", ["", "/", "/."])
def test_a_link_of_ones_own_to_a_private_directory_is_followed_and_meets_its_lock(tmp_path: Path, suffix: str) -> None:
    """As systemd makes it with DynamicUser: /var/lib/copycat -> private/copycat."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "copycat").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("private/copycat")
    (tmp_path / "second").symlink_to(tmp_path / "link")
    with OffsetStore.open(f"{tmp_path / 'second'}{suffix}"), pytest.raises(FatalError, match=f"another agent \\(pid {os.getpid()}"):
        OffsetStore.open(tmp_path / "private" / "copycat")
    assert (tmp_path / "private" / "copycat" / "offsets.db").exists()


def test_a_link_to_a_directory_that_is_not_private_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o777)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(FatalError, match="writable for others"):
        OffsetStore.open(tmp_path / "link")


def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(FatalError, match="symbolic link to a symbolic link"):
        OffsetStore.open(tmp_path / "a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
@pytest.mark.parametrize("hops", [1, 2])
def test_a_link_that_somebody_else_made_is_refused_with_the_path_to_use(tmp_path: Path, hops: int) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    os.chown(tmp_path / "link", 12345, 12345, follow_symlinks=False)
    (tmp_path / "mine").symlink_to("link")
    with pytest.raises(FatalError, match="symbolic link that user 12345 made") as caught:
        OffsetStore.open(tmp_path / ("link" if hops == 1 else "mine"))
    assert str(tmp_path / "real") in caught.value.hint
    assert list((tmp_path / "real").iterdir()) == []


def test_a_planted_lock_or_database_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("lock", "offsets.db"):
        state = tmp_path / f"state-{name}"
        state.mkdir(mode=0o700)
        (state / name).symlink_to(victim)
        with pytest.raises(FatalError):
            OffsetStore.open(state)
    assert victim.read_text() == "precious"


def test_a_state_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(FatalError, match="cannot be used"):
        OffsetStore.open(tmp_path / "state")
