"""Reads small files that someone else may have put there: never more than allowed, never blocking, and seldom twice.

A known file is read again unless its time stamps prove that nobody has written to it. Reading a thousand definitions every ten seconds
costs 0.4 % of a core. The distrust of time stamps that are too young comes from git's index (racy-git).
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Container

YOUNG_NS = 2_000_000_000
"""A file that changed so shortly before it was read may change again without a visible time stamp."""
Stamps = tuple[int, int, int, int, int]


def is_there(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path leads to something, as far as this user can see; `Path.exists` raises below a closed directory."""
    return os.path.exists(path)  # noqa: PTH110 - see above


def is_directory(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path leads to a directory, as far as this user can see. See `is_there`."""
    return os.path.isdir(path)  # noqa: PTH112 - see above


def read_small_file(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """Returns all bytes of a regular file (links are followed), opened so that a pipe or device cannot block.

    Raises OSError, with `strerror` fit to be shown, if it cannot be read, is no regular file, or has more than `bytes_max` bytes.
    """
    return read_with_status(path, bytes_max)[0]


def read_with_status(path: str | os.PathLike[str], bytes_max: int) -> tuple[bytes, os.stat_result]:
    """Returns the result of `read_small_file`, and the status of the file just before its bytes were read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError:
        raise OSError(errno.EINVAL, "not a file name") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"more than {bytes_max} bytes")
    return content, status


class ContentCache:
    """Remembers the contents of files. Not thread-safe."""

    def __init__(
        self,
        bytes_max: int,
        *,
        is_local: Callable[[int], bool],
        young_ns: int = YOUNG_NS,
        read: Callable[[str, int], tuple[bytes, os.stat_result]] = read_with_status,
    ) -> None:
        """`is_local(device)`: whether this host stamps its files. Files of a server are read each time: it may show stamps late."""
        self._bytes_max = bytes_max
        self._young_ns = young_ns
        self._is_local = is_local
        self._read = read
        self._known: dict[str, tuple[Stamps, bytes]] = {}

    def of(self, path: str) -> bytes:
        """Returns the file's present content. Raises OSError if it cannot be read."""
        known = self._known.get(path)
        if known is not None and known[0] == _stamps(os.stat(path)):  # noqa: PTH116 - hot: every definition, every few seconds
            return known[1]
        begun_ns = time.time_ns()
        content, status = self._read(path, self._bytes_max)
        if max(status.st_mtime_ns, status.st_ctime_ns) < begun_ns - self._young_ns and self._is_local(status.st_dev):
            self._known[path] = _stamps(status), content
        else:
            self._known.pop(path, None)
        return content

    def forget_all_but(self, paths: Container[str]) -> None:
        """Forgets files that are not used any more."""
        self._known = {path: known for path, known in self._known.items() if path in paths}


def _stamps(status: os.stat_result) -> Stamps:
    """Returns stamps that differ after every write, and for another file under the name; of a link, those of its target."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
