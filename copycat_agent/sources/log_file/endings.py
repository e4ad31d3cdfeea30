"""What is left at the end of files: of deleted ones that take up disk space, of archives, of those let go, and stale descriptors."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import signal
import time
from collections.abc import Container, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.log_file.file_state import Draining

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.model import SourceOffset, SourcePartition, SplitResult
    from copycat_agent.sources.base import Changes, Lose
    from copycat_agent.sources.files.paths.opening import Opener
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
    why = f"the file was deleted and not read within hold_deleted{packed.words(file.offset)}"
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
    changes.losses.append(packed.damage_loss(result))
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
            return packed.is_same(fingerprint.reader(fd), info.st_size, offset)
        except OSError:
            return True
        finally:
            os.close(fd)


def close_if_stale(file: TrackedFile) -> bool:
    """After an error: close the file when its descriptor will never work again. Returns whether it did.

    Its turn opens it by its name then, and its identity tells whether it is the same; when the name is gone, a scan searches
    for it as for any file that went away while it was closed. Trouble that may pass (EIO) leaves the descriptor alone: it may be
    the only way to a deleted file.
    """
    if file.fd < 0 or file.in_flight or not _is_stale(file.fd):
        return False
    file.close()
    return True


def _is_stale(fd: int) -> bool:
    """As a task meets it: opened through the driver's descriptor, looked at and read."""
    try:
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.fstat(fd)
            os.pread(again, 1, 0)
        finally:
            os.close(again)
    except OSError as error:
        return error.errno == errno.ESTALE
    return False
