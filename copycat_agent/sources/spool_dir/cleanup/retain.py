"""What cleanup put into a directory is deleted when it is old enough; nothing else ever is.

Beside the files lies a list of what was put there (`.copycat-NAME.retain`), a line each: when, where, inode, size and time of change,
written before the file is. Whatever is not on it, or is not any more what the line says, belongs to somebody else: age, names or patterns
would delete files of others one day. The list is read
from its oldest line, a bounded stretch at a time, and is deleted when nothing is left on it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from copycat_agent.sources.spool_dir.cleanup.folders import PREFIX, Folder

PASS_FILES = 1000
PASS_SECONDS = 0.2
"""What one pass deletes at most, and how long it takes."""
_REWRITE_BYTES = 256 * 1024
"""So many bytes of lines that are done with are worth writing the rest anew."""
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_COPY_BYTES = 2**20


class _Entry(NamedTuple):
    put_at: float
    path: str
    inode: int
    size: int
    mtime_ns: int


class Retention:
    """That of one target directory of one connector. Used by its thread only. Methods raise OSError."""

    def __init__(self, connector: str, seconds: float, clock: Callable[[], float]) -> None:
        self._name = f"{PREFIX}{connector}.retain"
        self._seconds = seconds
        self._clock = clock
        self._position = 0
        self._inode = 0

    def note(self, root: Folder, path: str, info: tuple[int, int, int]) -> None:
        """A file is about to get the name `path` below `root`; `info`: its inode, size and time of change (ns)."""
        line = b"\n" + json.dumps([self._clock(), path, *info]).encode() + b"\n"  # a line before it may have been cut
        fd = os.open(self._name, _APPEND, 0o600, dir_fd=root.fd)
        try:
            if os.write(fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._name)
        finally:
            os.close(fd)

    def expire(self, root: Folder) -> int:
        """Delete what is old enough, `PASS_FILES` at most. Returns how many files are gone."""
        try:
            fd = os.open(self._name, _READ, dir_fd=root.fd)
        except FileNotFoundError:
            return 0
        try:
            self._go_on(os.fstat(fd))
            deleted, failed = self._pass(root, fd)
            self._shorten(root, fd)
        finally:
            os.close(fd)
        if failed is not None:
            raise failed
        return deleted

    def _pass(self, root: Folder, fd: int) -> tuple[int, OSError | None]:
        """Go over what is due; how many files are gone, and the first error: one file holds up no other."""
        deleted, failed = 0, None
        until = time.monotonic() + PASS_SECONDS
        for entry in self._due(fd):
            try:
                deleted += self._end(root, entry)
            except OSError as error:
                failed = failed or error
                self.note(root, entry.path, (entry.inode, entry.size, entry.mtime_ns))  # again when it is as old once more
            if deleted >= PASS_FILES or time.monotonic() > until:
                break
        return deleted, failed

    def _go_on(self, info: os.stat_result) -> None:
        """Where the last pass ended, if this is the same list still."""
        if not stat.S_ISREG(info.st_mode):
            raise OSError(0, "is not a regular file", self._name)
        if info.st_ino != self._inode or info.st_size < self._position:
            self._inode, self._position = info.st_ino, 0

    def _due(self, fd: int) -> Iterator[_Entry]:
        """Entries that are old enough, oldest first; a line that nobody can read is passed over."""
        with open(os.dup(fd), "rb") as stream:  # noqa: PTH123 - a descriptor
            stream.seek(self._position)
            while True:
                line = stream.readline(_COPY_BYTES)
                entry = _parse(line)
                if not line.endswith(b"\n") or (entry is not None and entry.put_at + self._seconds > self._clock()):
                    return
                self._position = stream.tell()
                if entry is not None:
                    yield entry

    def _end(self, root: Folder, entry: _Entry) -> bool:
        """Delete the file if it is the one that was put there, and the directories that this leaves empty."""
        above, _, name = entry.path.rpartition("/")
        try:
            with root.below(above) as parent:
                info = parent.look(name)
                if info is None or not stat.S_ISREG(info.st_mode):
                    return False
                if (info.st_ino, info.st_size, info.st_mtime_ns) != (entry.inode, entry.size, entry.mtime_ns):
                    return False  # somebody's own by now
                parent.remove(name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EXDEV):  # a link: nothing that we put there
                return False
            raise
        root.prune(above)
        return True

    def _shorten(self, root: Folder, fd: int) -> None:
        """Leave out what is done with, when that is worth it."""
        size = os.fstat(fd).st_size
        if self._position == size:
            root.remove(self._name)
        elif self._position > max(_REWRITE_BYTES, size // 2):
            part = f"{self._name}.part"
            root.remove(part)
            to = os.open(part, _WRITE, 0o600, dir_fd=root.fd)
            position = self._position
            with open(to, "wb") as stream:  # noqa: PTH123 - a descriptor
                while data := os.pread(fd, _COPY_BYTES, position):
                    position += stream.write(data)
                stream.flush()
                os.fsync(to)
            os.replace(part, self._name, src_dir_fd=root.fd, dst_dir_fd=root.fd)
        else:
            return
        self._position = 0
        root.sync()


def _parse(line: bytes) -> _Entry | None:
    """An entry; None for a line that a crash cut, or that nobody here wrote."""
    try:
        put_at, path, inode, size, mtime_ns = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = all(isinstance(one, int) for one in (inode, size, mtime_ns)) and isinstance(put_at, int | float)
    good = isinstance(path, str) and path and not path.startswith("/") and ".." not in path.split("/")
    return _Entry(put_at, path, inode, size, mtime_ns) if numbers and good else None
