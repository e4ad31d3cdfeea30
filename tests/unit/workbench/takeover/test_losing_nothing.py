"""What happens to logs between the peer's last look and the agent's first: whatever it is, no line is lost."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from copycat_agent.workbench.takeover import PeerState, filebeat_registry
from copycat_agent.workbench.takeover.peer_state import PeerPosition
from tests.rig.waiting import wait_until
from tests.unit.workbench.takeover.peers import LINES, judged, offsets, read_on, successor, taken_over
from tests.unit.workbench.takeover.test_filebeat_registry import Registry, of_filestream, of_log

HEADER = b"#a header that many files have\n" * 40


@pytest.fixture
def stopped(tmp_path: Path) -> Callable[..., PeerState]:
    """`stopped(of_log(path, 4))`: the state of a peer that has stopped in these files, so that what is made now is younger."""
    registry = Registry(tmp_path / "registry")

    def made(*entries: tuple[str, dict[str, object]]) -> PeerState:
        for entry in entries:
            registry.set(*entry)
        state = filebeat_registry.read(registry.directory)
        wait_until(lambda: _is_younger(tmp_path / "tick", state.saved_ns), message="files that are made now are younger than the state")
        return state

    return made


def _is_younger(path: Path, saved_ns: int) -> bool:
    path.unlink(missing_ok=True)
    path.touch()
    return path.stat().st_mtime_ns > saved_ns + 10_000_000


def test_of_a_log_that_was_copied_and_cut_the_copy_is_read(stopped: Callable[..., PeerState], log: Path) -> None:
    state = stopped(of_log(log, 8))
    shutil.copy(log, log.with_name("app.log.1"))
    log.write_bytes(b"new\n")
    takeover = taken_over(successor(log), state=state)
    assert "it was cut" in judged(takeover)["app.log"].why
    assert read_on(log, takeover.rows["app"]) == [*LINES.splitlines(), b"new"]


@pytest.mark.parametrize("packed", [False, True])
def test_one_that_was_copied_and_cut_and_has_grown_beyond_the_position_is_no_longer_what_was_read(
    stopped: Callable[..., PeerState], log: Path, packed: bool
) -> None:
    state = stopped(of_log(log, 8))
    if packed:
        log.with_name("app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    else:
        shutil.copy(log, log.with_name("app.log.1"))
    log.write_bytes(b"new1234\nnew2\n")
    takeover = taken_over(successor(log), state=state)
    assert judged(takeover)["app.log"].why.startswith("it was cut: app.log.1")
    assert read_on(log, takeover.rows["app"]) == [*LINES.splitlines(), b"new1234", b"new2"]


def test_a_copy_of_the_state_is_as_old_as_what_it_says_so_files_that_came_before_it_count_as_unseen(tmp_path: Path, log: Path) -> None:
    """Copied without its times, as `cp -r` does: what stands in it says when Filebeat looked last."""
    registry = Registry(tmp_path / "registry")
    registry.set(*of_log(log, 14, timestamp=[0, int(time.time()) - 3600]))
    registry.set(*of_filestream(log, 14, updated=[0, int(time.time()) - 1800]))
    saved_ns = filebeat_registry.read(registry.directory).saved_ns
    assert 1798 < time.time() - saved_ns / 1e9 < 1860
    os.utime(registry.directory / "log.json", (1, 1))
    assert filebeat_registry.read(registry.directory).saved_ns == 1_000_000_000


def test_a_copy_that_somebody_made_of_a_log_refutes_nothing(stopped: Callable[..., PeerState], log: Path) -> None:
    state = stopped(of_log(log, 8))
    shutil.copy(log, log.with_name("app.log.bak"))
    assert judged(taken_over(successor(log), state=state))["app.log"].taken


def test_a_log_that_was_packed_and_removed_is_read_whole(stopped: Callable[..., PeerState], log: Path) -> None:
    state = stopped(of_log(log, 8))
    log.with_name("app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    log.write_bytes(b"new\n")  # it may get the inode of the one that is gone
    takeover = taken_over(successor(log), state=state)
    assert offsets(takeover) == {}
    assert read_on(log, takeover.rows["app"]) == [*LINES.splitlines(), b"new"]


def test_a_rotated_log_whose_position_is_not_proven_is_read_from_its_beginning(stopped: Callable[..., PeerState], log: Path) -> None:
    state = stopped(of_log(log, 6))
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"new\n")
    takeover = taken_over(successor(log), state=state)
    told = judged(takeover)["app.log.1"]
    assert not told.taken
    assert told.then == "it is read from the beginning (14 bytes)"
    assert read_on(log, takeover.rows["app"]) == [*LINES.splitlines(), b"new"]


def test_of_two_positions_of_a_rotated_log_the_one_that_is_proven_counts(stopped: Callable[..., PeerState], log: Path) -> None:
    state = stopped(of_log(log, 6), of_filestream(log, 8))
    log.rename(log.with_name("app.log.1"))
    takeover = taken_over(successor(log), state=state)
    assert read_on(log, takeover.rows["app"]) == [b"three"]


def test_a_log_that_was_renamed_by_a_rotation_that_broke_off_is_read_on(stopped: Callable[..., PeerState], log: Path) -> None:
    state = stopped(of_log(log, 8))
    log.rename(log.with_name("app.log.1"))
    assert read_on(log, taken_over(successor(log), state=state).rows["app"]) == [b"three"]


def test_a_new_log_that_begins_as_the_one_that_was_rotated_is_not_taken_for_it(stopped: Callable[..., PeerState], log: Path) -> None:
    log.write_bytes(HEADER + b"one\ntwo\n")
    state = stopped(of_filestream(log, len(HEADER) + 4, hashlib.sha256(HEADER[:1024]).hexdigest(), "fingerprint"))
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(HEADER + b"new\n")
    takeover = taken_over(successor(log), state=state)
    assert read_on(log, takeover.rows["app"]) == [b"two", *HEADER.splitlines(), b"new"]


def test_where_a_rotated_log_and_the_new_one_both_may_be_the_peers_both_are_read(stopped: Callable[..., PeerState], log: Path) -> None:
    log.write_bytes(HEADER + b"one\n")
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(HEADER + b"two\n")
    state = stopped(of_filestream(log, len(HEADER), hashlib.sha256(HEADER[:1024]).hexdigest(), "fingerprint"))
    takeover = taken_over(successor(log), state=state)
    assert [one.why for one in takeover.decisions] == 2 * [
        "2 files have the same SHA-256 of the first 1,024 bytes, and the peer keeps nothing else"
    ]
    assert read_on(log, takeover.rows["app"]) == [*HEADER.splitlines(), b"one", *HEADER.splitlines(), b"two"]


def test_an_entry_that_is_older_than_the_file_with_its_inode_is_of_another_file_though_the_state_is_younger(
    stopped: Callable[..., PeerState], log: Path
) -> None:
    key, value = of_log(log, 4, timestamp=[0, int(time.time()) - 60])
    takeover = taken_over(successor(log), state=stopped((key, value)))
    told = judged(takeover)["app.log"]
    assert (told.taken, told.why) == (False, "it was made after the peer last saved where it was")
    assert read_on(log, takeover.rows["app"]) == LINES.splitlines()


def test_an_inode_without_a_device_counts_only_on_the_device_of_the_directory_that_it_was_in(log: Path) -> None:
    """`/proc` is another one, and files of two devices may have one inode number."""
    other = PeerPosition(4, "/proc/app.log", inode=log.stat().st_ino)
    takeover = taken_over(successor(log), state=PeerState((other,), time.time_ns()))
    assert not judged(takeover)[log.name].taken
    assert offsets(takeover) == {}
    beside = log.parent.parent / "elsewhere" / "app.log"
    beside.parent.mkdir()
    takeover = taken_over(successor(log), state=PeerState((other._replace(path=str(beside)),), time.time_ns()))
    assert [one.position for one in offsets(takeover).values()] == [4]


def test_a_log_that_a_link_led_to_is_found_where_it_was_rotated(log: Path) -> None:
    """So a container's logs lie: links in one directory, to files that are rotated in others."""
    link = log.parent.parent / "containers" / "app.log"
    link.parent.mkdir()
    link.symlink_to(log)
    position = PeerPosition(4, str(link), inode=log.stat().st_ino)
    state = PeerState((position,), time.time_ns())
    log.rename(log.with_name("app.log.20261121-050000"))
    log.write_bytes(b"new\n")
    takeover = taken_over(successor(link.parent / "*.log", follow_symlinks="true", symlink_roots=[str(log.parent)]), state=state)
    assert [one.position for one in offsets(takeover).values()] == [4]
    assert sorted(read_on(link.parent / "*.log", takeover.rows["app"], follow_symlinks=True, symlink_roots=(str(log.parent),))) == [
        b"new",
        b"three",
        b"two",
    ]
