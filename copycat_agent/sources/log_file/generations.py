"""The generations of each log, oldest first: each is read after the one before it."""

from __future__ import annotations

import bisect
import sys
from collections.abc import Container

from copycat_agent.sources.log_file.rotation import family, is_newest
from copycat_agent.sources.log_file.tracked import TrackedFile


class Generations:
    """Files by family, in the order of their age, whatever order they are met in.

    Age is the time of the last write when a file is met, then its birth: right for files that are renamed and begun anew as
    well as for copies of a file that was cut. The one that has the name the log is written under is the newest, however old: all
    that it held before it was cut is in the others. Where a scan falls into a rotation, an old generation may be met after a
    newer one.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], list[TrackedFile]] = {}
        self._waiting: set[TrackedFile] = set()

    def add(self, file: TrackedFile) -> None:
        """`file` has just been met: it waits for what is unread of the next older one, and the next newer one for it."""
        directory, base = family(file.path)
        name = sys.intern(directory), base  # one string for all files of a directory, not one for each
        age = file.seen.mtime_ns, file.identity.birth_ns
        file.joined(name, age)
        line = self._lines.setdefault(name, [])
        first_live = _first_live(line)
        bounds = (first_live, len(line)) if is_newest(file.path) else (0, first_live)
        place = bisect.bisect_right(line, age, *bounds, key=lambda one: one.rotation.age)
        line.insert(place, file)
        self._link(line, place)

    def link(self, file: TrackedFile) -> None:
        """Let `file` wait for what is unread of older ones, and newer ones for what is unread of `file`. No effect on one it has not."""
        line = self._lines.get(file.rotation.family, [])
        if file in line:
            self._link(line, line.index(file))

    def _link(self, line: list[TrackedFile], place: int) -> None:
        file = line[place]
        before = next((one for one in reversed(line[:place]) if _has_more(one)), None)
        if before is None and place and not file.offset.position and line[place - 1].fd >= 0:
            before = line[place - 1]  # its writer may not know yet that it was renamed
        if before is not None:
            self._make_wait(file, before)
        if _has_more(file):
            self._hold_back(line[place + 1 :], file)

    def line(self, name: tuple[str, str]) -> list[TrackedFile]:
        """The files of one family, oldest first."""
        return self._lines.get(name, [])

    def put_before(self, file: TrackedFile, newer: TrackedFile) -> None:
        """`file` holds what `newer` held before it was begun anew: it goes first, and `newer` waits for it."""
        line = self._lines.get(newer.rotation.family, [])
        if newer not in line:
            return
        if file not in line or line.index(file) > line.index(newer):
            self.remove(file)
            file.joined(newer.rotation.family, newer.rotation.age)
            file.wait_for(None)
            line.insert(line.index(newer), file)
            if newer.after is not file:
                newer.wait_for(None)
        self.link(file)

    def _hold_back(self, newer: list[TrackedFile], file: TrackedFile) -> None:
        """`file` was met after newer ones: they wait for it, but for those that wait for one between. An empty one will be written to."""
        behind = next((one for one in newer if _has_more(one)), None)
        between: set[TrackedFile | None] = {file}
        for one in newer:
            if one is behind or one.after not in between:
                self._make_wait(one, file)
            between.add(one)

    def _make_wait(self, file: TrackedFile, before: TrackedFile) -> None:
        """`file` is not read until `before` is, as far as that one goes when `file` has its first bytes. Nobody waits in a circle."""
        one: TrackedFile | None = before
        while one is not None:
            if one is file:
                return
            one = one.after
        file.wait_for(before, before.size if file.size else -1)
        self._waiting.add(file)

    def waiting(self, unread: Container[TrackedFile]) -> list[TrackedFile]:
        """Those of the `unread` files that wait for another one, as of now. The others' turn to wait or not comes when they are."""
        self._waiting = {file for file in self._waiting if not file.removed and (file not in unread or file.waits())}
        return [file for file in self._waiting if file in unread]

    def replace(self, file: TrackedFile, fresh: TrackedFile) -> None:
        """`fresh` is `file` begun anew, and takes its place; but an archive that was written over is as young as what it holds now."""
        if not is_newest(fresh.path):
            self.remove(file)
            self.add(fresh)
            return
        fresh.joined(file.rotation.family, file.rotation.age)
        line = self._lines.get(file.rotation.family, [])
        if file in line:
            line[line.index(file)] = fresh
            self.link(fresh)

    def remove(self, file: TrackedFile) -> None:
        """`file` is not followed any more."""
        line = self._lines.get(file.rotation.family, [])
        if file in line:
            line.remove(file)
            if not line:
                del self._lines[file.rotation.family]


def _first_live(line: list[TrackedFile]) -> int:
    """Where those begin that have the name the log is written under; more than one only while one is about to be found gone."""
    place = len(line)
    while place and is_newest(line[place - 1].path) and line[place - 1].gone_since is None:
        place -= 1
    return place


def _has_more(file: TrackedFile) -> bool:
    file.refresh()
    return file.unread or file.in_flight or file.ending.timed
