"""Where is a file that no pattern finds any more: under its last name, or under another one in the same directory.

Where the last name is a symbolic link, rotation gives the file another name beside what the link leads to.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import PurePosixPath

from copycat_agent.sources.identity import Identity, is_at


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
