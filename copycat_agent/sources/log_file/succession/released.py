"""Files that were let go `rotate_wait` after they left their patterns: what is appended to them later is told, not read."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.packing import packed_files

if TYPE_CHECKING:
    from copycat_agent.model import SourceOffset, SourcePartition
    from copycat_agent.sources.base import Changes, Lose
    from copycat_agent.sources.files.paths.opening import Opener
    from copycat_agent.sources.log_file.tracked import TrackedFile

_REMEMBERED = 1000
"""Files looked after at a time; each costs a stat per scan."""


class Released:
    """The latest files that were let go. `lose` is told what is appended to them."""

    def __init__(self, lose: Lose, opener: Opener) -> None:
        self._lose = lose
        self._opener = opener
        self._files: dict[str, tuple[tuple[int, int], int, SourcePartition, SourceOffset]] = {}

    def add(self, file: TrackedFile) -> str:
        """`file` is open still, but read and quiet. Returns the name it has now."""
        name = os.fsdecode(Path(f"/proc/self/fd/{file.fd}").readlink())
        if not file.is_deleted():
            self._files[name] = (file.inode_key, file.settled_size, file.partition, file.offset)
            if len(self._files) > _REMEMBERED:
                del self._files[next(iter(self._files))]
        return name

    def look(self, followed: Container[tuple[int, int]], changes: Changes) -> None:
        """See whether something was appended to them; those that are `followed` again, gone, or written over, are let alone."""
        for name, (inode_key, position, partition, offset) in list(self._files.items()):
            try:
                info = Path(name).lstat()
            except OSError:
                del self._files[name]
                continue
            is_other = (info.st_dev, info.st_ino) != inode_key or inode_key in followed
            if is_other or (info.st_size > position and not self._still_holds(name, offset)):
                del self._files[name]
            elif info.st_size > position:
                why = "written after rotate_wait to a file that no pattern matches"
                self._lose(partition, name, position, info.st_size, why, changes)
                self._files[name] = (inode_key, info.st_size, partition, offset)

    def _still_holds(self, name: str, offset: SourceOffset) -> bool:
        """Whether what was read is in it; one that cannot be looked into may have it."""
        try:
            fd, info = self._opener.open(name)
        except OSError:
            return True
        try:
            return packed_files.is_same(fingerprint.reader(fd), info.st_size, offset)
        except OSError:
            return True
        finally:
            os.close(fd)
