"""Opening files that match: regular ones only, never waiting, and no further than the definition allows."""

from __future__ import annotations

import os
import stat

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class NotRegularError(OSError):
    """The path leads to something that is not a regular file."""


class Opener:
    """Opens the files of one connector. Stateless."""

    def __init__(self, *, follow_symlinks: bool) -> None:
        self.follow_symlinks = follow_symlinks

    def open(self, path: str) -> tuple[int, os.stat_result]:
        """Descriptor and fstat of the regular file at `path`. Raises OSError."""
        return open_regular(path, follow_symlinks=self.follow_symlinks)


def open_regular(path: str, *, follow_symlinks: bool) -> tuple[int, os.stat_result]:
    """Open a regular file for reading, never waiting and never through a final symlink unless asked. Raises OSError."""
    fd = os.open(path, _FLAGS | (0 if follow_symlinks else os.O_NOFOLLOW))
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise NotRegularError(0, "is not a regular file", path)
    return fd, info
