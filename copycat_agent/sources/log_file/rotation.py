"""Groups files into logs, by the names that rotation gives them, and orders each log for reading.

Names relate files (`app.log`, `app.log.1`, `app.log-20261121`, `app.log.2026-11-21.gz`), and the hashes of their first bytes say which
saved offset a newly met file may continue. The files of a log are read one after the other, the oldest first. A file waits for the complete
records that the next older one had when this one got its first bytes (when it was met, if it had some then), and no longer, so a chain
cannot stall. It does not wait for an unfinished last line.
One batch may read several, and sends nothing of a newer one while something of the older one is left, whatever held that back
(`Split.after`).
"""

from __future__ import annotations

import bisect
import re
import sys
from collections import Counter
from collections.abc import Container

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.log_file.tracked import TrackedFile

PACKED_SUFFIXES = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".sz")
_STAMP = r"""
    (?: \d{1,5}                                             # logrotate, log4j: app.log.1
      | \d{4}-?\d{2}-?\d{2} (?: [T_.\-]? [\d:.\-]{1,12} )?  # dateext: app.log-20261121, app.log-20261121-1795302180, 0.log.20261121-050000
      | \d{9,13}                                            # epoch seconds or milliseconds
      | old | bak
    )
"""
_SUFFIX = re.compile(rf"(?P<base>.*?[^.\-_])[.\-_]{_STAMP}", re.VERBOSE)
_DATE = re.compile(r"\d{4}-?\d{2}-?\d{2}")
_INSIDE = re.compile(rf"(?P<base>.*?[^.\-_])(?:[.\-_]{_STAMP})+(?P<extension>\.[A-Za-z]\w{{0,9}})", re.VERBOSE)


def unpacked_name(path: str) -> str:
    """Returns the path without the suffix of a packed file: `/d/app.log.1.gz` -> `/d/app.log.1`."""
    for suffix in PACKED_SUFFIXES:
        if path.endswith(suffix):
            return path[: -len(suffix)]
    return path


def is_newest(path: str) -> bool:
    """Returns whether the name is the one that a log is written under: `app.log`, not `app.log.1`."""
    return log_of(path)[1] == path.rpartition("/")[2]


def log_of(path: str) -> tuple[str, str]:
    """Returns the log that a file belongs to, by directory and base name: `/d/app.log.2` -> (`/d`, `app.log`)."""
    directory, _, name = unpacked_name(path).rpartition("/")  # called for every file of a scan: pathlib would be most of it
    match = _SUFFIX.fullmatch(name)
    return directory, match["base"] if match else name


def rotation_family(path: str) -> str:
    """Returns a base name shared by all names of a log, and perhaps by other logs: `/d/app-2026-11-22.0.log.gz` -> `app.log`.

    Looser than `log_of`: a date or number may be before the extension, where other logs have theirs. So it relates files whose bytes prove
    the rest.
    """
    base = log_of(path)[1]
    match = _INSIDE.fullmatch(base)
    return match["base"] + match["extension"] if match else base


def dated_family(path: str) -> str:
    """Returns the log that a file with a date before its extension belongs to (`app-2026-11-22.0.log.gz` -> `app.log`); "" for all others.

    A number alone does not count: `app-1.log` is a log of its own.
    """
    return rotation_family(path) if _DATE.search(log_of(path)[1]) else ""


def logs_of(path: str) -> tuple[tuple[str, str], ...]:
    """Returns the logs that a file may belong to: that of `log_of`, and that of `dated_family`."""
    log, family = log_of(path), dated_family(path)
    return (log, (log[0], family)) if family else (log,)


def is_rotated(path: str) -> bool:
    """Returns whether rotation may give such a name: `app.log.1`, `app-2026-11-22.log`, `app.log.gz`. A live log may have one."""
    return rotation_family(path) != path.rpartition("/")[2]


_ALIKE = 64
"""The most rows with the same head that are compared, the latest ones: many equal files must not cost without bound."""

_Place = tuple[str, int, str]


