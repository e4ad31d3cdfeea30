"""Finds the files that a peer's position may belong to: those that a definition finds, and rotated ones beside them without a pattern.

All searches use indexes, so that the time grows linearly with the number of positions.
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
from copycat_agent.sources.files.paths.regular_files import open_regular
from copycat_agent.sources.log_file.rotation import is_newest, log_of, rotation_family
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition

_FIRST_BYTES = 1024
"""Bytes of each file that are cached. Most peers identify a file by no more."""


class PeerFile(NamedTuple):
    """A file that a position may belong to. `key` is that of its partition, "" for a file that no pattern matches."""

    path: str
    key: str = ""


class PeerFileFinder:
    """Searches the files of one definition. `views` are those that it finds; `follows` tells if it follows, or followed, a path."""

    def __init__(self, views: Sequence[FileView], follows: Callable[[str], bool]) -> None:
        self._views = [PeerFile(view.path, view.key) for view in views]
        self._follows = follows
        self._at_path = {one.path: one for one in self._views}
        self._of_name: dict[str, list[PeerFile]] = defaultdict(list)
        self._at_inode: dict[int, list[PeerFile]] = defaultdict(list)
        for one in self._views:
            self._of_name[_name(one.path)].append(one)
            self._at_inode[Identity.parse(one.key)[0].inode].append(one)
        self._listings: dict[str, _DirectoryFiles] = {}
        self._devices: dict[str, int] = {}
        self._first: dict[str, bytes | None] = {}
        self._of_head: dict[tuple[str, str, str], dict[object, list[PeerFile]]] = {}
        self._directories = {_directory(one.path) for one in self._views}

    def candidates(self, position: PeerPosition) -> list[PeerFile]:
        """Returns the files that a position may belong to: by inode if the peer keeps one, else by first bytes, else by name."""
        if position.inode is not None:
            return [one for one in self._at_inode.get(position.inode, ()) if self._may_be_on(one, position)] or self._renamed(position)
        if position.head is not None:
            found = self._alike("", "", self._views, position.head)
            return [*found, *(one for one in self._rotated_alike(position, position.head) if one.path not in self._at_path)]
        if position.path.startswith("/"):
            return [self._at_path[position.path]] if position.path in self._at_path else []
        return list(self._of_name.get(position.path, ()))

    def archives_of(self, one: PeerFile) -> list[str]:
        """Returns the files that were rotated from a live log, and may be copies of it; [] for any other file."""
        if not one.key or not is_newest(one.path):
            return []
        related = self._listing(_directory(one.path)).of_family.get(rotation_family(one.path), ())
        return [path for path in related if path != one.path and log_of(path) == log_of(one.path)]

    def _may_be_on(self, one: PeerFile, position: PeerPosition) -> bool:
        """Returns whether the file is on the peer's device, or if the peer keeps none, on that of its file's directory."""
        if one.path == position.path:
            return True
        device = Identity.parse(one.key)[0].device
        if position.device is not None:
            return device == position.device
        return position.head is not None or _directory(one.path) == _directory(position.path) or device == self._device_of(position.path)

    def _device_of(self, path: str) -> int:
        """Returns the device of a path's directory, -1 if that does not exist."""
        directory = _directory(path)
        if directory not in self._devices:
            try:
                self._devices[directory] = os.stat(_directory(os.path.realpath(path))).st_dev if path.startswith("/") else -1  # noqa: PTH116
            except OSError:
                self._devices[directory] = -1
        return self._devices[directory]

    def _renamed(self, position: PeerPosition) -> list[PeerFile]:
        """Returns the file that was rotated to a name beside its old one without a pattern; one of several links to it."""
        for directory in self._beside(position):
            names = self._listing(directory).at_inode.get(position.inode or 0, [])
            if names:
                return [PeerFile(min(names, key=lambda one: rotation_family(one) != rotation_family(position.path)))]
        return []

    def _rotated_alike(self, position: PeerPosition, head: HeadProof) -> list[PeerFile]:
        """Returns files with the peer's first bytes that were rotated from its file, or without a name, from any present file."""
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
        """Returns the directories that the file may be in: its last one, also through a link; without a name those of all files."""
        if not position.path:
            return sorted(self._directories)
        if not position.path.startswith("/") or not self._follows(position.path):
            return []
        return list(dict.fromkeys((_directory(position.path), _directory(os.path.realpath(position.path)))))

    def _listing(self, directory: str) -> _DirectoryFiles:
        if directory not in self._listings:
            self._listings[directory] = _DirectoryFiles(directory)
        return self._listings[directory]

    def _alike(self, directory: str, family: str, files: Iterable[PeerFile], head: HeadProof) -> list[PeerFile]:
        """Returns the files of a family in a directory, or of the views, that have the peer's first bytes."""
        place = head.what, directory, family
        if place not in self._of_head:
            found = self._of_head[place] = defaultdict(list)
            for one in files:
                found[self._value(head, one.path)].append(one)
        return self._of_head[place].get(head.value, [])

    def _value(self, head: HeadProof, path: str) -> object:
        """Returns the peer's hash of the file's first bytes; None if they cannot be read, or are too few."""
        try:
            first = self._first_bytes(path)
            return head.of(lambda at, size: _read(path, first, at, size))
        except OSError:
            return None

    def _first_bytes(self, path: str) -> bytes:
        """Returns a file's first bytes. Raises OSError."""
        if path not in self._first:
            self._first[path] = None
            self._first[path] = _read(path, None, 0, _FIRST_BYTES)
        first = self._first[path]
        if first is None:
            raise OSError
        return first


class _DirectoryFiles:
    """The regular files of a directory, by inode and by rotation family. Empty if it cannot be listed."""

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
    """Returns bytes of a file, from `first` if possible, its cached first bytes. Raises OSError."""
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
