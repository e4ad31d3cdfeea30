"""Killed between any two things that cleanup does: the next process ends up where an undisturbed one would have."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sources.spool.cleaning import Spool, finished, killed_at, without_renameat2

ELSEWHERE = Path("/dev/shm")
MOST_STEPS = 120


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another device."""
    if not ELSEWHERE.is_dir() or ELSEWHERE.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second device here")
    directory = Path(tempfile.mkdtemp(dir=ELSEWHERE))
    yield directory
    shutil.rmtree(directory)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "delete": ({"policy": "delete", "keep_directories": False}, {}),
    "move": ({"policy": "move", "to": "{target}/fin"}, {}),
    "by date, one is there": ({"policy": "move_by_date", "to": "{target}/fin", "retain": "1d", "keep_directories": False}, {}),
    "bad": ({"failed_to": "{target}/bad", "retain": "1d"}, {"trouble": "a broken block"}),
}


def run(root: Path, target: Path, case: str, step: int | None, *, links: bool, taken: bool) -> tuple[bool, dict[str, str]]:
    """One file and its done file, with a kill before `step`. Whether it was killed, and what is there in the end."""
    cleanup, over = CASES[case]
    options = {name: value.format(target=target) if isinstance(value, str) else value for name, value in cleanup.items()}
    spool = Spool(root, across_devices="copy", **options)
    spool.recursive = True
    for directory in ("fin/2024-01-02/a", "fin/a", "bad/a") if taken else ():
        (target / directory).mkdir(parents=True)
        (target / directory / "x.csv.gz").write_text("somebody's")
        (target / directory / "x.csv.gz.error.json").write_text("{}")
    path, done = spool.drop("a/x.csv.gz", "data"), spool.drop("a/x.csv.gz.done", "")
    spool.drop("a/other.csv", "other")
    file = finished(path, done_file=str(done), **over)
    killed = False
    with ExitStack() as held:
        if links:
            held.enter_context(without_renameat2())
        if step is not None:
            with killed_at(step):
                killed = True
                spool.clean(file)
                killed = False
            spool.restarted()
        outcomes = spool.clean(file)
        assert outcomes[0].state in ("cleaned", "gone")
    spool.now += 10**6
    tree = spool.tree(hidden=True) | {f"target/{name}": text for name, text in Spool.tree(_at(target), hidden=True).items()}
    return killed, {name: text for name, text in tree.items() if not name.endswith(".retain")}


def _at(root: Path) -> Spool:
    spool = object.__new__(Spool)
    spool.root = root
    return spool


def every_kill(tmp_path: Path, targets: Iterator[Path], case: str, *, links: bool = False, taken: bool = False) -> None:
    roots = (tmp_path / str(number) for number in range(MOST_STEPS + 1))
    root = next(roots)
    root.mkdir()
    _, undisturbed = run(root, next(targets), case, None, links=links, taken=taken)
    for step in range(MOST_STEPS):
        root = next(roots)
        root.mkdir()
        killed, found = run(root, next(targets), case, step, links=links, taken=taken)
        assert found == undisturbed, f"killed before step {step}"
        if not killed:
            return
    raise AssertionError("never ends")


def below(directory: Path) -> Iterator[Path]:
    number = 0
    while True:
        target = directory / f"target{number}"
        target.mkdir()
        yield target
        number += 1


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
@pytest.mark.parametrize("case", CASES)
def test_a_kill_between_any_two_steps_changes_nothing(tmp_path: Path, case: str, taken: bool) -> None:
    every_kill(tmp_path, below(tmp_path), case, taken=taken)


@pytest.mark.parametrize("case", ["move", "by date, one is there", "bad"])
def test_nor_where_only_hard_links_keep_from_overwriting(tmp_path: Path, case: str) -> None:
    every_kill(tmp_path, below(tmp_path), case, links=True, taken=True)


@pytest.mark.parametrize("case", ["move", "by date, one is there", "bad"])
def test_nor_on_the_way_to_another_device(tmp_path: Path, elsewhere: Path, case: str) -> None:
    every_kill(tmp_path, below(elsewhere), case, taken=True)
