"""Patterns in words: they say of every path what a scan does with it, and find names that two patterns share."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.sources.files.paths.discovery import Discovery
from copycat_agent.sources.files.paths.matching import excluded_by, literal_prefix, mismatch, shared_name
from copycat_agent.sources.files.paths.regular_files import Opener

NAMES = ("a.log", "b.log", "ab.txt", ".a.log", "x/a.log", "x/b", "x/y/a.log", ".h/a.log", "x/.h/a.log", "x/y/z/b.log", "[a].log")
PATTERNS = (
    "*.log", "?.log", "[ab].log", "[!a].log", ".*.log", "**/*.log", "*/*.log", "x/**", "**", "**/y/*", "x/**/b*", ".h/*", "a.log",
    "**/.h/*", "x//./a.log", "[[]a].log", "**/**/a.log", "*/y/**/*.log", "x", "x/",
)  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("matching")
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_said_of_a_path_is_what_a_scan_does(tree: Path, pattern: str) -> None:
    include = (f"{tree}/{pattern}",)
    found = {one.path for one in Discovery(include, (), Opener(include)).scan(lambda *_: None)}
    assert {f"{tree}/{name}" for name in NAMES if mismatch(include, f"{tree}/{name}") is None} == found


@pytest.mark.parametrize("exclude", ["*.log", "a.log", "**/x/**", "/**/y/*", ".*"])
def test_what_is_said_to_be_excluded_is(tree: Path, exclude: str) -> None:
    include = (f"{tree}/**", f"{tree}/.*", f"{tree}/.h/*")
    exclude = exclude.replace("/**/", f"{tree}/**/", 1) if exclude.startswith("/") else exclude
    every, some = ({one.path for one in Discovery(include, out, Opener(include)).scan(lambda *_: None)} for out in ((), (exclude,)))
    assert {path for path in every if excluded_by((exclude,), path)} == every - some
    assert some != every or exclude == "**/x/**"


def test_the_nearest_pattern_is_the_one_that_is_shown() -> None:
    found = mismatch(("/srv/*.log", "/var/log/**/*.log", "/var/log/nginx/access*"), "/var/log/nginx/error.txt")
    assert found is not None
    assert (found.pattern, found.why) == ("/var/log/nginx/access*", "error.txt does not match access*")


@pytest.mark.parametrize(
    ("one", "other", "shares"),
    [
        ("/l/*.log", "/l/*.log", True),
        ("/l/app-*.log", "/l/*-err.log", True),
        ("/l/*.log", "/l/*.txt", False),
        ("/l/*.log", "/m/*.log", False),
        ("/l/**/*.log", "/l/x/y/a?.l[a-o]g", True),
        ("/l/**", "/l/*/**/z", True),
        ("/l/.*.log", "/l/*.log", False),
        ("/l/[0-9]*.log", "/l/[a-z]*.log", False),
        ("/l/[0-9]*.log", "/l/[!a]*.log", True),
        ("/l/a.log", "/l/a.log/b", False),
        ("/**/a.log", "/l/**/a.*", True),
    ],
)
def test_patterns_share_a_name_or_do_not(one: str, other: str, *, shares: bool) -> None:
    name = shared_name(((one,), ()), ((other,), ()))
    assert bool(name) == shares == bool(shared_name(((other,), ()), ((one,), ())))


def test_what_one_leaves_out_is_not_shared() -> None:
    assert shared_name((("/l/*.log",), ("access*.log",)), (("/l/access*.log",), ())) == ""
    assert shared_name((("/l/*.log",), ("a.log",)), (("/l/a*.log",), ())) not in ("", "/l/a.log")


LEVELS = st.lists(st.sampled_from(["*", "**", "a", "b", "a*", "*b", "?", "[ab]", "*a*"]), min_size=1, max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)


@given(LEVELS, LEVELS)
def test_a_shared_name_is_one_that_both_name_and_is_found_when_short_ones_are(one: str, other: str) -> None:
    name = shared_name(((one,), ()), ((other,), ()))
    if name:
        assert mismatch((one,), name) is None
        assert mismatch((other,), name) is None
        assert name.startswith((literal_prefix(one), literal_prefix(other)))
        assert literal_prefix(one).startswith(literal_prefix(other)) or literal_prefix(other).startswith(literal_prefix(one))
        return
    short = ("/" + "/".join(parts) for size in (1, 2, 3) for parts in product(("a", "b", "ab"), repeat=size))
    assert not [path for path in short if mismatch((one,), path) is None and mismatch((other,), path) is None]
