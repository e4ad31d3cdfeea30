"""After a loss of power at any moment, whoever goes on shows each offset once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from copycat_agent.sinks.claims import Claims, LocalFile, Range
from copycat_agent.sinks.directory_store import DirectoryStore
from tests.unit.sinks.power import DIRECTORY, Recording

CUTS = 12
"""Histories of each of which the power is lost at three moments; fewer in every run of the tests."""


def write(root: Path, rng: random.Random, until: int) -> None:
    """As an agent does."""
    store = DirectoryStore(root)
    claims = Claims(store, "c", kept=2)
    while (first := claims.resume("t", 0, 0)) < until:
        last = min(until - 1, first + rng.randint(0, 5))
        files = []
        for number in range(2):
            path = store.scratch() / f"{first}-{number}"
            path.write_text(json.dumps(list(range(first + number, last + 1, 2))))
            files.append(LocalFile(path, f"d{number}", 1))
        claims.commit(Range("t", 0, first, last), files, "json")


def visible(root: Path) -> list[int]:
    return sorted(one for path in root.glob("d*/*.json") for one in json.loads(path.read_text()))


def lose_power(directory: Path, seed: int) -> None:
    """An agent writes, the power goes, a second one goes on. Raises AssertionError or what else goes wrong then."""
    rng = random.Random(seed)
    root, after = directory / f"{seed}", directory / f"{seed}-after"
    root.mkdir()
    with Recording(root) as recording:
        write(root, rng, 25)
    assert visible(root) == list(range(25))
    for number in range(3):
        moment = rng.randint(0, len(recording.events))
        after = directory / f"{seed}-{number}"
        recording.cut(moment, rng, after)
        with Recording(after):
            write(after, rng, 40)
        assert visible(after) == list(range(40)), f"history {seed}, power lost behind event {moment} of {len(recording.events)}"


@pytest.mark.parametrize("cuts", [4, pytest.param(CUTS, marks=pytest.mark.long)])
def test_a_loss_of_power_loses_and_repeats_nothing(tmp_path: Path, cuts: int) -> None:
    for seed in range(cuts):
        lose_power(tmp_path, seed)


@pytest.mark.parametrize("is_left_out", [Path.is_dir, Path.is_file])
def test_a_sync_that_is_left_out_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_left_out: Callable[[Path], bool]) -> None:
    fsync = Recording._fsync
    monkeypatch.setattr(Recording, "_fsync", lambda self, fd: None if is_left_out(Path(f"/proc/self/fd/{fd}")) else fsync(self, fd))
    with pytest.raises(Exception, match=r"history|not a claim|JSON|Expecting"):  # noqa: PT012 - any of them may be the first
        for seed in range(CUTS):
            lose_power(tmp_path, seed)


class Careful(random.Random):
    """Of what was not synced nothing is kept."""

    def randint(self, a: int, b: int) -> int:
        return a


SEEN: dict[str, Callable[[DirectoryStore], object]] = {
    "read": lambda store: store.get("_copycat/claims/0"),
    "put again": lambda store: store.put_if_absent("_copycat/claims/0", b"another"),
}


@pytest.mark.parametrize("how", SEEN)
def test_what_another_process_has_put_and_not_synced_is_synced_by_who_sees_it(tmp_path: Path, how: str) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    with Recording(root) as recording:
        DirectoryStore(root).put_if_absent("_copycat/claims/0", b"one")
        while recording.events[-1].what == DIRECTORY:
            recording.events.pop()  # it stands still before its syncs
        SEEN[how](DirectoryStore(root))
        recording.cut(len(recording.events), Careful(), tmp_path / "after")
    assert (tmp_path / "after/_copycat/claims/0").read_bytes() == b"one"


def test_what_another_process_has_linked_and_not_synced_is_synced_before_what_is_pending_goes(tmp_path: Path) -> None:
    root, file = tmp_path / "lake", tmp_path / "file"
    root.mkdir()
    file.write_bytes(b"one")
    with Recording(root) as recording:
        store = DirectoryStore(root)
        store.upload({"_copycat/pending/0": file})
        uploaded = len(recording.events)
        (root / "d").mkdir()
        (root / "d/final").hardlink_to(root / "_copycat/pending/0")
        store.publish({"_copycat/pending/0": "d/final"})
        for moment in range(uploaded, len(recording.events) + 1):
            recording.cut(moment, Careful(), tmp_path / f"{moment}")
            there = [path.name for path in (tmp_path / f"{moment}").rglob("*") if path.is_file() and path.read_bytes() == b"one"]
            assert there, "one of its names outlives it"
    assert (root / "d/final").read_bytes() == b"one"
