"""Writes cleanup's notes into a target: `NAME.error.json`, which explains a bad file, and a list of the files that `retain` deletes.

An explanation never holds data of the file. The list (`.copycat-NAME.retain`) has a line for each file: time, path, inode, size and
modification time, written before the file is. When it is old enough that very file is deleted, and nothing else ever is: deletion by age,
names or patterns would delete files of others one day. The list is read from its oldest line, a limited stretch at a time, and is deleted
when it is empty.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from copycat_agent import __version__
from copycat_agent.sources.spool_dir.cleanup.folders import PREFIX, Folder
from copycat_agent.sources.spool_dir.cleanup.moves import NAME_BYTES, CleanupItem, first_free, rename_new

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
SUFFIX = ".error.json"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
ROOM_BYTES = NAME_BYTES - len(SUFFIX)
"""The longest name of a bad file, so that its explanation has a valid name too."""
_MOST_BYTES = 64 * 1024
_WHAT_TO_DO = (
    "The records before this position were delivered, what follows was not read. Repair the file and drop it again under another name "
    "(what was delivered is then sent again), or cut off what was delivered first, or delete it together with this explanation."
)


def explanation(facts: Mapping[str, Any], item: CleanupItem, why: str) -> bytes:
    """Returns the JSON text. `facts` come first; empty ones are left out."""
    said = {name: value for name, value in facts.items() if value not in (None, "")}
    content = {
        **said,
        "size_bytes": item.size,
        "modified": _text(moment(item.mtime_ns)),
        "reason": why,
        "set_aside": _text(datetime.now(UTC)),
        "what_to_do": _WHAT_TO_DO,
        "agent_version": __version__,
        "identity": item.key,
    }
    return json.dumps(content, indent=2, ensure_ascii=True).encode() + b"\n"


def _text(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(time_ns: int) -> datetime:
    """Returns a file's time in UTC, the same on every host. A time beyond the calendar becomes the calendar's first or last moment."""
    try:
        return _EPOCH + timedelta(microseconds=time_ns // 1000)
    except OverflowError:
        return _LAST if time_ns > 0 else _FIRST


def explain(goal: Folder, item: CleanupItem, text: bytes) -> str:
    """Writes the explanation of a bad file beside a free name for the file. Returns the name. Raises OSError."""

    def taken(name: str) -> bool:
        return goal.look(name) is not None or (goal.look(name + SUFFIX) is not None and not _explains(goal, name, item))

    while True:
        name = first_free(item.name, taken, ROOM_BYTES)
        with suppress(FileExistsError):
            _write_explanation(goal, name, item, text)
            return name


def _explains(goal: Folder, name: str, item: CleanupItem) -> bool:
    """Returns whether the explanation of `name` is that of this very file, written before a crash."""
    try:
        fd = os.open(name + SUFFIX, _READ, dir_fd=goal.fd)
    except OSError:
        return False
    try:
        said = json.loads(os.read(fd, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    finally:
        os.close(fd)
    return isinstance(said, dict) and said.get("identity") == item.key


def _write_explanation(goal: Folder, name: str, item: CleanupItem, text: bytes) -> None:
    """Writes the explanation of `name` durably, unless it exists. Raises OSError: FileExistsError for another file's explanation."""
    part = f"{PREFIX}{item.key}{SUFFIX}.part"
    goal.remove(part)
    if _explains(goal, name, item):
        return
    fd = os.open(part, _WRITE, 0o644, dir_fd=goal.fd)
    try:
        if os.write(fd, text) != len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{goal.path}/{part}")
        os.fsync(fd)
    finally:
        os.close(fd)
    try:
        rename_new(goal, part, goal, name + SUFFIX)
    except OSError:
        goal.remove(part)
        raise


PASS_FILES = 1000
PASS_SECONDS = 0.2
"""How many files one pass deletes at most, and how long it takes."""
_REWRITE_BYTES = 256 * 1024
"""How many bytes of finished lines make a rewrite of the list worthwhile."""
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_COPY_BYTES = 2**20


