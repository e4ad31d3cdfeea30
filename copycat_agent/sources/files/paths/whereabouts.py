"""Where is a file that no pattern finds any more: under its last name, or under another one in the same directory.

Where the last name is a symbolic link, rotation gives the file another name beside what the link leads to.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Container
from pathlib import PurePosixPath

from copycat_agent.sources.files.identity import Identity, identify_by_name, is_at


class Whereabouts:
    """Looks for files by inode. Each directory is listed once, so one search for very many files stays cheap."""

    def __init__(self) -> None:
        self._listings: dict[str, dict[int, list[str]]] = {}

    def find(self, path: str, identity: Identity) -> str | None:
        """A name of the file that was last known as `path`, None when its directory does not have it (any more). Raises OSError.

        A directory that is not there raises as well: what it held may come back with it.
        """
        beside = str(PurePosixPath(path).parent)
        name = self._find_in(beside, path, identity)
        if name is None and os.path.islink(path):  # noqa: PTH114 - a str path
            target = os.path.realpath(path)
            name = self._find_in(str(PurePosixPath(target).parent), target, identity)
        return name

    def seen(self, path: str, identity: Identity, devices: Container[int] = ()) -> bool | None:
        """Whether the file that was last known as `path` is there, under any name in its directory.

        None when nobody can say: the directory cannot be listed, or another file system is there than the file's, which may not be mounted.
        `devices`: other numbers that its device has had.
        """
        directory = beside = os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)  # noqa: PTH114, PTH120 - a str path
        try:
            while (device := _device_of(directory)) is None:
                directory = os.path.dirname(directory)  # noqa: PTH120 - as above
            names = {path, *self._listing(directory).get(identity.inode, ())} if directory == beside else ()
            if any(_is_file(name, identity) for name in names):
                return True
        except OSError:
            return None
        return False if device == identity.device or device in devices else None

    def _find_in(self, directory: str, path: str, identity: Identity) -> str | None:
        names = sorted(self._listing(directory).get(identity.inode, []), key=lambda one: one != path)
        return next((name for name in names if is_at(name, identity)), None)

    def _listing(self, directory: str) -> dict[int, list[str]]:
        if directory not in self._listings:
            names = defaultdict(list)
            with os.scandir(directory) as listing:
                for entry in listing:
                    names[entry.inode()].append(entry.path)
            self._listings[directory] = names
        return self._listings[directory]


def _device_of(directory: str) -> int | None:
    """None when there is no such directory. Raises OSError when that cannot be said, and for the root's absence."""
    try:
        return os.stat(directory or "/").st_dev  # noqa: PTH116 - a str path
    except (FileNotFoundError, NotADirectoryError):
        if directory in {"", "/"}:
            raise
        return None


def _is_file(name: str, identity: Identity) -> bool:
    """Whether it is this file's name; its device may have another number by now. Raises OSError."""
    try:
        info = os.lstat(name)
    except FileNotFoundError:
        return False
    if info.st_ino != identity.inode:
        return False
    now = identify_by_name(name, info, follow_symlinks=False)
    return now is None or now == identity or (now.birth_ns == identity.birth_ns > 0)
