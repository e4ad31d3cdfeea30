"""A definition's file is the old one or the new one at every moment, also for who dies while writing it."""

from __future__ import annotations

import fcntl
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from copycat_agent.definitions import load_directory
from copycat_agent.definitions.writing import create, put_aside, remove, rewrite
from copycat_agent.options import AgentOptions

DYING = """
import os, signal, sys
from pathlib import Path
from copycat_agent.definitions import writing
if sys.argv[1] in {"fsync", "replace", "link"}:
    setattr(os, sys.argv[1], lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL))
path = Path(sys.argv[2])
writing.rewrite(path, b"old", b"new") if path.exists() else writing.create(path, b"new")
"""


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    create(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode), names(tmp_path)) == (b"new", 0o600, ["app.yaml"])
    with pytest.raises(FileExistsError):
        create(path, b"other")
    assert (path.read_bytes(), names(tmp_path)) == (b"new", ["app.yaml"])


@pytest.mark.parametrize("there", ["a directory", "a link", "a dead link"])
def test_a_name_that_is_taken_is_left_alone(tmp_path: Path, there: str) -> None:
    path, target = tmp_path / "app.yaml", tmp_path / "target"
    path.mkdir() if there == "a directory" else path.symlink_to(target)
    if there == "a link":
        target.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        create(path, b"new")
    assert target.exists() is (there == "a link")
    assert there != "a link" or target.read_bytes() == b"theirs"


@pytest.mark.parametrize("action", [rewrite, remove, put_aside])
def test_what_somebody_has_changed_meanwhile_is_left_alone(tmp_path: Path, action: object) -> None:
    path = tmp_path / "app.yaml"
    path.write_bytes(b"theirs")
    with pytest.raises(OSError, match="somebody changed it meanwhile"):
        rewrite(path, b"old", b"new") if action is rewrite else action(path, b"old")  # type: ignore[operator]
    assert (path.read_bytes(), names(tmp_path)) == (b"theirs", ["app.yaml"])


def test_what_is_put_aside_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    for number in range(3):
        path.write_text(f"{number}")
        put_aside(path, f"{number}".encode())
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {
        "app.yaml.disabled": "0", "app.yaml.disabled1": "1", "app.yaml.disabled2": "2",
    }  # fmt: skip


@pytest.mark.parametrize(("there", "dies"), [("old", "fsync"), ("old", "replace"), ("", "fsync"), ("", "link")])
def test_who_dies_while_writing_leaves_the_old_file_and_the_way_free(tmp_path: Path, there: str, dies: str) -> None:
    path = tmp_path / "app.yaml"
    if there:
        path.write_text(there)
    done = subprocess.run([sys.executable, "-c", DYING, dies, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (path.read_text() if path.exists() else "") == there
    assert load_directory(tmp_path, AgentOptions()).definitions == {}
    (left,) = [one for one in tmp_path.iterdir() if one != path]
    assert left.name.startswith(".")
    rewrite(path, b"old", b"new") if there else create(path, b"new")
    assert (path.read_bytes(), names(tmp_path)) == (b"new", ["app.yaml"])


def test_of_two_who_write_one_is_told_to_wait(tmp_path: Path) -> None:
    path, draft = tmp_path / "app.yaml", tmp_path / ".app.yaml.writing"
    path.write_bytes(b"old")
    with draft.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="somebody else is writing it"):
            rewrite(path, b"old", b"new")
    rewrite(path, b"old", b"new")
    assert path.read_bytes() == b"new"


def test_a_link_under_the_drafts_name_leads_nowhere(tmp_path: Path) -> None:
    path, draft, target = tmp_path / "app.yaml", tmp_path / ".app.yaml.writing", tmp_path / "target"
    target.write_bytes(b"theirs")
    draft.symlink_to(target)
    with pytest.raises(OSError, match=r"symbolic links"):
        create(path, b"new")
    assert target.read_bytes() == b"theirs"
    assert not path.exists()