class _PutFile(NamedTuple):
    put_at: float
    path: str
    inode: int
    size: int
    mtime_ns: int


class Retention:
    """The list of one target directory of one connector. Used by one caller at a time. Methods raise OSError."""

    def __init__(self, connector: str, seconds: float, clock: Callable[[], float]) -> None:
        self._name = f"{PREFIX}{connector}.retain"
        self._seconds = seconds
        self._clock = clock
        self._position = 0
        self._inode = 0

    def note(self, root: Folder, path: str, info: tuple[int, int, int]) -> None:
        """Notes a file that is about to get the name `path` below `root`; `info`: its inode, size and modification time (ns)."""
        line = b"\n" + json.dumps([self._clock(), path, *info]).encode() + b"\n"  # the line before it may be cut
        fd = os.open(self._name, _APPEND, 0o600, dir_fd=root.fd)
        try:
            if os.write(fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._name)
        finally:
            os.close(fd)

    def expire(self, root: Folder) -> int:
        """Deletes the files that are old enough, `PASS_FILES` at most. Returns how many are deleted."""
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
        """Processes due entries. Returns how many files are deleted, and the first error: one file does not block the others."""
        deleted, failed = 0, None
        until = time.monotonic() + PASS_SECONDS
        for entry in self._due(fd):
            info = entry.inode, entry.size, entry.mtime_ns
            try:
                if entry.put_at > self._clock():  # the clock was ahead then: all later entries would wait behind this one
                    self.note(root, entry.path, info)
                else:
                    deleted += self._end(root, entry)
            except OSError as error:
                failed = failed or error
                self.note(root, entry.path, info)  # retried after another `retain`
            if deleted >= PASS_FILES or time.monotonic() > until:
                break
        return deleted, failed

    def _go_on(self, info: os.stat_result) -> None:
        """Continues from the end of the last pass, if this is still the same list."""
        if not stat.S_ISREG(info.st_mode):
            raise OSError(0, "is not a regular file", self._name)
        if info.st_ino != self._inode or info.st_size < self._position:
            self._inode, self._position = info.st_ino, 0

    def _due(self, fd: int) -> Iterator[_PutFile]:
        """Yields entries that are old enough, oldest first, and those from the future; unreadable lines are skipped."""
        with open(os.dup(fd), "rb") as stream:  # noqa: PTH123 - a descriptor
            stream.seek(self._position)
            while True:
                line = stream.readline(_COPY_BYTES)
                entry = _parse(line)
                if not line.endswith(b"\n") or (entry is not None and entry.put_at <= self._clock() < entry.put_at + self._seconds):
                    return
                self._position = stream.tell()
                if entry is not None:
                    yield entry

    def _end(self, root: Folder, entry: _PutFile) -> bool:
        """Deletes the file if it is the one that was put there, and directories that become empty. Returns whether it was deleted."""
        above, _, name = entry.path.rpartition("/")
        try:
            with root.below(above) as parent:
                info = parent.look(name)
                if info is None or not stat.S_ISREG(info.st_mode):
                    return False
                if (info.st_ino, info.st_size, info.st_mtime_ns) != (entry.inode, entry.size, entry.mtime_ns):
                    return False  # another file has the name by now
                parent.remove(name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EXDEV):  # a link: the agent did not put it there
                return False
            raise
        root.prune(above)
        return True

    def _shorten(self, root: Folder, fd: int) -> None:
        """Removes finished lines from the list, if that is worthwhile."""
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


def _parse(line: bytes) -> _PutFile | None:
    """Returns an entry; None for a line that a crash cut, or that the agent did not write."""
    try:
        put_at, path, inode, size, mtime_ns = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = all(isinstance(one, int) for one in (inode, size, mtime_ns)) and isinstance(put_at, int | float)
    good = isinstance(path, str) and path and not path.startswith("/") and ".." not in path.split("/")
    return _PutFile(put_at, path, inode, size, mtime_ns) if numbers and good else None