class OffsetsByHead:
    """Saved offsets by the hash of their file's head, and by their names.

    A lookup costs one hash for each length of head among files of the name, however many files there are.
    """

    def __init__(self) -> None:
        self._lengths: dict[str, dict[int, dict[str, dict[SourcePartition, str]]]] = {}
        self._places: dict[SourcePartition, _Place] = {}
        self._unread: dict[SourcePartition, tuple[str, str]] = {}  # the logs of files of which nothing was read
        self._unread_of: Counter[tuple[str, str]] = Counter()

    def add(self, partition: SourcePartition, offset: SourceOffset) -> None:
        """Adds a saved offset. If nothing was read, nothing but its name relates others to it."""
        proof = offset.fingerprint
        if offset.size and not (offset.position or offset.done or partition in self._unread):
            self._unread[partition] = log = log_of(offset.path)
            self._unread_of[log] += 1
        if proof.head_bytes and offset.position:
            place = self._places[partition] = (rotation_family(offset.path), proof.head_bytes, proof.head)
            alike = self._lengths.setdefault(place[0], {}).setdefault(place[1], {}).setdefault(place[2], {})
            alike[partition] = offset.path.rpartition("/")[0]

    def discard(self, partition: SourcePartition) -> None:
        """Removes an offset, if it is here."""
        if (log := self._unread.pop(partition, None)) is not None:
            self._unread_of[log] -= 1
            if not self._unread_of[log]:
                del self._unread_of[log]
        place = self._places.pop(partition, None)
        if place is None:
            return
        name, length, head = place
        lengths = self._lengths[name]
        del lengths[length][head][partition]
        if not lengths[length][head]:
            del lengths[length][head]
        if not lengths[length]:
            del lengths[length]
        if not lengths:
            del self._lengths[name]

    def has_family(self, path: str) -> bool:
        """Returns whether any offset has a related name."""
        return rotation_family(path) in self._lengths

    def has_unread(self, path: str) -> bool:
        """Returns whether nothing was read of a file with bytes whose log `path` belongs to."""
        return any(log in self._unread_of for log in logs_of(path))

    def has_longer(self, path: str, size: int) -> bool:
        """Returns whether a file at `path` has too few bytes, `size`, to compare its head with all those of related names."""
        return any(length > size for length in self._lengths.get(rotation_family(path), ()))

    def find(self, path: str, head: bytes) -> list[SourcePartition]:
        """Returns the offsets of related names whose head is that of a file at `path`. In another directory only a whole head counts."""
        found: list[SourcePartition] = []
        directory = path.rpartition("/")[0]
        for length, heads in self._lengths.get(rotation_family(path), {}).items():
            if length <= len(head):
                alike = heads.get(fingerprint.digest(head[:length]), {})
                near = [one for one, place in alike.items() if length == fingerprint.HEAD_BYTES or place == directory]
                found += near[-_ALIKE:]
        return found


