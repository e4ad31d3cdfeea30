"""Is it a file that was read when its device had another number: inode and time of birth are the same, and what was read is still there.

A reboot (device mapper, NVMe) and every mount (NFS, btrfs, loop devices) may change device numbers. Keys of rows stay what they are.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.model import Fingerprint
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, identify, identify_by_name
from copycat_agent.sources.files.packing import packed

if TYPE_CHECKING:
    from copycat_agent.sources.files.paths.discovery import Found
    from copycat_agent.sources.files.paths.opening import Opener
    from copycat_agent.sources.spool_dir.rows import Row, Rows
    from copycat_agent.sources.spool_dir.spool_file import SpoolFile

_Place = tuple[int, int]
"""Device and inode: unique among files that exist now."""


class Remounts:
    """For the catalog of one connector. `files` are its unread files, `vanish` lets go of one."""

    def __init__(self, rows: Rows, opener: Opener, files: Mapping[_Place, SpoolFile], vanish: Callable[[SpoolFile], None]) -> None:
        self._rows = rows
        self._opener = opener
        self._files = files
        self._vanish = vanish
        self._present: dict[_Place, Found] = {}
        self._places: dict[Identity, _Place] = {}
        self._numbers: dict[int, set[int]] = {}

    def begin_scan(self, found: Iterable[Found]) -> None:
        """What is there now."""
        self._present = {(one.stat.st_dev, one.stat.st_ino): one for one in found}

    def place_of(self, saved: Identity) -> _Place:
        """Where the file with rows of this identity is, if it is there."""
        return self._places.get(saved, saved[:2])

    def numbers_of(self, device: int) -> set[int]:
        """The numbers that this device may have now."""
        return {device, *self._numbers.get(device, ())}

    def rows_of(self, identity: Identity, found: Found) -> list[Row]:
        """All rows of this file, whatever the number of its device was when they were saved. Raises OSError: it cannot be said now."""
        at_inode = self._rows.at_inode(identity.inode)
        rows = [row for row in at_inode if row.identity == identity]
        others: dict[Identity, list[Row]] = {}
        for row in sorted(at_inode, key=lambda row: (row.offset.gone_ms > 0, -row.offset.gone_ms)):
            if not rows and row.identity.birth_ns == identity.birth_ns and not self._is_elsewhere(row.identity, found):
                others.setdefault(row.identity, []).append(row)
        return self._proven(identity, found, others) if others else rows

    def _is_elsewhere(self, saved: Identity, found: Found) -> bool:
        """Whether the file with rows of this identity is another one that is there: `found` is on a copy of its file system."""
        other = self._present.get(self.place_of(saved))
        if other is None or other.path == found.path:
            return False
        now = identify_by_name(other.path, other.stat, follow_symlinks=False)
        return now is not None and now._replace(device=saved.device) == saved

    def _proven(self, identity: Identity, found: Found, others: Mapping[Identity, list[Row]]) -> list[Row]:
        fd, info = self._opener.open(found.path, is_known=True)
        try:
            if identify(fd, info) != identity:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), found.path)
            for saved, rows in others.items():
                newest = max(row.generation for row in rows)
                if all(_is_same(fd, info, found.path, row) for row in rows if row.generation == newest):
                    self._move(saved, identity)
                    return rows
        finally:
            os.close(fd)
        return []

    def _move(self, saved: Identity, now: Identity) -> None:
        """The file with rows of identity `saved` is at `now`. Raises OSError while it is being read under the number that it had."""
        before = self._files.get(self.place_of(saved))
        if before is not None and before.inode_key != now[:2] and before.key.saved == saved:
            if before.flights:
                raise OSError(errno.EBUSY, "its file system was mounted again while it is being read")
            self._vanish(before)
        self._places[saved] = now[:2]
        self._numbers.setdefault(saved.device, set()).add(now.device)


def _is_same(fd: int, info: os.stat_result, path: str, row: Row) -> bool:
    """Whether the open file, whose inode and time of birth are the row's, still holds what was read of it. Raises OSError.

    Where there are no times of birth it has to be unchanged, under its name, and it must never have been gone: inodes are used again.
    """
    offset, proof = row.offset, row.offset.fingerprint
    is_unchanged = (offset.size, offset.mtime_ns) == (info.st_size, info.st_mtime_ns)
    if not row.identity.birth_ns and (offset.gone_ms or offset.path != path or not is_unchanged):
        return False
    if not proof.head_bytes:
        return is_unchanged or offset.position == (row.bounds or (0, 0))[0]
    if offset.done and proof.head_bytes == offset.size:  # the digest of the whole file: only a task has the time to compare it
        offset = replace(offset, fingerprint=Fingerprint(0, "", proof.tail_bytes, proof.tail))
    return packed.is_same(fingerprint.reader(fd), info.st_size, offset)
