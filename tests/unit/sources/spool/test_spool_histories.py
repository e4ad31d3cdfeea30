"""Whatever people do to the files of a directory, and whenever the agent is killed: what is whole in a file arrives."""

from __future__ import annotations

import itertools
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sources.spool_dir import admission
from tests.rig.waiting import wait_until
from tests.unit.sources.saved import remount
from tests.unit.sources.spool.rig import Spool

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.model import Split, SplitResult
    from copycat_agent.sources.planner import Changes

_ACTS = ("drop", "drop", "append", "rewrite", "rename", "link", "unlink", "touch")
_WORK = ("scan", "scan", "plan", "plan", "bring", "bring", "save", "save", "kill", "stop", "remount")
SEEDS = 60


class _History:
    """One directory, one agent, and a dice. `owed` is what must arrive: what nobody has destroyed before it was read."""

    def __init__(self, seed: int, root: Path) -> None:
        self.dice = random.Random(seed)
        self.home = root / "in"
        self.home.mkdir()
        self.target = root / "done"
        self.spool = self._agent()
        self.owed: set[bytes] = set()
        self._numbers = itertools.count()
        self._times = itertools.count(10**18, 10**9)
        self._in_flight: list[tuple[Split, ...]] = []
        self._unsaved: list[tuple[tuple[SplitResult, ...], Changes]] = []

    def _agent(self) -> Spool:
        choose, policy = self.dice.choice, self.dice.choice(["none", "move", "delete"])
        options: dict[str, Any] = {
            "on_changed_file": choose(["continue", "stop"]),
            "order_by": choose(["mtime", "name", "none"]),
            "cleanup": {"policy": policy, **({"to": str(self.target)} if policy == "move" else {})},
        }
        return Spool(self.home, tasks=choose([1, 2, 3]), delivery={"ordering": choose(["file", "none"])}, **options)

    def step(self) -> None:
        """Something happens."""
        act = self.dice.choice(_ACTS + _WORK)
        if act in _WORK:
            getattr(self, f"_{act}")()
        elif files := self._files() or ([self.home / "f0"] if act == "drop" else []):
            getattr(self, f"_{act}")(self.dice.choice(files))

    def _files(self) -> list[Path]:
        return sorted(path for path in self.home.iterdir() if not path.name.startswith("."))

    def _content(self, *counts: int) -> bytes:
        found = [b"%08d" % next(self._numbers) for _ in range(self.dice.choice(counts))]
        self.owed.update(found)
        return b"".join(line + b"\n" for line in found)

    def _destroyed(self, path: Path) -> None:
        if path.exists():
            self.owed.difference_update(path.read_bytes().split())

    def _touch(self, path: Path) -> None:
        moment = next(self._times)
        os.utime(path, ns=(moment, moment))

    def _drop(self, _: Path) -> None:
        path = self.home / f"f{self.dice.randrange(6)}"
        self._destroyed(path)
        self.spool.drop(path.name, self._content(0, 1, 5, 50, 400), self.dice.choice([None, 1_600_000_000.0]))

    def _append(self, path: Path) -> None:
        with path.open("ab") as file:
            file.write(self._content(1, 10))
        self._touch(path)

    def _rewrite(self, path: Path) -> None:
        self._destroyed(path)
        path.write_bytes(self._content(1, 10, 60))
        self._touch(path)

    def _rename(self, path: Path) -> None:
        other = self.home / f"f{self.dice.randrange(6)}"
        if other != path:
            self._destroyed(other)
            path.rename(other)

    def _link(self, path: Path) -> None:
        other = self.home / f"g{self.dice.randrange(3)}"
        if not other.exists():
            other.hardlink_to(path)

    def _unlink(self, path: Path) -> None:
        self._destroyed(path)
        path.unlink()

    def _scan(self) -> None:
        self.spool.source.end_timed_out(at_once=False)
        self._unsaved.append(((), self.spool.source.scan()))

    def _plan(self) -> None:
        if not self._unsaved and (splits := self.spool.source.plan(self.dice.choice([1, 2])).splits):
            self._in_flight.append(splits)

    def _bring(self) -> None:
        if self._in_flight:
            self.spool.max_bytes = self.dice.choice([50, 1000, 2**20])
            results = self.spool.read(self._in_flight.pop(self.dice.randrange(len(self._in_flight))))
            self._unsaved.append((results, self.spool.source.changes_of(results)))

    def _save(self) -> None:
        for results, changes in self._unsaved[:2]:
            self.spool._save(results, changes)
        del self._unsaved[:2]

    def _kill(self) -> None:
        self._in_flight.clear()
        self._unsaved.clear()
        self.spool.restart()

    def _remount(self) -> None:
        """A crash, after which the device has another number."""
        self.spool.store = remount(self.spool.store)
        self._kill()

    def _stop(self) -> None:
        while self._in_flight:
            self._bring()
        self._unsaved.clear()  # `leave` has them once more
        self.spool.stop()

    def end(self) -> set[bytes]:
        """Let the agent do the rest. Returns what is owed and did not arrive, nor is it held back with an error."""
        while self._in_flight or self._unsaved:
            self._bring()
            self._save()
        self.spool.max_bytes = 2**20
        wait_until(lambda: self.spool.drain() < 0 or self.spool.source.drained(), 60)
        failing = [path for path, state in self.spool.states().items() if state == "failing"]
        held = {line for name in failing for line in (self.home / name).read_bytes().split()}
        return self.owed - held - set(self.spool.arrived)


@pytest.mark.parametrize("first", [0, 10, *(pytest.param(first, marks=pytest.mark.long) for first in range(20, SEEDS, 10))])
def test_what_nobody_destroyed_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setattr(admission, "LEAST_BYTES", 400)
    monkeypatch.setattr(admission, "AGAIN_SECONDS", 0.0)
    for seed in range(first, first + 10):
        (tmp_path / str(seed)).mkdir()
        history = _History(seed, tmp_path / str(seed))
        for _ in range(60):
            history.step()
        assert not history.end(), seed
