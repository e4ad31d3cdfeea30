"""Which files may a peer's position be of: those that a definition finds, and rotated ones beside them that no pattern has.

Everything is looked up, so that a state of 100,000 files costs no more than 100,000 times one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from copycat_agent.sources import FileView
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.paths.opening import open_regular
from copycat_agent.sources.log_file.rotation import is_newest, log_of, rotation_family
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition

_FIRST_BYTES = 1024
"""So much of each file is kept: most peers know a file by no more."""


class PeerFile(NamedTuple):
    """A file that a position may be of. `key` is that of its partition, "" for a file that no pattern has."""

    path: str
    key: str = ""


class Finder:
    """The files of one definition. `views` are those that it finds, `follows` says whether it has, or had, a file of this path."""

    def __init__(self, views: Sequence[FileView], follows: Callable[[str], bool]) -> None:
        self._views = [PeerFile(view.path, view.key) for view in views]
        self._follows = follows
        self._at_path = {one.path: one for one in self._views}
        self._of_name: dict[str, list[PeerFile]] = defaultdict(list)
        self._at_inode: dict[int, list[PeerFile]] = defaultdict(list)
        for one in self._views:
            self._of_name[_name(one.path)].append(one)
            self._at_inode[Identity.parse(one.key)[0].inode].append(one)
        self._listings: dict[str, _Listing] = {}
        self._devices: dict[str, int] = {}
        self._first: dict[str, bytes | None] = {}
        self._of_head: dict[tuple[str, str, str], dict[object, list[PeerFile]]] = {}
        self._directories = {_directory(one.path) for one in self._views}

    def candidates(self, position: PeerPosition) -> list[PeerFile]:
        """By inode, by first bytes where the peer keeps no inode, by name where it keeps neither."""
        if position.inode is not None:
            return [one for one in self._at_inode.get(position.inode, ()) if self._may_be_on(one, position)] or self._renamed(position)
        if position.head is not None:
            found = self._alike("", "", self._views, position.head)
            return [*found, *(one for one in self._rotated_alike(position, position.head) if one.path not in self._at_path)]
        if position.path.startswith("/"):
            return [self._at_path[position.path]] if position.path in self._at_path else []
        return list(self._of_name.get(position.path, ()))

    def archives_of(self, one: PeerFile) -> list[str]:
        """Files beside a log that is written to which were rotated from it, and may be copies of it."""
        if not one.key or not is_newest(one.path):
            return []
        related = self._listing(_directory(one.path)).of_family.get(rotation_family(one.path), ())
        return [path for path in related if path != one.path and log_of(path) == log_of(one.path)]

    def _may_be_on(self, one: PeerFile, position: PeerPosition) -> bool:
        """Whether the file is on the peer's device. Where the peer keeps none, it is that of the directory that its file was in."""
        if one.path == position.path:
            return True
        device = Identity.parse(one.key)[0].device
        if position.device is not None:
            return device == position.device
        return position.head is not None or _directory(one.path) == _directory(position.path) or device == self._device_of(position.path)

    def _device_of(self, path: str) -> int:
        """-1 where its directory is not there: then nobody knows."""
        directory = _directory(path)
        if directory not in self._devices:
            try:
                self._devices[directory] = os.stat(_directory(os.path.realpath(path))).st_dev if path.startswith("/") else -1  # noqa: PTH116
            except OSError:
                self._devices[directory] = -1
        return self._devices[directory]

    def _renamed(self, position: PeerPosition) -> list[PeerFile]:
        """The file where it was rotated to a name beside its old one that no pattern has; of several links to it one."""
        for directory in self._beside(position):
            names = self._listing(directory).at_inode.get(position.inode or 0, [])
            if names:
                return [PeerFile(min(names, key=lambda one: rotation_family(one) != rotation_family(position.path)))]
        return []

    def _rotated_alike(self, position: PeerPosition, head: HeadProof) -> list[PeerFile]:
        """Files with the peer's first bytes that were rotated from its file, or, where it keeps no name, from any that is there."""
        if not position.path:
            return self._alike("/", "", self._rotated, head)
        family, found = rotation_family(position.path), []
        for directory in self._beside(position):
            found += self._alike(directory, family, map(PeerFile, self._listing(directory).of_family.get(family, ())), head)
        return found

    @cached_property
    def _rotated(self) -> list[PeerFile]:
        """All files beside the views that may have been rotated from one of them."""
        families = {(_directory(one.path), rotation_family(one.path)) for one in self._views}
        return [PeerFile(path) for where, family in sorted(families) for path in self._listing(where).of_family.get(family, ())]

    def _beside(self, position: PeerPosition) -> list[str]:
        """The directories that the file may be in: its last one, also where a link led there. Without a name all that files are in."""
        if not position.path:
            return sorted(self._directories)
        if not position.path.startswith("/") or not self._follows(position.path):
            return []
        return list(dict.fromkeys((_directory(position.path), _directory(os.path.realpath(position.path)))))

    def _listing(self, directory: str) -> _Listing:
        if directory not in self._listings:
            self._listings[directory] = _Listing(directory)
        return self._listings[directory]

    def _alike(self, directory: str, family: str, files: Iterable[PeerFile], head: HeadProof) -> list[PeerFile]:
        """Those of a family's files in a directory, or of the views, that have the peer's first bytes."""
        place = head.what, directory, family
        if place not in self._of_head:
            found = self._of_head[place] = defaultdict(list)
            for one in files:
                found[self._value(head, one.path)].append(one)
        return self._of_head[place].get(head.value, [])

    def _value(self, head: HeadProof, path: str) -> object:
        """What the file's first bytes come to; None where they cannot be read, or are too few."""
        try:
            first = self._first_bytes(path)
            return head.of(lambda at, size: _read(path, first, at, size))
        except OSError:
            return None

    def _first_bytes(self, path: str) -> bytes:
        """Raises OSError."""
        if path not in self._first:
            self._first[path] = None
            self._first[path] = _read(path, None, 0, _FIRST_BYTES)
        first = self._first[path]
        if first is None:
            raise OSError
        return first


class _Listing:
    """The regular files of a directory by inode, and by the log that they were rotated from. Empty where it cannot be listed."""

    def __init__(self, directory: str) -> None:
        self.at_inode: dict[int, list[str]] = defaultdict(list)
        self.of_family: dict[str, list[str]] = defaultdict(list)
        try:
            with os.scandir(directory) as listing:
                for entry in listing:
                    if entry.is_file(follow_symlinks=False):
                        self.at_inode[entry.inode()].append(entry.path)
                        self.of_family[rotation_family(entry.path)].append(entry.path)
        except OSError:
            return


def _read(path: str, first: bytes | None, at: int, size: int) -> bytes:
    """Bytes of a file, whose first ones may be known. Raises OSError."""
    if first is not None and (at + size <= len(first) or len(first) < _FIRST_BYTES):
        return first[at : at + size]
    fd, _ = open_regular(path, follow_symlinks=True)
    try:
        return fingerprint.reader(fd)(at, size)
    finally:
        os.close(fd)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _directory(path: str) -> str:
    return path.rpartition("/")[0] or "/"
