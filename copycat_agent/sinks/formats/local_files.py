"""Local files under way: the contract of what writes those of one directory, and a file that grows in pieces."""

from __future__ import annotations

import gzip
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from copycat_agent.errors import DataError
from copycat_agent.sinks.files_options import Compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP_LEVEL = 6


class WrittenFile(NamedTuple):
    """A file that is complete, closed and on disk. `directory` is as it was given with its records, `extension` has no dot before it."""

    path: Path
    directory: str
    extension: str
    records: int
    size_bytes: int


class DirectoryFiles(ABC):
    """The files of one directory, of records with one schema: what is held of them in memory, and what is written. For one thread."""

    held_bytes = 0
    """About so much memory is held."""
    is_open = False
    """Whether a descriptor is held."""

    @abstractmethod
    def take(self, values: Sequence[Any]) -> int:
        """Take values up to the first that does not fit. Returns how many; nothing of that one is taken."""

    @abstractmethod
    def why(self, value: Any) -> DataError:  # noqa: ANN401 - any value
        """Why `take` took nothing of this value, without its data."""

    @abstractmethod
    def spill(self) -> None:
        """Hold less: write what is held, or pack it so that it takes a good deal less memory."""

    @abstractmethod
    def roll(self) -> None:
        """Complete the file under way if it is open, so that no descriptor is held. What comes then goes to another file."""

    @abstractmethod
    def finish(self) -> list[WrittenFile]:
        """Complete all files. Nothing is taken afterwards."""

    @abstractmethod
    def abandon(self) -> None:
        """Let go of what is open. The caller removes the files."""


NewPath = Callable[[], Path]
"""Gives a path where no file is yet, and remembers it to remove what is there if all goes wrong."""

PACKERS: dict[Compression, Callable[[bytes], bytes]] = {
    "none": lambda data: data,
    "gzip": lambda data: gzip.compress(data, _GZIP_LEVEL, mtime=0),
    "zstd": zstd.compress,
}
"""How a piece of a file is compressed where the format leaves that to the file."""

SUFFIXES: dict[Compression, str] = {"none": "", "gzip": ".gz", "zstd": ".zst"}


class GrowingFile:
    """A file to which pieces are appended. It is open only meanwhile.

    Linux tells an error of writing behind to the first who syncs, also when that one opened the file later (since 4.17); PostgreSQL's
    checkpoints rely on the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = self.size_bytes = 0

    def append(self, data: bytes, records: int, *, is_last: bool = False) -> None:
        """Write a piece, of so many records. The last one is on disk afterwards with all before it."""
        with self.path.open("ab") as file:
            file.write(data)
            file.flush()
            self.size_bytes += len(data)
            self.records += records
            if is_last:
                os.fsync(file.fileno())
                size = os.fstat(file.fileno()).st_size
                assert size == self.size_bytes, "somebody else wrote to it"

    def finished(self, directory: str, extension: str) -> WrittenFile:
        """Call it after the last piece."""
        return WrittenFile(self.path, directory, extension, self.records, self.size_bytes)
