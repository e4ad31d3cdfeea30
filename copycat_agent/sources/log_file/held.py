"""What is left at the end of files: of deleted ones that take up disk space, of archives, and of files that cannot be sent for now."""

from __future__ import annotations

import fcntl
import itertools
import signal
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from copycat_agent.sources.files.packing import packed_files
from copycat_agent.sources.log_file.file_state import Draining

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.model import SplitResult
    from copycat_agent.sources.base import Changes, Lose
    from copycat_agent.sources.log_file.tracked import TrackedFile

LAST_LINE_SECONDS = 5.0
"""A whole archive that was quiet this long gets no further member: its last line counts as finished."""
UNFINISHED_SECONDS = 60.0
"""An archive without its end marker that was quiet this long is damaged; `rotate_wait` may make it shorter, down to the above."""
_F_SETSIG = 10  # fcntl.h; Python's fcntl does not name it
_SIZES = 1000
"""Files whose sizes are saved at a time."""


def give_up(file: TrackedFile, limit: float | Literal["forever"], lose: Lose, changes: Changes) -> bool:
    """Whether a file that no pattern finds was deleted, and had bytes that stayed unread for `limit` seconds since.

    Then what is left of it is counted as lost, and nothing will follow. It is not in flight.
    """
    if limit == "forever" or not file.is_deleted():
        return False
    now = time.monotonic()
    assert isinstance(file.standing, Draining), "a pattern finds it"
    since, size = file.standing.deleted or (now, file.size)
    if file.settled_size >= size:  # what was there then is read: a writer goes on writing to it, and the agent keeps up
        since, size = now, file.size
    file.seen_deleted(since, size)
    if now - since < limit or not file.backlog:
        return False
    why = f"the file was deleted and not read within hold_deleted{packed_files.words(file.offset)}"
    start = file.offset.position
    lose(file.partition, file.path, start, start + file.backlog, why, changes)
    changes.offsets[file.partition] = file.remembered(gone=True, done=True)
    return True


def remember_sizes(unread: Iterable[TrackedFile], changes: Changes) -> None:
    """While nothing can be sent, files grow and no offset is saved: should they be destroyed while nobody looks, this was there."""
    grown = (file for file in unread if not file.in_flight and file.known_size > file.offset.size)
    for file in itertools.islice(grown, _SIZES):
        file.size_saved()
        changes.offsets[file.partition] = file.offset


def enter_damage(result: SplitResult, changes: Changes, log: Log) -> None:
    """A packed file cannot be unpacked to its end: say so, once for each size and time of change it has."""
    offset, path = result.offset, result.split.path
    changes.losses.append(packed_files.damage_loss(result))
    hint = "repair or replace it: it is read on when its size or time changes, and never deleted"
    log.error("packed file is damaged, what comes before is sent", path=path, offset=offset.position, why=result.damage, hint=hint)


def what_changed(file: TrackedFile) -> str:
    """Why a packed file is not what was read, as far as is known; "" when it is."""
    if file.seen.rewritten:
        return "it holds other bytes than were read"
    return "it is empty" if file.offset.position and not file.size else ""


def is_over(file: TrackedFile, rotate_wait: float) -> bool:
    """Whether nobody will add to a packed file that was read to its present end."""
    quiet = time.monotonic() - file.grown_at
    if file.packing.is_whole or quiet < LAST_LINE_SECONDS:
        return quiet >= LAST_LINE_SECONDS
    return max(quiet, time.time() - file.seen.mtime_ns / 1e9) >= min(rotate_wait, UNFINISHED_SECONDS)


def has_no_writer(fd: int) -> bool:
    """Whether no process has the open file open for writing, as far as the kernel tells: a read lease is granted only then.

    False also when a lease may not be asked for (neither owner nor CAP_LEASE, or a file system without leases).
    """
    try:
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)  # breaking a lease sends SIGIO, which kills; SIGURG is ignored
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True
