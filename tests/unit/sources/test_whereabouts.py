"""A file is found by its inode, under whatever name its directory has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.sources.whereabouts import Whereabouts

if TYPE_CHECKING:
    from pathlib import Path


def test_a_renamed_file_is_found_in_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("x")
    info = path.stat()
    path.rename(tmp_path / "app.log.1")
    path.write_text("another file")
    assert Whereabouts().find(str(path), info.st_dev, info.st_ino) == str(tmp_path / "app.log.1")


def test_its_old_name_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_text("x")
    (tmp_path / "a").hardlink_to(path)
    info = path.stat()
    assert Whereabouts().find(str(path), info.st_dev, info.st_ino) == str(path)


def test_a_file_that_is_gone_is_not_found(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("x")
    info = path.stat()
    path.unlink()
    assert Whereabouts().find(str(path), info.st_dev, info.st_ino) is None


def test_a_directory_that_is_gone_says_nothing_about_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Whereabouts().find(str(tmp_path / "gone" / "app.log"), 1, 1)