class RotationOrder:
    """Orders the files of each log by age, in whatever order they are met.

    Age is the modification time when a file is met, then its birth: right for files that are renamed and begun anew as well as for copies
    of a file that was cut. The one with the name that the log is written under is the newest, however old: all that it held before it was
    cut is in the others. If a scan falls into a rotation, an old file may be met after a newer one.

    Files with a date before their extension (`app-2026-11-22.log`) belong to the log without it (`app.log`) if that one is there.

    The order is not kept across directories over a restart: `old/app.log.1` and `log/app.log` are two logs then. A running agent remembers
    that they are one.
    """

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str], list[TrackedFile]] = {}
        self._dated: dict[tuple[str, str], dict[TrackedFile, None]] = {}
        """Files with such a date that are logs of their own, by the log that they would belong to."""
        self.waiting: set[TrackedFile] = set()
        """Files that wait for an older one, and perhaps some that no longer do."""

    def add(self, file: TrackedFile) -> None:
        """Adds a file that was just met. It waits for unread data of the next older one, and the next newer one waits for its own."""
        logs = logs_of(file.path)
        directory, base = self._present(logs)
        name = sys.intern(directory), base  # one string for all files of a directory instead of one for each
        if name != logs[-1]:
            self._dated.setdefault(logs[-1], {})[file] = None
        age = file.seen.mtime_ns, file.identity.birth_ns
        file.set_place(name, age)
        files = self._logs.setdefault(name, [])
        first_live = _first_live(files)
        bounds = (first_live, len(files)) if _has_live_name(file) else (0, first_live)
        place = bisect.bisect_right(files, age, *bounds, key=lambda one: one.rotation.age)
        files.insert(place, file)
        self._link(files, place)
        for one in list(self._dated.get(name, ())):
            self._move(one)

    def _present(self, logs: tuple[tuple[str, str], ...]) -> tuple[str, str]:
        """Returns which of `logs_of` a file belongs to: the one without the date if it is there."""
        return logs[-1] if logs[-1] in self._logs else logs[0]

    def link(self, file: TrackedFile) -> None:
        """Makes `file` wait for unread data of older ones, and newer ones for that of `file`. Has no effect on an unknown file."""
        files = self._logs.get(file.rotation.log, [])
        if file in files:
            self._link(files, files.index(file))

    def _link(self, files: list[TrackedFile], place: int) -> None:
        file = files[place]
        before = next((one for one in reversed(files[:place]) if _has_more(one)), None)
        if before is None and place and not file.offset.position and files[place - 1].fd >= 0:
            before = files[place - 1]  # its writer may not have reopened its log since the rename
        if before is not None:
            self._make_wait(file, before)
        if _has_more(file):
            self._hold_back(files[place + 1 :], file)

    def files_of(self, log: tuple[str, str]) -> list[TrackedFile]:
        """Returns the files of one log, oldest first."""
        return self._logs.get(log, [])

    def renamed(self, file: TrackedFile, before: str) -> None:
        """Reorders `file`, whose name was `before`: with the live name of its log it is the newest, and waits for the others."""
        if self._is_live(file.path) and not self._is_live(before):
            self._move(file)

    def _is_live(self, path: str) -> bool:
        return self._present(logs_of(path))[1] == path.rpartition("/")[2]

    def _move(self, file: TrackedFile) -> None:
        """Orders a file anew, by its present name and age."""
        released = self._release(file)
        file.wait_for(None)
        self.remove(file)
        self.add(file)
        for one in released:
            self.link(one)

    def _release(self, file: TrackedFile) -> list[TrackedFile]:
        """Releases the files that wait for `file`, which gets another position. Returns them."""
        released = [one for one in self.files_of(file.rotation.log) if one.waits_for is file]
        for one in released:
            one.wait_for(None)
        return released

    def put_before(self, file: TrackedFile, newer: TrackedFile) -> None:
        """Orders `file` before `newer`, which waits for it: `file` holds what `newer` held before it was begun anew."""
        files = self._logs.get(newer.rotation.log, [])
        if newer not in files:
            return
        released: list[TrackedFile] = []
        if file not in files or files.index(file) > files.index(newer):
            released = self._release(file)
            self.remove(file)
            file.set_place(newer.rotation.log, newer.rotation.age)
            file.wait_for(None)
            files.insert(files.index(newer), file)
            if newer.waits_for is not file:
                newer.wait_for(None)
        self.link(file)
        for one in released:  # they wait for `newer` now
            self.link(one)

    def _hold_back(self, newer: list[TrackedFile], file: TrackedFile) -> None:
        """Makes newer files wait for `file`, which was met after them, except those that already wait for a file between them.

        An empty one waits, too: it will be written to.
        """
        behind = next((one for one in newer if _has_more(one)), None)
        between: set[TrackedFile | None] = {file}
        for newer_file in newer:
            if newer_file is behind or newer_file.waits_for not in between:
                self._make_wait(newer_file, file)
            between.add(newer_file)

    def _make_wait(self, file: TrackedFile, before: TrackedFile) -> None:
        """Makes `file` wait until `before` is read, up to its size when `file` gets its first bytes; unless that would be a cycle."""
        ahead: TrackedFile | None = before
        while ahead is not None:
            if ahead is file:
                return
            ahead = ahead.waits_for
        file.wait_for(before, before.size if file.size else -1)
        self.waiting.add(file)

    def stop_waiting(self, unread: Container[TrackedFile]) -> None:
        """Releases every waiting file among `unread` whose older file is read.

        Files outside `unread` are checked once they have something to read.
        """
        for file in [one for one in self.waiting if one.removed or one in unread]:
            if not file.removed:
                file.stop_waiting()
            if file.removed or file.waits_for is None:
                self.waiting.discard(file)

    def replace(self, file: TrackedFile, fresh: TrackedFile) -> None:
        """Puts `fresh`, which is `file` begun anew, in its place; but an overwritten archive is as young as its present content."""
        if not self._is_live(fresh.path):
            self.remove(file)
            self.add(fresh)
            return
        fresh.set_place(file.rotation.log, file.rotation.age)
        files = self._logs.get(file.rotation.log, [])
        if file in files:
            files[files.index(file)] = fresh
            self.link(fresh)

    def remove(self, file: TrackedFile) -> None:
        """Removes `file`, which is not followed any more."""
        files = self._logs.get(file.rotation.log, [])
        if file in files:
            files.remove(file)
            if not files:
                del self._logs[file.rotation.log]
        name = logs_of("/".join(file.rotation.log))[-1]
        if (dated := self._dated.get(name)) is not None:
            dated.pop(file, None)
            if not dated:
                del self._dated[name]


def _first_live(files: list[TrackedFile]) -> int:
    """Returns where files begin that have the live name of the log. One that had it at the last look may have been rotated since."""
    place = len(files)
    while place and _has_live_name(files[place - 1]) and files[place - 1].draining_since is None and files[place - 1].has_its_name():
        place -= 1
    return place


def _has_live_name(file: TrackedFile) -> bool:
    return file.path.rpartition("/")[2] == file.rotation.log[1]


def _has_more(file: TrackedFile) -> bool:
    file.refresh()
    return file.unread or file.in_flight or file.ending.timed
