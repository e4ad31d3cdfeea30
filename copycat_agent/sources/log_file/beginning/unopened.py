"""Files that were there when the connector first looked and could not be opened then: `start_at` holds for them all the same."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from copycat_agent.model import SourcePartition
from copycat_agent.sources.files.identity import identify_by_name
from copycat_agent.sources.files.paths.opening import PassedOverError

if TYPE_CHECKING:
    from copycat_agent.sources.base import Changes
    from copycat_agent.sources.files.paths.discovery import Found
    from copycat_agent.sources.log_file.beginning.start import StartAt
    from copycat_agent.sources.log_file.followed import Followed


_PACKED = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".sz")
"""Whoever cannot open these does not know what bytes are in them."""


class Unopened:
    """Remembers them: by an offset that is saved where it can be known without opening them, else as long as the agent runs."""

    def __init__(self, followed: Followed, start: StartAt, *, follow_symlinks: bool) -> None:
        self._followed = followed
        self._start = start
        self._follow_symlinks = follow_symlinks
        self._there: set[tuple[int, int]] = set()

    def note(self, found: Found, error: OSError, changes: Changes) -> None:
        """The first look found this file, which could not be opened or read. What is left alone on purpose is not meant."""
        inode_key = (found.stat.st_dev, found.stat.st_ino)
        if isinstance(error, PassedOverError) or inode_key in self._there:
            return
        self._there.add(inode_key)
        if found.path.endswith(_PACKED):
            return
        offset = self._start.unopened(found.stat, found.path)
        identity = identify_by_name(found.path, found.stat, follow_symlinks=self._follow_symlinks)
        if offset is None or identity is None:
            return
        partition = SourcePartition(self._followed.connector, identity.key(0))
        changes.offsets[partition] = offset
        self._followed.absent.add(partition, offset)

    def was_there(self, info: os.stat_result) -> bool:
        """Whether the file that is open now is one of them."""
        return (info.st_dev, info.st_ino) in self._there
