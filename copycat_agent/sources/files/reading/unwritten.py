"""Stretches of a file that were never written: the file system knows them, and reading them is slow for what it yields.

A file with a hole of 100 GB would be minutes of reading and push everything else out of the page cache.
"""

from __future__ import annotations

import errno
import os

_LEAST_BYTES = 2**18
"""Smaller reads are not worth a question."""
_GUARD_BYTES = 16 * 2**20
"""So much before the next data, or the end, is read all the same: file systems have told of holes where data had just been written."""
_NULS = bytes(2**20)
"""Of a usual read; made once, as a megabyte of memory costs more than a look at it."""


class Unwritten:
    """Knows them of one open file. Asks only when the read before came back as NUL bytes."""

    def __init__(self) -> None:
        self._seems_so = False

    def read(self, size: int) -> bytes:
        """What stands there."""
        return _NULS[:size] if size <= len(_NULS) else bytes(size)

    def covers(self, fd: int, position: int, size: int) -> bool:
        """Whether nothing was ever written to these bytes, and there are so many."""
        if not self._seems_so or size < _LEAST_BYTES:
            return False
        try:
            following = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # it cannot tell
                return False
            following = os.fstat(fd).st_size
        return position + size <= following - _GUARD_BYTES

    def note(self, data: bytes) -> None:
        """What a read came back with."""
        if len(data) >= _LEAST_BYTES:
            self._seems_so = not (data[0] or data[-1])
