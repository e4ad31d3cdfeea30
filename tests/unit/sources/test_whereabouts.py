"""A file is found by its inode, under whatever name its directory has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.sources.files.identity import Identity, InodeFinder, identify_by_name
from tests.unit.sources.rig import agent_for
from tests.unit.sources.saved import remount

if TYPE_CHECKING:
    from pathlib import Path


def test_a_renamed_file_is_found_in_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("x")
    info = path.stat()
    path.rename(tmp_path / "app.log.1")
    path.write_text("another file")
    assert InodeFinder().find(str(path), Identity(info.st_dev, info.st_ino, 0)) == str(tmp_path / "app.log.1")


def test_a_file_that_has_its_inode_now_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("x")
    now = identify_by_name(str(path), path.stat(), follow_symlinks=False)
    assert now is not None
    assert InodeFinder().find(str(path), now) == str(path)
    assert InodeFinder().find(str(path), now._replace(birth_ns=now.birth_ns - 1)) is None


def test_its_old_name_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_text("x")
    (tmp_path / "a").hardlink_to(path)
    info = path.stat()
    assert InodeFinder().find(str(path), Identity(info.st_dev, info.st_ino, 0)) == str(path)


def test_a_file_that_is_gone_is_not_found(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("x")
    info = path.stat()
    path.unlink()
    assert InodeFinder().find(str(path), Identity(info.st_dev, info.st_ino, 0)) is None


def test_a_directory_that_is_gone_says_nothing_about_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        InodeFinder().find(str(tmp_path / "gone" / "app.log"), Identity(1, 1, 0))


def test_a_file_behind_a_link_is_found_beside_what_the_link_leads_to(tmp_path: Path) -> None:
    pod, containers = tmp_path / "pod", tmp_path / "containers"
    pod.mkdir()
    containers.mkdir()
    log, link = pod / "0.log", containers / "app.log"
    log.write_text("x")
    link.symlink_to(log)
    info = log.stat()
    log.rename(pod / "0.log.20261122-050000")
    log.write_text("another file")
    assert InodeFinder().find(str(link), Identity(info.st_dev, info.st_ino, 0)) == str(pod / "0.log.20261122-050000")


def test_a_container_s_log_that_was_rotated_while_nobody_looked_is_read_to_its_end(tmp_path: Path) -> None:
    pod, containers = tmp_path / "pod", tmp_path / "containers"
    pod.mkdir()
    containers.mkdir()
    log = pod / "0.log"
    log.write_bytes(b"1\n2\n")
    (containers / "app.log").symlink_to(log)
    agent = agent_for(containers, follow_symlinks=True, symlink_roots=(str(pod),))
    agent.drain()
    agent.stop()
    with log.open("ab") as file:
        file.write(b"3\n")
    log.rename(pod / "0.log.20261122-050000")
    log.write_bytes(b"4\n")
    agent.restart()
    agent.drain()
    assert sorted(agent.lines) == [b"1", b"2", b"3", b"4"]
    assert agent.losses == []


def test_a_file_that_left_its_patterns_while_its_device_number_changed_is_read_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"1\n2\n")
    agent = agent_for(tmp_path, "*.log")
    agent.drain()
    agent.stop()
    with log.open("ab") as file:
        file.write(b"3\n")
    log.rename(tmp_path / "app.old")
    log.write_bytes(b"4\n")
    agent.store = remount(agent.store)
    agent.restart()
    agent.drain()
    assert sorted(agent.lines) == [b"1", b"2", b"3", b"4"]
    assert agent.losses == []
