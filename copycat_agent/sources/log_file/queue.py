"""Files that may have something to read, the longest unserved first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.sources.log_file.tracked import TrackedFile


class Queue:
    """An ordered set. Who is put in stands at the end; who is served goes there again. All methods take constant time."""

    def __init__(self) -> None:
        self._files: dict[TrackedFile, None] = {}

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[TrackedFile]:
        return iter(self._files)

    def __contains__(self, file: object) -> bool:
        return file in self._files

    def add(self, file: TrackedFile) -> None:
        """Put `file` at the end; one that stands in the queue keeps its place."""
        self._files[file] = None

    def discard(self, file: TrackedFile) -> None:
        """Take `file` out, if it is in."""
        self._files.pop(file, None)

    def served(self, file: TrackedFile) -> None:
        """It was `file`'s turn: all others come before it now."""
        if self._files.pop(file, 0) is None:
            self._files[file] = None
