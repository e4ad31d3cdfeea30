"""Deleted files that are not read yet: their bytes take up disk space as long as they are held open."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from copycat_agent.sources.packing import packed_files

if TYPE_CHECKING:
    from copycat_agent.sources.base import Changes, Lose
    from copycat_agent.sources.tracked import TrackedFile


def give_up(file: TrackedFile, limit: float | Literal["forever"], lose: Lose, changes: Changes) -> bool:
    """Whether a file that no pattern finds was deleted, and had bytes that stayed unread for `limit` seconds since.

    Then what is left of it is counted as lost, and nothing will follow. It is not in flight.
    """
    if limit == "forever" or not file.is_deleted():
        return False
    now = time.monotonic()
    since, size = file.deleted or (now, file.size)
    if file.settled_size >= size:  # what was there then is read: a writer goes on writing to it, and the agent keeps up
        since, size = now, file.size
    file.deleted = since, size
    if now - since < limit or not file.backlog:
        return False
    why = f"the file was deleted and not read within hold_deleted{packed_files.words(file.offset)}"
    start = file.offset.position
    lose(file.partition, file.path, start, start + file.backlog, why, changes)
    changes.offsets[file.partition] = file.remembered(gone=True, done=True)
    return True
