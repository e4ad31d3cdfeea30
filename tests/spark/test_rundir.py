"""The private directory: ours, empty, short enough for sockets, and nothing else in it is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.spark import rundir
from copycat_agent.spark.runner_connections import RunnerListener
from tests.rig.disk import mounted

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_private_also_when_it_was_not(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o755)
    sockets = rundir.prepare(run_dir)
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in (run_dir, sockets, run_dir / rundir.TEMPORARY, run_dir / rundir.LOCAL))


CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


def test_sockets_of_a_deep_directory_lie_in_it_and_children_reach_them_by_a_short_path(tmp_path: Path) -> None:
    run_dir = tmp_path / ("deep" * 30)
    sockets = rundir.prepare(run_dir)
    assert len(os.fsencode(sockets)) <= rundir.SOCKET_DIR_BYTES
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert sockets.samefile(run_dir / rundir.SOCKETS)
    assert not (run_dir / rundir.SOCKETS).is_symlink()
    listener = RunnerListener(str(sockets / "runners"))
    assert (run_dir / rundir.SOCKETS / "runners").is_socket()
    subprocess.run([sys.executable, "-c", CONNECT, listener.address], check=True)
    listener.close()
    rundir.remove(run_dir)
    assert list(run_dir.iterdir()) == []


def test_what_a_killed_agent_left_is_cleared(tmp_path: Path) -> None:
    run_dir = tmp_path / ("deep" * 30)
    (rundir.prepare(run_dir) / "runners").write_text("")
    (run_dir / rundir.LOCAL / "blocks").write_text("")
    assert [path.name for path in rundir.prepare(run_dir).iterdir()] == [rundir.SPARK_SOCKETS]
    assert list((run_dir / rundir.LOCAL).iterdir()) == []
    rundir.remove(run_dir)


def test_on_a_file_system_that_turned_read_only_the_end_raises_nothing(tmp_path: Path) -> None:
    """Otherwise the agent would end with this error, and not with the reason for which it ends."""
    with mounted(tmp_path, "1m") as disk:
        sockets = rundir.prepare(disk / "run")
        for name in ("gateway", "jvm.args"):
            (disk / "run" / name).write_text("")
        listener = RunnerListener(str(sockets / "runners"))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        listener.close()
        rundir.remove(disk / "run")
        rundir.sweep(disk / "run", sockets)


def test_files_that_are_not_ours_stay(tmp_path: Path) -> None:
    (tmp_path / "offsets.db").write_text("precious")
    rundir.prepare(tmp_path)
    rundir.remove(tmp_path)
    assert (tmp_path / "offsets.db").read_text() == "precious"


def test_a_link_to_elsewhere_is_not_followed_when_clearing(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("precious")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / rundir.SOCKETS).symlink_to(elsewhere)
    rundir.prepare(run_dir)
    assert (elsewhere / "file").exists()
    rundir.remove(run_dir)


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "target")
    with pytest.raises(FatalError, match="not a directory of this user"):
        rundir.prepare(tmp_path / "run")


def test_a_directory_that_cannot_be_made_is_told_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FatalError, match="Not a directory"):
        rundir.prepare(tmp_path / "file" / "run")


def test_sweeping_keeps_the_executors_sockets(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    sockets = rundir.prepare(run_dir)
    (sockets / "runners").write_text("")
    (sockets / rundir.SPARK_SOCKETS / ".x.sock").write_text("")
    rundir.sweep(run_dir, sockets)
    assert (sockets / "runners").exists()
    assert list((sockets / rundir.SPARK_SOCKETS).iterdir()) == []
