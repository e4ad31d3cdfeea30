"""Archives whose age says nothing about what they hold: a copy was written over them, or the clock was set back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.files.packing import packed_files

if TYPE_CHECKING:
    from copycat_agent.model import SourcePartition
    from copycat_agent.sources.base import Changes
    from copycat_agent.sources.files.paths.opening import Opener
    from copycat_agent.sources.log_file.followed import Followed


class Known(NamedTuple):
    """Device and inode of the archives of one log that hold what is known, and when the newest of them was last changed, 0 for none.

    Where generations are copied on from name to name, the oldest first, what was changed before that was there before.
    """

    inodes: frozenset[tuple[int, int]]
    newest_ns: int


def known_of(paths: Collection[str], followed: Followed, opener: Opener, changes: Changes) -> Known:
    """Look into the archives at `paths`. What is saved of one that holds something else by now is a former one's from now on."""
    there: list[tuple[int, str]] = []
    for path in paths:
        with contextlib.suppress(OSError):
            there.append((_note_written_over(path, followed, opener, changes), path))
    claimed: set[SourcePartition] = set()
    known: dict[tuple[int, int], int] = {}
    for changed_ns, path in sorted(there):
        with contextlib.suppress(OSError), _opened(path, opener) as (fd, info):
            inode = info.st_dev, info.st_ino
            if inode in followed.files or _claims(path, fd, info.st_size, followed, claimed, changes):
                known[inode] = changed_ns
    return Known(frozenset(known), max(known.values(), default=0))


def _note_written_over(path: str, followed: Followed, opener: Opener, changes: Changes) -> int:
    """Returns when it was last changed. Raises OSError."""
    with _opened(path, opener) as (fd, info):
        identity, absent = identify(fd, info), followed.absent
        if identity[:2] not in followed.files and not absent.knows(identity, fd, info.st_size, changes):
            absent.written_over(identity, changes)
        return info.st_mtime_ns


def _claims(path: str, fd: int, size: int, followed: Followed, claimed: set[SourcePartition], changes: Changes) -> bool:
    """Whether the open file holds what was read of another one, and no older one does: equal text alone is no proof. Raises OSError.

    What a packed one holds a task finds out.
    """
    read = fingerprint.reader(fd)
    if packed_files.compression_of(read):
        return False
    for partition, offset in followed.absent.candidates(path, read(0, fingerprint.HEAD_BYTES), changes):
        if partition not in claimed and offset.position <= size and fingerprint.holds(read, offset.fingerprint, offset.position):
            claimed.add(partition)
            return True
    return False


@contextlib.contextmanager
def _opened(path: str, opener: Opener) -> Iterator[tuple[int, os.stat_result]]:
    """Raises OSError."""
    fd, info = opener.open(path)
    try:
        yield fd, info
    finally:
        os.close(fd)
