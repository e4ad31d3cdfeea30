"""Where is a file that no pattern finds any more: under its last name, or under another one in the same directory."""

from __future__ import annotations

import os
from pathlib import PurePosixPath


def find(path: str, device: int, inode: int) -> str | None:
    """A name of the file that was last known as `path`, None when its directory does not have it (any more). Raises OSError.

    A directory that is not there raises as well: what it held may come back with it.
    """
    directory = str(PurePosixPath(path).parent)
    with os.scandir(directory) as listing:
        names = [entry.path for entry in listing if entry.inode() == inode]
    for name in sorted(names, key=lambda one: one != path):
        info = os.lstat(name)
        if (info.st_dev, info.st_ino) == (device, inode):
            return name
    return None
