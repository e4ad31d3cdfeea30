"""Which files patterns find."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sources.files.paths.discovery import Discovery
from copycat_agent.sources.files.paths.regular_files import Opener

if TYPE_CHECKING:
    from pathlib import Path

TREE = (
    "a.log",
    "b.log",
    "b.txt",
    "[x].log",
    "back\\slash.log",
    "-.log",
    ".hidden.log",
    "app.log.1",
    "d/a.log",
    "d/deep/er/a.log",
    "d/.git/a.log",
    "e/a.log",
    "e/d/a.log",
)


def discovery_of(*include: str, exclude: tuple[str, ...] = (), **links: Any) -> Discovery:
    """One with an opener; `links` as for `Opener`."""
    return Discovery(include, exclude, Opener(include, **links))


def found(root: Path, include: tuple[str, ...], exclude: tuple[str, ...] = (), *, follow: bool = False) -> set[str]:
    """Relative names of what is found, once each."""
    scanned = [one.path for one in discovery_of(*include, exclude=exclude, follow_symlinks=follow).scan(_fail)]
    assert len(scanned) == len(set(scanned))
    return {os.path.relpath(path, root) for path in scanned}


def _fail(path: str, why: str) -> None:
    raise AssertionError(f"{path}: {why}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.log", {"a.log"}),
        ("*.log", {"a.log", "b.log", "[x].log", "back\\slash.log", "-.log"}),
        ("?.log", {"a.log", "b.log", "-.log"}),
        ("[ab].log", {"a.log", "b.log"}),
        ("[!a].log", {"b.log", "-.log"}),
        ("[^a].log", {"b.log", "-.log"}),
        ("[a-].log", {"a.log", "-.log"}),
        ("[[]x].log", {"[x].log"}),
        ("[.]hidden.log", set()),
        (".hidden.log", {".hidden.log"}),
        (".*.log", {".hidden.log"}),
        ("*/a.log", {"d/a.log", "e/a.log"}),
        ("d//a.log", {"d/a.log"}),
        ("./d/./a.log", {"d/a.log"}),
        ("**/a.log", {"a.log", "d/a.log", "d/deep/er/a.log", "e/a.log", "e/d/a.log"}),
        ("**/**/a.log", {"a.log", "d/a.log", "d/deep/er/a.log", "e/a.log", "e/d/a.log"}),
        ("**/d/**/a.log", {"d/a.log", "d/deep/er/a.log", "e/d/a.log"}),
        ("d/**", {"d/a.log", "d/deep/er/a.log"}),
        ("d/.git/*", {"d/.git/a.log"}),
        ("app.log*", {"app.log.1"}),
        ("nothing/*", set()),
        ("b.*", {"b.log", "b.txt"}),
        ("back\\slash.log", {"back\\slash.log"}),
    ],
)
def test_a_pattern_finds_what_a_shell_would(tree: Path, pattern: str, expected: set[str]) -> None:
    include = f"{tree}/{pattern}"
    assert found(tree, (include,)) == expected
    discovery = discovery_of(include)
    assert all(discovery.may_match(str(tree / name)) for name in expected)


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ("b.*", {"a.log", "d/a.log"}),
        ("*.log", set()),
        ("{root}/a.log", {"b.log", "d/a.log"}),
        ("{root}//d/*", {"a.log", "b.log"}),
        ("{root}/**/a.log", {"b.log"}),
        ("{root}/d/**", {"a.log", "b.log"}),
        ("d", {"a.log", "b.log", "d/a.log"}),
        ("*/a.log", {"a.log", "b.log", "d/a.log"}),
    ],
)
def test_an_exclude_is_for_names_or_with_a_slash_for_whole_paths(tree: Path, exclude: str, left: set[str]) -> None:
    include = tuple(f"{tree}/{name}" for name in ("a.log", "b.log", "d/a.log"))
    assert found(tree, include, (exclude.format(root=tree),)) == left


def test_what_no_pattern_can_find_is_known_without_a_scan(tree: Path) -> None:
    discovery = discovery_of(f"{tree}/*.log", exclude=("b.*",))
    assert discovery.may_match(f"{tree}/new.log")
    assert not discovery.may_match(f"{tree}/b.log")
    assert not discovery.may_match(f"{tree}/new.log.tmp")
    assert not discovery.may_match(f"{tree}/d/new.log")


def test_a_name_that_is_spelled_out_is_looked_at_and_its_directory_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand connectors with a file each in one directory would list it a thousand times."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "app.log").touch()
    (tmp_path / "d" / "link.log").symlink_to("app.log")
    (tmp_path / "d" / "gone.log").symlink_to("nothing")

    def refuse(*_: object) -> None:
        raise AssertionError("listed")

    monkeypatch.setattr(os, "scandir", refuse)
    assert found(tmp_path, (f"{tmp_path}/d/app.log", f"{tmp_path}/d/none.log")) == {"d/app.log"}
    assert found(tmp_path, (f"{tmp_path}/d/link.log", f"{tmp_path}/d/gone.log"), follow=True) == {"d/link.log"}
    discovery = discovery_of(f"{tmp_path}/d/link.log", f"{tmp_path}/d", f"{tmp_path}/d/none.log")
    assert _warned(discovery).keys() == {"link.log", "d"}
    assert f"{tmp_path}/d/none.log" in discovery.unmatched


def test_links_that_lead_in_circles_end(tree: Path) -> None:
    (tree / "d" / "loop").symlink_to(tree)
    assert "d/a.log" in found(tree, (f"{tree}/**/a.log",), follow=True)
    assert found(tree, (f"{tree}/**/a.log",), follow=False) == {"a.log", "d/a.log", "d/deep/er/a.log", "e/a.log", "e/d/a.log"}


def test_a_tree_deeper_than_pythons_stack_is_walked(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    depth = 1200
    try:
        for _ in range(depth):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open("x.log", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    finally:
        os.close(here)
    try:
        names = found(tmp_path, (f"{tmp_path}/**/x.log",))
    finally:
        subprocess.run(["rm", "-r", str(tmp_path / "d")], check=True, timeout=60)  # pytest could not
    assert names == {"d/" * depth + "x.log"}


def test_directories_to_watch_are_those_that_a_match_may_appear_in(tree: Path) -> None:
    discovery = discovery_of(f"{tree}/*/a.log", f"{tree}/none/*.log")
    list(discovery.scan(lambda *_: None))
    assert discovery.directories == {str(tree), f"{tree}/d", f"{tree}/e", f"{tree}/none"}
    assert discovery.unmatched == {f"{tree}/none/*.log"}
    assert discovery.unlisted == set()


def test_a_directory_that_cannot_be_listed_is_told_and_remembered(tree: Path) -> None:
    told: list[str] = []
    discovery = discovery_of(f"{tree}/a.log/*")
    assert not list(discovery.scan(lambda path, _: told.append(path)))
    assert told == [f"{tree}/a.log"]
    assert discovery.unlisted == {f"{tree}/a.log"}


def _warned(discovery: Discovery) -> dict[str, str]:
    told: dict[str, str] = {}
    list(discovery.scan(told.__setitem__))
    return {path.rpartition("/")[2]: why for path, why in told.items()}


def test_what_a_pattern_cannot_mean_is_told_and_what_is_excluded_is_not(tmp_path: Path) -> None:
    for name in ("pipe.log", "excluded.log"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "directory.log").mkdir()
    (tmp_path / "link.log").symlink_to("nowhere")
    (tmp_path / "dir1").touch()
    (tmp_path / "dir2").symlink_to("directory.log")
    assert _warned(discovery_of(f"{tmp_path}/*.log", f"{tmp_path}/dir*/x", exclude=("excluded.*",))) == {
        "pipe.log": "is not a regular file",
        "directory.log": "is a directory; the pattern expects a file",
        "link.log": "is a symbolic link; set follow_symlinks: true to read what it points to",
        "dir1": "is not a directory; the pattern expects one",
        "dir2": "is a symbolic link; set follow_symlinks: true to read what it points to",
    }
    assert _warned(discovery_of(f"{tmp_path}/*", f"{tmp_path}/*/x", exclude=("*.log",))) == {
        "dir2": "is a symbolic link; set follow_symlinks: true to read what it points to"
    }


def test_followed_links_are_walked_only_into_what_the_definition_names(tmp_path: Path) -> None:
    logs, away = tmp_path / "logs", tmp_path / "away"
    for directory in (logs / "sub", away / "deep"):
        directory.mkdir(parents=True)
        (directory / "x.log").touch()
    (logs / "inside").symlink_to("sub")
    (logs / "outside").symlink_to(away)
    (logs / "y.log").symlink_to(away / "deep" / "x.log")
    discovery = discovery_of(f"{logs}/**/*.log", follow_symlinks=True)
    told: dict[str, str] = {}
    names = {one.path for one in discovery.scan(told.__setitem__)}
    assert names in ({f"{logs}/sub/x.log"}, {f"{logs}/inside/x.log"})  # one directory, two names: walked once
    assert told == {
        f"{logs}/outside": f"leads to {away}, beyond where the patterns begin; to read it, list a directory above it in symlink_roots",
        f"{logs}/y.log": f"leads to {away}/deep/x.log, beyond where the patterns begin; to read it, list a directory above it in "
        "symlink_roots",
    }
    assert not [path for path in discovery.directories if "outside" in path]
    discovery = discovery_of(f"{logs}/**/*.log", follow_symlinks=True, symlink_roots=(str(away),))
    assert f"{logs}/outside/deep/x.log" in {one.path for one in discovery.scan(_fail)}
