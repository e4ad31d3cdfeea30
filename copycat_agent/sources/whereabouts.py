"""Where is a file that no pattern finds any more: under its last name, or under another one in the same directory."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import PurePosixPath


class Whereabouts:
    """Looks for files by inode. Each directory is listed once, so one search for very many files stays cheap."""

    def __init__(self) -> None:
        self._listings: dict[str, dict[int, list[str]]] = {}

    def find(self, path: str, device: int, inode: int) -> str | None:
        """A name of the file that was last known as `path`, None when its directory does not have it (any more). Raises OSError.

        A directory that is not there raises as well: what it held may come back with it.
        """
        names = self._listing(str(PurePosixPath(path).parent)).get(inode, [])
        for name in sorted(names, key=lambda one: one != path):
            info = os.lstat(name)
            if (info.st_dev, info.st_ino) == (device, inode):
                return name
        return None

    def _listing(self, directory: str) -> dict[int, list[str]]:
        if directory not in self._listings:
            names = defaultdict(list)
            with os.scandir(directory) as listing:
                for entry in listing:
                    names[entry.inode()].append(entry.path)
            self._listings[directory] = names
        return self._listings[directory]
