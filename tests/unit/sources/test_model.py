"""Random histories of log files against a tiny model: whatever is done to them, which lines must arrive, and how often."""

from __future__ import annotations

import fnmatch
import gzip
import math
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from copycat_agent.model import SourcePartition
from copycat_agent.sources.files import clock
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.paths.partial_scan import PartialScan
from tests.rig.examples import examples
from tests.unit.sources.rig import Agent, agent_for

NAMES = st.sampled_from(["app.log", "web.log"])
COUNTS = st.integers(1, 5)
FOREIGN_DEVICE = 0xFFFF0000
"""Added to the device numbers that are saved: the files' are others then, as after a reboot."""


_HEADER = 10
"""Bytes of gzip's header, which it writes with the first block that it writes."""


@dataclass(eq=False)
class File:
    """One inode: its whole lines, the line that is begun, and its names, of which there may be none any more."""

    key: tuple[int, int]
    lines: list[bytes] = field(default_factory=list)
    unfinished: bytes = b""
    names: set[Path] = field(default_factory=set)


@dataclass(frozen=True)
class Packing:
    """gzip at work: what it has taken from `file`, and the bytes that it has not written yet."""

    file: File
    lines: tuple[bytes, ...]
    unfinished: bytes
    rest: bytes


class History(RuleBasedStateMachine):
    """Lines are numbered through, so each is unique. Those in files that match are owed, exactly once; so are those that once were.

    But for these: `excused` may be missing: destroyed before the agent could see them, or while nobody held their file open.
    `repeatable` stand in two files, or were sent and not saved when the agent was killed.
    """

    @initialize(
        keep_open=st.sampled_from([1, 2, 512]),
        matches_rotated=st.booleans(),
        scans_partly=st.booleans(),
        how=st.lists(st.sampled_from(["read", "stop", "fail"]), min_size=1, max_size=6),
    )
    def begin(self, keep_open: int, matches_rotated: bool, scans_partly: bool, how: list[str]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="history-"))
        self.pattern = "*" if matches_rotated else "*.log"
        self.keep_open = keep_open
        self.behaviour = how
        self.turn = 0
        self.number = 0
        self.names: dict[Path, File] = {}
        self.nameless: list[File] = []
        self.once_owed: set[bytes] = set()
        self.excused: set[bytes] = set()
        self.repeatable: set[bytes] = set()
        self.split: set[bytes] = set()
        """Lines that were flushed when they were begun, so they came in two parts."""
        self.destroyed = False
        self.copies: list[tuple[File, File]] = []
        self.unseen: set[File] = set()
        self.packing: dict[Path, Packing] = {}
        self.agent: Any = self._make_agent(self.directory, self.pattern, keep_open)
        self.scans_partly = scans_partly
        self._set_partial_scan()

    def _make_agent(self, directory: Path, pattern: str, keep_open: int) -> Agent:
        return agent_for(directory, pattern, max_open_files=keep_open)

    @rule(name=NAMES, count=COUNTS)
    def append(self, name: str, count: int) -> None:
        """A line that is begun in a file that has left its patterns is sent as it is; what follows is another one."""
        path = self.directory / name
        file = self._there(path)
        lines = [self._line(name) for _ in range(count)]
        block = b"".join(line + b"\n" for line in lines)
        self._doubt_copies_of_this_moment(file)
        begun, file.unfinished = file.unfinished, b""
        if begun and begun in self.excused:
            self.split.add(begun + lines[0])
            self.excused |= {begun + lines[0], lines[0]}
        lines[0] = begun + lines[0]
        self._add(path, block)
        file.lines += lines

    @rule(name=NAMES)
    def append_unfinished(self, name: str) -> None:
        path = self.directory / name
        file = self._there(path)
        if not file.unfinished:
            self._doubt_copies_of_this_moment(file)
            file.unfinished = self._line("unfinished") + b" "
            self._add(path, file.unfinished)

    @rule(name=NAMES)
    def rotate_by_rename(self, name: str) -> None:
        path, rotated = self.directory / name, self.directory / f"{name}.1"
        if path not in self.names or self.names.get(rotated) is self.names[path]:  # rename does nothing with two names of a file
            return
        self._unname(rotated)
        path.rename(rotated)
        file = self.names[rotated] = self.names.pop(path)
        file.names ^= {path, rotated}
        self._look_after(file)

    @rule(name=NAMES)
    def rename_back(self, name: str) -> None:
        path, rotated = self.directory / name, self.directory / f"{name}.1"
        if rotated in self.names and path not in self.names:
            rotated.rename(path)
            file = self.names[path] = self.names.pop(rotated)
            file.names ^= {path, rotated}

    @rule(name=NAMES)
    def link(self, name: str) -> None:
        """Another name that matches too; it stays when the first one goes."""
        path, other = self.directory / name, self.directory / f"link-{name}"
        if path in self.names and other not in self.names:
            os.link(path, other)
            self._name(other, self.names[path])

    @rule(name=NAMES)
    def truncate(self, name: str) -> None:
        path = self.directory / name
        if path in self.names:
            self._cut(path, 0)

    @rule(name=NAMES, kept=COUNTS)
    def shrink(self, name: str, kept: int) -> None:
        """What is left may be what was read, or new lines that look like it: nobody can tell."""
        path = self.directory / name
        if path in self.names and len(self.names[path].lines) > kept:
            self.repeatable.update(self.names[path].lines[:kept])
            self._cut(path, kept)

    @rule(name=NAMES)
    def copy(self, name: str) -> None:
        """A copy of what its original still has, which nobody cuts, is in the end a file of its own."""
        self._copy(name)
        original = self.names.get(self.directory / name)
        if original is not None:
            self.repeatable.update([*original.lines, original.unfinished])
            self.excused.add(original.unfinished)

    def _copy(self, name: str) -> None:
        """The first half of copytruncate."""
        path, copy = self.directory / name, self.directory / f"{name}.1"
        original = self.names.get(path)
        if original is None or self.names.get(copy) is original:
            return
        if copy in self.names:
            self._empty(copy)  # what it held is written over, and it keeps its inode
            if not self._has_met(self.names[copy]):  # then it looks like an older generation of equal text
                self.repeatable.update([*original.lines, original.unfinished])
        shutil.copy(path, copy)
        file = self.names[copy] if copy in self.names else self._name(copy, self._met(copy))
        file.lines, file.unfinished = list(original.lines), original.unfinished
        self.copies.append((file, original))
        self._doubt_copies_of_what_is_unseen(original)

    @rule(name=NAMES)
    def copytruncate(self, name: str) -> None:
        self._copy(name)
        self.truncate(name)

    @rule(name=NAMES, count=COUNTS)
    def save_over(self, name: str, count: int) -> None:
        """As an editor does: a new file with the old lines and some more takes the name."""
        path, beside = self.directory / name, self.directory / ".beside"
        if path not in self.names or self.names[path].unfinished:
            return
        shutil.copy(path, beside)
        lines = list(self.names[path].lines)
        self.repeatable.update(lines)
        self._unname(path, unlink=False)
        beside.rename(path)
        self._name(path, self._met(path)).lines = lines
        self.append(name, count)

    @rule(name=NAMES, members=st.integers(1, 3), written=st.floats(0, 1))
    def begin_to_compress(self, name: str, members: int, written: float) -> None:
        """As gzip does, whose archive grows for a while beside the file; pigz and others write several members."""
        rotated, packed = self.directory / f"{name}.1", self.directory / f"{name}.1.gz"
        if rotated not in self.names or packed in self.names or packed in self.packing:
            return
        file, content = self.names[rotated], rotated.read_bytes()
        step = len(content) // members + 1
        block = b"".join(gzip.compress(content[at : at + step]) for at in range(0, step * members, step))
        size = int(len(block) * written)
        size = max(_HEADER, size) if size else 0  # a few bytes that nothing follows for long are text as far as anybody can tell
        self._add(packed, block[:size])
        if members > 1:  # the first of it may be there, and be too short to prove what it is a part of
            self.repeatable.update(file.lines)
        self.packing[packed] = Packing(file, tuple(file.lines), file.unfinished, block[size:])

    @rule(name=NAMES, is_removed=st.booleans())
    def end_compressing(self, name: str, is_removed: bool) -> None:
        rotated, packed = self.directory / f"{name}.1", self.directory / f"{name}.1.gz"
        work = self.packing.pop(packed, None)
        if work is None:
            return
        self._add(packed, work.rest)
        archive = self._name(packed, self._met(packed))
        archive.lines, archive.unfinished = list(work.lines), work.unfinished
        self.copies += [(archive, original) for copy, original in self.copies if copy is work.file]
        if is_removed and self.names.get(rotated) is work.file:
            self._unname(rotated)
        if work.file.names:
            self.repeatable.update([*work.lines, work.unfinished])  # an archive beside its file

    @rule(name=NAMES)
    def rotate_packed(self, name: str) -> None:
        packed, older = self.directory / f"{name}.1.gz", self.directory / f"{name}.2.gz"
        if packed in self.names:
            self._unname(older)
            packed.rename(older)
            file = self.names[older] = self.names.pop(packed)
            file.names ^= {packed, older}
            self._look_after(file)

    @rule(name=NAMES, generation=st.sampled_from([1, 2]))
    def delete_packed(self, name: str, generation: int) -> None:
        self._unname(self.directory / f"{name}.{generation}.gz")

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self._unname(self.directory / name)

    @rule(name=NAMES)
    def delete_rotated(self, name: str) -> None:
        self._unname(self.directory / f"{name}.1")

    @rule()
    def let_time_pass(self) -> None:
        """Time stamps of directories grow old enough to be trusted."""
        time.sleep(0.012)

    @rule()
    def scan(self) -> None:
        self.agent.scan()
        self.unseen.clear()

    @rule()
    def work(self) -> None:
        self.agent.work(self._how)

    @rule()
    def scan_and_work(self) -> None:
        self.scan()
        self.agent.work(self._how)

    @rule()
    def restart(self) -> None:
        self._forget_what_no_name_leads_to()
        self.agent.restart()
        self._set_partial_scan()

    @rule()
    def stop_and_start(self) -> None:
        self._forget_what_no_name_leads_to()
        self.agent.stop()
        self._set_partial_scan()

    @rule(scans=st.booleans())
    def kill_before_it_is_saved(self, scans: bool) -> None:
        """Kafka has the lines, the store has not: they are sent again."""
        self.agent.disk_full = True
        before = len(self.agent.lines)
        if scans:
            self.agent.scan()
        else:
            self.agent.work(self._how)
        self.repeatable.update(self.agent.lines[before:])
        if self.pattern != "*":  # when the agent last looked is not saved either: a copy may be a generation that it missed
            for copy, _ in self.copies:
                self.repeatable.update([*copy.lines, copy.unfinished])
        self.agent.disk_full = False
        self.restart()

    @rule()
    def remount(self) -> None:
        """Device numbers are others after a reboot."""
        self._forget_what_no_name_leads_to()
        self.unseen.update(self.names.values())
        for _, original in self.copies:
            self._doubt_copies_of_what_is_unseen(original)
        self.agent.store = {_elsewhere(partition): offset for partition, offset in self.agent.store.items()}
        self.agent.restart()
        self._set_partial_scan()

    @rule()
    @precondition(lambda self: self.keep_open == 512)
    def catch_up(self) -> None:
        self.agent.drain()
        self.unseen.clear()
        self._check()

    @invariant()
    def descriptors_are_bounded(self) -> None:
        if hasattr(self, "agent"):
            catalog = self.agent.source._catalog
            assert len(catalog.followed.descriptors.open_files) <= max(1, self.keep_open) + len(catalog.followed.draining) + 1
            assert all(file.fd >= 0 for file in catalog.followed.descriptors.open_files)

    def teardown(self) -> None:
        if hasattr(self, "agent"):
            self.agent.drain()
            self._check()
            self._come_to_the_end()
            self._check()
            self.agent.source.close()
            shutil.rmtree(self.directory)

    def _come_to_the_end(self) -> None:
        """Nobody writes any more: what is begun is a line, and a copy of a file that still has its bytes is a file."""
        for packed in list(self.packing):
            self.end_compressing(packed.name.removesuffix(".1.gz"), is_removed=False)
        for file in self.names.values():
            self.excused.add(file.unfinished)
        for copy, original in self.copies:
            if original.lines[: len(copy.lines)] == copy.lines:
                self.repeatable.update([*copy.lines, copy.unfinished])
        self.agent.source.finalise()
        self.agent.drain()

    def _set_partial_scan(self) -> None:
        """Looks instead of scans: each at a part of the files, or, as in so small a directory, at all of them. Both soon after a change."""
        worth_seconds = 0.0 if self.scans_partly else math.inf
        self.agent.source.partial_scan = PartialScan(worth_seconds=worth_seconds, round_seconds=1e-9, young_ns=10_000_000)

    def _how(self) -> str:
        self.turn += 1
        return self.behaviour[self.turn % len(self.behaviour)]

    def _line(self, name: str) -> bytes:
        self.number += 1
        return b"%s line %d" % (name.encode(), self.number)

    def _add(self, path: Path, block: bytes) -> None:
        with path.open("ab") as file:
            file.write(block)

    def _there(self, path: Path) -> File:
        """The file of this name, made when there is none."""
        if path not in self.names:
            path.touch()
            self._name(path, self._met(path))
        return self.names[path]

    def _met(self, path: Path) -> File:
        info = path.stat()
        return File((info.st_dev, info.st_ino))

    def _has_met(self, file: File) -> bool:
        """Whether the agent has a row for it."""
        rows = (partition.key for partition in self.agent.store)
        return any(Identity.parse(key)[0][:2] == file.key for key in rows)

    def _name(self, path: Path, file: File) -> File:
        file.names.add(path)
        self.names[path] = file
        return file

    def _unname(self, path: Path, *, unlink: bool = True) -> None:
        """The name goes, if it is there; what has no other one is deleted."""
        file = self.names.pop(path, None)
        if file is None:
            return
        file.names.discard(path)
        self._look_after(file)
        if unlink:
            path.unlink()
        if not file.names:
            self.nameless.append(file)
            self.destroyed = True
        for copy, original in self.copies:  # the copy may be a generation that nobody saw: equal text is no proof that it is none
            if copy is file:  # it is read to its end, and compared with nothing
                self.repeatable.update([*file.lines, file.unfinished])
            if original is file:
                self.repeatable.update([*copy.lines, copy.unfinished])

    def _look_after(self, file: File) -> None:
        """Its names have changed. Without one that matches, only an agent that has it open still reads it."""
        if self._matches(file):
            return
        self.once_owed.update(file.lines)
        self.excused.add(file.unfinished)  # flushed as a partial record, if it was seen
        if not self._is_open(file):
            self._excuse(file.lines)

    def _forget_what_no_name_leads_to(self) -> None:
        """The agent ends, and with it what it alone had. A file that it knows, and that has a name, is found again by that."""
        for file in {*self.names.values(), *self.nameless}:
            if not (self._matches(file) or (file.names and self._has_met(file))):
                self._excuse(file.lines)
        self.nameless.clear()

    def _cut(self, path: Path, kept: int) -> None:
        """Leave the first `kept` lines. What was not read of the others is gone."""
        self._empty(path, kept)
        file = self.names[path]
        os.truncate(path, sum(len(line) + 1 for line in file.lines))
        self._doubt_copies_of_what_is_unseen(file)

    def _empty(self, path: Path, kept: int = 0) -> None:
        """What is not read of the lines behind the first `kept` is gone."""
        file = self.names[path]
        self.once_owed.update(file.lines[kept:])
        self._excuse(file.lines[kept:])
        self.excused.add(file.unfinished)
        del file.lines[kept:]
        file.unfinished = b""
        self.destroyed = True

    def _doubt_copies_of_what_is_unseen(self, original: File) -> None:
        """On another device, and cut before it was looked at there: so short a text proves nothing."""
        if original in self.unseen:
            for copy, other in self.copies:
                if other is original:
                    self.repeatable.update([*copy.lines, copy.unfinished])

    def _doubt_copies_of_this_moment(self, original: File) -> None:
        """Time stamps do not say which is older: a copy, or what is written next to its original."""
        now_ns = clock.now_ns()
        for copy, other in self.copies:
            if other is original and any(name.stat().st_mtime_ns >= now_ns for name in copy.names):
                self.repeatable.update([*copy.lines, copy.unfinished])

    def _excuse(self, lines: Iterable[bytes]) -> None:
        self.excused.update(line for line in lines if line not in self.agent.lines)
        self.destroyed = True

    def _matches(self, file: File) -> bool:
        return any(fnmatch.fnmatch(name.name, self.pattern) for name in file.names)

    def _is_open(self, file: File) -> bool:
        known = self.agent.source._catalog.followed.files.get(file.key)
        return known is not None and known.fd >= 0

    def _check(self) -> None:
        lines = Counter(self.agent.lines)
        there = {line for file in self.names.values() if self._matches(file) for line in file.lines}
        if not any(file.unjudged for file in self.agent.source._catalog.followed.files.values()):  # it may be a copy: that takes time
            owed = (there | (self.once_owed - self.excused)) - self.split
            missing = sorted(line for line in owed if not lines[line])
            assert not missing, f"lost {missing}"
        repeated = sorted(line for line, count in lines.items() if count > 1 and line not in self.repeatable)
        assert not repeated, f"repeated {repeated}"
        phantom = sorted(line for line in lines if line not in there | self.once_owed | self.excused)
        assert not phantom, f"never written {phantom}"
        assert self.destroyed or not self.agent.losses, f"nothing was destroyed, and yet: {self.agent.losses}"


def _elsewhere(partition: SourcePartition) -> SourcePartition:
    """The key that this file would have had if its file system had had another device number."""
    try:
        identity, generation = Identity.parse(partition.key)
    except ValueError:
        return partition  # that the connector was started
    moved = identity._replace(device=identity.device ^ FOREIGN_DEVICE)
    return SourcePartition(partition.connector, moved.key(generation))


SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)

TestHistory = History.TestCase
TestHistory.settings = settings(SETTINGS, max_examples=examples(150), stateful_step_count=30)


class LongHistory(History):
    """Fifty times as much, and longer."""


TestLongHistory = pytest.mark.timeout(3600)(pytest.mark.long(LongHistory.TestCase))
TestLongHistory.settings = settings(SETTINGS, max_examples=5000, stateful_step_count=50, derandomize=False)


def test_a_log_that_is_cut_between_two_changes_of_device_numbers_is_followed_through_its_rotation() -> None:
    history = History()
    history.begin(keep_open=512, matches_rotated=False, scans_partly=False, how=["read"])
    history.append(name="app.log", count=2)
    history.scan()
    history.remount()
    history.truncate(name="app.log")
    history.scan()
    history.remount()
    history.rotate_by_rename(name="app.log")
    history.catch_up()
    history.teardown()
