"""A split's file as a task reads it: opened through the driver's descriptor, checked before and after."""

from __future__ import annotations

import os

from copycat_agent.errors import FileError
from copycat_agent.model import Fingerprint, Split
from copycat_agent.sources import fingerprint

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class Stream:
    """One open file. Reads by position, so nothing depends on the order of calls.

    Raises FileError, from the constructor and from every method, when the file cannot be read now.
    """

    def __init__(self, split: Split) -> None:
        self._name = split.path
        try:
            self._fd = os.open(split.open_path, _FLAGS)
        except OSError as error:
            raise self._trouble("opened", error) from None
        self._known = split.offset.fingerprint
        self._position = split.offset.position
        try:
            is_other = split.inode and os.fstat(self._fd).st_ino != split.inode
            self._head = os.pread(self._fd, fingerprint.HEAD_BYTES, 0)
        except OSError as error:
            self.close()
            raise self._trouble("read", error) from None
        if is_other:  # the driver has closed its descriptor, and the number is another file's now
            self.close()
            raise FileError(f"{self._name!r} is no longer open in the agent", "the agent tries again")

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        try:
            data = os.pread(self._fd, size, position)
            while data and len(data) < size:
                more = os.pread(self._fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._trouble("read", error) from None
        return data

    def is_what_was_read(self) -> bool:
        """Before reading: whether the bytes up to the split's offset are those that were read before."""
        return fingerprint.holds(self.read, self._known, self._position)

    def is_still(self, position: int) -> bool:
        """After reading up to `position`: whether the file was neither cut below it nor begun anew meanwhile."""
        head = self._head[:position]
        try:
            return os.fstat(self._fd).st_size >= position and self.read(0, len(head)) == head
        except OSError as error:
            raise self._trouble("read", error) from None

    def fingerprint(self, position: int, tail: bytes) -> Fingerprint:
        """The fingerprint at `position`, of bytes that were really read: `tail` are the last of them."""
        return fingerprint.of(self._head[:position], tail)

    def close(self) -> None:
        """Close the file; once is enough."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _trouble(self, what: str, error: OSError) -> FileError:
        return FileError(f"{self._name!r} cannot be {what}: {error.strerror}", "the agent tries again")
