"""What a stream reads through: a file of this host, or an object behind a URI, with the same few questions."""

from __future__ import annotations

import os
from typing import Protocol

from copycat_agent.model import SourceOffset, Split
from copycat_agent.sources.files.reading.address import Info, is_remote

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class Handle(Protocol):
    """An open file. Everything raises OSError, with words in `strerror` that may be shown. Used by one thread."""

    @property
    def fd(self) -> int:
        """Its descriptor; -1 when it has none or is closed."""

    def stat(self) -> Info | os.stat_result:
        """How it is now. A size of -1: it is no longer the version that was opened."""

    def pread(self, size: int, position: int) -> bytes:
        """As `os.pread`: fewer than `size` bytes do not mean its end, none do."""

    def is_version(self, offset: SourceOffset) -> bool:
        """Whether it is the version that `offset` was planned from, where the size and time of change alone say so."""

    def close(self) -> None:
        """Close it; once is enough."""


class LocalHandle:
    """A file of this host, or one that the driver holds open."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, _FLAGS)

    def stat(self) -> os.stat_result:
        """See `Handle.stat`."""
        return os.fstat(self.fd)

    def pread(self, size: int, position: int) -> bytes:
        """See `Handle.pread`."""
        return os.pread(self.fd, size, position)

    def is_version(self, offset: SourceOffset) -> bool:
        """See `Handle.is_version`: what files of a host are is told by their bytes, which may have grown since."""
        del offset
        return True

    def close(self) -> None:
        """See `Handle.close`."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def open_handle(split: Split) -> Handle:
    """The split's file. Raises OSError."""
    if not is_remote(split.open_path):
        return LocalHandle(split.open_path)
    from copycat_agent.sources.files.reading.remote_handle import RemoteHandle  # noqa: PLC0415 - imports pyarrow, 0.15 s

    return RemoteHandle(split.open_path)
