"""Local files being written: the contract of a writer of one directory's files, and a file that grows in pieces."""

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
    """A complete file, closed and synced. `directory` is the one given with its records, `extension` has no leading dot."""

    path: Path
    directory: str
    extension: str
    records: int
    size_bytes: int


class DirectoryFiles(ABC):
    """Writes the files of one directory and one schema, and holds some records in memory. Used from one thread."""

    held_bytes = 0
    """Estimated memory that is held."""
    is_open = False
    """Whether a file descriptor is held."""

    @abstractmethod
    def take(self, values: Sequence[Any]) -> int:
        """Takes values up to the first that does not fit, and returns how many. Nothing of that one is taken."""

    @abstractmethod
    def why(self, value: Any) -> DataError:  # noqa: ANN401 - any value
        """Returns why `take` does not take this value, without its data."""

    def clashes(self, value: Any) -> bool:  # noqa: ANN401 - any value
        """Returns whether `take` does not take this value only because of the columns so far, and other files of the directory may."""
        del value
        return False

    @abstractmethod
    def spill(self) -> None:
        """Frees memory: writes what is held, or packs it into much less."""

    @abstractmethod
    def roll(self) -> None:
        """Completes the present file if it is open, so that no descriptor is held. Later records go to another file."""

    @abstractmethod
    def finish(self) -> list[WrittenFile]:
        """Completes and returns all files. Nothing is taken afterwards."""

    @abstractmethod
    def abandon(self) -> None:
        """Closes open files as they are. The caller removes them."""


NewPath = Callable[[], Path]
"""Returns a path without a file, and remembers it for removal after a failure."""

PACKERS: dict[Compression, Callable[[bytes], bytes]] = {
    "none": lambda data: data,
    "gzip": lambda data: gzip.compress(data, _GZIP_LEVEL, mtime=0),
    "zstd": zstd.compress,
}
"""Compresses a piece of a file, for formats without compression of their own."""

SUFFIXES: dict[Compression, str] = {"none": "", "gzip": ".gz", "zstd": ".zst"}


class GrowingFile:
    """A file to which pieces are appended. It is open only during an append.

    Linux reports a writeback error to the first fsync after it, even of a descriptor that was opened later (since 4.17); PostgreSQL's
    checkpoints rely on the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = self.size_bytes = 0

    def append(self, data: bytes, records: int, *, is_last: bool = False) -> None:
        """Writes a piece with this many records. The last piece syncs the whole file."""
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
        """Returns the complete file. Call it after the last piece."""
        return WrittenFile(self.path, directory, extension, self.records, self.size_bytes)
