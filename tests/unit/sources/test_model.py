"""Random histories of log files against a tiny model: whatever is done to them, which lines must arrive, and how often."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from copycat_agent.sources.glance import Glance
from tests.unit.sources.rig import Agent, agent_for

NAMES = st.sampled_from(["app.log", "web.log"])
COUNTS = st.integers(1, 5)


class History(RuleBasedStateMachine):
    """Lines are numbered through, so each is unique. All of them are owed, exactly once, but for these.

    `excused` may be missing: destroyed before the agent could see them, or while nobody held their file open. `held` are lines
    of deleted files, which a running agent still reads. `repeatable` were copied to a file that matches too.
    """

    @initialize(
        keep_open=st.sampled_from([1, 2, 512]),
        matches_rotated=st.booleans(),
        glances=st.booleans(),
        how=st.lists(st.sampled_from(["read", "stop", "fail"]), min_size=1, max_size=6),
    )
    def begin(self, keep_open: int, matches_rotated: bool, glances: bool, how: list[str]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="history-"))
        self.matches_rotated = matches_rotated
        self.keep_open = keep_open
        self.behaviour = how
        self.turn = 0
        self.number = 0
        self.written: dict[Path, list[bytes]] = {}
        self.owed: list[bytes] = []
        self.held: list[bytes] = []
        self.excused: set[bytes] = set()
        self.repeatable: set[bytes] = set()
        self.unfinished: dict[Path, bytes] = {}
        self.agent: Agent = agent_for(self.directory, "*" if matches_rotated else "*.log", max_open_files=keep_open)
        self.glances = glances
        self._set_glance()

    def _set_glance(self) -> None:
        """Glances wherever they are allowed, or the default: none in so small a directory."""
        if self.glances:
            self.agent.source.glance = Glance(worth_seconds=0.0, round_seconds=1e-9, young_ns=10_000_000)

    def _how(self) -> str:
        self.turn += 1
        return self.behaviour[self.turn % len(self.behaviour)]

    def _write(self, path: Path, count: int) -> None:
        lines = []
        for _ in range(count):
            self.number += 1
            lines.append(b"%s line %d" % (path.name.encode(), self.number))
        rest = self.unfinished.pop(path, b"")
        if rest:
            lines[0] = rest + lines[0]
        with path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines)[len(rest) :])
        self.written.setdefault(path, []).extend(lines)

    def _unread(self, path: Path) -> list[bytes]:
        return [line for line in self.written.get(path, []) if line not in self.agent.lines]

    @rule(name=NAMES, count=COUNTS)
    def append(self, name: str, count: int) -> None:
        self._write(self.directory / name, count)

    @rule(name=NAMES)
    def append_unfinished(self, name: str) -> None:
        path = self.directory / name
        if path not in self.unfinished:
            self.number += 1
            self.unfinished[path] = b"unfinished %d " % self.number
            with path.open("ab") as file:
                file.write(self.unfinished[path])
            self.written.setdefault(path, [])

    @rule(name=NAMES)
    def rotate_by_rename(self, name: str) -> None:
        path, rotated = self.directory / name, self.directory / f"{name}.1"
        if not path.exists():
            return
        if rotated.exists():
            self._destroy(rotated)
        if not self.matches_rotated:
            self._excuse_what_cannot_be_followed(path)
        path.rename(rotated)
        self.written[rotated] = self.written.pop(path, [])
        if path in self.unfinished:
            rest = self.unfinished.pop(path)
            if self.matches_rotated:
                self.unfinished[rotated] = rest
            else:
                self.excused.add(rest)  # flushed as a partial record, if it was seen

    @rule(name=NAMES)
    def truncate(self, name: str) -> None:
        path = self.directory / name
        if path.exists():
            self._settle_account(path, destroyed=True)
            path.write_bytes(b"")

    @rule(name=NAMES)
    def copytruncate(self, name: str) -> None:
        path, copy = self.directory / name, self.directory / f"{name}.1"
        if not path.exists() or copy.exists():
            return
        shutil.copy(path, copy)
        if self.matches_rotated:
            self.repeatable.update(self.written.get(path, []))  # the copy is a file of its own
            self.written[copy] = list(self.written.get(path, []))
            if path in self.unfinished:
                self.unfinished[copy] = self.unfinished[path]
        else:
            self.written[copy] = []
        self._settle_account(path, destroyed=not self.matches_rotated)
        path.write_bytes(b"")

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        path = self.directory / name
        if path.exists():
            self._destroy(path)

    @rule()
    def let_time_pass(self) -> None:
        """Time stamps of directories grow old enough to be trusted."""
        time.sleep(0.012)

    @rule()
    def scan(self) -> None:
        self.agent.scan()

    @rule()
    def work(self) -> None:
        self.agent.work(self._how)

    @rule()
    def scan_and_work(self) -> None:
        self.agent.scan()
        self.agent.work(self._how)

    @rule()
    def restart(self) -> None:
        self.excused.update(line for line in self.held if line not in self.agent.lines)
        for path in self._followed_only():
            self._excuse(path)
        self.agent.restart()
        self._set_glance()

    @rule()
    @precondition(lambda self: self.keep_open == 512)
    def catch_up(self) -> None:
        self.agent.drain()
        self._check()

    @invariant()
    def descriptors_are_bounded(self) -> None:
        if hasattr(self, "agent"):
            catalog = self.agent.source._catalog
            assert len(catalog.descriptors.opened) <= max(1, self.keep_open) + len(catalog.gone) + 1
            assert all(file.fd >= 0 for file in catalog.descriptors.opened)

    def teardown(self) -> None:
        if hasattr(self, "agent"):
            self.agent.drain()
            self._check()
            self.agent.source.close()
            shutil.rmtree(self.directory)

    def _followed_only(self) -> list[Path]:
        """Renamed files that no pattern matches: only a running agent knows them."""
        return [] if self.matches_rotated else [path for path in self.written if path.name.endswith(".1")]

    def _excuse(self, path: Path) -> None:
        self.excused.update(self._unread(path))
        if path in self.unfinished:
            self.excused.add(self.unfinished[path])

    def _is_open(self, path: Path) -> bool:
        info = path.stat()
        file = self.agent.source._catalog.files.get((info.st_dev, info.st_ino))
        return file is not None and file.fd >= 0

    def _excuse_what_cannot_be_followed(self, path: Path) -> None:
        if not self._is_open(path):
            self._excuse(path)

    def _destroy(self, path: Path) -> None:
        """The name goes; an agent that has the file open still reads it."""
        if not self._is_open(path):
            self._excuse(path)
        self.held += self.written.get(path, [])
        self._retire(path)
        path.unlink()

    def _settle_account(self, path: Path, *, destroyed: bool) -> None:
        """The file is cut: what was not read of it is gone."""
        if destroyed:
            self.excused.update(self._unread(path))
        self._retire(path)

    def _retire(self, path: Path) -> None:
        self.owed += self.written.pop(path, [])
        if path in self.unfinished:
            self.excused.add(self.unfinished.pop(path))

    def _check(self) -> None:
        lines = Counter(self.agent.lines)
        owed = {*self.owed, *(line for lines in self.written.values() for line in lines)} - self.excused
        missing = sorted(line for line in owed if not lines[line])
        assert not missing, f"lost {missing}"
        repeated = sorted(line for line, count in lines.items() if count > 1 and line not in self.repeatable)
        assert not repeated, f"repeated {repeated}"
        known = owed | self.excused | set(self.owed)
        phantom = sorted(line for line in lines if line not in known)
        assert not phantom, f"never written {phantom}"


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
