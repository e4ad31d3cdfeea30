"""Which files patterns find."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from copycat_agent.sources.discovery import Discovery

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


def found(root: Path, include: tuple[str, ...], exclude: tuple[str, ...] = (), *, follow: bool = False) -> set[str]:
    """Relative names of what is found, once each."""
    scanned = [one.path for one in Discovery(include, exclude, follow_symlinks=follow).scan(_fail)]
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
    discovery = Discovery((include,), (), follow_symlinks=False)
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
    discovery = Discovery((f"{tree}/*.log",), ("b.*",), follow_symlinks=False)
    assert discovery.may_match(f"{tree}/new.log")
    assert not discovery.may_match(f"{tree}/b.log")
    assert not discovery.may_match(f"{tree}/new.log.tmp")
    assert not discovery.may_match(f"{tree}/d/new.log")


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
    discovery = Discovery((f"{tree}/*/a.log", f"{tree}/none/*.log"), (), follow_symlinks=False)
    list(discovery.scan(lambda *_: None))
    assert discovery.directories == {str(tree), f"{tree}/d", f"{tree}/e", f"{tree}/none"}
    assert discovery.unmatched == {f"{tree}/none/*.log"}
    assert discovery.unlisted == set()


def test_a_directory_that_cannot_be_listed_is_told_and_remembered(tree: Path) -> None:
    told: list[str] = []
    discovery = Discovery((f"{tree}/a.log/*",), (), follow_symlinks=False)
    assert not list(discovery.scan(lambda path, _: told.append(path)))
    assert told == [f"{tree}/a.log"]
    assert discovery.unlisted == {f"{tree}/a.log"}
