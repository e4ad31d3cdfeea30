"""What formats keep of files between two batches in one process: a header, an index of blocks."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from copycat_agent.model import SourcePartition

KEPT = 64
"""Files whose memos a process keeps; those asked for longest ago go first."""


class Memos:
    """By partition and version of the file. Thread-safe; one memo is used by one batch at a time."""

    def __init__(self) -> None:
        self._memos: dict[SourcePartition, tuple[Hashable, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def of(self, partition: SourcePartition, version: Hashable) -> dict[str, Any]:
        """The memo of this version of the file; empty when it is new here."""
        with self._lock:
            known, memo = self._memos.pop(partition, (version, {}))
            if known != version:
                memo = {}
            self._memos[partition] = version, memo
            while len(self._memos) > KEPT:
                del self._memos[next(iter(self._memos))]
            return memo


MEMOS = Memos()
"""Those of this process."""
