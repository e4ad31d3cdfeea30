"""The generations of each log, oldest first: each is read after the one before it."""

from __future__ import annotations

import bisect
from collections.abc import Container

from copycat_agent.sources.rotation import family
from copycat_agent.sources.tracked import TrackedFile


class Generations:
    """Files by family, in the order of their age, whatever order they are met in.

    Age is the time of the last write when a file is met, then its birth: right for files that are renamed and begun anew as
    well as for copies of a file that was cut. Where a scan falls into a rotation, an old generation may be met after a newer one.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], list[TrackedFile]] = {}
        self._waiting: set[TrackedFile] = set()

    def add(self, file: TrackedFile) -> None:
        """`file` has just been met: it waits for what is unread of the next older one, and the next newer one for it."""
        file.family = family(file.path)
        file.age = (file.mtime_ns, file.identity.birth_ns)
        line = self._lines.setdefault(file.family, [])
        place = bisect.bisect_right(line, file.age, key=lambda one: one.age)
        older, newer = reversed(line[:place]), line[place:]
        line.insert(place, file)
        before = next((one for one in older if _has_more(one)), None)
        if before is not None:
            self._make_wait(file, before)
        if _has_more(file):
            self._hold_back(newer, file)

    def line(self, name: tuple[str, str]) -> list[TrackedFile]:
        """The files of one family, oldest first."""
        return self._lines.get(name, [])

    def put_before(self, file: TrackedFile, newer: TrackedFile) -> None:
        """`file` holds what `newer` held before it was begun anew: it takes that place, and `newer` waits for it."""
        self.remove(file)
        line = self._lines.get(newer.family, [])
        if newer not in line:
            return
        file.family, file.age = newer.family, newer.age
        line.insert(line.index(newer), file)
        if file.after is newer:
            file.after = None
        self._make_wait(newer, file)

    def _hold_back(self, newer: list[TrackedFile], file: TrackedFile) -> None:
        """`file` was met after newer ones: they wait for it, but for those that wait for one between. An empty one will be written to."""
        behind = next((one for one in newer if _has_more(one)), None)
        for one in newer:
            if one is behind or one.after is None or one.after.age < file.age:
                self._make_wait(one, file)

    def _make_wait(self, file: TrackedFile, before: TrackedFile) -> None:
        """`file` is not read until `before` is, as far as that one goes now."""
        file.after, file.barrier = before, before.size
        self._waiting.add(file)

    def waiting(self, unread: Container[TrackedFile]) -> list[TrackedFile]:
        """Those of the `unread` files that wait for another one, as of now. The others' turn to wait or not comes when they are."""
        self._waiting = {file for file in self._waiting if not file.removed and (file not in unread or file.waits())}
        return [file for file in self._waiting if file in unread]

    def replace(self, file: TrackedFile, fresh: TrackedFile) -> None:
        """`fresh` is `file` begun anew, and takes its place."""
        fresh.family, fresh.age = file.family, file.age
        line = self._lines.get(file.family, [])
        if file in line:
            line[line.index(file)] = fresh

    def remove(self, file: TrackedFile) -> None:
        """`file` is not followed any more."""
        line = self._lines.get(file.family, [])
        if file in line:
            line.remove(file)
            if not line:
                del self._lines[file.family]


def _has_more(file: TrackedFile) -> bool:
    file.refresh()
    return file.unread or file.in_flight or file.timed
